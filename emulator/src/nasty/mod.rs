//! A NIC that does not forgive: modes in which the device uses every freedom that a
//! ConnectX has, so that mistakes of a driver show which a kinder device hides.
//!
//! This module decides; the device asks. `Policies` has one function for each place
//! at which a mode changes the device, and each returns at once what the device does
//! anyway if its mode is not set. `nic`, `uar` and `uverbs` contain no other trace of
//! the modes than these questions and what follows from the answers.
//!
//! | module | contents |
//! |---|---|
//! | `modes` | the names of the modes, and lists of them as text ([`Nasty`]) |
//! | `policies` | the decisions of a NIC, with their random choices |
//! | `ring_memory` | memory for the rings of libmlx5, with a page behind each that cannot be accessed |

mod modes;
pub(crate) mod policies;
pub(crate) mod ring_memory;

pub use modes::{Modes, Nasty, NastyError};

//! uDAPL 1.2 (DAT, the Direct Access Transport API) in Rust, on `dat-engine`.
//!
//! [`types`] are the plain values, [`handle`] is how objects are named and
//! found, `object` holds the objects. The C face is a package of its own that
//! converts and calls here; nothing in this crate has a layout that C knows.

#![deny(unsafe_code)]

mod error;
// Finding an object behind a number that came from C needs raw memory.
#[allow(unsafe_code)]
pub mod handle;
pub mod object;
pub mod options;
pub mod registry;
pub mod state;
// Memory that the device uses, and posting to it: the reasons stand there.
#[allow(unsafe_code)]
pub mod safe;
pub mod status;
pub mod types;

pub use error::{DatError, Result};
pub use handle::{Handle, Kind};
pub use status::{DatReturn, ReturnType, Subtype};

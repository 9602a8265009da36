//! Plain values of DAT: flags, states, attributes, events.
//!
//! The flag words have the bits of the C headers, which 1.2 and 2.0 share. No struct here has the
//! layout of a C struct.

mod attributes;
mod event;
mod extended;
mod flags;
mod segment;
mod state;

pub use dat_engine::AtomicOp;

pub use attributes::{EpAttributes, SrqAttributes};
pub use event::{
    AsyncKind, AsyncReason, ConnectionKind, DtoOperation, DtoStatus, Event, EventData, PrivateData,
};
pub use extended::{AtomicMacro, ExtendedOperation};
pub use flags::{CompletionFlags, EvdFlags, MemPrivileges};
pub use segment::{LmrSegment, RmrSegment};
pub use state::EpState;

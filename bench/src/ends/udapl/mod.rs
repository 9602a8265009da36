//! uDAPL's C calls, made as a C program makes them: through function pointers from
//! dlsym.
//!
//! [`v1`] and [`v2`] are uDAPL 1.2 and 2.0. Both compile the files of `shared`, with the
//! types of their own version, so that programs of both are measured with the same code.
//!
//! ```text
//! loader           dlopen, dlsym
//! shared/library   the function pointers of a version's library
//! shared/adapter   an open adapter with a protection zone
//! shared/events    EVDs
//! shared/memory    LMRs
//! shared/interface opening and connecting
//! shared/end       one end: its posts and polls
//! address          reading a sockaddr
//! ```
#![allow(
    clippy::duplicate_mod,
    reason = "the same source for the types of two versions"
)]

/// Declares the modules of `shared`, in the module of a version.
macro_rules! shared {
    () => {
        #[path = "shared/adapter.rs"]
        mod adapter;
        #[path = "shared/end.rs"]
        mod end;
        #[path = "shared/events.rs"]
        mod events;
        #[path = "shared/interface.rs"]
        mod interface;
        #[path = "shared/library.rs"]
        mod library;
        #[path = "shared/memory.rs"]
        mod memory;
    };
}
use shared;

mod address;
mod loader;
pub(crate) mod v1;
pub(crate) mod v2;

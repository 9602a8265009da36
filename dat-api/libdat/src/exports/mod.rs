//! The exported C functions whose types are the same in all versions of uDAPL.
//! `version::calls` has the others, which are exported from here too.
//!
//! The headers in `include/dat` document each call. The functions here resolve
//! handles to objects, check pointers and masks, convert arguments, and call the
//! object in `dat_api::object`. Most are defined by `face::call`; posts, waits
//! and calls that are found by a name are written out.
//!
//! # Safety
//!
//! All calls have the same contract:
//!
//! - A handle may have any value; the call validates it.
//! - A pointer is null or leads to memory for its type. That memory is readable,
//!   and writable for results, for the duration of the call. It need not be
//!   aligned.
//! - An array has as many elements as its count says.
//! - Registered memory stays mapped until its LMR is freed.
//! - For calls that the specification marks as not thread-safe, one thread at a
//!   time calls them for an object, and no thread frees an object while another
//!   thread posts to it.

#![allow(missing_docs, reason = "the headers explain each call")]
#![allow(
    clippy::missing_safety_doc,
    reason = "one contract for all, in the module's documentation"
)]

pub(crate) mod cno;
mod context;
mod cr;
mod ep;
mod ep_connect;
mod ep_state;
mod evd;
mod evd_take;
mod evd_timestamped;
pub(crate) mod ia;
pub(crate) mod lmr;
pub(crate) mod names;
mod post;
mod provider;
mod psp;
mod pz;
mod registry;
pub(crate) mod rmr;
mod rsp;
mod srq;
mod status;

pub use crate::version::calls::*;
pub use cno::*;
pub use context::*;
pub use cr::*;
pub use ep::*;
pub use ep_connect::*;
pub use ep_state::*;
pub use evd::*;
pub use evd_take::*;
pub use evd_timestamped::*;
pub use ia::*;
pub use lmr::*;
pub use names::*;
pub use post::*;
pub use provider::*;
pub use psp::*;
pub use pz::*;
pub use registry::*;
pub use rmr::*;
pub use rsp::*;
pub use srq::*;
pub use status::*;

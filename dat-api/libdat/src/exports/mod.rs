//! The calls of uDAPL 1.2, as C programs find them, and one of our own (`counters`).
//!
//! What each does, takes and answers is said in the headers in `include/dat`.
//! Here a call finds the objects of its handles, checks its pointers and
//! masks, converts, and lets the object answer.
//!
//! # Safety
//!
//! All calls have the same contract, that of C:
//!
//! - a handle may be any value; it is checked;
//! - a pointer is null, or leads to memory for what it points to, readable
//!   and for results writable while the call lasts; it need not be aligned;
//! - an array has as many elements as its count says;
//! - memory that is registered stays mapped until its LMR is freed;
//! - calls that the specification marks unsafe for threads are made by one
//!   thread at a time for one object, and no object is freed while another
//!   thread posts to it.

#![allow(missing_docs, reason = "the headers explain each call")]
#![allow(
    clippy::missing_safety_doc,
    reason = "one contract for all, in the module's documentation"
)]
#![allow(
    clippy::too_many_arguments,
    reason = "the signatures are those of the headers"
)]

mod cno;
mod context;
mod counters;
mod cr;
mod ep;
mod ep_connect;
mod ep_post;
mod ep_state;
mod evd;
mod evd_take;
mod ia;
mod lmr;
mod provider;
mod psp;
mod pz;
mod registry;
mod rmr;
mod rsp;
mod srq;
mod status;

pub use cno::*;
pub use context::*;
pub use counters::*;
pub use cr::*;
pub use ep::*;
pub use ep_connect::*;
pub use ep_post::*;
pub use ep_state::*;
pub use evd::*;
pub use evd_take::*;
pub use ia::*;
pub use lmr::*;
pub use provider::*;
pub use psp::*;
pub use pz::*;
pub use registry::*;
pub use rmr::*;
pub use rsp::*;
pub use srq::*;
pub use status::*;

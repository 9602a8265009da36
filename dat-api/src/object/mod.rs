//! The objects of DAT. They have no C layouts: the C interfaces convert values and call here.
//!
//! A module imports only those below it in this table, so each can be read without the modules
//! above:
//!
//! | module | content |
//! | --- | --- |
//! | `kinds` | the type of each kind of handle |
//! | `adapter` | opening and closing interface adapters |
//! | `psp`, `rsp`, `service_point` | service points, and what the two kinds have in common |
//! | `cr` | connection requests |
//! | `rmr` | remote memory regions |
//! | `ep` | endpoints |
//! | `srq` | shared receive queues |
//! | `cno` | notification objects |
//! | `evd` | event dispatchers |
//! | `post` | what posts to endpoints and to shared receive queues have in common |
//! | `lmr` | local memory regions |
//! | `pz` | protection zones |
//! | `ia` | interface adapters: the device, its limits, and its objects |
//! | `peer`, `steps`, `usage`, `wr_data`, `counters` | parts of the objects |
//!
//! An object also calls those that use it: an adapter frees its objects and forwards the events of
//! the device, an EVD passes a completion to its endpoint and an event to its CNO, a full SRQ makes
//! its endpoints poll. Such a call goes through the handle, by [`crate::handle::Upcalls`].
//! `perf-scripts/lib/layers` checks the order.
//!
//! Decisions:
//! - `docs/decisions/019-unlocked-state-is-unsafe.md`
//! - `docs/decisions/034-deviations-from-dat.md`

#[allow(unsafe_code)]
mod adapter;
pub mod cno;
pub mod counters;
#[allow(unsafe_code)]
pub mod cr;
pub mod ep;
pub mod evd;
pub mod ia;
#[allow(unsafe_code)]
mod kinds;
#[allow(unsafe_code)]
pub(crate) mod service_point;
// The consumer guarantees that the memory is mapped.
#[allow(unsafe_code)]
pub mod lmr;
pub(crate) mod peer;
pub(crate) mod post;
pub mod psp;
pub mod pz;
#[allow(unsafe_code)]
pub mod rmr;
pub mod rsp;
pub mod srq;
pub mod steps;
pub(crate) mod usage;
mod wr_data;

pub use post::list::ListError;

use crate::error::DatError;
use crate::handle::{Kind, Object};
use crate::status::{ReturnType, Subtype};

/// Returns the cause for an object that belongs to another IA than the call.
pub(crate) fn of_another_ia(what: &str, its: &ia::Ia, expected: &ia::Ia) -> String {
    format!(
        "the {what} belongs to IA {:#x}: expected one of IA {:#x}; create both on one IA",
        its.handle().bits(),
        expected.handle().bits()
    )
}

/// The error if a handle names no object of this type.
pub(crate) fn stale<T: Object>() -> DatError {
    let (subtype, what) = match T::KIND {
        Kind::Cr => (
            Subtype::InvalidHandleCr,
            "connection request; it may have been answered",
        ),
        Kind::Ep => (Subtype::InvalidHandleEp, "endpoint; it may have been freed"),
        Kind::Evd => (Subtype::InvalidHandle1, "EVD; it may have been freed"),
        Kind::Ia => (Subtype::InvalidHandleIa, "open IA"),
        Kind::Lmr => (Subtype::InvalidHandleLmr, "LMR"),
        Kind::Psp => (
            Subtype::InvalidHandlePsp,
            "public service point; it may have been freed",
        ),
        Kind::Pz => (Subtype::InvalidHandlePz, "protection zone"),
        Kind::Rmr => (Subtype::InvalidHandleRmr, "RMR"),
        Kind::Rsp => (
            Subtype::InvalidHandleRsp,
            "reserved service point; it may have been freed",
        ),
        Kind::Cno => (Subtype::InvalidHandleCno, "CNO; it may have been freed"),
        Kind::Srq => (
            Subtype::InvalidHandleSrq,
            "shared receive queue; it may have been freed",
        ),
    };
    let cause = format!("the handle names no {what}");
    DatError::new(ReturnType::InvalidHandle, subtype, cause)
}

/// The error if no slot is left for another object.
pub(crate) fn exhausted() -> DatError {
    DatError::new(
        ReturnType::InsufficientResources,
        Subtype::ResourceMemory,
        "the process has no handles left, or no memory for them; free unused objects",
    )
}

//! The objects of DAT. They know no ABI: the C faces convert and call here.

#[allow(unsafe_code)]
mod adapter;
pub mod cno;
pub mod counters;
#[allow(unsafe_code)]
pub mod cr;
#[allow(unsafe_code)]
pub(crate) mod door;
pub mod ep;
pub mod evd;
pub mod ia;
#[allow(unsafe_code)]
mod kinds;
// The consumer vouches for the memory.
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

use crate::error::DatError;
use crate::status::{ReturnType, Subtype};

/// There is no slot for another object.
pub(crate) fn exhausted() -> DatError {
    DatError::new(
        ReturnType::InsufficientResources,
        Subtype::ResourceMemory,
        "the process has no handles left, or no memory for them; free unused objects",
    )
}

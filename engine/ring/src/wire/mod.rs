//! The bytes that cross to the device and back, as values.
//!
//! Every segment of a WQE and the CQE, one file each, as `mlx5dv.h` and the
//! "Work Queues" and "Completion Queues" chapters of the PRM define them.
//! Nothing here accesses ring memory: this module defines the bytes of a value,
//! and the rings where they go. The segments and the CQE print as text by
//! `Display`.

#![forbid(unsafe_code)]

mod atomic;
mod be;
mod cqe;
mod ctrl;
mod data;
mod dump;
mod inline;
mod opcode;
mod raddr;
mod srq_next;
mod syndrome;
mod umr;

pub use atomic::AtomicOp;
pub use be::{Be16, Be32, Be64};
pub use cqe::offset as cqe_offset;
pub use cqe::{Cqe, CqeTail, InlineScatter, OwnOp, RequestQpn};
pub use ctrl::{CtrlFlags, CtrlSegment};
pub use data::DataSegment;
pub(crate) use data::offset as data_offset;
pub use inline::{InlineHeader, inline_units};
pub use opcode::{CqeOpcode, WqeOpcode};
pub use raddr::RemoteSegment;
pub use srq_next::SrqNextSegment;
pub use syndrome::Syndrome;
pub use umr::{BIND_UNITS, LONGEST_WINDOW, MkeyAccess, WindowChange, WindowRange};

/// Bytes of a send WQE's basic block.
pub const WQEBB: usize = 64;

/// WQE sizes (`ds`) are counted in units of this many bytes.
pub const UNIT: usize = 16;

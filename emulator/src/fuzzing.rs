//! What the targets of `fuzz/` call, each with bytes that the fuzzer chooses. The crate has this
//! module in such builds only (`cfg(fuzzing)`).
//!
//! Decision: `docs/decisions/085-fuzz-on-stable.md`

mod packets;

pub use self::packets::packets;
pub use crate::nic::fuzzing::requests;
pub use crate::nldev::fuzzing::netlink;
pub use crate::ucma::fuzzing::rdma_cm;
pub use crate::uverbs::fuzzing::uverbs;

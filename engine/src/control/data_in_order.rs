//! Whether a device writes the bytes of one message in their order.

use super::qp::VerbsQp;
use core::fmt;
use dv_sys::verbs::{ibv_query_qp_data_in_order, ibv_wr_opcode};

/// Whether the bytes of one RDMA write arrive in ascending order, so that the last byte
/// may be polled in memory (`ibv_query_qp_data_in_order`).
///
/// The answer is about each message alone, not about the order between two messages, and
/// holds for the processor's reads of memory that was registered without
/// [`super::Access::RELAXED_ORDERING`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataInOrder {
    /// The device promises it.
    Yes,
    /// The device, its driver or the processor's architecture does not promise it.
    /// libibverbs knows an answer on x86 only, and for few drivers.
    No,
    /// The queue pair is not connected, so that the device cannot be asked.
    Unknown,
}

impl DataInOrder {
    /// Returns what holds for both of two queue pairs.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Yes, Self::Yes) => Self::Yes,
            _ => Self::Unknown,
        }
    }

    /// Returns `yes`, `no` or `unknown`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for DataInOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl VerbsQp {
    /// Asks libibverbs about RDMA writes of the peer. The queue pair is in RTS.
    pub(crate) fn data_in_order(&self) -> DataInOrder {
        if !self.context().here() {
            return DataInOrder::Unknown;
        }
        // SAFETY: the QP is alive. Flags of 0 ask about the whole message, in every
        // version of rdma-core.
        let answer = unsafe {
            ibv_query_qp_data_in_order(self.as_ptr(), ibv_wr_opcode::IBV_WR_RDMA_WRITE, 0)
        };
        match answer {
            1 => DataInOrder::Yes,
            _ => DataInOrder::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::DataInOrder::{self, No, Unknown, Yes};

    #[test]
    fn two_sides_promise_what_both_do() {
        for (one, other, both) in [
            (Yes, Yes, Yes),
            (Yes, No, No),
            (No, Unknown, No),
            (Yes, Unknown, Unknown),
            (Unknown, Unknown, Unknown),
        ] {
            assert_eq!(one.and(other), both);
            assert_eq!(other.and(one), both);
        }
        let names = [Yes, No, Unknown].map(DataInOrder::name);
        assert_eq!(names, ["yes", "no", "unknown"]);
    }
}

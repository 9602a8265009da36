//! The extended data transfers, which `dat_ib_extensions.h` of DAT 2.0 declares.

use dat_engine::{AtomicOp, CompletionOp};

use crate::status::Subtype;

/// The operation of an extended data transfer, with the numbers of DAT 2.0's `DAT_IB_DTOS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ExtendedOperation {
    /// An RDMA write with immediate data.
    RdmaWriteImmed = 8,
    /// A receive that the peer's RDMA write with immediate data has taken. Its memory is untouched.
    RecvImmed = 9,
    /// A fetch-and-add.
    FetchAdd = 10,
    /// A compare-and-swap.
    CmpSwap = 11,
    /// A receive of a message with immediate data.
    RecvMsgImmed = 12,
}

impl ExtendedOperation {
    /// Returns the operation of a completion; `None` if it is not extended. `with_imm` says whether
    /// it has immediate data.
    #[inline(always)]
    pub(crate) const fn of(op: CompletionOp, with_imm: bool) -> Option<Self> {
        Some(match op {
            CompletionOp::WriteImm => Self::RdmaWriteImmed,
            CompletionOp::FetchAdd => Self::FetchAdd,
            CompletionOp::CompareSwap => Self::CmpSwap,
            CompletionOp::RecvWriteImm => Self::RecvImmed,
            CompletionOp::Recv if with_imm => Self::RecvMsgImmed,
            _ => return None,
        })
    }
}

/// The macro of the header that posts an atomic operation.
#[derive(Clone, Copy, Debug)]
pub struct AtomicMacro {
    /// Its name.
    pub name: &'static str,
    /// The local segment among its arguments.
    pub local: Subtype,
    /// The remote segment among its arguments.
    pub remote: Subtype,
}

impl AtomicMacro {
    /// Returns the macro of an operation.
    #[must_use]
    pub const fn of(op: AtomicOp) -> Self {
        match op {
            AtomicOp::FetchAdd(_) => Self {
                name: "dat_ib_post_fetch_and_add",
                local: Subtype::InvalidArg3,
                remote: Subtype::InvalidArg5,
            },
            AtomicOp::CompareSwap { .. } => Self {
                name: "dat_ib_post_cmp_and_swap",
                local: Subtype::InvalidArg4,
                remote: Subtype::InvalidArg6,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_have_the_operations_of_the_header() {
        let operations = |with_imm| {
            CompletionOp::ALL
                .into_iter()
                .filter_map(move |op| Some((op, ExtendedOperation::of(op, with_imm)? as u8)))
                .collect::<Vec<_>>()
        };
        let mut expected = vec![
            (CompletionOp::RecvWriteImm, 9),
            (CompletionOp::WriteImm, 8),
            (CompletionOp::FetchAdd, 10),
            (CompletionOp::CompareSwap, 11),
        ];
        assert_eq!(operations(false), expected);
        expected.insert(0, (CompletionOp::Recv, 12));
        assert_eq!(operations(true), expected);
    }
}

//! The measured operations.

use dat_engine::AtomicOp;

use super::requests::Requests;
use crate::ends::End;

/// Defines the operations, in the order of the table: their names in JSON and in the table.
macro_rules! operations {
    ($($operation:ident $key:literal $title:literal,)*) => {
        /// An operation of the data path.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Operation {
            $($operation,)*
        }

        impl Operation {
            /// All operations, in the order of the table.
            pub(super) const ALL: [Self; [$($key),*].len()] = [$(Self::$operation),*];

            /// Returns the name in JSON.
            pub(super) fn key(self) -> &'static str {
                match self {
                    $(Self::$operation => $key,)*
                }
            }

            /// Returns the name in the table.
            pub(super) fn title(self) -> &'static str {
                match self {
                    $(Self::$operation => $title,)*
                }
            }
        }
    };
}

operations! {
    PostRecv "post_recv" "post_recv, single",
    PostRecvList "post_recv_list" "post_recv, list of 32",
    SrqPost "srq_post" "SRQ post, single",
    SrqPostList "srq_post_list" "SRQ post, list of 32",
    PollRecv "hit_recv" "receive completion, single",
    PollRecvBatch "hit_recv_batch" "receive completion, batch of 16",
    PollRecv8 "hit_recv_8" "receive completion, 8 B in the CQE",
    PollRecv32 "hit_recv_32" "receive completion, 32 B in the CQE",
    PollSrq "hit_srq" "SRQ receive completion, single",
    PollSrqBatch "hit_srq_batch" "SRQ receive completion, batch of 16",
    PollSrq32 "hit_srq_32" "SRQ receive completion, 32 B in CQE",
    PollSend "hit_send" "send completion, single",
    PollSendBatch "hit_send_batch" "send completion, batch of 16",
    PollFetchAdd "hit_fetch_add" "fetch-and-add completion",
    PollImmediate "hit_immed" "receive completion, immediate data",
    Empty "empty" "empty poll",
    Wait "wait" "wait, each of a burst of receives",
    WaitTwo "wait_two" "wait for two, in a burst",
    WaitSleep "wait_sleep" "wait that sleeps: arm, sleep, wake",
    AwaitSleep "await_sleep" "reactor: arm, poll descriptor, take",
    WaitEmpty "wait_empty" "wait with timeout 0, empty",
    Send "send" "send 64 B not inline, single",
    SendList "send_list" "send 64 B not inline, list of 32",
    SendInline "send_inline" "send 64 B inline, single",
    SendInlineList "send_inline_list" "send 64 B inline, list of 32",
    Write "write" "RDMA write 64 B not inline, single",
    Read "read" "RDMA read 64 B, single",
    FetchAdd "fetch_add" "fetch-and-add, single",
    CompareSwap "compare_swap" "compare-and-swap, single",
}

impl Operation {
    /// The requests for which the peer posts nothing.
    pub(super) const ONE_SIDED: [Self; 4] =
        [Self::Write, Self::Read, Self::FetchAdd, Self::CompareSwap];

    pub(super) fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CompareSwap)
    }

    /// Returns the operation that polls the completions of [`Self::ONE_SIDED`], if it is measured.
    pub(super) fn poll(self) -> Option<Self> {
        (self == Self::FetchAdd).then_some(Self::PollFetchAdd)
    }

    /// Posts `count` requests of [`Self::ONE_SIDED`], each operation in a loop of its own, because
    /// in a program the operation is a constant. Returns whether all posts succeeded.
    #[inline(always)]
    pub(super) fn post_all<E: End>(self, end: &mut Requests<E>, count: u32) -> bool {
        match self {
            Self::Write => post_all(count, |at| end.write(at)),
            Self::Read => post_all(count, |at| end.read(at)),
            Self::FetchAdd => post_all(count, |at| end.atomic(at, AtomicOp::FetchAdd(1))),
            Self::CompareSwap => post_all(count, |compare| {
                end.atomic(compare, AtomicOp::CompareSwap { compare, swap: 1 })
            }),
            _ => false,
        }
    }

    pub(super) fn from_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.key() == key)
    }
}

/// Posts `count` times. Returns whether all posts succeeded.
#[inline(always)]
pub(super) fn post_all(count: u32, mut post: impl FnMut(u64) -> bool) -> bool {
    (0..count).all(|at| post(u64::from(at)))
}

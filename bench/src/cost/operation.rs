//! The measured operations.

use dat_engine::AtomicOp;

use super::requests::Requests;
use crate::ends::End;

/// An operation of the data path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    PostRecv,
    PostRecvList,
    SrqPost,
    SrqPostList,
    PollRecv,
    PollRecvBatch,
    PollRecv8,
    PollRecv32,
    PollSrq,
    PollSrqBatch,
    PollSrq32,
    PollSend,
    PollSendBatch,
    PollFetchAdd,
    PollImmediate,
    Empty,
    Wait,
    WaitTwo,
    WaitSleep,
    WaitEmpty,
    Send,
    SendList,
    SendInline,
    SendInlineList,
    Write,
    Read,
    FetchAdd,
    CompareSwap,
}

impl Operation {
    /// All operations, in the order of the table.
    pub(super) const ALL: [Self; 28] = [
        Self::PostRecv,
        Self::PostRecvList,
        Self::SrqPost,
        Self::SrqPostList,
        Self::PollRecv,
        Self::PollRecvBatch,
        Self::PollRecv8,
        Self::PollRecv32,
        Self::PollSrq,
        Self::PollSrqBatch,
        Self::PollSrq32,
        Self::PollSend,
        Self::PollSendBatch,
        Self::PollFetchAdd,
        Self::PollImmediate,
        Self::Empty,
        Self::Wait,
        Self::WaitTwo,
        Self::WaitSleep,
        Self::WaitEmpty,
        Self::Send,
        Self::SendList,
        Self::SendInline,
        Self::SendInlineList,
        Self::Write,
        Self::Read,
        Self::FetchAdd,
        Self::CompareSwap,
    ];

    /// Returns the name in JSON.
    pub(super) fn key(self) -> &'static str {
        self.names().0
    }

    /// Returns the name in the table.
    pub(super) fn title(self) -> &'static str {
        self.names().1
    }

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

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::PostRecv => ("post_recv", "post_recv, single"),
            Self::PostRecvList => ("post_recv_list", "post_recv, list of 32"),
            Self::SrqPost => ("srq_post", "SRQ post, single"),
            Self::SrqPostList => ("srq_post_list", "SRQ post, list of 32"),
            Self::PollRecv => ("hit_recv", "receive completion, single"),
            Self::PollRecvBatch => ("hit_recv_batch", "receive completion, batch of 16"),
            Self::PollRecv8 => ("hit_recv_8", "receive completion, 8 B in the CQE"),
            Self::PollRecv32 => ("hit_recv_32", "receive completion, 32 B in the CQE"),
            Self::PollSrq => ("hit_srq", "SRQ receive completion, single"),
            Self::PollSrqBatch => ("hit_srq_batch", "SRQ receive completion, batch of 16"),
            Self::PollSrq32 => ("hit_srq_32", "SRQ receive completion, 32 B in CQE"),
            Self::PollSend => ("hit_send", "send completion, single"),
            Self::PollSendBatch => ("hit_send_batch", "send completion, batch of 16"),
            Self::PollFetchAdd => ("hit_fetch_add", "fetch-and-add completion"),
            Self::PollImmediate => ("hit_immed", "receive completion, immediate data"),
            Self::Empty => ("empty", "empty poll"),
            Self::Wait => ("wait", "wait, each of a burst of receives"),
            Self::WaitTwo => ("wait_two", "wait for two, in a burst"),
            Self::WaitSleep => ("wait_sleep", "wait that sleeps: arm, sleep, wake"),
            Self::WaitEmpty => ("wait_empty", "wait with timeout 0, empty"),
            Self::Send => ("send", "send 64 B not inline, single"),
            Self::SendList => ("send_list", "send 64 B not inline, list of 32"),
            Self::SendInline => ("send_inline", "send 64 B inline, single"),
            Self::SendInlineList => ("send_inline_list", "send 64 B inline, list of 32"),
            Self::Write => ("write", "RDMA write 64 B not inline, single"),
            Self::Read => ("read", "RDMA read 64 B, single"),
            Self::FetchAdd => ("fetch_add", "fetch-and-add, single"),
            Self::CompareSwap => ("compare_swap", "compare-and-swap, single"),
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

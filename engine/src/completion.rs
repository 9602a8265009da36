//! Completions: one [`Completion`] per reported request.
//!
//! Decision: `docs/decisions/011-cold-calls-get-copies.md`

use core::fmt;

use mlx5_rings::send::Head;
pub use mlx5_rings::status::Status;
use mlx5_rings::wire::WqeOpcode;

use crate::request::SendOp;

/// One completed request, successful or failed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// The `wr_id` of the request.
    pub wr_id: u64,
    /// The context of the endpoint ([`crate::EndpointOptions::context`]).
    pub context: u64,
    /// Bytes received, read, or fetched by an atomic operation; 0 for sends and writes
    /// and when `status` is an error.
    pub byte_len: u32,
    /// For a receive: the immediate data in host byte order if `flags` has
    /// `WITH_IMM`, else 0. For a request of the send queue: the `wr_data` that it
    /// was posted with, whether it succeeded or failed.
    pub imm: u32,
    /// The number of the local queue pair.
    pub qpn: u32,
    /// Success, or the kind of error.
    pub status: Status,
    /// The vendor's own code for an error, for the vendor's support; 0 if there is
    /// none.
    pub vendor_syndrome: u8,
    /// The kind of request. After an error only the queue is certain:
    /// [`CompletionOp::Recv`] for a receive; for a send, the operation that the
    /// device still reports.
    pub op: CompletionOp,
    /// Further properties.
    pub flags: CompletionFlags,
}

const _: () = assert!(size_of::<Completion>() == 32);

impl Completion {
    /// Returns a copy assembled field by field, for a value that an outlined
    /// function has left in memory. Values from the fast path can then stay in
    /// registers.
    #[inline(always)]
    pub(crate) fn copied(&self) -> Self {
        let Self {
            wr_id,
            context,
            byte_len,
            imm,
            qpn,
            status,
            vendor_syndrome,
            op,
            flags,
        } = *self;
        Self {
            wr_id,
            context,
            byte_len,
            imm,
            qpn,
            status,
            vendor_syndrome,
            op,
            flags,
        }
    }
}

/// The fields that several completions have in common, packed into words, so that
/// each completion is written by four stores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pattern {
    /// The last word: the queue pair's number, the status, and the fields after it.
    tail: u64,
}

impl Pattern {
    /// Returns the common fields: all except `wr_id`, context, length and immediate
    /// data.
    #[inline(always)]
    pub(crate) fn of(completion: Completion) -> Self {
        // SAFETY: four words without padding, as asserted above.
        let [.., tail] = unsafe { core::mem::transmute::<Completion, [u64; 4]>(completion) };
        Self { tail }
    }

    /// Returns a completion with these common fields.
    #[inline(always)]
    pub(crate) fn completion(
        self,
        wr_id: u64,
        context: u64,
        byte_len: u32,
        imm: u32,
    ) -> Completion {
        // SAFETY: integers of the same size.
        let numbers = unsafe { core::mem::transmute::<[u32; 2], u64>([byte_len, imm]) };
        // SAFETY: the last word is that of a completion, and the fields in the
        // others are integers, in this order.
        unsafe {
            core::mem::transmute::<[u64; 4], Completion>([wr_id, context, numbers, self.tail])
        }
    }
}

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(Completion, context) == 8);
    assert!(offset_of!(Completion, byte_len) == 16 && offset_of!(Completion, imm) == 20);
    assert!(offset_of!(Completion, qpn) == 24);
};

bitflags::bitflags! {
    /// Further properties of a completion.
    #[repr(transparent)]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CompletionFlags: u8 {
        /// `imm` is valid.
        const WITH_IMM = 1 << 0;
        /// The peer requested a solicited event.
        const SOLICITED = 1 << 1;
    }
}

/// The kind of request that completed.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompletionOp {
    /// A send, with or without immediate data.
    #[default]
    Send,
    /// A write to the peer's memory.
    Write,
    /// A read from the peer's memory.
    Read,
    /// A receive that was completed by a message.
    Recv,
    /// A receive that was completed by an RDMA write with immediate data.
    RecvWriteImm,
    /// A marker ([`crate::SendOp::Nop`]): all sends before it have completed.
    Nop,
    /// A bind or unbind of a memory window.
    Bind,
    /// A write to the peer's memory with immediate data.
    WriteImm,
    /// A fetch-and-add in the peer's memory.
    FetchAdd,
    /// A compare-and-swap in the peer's memory.
    CompareSwap,
}

impl CompletionOp {
    /// All operations, each at the index that is its number.
    pub const ALL: [Self; 10] = {
        use CompletionOp::*;
        let all = [
            Send,
            Write,
            Read,
            Recv,
            RecvWriteImm,
            Nop,
            Bind,
            WriteImm,
            FetchAdd,
            CompareSwap,
        ];
        let mut at = 0;
        while at < all.len() {
            assert!(all[at] as usize == at);
            at += 1;
        }
        all
    };

    /// Returns the operation of a request of the send queue, from the opcode of its WQE.
    #[inline(always)]
    #[must_use]
    pub const fn of(opcode: WqeOpcode) -> Self {
        match opcode {
            WqeOpcode::Send | WqeOpcode::SendImm => Self::Send,
            WqeOpcode::RdmaWrite => Self::Write,
            WqeOpcode::RdmaWriteImm => Self::WriteImm,
            WqeOpcode::RdmaRead => Self::Read,
            WqeOpcode::AtomicFetchAdd => Self::FetchAdd,
            WqeOpcode::AtomicCompareSwap => Self::CompareSwap,
            WqeOpcode::Nop => Self::Nop,
            WqeOpcode::Umr => Self::Bind,
        }
    }

    /// Returns whether it is an atomic operation.
    #[inline(always)]
    #[must_use]
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CompareSwap)
    }
}

impl From<SendOp> for CompletionOp {
    #[inline(always)]
    fn from(op: SendOp) -> Self {
        Self::of(Head::of(op).opcode)
    }
}

impl fmt::Display for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} on QP 0x{:06x}, wr_id 0x{:x}: ",
            self.op, self.qpn, self.wr_id
        )?;
        if self.status.is_success() {
            write!(f, "{} bytes", self.byte_len)?;
            if self.flags.contains(CompletionFlags::WITH_IMM) {
                write!(f, ", imm 0x{:08x}", self.imm)?;
            }
            Ok(())
        } else {
            write!(
                f,
                "{} (vendor syndrome 0x{:02x}): {}",
                self.status,
                self.vendor_syndrome,
                self.status.hint()
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_displays_its_cause_and_remedy() {
        let bad = Completion {
            status: Status::RetryExceeded,
            ..Completion::default()
        };
        let text = bad.to_string();
        assert!(text.contains("transport retry count exceeded"), "{text}");
        assert!(text.contains("check that it runs"), "{text}");
    }
}

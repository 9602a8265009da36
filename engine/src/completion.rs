//! What comes back: one [`Completion`] per reported request.

use core::fmt;

pub use mlx5_rings::status::Status;

/// One finished request, good or bad.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// The cookie of the request.
    pub cookie: u64,
    /// The context of the endpoint, as its options gave it.
    pub context: u64,
    /// Bytes received or read; 0 for sends and writes and when `status` is an error.
    pub byte_len: u32,
    /// A receive: immediate data in host byte order, if `flags` has `WITH_IMM`,
    /// else 0. A request of the send queue: the note that it was posted with,
    /// however it went.
    pub imm: u32,
    /// The local queue pair.
    pub qpn: u32,
    /// How it went.
    pub status: Status,
    /// The device's own code for an error, for its maker's support; 0 if none.
    pub vendor_syndrome: u8,
    /// What it was. After an error only the side is sure: [`CompletionOp::Recv`]
    /// for a receive, what the device still knows of the request for a send.
    pub op: CompletionOp,
    /// More about it.
    pub flags: CompletionFlags,
}

const _: () = assert!(size_of::<Completion>() == 32);

impl Completion {
    /// The same, put together anew where a function that is not inlined has
    /// left it in memory: then one that did not come so can stay in registers.
    #[inline(always)]
    pub(crate) fn rebuilt(&self) -> Self {
        let Self {
            cookie,
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
            cookie,
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

/// What several completions have in common, in words: then each is written by
/// four stores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pattern {
    /// The queue pair, the status, and what follows it.
    tail: u64,
}

impl Pattern {
    /// All but the cookie, the context, the length and the immediate data of a
    /// completion.
    #[inline(always)]
    pub(crate) fn of(completion: Completion) -> Self {
        // SAFETY: four words without padding, as asserted above.
        let [.., tail] = unsafe { core::mem::transmute::<Completion, [u64; 4]>(completion) };
        Self { tail }
    }

    /// A completion like it.
    #[inline(always)]
    pub(crate) fn completion(
        self,
        cookie: u64,
        context: u64,
        byte_len: u32,
        imm: u32,
    ) -> Completion {
        // SAFETY: integers of the same size.
        let numbers = unsafe { core::mem::transmute::<[u32; 2], u64>([byte_len, imm]) };
        // SAFETY: the last word is that of a completion, and the fields in the
        // others are integers, in this order.
        unsafe {
            core::mem::transmute::<[u64; 4], Completion>([cookie, context, numbers, self.tail])
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
    /// What else is known about a completion.
    #[repr(transparent)]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CompletionFlags: u8 {
        /// `imm` is valid.
        const WITH_IMM = 1 << 0;
        /// The peer asked for a solicited event.
        const SOLICITED = 1 << 1;
    }
}

/// The kind of request that finished.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompletionOp {
    /// A send, with or without immediate data.
    #[default]
    Send,
    /// A write to the peer's memory, with or without immediate data.
    Write,
    /// A read from the peer's memory.
    Read,
    /// A receive that took a message.
    Recv,
    /// A receive that was completed by the peer's write with immediate data.
    RecvWriteImm,
    /// A marker ([`crate::SendOp::Nop`]): all sends before it are done.
    Nop,
    /// A change of a memory window: bound or unbound.
    Bind,
}

impl fmt::Display for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} on QP 0x{:06x}, cookie 0x{:x}: ",
            self.op, self.qpn, self.cookie
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
    fn an_error_says_its_cause_and_next_step() {
        let bad = Completion {
            status: Status::RetryExceeded,
            ..Completion::default()
        };
        let text = bad.to_string();
        assert!(text.contains("transport retry count exceeded"), "{text}");
        assert!(text.contains("check that it runs"), "{text}");
    }
}

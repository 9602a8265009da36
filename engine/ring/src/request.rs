//! The requests that are posted, and the errors of a post.
//!
//! Plain values. They live only for the duration of the call that posts them;
//! the memory that their segments name must live until the request completes.

use core::fmt;

pub use crate::wire::AtomicOp;

/// One piece of registered memory. The layout is that of `ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// First byte, as the address space of the memory region counts.
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// Local key of a memory region that covers the bytes.
    pub lkey: u32,
}

const _: () = assert!(size_of::<Segment>() == 16);

/// A request of one segment, in lists of sends or receives.
#[derive(Clone, Copy, Debug, Default)]
pub struct Message {
    /// The local memory.
    pub segment: Segment,
    /// Returned in the completion.
    pub wr_id: u64,
}

/// The operation of a [`SendRequest`].
///
/// The representation gives it a tag of its own. A tag in the spare values of the tag of
/// [`AtomicOp`] would be read where the operation is a constant, except for its operands.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// Deliver to the peer's next receive.
    Send,
    /// Deliver to the peer's next receive, with 32 bits in host byte order.
    SendImm(u32),
    /// Write to the peer's memory.
    Write {
        /// Where, in the peer's address space.
        remote_addr: u64,
        /// The peer's key for that memory.
        rkey: u32,
    },
    /// Write to the peer's memory and complete its next receive.
    WriteImm {
        /// Where, in the peer's address space.
        remote_addr: u64,
        /// The peer's key for that memory.
        rkey: u32,
        /// 32 bits for the peer, in host byte order.
        imm: u32,
    },
    /// Read from the peer's memory into the segments.
    Read {
        /// Where, in the peer's address space.
        remote_addr: u64,
        /// The peer's key for that memory.
        rkey: u32,
    },
    /// Change 64 bits of the peer's memory atomically.
    ///
    /// Atomic operations have one segment of [`AtomicOp::BYTES`], and a remote address
    /// that is a multiple of [`AtomicOp::BYTES`].
    Atomic {
        /// Where, in the peer's address space.
        remote_addr: u64,
        /// The peer's key for that memory.
        rkey: u32,
        /// How.
        op: AtomicOp,
    },
    /// A marker, which sends nothing to the peer. Like every request it
    /// completes after all requests posted before it, and it is always
    /// reported. Segments and flags other than `FENCE` are ignored.
    Nop,
}

impl SendOp {
    /// Returns whether the operation fills its segments: a read or an atomic
    /// operation, which have nothing to copy inline.
    #[inline(always)]
    #[must_use]
    pub const fn fills_segments(self) -> bool {
        matches!(self, Self::Read { .. } | Self::Atomic { .. })
    }
}

bitflags::bitflags! {
    /// Flags of a [`SendRequest`].
    ///
    /// The values of the first three are those of the control segment's
    /// `fm_ce_se` byte, so that a post need not convert them.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SendFlags: u8 {
        /// Report the request when it completes. Without this flag only an
        /// error is reported, and the ring entry is released with the next
        /// reported request.
        const SIGNALED = 2 << 2;
        /// Ask the peer's completion queue for a solicited event.
        const SOLICITED = 1 << 1;
        /// Start only after all earlier reads of this queue pair are done.
        const FENCE = 4 << 5;
        /// The processor copies the bytes into the request at once; `lkey` is
        /// not used and the buffer is free again when the post returns.
        /// Ignored for reads and atomic operations, which have nothing to copy.
        const INLINE = 1 << 0;
    }
}

/// A request for the send queue.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// Returned in the completion.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp,
    /// How to do it.
    pub flags: SendFlags,
    /// The local memory, gathered in this order (scattered, for a read or an atomic
    /// operation).
    pub segments: &'a [Segment],
}

impl SendRequest<'_> {
    /// Returns whether the payload is copied into the request.
    #[inline(always)]
    #[must_use]
    pub const fn is_inline(&self) -> bool {
        self.flags.contains(SendFlags::INLINE) && !self.op.fills_segments()
    }

    /// Checks an atomic operation; any other request passes. `supported` says whether the device
    /// has atomic operations.
    ///
    /// # Errors
    /// [`PostError::NoAtomics`], [`PostError::BadAtomic`]
    #[doc(hidden)]
    #[inline(always)]
    pub fn check_atomic(&self, supported: bool) -> Result<(), PostError> {
        const BYTES: u32 = AtomicOp::BYTES;
        let SendOp::Atomic { remote_addr, .. } = self.op else {
            return Ok(());
        };
        if !supported {
            return Err(PostError::NoAtomics);
        }
        match self.segments {
            [segment] if segment.length == BYTES && remote_addr % u64::from(BYTES) == 0 => Ok(()),
            _ => Err(PostError::BadAtomic),
        }
    }

    /// Returns a copy to pass to a function that is not inlined. The original,
    /// which the fast path uses, can then stay in registers.
    #[inline(always)]
    #[must_use]
    pub fn reborrow(&self) -> Self {
        let Self {
            wr_id,
            op,
            flags,
            segments,
        } = *self;
        Self {
            wr_id,
            op,
            flags,
            segments,
        }
    }
}

/// A request for a receive queue.
#[derive(Clone, Copy, Debug)]
pub struct RecvRequest<'a> {
    /// Returned in the completion.
    pub wr_id: u64,
    /// Where to put the message, filled in this order.
    pub segments: &'a [Segment],
}

impl RecvRequest<'_> {
    /// Returns a copy to pass to a function that is not inlined. The original,
    /// which the fast path uses, can then stay in registers.
    #[inline(always)]
    #[must_use]
    pub fn reborrow(&self) -> Self {
        let Self { wr_id, segments } = *self;
        Self { wr_id, segments }
    }
}

/// Why a request was not posted. Nothing of it has reached the device.
///
/// The rings return the first five, [`Self::NoAtomics`], [`Self::BadAtomic`] and
/// [`Self::NoWindows`]. The others are for the layer above the rings, which has the
/// device and its memory regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The queue is full: its maximum number of requests is outstanding.
    QueueFull,
    /// More segments than the queue was created for.
    TooManySegments,
    /// More inline bytes than the queue was created for.
    InlineTooLong,
    /// More bytes than one message can carry.
    MessageTooLong,
    /// The queue pair is not in a state that takes this request.
    NotReady,
    /// The device carries no immediate data: iWARP has none.
    NoImmediate,
    /// The device has no atomic operations.
    NoAtomics,
    /// The memory of an atomic operation is not 8 bytes in one segment, or the remote
    /// address is not a multiple of 8.
    BadAtomic,
    /// The queue pair was not created for binding memory windows.
    NoWindows,
    /// More bytes than one window opens.
    WindowTooLong,
    /// The window, the region and the queue pair are not all of one protection
    /// domain.
    OtherDomain,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::QueueFull => {
                "the queue is full: poll its completion queue (and signal some of the sends), \
                 or create it deeper"
            }
            Self::TooManySegments => {
                "more segments than the queue was created for: raise its segment limit, \
                 or split the request"
            }
            Self::InlineTooLong => {
                "more inline bytes than the queue was created for: create it with room for more, \
                 or send without INLINE"
            }
            Self::MessageTooLong => {
                "the segments add up to more than one message can carry (2^31 - 1 bytes): split it"
            }
            Self::NotReady => {
                "the queue pair is not ready: it takes receives from INIT on, and sends from RTS \
                 on, when it is connected"
            }
            Self::NoImmediate => {
                "the device carries no immediate data (iWARP has none): put it into the message"
            }
            Self::NoAtomics => {
                "the device has no atomic operations (its atomic_cap is none): let the peer \
                 change its memory"
            }
            Self::BadAtomic => {
                "an atomic operation needs one segment of 8 bytes and a remote address that is a \
                 multiple of 8"
            }
            Self::NoWindows => {
                "the queue pair was not created for binding memory windows: create it with windows"
            }
            Self::WindowTooLong => "a memory window opens no more than 2^31 bytes: use several",
            Self::OtherDomain => {
                "the window, the region and the queue pair must be of one protection domain"
            }
        })
    }
}

impl core::error::Error for PostError {}

/// A list was posted in part: the requests before `posted` are posted (and the
/// doorbell for them has been rung), the one at `posted` failed, the rest were
/// not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListError {
    /// How many requests of the list are posted.
    pub posted: usize,
    /// Why the next one is not.
    pub error: PostError,
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "request {} of the list was not posted: {}",
            self.posted, self.error
        )
    }
}

impl core::error::Error for ListError {}

//! What the measuring loops need of a connected end, and no more.
//!
//! A trait, so that the loops can be proved without a device, and the same
//! loops measure every API; generic in the loops, so that a call of it is the
//! call of the API that is measured.

use std::fmt;

use dat_api::DatReturn;
use dat_api::types::DtoStatus;
use dat_engine::{Completion, PostError};

use super::payload::Payload;
use crate::failure::Failure;

/// A completion: the bytes it tells of, or why its request failed.
pub(super) type Done = Result<u32, Fault>;

/// One side's end of the connection, prepared for one operation and size.
pub(super) trait Link {
    /// Posts a receive for a message of any size of this run.
    fn post_receive(&mut self) -> Result<(), Fault>;

    /// Posts the operation of this run.
    fn post(&mut self, signaled: bool) -> Result<(), Fault>;

    /// Takes one completion of a request if it is there.
    fn poll_sent(&mut self) -> Option<Done>;

    /// Takes one completion of a receive if it is there.
    fn poll_received(&mut self) -> Option<Done>;

    /// As [`Link::poll_sent`]; waits for a while where the run is about waiting.
    #[inline(always)]
    fn await_sent(&mut self) -> Option<Done> {
        self.poll_sent()
    }

    /// As [`Link::poll_received`]; waits likewise.
    #[inline(always)]
    fn await_received(&mut self) -> Option<Done> {
        self.poll_received()
    }

    /// Puts a sequence number into the last byte of what the next write carries.
    fn stamp(&mut self, sequence: u8);

    /// The last byte of the memory that the other side writes, as it is now.
    fn arrived(&self) -> u8;
}

/// A link over a device, between messages.
pub(super) trait End: Link {
    /// Makes the request of this size ready.
    fn aim(&mut self, size: u32);

    /// The memory that it sends from and receives into.
    fn payload(&mut self) -> &mut Payload;

    /// Makes ready for messages of one size: the request, and memory filled
    /// with what only this side sends, and cleared where the other side's is
    /// to come. No message may be under way.
    fn prepare(&mut self, size: u32) {
        self.payload().prepare(size);
        self.aim(size);
    }

    /// Whether what came is what the other side sent, byte by byte. No message
    /// may be under way.
    fn verify(&mut self) -> Result<(), Failure> {
        self.payload().verify()
    }
}

/// Why a request failed, as its API says it. Copied, not allocated: it is made
/// where messages are measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fault {
    /// The engine posted nothing.
    Post(PostError),
    /// The engine's completion.
    Completion(Completion),
    /// A DAT call answered this.
    Call(&'static str, DatReturn),
    /// DAT's completion.
    Dto(DtoStatus),
    /// An event that has no place where it came, or a status that DAT has no
    /// name for: its number.
    Event(u32),
}

impl From<PostError> for Fault {
    fn from(error: PostError) -> Self {
        Self::Post(error)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Post(error) => write!(f, "a request was not posted: {error}"),
            Self::Completion(completion) => write!(f, "a request failed: {completion}"),
            Self::Call(call, code) => write!(f, "{call} answered {code}"),
            Self::Dto(status) => write!(f, "a request failed: DAT_DTO status {status:?}"),
            Self::Event(number) => write!(
                f,
                "event 0x{number:x} came where completions of transfers belong"
            ),
        }
    }
}

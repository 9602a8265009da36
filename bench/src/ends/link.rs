//! The traits of a connected end that the measuring loops use.
//!
//! With these traits, the same loops measure every API, and tests run them
//! without a device. The loops are generic, so a call through the trait compiles
//! to the call of the measured API.

use std::fmt;

use dat_api::types::DtoStatus;
use dat_api::{DatReturn, Refusal};
use dat_engine::{Completion, DataInOrder, PostError};

use super::payload::Payload;
use crate::failure::Failure;

/// A completion: its length in bytes, or why the request failed.
pub(crate) type CompletionResult = Result<u32, Fault>;

/// The most requests of a post list.
pub(crate) const LONGEST_LIST: usize = 64;

/// One end of the connection, set to one operation and size.
pub(crate) trait Link {
    /// Posts a receive for a message of any size of this run.
    fn post_receive(&mut self) -> Result<(), Fault>;

    /// Posts the operation of this run.
    fn post(&mut self, signaled: bool) -> Result<(), Fault>;

    /// Posts an empty send, which takes a receive of the other side.
    fn post_empty(&mut self, signaled: bool) -> Result<(), Fault>;

    /// Posts one request of this run per element, signalled as that says, with one
    /// doorbell if the interface has post lists. At most [`LONGEST_LIST`].
    fn post_list(&mut self, signaled: &[bool]) -> Result<(), Fault> {
        signaled.iter().try_for_each(|&it| self.post(it))
    }

    /// Writes the number of messages received into the other side's memory, signalled.
    /// The previous grant must be complete.
    fn post_grant(&mut self, received: u32) -> Result<(), Fault>;

    /// Returns the other side's grant; none while it is being written.
    fn granted(&self) -> Option<u32>;

    /// Polls one completion of a send, write, read or grant.
    fn poll_sent(&mut self) -> Option<CompletionResult>;

    /// Polls one completion of a receive.
    fn poll_received(&mut self) -> Option<CompletionResult>;

    /// Polls as [`Link::poll_sent`] does, or with `--wait` waits up to 50 ms.
    #[inline(always)]
    fn await_sent(&mut self) -> Option<CompletionResult> {
        self.poll_sent()
    }

    /// Polls as [`Link::poll_received`] does, or with `--wait` waits up to 50 ms.
    #[inline(always)]
    fn await_received(&mut self) -> Option<CompletionResult> {
        self.poll_received()
    }

    /// Stores a sequence number in the last byte of the next write.
    fn write_sequence(&mut self, sequence: u8);

    /// Returns the last byte of the memory that the other side writes.
    fn read_sequence(&self) -> u8;
}

/// A link over a device. These methods are called between measurements.
pub(crate) trait End: Link {
    /// Sets the size of the next requests.
    fn set_request_size(&mut self, size: u32);

    /// Returns what the device says about the order in which the other side's writes
    /// arrive. The link is connected.
    fn data_in_order(&self) -> DataInOrder;

    /// Returns the memory that the link sends from and receives into.
    fn payload(&mut self) -> &mut Payload;

    /// Prepares messages of one size: fills the outgoing memory with this side's
    /// pattern, clears the incoming memory, and sets the size of requests. No
    /// message may be in flight.
    fn prepare(&mut self, size: u32) {
        self.payload().prepare(size);
        self.set_request_size(size);
    }

    /// Compares the received bytes with those that the other side sent. No message
    /// may be in flight.
    fn verify(&mut self) -> Result<(), Failure> {
        self.payload().verify()
    }
}

/// Why a request failed, in terms of the API. `Copy`, because it is created in
/// measured code, which must not allocate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// The engine refused to post it.
    Post(PostError),
    /// The endpoint refused to post it.
    Refused(Refusal),
    /// The engine's completion has an error status.
    Completion(Completion),
    /// A DAT call returned this.
    Call(&'static str, DatReturn),
    /// DAT's completion has this status.
    Dto(DtoStatus),
    /// The number of an unexpected event or of an unknown DTO status.
    Event(u32),
}

impl From<PostError> for Fault {
    fn from(error: PostError) -> Self {
        Self::Post(error)
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Post(error) => write!(f, "a request was not posted: {error}"),
            Self::Refused(refusal) => write!(f, "a request was not posted: {refusal}"),
            Self::Completion(completion) => write!(f, "a request failed: {completion}"),
            Self::Call(call, code) => write!(f, "{call} returned {code}"),
            Self::Dto(status) => write!(f, "a request failed: DAT_DTO status {status:?}"),
            Self::Event(number) => write!(
                f,
                "event or status 0x{number:x} instead of a successful DTO completion"
            ),
        }
    }
}

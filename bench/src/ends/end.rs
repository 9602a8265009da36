//! The trait of a connected end: one endpoint with its queues and its memory, through one API.
//!
//! All runs measure with this trait: `lat` and `bw` through [`Link`](super::Link), `cost` and
//! `scale` with requests of their own. The loops are generic, so a call through the trait
//! compiles to the call of the measured API; tests run them without a device.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::time::Duration;

use dat_api::safe::RemoteSegment;
use dat_api::types::DtoStatus;
use dat_api::{DatReturn, Refusal};
use dat_engine::{AtomicOp, Completion, DataInOrder, PostError};

/// The most requests of a list that [`End::post_list`] posts.
pub(crate) const LONGEST_LIST: usize = 64;
/// Requests of a list that [`End::prepare_lists`] prepares.
pub(crate) const LIST: usize = 32;
/// Most completions of [`End::poll_batch`].
pub(crate) const BATCH: usize = 16;

/// The operation of a request. In most loops it is a constant, as in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Send,
    Write,
    Read,
    Atomic(AtomicOp),
    /// An RDMA write with this immediate data.
    WriteImmediate(u32),
}

/// How a request is posted.
#[derive(Clone, Copy)]
pub(crate) struct Flags {
    pub(crate) signaled: bool,
    /// Ignored by APIs that decide themselves ([`End::CHOOSES_INLINE`]).
    pub(crate) inline: bool,
}

impl Flags {
    pub(crate) const SIGNALED: Self = Self {
        signaled: true,
        inline: false,
    };
    pub(crate) const INLINE: Self = Self {
        signaled: true,
        inline: true,
    };
}

/// A completion queue of an end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queue {
    /// Of sends, writes, reads and atomic operations.
    Sent,
    /// Of receives.
    Received,
}

/// A successful completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) cookie: u64,
    /// Bytes.
    pub(crate) length: u64,
    /// The immediate data of a receive; 0 if the API's polls do not return them.
    pub(crate) immediate: u32,
    /// The endpoint that the API names in a completion; 0 if it does not.
    pub(crate) endpoint: u64,
    /// Events behind it, if a wait has counted them.
    pub(crate) more: u32,
}

/// A completion, or why the request failed; none if the queue is empty.
pub(crate) type Polled = Option<Result<Done, Fault>>;

/// One end of a connection. It takes receives from its own queue or from a shared one.
pub(crate) trait End: Sized {
    /// Whether one call can post several requests.
    const LISTS: bool = false;
    /// Whether one call can poll several completions.
    const BATCHES: bool = false;
    /// Whether it has a call that waits with a timeout.
    const WAITS: bool = false;
    /// Whether it can sleep ([`Self::wait`] without a timeout).
    const SLEEPS: bool = Self::WAITS;
    /// Whether its queues have descriptors for a reactor.
    const DESCRIPTORS: bool = false;
    /// Whether it has writes with immediate data.
    const IMMEDIATES: bool = false;
    /// Whether the caller chooses if a message is inline.
    const CHOOSES_INLINE: bool = false;

    /// A prepared request: what the API can keep from one post to the next.
    type Request;
    /// A prepared receive.
    type Receive;

    /// Returns the start of the registered memory.
    fn memory(&self) -> NonNull<u8>;

    /// Returns the registered memory for requests of the other side.
    fn exposed_buffer(&self) -> RemoteSegment;

    /// Prepares a request for these pieces of the memory, and for bytes of the other side's.
    fn request_of(&self, op: Op, local: &[Range<usize>], remote: RemoteSegment) -> Self::Request;

    /// Prepares a receive into these pieces of the memory.
    fn receive_of(&self, into: &[Range<usize>]) -> Self::Receive;

    /// Prepares a request of one segment.
    fn request(&self, op: Op, local: Range<usize>, remote: RemoteSegment) -> Self::Request {
        self.request_of(op, core::slice::from_ref(&local), remote)
    }

    /// Prepares a receive of one segment.
    fn receive(&self, into: Range<usize>) -> Self::Receive {
        self.receive_of(core::slice::from_ref(&into))
    }

    /// Posts a request of one segment. `op` and `local` are those that it was prepared with,
    /// except for the values in `op`.
    fn post(
        &mut self,
        op: Op,
        local: Range<usize>,
        request: &mut Self::Request,
        cookie: u64,
        flags: Flags,
    ) -> Result<(), Fault>;

    /// Posts a request of one segment or more, as [`Self::post`] does.
    #[inline(always)]
    fn post_of(
        &mut self,
        op: Op,
        local: &[Range<usize>],
        request: &mut Self::Request,
        flags: Flags,
    ) -> Result<(), Fault> {
        self.post(op, local[0].clone(), request, 0, flags)
    }

    /// Posts a receive of one segment or more, as [`Self::post_receive`] does.
    #[inline(always)]
    fn post_receive_of(
        &mut self,
        into: &[Range<usize>],
        receive: &mut Self::Receive,
    ) -> Result<(), Fault> {
        self.post_receive(into[0].clone(), receive, 0)
    }

    /// Posts a receive of one segment. `into` are the bytes that it was prepared with.
    fn post_receive(
        &mut self,
        into: Range<usize>,
        receive: &mut Self::Receive,
        cookie: u64,
    ) -> Result<(), Fault>;

    /// Posts a send without a segment.
    fn post_empty(&mut self, _signaled: bool) -> Result<(), Fault> {
        Err(Fault::NoSuchCall)
    }

    /// Posts the request once per element, signalled as that says, with one doorbell if the API
    /// has post lists. At most [`LONGEST_LIST`].
    fn post_list(
        &mut self,
        op: Op,
        local: Range<usize>,
        request: &mut Self::Request,
        signaled: &[bool],
        inline: bool,
    ) -> Result<(), Fault> {
        signaled.iter().try_for_each(|&signaled| {
            let flags = Flags { signaled, inline };
            self.post(op, local.clone(), request, 0, flags)
        })
    }

    /// Prepares lists of [`LIST`] receives and sends.
    fn prepare_lists(&mut self, _into: Range<usize>, _from: Range<usize>) {}

    /// Posts the list of receives.
    fn receive_list(&mut self, _into: Range<usize>) -> Result<(), Fault> {
        Err(Fault::NoSuchCall)
    }

    /// Posts the list of sends, all signalled.
    fn send_list(&mut self, _from: Range<usize>, _inline: bool) -> Result<(), Fault> {
        Err(Fault::NoSuchCall)
    }

    /// Polls one completion.
    fn poll(&mut self, queue: Queue) -> Polled;

    /// Polls up to [`BATCH`] completions, and passes each on. Returns their number.
    #[inline(always)]
    fn poll_batch(&mut self, queue: Queue, mut each: impl FnMut(Done)) -> Result<usize, Fault> {
        match self.poll(queue).transpose()? {
            Some(done) => {
                each(done);
                Ok(1)
            }
            None => Ok(0),
        }
    }

    /// Polls one completion, which may be that of an extension of uDAPL 2.0: of a request of any
    /// kind, or of a receive with immediate data.
    #[inline(always)]
    fn poll_extended(&mut self, queue: Queue) -> Polled {
        self.poll(queue)
    }

    /// Takes one completion by a wait for this many events.
    fn wait(&mut self, _queue: Queue, _threshold: u8, _timeout: Option<Duration>) -> Polled {
        Some(Err(Fault::NoSuchCall))
    }

    /// Takes one completion as a task of a reactor: arms the descriptor of the queue, and sleeps
    /// in `poll` until it is readable.
    fn wait_readable(&mut self, _queue: Queue) -> Polled {
        Some(Err(Fault::NoSuchCall))
    }

    /// Returns whether the API has atomic operations on this device.
    fn has_atomics(&self) -> bool {
        false
    }

    /// Returns what the device says about the order in which the other side's writes
    /// arrive. The end is connected.
    fn data_in_order(&self) -> DataInOrder {
        DataInOrder::Unknown
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
    /// A call of libibverbs returned this.
    Verbs(&'static str, i32),
    /// The API has no such call.
    NoSuchCall,
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
            Self::Refused(refusal) => write!(f, "a request was not posted: {refusal}"),
            Self::Completion(completion) => write!(f, "a request failed: {completion}"),
            Self::Call(call, code) => write!(f, "{call} returned {code}"),
            Self::Dto(status) => write!(f, "a request failed: DAT_DTO status {status:?}"),
            Self::Event(number) => write!(
                f,
                "event or status 0x{number:x} instead of a successful DTO completion"
            ),
            Self::Verbs(call, code) => write!(f, "{call} returned {code}"),
            Self::NoSuchCall => write!(f, "the API has no such call"),
        }
    }
}

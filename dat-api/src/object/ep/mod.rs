//! Endpoints: one end of a reliable connection, and the right to post to it.
//!
//! An endpoint has three parts, for three kinds of callers:
//!
//! | part | who touches it |
//! | --- | --- |
//! | the poster (`poster.rs`, `post_recv.rs`, `post_request.rs`, `request.rs`) | posting calls; the other calls of the consumer, who serialises calls on one endpoint (in a threadsafe IA the lock of posts does) |
//! | the control (`control.rs`), under a lock | calls of the consumer, the connection manager's thread, and who meets a failed completion |
//! | the state, one word | all read it; it changes under the control's lock, by the tables of [`crate::state`] |
//!
//! Order: the control's lock, then the lock of posts. With either held nothing is called
//! that may call back here: draining an EVD, attaching to it and detaching from
//! it, dropping a connection.
//!
//! # One call at a time
//! Posts and binds take no lock where the IA is not threadsafe. So they and all
//! other calls that reach the poster are `unsafe`: [`Ep::modify`],
//! [`Ep::disconnect`], [`Ep::reset`], [`Ep::free`], and closing an IA abruptly.
//! The caller promises that no post and no bind runs on the same endpoint
//! meanwhile. Calls that are safe may run at any time, on any thread.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use core::time::Duration;
use std::net::SocketAddr;
use std::sync::Arc;

use dat_engine::PostError;

use super::counters::{Counters, Refused};
use super::ia::Ia;
use super::post::{Posting, refusal};
use super::usage::{Counted, Usage};
use crate::handle::{self, Handle, Upcalls};
use crate::status::DatReturn;
use crate::types::EpState;
use dat_engine::sync::Mutex;

mod accept;
mod attributes;
#[allow(unsafe_code)]
mod bind;
mod build;
mod control;
#[allow(unsafe_code)]
mod create;
mod drain;
mod fields;
mod hooks;
mod info;
#[allow(unsafe_code)]
mod life;
#[allow(unsafe_code)]
mod modify;
#[allow(unsafe_code)]
mod post_recv;
#[allow(unsafe_code)]
mod post_request;
#[allow(unsafe_code)]
mod poster;
mod query;
mod quiet;
mod request;
mod sink;
mod watermark;

use control::Control;
use poster::Poster;
use quiet::QuietReceives;
use watermark::HighMarks;

pub use super::ia::MAX_SEGMENTS;
pub(crate) use attributes::DEFAULT_REQUESTS;
pub(crate) use bind::{Bind, Bound};
pub use fields::EpFields;
pub use info::{EpChange, EpInfo, EpStatus, RecvQuery};
pub(crate) use life::{find, manager_error};

/// Sends and writes up to so many bytes are copied into the request: the
/// device need not fetch them, and the buffer is the caller's again at once.
pub const INLINE_BYTES: u32 = 64;

/// An endpoint.
pub struct Ep {
    handle: Handle,
    ia: Arc<Ia>,
    state: AtomicU32,
    posting: Posting<Poster>,
    /// A request brought it, and a call of [`Ep::take_brought`] has it.
    taken: AtomicBool,
    /// Receives that were posted since the endpoint was made or reset: the
    /// numbers of the bits in `quiet`. Written by the poster.
    posted: AtomicU32,
    /// RDMA reads that may be in flight; what both sides agreed on.
    reads_issued: AtomicU32,
    quiet: QuietReceives,
    marks: HighMarks,
    /// Completions that nobody wants.
    unwanted: drain::Unwanted,
    /// The request EVD, by its handle, or 0: for posts, which take no lock.
    requests: AtomicUsize,
    refused: Refused,
    control: Mutex<Control>,
    /// Held by who changes it; taken before `control`.
    changing: Mutex<()>,
    usage: Usage,
}

/// To whom, and how, an endpoint is to connect.
#[derive(Clone, Copy, Debug)]
pub struct Connect<'a> {
    /// The peer's address.
    pub address: SocketAddr,
    /// The qualifier that the peer listens on.
    pub qualifier: u64,
    /// How long to try; `None` is for ever.
    pub timeout: Option<Duration>,
    /// For the peer.
    pub private_data: &'a [u8],
    /// `DAT_QOS`; 0, best effort, is the only one there is.
    pub qos: u32,
    /// `DAT_CONNECT_FLAGS`; 1, multipath, is not supported.
    pub flags: u32,
}

impl Ep {
    /// What objects below it call.
    pub(super) const UPCALLS: Upcalls = Upcalls {
        abort: Self::abort,
        counters: |ep| Some(Counters::of_posts(handle::pin::<Self>(ep)?.refused_posts())),
        device_event: hooks::device_event,
        completed: hooks::completed,
        has_high_watermark: |ep| handle::pin::<Self>(ep).is_some_and(|ep| ep.marks.are_set()),
        failed: hooks::failed,
        relieve: |ep| {
            if let Some(ep) = handle::pin::<Self>(ep) {
                ep.take_unwanted();
            }
        },
        ..Upcalls::NONE
    };

    /// Its name.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// The IA that it was made of.
    #[must_use]
    pub fn ia(&self) -> &Arc<Ia> {
        &self.ia
    }

    /// Posts to it that were refused because a queue was full.
    #[must_use]
    pub fn refused_posts(&self) -> u64 {
        self.refused.read()
    }

    /// Counts a post that is refused for good, and returns what the consumer is told.
    #[cold]
    pub(crate) fn refuse(&self, error: PostError) -> DatReturn {
        self.refused.note(error);
        refusal(error)
    }

    /// Its state.
    #[inline(always)]
    #[must_use]
    pub fn state(&self) -> EpState {
        state_of(self.state.load(Ordering::Acquire))
    }
}

/// Back from the word: only states are stored there.
#[inline(always)]
fn state_of(word: u32) -> EpState {
    match word {
        2 => EpState::Reserved,
        4 => EpState::PassiveConnectionPending,
        6 => EpState::ActiveConnectionPending,
        7 => EpState::TentativeConnectionPending,
        9 => EpState::Connected,
        10 => EpState::DisconnectPending,
        11 => EpState::Disconnected,
        12 => EpState::CompletionPending,
        _ => EpState::Unconnected,
    }
}

impl Counted for Ep {
    fn usage(&self) -> &Usage {
        &self.usage
    }
}

impl core::fmt::Debug for Ep {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Ep")
            .field("handle", &self.handle)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

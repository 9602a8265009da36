//! Endpoints: each is one end of a reliable connection, to which requests and receives are posted.
//!
//! An endpoint has three parts, for three kinds of callers:
//!
//! | part | used by |
//! | --- | --- |
//! | the poster (`poster.rs`, `post_recv.rs`, `post_request.rs`, `request.rs`) | posts; other calls of the consumer, which must not run at the same time (on a threadsafe IA the lock of posts ensures that) |
//! | the control (`control.rs`), under a lock | calls of the consumer, the connection manager's thread, and threads that poll a failed completion |
//! | the state, one word | read by all; changed under the control's lock, by the tables of [`crate::state`] |
//!
//! The lock order is: the control's lock, then the lock of posts. Functions that may call back into
//! the endpoint are called with neither: draining an EVD, attaching to it, detaching from it, and
//! dropping a connection.
//!
//! # One call at a time
//! Posts and binds take no lock where the IA is not threadsafe. So they and all other calls that
//! use the poster are `unsafe`: [`Ep::modify`], [`Ep::disconnect`], [`Ep::reset`], [`Ep::free`],
//! and closing an IA abruptly. The caller promises that no post and no bind runs on the same
//! endpoint meanwhile. Safe calls may run at any time, on any thread.

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
#[allow(unsafe_code)]
mod explain;
mod fields;
mod hooks;
mod info;
#[allow(unsafe_code)]
mod lifecycle;
#[allow(unsafe_code)]
mod modify;
#[allow(unsafe_code)]
mod post_extended;
#[allow(unsafe_code)]
mod post_list;
#[allow(unsafe_code)]
mod post_recv;
#[allow(unsafe_code)]
mod post_request;
#[allow(unsafe_code)]
mod poster;
mod query;
mod request;
mod sink;
mod stalled;
mod unsignalled;
mod watermark;

use control::Control;
use poster::Poster;
use unsignalled::UnsignalledReceives;
use watermark::HighMarks;

pub use super::ia::MAX_SEGMENTS;
pub(crate) use attributes::DEFAULT_REQUESTS;
pub(crate) use bind::Bind;
pub use fields::EpFields;
pub use info::{EpChange, EpInfo, EpStatus, RecvQuery};
pub(crate) use lifecycle::{find, manager_error};

/// Sends and writes of up to this many bytes are posted as inline data: the device does not have to
/// fetch them, and the caller may reuse the buffer at once.
pub const INLINE_BYTES: u32 = 64;

/// An endpoint.
pub struct Ep {
    handle: Handle,
    ia: Arc<Ia>,
    state: AtomicU32,
    posting: Posting<Poster>,
    /// The endpoint was created for a request, and a caller of [`Ep::take_for_posting`] has it.
    taken: AtomicBool,
    /// The number of RDMA reads that may be outstanding, which both sides agreed on.
    reads_issued: AtomicU32,
    unsignalled: UnsignalledReceives,
    marks: HighMarks,
    /// The completions without an EVD.
    unreported: drain::Unreported,
    /// The handle of the request EVD, or 0, for posts, which do not lock the control.
    requests: AtomicUsize,
    /// The EVD in which it is counted as discarding completions, or 0.
    discarded_of: AtomicUsize,
    refused: Refused,
    control: Mutex<Control>,
    /// Held by a call that changes the endpoint; locked before `control`.
    changing: Mutex<()>,
    usage: Usage,
}

/// The peer and the parameters of a connection attempt.
#[derive(Clone, Copy, Debug)]
pub struct Connect<'a> {
    /// The peer's address.
    pub address: SocketAddr,
    /// The qualifier that the peer listens on.
    pub qualifier: u64,
    /// How long to try; `None` means for ever.
    pub timeout: Option<Duration>,
    /// Private data for the peer.
    pub private_data: &'a [u8],
    /// `DAT_QOS`; only 0, best effort, is supported.
    pub qos: u32,
    /// `DAT_CONNECT_FLAGS`; 1, multipath, is not supported.
    pub flags: u32,
}

impl Ep {
    /// The functions that objects in lower modules call.
    pub(super) const UPCALLS: Upcalls = Upcalls {
        abort: Self::abort,
        counters: |ep| Some(Counters::of_posts(handle::pin::<Self>(ep)?.refused_posts())),
        device_event: hooks::device_event,
        completed: hooks::completed,
        has_high_watermark: |ep| handle::pin::<Self>(ep).is_some_and(|ep| ep.marks.are_set()),
        failed: hooks::failed,
        poll_completions: |ep| {
            if let Some(ep) = handle::pin::<Self>(ep) {
                ep.poll_unreported();
            }
        },
        check_progress: |ep| {
            if let Some(ep) = handle::pin::<Self>(ep) {
                ep.warn_of_stalled_requests();
            }
        },
        ..Upcalls::NONE
    };

    /// Returns its handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns the IA that it was created on.
    #[must_use]
    pub fn ia(&self) -> &Arc<Ia> {
        &self.ia
    }

    /// Returns the number of its posts that were refused because a queue was full.
    #[must_use]
    pub fn refused_posts(&self) -> u64 {
        self.refused.read()
    }

    /// Counts a refused post, and returns its code.
    #[cold]
    pub(crate) fn refuse(&self, error: PostError) -> DatReturn {
        self.refused.note(error);
        refusal(error)
    }

    /// Returns its state.
    #[inline(always)]
    #[must_use]
    pub fn state(&self) -> EpState {
        state_of(self.state.load(Ordering::Acquire))
    }
}

/// Converts the word back; only states are stored in it.
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

//! Endpoints: each is one end of a reliable connection, to which requests and receives are posted.
//!
//! An endpoint has three parts, for three kinds of callers:
//!
//! | part | used by |
//! | --- | --- |
//! | the poster (`poster.rs`, `post.rs`) | posts; other calls of the consumer, which must not run at the same time (on a threadsafe IA the lock of posts ensures that) |
//! | the `Control`, under a lock | calls of the consumer, the connection manager's thread, and threads that poll a failed completion |
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
//!
//! # Receives of an SRQ
//! The NIC takes receives from a shared queue without telling the host which endpoint they are for
//! until they complete. So `dat_ep_recv_query` counts the receives of an endpoint that have completed
//! and whose events the consumer has not taken. Receives that the NIC has taken for messages in
//! progress count as available.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::net::SocketAddr;
use std::sync::Arc;

use dat_engine::cm::Connection;
use dat_engine::sync::{Backoff, Mutex, MutexGuard};
use dat_engine::{DataInOrder, EndpointHandle, PostError};

use super::counters::{Counters, Refused};
use super::evd::{DtoStream, Evd, StreamGuard};
use super::ia::Ia;
use super::peer::PeerAddress;
use super::post::Posting;
use super::pz::Pz;
use super::srq::{Reporting, Srq};
use super::usage::{Counted, Usage, Use};
use crate::error::Result;
use crate::handle::{self, Handle, Upcalls};
use crate::object::stale;
use crate::state::{self, Call, To, Trigger};
use crate::types::{EpAttributes, EpState, EventData, PrivateData};

mod attributes;
#[allow(unsafe_code)]
mod bind;
mod build;
mod completions;
mod connect;
pub mod kind;
#[allow(unsafe_code)]
mod lifecycle;
#[allow(unsafe_code)]
mod modify;
#[allow(unsafe_code)]
mod post;
#[allow(unsafe_code)]
mod poster;

use completions::{HighMarks, Progress, Unreported, UnsignalledReceives};
use poster::Poster;

pub use super::ia::MAX_SEGMENTS;
pub(crate) use attributes::DEFAULT_REQUESTS;
pub(crate) use bind::Bind;
pub use connect::Connect;
pub(crate) use connect::manager_error;
pub use modify::{EpChange, EpFields};

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
    unreported: Unreported,
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

/// The parts of an endpoint that its lock protects.
struct Control {
    attributes: EpAttributes,
    pz: Option<Use<Pz>>,
    srq: Option<Use<Srq>>,
    connect: Option<StreamGuard>,
    streams: Streams,
    /// The control half of the queue pair, if there is one.
    qp: Option<EndpointHandle>,
    connection: Option<Connection>,
    /// A graceful disconnect waits for the requests posted before it.
    draining: bool,
    progress: Progress,
    remote: PeerAddress,
    /// The peer's address as a value.
    remote_host: Option<SocketAddr>,
    remote_qualifier: u64,
    local_qualifier: u64,
    /// The private data of the peer's accept.
    private_data: Box<[u8]>,
}

/// The EVDs that completions are reported to.
#[derive(Default)]
struct Streams {
    /// Registers the receive EVD with the SRQ, if there is one.
    _shared: Option<Reporting>,
    recv: Option<DtoStream>,
    request: Option<DtoStream>,
}

/// The result of `dat_ep_query`. Addresses point to a `sockaddr` that lives as long as the endpoint
/// (the local one: as long as the IA).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpInfo {
    /// The IA it belongs to.
    pub ia: Handle,
    /// Its state.
    pub state: EpState,
    /// The address of the adapter's own `sockaddr`.
    pub local_address: usize,
    /// The local qualifier. On the passive side, that of the service point; on the active side, the
    /// port that the endpoint connects from, once the request is sent. 0 where the state gives it
    /// no meaning.
    pub local_port_qualifier: u64,
    /// The address of the `sockaddr` for the peer: the present or the last one, and of family 0
    /// (`AF_UNSPEC`) before the first. On a strict IA, 0 where the state gives it no meaning.
    pub remote_address: usize,
    /// The peer's qualifier; 0 where the state gives it no meaning.
    pub remote_port_qualifier: u64,
    /// The protection zone, if it has one.
    pub pz: Option<Handle>,
    /// The EVD for completions of receives.
    pub recv_evd: Option<Handle>,
    /// The EVD for completions of requests.
    pub request_evd: Option<Handle>,
    /// The EVD for connection events.
    pub connect_evd: Option<Handle>,
    /// The SRQ that receives are taken from, if not from a queue of its own.
    pub srq: Option<Handle>,
    /// The actual attributes.
    pub attributes: EpAttributes,
}

/// The result of `dat_ep_get_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpStatus {
    /// Its state.
    pub state: EpState,
    /// No receive is outstanding.
    pub recv_idle: bool,
    /// No request is outstanding.
    pub request_idle: bool,
}

/// The result of `dat_ep_recv_query`, from one snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvQuery {
    /// The number of receives that belong to the endpoint and whose events have not been dequeued.
    /// On its own queue, a receive counts from the post; on an SRQ, from its completion.
    pub allocated: u32,
    /// The distance from the latest message that has a receive to the latest one whose event was
    /// dequeued; never less than `allocated`.
    pub span: u32,
}

impl Streams {
    /// Returns those of the two streams that exist.
    fn each(&self) -> impl Iterator<Item = &DtoStream> {
        [&self.recv, &self.request].into_iter().flatten()
    }

    fn each_mut(&mut self) -> impl Iterator<Item = &mut DtoStream> {
        [&mut self.recv, &mut self.request].into_iter().flatten()
    }

    /// Returns the EVDs, each once.
    fn evds(&self) -> Vec<Arc<Evd>> {
        let mut evds: Vec<_> = self.each().map(|stream| Arc::clone(stream.evd())).collect();
        evds.dedup_by(|a, b| Arc::ptr_eq(a, b));
        evds
    }
}

impl Control {
    fn new(attributes: EpAttributes) -> Self {
        Self {
            attributes,
            pz: None,
            srq: None,
            connect: None,
            streams: Streams::default(),
            qp: None,
            connection: None,
            draining: false,
            progress: Progress::default(),
            remote: PeerAddress::none(),
            remote_host: None,
            remote_qualifier: 0,
            local_qualifier: 0,
            private_data: Box::default(),
        }
    }

    /// Flushes everything that is posted, and everything that will be posted.
    fn flush(&self) {
        if let Some(qp) = &self.qp
            && let Err(error) = qp.to_error()
        {
            tracing::error!("a queue pair cannot be moved to the error state: {error}");
        }
    }
}

impl Ep {
    /// The functions that objects in lower modules call.
    pub(super) const UPCALLS: Upcalls = Upcalls {
        abort: Self::abort,
        counters: |ep| Some(Counters::of_posts(handle::pin::<Self>(ep)?.refused_posts())),
        device_event: completions::device_event,
        completed: completions::completed,
        has_high_watermark: |ep| handle::pin::<Self>(ep).is_some_and(|ep| ep.marks.are_set()),
        failed: completions::failed,
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

    /// Counts a bind that the engine has refused.
    pub(crate) fn count_refused(&self, error: PostError) {
        self.refused.note(error);
    }

    /// Returns its state.
    #[inline(always)]
    #[must_use]
    pub fn state(&self) -> EpState {
        state_of(self.state.load(Ordering::Acquire))
    }

    /// Returns its parameters and state.
    #[must_use]
    pub fn query(&self) -> EpInfo {
        let control = self.control();
        let state = self.state();
        // The states in which the man page of `dat_ep_query` gives them a meaning.
        let has_remote = matches!(
            state,
            EpState::PassiveConnectionPending
                | EpState::ActiveConnectionPending
                | EpState::TentativeConnectionPending
                | EpState::DisconnectPending
                | EpState::CompletionPending
                | EpState::Connected
        );
        let evd = |stream: &Option<DtoStream>| stream.as_ref().map(|stream| stream.evd().handle());
        EpInfo {
            ia: self.ia.handle(),
            state,
            local_address: self.ia.local_address(),
            local_port_qualifier: match (&control.connection, control.local_qualifier) {
                _ if !has_remote => 0,
                (Some(connection), 0) => connection.local_port().map_or(0, u64::from),
                (_, qualifier) => qualifier,
            },
            remote_address: if has_remote || self.ia.rules().conformance.shows_last_peer {
                control.remote.address()
            } else {
                0
            },
            remote_port_qualifier: if has_remote {
                control.remote_qualifier
            } else {
                0
            },
            pz: control.pz.as_ref().map(|pz| pz.handle()),
            recv_evd: evd(&control.streams.recv),
            request_evd: evd(&control.streams.request),
            connect_evd: control.connect.as_ref().map(|stream| stream.evd().handle()),
            srq: control.srq.as_ref().map(|srq| srq.handle()),
            attributes: {
                let mut attributes = control.attributes;
                self.marks.show(&mut attributes, control.srq.is_some());
                attributes
            },
        }
    }

    /// Returns the private data of the peer's accept; empty on the side that accepted, and after a
    /// reset.
    #[must_use]
    pub fn private_data(&self) -> Vec<u8> {
        self.control().private_data.to_vec()
    }

    /// Asks the device whether the bytes of one RDMA write of the peer arrive in ascending order.
    /// Unknown unless it is connected.
    #[must_use]
    pub fn data_in_order(&self) -> DataInOrder {
        let control = self.control();
        let qp = control.qp.as_ref();
        qp.map_or(DataInOrder::Unknown, EndpointHandle::data_in_order)
    }

    /// Returns its state, and whether anything is outstanding. A suppressed request counts as
    /// outstanding until a later request completes.
    #[must_use]
    pub fn status(&self) -> EpStatus {
        self.poll_everything();
        let locked = self.recvs_held();
        let control = self.control();
        let qp = control.qp.as_ref();
        let recv_idle = if control.srq.is_some() {
            locked == 0
        } else {
            qp.is_none_or(|qp| qp.recvs_outstanding() == 0)
        };
        EpStatus {
            state: self.state(),
            recv_idle,
            request_idle: qp.is_none_or(EndpointHandle::sends_idle),
        }
    }

    /// Returns how many receives it holds.
    #[must_use]
    pub fn recv_query(&self) -> RecvQuery {
        let shared = self.control().srq.is_some();
        if shared || self.marks.are_set() {
            self.poll_everything();
        } else {
            self.poll_unreported();
        }
        let allocated = self.recvs_held();
        // Messages fill receives in order, so the receives it holds are contiguous.
        RecvQuery {
            allocated,
            span: allocated,
        }
    }

    /// Returns how many receives it holds. Its own queue counts the receives that the device has
    /// (none on an SRQ), the EVD those that are staged; all others have been handed out.
    fn recvs_held(&self) -> u32 {
        let mut backoff = Backoff::new();
        loop {
            if let Some(locked) = self.count_held(&self.control()) {
                return locked;
            }
            // Without the control's lock, which the owner of the EVD may need.
            backoff.wait();
        }
    }

    /// Counts them once; `None` if the EVD may have staged some meanwhile.
    fn count_held(&self, control: &Control) -> Option<u32> {
        let count = || {
            let queue = control.qp.as_ref();
            let outstanding = queue.map_or(0, EndpointHandle::recvs_outstanding);
            outstanding.saturating_add(self.recvs_staged())
        };
        match &control.streams.recv {
            Some(stream) => stream.evd().while_none_moves(count),
            None => Some(count()),
        }
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock()
    }

    /// Makes the state transition for a trigger, and posts its event. Returns whether there is one.
    fn step(&self, control: &mut Control, trigger: Trigger) -> bool {
        self.step_with(control, trigger, PrivateData::default())
    }

    /// As [`Self::step`], with private data for the consumer.
    fn step_with(&self, control: &mut Control, trigger: Trigger, with: PrivateData) -> bool {
        let Some(edge) = state::step(self.state(), trigger) else {
            return false;
        };
        if let To::State(to) = edge.to {
            self.set_state(to);
            if to == EpState::Disconnected && edge.from != to {
                control.draining = false;
                // Flush before the event: when the consumer gets it, outstanding requests have
                // completed.
                control.flush();
            }
        }
        if let (Some(kind), Some(connect)) = (edge.event, &control.connect) {
            connect.evd().post_or_report(EventData::Connection {
                kind,
                ep: self.handle,
                private_data: with,
            });
        }
        true
    }

    fn set_state(&self, state: EpState) {
        self.state.store(state as u32, Ordering::Release);
    }
}

/// Returns the endpoint that a handle names.
pub(crate) fn find(handle: Handle) -> Result<Arc<Ep>> {
    Ok(handle::pin::<Ep>(handle).ok_or_else(stale::<Ep>)?.to_arc())
}

fn check(call: Call, what: &str, state: EpState) -> Result<()> {
    if call.legal().has(state) {
        Ok(())
    } else {
        Err(state::refused_in(call.legal(), what, state))
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

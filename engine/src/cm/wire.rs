//! What a manager needs of the transport of its messages: a [`Network`] per manager, its
//! [`Intake`] on the service thread, and a [`Wire`] per session. `socket` and `rdma` have
//! one of each.

use super::gate::Gate;
use super::{
    CmError, ConnectionEvent, ConnectionSink, DeviceSink, ListenSink, Local, Parameters, Peer,
    Target,
};
use crate::control::{Greeting, Transport};
use mio::Token;
use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU16;
use std::time::Instant;

pub(super) type ConnectionGate = Gate<dyn ConnectionSink>;

/// The transport of a manager's messages. The handles and the thread share it.
pub(super) trait Network: Send + Sync {
    /// Returns the most bytes of private data that every message carries.
    fn max_private_data(&self, transport: Transport) -> usize;

    /// Fails for a device whose connections it cannot establish.
    fn require_served(&self, _: &Local) -> Result<(), CmError> {
        Ok(())
    }

    /// Occupies the addresses of a listener for a qualifier, or for one of the system's
    /// choice, which is returned.
    fn bind(
        self: Arc<Self>,
        token: Token,
        local: &Local,
        qualifier: Option<u64>,
    ) -> Result<(Box<dyn Bound>, u64), CmError>;

    /// Prepares a connection: `Err` in the result is an event that ends the attempt at once.
    fn connect(self: Arc<Self>, token: Token, call: &Call<'_>) -> Result<Started, CmError>;

    /// Reports the removal of a device to the gate until the result is dropped. Returns
    /// `None` if it reports no removals.
    fn watch(
        self: Arc<Self>,
        _: Token,
        _: &Local,
        _: &Arc<Gate<dyn DeviceSink>>,
    ) -> Result<Option<Box<dyn Any + Send + Sync>>, CmError> {
        Ok(None)
    }

    /// Returns its part of the service thread.
    fn intake(self: Arc<Self>) -> Box<dyn Intake>;
}

/// A connection that was started, or the event that ended it at once.
pub(super) type Started = Result<Box<dyn Wire>, ConnectionEvent>;

/// A connection to be requested.
pub(super) struct Call<'a> {
    pub(super) local: &'a Local,
    pub(super) target: &'a Target,
    pub(super) endpoint: &'a Parameters,
    pub(super) private_data: &'a [u8],
    /// See [`ConnectionSink::greets`].
    pub(super) greets: bool,
    /// Gets the local port once it is known.
    pub(super) port: &'a Arc<AtomicU16>,
}

/// The occupied addresses of a listener. Dropping it frees them at once.
pub(super) trait Bound: Send + Sync {
    /// Lets requests in.
    fn listen(&mut self, listening: &Arc<Listening>) -> Result<(), CmError>;
}

/// A listener, shared by its handle and the thread.
pub(super) struct Listening {
    pub(super) qualifier: u64,
    pub(super) local: Local,
    pub(super) gate: Gate<dyn ListenSink>,
}

/// The service thread's part of a network.
pub(super) trait Intake {
    /// Passes what has arrived at a token to the sessions. `Err` means that nothing can be
    /// served any more.
    fn ready(&mut self, token: Token, sessions: &mut dyn Inbox) -> io::Result<()>;

    /// Handles everything of its own that is due. Returns when it has to be called next.
    fn expire(&mut self, _: &mut dyn Inbox) -> Option<Instant> {
        None
    }
}

/// The sessions, as an intake sees them.
pub(super) trait Inbox {
    /// Lets a session handle everything that its wire has received, and an event for it.
    fn receive(&mut self, token: Token, event: Option<Event>);

    /// Returns how many requests wait for the application's answer.
    fn unanswered(&self) -> usize;

    /// Passes a request to the application.
    fn request(
        &mut self,
        token: Token,
        listening: &Listening,
        wire: Box<dyn Wire>,
        incoming: Incoming,
    );
}

/// A request that an intake passes to the application.
pub(super) struct Incoming {
    pub(super) qualifier: u64,
    pub(super) requester: SocketAddr,
    pub(super) peer: Peer,
    pub(super) private_data: Vec<u8>,
    /// The most bytes of private data in the answer.
    pub(super) max_private_data: usize,
    /// Returns whether the requester still waits, as far as the system knows.
    pub(super) probe: Box<dyn Fn() -> bool + Send + Sync>,
}

/// An event of rdma_cm for a wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    AddressResolved,
    RouteResolved,
    /// A connection request; the id is a listener's.
    Requested(PeerParameters),
    /// The peer accepted.
    Accepted(PeerParameters),
    Rejected {
        /// The reason, as in the InfiniBand specification; on iWARP a negative
        /// error number.
        reason: i32,
        private_data: Vec<u8>,
    },
    /// The connection is established. The requester of an iWARP connection gets
    /// this in place of [`Event::Accepted`]: its queue pair is in RTS.
    Established(PeerParameters),
    Disconnected,
    /// The connection could not be established, or has ended; a negative error
    /// number.
    Failed(i32),
    DeviceRemoved,
    /// iWARP: the kernel could not even send the request; the error number.
    Unsent(Option<i32>),
    /// An event that does not concern the connection: its number.
    Other(u32),
}

/// The parameters of the peer's endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PeerParameters {
    /// The most RDMA reads of this side that it serves at a time.
    pub(super) reads_served: u8,
    /// The most RDMA reads that it requests to have in flight.
    pub(super) reads_requested: u8,
    pub(super) private_data: Vec<u8>,
}

/// What a wire reports to its session.
#[derive(Debug)]
pub(super) enum Signal {
    /// To the requester: the peer accepted.
    Accepted { peer: Peer, private_data: Vec<u8> },
    /// To the requester: the peer's application rejected.
    Rejected(Vec<u8>),
    /// To the requester: the peer's kernel still remembers the last connection of the queue
    /// pair; [`Wire::begin`] requests again.
    Remembered,
    /// To the accepting side: the requester is ready.
    Ready,
    /// The peer disconnects, or answers a disconnect.
    Disconnected,
    /// The connection failed, or has ended without a message. A requester without an answer
    /// gets this event.
    Ended(ConnectionEvent),
}

/// The acceptance of a request.
#[derive(Clone)]
pub(super) struct Answer {
    pub(super) endpoint: Parameters,
    pub(super) private_data: Vec<u8>,
    /// Where the requester has to write before this side sends.
    pub(super) greeting: Option<Arc<Greeting>>,
}

/// One connection, as its session sees it. Calls without a result cannot fail in a way that
/// no signal reports.
pub(super) trait Wire: Send {
    /// Returns the next signal; `event` is what the thread has got for this wire, if it gets
    /// events for it.
    fn receive(&mut self, event: Option<Event>) -> Option<Signal>;

    /// Starts to request the connection, or to request it again.
    fn begin(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Returns why a request has failed, in words; empty if the event says all that is known.
    fn why(&self) -> &str {
        ""
    }

    /// Returns what a request waits for, in words.
    fn awaits(&self) -> &'static str {
        "no answer came in time"
    }

    /// Gives up a request, or a connection whose requester is not ready.
    fn withdraw(&mut self) {}

    /// Returns the time before which the acceptance must not reach the requester.
    fn held_until(&mut self, _: &Answer) -> Option<Instant> {
        None
    }

    /// Returns whether the requester greets.
    fn greets(&self) -> bool {
        false
    }

    /// Accepts the request.
    fn accept(&mut self, answer: &Answer) -> io::Result<()>;

    /// Rejects the request: for the application, with its private data, or because there
    /// was no answer.
    fn reject(&mut self, private_data: Option<&[u8]>);

    /// Reports to the accepting side that this side is ready.
    fn ready(&mut self) -> io::Result<()>;

    /// Reports to the kernel that a message of the requester has arrived.
    fn message_received(&mut self) {}

    /// Disconnects, at once or when the requester is ready.
    fn disconnect(&mut self);

    fn answer_disconnect(&mut self);

    /// Ends a connection that has failed, or that this side could not make ready.
    fn fail(&mut self);

    /// Closes it, also for copies of its descriptor in forked children.
    fn end(self: Box<Self>);
}

//! What the application's side of the connection manager sees.

use super::ListenOn;
use super::manager::Request;
use crate::control::{EndpointAddress, Greeting, Route, Transport};
use core::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// How a manager exchanges what two endpoints must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagerKind {
    /// By messages over TCP; works wherever verbs do.
    Socket,
    /// By the kernel's connection manager; needs a port with an IP address of
    /// its own, and `/dev/infiniband/rdma_cm`.
    Rdma,
}

impl fmt::Display for ManagerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Socket => "socket",
            Self::Rdma => "rdma_cm",
        })
    }
}

/// Whose a listener or a connection is. Over TCP only `listen_on` and the
/// transport count; the kernel's connection manager takes no connection through another port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Local {
    /// Name of the device.
    pub device: String,
    /// What carries its connections. Over TCP nothing is known of
    /// [`Transport::Iwarp`] devices, which are refused as
    /// [`super::CmError::OnlyRdma`].
    pub transport: Transport,
    /// Number of its port, from 1.
    pub port: u8,
    /// The address of the port's network interface.
    pub address: IpAddr,
    /// The addresses that its listeners listen on.
    pub listen_on: ListenOn,
}

/// Whom to connect to, and how long to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The host's address; its port is ignored.
    pub host: SocketAddr,
    /// What is listened for there.
    pub qualifier: u64,
    /// Runs until the peer has accepted or refused. Without one the peer may
    /// take for ever to answer, and the system decides when its host counts as
    /// unreachable.
    pub timeout: Option<Duration>,
}

/// What is told of the peer's endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// How to reach it: see [`crate::EndpointHandle::connect_by`].
    pub route: Route,
    /// RDMA reads of ours that it serves at a time.
    pub reads_served: u8,
    /// RDMA reads that it would like to have in flight.
    pub reads_asked: u8,
}

/// What one side tells the other of its endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Where the endpoint is.
    pub address: EndpointAddress,
    /// RDMA reads of the peer that it serves at a time.
    pub reads_served: u8,
    /// RDMA reads that it would like to have in flight.
    pub reads_asked: u8,
}

/// How a manager behaves.
#[derive(Clone, Debug)]
pub struct ManagerOptions {
    /// The address that [`super::Manager::local_address`] answers; `None`
    /// finds one per device.
    pub publish: Option<IpAddr>,
    /// How long somebody who connects may take to say what he wants.
    /// 10 seconds by default.
    pub request_timeout: Duration,
    /// How long a requester may take, once its request is accepted, to report
    /// that it is ready; the accepting side then gets
    /// [`ConnectionEvent::AcceptFailed`]. 10 seconds by default.
    pub accept_timeout: Duration,
    /// How long a disconnect waits for the peer's answer. 2 seconds by default.
    pub disconnect_timeout: Duration,
    /// How long a connection may be idle before the system asks whether the
    /// peer's host is still there; a host that does not answer for long is
    /// then taken for [`ConnectionEvent::Broken`]. `None`, the default, never
    /// asks: a host that pauses is not dead, and the queue pair itself notices
    /// when it sends.
    pub keepalive: Option<Duration>,
    /// Whether the service thread stays on the CPUs of the thread that starts
    /// the manager. By default it may run on any CPU that is not isolated,
    /// so that it does not share one with a thread that polls.
    pub keep_affinity: bool,
}

impl Default for ManagerOptions {
    fn default() -> Self {
        Self {
            publish: None,
            request_timeout: Duration::from_secs(10),
            accept_timeout: Duration::from_secs(10),
            disconnect_timeout: Duration::from_secs(2),
            keepalive: None,
            keep_affinity: false,
        }
    }
}

/// Who is told of requests for a qualifier.
pub trait ListenSink: Send + Sync {
    /// Somebody wants to connect. Called on the service thread, one request at
    /// a time per listener; must not block long. The request may be answered
    /// later and on any thread; dropped, it is refused as by nobody
    /// ([`ConnectionEvent::NonPeerRejected`] there).
    fn request(&self, request: Request);
}

/// Who is told of a device.
pub trait DeviceSink: Send + Sync {
    /// The device is gone, or about to be: its connections are broken, and the
    /// system may wait until it is closed. Called once, on the service thread;
    /// must not block long.
    fn removed(&self);
}

/// Who is told of a connection.
pub trait ConnectionSink: Send + Sync {
    /// Something happened. Called on the service thread, one event at a time
    /// per connection and in order; must not block long. The first event may
    /// come before the call that made the connection has returned.
    ///
    /// The result counts for [`ConnectionEvent::Accepted`] only.
    ///
    /// # Errors
    /// The endpoint could not be brought to take part in the connection: the
    /// peer gets [`ConnectionEvent::AcceptFailed`], and this side no further event.
    #[expect(
        clippy::result_unit_err,
        reason = "the sink knows why; nobody else asks"
    )]
    fn event(&self, event: ConnectionEvent) -> Result<(), ()>;

    /// Whether the endpoint that asks for a connection greets the peer: see
    /// [`crate::EndpointHandle::asks_to_connect`]. Asked before the request is sent.
    fn greets(&self) -> bool {
        false
    }

    /// What the requester's greeting comes to, before which nothing may be sent:
    /// see [`crate::EndpointHandle::greeting`]. Asked before the acceptance is sent.
    fn greeting(&self) -> Option<Arc<Greeting>> {
        None
    }
}

/// What happened to a connection. After a terminal event, none follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// Active side: the peer accepted. The sink moves its queue pair to RTS
    /// and answers `Ok`, on which the peer is told that it is ready.
    Accepted {
        /// The peer's endpoint.
        peer: Peer,
        /// What the peer passed to [`Request::accept`].
        private_data: Vec<u8>,
    },
    /// Active side, terminal: the peer's application refused.
    PeerRejected,
    /// Active side, terminal: refused, but not by the application: nobody
    /// listens on the qualifier, or the request was dropped, or whoever
    /// listens there does not speak this protocol.
    NonPeerRejected,
    /// Active side, terminal: no way to the peer's host.
    Unreachable,
    /// Active side, terminal: no answer within the time given.
    TimedOut,
    /// Passive side: the requester is ready.
    Established,
    /// Passive side, terminal: the requester gave up, died, failed to become
    /// ready, or did not report it within [`ManagerOptions::accept_timeout`].
    AcceptFailed,
    /// Terminal: the peer disconnected in order, or this side's disconnect is done.
    Disconnected,
    /// Terminal: the peer vanished without a goodbye.
    Broken,
}

impl ConnectionEvent {
    /// Whether no event follows this one.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        !matches!(self, Self::Accepted { .. } | Self::Established)
    }
}

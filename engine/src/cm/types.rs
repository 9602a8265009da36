//! The types of the application's side of the connection manager.

use super::ListenOn;
use super::manager::Request;
use crate::control::{EndpointAddress, Greeting, Route, Transport, TransportOptions};
use core::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// How a manager exchanges messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagerKind {
    /// By messages over TCP; works with every InfiniBand and RoCE device.
    Socket,
    /// By the kernel's connection manager; needs a port with an IP address of its
    /// own, and `/dev/infiniband/rdma_cm`.
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

/// The local port of a listener or a connection. Over TCP only `listen_on` and the
/// transport are used; with rdma_cm a connection through another port is refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Local {
    /// The name of the device.
    pub device: String,
    /// The transport of the device. Over TCP, [`Transport::Iwarp`] devices are
    /// refused with [`super::CmError::OnlyRdma`].
    pub transport: Transport,
    /// The number of the device's port, from 1.
    pub port: u8,
    /// The address of the port's network interface.
    pub address: IpAddr,
    /// The addresses that its listeners listen on.
    pub listen_on: ListenOn,
    /// The options of its connections. With rdma_cm, the kernel uses the traffic
    /// class and the ACK timeout for its own messages and the route, and sends the
    /// numbers of retries to the peer. Over TCP the manager uses none of them.
    pub options: TransportOptions,
}

/// The peer to connect to, and how long to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The host's address; its port is ignored.
    pub host: SocketAddr,
    /// The connection qualifier of the listener.
    pub qualifier: u64,
    /// The time until the peer must have accepted or rejected. Without a timeout
    /// the peer may take any time to answer, and the system decides when a host
    /// counts as unreachable.
    pub timeout: Option<Duration>,
}

/// The parameters of the peer's endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The route to it: see [`crate::EndpointHandle::connect_by`].
    pub route: Route,
    /// The most RDMA reads of this side that it serves at a time.
    pub reads_served: u8,
    /// The most RDMA reads that it requests to have in flight.
    pub reads_requested: u8,
}

/// The parameters of one side's endpoint, which the other side gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The address of the endpoint.
    pub address: EndpointAddress,
    /// The most RDMA reads of the peer that it serves at a time.
    pub reads_served: u8,
    /// The most RDMA reads that it requests to have in flight.
    pub reads_requested: u8,
}

/// The options of a manager.
#[derive(Clone, Debug)]
pub struct ManagerOptions {
    /// The address that [`super::Manager::local_address`] returns; `None` finds one
    /// per device.
    pub publish: Option<IpAddr>,
    /// How long an incoming connection may take to send its request. 10 seconds by
    /// default.
    pub request_timeout: Duration,
    /// How long a requester may take, once its request is accepted, to report
    /// that it is ready; the accepting side then gets
    /// [`ConnectionEvent::AcceptFailed`]. 10 seconds by default.
    pub accept_timeout: Duration,
    /// How long a disconnect waits for the peer's answer. 2 seconds by default.
    pub disconnect_timeout: Duration,
    /// How long a connection may be idle before the system probes whether the
    /// peer's host is still there. If the host does not answer, the connection
    /// ends with [`ConnectionEvent::Broken`]. `None`, the default, disables
    /// probing: a paused host may resume, and the queue pair itself detects a
    /// lost peer when it sends.
    pub keepalive: Option<Duration>,
    /// Keep the service thread on the CPUs of the thread that starts the manager.
    /// By default it may run on every CPU that is not isolated, so that it does not
    /// compete with a polling thread.
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

/// Receives the requests of a listener.
pub trait ListenSink: Send + Sync {
    /// Called for each request, on the service thread, one at a time per listener;
    /// must not block for long. The request may be answered later and on any
    /// thread. If it is dropped, the requester gets
    /// [`ConnectionEvent::NonPeerRejected`].
    fn request(&self, request: Request);
}

/// Receives the removal of a device.
pub trait DeviceSink: Send + Sync {
    /// Called once, on the service thread, when the device was removed or is about
    /// to be; must not block for long. Its connections are broken, and the system
    /// may wait until the device is closed.
    fn removed(&self);
}

/// Receives the events of a connection.
pub trait ConnectionSink: Send + Sync {
    /// Called for each event, on the service thread, one at a time per connection
    /// and in order; must not block for long. The first event may come before the
    /// call that created the connection has returned.
    ///
    /// The result is used for [`ConnectionEvent::Accepted`] only.
    ///
    /// # Errors
    /// The endpoint could not be moved to RTS: the peer gets
    /// [`ConnectionEvent::AcceptFailed`], and this side no further event.
    #[expect(
        clippy::result_unit_err,
        reason = "the reason is known to the sink, and no caller needs it"
    )]
    fn event(&self, event: ConnectionEvent) -> Result<(), ()>;

    /// Returns whether the requesting endpoint greets its peer: see
    /// [`crate::EndpointHandle::prepare_request`]. Called before the request is
    /// sent.
    fn greets(&self) -> bool {
        false
    }

    /// Returns where the requester's greeting arrives, before which nothing may be
    /// sent: see [`crate::EndpointHandle::greeting`]. Called before the acceptance
    /// is sent.
    fn greeting(&self) -> Option<Arc<Greeting>> {
        None
    }
}

/// An event of a connection. No event follows a terminal one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// Active side: the peer accepted. The sink moves its queue pair to RTS and
    /// returns `Ok`; the peer is then notified that this side is ready.
    Accepted {
        /// The parameters of the peer's endpoint.
        peer: Peer,
        /// The private data that the peer passed to [`Request::accept`].
        private_data: Vec<u8>,
    },
    /// Active side, terminal: the peer's application rejected the request.
    PeerRejected {
        /// The private data that the peer passed to [`Request::reject`].
        private_data: Vec<u8>,
    },
    /// Active side, terminal: rejected, but not by the application. No listener has
    /// the qualifier, the request was dropped, or the listener uses another
    /// protocol.
    NonPeerRejected,
    /// Active side, terminal: there is no route to the peer's host.
    Unreachable,
    /// Active side, terminal: no answer within the timeout.
    TimedOut,
    /// Passive side: the requester is ready.
    Established,
    /// Passive side, terminal: the requester gave up, its process ended, it
    /// could not become ready, or it did not report that within
    /// [`ManagerOptions::accept_timeout`].
    AcceptFailed,
    /// Terminal: the peer disconnected in order, or this side's disconnect has
    /// completed.
    Disconnected,
    /// Terminal: the peer disappeared without a disconnect.
    Broken,
}

impl ConnectionEvent {
    /// Returns whether no event follows this one.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        !matches!(self, Self::Accepted { .. } | Self::Established)
    }
}

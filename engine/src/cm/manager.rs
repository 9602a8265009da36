//! The handles: manager, listener, request, connection.

use super::types::{
    ConnectionSink, DeviceSink, ListenSink, Local, ManagerKind, ManagerOptions, Parameters, Peer,
    Target,
};
use super::{CmError, MAX_PRIVATE_DATA, local};
use super::{rdma, socket};
use crate::control::Transport;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// A connection manager with one service thread. Clones are handles to the
/// same one, and its listeners, requests and connections keep it too; with the
/// last of all these the thread ends. Dropping that last one waits for the
/// thread, and so for a callback in progress, except inside a callback.
///
/// In a child after fork every call is refused as [`CmError::Forked`], and
/// dropping handles does nothing. A child that lives on without `exec` also
/// holds the parent's sockets: peers notice the parent's sudden death only
/// when the child ends too. An orderly disconnect they notice at once.
#[derive(Clone)]
pub struct Manager {
    service: ServiceOf,
}

#[derive(Clone)]
enum ServiceOf {
    Socket(Arc<socket::Service>),
    Rdma(Arc<rdma::Service>),
}

impl Manager {
    /// Starts a manager and its thread, which blocks all signals.
    ///
    /// # Errors
    /// [`CmError::Resources`]: no descriptors or no thread to be had.
    /// [`CmError::Missing`]: the kernel has no connection manager.
    pub fn start(kind: ManagerKind, options: ManagerOptions) -> Result<Self, CmError> {
        let service = match kind {
            ManagerKind::Socket => ServiceOf::Socket(socket::Service::start(options)?),
            ManagerKind::Rdma => ServiceOf::Rdma(rdma::Service::start(options)?),
        };
        Ok(Self { service })
    }

    /// What it exchanges messages by.
    #[must_use]
    pub fn kind(&self) -> ManagerKind {
        match self.service {
            ServiceOf::Socket(_) => ManagerKind::Socket,
            ServiceOf::Rdma(_) => ManagerKind::Rdma,
        }
    }

    /// Most bytes of private data that a request or an answer carries between
    /// endpoints of a device with this transport.
    #[must_use]
    pub fn max_private_data(&self, transport: Transport) -> usize {
        match self.service {
            ServiceOf::Socket(_) => MAX_PRIVATE_DATA,
            ServiceOf::Rdma(_) => rdma::max_private_data(transport),
        }
    }

    /// Refuses a device whose connections it cannot make.
    fn require_served(&self, local: &Local) -> Result<(), CmError> {
        match (&self.service, local.transport) {
            (ServiceOf::Socket(_), Transport::Iwarp) => Err(CmError::OnlyRdma {
                device: local.device.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Listens for requests for a qualifier, of which every value is allowed.
    /// See [`super::port_of`] for which may be listened for together over TCP.
    /// By rdma_cm those up to 65535 are ports of its own, others share the
    /// ports from 33534 on, and who shares one gets requests for all of them.
    /// On iWARP all addresses ([`super::ListenOn::All`]) are those that the port
    /// has now.
    ///
    /// # Errors
    /// [`CmError::InUse`] if anybody on this host listens on the qualifier or
    /// on its port; [`CmError::Address`] if this host does not have the address
    /// [`Local::listen_on`]; [`CmError::Privileged`], by rdma_cm;
    /// [`CmError::OnlyRdma`] over TCP; [`CmError::NotServed`] if an iWARP port has
    /// no address; [`CmError::Resources`],
    /// [`CmError::Unavailable`], [`CmError::Forked`].
    pub fn listen(
        &self,
        local: &Local,
        qualifier: u64,
        sink: Arc<dyn ListenSink>,
    ) -> Result<Listener, CmError> {
        self.listen_on(local, Some(qualifier), sink)
    }

    /// Listens on a qualifier that nobody on this host uses, and tells it.
    ///
    /// # Errors
    /// As [`Manager::listen`].
    pub fn listen_any(
        &self,
        local: &Local,
        sink: Arc<dyn ListenSink>,
    ) -> Result<(Listener, u64), CmError> {
        let listener = self.listen_on(local, None, sink)?;
        let qualifier = listener.qualifier();
        Ok((listener, qualifier))
    }

    fn listen_on(
        &self,
        local: &Local,
        qualifier: Option<u64>,
        sink: Arc<dyn ListenSink>,
    ) -> Result<Listener, CmError> {
        self.require_served(local)?;
        let inner = match &self.service {
            ServiceOf::Socket(service) => ListenerOf::Socket(socket::Listener::new(
                service,
                local.listen_on,
                qualifier,
                sink,
            )?),
            ServiceOf::Rdma(service) => {
                ListenerOf::Rdma(rdma::Listener::new(service, local, qualifier, sink)?)
            }
        };
        Ok(Listener { inner })
    }

    /// Requests a connection with whoever listens at `to`. Never blocks: the
    /// outcome is told to the sink, possibly before this returns.
    ///
    /// # Errors
    /// [`CmError::TooLong`] if `private_data` exceeds
    /// [`Manager::max_private_data`]; [`CmError::Address`] if the host's
    /// cannot be one host's address; [`CmError::OnlyRdma`] over TCP;
    /// [`CmError::Resources`], [`CmError::Unavailable`],
    /// [`CmError::Forked`]. The sink then hears nothing.
    pub fn connect(
        &self,
        local: &Local,
        to: Target,
        endpoint: Parameters,
        private_data: &[u8],
        sink: Arc<dyn ConnectionSink>,
    ) -> Result<Connection, CmError> {
        self.require_served(local)?;
        let inner = match &self.service {
            ServiceOf::Socket(service) => {
                let made = socket::Connection::connect(service, to, &endpoint, private_data, sink);
                ConnectionOf::Socket(made?)
            }
            ServiceOf::Rdma(service) => {
                let (to, end) = (&to, &endpoint);
                let made = rdma::Connection::connect(service, local, to, end, private_data, sink);
                ConnectionOf::Rdma(made?)
            }
        };
        Ok(Connection { inner })
    }

    /// Has a sink told when a device goes, until the answer is dropped. By
    /// rdma_cm only; this also finds out whether rdma_cm serves the port at
    /// that address. Over TCP nothing is watched.
    ///
    /// # Errors
    /// [`CmError::NotServed`]; [`CmError::OnlyRdma`] over TCP; [`CmError::Resources`],
    /// [`CmError::Unavailable`], [`CmError::Forked`].
    pub fn watch_device(
        &self,
        local: &Local,
        sink: Arc<dyn DeviceSink>,
    ) -> Result<DeviceWatch, CmError> {
        self.require_served(local)?;
        let inner = match &self.service {
            ServiceOf::Socket(_) => None,
            ServiceOf::Rdma(service) => Some(rdma::DeviceWatch::new(service, local, sink)?),
        };
        Ok(DeviceWatch { _inner: inner })
    }

    /// The address to publish for a device, by which other hosts reach this
    /// manager: [`ManagerOptions::publish`] if given, else that of the
    /// device's network interface, else the one the host uses towards others,
    /// else loopback. The port is 0, since qualifiers say it.
    #[must_use]
    pub fn local_address(&self, device: &str) -> SocketAddr {
        let address = match &self.service {
            ServiceOf::Socket(service) => service.options().publish,
            ServiceOf::Rdma(service) => service.options().publish,
        };
        SocketAddr::new(address.unwrap_or_else(|| local::address_for(device)), 0)
    }
}

/// Tells whether a device goes, until dropped. Dropping waits for a callback
/// of its sink in progress, except inside a callback.
pub struct DeviceWatch {
    _inner: Option<rdma::DeviceWatch>,
}

/// Listens until dropped; no request is delivered after that. Requests that
/// were delivered before stay answerable. Dropping waits for a callback of its
/// sink in progress, except inside a callback: do not hold what that waits for.
pub struct Listener {
    inner: ListenerOf,
}

enum ListenerOf {
    Socket(socket::Listener),
    Rdma(rdma::Listener),
}

impl Listener {
    /// What it listens for.
    #[must_use]
    pub fn qualifier(&self) -> u64 {
        match &self.inner {
            ListenerOf::Socket(listener) => listener.qualifier(),
            ListenerOf::Rdma(listener) => listener.qualifier(),
        }
    }
}

/// Somebody who wants to connect. Dropped without an answer, he is told
/// [`super::ConnectionEvent::NonPeerRejected`].
pub struct Request {
    details: Details,
    inner: RequestOf,
}

pub(super) enum RequestOf {
    Socket(socket::Request),
    Rdma(rdma::Request),
}

/// What a request says.
pub(super) struct Details {
    pub(super) qualifier: u64,
    pub(super) requester: SocketAddr,
    pub(super) peer: Peer,
    pub(super) private_data: Vec<u8>,
}

impl Request {
    pub(super) fn new(details: Details, inner: RequestOf) -> Self {
        Self { details, inner }
    }

    /// What the requester passed to [`Manager::connect`].
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.details.private_data
    }

    /// The requester's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.details.requester
    }

    /// The qualifier that was listened for, or that it was handed off to.
    #[must_use]
    pub fn qualifier(&self) -> u64 {
        self.details.qualifier
    }

    /// It is for whoever listens on this qualifier, now: the requester does not
    /// hear of that.
    pub fn hand_off(&mut self, qualifier: u64) {
        self.details.qualifier = qualifier;
    }

    /// The port that the requester connects from: a number that no other
    /// connection from his address has at the same time. Nobody listens on it.
    #[must_use]
    pub fn remote_port(&self) -> u64 {
        self.peer().port().into()
    }

    /// The requester's endpoint.
    #[must_use]
    pub fn parameters(&self) -> &Peer {
        &self.details.peer
    }

    /// Whether the requester still waits, as far as is known. One that gives
    /// up after this makes the accepted connection fail instead.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        match &self.inner {
            RequestOf::Socket(request) => request.is_alive(),
            RequestOf::Rdma(request) => request.is_alive(),
        }
    }

    /// Accepts. The caller has moved his queue pair to RTR and RTS, since the
    /// requester may send as soon as he knows. The sink is told
    /// [`super::ConnectionEvent::Established`], or
    /// [`super::ConnectionEvent::AcceptFailed`], also if the requester had
    /// given up before this call.
    ///
    /// # Errors
    /// [`CmError::TooLong`] if `private_data` exceeds
    /// [`Manager::max_private_data`]; [`CmError::Unavailable`];
    /// [`CmError::Forked`]. The requester is then refused as by nobody.
    pub fn accept(
        self,
        endpoint: Parameters,
        private_data: &[u8],
        sink: Arc<dyn ConnectionSink>,
    ) -> Result<Connection, CmError> {
        let inner = match self.inner {
            RequestOf::Socket(request) => {
                ConnectionOf::Socket(request.accept(&endpoint, private_data, sink)?)
            }
            RequestOf::Rdma(request) => {
                ConnectionOf::Rdma(request.accept(&endpoint, private_data, sink)?)
            }
        };
        Ok(Connection { inner })
    }

    /// Refuses: the requester is told [`super::ConnectionEvent::PeerRejected`].
    pub fn reject(self) {
        match self.inner {
            RequestOf::Socket(request) => request.reject(),
            RequestOf::Rdma(request) => request.reject(),
        }
    }
}

/// A connection, from its first step to its last. Dropping it is
/// [`Connection::abort`].
pub struct Connection {
    inner: ConnectionOf,
}

enum ConnectionOf {
    Socket(socket::Connection),
    Rdma(rdma::Connection),
}

impl Connection {
    /// The port that it goes out from, which the peer knows as
    /// [`Request::remote_port`]; nothing if it was accepted, or before rdma_cm
    /// has found the way.
    #[must_use]
    pub fn local_port(&self) -> Option<u16> {
        match &self.inner {
            ConnectionOf::Socket(connection) => connection.local_port(),
            ConnectionOf::Rdma(connection) => connection.local_port(),
        }
    }

    /// A message has come from the requester whose own word, that he is ready,
    /// may still be on its way, or lost: he is. By rdma_cm this has the kernel
    /// go on, and the sink be told [`super::ConnectionEvent::Established`]; over
    /// TCP nothing is lost, and nothing is done.
    pub fn heard(&self) {
        match &self.inner {
            ConnectionOf::Socket(_) => (),
            ConnectionOf::Rdma(connection) => connection.heard(),
        }
    }

    /// Disconnects in order: tells the peer, and the sink gets
    /// [`super::ConnectionEvent::Disconnected`] when the peer has answered, or
    /// after [`ManagerOptions::disconnect_timeout`]. A request that the peer
    /// has not answered yet is given up at once, with the same event. After a
    /// terminal event, or the second time, this does nothing.
    pub fn disconnect(&self) {
        match &self.inner {
            ConnectionOf::Socket(connection) => connection.disconnect(),
            ConnectionOf::Rdma(connection) => connection.disconnect(),
        }
    }

    /// Forgets the connection: no event any more once this has returned. The
    /// peer is told as by [`Connection::disconnect`]. Waits for a callback of
    /// this connection's sink in progress, except inside a callback: do not
    /// hold a lock that the sink takes.
    pub fn abort(&self) {
        match &self.inner {
            ConnectionOf::Socket(connection) => connection.abort(),
            ConnectionOf::Rdma(connection) => connection.abort(),
        }
    }

    /// As [`Connection::abort`], after a failure: a peer to whom the connection
    /// is established gets [`super::ConnectionEvent::Broken`] by the socket
    /// manager. By `rdma_cm`, whose messages know no reason, it gets
    /// [`super::ConnectionEvent::Disconnected`].
    pub fn fail(&self) {
        match &self.inner {
            ConnectionOf::Socket(connection) => connection.fail(),
            ConnectionOf::Rdma(connection) => connection.abort(),
        }
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager").finish_non_exhaustive()
    }
}

impl fmt::Debug for DeviceWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceWatch").finish_non_exhaustive()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let qualifier = self.qualifier();
        f.debug_struct("Listener")
            .field("qualifier", &qualifier)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("Request");
        all.field("qualifier", &self.qualifier())
            .field("peer", &self.peer());
        all.finish_non_exhaustive()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

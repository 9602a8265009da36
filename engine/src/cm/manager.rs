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

/// A connection manager with one service thread. Clones are handles to the same
/// manager, and its listeners, requests and connections keep it alive too. The
/// thread ends when the last of all these is dropped. Dropping the last one waits
/// for the thread, and so for a callback in progress, except inside a callback.
///
/// In a forked child every call fails with [`CmError::Forked`], and dropping
/// handles does nothing. A child that continues without `exec` also holds
/// copies of the parent's sockets: if the parent is killed, peers get the end
/// of the connection only when the child ends too. They get an orderly
/// disconnect at once.
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
    /// [`CmError::Resources`]: there are no descriptors or no threads left.
    /// [`CmError::Missing`]: the kernel has no connection manager.
    pub fn start(kind: ManagerKind, options: ManagerOptions) -> Result<Self, CmError> {
        let service = match kind {
            ManagerKind::Socket => ServiceOf::Socket(socket::Service::start(options)?),
            ManagerKind::Rdma => ServiceOf::Rdma(rdma::Service::start(options)?),
        };
        Ok(Self { service })
    }

    /// Returns how the manager exchanges messages.
    #[must_use]
    pub fn kind(&self) -> ManagerKind {
        match self.service {
            ServiceOf::Socket(_) => ManagerKind::Socket,
            ServiceOf::Rdma(_) => ManagerKind::Rdma,
        }
    }

    /// Returns the most bytes of private data in a request or an answer between
    /// endpoints of a device with this transport.
    #[must_use]
    pub fn max_private_data(&self, transport: Transport) -> usize {
        match self.service {
            ServiceOf::Socket(_) => MAX_PRIVATE_DATA,
            ServiceOf::Rdma(_) => rdma::max_private_data(transport),
        }
    }

    /// Fails for a device whose connections the manager cannot establish.
    fn require_served(&self, local: &Local) -> Result<(), CmError> {
        match (&self.service, local.transport) {
            (ServiceOf::Socket(_), Transport::Iwarp) => Err(CmError::OnlyRdma {
                device: local.device.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Listens for requests to a connection qualifier; every value is allowed.
    /// [`super::port_of`] determines which qualifiers can be listened for at
    /// the same time over TCP. With rdma_cm, values up to 65535 are ports in
    /// its own port space. All others share the ports from 33534 on, and a
    /// listener on a shared port gets the requests for all its qualifiers. On
    /// iWARP, all addresses ([`super::ListenOn::All`]) means those that the
    /// port has at the time of the call.
    ///
    /// # Errors
    /// [`CmError::InUse`] if a listener on this host has the qualifier or its port;
    /// [`CmError::Address`] if this host does not have the address
    /// [`Local::listen_on`]; [`CmError::Privileged`] with rdma_cm;
    /// [`CmError::OnlyRdma`] over TCP; [`CmError::NotServed`] if an iWARP port has
    /// no address; [`CmError::Resources`], [`CmError::Unavailable`],
    /// [`CmError::Forked`].
    pub fn listen(
        &self,
        local: &Local,
        qualifier: u64,
        sink: Arc<dyn ListenSink>,
    ) -> Result<Listener, CmError> {
        self.listen_on(local, Some(qualifier), sink)
    }

    /// Listens on a qualifier that no listener on this host uses;
    /// [`Listener::qualifier`] returns it.
    ///
    /// # Errors
    /// As for [`Manager::listen`].
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

    /// Requests a connection to the listener at `to`. Never blocks: the sink gets
    /// the outcome as an event, possibly before this call returns.
    ///
    /// # Errors
    /// [`CmError::TooLong`] if `private_data` exceeds
    /// [`Manager::max_private_data`]; [`CmError::Address`] if the target is not the
    /// address of a single host; [`CmError::OnlyRdma`] over TCP;
    /// [`CmError::Resources`], [`CmError::Unavailable`], [`CmError::Forked`]. The
    /// sink then gets no event.
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

    /// Reports the removal of a device to a sink, until the returned watch is
    /// dropped. With rdma_cm only; also checks that rdma_cm serves the port at that
    /// address. Over TCP nothing is watched.
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

    /// Returns the address to publish for a device, by which other hosts reach this
    /// manager: [`ManagerOptions::publish`] if given, else that of the device's
    /// network interface, else the source address of the host's route to others,
    /// else loopback. Its port is 0, since the qualifier determines the port.
    #[must_use]
    pub fn local_address(&self, device: &str) -> SocketAddr {
        let address = match &self.service {
            ServiceOf::Socket(service) => service.options().publish,
            ServiceOf::Rdma(service) => service.options().publish,
        };
        SocketAddr::new(address.unwrap_or_else(|| local::address_for(device)), 0)
    }
}

/// Reports the removal of a device until dropped. Dropping waits for a callback of
/// its sink in progress, except inside a callback.
pub struct DeviceWatch {
    _inner: Option<rdma::DeviceWatch>,
}

/// A listener. It listens until it is dropped; no request is delivered after that.
/// Requests that were delivered before can still be answered. Dropping waits for a
/// callback of its sink in progress, except inside a callback: do not hold a lock
/// that the callback takes.
pub struct Listener {
    inner: ListenerOf,
}

enum ListenerOf {
    Socket(socket::Listener),
    Rdma(rdma::Listener),
}

impl Listener {
    /// Returns the qualifier that it listens for.
    #[must_use]
    pub fn qualifier(&self) -> u64 {
        match &self.inner {
            ListenerOf::Socket(listener) => listener.qualifier(),
            ListenerOf::Rdma(listener) => listener.qualifier(),
        }
    }
}

/// A connection request. If it is dropped without an answer, the requester gets
/// [`super::ConnectionEvent::NonPeerRejected`].
pub struct Request {
    details: Details,
    inner: RequestOf,
}

pub(super) enum RequestOf {
    Socket(socket::Request),
    Rdma(rdma::Request),
}

/// The contents of a request.
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

    /// Returns the private data that the requester passed to [`Manager::connect`].
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.details.private_data
    }

    /// Returns the requester's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.details.requester
    }

    /// Returns the qualifier of the listener, or the one that the request was
    /// handed off to.
    #[must_use]
    pub fn qualifier(&self) -> u64 {
        self.details.qualifier
    }

    /// Hands the request off to the listener on another qualifier. The
    /// requester is not notified.
    pub fn hand_off(&mut self, qualifier: u64) {
        self.details.qualifier = qualifier;
    }

    /// Returns the port that the requester connects from. No other connection from
    /// the requester's address has the same port at the same time. No listener uses
    /// it.
    #[must_use]
    pub fn remote_port(&self) -> u64 {
        self.peer().port().into()
    }

    /// Returns the parameters of the requester's endpoint.
    #[must_use]
    pub fn parameters(&self) -> &Peer {
        &self.details.peer
    }

    /// Returns whether the requester is known to still wait. If the requester gives
    /// up after this call, the accepted connection fails.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        match &self.inner {
            RequestOf::Socket(request) => request.is_alive(),
            RequestOf::Rdma(request) => request.is_alive(),
        }
    }

    /// Accepts the request. The caller has moved its queue pair to RTR and RTS
    /// before, since the requester may send at once. The sink gets
    /// [`super::ConnectionEvent::Established`], or
    /// [`super::ConnectionEvent::AcceptFailed`], also if the requester gave up
    /// before this call.
    ///
    /// # Errors
    /// [`CmError::TooLong`] if `private_data` exceeds
    /// [`Manager::max_private_data`]; [`CmError::Unavailable`];
    /// [`CmError::Forked`]. The requester then gets
    /// [`super::ConnectionEvent::NonPeerRejected`].
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

    /// Rejects the request: the requester gets
    /// [`super::ConnectionEvent::PeerRejected`], also if this process ends next. Waits for
    /// the thread that calls the sinks, so the caller must not hold a lock that a sink
    /// takes.
    ///
    /// # Errors
    /// [`CmError::TooLong`] if `private_data` exceeds
    /// [`Manager::max_private_data`]. The requester then gets
    /// [`super::ConnectionEvent::NonPeerRejected`].
    pub fn reject(self, private_data: &[u8]) -> Result<(), CmError> {
        match self.inner {
            RequestOf::Socket(request) => request.reject(private_data),
            RequestOf::Rdma(request) => request.reject(private_data),
        }
    }
}

/// A connection, from the request to its end. Dropping it is [`Connection::abort`].
pub struct Connection {
    inner: ConnectionOf,
}

enum ConnectionOf {
    Socket(socket::Connection),
    Rdma(rdma::Connection),
}

impl Connection {
    /// Returns the local port of the connection, which the peer knows as
    /// [`Request::remote_port`]. `None` if the connection was accepted here, or
    /// before rdma_cm has found the route.
    #[must_use]
    pub fn local_port(&self) -> Option<u16> {
        match &self.inner {
            ConnectionOf::Socket(connection) => connection.local_port(),
            ConnectionOf::Rdma(connection) => connection.local_port(),
        }
    }

    /// Reports that a message from the requester has arrived, which shows that the
    /// requester is ready. The requester's own "ready" may still be on its way, or
    /// lost. With rdma_cm the kernel then proceeds, and the sink gets
    /// [`super::ConnectionEvent::Established`]. Over TCP nothing is lost, and this
    /// does nothing.
    pub fn message_received(&self) {
        match &self.inner {
            ConnectionOf::Socket(_) => (),
            ConnectionOf::Rdma(connection) => connection.message_received(),
        }
    }

    /// Disconnects in order: notifies the peer. The sink gets
    /// [`super::ConnectionEvent::Disconnected`] when the peer has answered, or
    /// after [`ManagerOptions::disconnect_timeout`]. A request that the peer has
    /// not answered yet is given up at once, with the same event. After a terminal
    /// event, or a second time, this does nothing.
    pub fn disconnect(&self) {
        match &self.inner {
            ConnectionOf::Socket(connection) => connection.disconnect(),
            ConnectionOf::Rdma(connection) => connection.disconnect(),
        }
    }

    /// Ends the connection without further events: no callback is made after this
    /// call has returned. The peer is notified as by [`Connection::disconnect`].
    /// Waits for a callback of this connection's sink in progress, except inside a
    /// callback: do not hold a lock that the sink takes.
    pub fn abort(&self) {
        match &self.inner {
            ConnectionOf::Socket(connection) => connection.abort(),
            ConnectionOf::Rdma(connection) => connection.abort(),
        }
    }

    /// Ends the connection as [`Connection::abort`] does, after a failure. With the
    /// socket manager, a peer for which the connection is established gets
    /// [`super::ConnectionEvent::Broken`]. With `rdma_cm`, whose messages carry no
    /// reason, it gets [`super::ConnectionEvent::Disconnected`].
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

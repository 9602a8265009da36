//! The handles: manager, listener, request, connection.

use super::commands::{CmCommand, CommandQueue, Prepared};
use super::gate::Gate;
use super::service::Service;
use super::types::{
    ConnectionSink, DeviceSink, ListenSink, Local, ManagerKind, ManagerOptions, Parameters, Peer,
    Target,
};
use super::wire::{Answer, Bound, Call, ConnectionGate, Incoming, Listening, Network};
use super::{CmError, local, rdma, socket};
use crate::control::Transport;
use crate::memory;
use mio::{Poll, Token};
use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Instant;

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
    kind: ManagerKind,
    service: Arc<Service>,
}

impl Manager {
    /// Starts a manager and its thread, which blocks all signals.
    ///
    /// # Errors
    /// [`CmError::Resources`]: there are no descriptors or no threads left.
    /// [`CmError::Missing`]: the kernel has no connection manager.
    pub fn start(kind: ManagerKind, options: ManagerOptions) -> Result<Self, CmError> {
        let poll = Poll::new().map_err(CmError::Resources)?;
        let commands = Arc::new(CommandQueue::new(&poll)?);
        let network: Arc<dyn Network> = match kind {
            ManagerKind::Socket => Arc::new(socket::Tcp::new(&poll, &options, &commands)?),
            ManagerKind::Rdma => Arc::new(rdma::Rdma::open(&poll, &commands)?),
        };
        let service = Service::start(options, poll, commands, network)?;
        Ok(Self { kind, service })
    }

    /// Returns how the manager exchanges messages.
    #[must_use]
    pub fn kind(&self) -> ManagerKind {
        self.kind
    }

    /// Returns the most bytes of private data in a request or an answer between
    /// endpoints of a device with this transport.
    #[must_use]
    pub fn max_private_data(&self, transport: Transport) -> usize {
        self.service.shared.network.max_private_data(transport)
    }

    /// Fails in a forked child, and for a device whose connections the manager cannot
    /// establish.
    fn require_served(&self, local: &Local) -> Result<(), CmError> {
        self.service.shared.network.require_served(local)?;
        self.service.shared.commands.require_here()
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
        let shared = &self.service.shared;
        let token = shared.commands.token();
        let (mut bound, qualifier) = Arc::clone(&shared.network).bind(token, local, qualifier)?;
        let listening = Arc::new(Listening {
            qualifier,
            local: local.clone(),
            gate: Gate::new(sink),
        });
        bound.listen(&listening)?;
        Ok(Listener {
            service: Arc::clone(&self.service),
            bound: Some(bound),
            listening,
        })
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
        let shared = &self.service.shared;
        require_short(private_data, self.max_private_data(local.transport))?;
        local::require_one_host(to.host.ip())?;
        // A deadline that the clock cannot represent is none.
        let deadline = to.timeout.and_then(|it| Instant::now().checked_add(it));
        let (token, port) = (shared.commands.token(), Arc::default());
        let call = Call {
            local,
            target: &to,
            endpoint: &endpoint,
            private_data,
            greets: sink.greets(),
            port: &port,
        };
        let started = Arc::clone(&shared.network).connect(token, &call)?;
        let gate: Arc<ConnectionGate> = Arc::new(Gate::new(sink));
        let command = CmCommand::Connect(token, to, started, Arc::clone(&gate), deadline);
        let command = Prepared::new(command);
        memory::commit()?;
        shared.commands.send_prepared(command)?;
        Ok(Connection {
            service: Arc::clone(&self.service),
            token,
            gate,
            port,
        })
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
        let shared = &self.service.shared;
        let gate: Arc<Gate<dyn DeviceSink>> = Arc::new(Gate::new(sink));
        let network = Arc::clone(&shared.network);
        let watched = network.watch(shared.commands.token(), local, &gate)?;
        Ok(DeviceWatch {
            service: Arc::clone(&self.service),
            gate,
            watched,
        })
    }

    /// Returns the address to publish for a device, by which other hosts reach this
    /// manager: [`ManagerOptions::publish`] if given, else that of the device's
    /// network interface, else the source address of the host's route to others,
    /// else loopback. Its port is 0, since the qualifier determines the port.
    #[must_use]
    pub fn local_address(&self, device: &str) -> SocketAddr {
        let address = self.service.shared.options.publish;
        SocketAddr::new(address.unwrap_or_else(|| local::address_for(device)), 0)
    }
}

/// Fails for private data that a message has no room for.
fn require_short(private_data: &[u8], max: usize) -> Result<(), CmError> {
    match private_data.len() <= max {
        true => Ok(()),
        false => Err(CmError::TooLong { max }),
    }
}

/// Reports the removal of a device until dropped. Dropping waits for a callback of
/// its sink in progress, except inside a callback.
pub struct DeviceWatch {
    service: Arc<Service>,
    gate: Arc<Gate<dyn DeviceSink>>,
    watched: Option<Box<dyn Any + Send + Sync>>,
}

impl Drop for DeviceWatch {
    fn drop(&mut self) {
        let commands = &self.service.shared.commands;
        if commands.here() {
            self.gate.close(commands.on_service_thread());
        } else {
            core::mem::forget(self.watched.take());
        }
    }
}

/// A listener. It listens until it is dropped; no request is delivered after that.
/// Requests that were delivered before can still be answered. Dropping waits for a
/// callback of its sink in progress, except inside a callback: do not hold a lock
/// that the callback takes.
pub struct Listener {
    service: Arc<Service>,
    bound: Option<Box<dyn Bound>>,
    listening: Arc<Listening>,
}

impl Listener {
    /// Returns the qualifier that it listens for.
    #[must_use]
    pub fn qualifier(&self) -> u64 {
        self.listening.qualifier
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let commands = &self.service.shared.commands;
        if commands.here() {
            // Freed first, so that the qualifier can be listened for at once.
            drop(self.bound.take());
            self.listening.gate.close(commands.on_service_thread());
        } else {
            core::mem::forget(self.bound.take());
        }
    }
}

/// A connection request. If it is dropped without an answer, the requester gets
/// [`super::ConnectionEvent::NonPeerRejected`].
pub struct Request {
    incoming: Incoming,
    service: Arc<Service>,
    token: Token,
    alive: Arc<AtomicBool>,
    is_answered: bool,
}

impl Request {
    pub(super) fn new(
        service: Arc<Service>,
        token: Token,
        alive: Arc<AtomicBool>,
        incoming: Incoming,
    ) -> Self {
        Self {
            incoming,
            service,
            token,
            alive,
            is_answered: false,
        }
    }

    /// Returns the private data that the requester passed to [`Manager::connect`].
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.incoming.private_data
    }

    /// Returns the requester's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.incoming.requester
    }

    /// Returns the qualifier of the listener, or the one that the request was
    /// handed off to.
    #[must_use]
    pub fn qualifier(&self) -> u64 {
        self.incoming.qualifier
    }

    /// Hands the request off to the listener on another qualifier. The
    /// requester is not notified.
    pub fn hand_off(&mut self, qualifier: u64) {
        self.incoming.qualifier = qualifier;
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
        &self.incoming.peer
    }

    /// Returns whether the requester is known to still wait. If the requester gives
    /// up after this call, the accepted connection fails.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
            && self.service.shared.commands.here()
            && (self.incoming.probe)()
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
        let acceptance = self.acceptance(endpoint, private_data, sink)?;
        self.accept_by(acceptance)
    }

    /// Prepares [`Request::accept_by`], so that the caller moves its queue pair only if memory
    /// suffices ([`memory::commit`]).
    ///
    /// # Errors
    /// Those of [`Request::accept`], and [`CmError::NoMemory`]. The request can still be answered.
    pub fn acceptance(
        &self,
        endpoint: Parameters,
        private_data: &[u8],
        sink: Arc<dyn ConnectionSink>,
    ) -> Result<Acceptance, CmError> {
        let commands = &self.service.shared.commands;
        commands.require_here()?;
        require_short(private_data, self.incoming.max_private_data)?;
        let gate: Arc<ConnectionGate> = Arc::new(Gate::new(sink));
        let answer = Answer {
            endpoint,
            private_data: private_data.to_vec(),
            greeting: None,
        };
        let command = CmCommand::Accept(self.token, Arc::clone(&gate), answer);
        let acceptance = Acceptance {
            command: Prepared::new(command),
            gate,
            port: Arc::default(),
        };
        memory::commit()?;
        Ok(acceptance)
    }

    /// Accepts as [`Request::accept`] does.
    ///
    /// # Errors
    /// [`CmError::Unavailable`]. The requester then gets
    /// [`super::ConnectionEvent::NonPeerRejected`].
    pub fn accept_by(mut self, acceptance: Acceptance) -> Result<Connection, CmError> {
        let commands = &self.service.shared.commands;
        commands.send_prepared(acceptance.command)?;
        self.answered();
        Ok(Connection {
            service: Arc::clone(&self.service),
            token: self.token,
            gate: acceptance.gate,
            port: acceptance.port,
        })
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
    pub fn reject(mut self, private_data: &[u8]) -> Result<(), CmError> {
        require_short(private_data, self.incoming.max_private_data)?;
        self.refuse(Some(private_data.to_vec()));
        Ok(())
    }

    /// Rejects with the private data of the application; `None` if it gave no answer. A
    /// rejection of the application is sent when this returns: no event follows, so the
    /// process may end next.
    fn refuse(&mut self, private_data: Option<Vec<u8>>) {
        let commands = &self.service.shared.commands;
        if commands.here() && !self.is_answered {
            self.answered();
            let commands = &self.service.shared.commands;
            let _ = commands.execute(private_data.is_some(), |executed| {
                CmCommand::Reject(self.token, private_data, executed)
            });
        }
    }

    /// The service thread has to destroy the wire, to which the probe refers.
    fn answered(&mut self) {
        self.is_answered = true;
        self.incoming.probe = Box::new(|| false);
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.refuse(None);
    }
}

/// What accepting a request needs, from [`Request::acceptance`].
pub struct Acceptance {
    command: Prepared,
    gate: Arc<ConnectionGate>,
    port: Arc<AtomicU16>,
}

/// A connection, from the request to its end. Dropping it is [`Connection::abort`].
pub struct Connection {
    service: Arc<Service>,
    token: Token,
    gate: Arc<ConnectionGate>,
    /// The local port of a connection that was requested here; 0 until it is known.
    port: Arc<AtomicU16>,
}

impl Connection {
    /// Returns the local port of the connection, which the peer knows as
    /// [`Request::remote_port`]. `None` if the connection was accepted here, or
    /// before rdma_cm has found the route.
    #[must_use]
    pub fn local_port(&self) -> Option<u16> {
        Some(self.port.load(Ordering::Acquire)).filter(|&port| port != 0)
    }

    /// Reports that a message from the requester has arrived, which shows that the
    /// requester is ready. The requester's own "ready" may still be on its way, or
    /// lost. With rdma_cm the kernel then proceeds, and the sink gets
    /// [`super::ConnectionEvent::Established`]. Over TCP nothing is lost, and this
    /// does nothing.
    pub fn message_received(&self) {
        self.command(CmCommand::MessageReceived(self.token));
    }

    /// Disconnects in order: notifies the peer. The sink gets
    /// [`super::ConnectionEvent::Disconnected`] when the peer has answered, or
    /// after [`ManagerOptions::disconnect_timeout`]. A request that the peer has
    /// not answered yet is given up at once, with the same event. After a terminal
    /// event, or a second time, this does nothing.
    pub fn disconnect(&self) {
        self.command(CmCommand::Disconnect(self.token));
    }

    /// Ends the connection without further events: no callback is made after this
    /// call has returned. The peer is notified as by [`Connection::disconnect`].
    /// Waits for a callback of this connection's sink in progress, except inside a
    /// callback: do not hold a lock that the sink takes.
    pub fn abort(&self) {
        self.close(CmCommand::Abort(self.token));
    }

    /// Ends the connection as [`Connection::abort`] does, after a failure. With the
    /// socket manager, a peer for which the connection is established gets
    /// [`super::ConnectionEvent::Broken`]. With `rdma_cm`, whose messages carry no
    /// reason, it gets [`super::ConnectionEvent::Disconnected`].
    pub fn fail(&self) {
        self.close(CmCommand::Fail(self.token));
    }

    fn command(&self, command: CmCommand) {
        let commands = &self.service.shared.commands;
        if commands.here() {
            let _ = commands.send(command);
        }
    }

    fn close(&self, how: CmCommand) {
        let commands = &self.service.shared.commands;
        // If the gate is closed, the thread has ended the connection already.
        if commands.here() && self.gate.close(commands.on_service_thread()) {
            let _ = commands.send(how);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.abort();
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

//! The handles of the application; each sends commands to the service thread.
//!
//! A message of the requester can arrive before its ready message, and the ready message can be lost.
//! The device reports the first message (`IBV_EVENT_COMM_EST`), which is passed on to rdma_cm
//! (`rdma_notify`): it continues as if the ready message had come. So a lost ready message does not
//! end a connection that carries data.

use super::address::{addresses_of, no_address};
use super::conn_param::ConnParam;
use super::id::{Channel, Id, RESOLVE};
use super::payload;
use super::port::port_of;
use super::service::{Command, Connecting, Listening, Service};
use super::session::ConnectionGate;
use super::wire::Active;
use crate::cm::gate::Gate;
use crate::cm::{
    CmError, ConnectionSink, DeviceSink, ListenSink, Local, Parameters, Target, local,
};
use crate::control::Transport;
use crate::sync::Mutex;
use mio::Token;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

/// The most requests that wait to be delivered; the kernel reduces it to its limit.
const BACKLOG: i32 = 4096;
/// How many ports of the kernel's choice are tried; one of them must be free on
/// every address.
const TRIES: u32 = 16;

pub(in crate::cm) struct Listener {
    service: Arc<Service>,
    token: Token,
    listening: Arc<Listening>,
}

impl Listener {
    /// Listens on a qualifier, or on one of the kernel's choice if none is given.
    pub(in crate::cm) fn new(
        service: &Arc<Service>,
        local: &Local,
        qualifier: Option<u64>,
        sink: Arc<dyn ListenSink>,
    ) -> Result<Self, CmError> {
        let shared = &service.shared;
        shared.commands.require_here()?;
        let token = shared.commands.token();
        let (port, on) = (qualifier.map_or(0, port_of), local.listen_on.address());
        let ids = match (on, local.transport) {
            (None, Transport::Iwarp) => on_each_address(&shared.channel, token, local, port)?,
            _ => vec![
                bound(&shared.channel, token, on, port)
                    .map_err(|error| refused(error, on, port))?,
            ],
        };
        let listening = Arc::new(Listening {
            // A port of the kernel's choice is its own qualifier.
            qualifier: qualifier.unwrap_or_else(|| ids.first().map_or(0, Id::port).into()),
            local: local.clone(),
            ids: Mutex::new(ids),
            gate: Gate::new(sink),
        });
        // The thread has the listener before the first request can arrive.
        let command = Command::Listen(token, Arc::clone(&listening));
        shared.commands.send(command)?;
        let listener = Self {
            service: Arc::clone(service),
            token,
            listening,
        };
        listener
            .listen()
            .map_err(|error| refused(error, on, port))?;
        Ok(listener)
    }

    fn listen(&self) -> io::Result<()> {
        let ids = self.listening.ids.lock();
        ids.iter().try_for_each(|id| id.listen(BACKLOG))
    }

    pub(in crate::cm) fn qualifier(&self) -> u64 {
        self.listening.qualifier
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let commands = &self.service.shared.commands;
        if !commands.here() {
            return;
        }
        let ids = core::mem::take(&mut *self.listening.ids.lock());
        // Destroyed here, so that the qualifier can be listened for at once.
        drop(ids);
        self.listening.gate.close(commands.on_service_thread());
        let _ = commands.send(Command::Unlisten(self.token));
    }
}

/// Creates an id that is bound to a port of all addresses, or of one.
fn bound(channel: &Arc<Channel>, token: Token, on: Option<IpAddr>, port: u16) -> io::Result<Id> {
    let id = Id::create(channel, token)?;
    if let Some(address) = on {
        id.bind((address, port).into())?;
        return Ok(id);
    }
    // One id for both families; a host without IPv6 has no such address.
    id.serve_both_families()?;
    match id.bind((Ipv6Addr::UNSPECIFIED, port).into()) {
        Ok(()) => Ok(id),
        Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {
            let id = Id::create(channel, token)?;
            id.bind((Ipv4Addr::UNSPECIFIED, port).into())?;
            Ok(id)
        }
        Err(error) => Err(error),
    }
}

/// Creates ids on a port of each address of a device's port. An iWARP device does
/// not listen on another device's addresses: siw accepts only requests to the
/// addresses of its interface, and requests from this host only if it listens on
/// the address itself. The kernel also does not recognise an IPv4 address in IPv6
/// form (Linux, `siw_create_listen` and `rdma_translate_ip`).
fn on_each_address(
    channel: &Arc<Channel>,
    token: Token,
    local: &Local,
    port: u16,
) -> Result<Vec<Id>, CmError> {
    let addresses = addresses_of(channel, &local.device, local.port);
    if addresses.is_empty() {
        return Err(CmError::NotServed(no_address(&local.device, local.port)));
    }
    let bind = |port: u16| {
        let mut ids: Vec<Id> = Vec::new();
        for &address in &addresses {
            // A port of the kernel's choice is the same on all of them.
            let port = ids.first().map_or(port, Id::port);
            ids.push(bound(channel, token, Some(address), port)?);
        }
        Ok::<_, io::Error>(ids)
    };
    let mut tries = 0;
    loop {
        match bind(port) {
            Ok(ids) => return Ok(ids),
            Err(error) if port == 0 && tries < TRIES && is_taken(&error) => tries += 1,
            Err(error) => return Err(refused(error, addresses.first().copied(), port)),
        }
    }
}

/// Returns whether the error means that the port is in use on that address.
fn is_taken(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EADDRINUSE | libc::EADDRNOTAVAIL)
    )
}

/// Returns the error for a port that cannot be listened on.
fn refused(error: io::Error, on: Option<IpAddr>, port: u16) -> CmError {
    match (error.raw_os_error(), on) {
        (Some(libc::EADDRINUSE), _) | (Some(libc::EADDRNOTAVAIL), None) => CmError::InUse,
        (Some(libc::EACCES), _) => CmError::Privileged { port },
        // Another listener has the port on all addresses.
        (Some(libc::EADDRNOTAVAIL), Some(address)) if local::is_ours(address) => CmError::InUse,
        (
            Some(libc::EADDRNOTAVAIL | libc::EAFNOSUPPORT | libc::EINVAL | libc::ENODEV),
            Some(address),
        ) => CmError::Address(format!("cannot listen on {address}: {error}")),
        _ => CmError::Resources(error),
    }
}

pub(in crate::cm) struct Request {
    service: Arc<Service>,
    token: Token,
    alive: Arc<AtomicBool>,
    /// Taken when the request is answered: the service thread has to destroy the
    /// id.
    id: Option<Arc<Id>>,
    answering: Answering,
}

/// The properties of a request that its answer depends on.
#[derive(Clone, Copy)]
pub(super) struct Answering {
    /// The RDMA reads that the requester serves, and those that it wants in flight.
    pub(super) reads: (u8, u8),
    pub(super) transport: Transport,
    /// See [`ConnParam::retries`].
    pub(super) retries: (u8, u8),
    /// Whether the requester greets.
    pub(super) greets: bool,
}

impl Request {
    pub(super) fn new(
        service: Arc<Service>,
        token: Token,
        alive: Arc<AtomicBool>,
        id: Arc<Id>,
        answering: Answering,
    ) -> Self {
        Self {
            service,
            token,
            alive,
            id: Some(id),
            answering,
        }
    }

    pub(in crate::cm) fn is_alive(&self) -> bool {
        let id = self.id.as_ref();
        self.alive.load(Ordering::Acquire)
            && self.service.shared.commands.here()
            && id.is_some_and(|id| id.is_alive())
    }

    pub(in crate::cm) fn accept(
        mut self,
        endpoint: &Parameters,
        private_data: &[u8],
        sink: Arc<dyn ConnectionSink>,
    ) -> Result<Connection, CmError> {
        let commands = &self.service.shared.commands;
        commands.require_here()?;
        let Answering {
            reads: (served, requested),
            transport,
            retries,
            greets,
        } = self.answering;
        fits(private_data, transport)?;
        let greeting = if greets { sink.greeting() } else { None };
        let gate: Arc<ConnectionGate> = Arc::new(Gate::new(sink));
        let param = ConnParam {
            qpn: endpoint.address.qpn,
            // At most the number that the requester requests and supports.
            reads_served: endpoint.reads_served.min(requested),
            reads_requested: endpoint.reads_requested.min(served),
            retries,
            private_data: payload::reply(
                private_data,
                transport,
                greeting.as_ref().map(|greeting| greeting.place()),
            ),
            greeting,
        };
        commands.send(Command::Accept(self.token, Arc::clone(&gate), param))?;
        let id = self.id.take().as_ref().map(Arc::downgrade);
        Ok(Connection {
            service: Arc::clone(&self.service),
            token: self.token,
            gate,
            port: Arc::default(),
            id: id.unwrap_or_default(),
        })
    }

    pub(in crate::cm) fn reject(mut self, private_data: &[u8]) -> Result<(), CmError> {
        fits(private_data, self.answering.transport)?;
        self.refuse(Some(private_data.to_vec()));
        Ok(())
    }

    /// Rejects with the private data of the application; `None` if it gave no answer. A
    /// rejection of the application is sent when this returns: no event follows, so the
    /// process may end next.
    fn refuse(&mut self, private_data: Option<Vec<u8>>) {
        let commands = &self.service.shared.commands;
        if commands.here() && self.id.take().is_some() {
            let _ = commands.execute(private_data.is_some(), |executed| {
                Command::Reject(self.token, private_data, executed)
            });
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.refuse(None);
    }
}

pub(in crate::cm) struct Connection {
    service: Arc<Service>,
    token: Token,
    gate: Arc<ConnectionGate>,
    /// The local port of a connection that was requested here; 0 until it is known.
    port: Arc<AtomicU16>,
    /// The id of a connection that was accepted here; owned by the service thread.
    id: Weak<Id>,
}

impl Connection {
    pub(in crate::cm) fn connect(
        service: &Arc<Service>,
        local: &Local,
        target: &Target,
        endpoint: &Parameters,
        private_data: &[u8],
        sink: Arc<dyn ConnectionSink>,
    ) -> Result<Self, CmError> {
        let shared = &service.shared;
        shared.commands.require_here()?;
        fits(private_data, local.transport)?;
        local::require_one_host(target.host.ip())?;
        // A deadline that the clock cannot represent is none.
        let deadline = target.timeout.and_then(|it| Instant::now().checked_add(it));
        let param = ConnParam {
            qpn: endpoint.address.qpn,
            reads_served: endpoint.reads_served,
            reads_requested: endpoint.reads_requested,
            retries: retries(local),
            private_data: payload::request(private_data, local.transport, sink.greets()),
            greeting: None,
        };
        let token = shared.commands.token();
        let line = Active::new(shared, token, local, target, param)?;
        let resolution = line.resolution();
        let gate: Arc<ConnectionGate> = Arc::new(Gate::new(sink));
        let port = Arc::clone(line.port());
        let connecting = Connecting {
            line,
            gate: Arc::clone(&gate),
            deadline,
        };
        let command = Command::Connect(token, connecting);
        // The first event wakes the thread, within the kernel's own timeouts; the
        // thread watches a shorter timeout itself.
        match target.timeout {
            Some(timeout) if timeout <= RESOLVE => shared.commands.send(command)?,
            _ => shared.commands.send_without_wake(command)?,
        }
        // After the command, so that the thread has the session when its event
        // arrives.
        if let Err(error) = resolution.resolve() {
            shared.commands.send(Command::Unresolved(token, error))?;
        }
        Ok(Self {
            service: Arc::clone(service),
            token,
            gate,
            port,
            id: Weak::new(),
        })
    }

    pub(in crate::cm) fn local_port(&self) -> Option<u16> {
        Some(self.port.load(Ordering::Acquire)).filter(|&port| port != 0)
    }

    pub(in crate::cm) fn message_received(&self) {
        if self.service.shared.commands.here()
            && let Some(id) = self.id.upgrade()
            && let Err(error) = id.notify_established()
        {
            // The kernel has this report already, or the requester has gone.
            tracing::debug!(%error, "cannot report a message that arrived before the connection was established");
        }
    }

    pub(in crate::cm) fn disconnect(&self) {
        let commands = &self.service.shared.commands;
        if commands.here() {
            let _ = commands.send(Command::Disconnect(self.token));
        }
    }

    pub(in crate::cm) fn abort(&self) {
        let commands = &self.service.shared.commands;
        // If the gate is closed, the thread has ended the connection already.
        if commands.here() && self.gate.close(commands.on_service_thread()) {
            let _ = commands.send(Command::Abort(self.token));
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.abort();
    }
}

/// An id that exists only to get the removal of its device.
pub(in crate::cm) struct DeviceWatch {
    service: Arc<Service>,
    token: Token,
    gate: Arc<Gate<dyn DeviceSink>>,
    id: Option<Id>,
}

impl DeviceWatch {
    pub(in crate::cm) fn new(
        service: &Arc<Service>,
        local: &Local,
        sink: Arc<dyn DeviceSink>,
    ) -> Result<Self, CmError> {
        let commands = &service.shared.commands;
        commands.require_here()?;
        let token = commands.token();
        let id = Id::create(&service.shared.channel, token).map_err(CmError::Resources)?;
        let gate: Arc<Gate<dyn DeviceSink>> = Arc::new(Gate::new(sink));
        commands.send(Command::Watch(token, Arc::clone(&gate)))?;
        let watch = Self {
            service: Arc::clone(service),
            token,
            gate,
            id: Some(id),
        };
        watch.bind(local)?;
        Ok(watch)
    }

    fn bind(&self, local: &Local) -> Result<(), CmError> {
        let Some(id) = &self.id else {
            return Err(CmError::Unavailable);
        };
        let Local {
            device,
            port,
            address,
            ..
        } = local;
        id.bind((*address, 0).into()).map_err(|error| {
            let cause = match error.raw_os_error() {
                Some(libc::EADDRNOTAVAIL) => {
                    "no network interface of this host has this address".to_owned()
                }
                Some(libc::ENODEV) => "there is no RDMA device on its network interface".to_owned(),
                Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => {
                    return CmError::Resources(error);
                }
                _ => error.to_string(),
            };
            CmError::NotServed(format!(
                "rdma_cm does not serve the address {address}: {cause}"
            ))
        })?;
        match id.device() {
            Some((found, number)) if found == *device && number == *port => Ok(()),
            Some((found, number)) => Err(CmError::NotServed(format!(
                "rdma_cm assigns the address {address} to {found} port {number}, \
                 not of {device} port {port}"
            ))),
            None => Err(CmError::NotServed(format!(
                "rdma_cm assigns the address {address} to no device"
            ))),
        }
    }
}

impl Drop for DeviceWatch {
    fn drop(&mut self) {
        let commands = &self.service.shared.commands;
        if commands.here() {
            self.gate.close(commands.on_service_thread());
            drop(self.id.take());
            let _ = commands.send(Command::Unwatch(self.token));
        }
    }
}

/// Returns the numbers of retries that a peer is asked for.
pub(super) fn retries(local: &Local) -> (u8, u8) {
    (local.options.retry(), local.options.rnr_retry())
}

fn fits(private_data: &[u8], transport: Transport) -> Result<(), CmError> {
    let max = payload::max_private_data(transport);
    match private_data.len() <= max {
        true => Ok(()),
        false => Err(CmError::TooLong { max }),
    }
}

//! The handles of the application; each sends commands to the service thread.

use super::frame::{self, Reason};
use super::open;
use super::service::{Command, Connecting, Listening, Service};
use super::session::ConnectionGate;
use crate::cm::gate::Gate;
use crate::cm::{
    CmError, ConnectionSink, ListenOn, ListenSink, MAX_PRIVATE_DATA, Parameters, Target,
};
use crate::sync::Mutex;
use mio::{Interest, Token};
use socket2::SockRef;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

pub(in crate::cm) struct Listener {
    service: Arc<Service>,
    token: Token,
    listening: Arc<Listening>,
}

impl Listener {
    /// Listens on a qualifier, or on one of the system's choice if none is given.
    pub(in crate::cm) fn new(
        service: &Arc<Service>,
        on: ListenOn,
        qualifier: Option<u64>,
        sink: Arc<dyn ListenSink>,
    ) -> Result<Self, CmError> {
        let shared = &service.shared;
        shared.commands.require_here()?;
        shared.keep_reserve()?;
        let (mut sockets, qualifier) = open::listener(on, qualifier)?;
        let token = shared.commands.token();
        for socket in &mut sockets {
            shared.register(socket, token, Interest::READABLE)?;
        }
        let listening = Arc::new(Listening {
            qualifier,
            sockets: Mutex::new(sockets),
            gate: Gate::new(sink),
        });
        shared
            .commands
            .send(Command::Listen(token, Arc::clone(&listening)))?;
        Ok(Self {
            service: Arc::clone(service),
            token,
            listening,
        })
    }

    pub(in crate::cm) fn qualifier(&self) -> u64 {
        self.listening.qualifier
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let shared = &self.service.shared;
        if !shared.commands.here() {
            return;
        }
        let mut sockets = core::mem::take(&mut *self.listening.sockets.lock());
        // Closed here, so that the qualifier can be listened for at once; shut
        // down, so that this also holds for copies of the descriptor in forked
        // children.
        for mut socket in sockets.drain(..) {
            let _ = SockRef::from(&socket).shutdown(Shutdown::Both);
            shared.deregister(&mut socket);
        }
        self.listening
            .gate
            .close(shared.commands.on_service_thread());
        let _ = shared.commands.send(Command::Unlisten(self.token));
    }
}

pub(in crate::cm) struct Request {
    service: Arc<Service>,
    token: Token,
    alive: Arc<AtomicBool>,
    answered: bool,
}

impl Request {
    pub(super) fn new(service: Arc<Service>, token: Token, alive: Arc<AtomicBool>) -> Self {
        Self {
            service,
            token,
            alive,
            answered: false,
        }
    }

    pub(in crate::cm) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    pub(in crate::cm) fn accept(
        mut self,
        local: &Parameters,
        private_data: &[u8],
        sink: Arc<dyn ConnectionSink>,
    ) -> Result<Connection, CmError> {
        self.service.shared.commands.require_here()?;
        fits(private_data)?;
        let gate: Arc<ConnectionGate> = Arc::new(Gate::new(sink));
        let answer = frame::accept(local, private_data);
        let command = Command::Accept(self.token, Arc::clone(&gate), answer);
        self.service.shared.commands.send(command)?;
        self.answered = true;
        Ok(Connection {
            service: Arc::clone(&self.service),
            token: self.token,
            gate,
            port: None,
        })
    }

    pub(in crate::cm) fn reject(mut self, private_data: &[u8]) -> Result<(), CmError> {
        fits(private_data)?;
        self.refuse(Reason::Application(private_data.to_vec()));
        Ok(())
    }

    /// Sends a rejection. One of the application is sent when this returns: no event
    /// follows, so the process may end next.
    fn refuse(&mut self, reason: Reason) {
        let commands = &self.service.shared.commands;
        if !self.answered && commands.here() {
            self.answered = true;
            let _ = commands.execute(matches!(reason, Reason::Application(_)), |executed| {
                Command::Reject(self.token, reason, executed)
            });
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.refuse(Reason::NoListener);
    }
}

pub(in crate::cm) struct Connection {
    service: Arc<Service>,
    token: Token,
    gate: Arc<ConnectionGate>,
    /// The local port of a connection that was requested here.
    port: Option<u16>,
}

impl Connection {
    pub(in crate::cm) fn connect(
        service: &Arc<Service>,
        target: Target,
        local: &Parameters,
        private_data: &[u8],
        sink: Arc<dyn ConnectionSink>,
    ) -> Result<Self, CmError> {
        let shared = &service.shared;
        shared.commands.require_here()?;
        fits(private_data)?;
        // A deadline that the clock cannot represent is none.
        let deadline = target.timeout.and_then(|it| Instant::now().checked_add(it));
        let mut to = target.host;
        to.set_port(crate::cm::port_of(target.qualifier));
        let mut stream = open::stream(&shared.options, to)?;
        let token = shared.commands.token();
        let mut port = None;
        if let Ok(stream) = &mut stream {
            port = stream.local_addr().ok().map(|own| own.port());
            shared.register(stream, token, Interest::READABLE | Interest::WRITABLE)?;
        }
        let gate: Arc<ConnectionGate> = Arc::new(Gate::new(sink));
        let connecting = Connecting {
            stream,
            gate: Arc::clone(&gate),
            request: frame::request(target.qualifier, local, private_data),
            deadline,
        };
        shared.commands.send(Command::Connect(token, connecting))?;
        Ok(Self {
            service: Arc::clone(service),
            token,
            gate,
            port,
        })
    }

    pub(in crate::cm) fn local_port(&self) -> Option<u16> {
        self.port
    }

    pub(in crate::cm) fn disconnect(&self) {
        let shared = &self.service.shared;
        if shared.commands.here() {
            let _ = shared.commands.send(Command::Disconnect(self.token));
        }
    }

    pub(in crate::cm) fn abort(&self) {
        self.forget(Command::Abort(self.token));
    }

    pub(in crate::cm) fn fail(&self) {
        self.forget(Command::Fail(self.token));
    }

    fn forget(&self, how: Command) {
        let shared = &self.service.shared;
        // If the gate is closed, the thread has ended the connection already.
        if shared.commands.here() && self.gate.close(shared.commands.on_service_thread()) {
            let _ = shared.commands.send(how);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.abort();
    }
}

fn fits(private_data: &[u8]) -> Result<(), CmError> {
    if private_data.len() <= MAX_PRIVATE_DATA {
        Ok(())
    } else {
        Err(CmError::TooLong {
            max: MAX_PRIVATE_DATA,
        })
    }
}

//! State shared by handles and the service thread; start and end of the thread.

use super::frame::Reason;
use super::run;
use super::session::{ConnectionGate, ListenGate};
use crate::cm::service_thread::{self, CommandQueue, End, Executed};
use crate::cm::{CmError, ManagerOptions};
use crate::sync::Mutex;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Poll, Registry, Token, event::Source};
use std::os::fd::AsRawFd;
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

/// Keeps the thread running: every handle has one, the thread itself only a `Weak`.
pub(in crate::cm) struct Service {
    pub(super) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The state that the thread shares with the handles.
pub(super) struct Shared {
    pub(super) options: ManagerOptions,
    pub(super) commands: CommandQueue<Command>,
    registry: Registry,
    /// The reserve descriptor, from the first listener on.
    reserve: Mutex<Option<Registry>>,
    /// For the requests that the thread creates.
    service: OnceLock<Weak<Service>>,
}

/// A command of a handle to the service thread.
pub(super) enum Command {
    /// Accept connections from a listener, whose sockets are registered.
    Listen(Token, Arc<Listening>),
    /// The listener's sockets are closed.
    Unlisten(Token),
    /// Continue a connection that was started.
    Connect(Token, Connecting),
    /// Accept a request.
    Accept(Token, Arc<ConnectionGate>, Vec<u8>),
    /// Reject a request.
    Reject(Token, Reason, Option<Executed>),
    Disconnect(Token),
    /// Send a disconnect and drop the session; its gate is closed.
    Abort(Token),
    /// As `Abort`, after a failure of the connection.
    Fail(Token),
    Stop,
}

/// A listener, shared by its handle and the thread.
pub(super) struct Listening {
    pub(super) qualifier: u64,
    /// One socket per address. Empty once the handle has closed them, which frees
    /// the port at once.
    pub(super) sockets: Mutex<Vec<TcpListener>>,
    pub(super) gate: ListenGate,
}

impl Listening {
    /// Returns whether a connection waits to be accepted.
    pub(super) fn has_waiting(&self) -> bool {
        let sockets = self.sockets.lock();
        let polled = sockets.iter().map(|socket| libc::pollfd {
            fd: socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        let mut polled: Vec<_> = polled.collect();
        let count = polled.len() as libc::nfds_t;
        // SAFETY: that many structs, owned by this function, with descriptors that
        // are open as long as the lock is held. The call does not wait.
        unsafe { libc::poll(polled.as_mut_ptr(), count, 0) > 0 }
    }
}

/// A connection that was started.
pub(super) struct Connecting {
    /// The registered stream, or the event that ended the attempt at once.
    pub(super) stream: Result<TcpStream, crate::cm::ConnectionEvent>,
    pub(super) gate: Arc<ConnectionGate>,
    /// The request to send when the stream is connected.
    pub(super) request: Vec<u8>,
    pub(super) deadline: Option<Instant>,
}

impl Service {
    pub(in crate::cm) fn start(options: ManagerOptions) -> Result<Arc<Self>, CmError> {
        let poll = Poll::new().map_err(CmError::Resources)?;
        let keep_affinity = options.keep_affinity;
        let shared = Arc::new(Shared {
            options,
            commands: CommandQueue::new(&poll)?,
            registry: poll.registry().try_clone().map_err(CmError::Resources)?,
            reserve: Mutex::new(None),
            service: OnceLock::new(),
        });
        let its = Arc::clone(&shared);
        let thread = service_thread::spawn(keep_affinity, move || {
            let _end = End(&its.commands);
            run::run(&its, poll);
        })?;
        shared.commands.serve(&thread);
        let service = Arc::new(Self {
            shared,
            thread: Some(thread),
        });
        let _ = service.shared.service.set(Arc::downgrade(&service));
        Ok(service)
    }

    pub(in crate::cm) fn options(&self) -> &ManagerOptions {
        &self.shared.options
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.shared.commands.end(thread, Command::Stop);
        }
    }
}

impl Shared {
    /// Registers a socket for the thread. Events before the thread knows the token
    /// are lost, so the thread checks the socket when it gets the command.
    pub(super) fn register(
        &self,
        socket: &mut impl Source,
        token: Token,
        interest: Interest,
    ) -> Result<(), CmError> {
        let done = self.registry.register(socket, token, interest);
        done.map_err(CmError::Resources)
    }

    /// Removes a socket. Needed before it is closed: a copy of the descriptor in a
    /// forked child would keep it registered.
    pub(super) fn deregister(&self, socket: &mut impl Source) {
        let _ = self.registry.deregister(socket);
    }

    /// Opens a reserve descriptor, for a connection that arrives when no other
    /// descriptor is left: a copy of the registry's.
    pub(super) fn keep_reserve(&self) -> Result<(), CmError> {
        let mut reserve = self.reserve.lock();
        if reserve.is_none() {
            *reserve = Some(self.registry.try_clone().map_err(CmError::Resources)?);
        }
        Ok(())
    }

    /// Closes the reserve descriptor. Returns `false` if there is none.
    pub(super) fn give_up_reserve(&self) -> bool {
        self.reserve.lock().take().is_some()
    }

    /// Returns what keeps the thread running, unless it is ending.
    pub(super) fn service(&self) -> &Weak<Service> {
        static NONE: Weak<Service> = Weak::new();
        self.service.get().unwrap_or(&NONE)
    }
}

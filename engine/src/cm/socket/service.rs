//! What handles and the service thread share, and how the thread starts and ends.

use super::run;
use super::session::{ConnectionGate, ListenGate};
use crate::cm::post::{self, End, Post};
use crate::cm::{CmError, ManagerOptions};
use crate::sync::Mutex;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Poll, Registry, Token, event::Source};
use std::os::fd::AsRawFd;
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

/// Keeps the thread: all handles have one, the thread itself only a `Weak`.
pub(in crate::cm) struct Service {
    pub(super) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Also the thread's.
pub(super) struct Shared {
    pub(super) options: ManagerOptions,
    pub(super) post: Post<Command>,
    registry: Registry,
    /// A descriptor, from the first listener on.
    reserve: Mutex<Option<Registry>>,
    /// For the requests that the thread makes.
    service: OnceLock<Weak<Service>>,
}

/// What handles want of the thread.
pub(super) enum Command {
    /// Take connections from a listener, whose socket is registered.
    Listen(Token, Arc<Listening>),
    /// Its socket is closed.
    Unlisten(Token),
    /// Pursue a connection that was begun.
    Connect(Token, Connecting),
    /// Answer a request: accept.
    Accept(Token, Arc<ConnectionGate>, Vec<u8>),
    /// Answer a request: refuse; `true` as the application.
    Reject(Token, bool),
    Disconnect(Token),
    /// The gate is shut: say goodbye and forget.
    Abort(Token),
    /// As that, since it has failed.
    Fail(Token),
    Stop,
}

/// A listener, as its handle and the thread know it.
pub(super) struct Listening {
    pub(super) qualifier: u64,
    /// One of each address. None once the handle closed them, which frees the
    /// port at once.
    pub(super) sockets: Mutex<Vec<TcpListener>>,
    pub(super) gate: ListenGate,
}

impl Listening {
    /// Whether a connection waits to be taken.
    pub(super) fn has_waiting(&self) -> bool {
        let sockets = self.sockets.lock();
        let asked = sockets.iter().map(|socket| libc::pollfd {
            fd: socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        let mut asked: Vec<_> = asked.collect();
        let count = asked.len() as libc::nfds_t;
        // SAFETY: so many structs, which are ours, and descriptors that are
        // open as long as the lock is held. It does not wait.
        unsafe { libc::poll(asked.as_mut_ptr(), count, 0) > 0 }
    }
}

/// A connection that was begun.
pub(super) struct Connecting {
    /// Registered; or the event that ended the attempt at once.
    pub(super) stream: Result<TcpStream, crate::cm::ConnectionEvent>,
    pub(super) gate: Arc<ConnectionGate>,
    /// To send when the stream is there.
    pub(super) request: Vec<u8>,
    pub(super) deadline: Option<Instant>,
}

impl Service {
    pub(in crate::cm) fn start(options: ManagerOptions) -> Result<Arc<Self>, CmError> {
        let poll = Poll::new().map_err(CmError::Resources)?;
        let keep_affinity = options.keep_affinity;
        let shared = Arc::new(Shared {
            options,
            post: Post::new(&poll)?,
            registry: poll.registry().try_clone().map_err(CmError::Resources)?,
            reserve: Mutex::new(None),
            service: OnceLock::new(),
        });
        let its = Arc::clone(&shared);
        let thread = post::spawn(keep_affinity, move || {
            let _end = End(&its.post);
            run::run(&its, poll);
        })?;
        shared.post.serve(&thread);
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
            self.shared.post.end(thread, Command::Stop);
        }
    }
}

impl Shared {
    /// Has the thread woken for a socket. What comes before the thread knows
    /// the token is lost, so it looks at the socket when it is told.
    pub(super) fn register(
        &self,
        socket: &mut impl Source,
        token: Token,
        interest: Interest,
    ) -> Result<(), CmError> {
        let done = self.registry.register(socket, token, interest);
        done.map_err(CmError::Resources)
    }

    /// A copy of the descriptor in a fork would keep the set from noticing
    /// that the socket is closed.
    pub(super) fn deregister(&self, socket: &mut impl Source) {
        let _ = self.registry.deregister(socket);
    }

    /// Keeps a descriptor for a connection that comes when there is no other
    /// left; the registry's, since that can be copied.
    pub(super) fn keep_reserve(&self) -> Result<(), CmError> {
        let mut reserve = self.reserve.lock();
        if reserve.is_none() {
            *reserve = Some(self.registry.try_clone().map_err(CmError::Resources)?);
        }
        Ok(())
    }

    /// Closes the descriptor in reserve. Returns `false` if there is none.
    pub(super) fn give_up_reserve(&self) -> bool {
        self.reserve.lock().take().is_some()
    }

    /// What keeps the thread, unless it ends.
    pub(super) fn service(&self) -> &Weak<Service> {
        static NONE: Weak<Service> = Weak::new();
        self.service.get().unwrap_or(&NONE)
    }
}

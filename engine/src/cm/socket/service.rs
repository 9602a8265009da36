//! What handles and the service thread share, and how the thread starts and ends.

use super::run;
use super::session::{ConnectionGate, ListenGate};
use crate::cm::{CmError, ManagerOptions};
use crate::thread::{SignalsBlocked, leave_pinned_cpus};
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Poll, Registry, Token, Waker, event::Source};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Instant;

/// Keeps the thread: all handles have one, the thread itself only a `Weak`.
pub(in crate::cm) struct Service {
    pub(super) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Also the thread's.
pub(super) struct Shared {
    pub(super) options: ManagerOptions,
    /// The process that started it: there is no thread in its forks.
    process: u32,
    registry: Registry,
    waker: Waker,
    next_token: AtomicUsize,
    queue: Mutex<Queue>,
    thread: OnceLock<ThreadId>,
    /// For the requests that the thread makes.
    service: OnceLock<Weak<Service>>,
}

struct Queue {
    commands: Vec<Command>,
    /// Nobody takes commands any more.
    ended: bool,
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
    Stop,
}

/// A listener, as its handle and the thread know it.
pub(super) struct Listening {
    pub(super) qualifier: u64,
    /// `None` once the handle closed it, which frees the port at once.
    pub(super) socket: Mutex<Option<TcpListener>>,
    pub(super) gate: ListenGate,
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
            process: std::process::id(),
            registry: poll.registry().try_clone().map_err(CmError::Resources)?,
            waker: Waker::new(poll.registry(), run::WAKE).map_err(CmError::Resources)?,
            next_token: AtomicUsize::new(run::WAKE.0 + 1),
            queue: Mutex::new(Queue {
                commands: Vec::new(),
                ended: false,
            }),
            thread: OnceLock::new(),
            service: OnceLock::new(),
        });
        // The thread is born with all signals blocked: no handler of the
        // application ever runs on it.
        let blocked = SignalsBlocked::new();
        let its = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("engine-cm".into())
            .spawn(move || {
                let _end = End(&its);
                if !keep_affinity {
                    leave_pinned_cpus();
                }
                run::run(&its, poll);
            })
            .map_err(CmError::Resources)?;
        drop(blocked);
        let _ = shared.thread.set(thread.thread().id());
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
        let Some(thread) = self.thread.take() else {
            return;
        };
        if !self.shared.here() {
            // There is no such thread to detach from.
            core::mem::forget(thread);
            return;
        }
        let _ = self.shared.command(Command::Stop);
        // So that none of our code runs any more, even if it is unloaded next.
        // The thread cannot wait for itself; it ends after the callback.
        if !self.shared.on_service_thread() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Whether this is the process that started the manager.
    pub(super) fn here(&self) -> bool {
        self.process == std::process::id()
    }

    /// Refuses in a fork. Before any lock: another thread of the parent may
    /// have held it at the fork.
    pub(super) fn require_here(&self) -> Result<(), CmError> {
        if self.here() {
            Ok(())
        } else {
            Err(CmError::Forked)
        }
    }

    pub(super) fn on_service_thread(&self) -> bool {
        self.thread.get() == Some(&thread::current().id())
    }

    /// A name for a socket, never used again.
    pub(super) fn token(&self) -> Token {
        Token(self.next_token.fetch_add(1, Ordering::Relaxed))
    }

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

    /// What keeps the thread, unless it ends.
    pub(super) fn service(&self) -> &Weak<Service> {
        static NONE: Weak<Service> = Weak::new();
        self.service.get().unwrap_or(&NONE)
    }

    /// Hands a command to the thread; not in a fork.
    pub(super) fn command(&self, command: Command) -> Result<(), CmError> {
        let mut queue = self.queue();
        if queue.ended {
            return Err(CmError::Unavailable);
        }
        let first = queue.commands.is_empty();
        queue.commands.push(command);
        drop(queue);
        // Whoever found the queue empty wakes; the thread itself looks before
        // it sleeps.
        if first
            && !self.on_service_thread()
            && let Err(error) = self.waker.wake()
        {
            tracing::error!(%error, "cannot wake the connection manager");
        }
        Ok(())
    }

    /// All commands, oldest first.
    pub(super) fn take_commands(&self) -> Vec<Command> {
        core::mem::take(&mut self.queue().commands)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics under the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks the end of the thread, however it came.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            tracing::error!("the connection manager failed; its connections get no more events");
        }
        let mut queue = self.0.queue();
        queue.ended = true;
        let left = core::mem::take(&mut queue.commands);
        drop(queue);
        drop(left);
    }
}

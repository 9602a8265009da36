//! The command queue of a service thread, and the start and end of the thread.

use super::CmError;
use crate::control::forks;
use crate::sync::Mutex;
use crate::thread::{SignalsBlocked, leave_pinned_cpus};
use mio::{Poll, Token, Waker};
use std::convert::Infallible;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

/// The event that wakes the thread for commands.
pub(super) const WAKE: Token = Token(0);

/// The longest wait for the execution of a command, if a sink blocks the thread.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Part of a command: its caller waits until this is dropped.
pub(super) type Executed = mpsc::Sender<Infallible>;

/// The command queue: handles put commands in, the service thread takes them out.
pub(super) struct CommandQueue<C> {
    /// The fork count at its start: a forked child has no service thread.
    forks: u32,
    waker: Waker,
    next_token: AtomicUsize,
    queue: Mutex<Queue<C>>,
    thread: OnceLock<ThreadId>,
}

struct Queue<C> {
    commands: Vec<C>,
    /// Whether the thread was woken and has not taken the commands yet.
    is_woken: bool,
    /// Whether the thread has ended and takes no more commands.
    ended: bool,
}

impl<C> CommandQueue<C> {
    /// Creates a queue that wakes the thread that waits with `poll`.
    pub(super) fn new(poll: &Poll) -> Result<Self, CmError> {
        Ok(Self {
            forks: forks(),
            waker: Waker::new(poll.registry(), WAKE).map_err(CmError::Resources)?,
            next_token: AtomicUsize::new(WAKE.0 + 1),
            queue: Mutex::new(Queue {
                commands: Vec::new(),
                is_woken: false,
                ended: false,
            }),
            thread: OnceLock::new(),
        })
    }

    /// Returns whether this is the process that started the manager.
    pub(super) fn here(&self) -> bool {
        self.forks == forks()
    }

    /// Fails in a forked child. Called before any lock is taken: a thread of the
    /// parent may have held the lock at the fork.
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

    /// Returns a token that was never used before.
    pub(super) fn token(&self) -> Token {
        Token(self.next_token.fetch_add(1, Ordering::Relaxed))
    }

    /// Queues a command and wakes the thread; does nothing in a forked child.
    pub(super) fn send(&self, command: C) -> Result<(), CmError> {
        let first = self.put(command, true)?;
        // The service thread takes commands before it sleeps, so it need not be
        // woken.
        if first
            && !self.on_service_thread()
            && let Err(error) = self.waker.wake()
        {
            tracing::error!(%error, "cannot wake the connection manager");
        }
        Ok(())
    }

    /// Queues a command, and if `waits`, waits until the thread has executed it, so that the
    /// process may end. The thread itself does not wait.
    pub(super) fn execute(
        &self,
        waits: bool,
        command: impl FnOnce(Option<Executed>) -> C,
    ) -> Result<(), CmError> {
        if !waits || self.on_service_thread() {
            return self.send(command(None));
        }
        let (executed, wait) = mpsc::channel();
        self.send(command(Some(executed)))?;
        // Ends with an error: nothing is ever sent.
        let _ = wait.recv_timeout(LONGEST_WAIT);
        Ok(())
    }

    /// Queues a command that can wait until another event wakes the thread.
    pub(super) fn send_without_wake(&self, command: C) -> Result<(), CmError> {
        self.put(command, false).map(drop)
    }

    /// Queues a command. Returns whether the caller has to wake the thread.
    fn put(&self, command: C, wake: bool) -> Result<bool, CmError> {
        let mut queue = self.queue.lock();
        if queue.ended {
            return Err(CmError::Unavailable);
        }
        queue.commands.push(command);
        let first = wake && !queue.is_woken;
        queue.is_woken |= wake;
        Ok(first)
    }

    /// Takes all commands, oldest first.
    pub(super) fn take_commands(&self) -> Vec<C> {
        let mut queue = self.queue.lock();
        queue.is_woken = false;
        core::mem::take(&mut queue.commands)
    }

    /// Records the thread that takes the commands.
    pub(super) fn serve(&self, thread: &JoinHandle<()>) {
        let _ = self.thread.set(thread.thread().id());
    }

    /// Ends the thread with a command, when its last handle is dropped.
    pub(super) fn end(&self, thread: JoinHandle<()>, stop: C) {
        if !self.here() {
            // A forked child has no such thread to detach.
            core::mem::forget(thread);
            return;
        }
        let _ = self.send(stop);
        // Joined, so that no code of this library runs any more, even if it is
        // unloaded next. The thread cannot join itself; it ends after the callback.
        if !self.on_service_thread() {
            let _ = thread.join();
        }
    }
}

/// Starts a service thread.
pub(super) fn spawn(
    keep_affinity: bool,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, CmError> {
    // The thread starts with all signals blocked, so that no signal handler of the
    // application runs on it.
    let blocked = SignalsBlocked::new();
    let thread = thread::Builder::new()
        .name("engine-cm".into())
        .spawn(move || {
            if !keep_affinity {
                leave_pinned_cpus();
            }
            run();
        })
        .map_err(CmError::Resources)?;
    drop(blocked);
    Ok(thread)
}

/// Marks the end of the thread when dropped, also after a panic.
pub(super) struct End<'a, C>(pub(super) &'a CommandQueue<C>);

impl<C> Drop for End<'_, C> {
    fn drop(&mut self) {
        if thread::panicking() {
            tracing::error!("the connection manager failed; its connections get no more events");
        }
        let mut queue = self.0.queue.lock();
        queue.ended = true;
        let left = core::mem::take(&mut queue.commands);
        drop(queue);
        drop(left);
    }
}

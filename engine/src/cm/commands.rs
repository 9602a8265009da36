//! The commands of the handles to the service thread.

use super::wire::{Answer, ConnectionGate, Event, Started};
use super::{CmError, Target};
use crate::control::forks;
use crate::sync::{Condvar, Mutex};
use crate::thread::ThreadId;
use mio::{Poll, Token, Waker};
use std::collections::LinkedList;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// The event that wakes the thread for commands.
pub(super) const WAKE: Token = Token(0);

/// The longest wait for the execution of a command, if a sink blocks the thread.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Part of a command: its caller waits until this is dropped.
pub(super) struct Executed(Arc<(Mutex<bool>, Condvar)>);

impl Drop for Executed {
    fn drop(&mut self) {
        let (is_over, changed) = &*self.0;
        *is_over.lock() = true;
        changed.notify_all();
    }
}

/// A command of a handle to the service thread.
pub(super) enum CmCommand {
    /// Request a connection, until the deadline.
    Connect(Token, Target, Started, Arc<ConnectionGate>, Option<Instant>),
    /// Accept a request.
    Accept(Token, Arc<ConnectionGate>, Answer),
    /// Reject a request, with the private data of the application; `None` if it gave no
    /// answer.
    Reject(Token, Option<Vec<u8>>, Option<Executed>),
    /// A message of the requester has arrived.
    MessageReceived(Token),
    /// An event of a wire that another thread has got.
    Event(Token, Event),
    Disconnect(Token),
    /// Disconnect and drop the session; its gate is closed.
    Abort(Token),
    /// As `Abort`, after a failure of the connection.
    Fail(Token),
    /// Nothing: the commands before it are executed.
    Flush(Option<Executed>),
    Stop,
}

/// A command that can be sent without allocating.
pub(super) struct Prepared(LinkedList<CmCommand>);

impl Prepared {
    pub(super) fn new(command: CmCommand) -> Self {
        Self(LinkedList::from([command]))
    }
}

/// The command queue: handles put commands in, the service thread takes them out.
pub(super) struct CommandQueue {
    /// The fork count at its start: a forked child has no service thread.
    forks: u32,
    waker: Waker,
    next_token: AtomicUsize,
    queue: Mutex<Queue>,
    pub(super) thread: OnceLock<ThreadId>,
}

struct Queue {
    commands: LinkedList<CmCommand>,
    /// Whether the thread was woken and has not taken the commands yet.
    is_woken: bool,
    /// Whether the thread has ended and takes no more commands.
    ended: bool,
}

impl CommandQueue {
    /// Creates a queue that wakes the thread that waits with `poll`.
    pub(super) fn new(poll: &Poll) -> Result<Self, CmError> {
        Ok(Self {
            forks: forks(),
            waker: Waker::new(poll.registry(), WAKE).map_err(CmError::Resources)?,
            next_token: AtomicUsize::new(WAKE.0 + 1),
            queue: Mutex::new(Queue {
                commands: LinkedList::new(),
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
        self.thread.get() == Some(&ThreadId::here())
    }

    /// Returns a token that was never used before.
    pub(super) fn token(&self) -> Token {
        Token(self.next_token.fetch_add(1, Ordering::Relaxed))
    }

    /// Queues a command and wakes the thread; does nothing in a forked child.
    pub(super) fn send(&self, command: CmCommand) -> Result<(), CmError> {
        self.send_prepared(Prepared::new(command))
    }

    /// As [`Self::send`], without allocating.
    pub(super) fn send_prepared(&self, mut command: Prepared) -> Result<(), CmError> {
        let mut queue = self.queue.lock();
        if queue.ended {
            return Err(CmError::Unavailable);
        }
        queue.commands.append(&mut command.0);
        let first = !core::mem::replace(&mut queue.is_woken, true);
        drop(queue);
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
        command: impl FnOnce(Option<Executed>) -> CmCommand,
    ) -> Result<(), CmError> {
        if !waits || self.on_service_thread() {
            return self.send(command(None));
        }
        let state = Arc::<(Mutex<bool>, Condvar)>::default();
        self.send(command(Some(Executed(Arc::clone(&state)))))?;
        let (is_over, changed) = &*state;
        drop(changed.wait_timeout_while(is_over.lock(), LONGEST_WAIT, |over| !*over));
        Ok(())
    }

    /// Takes all commands, oldest first.
    pub(super) fn take_commands(&self) -> LinkedList<CmCommand> {
        let mut queue = self.queue.lock();
        queue.is_woken = false;
        core::mem::take(&mut queue.commands)
    }
}

/// Marks the end of the thread when dropped, also after a panic.
pub(super) struct End<'a>(pub(super) &'a CommandQueue);

impl Drop for End<'_> {
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

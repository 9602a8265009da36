//! Commands to a service thread, and how it starts and ends.

use super::CmError;
use crate::control::forks;
use crate::sync::Mutex;
use crate::thread::{SignalsBlocked, leave_pinned_cpus};
use mio::{Poll, Token, Waker};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, ThreadId};

/// Says that there are commands.
pub(super) const WAKE: Token = Token(0);

/// Where handles put what they want of the thread.
pub(super) struct Post<C> {
    /// When it was started: there is no thread in forks.
    forks: u32,
    waker: Waker,
    next_token: AtomicUsize,
    queue: Mutex<Queue<C>>,
    thread: OnceLock<ThreadId>,
}

struct Queue<C> {
    commands: Vec<C>,
    /// The thread was told to look, and has not yet.
    told: bool,
    /// Nobody takes commands any more.
    ended: bool,
}

impl<C> Post<C> {
    /// Wakes whoever waits with `poll`.
    pub(super) fn new(poll: &Poll) -> Result<Self, CmError> {
        Ok(Self {
            forks: forks(),
            waker: Waker::new(poll.registry(), WAKE).map_err(CmError::Resources)?,
            next_token: AtomicUsize::new(WAKE.0 + 1),
            queue: Mutex::new(Queue {
                commands: Vec::new(),
                told: false,
                ended: false,
            }),
            thread: OnceLock::new(),
        })
    }

    /// Whether this is the process that started the manager.
    pub(super) fn here(&self) -> bool {
        self.forks == forks()
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

    /// A name that is never used again.
    pub(super) fn token(&self) -> Token {
        Token(self.next_token.fetch_add(1, Ordering::Relaxed))
    }

    /// Hands a command to the thread; not in a fork.
    pub(super) fn command(&self, command: C) -> Result<(), CmError> {
        let first = self.put(command, true)?;
        // The thread itself looks before it sleeps.
        if first
            && !self.on_service_thread()
            && let Err(error) = self.waker.wake()
        {
            tracing::error!(%error, "cannot wake the connection manager");
        }
        Ok(())
    }

    /// Hands over a command that has time until something wakes the thread.
    pub(super) fn command_in_time(&self, command: C) -> Result<(), CmError> {
        self.put(command, false).map(drop)
    }

    /// Whether somebody is to tell the thread, who is then the caller.
    fn put(&self, command: C, tell: bool) -> Result<bool, CmError> {
        let mut queue = self.queue.lock();
        if queue.ended {
            return Err(CmError::Unavailable);
        }
        queue.commands.push(command);
        let first = tell && !queue.told;
        queue.told |= tell;
        Ok(first)
    }

    /// All commands, oldest first.
    pub(super) fn take_commands(&self) -> Vec<C> {
        let mut queue = self.queue.lock();
        queue.told = false;
        core::mem::take(&mut queue.commands)
    }

    /// The thread that takes the commands.
    pub(super) fn serve(&self, thread: &JoinHandle<()>) {
        let _ = self.thread.set(thread.thread().id());
    }

    /// Ends the thread by a command, when its last handle goes.
    pub(super) fn end(&self, thread: JoinHandle<()>, stop: C) {
        if !self.here() {
            // There is no such thread to detach from.
            core::mem::forget(thread);
            return;
        }
        let _ = self.command(stop);
        // So that none of our code runs any more, even if it is unloaded next.
        // The thread cannot wait for itself; it ends after the callback.
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
    // The thread is born with all signals blocked: no handler of the
    // application ever runs on it.
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

/// Marks the end of the thread, however it came.
pub(super) struct End<'a, C>(pub(super) &'a Post<C>);

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

//! The service of a manager: its thread, and what the thread shares with the handles.

use super::commands::{CmCommand, CommandQueue, End};
use super::wire::Network;
use super::{CmError, ManagerOptions, run};
use crate::sync::Mutex;
use crate::thread::{Thread, leave_pinned_cpus};
use mio::Poll;
use std::sync::{Arc, Once, OnceLock, Weak};

/// Keeps the thread running: every handle has one, the thread itself only a `Weak`.
pub(super) struct Service {
    pub(super) shared: Arc<Shared>,
    thread: Option<Thread>,
}

/// The state that the thread shares with the handles.
pub(super) struct Shared {
    pub(super) options: ManagerOptions,
    pub(super) commands: Arc<CommandQueue>,
    pub(super) network: Arc<dyn Network>,
    /// For the requests that the thread creates.
    service: OnceLock<Weak<Service>>,
}

impl Service {
    /// Starts the thread, which gets its events from `poll`.
    pub(super) fn start(
        options: ManagerOptions,
        poll: Poll,
        commands: Arc<CommandQueue>,
        network: Arc<dyn Network>,
    ) -> Result<Arc<Self>, CmError> {
        let shared = Arc::new(Shared {
            options,
            commands,
            network,
            service: OnceLock::new(),
        });
        let its = Arc::clone(&shared);
        let thread = Thread::start(c"engine-cm", move || {
            let _end = End(&its.commands);
            if !its.options.keep_affinity {
                leave_pinned_cpus();
            }
            run::run(&its, poll);
        })
        .map_err(CmError::Resources)?;
        let _ = shared.commands.thread.set(thread.id());
        let service = Arc::new(Self {
            shared,
            thread: Some(thread),
        });
        let _ = service.shared.service.set(Arc::downgrade(&service));
        flush_at_exit(&service.shared.commands);
        Ok(service)
    }
}

/// The command queues of this process.
static QUEUES: Mutex<Vec<Weak<CommandQueue>>> = Mutex::new(Vec::new());

/// Lets the process end only when the commands are executed: what a call has reported as done
/// is then sent.
fn flush_at_exit(commands: &Arc<CommandQueue>) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a function without arguments, which stays as long as this library is loaded.
        let _ = unsafe { libc::atexit(flush) };
    });
    let mut queues = QUEUES.lock();
    queues.retain(|queue| queue.strong_count() > 0);
    queues.push(Arc::downgrade(commands));
}

extern "C" fn flush() {
    // A thread that starts a manager may hold the lock in a process that ends meanwhile.
    let queues = QUEUES.try_lock().map(|queues| queues.clone());
    for commands in queues.into_iter().flatten().filter_map(|it| it.upgrade()) {
        if commands.here() {
            let _ = commands.execute(true, CmCommand::Flush);
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let (Some(thread), commands) = (self.thread.take(), &self.shared.commands) else {
            return;
        };
        if !commands.here() {
            // A forked child has no such thread to detach.
            core::mem::forget(thread);
            return;
        }
        let _ = commands.send(CmCommand::Stop);
        // Joined, so that no code of this library runs any more, even if it is
        // unloaded next. The thread itself does not wait; it ends after the callback.
        thread.join();
    }
}

impl Shared {
    /// Returns what keeps the thread running, unless it is ending.
    pub(super) fn service(&self) -> Option<Arc<Service>> {
        self.service.get().and_then(Weak::upgrade)
    }
}

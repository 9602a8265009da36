//! Commands to the poller of a completion queue: attach and detach queue pairs
//! while another thread polls.
//!
//! Decision: `docs/decisions/005-posting-and-polling-share-no-lock.md`

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use super::Owner;
use super::record::Record;
use crate::sync::{Mutex, MutexGuard};
use mlx5_rings::complete::Entries;

/// A command to the poller.
#[derive(Debug)]
pub(super) enum CqCommand {
    /// The queue pair reports to this completion queue from now on.
    Attach(Arc<Record>),
    /// The queue pair is destroyed or reset: its record is retired, and the device
    /// writes no more CQEs for it. Its CQEs lie before `end` (24 bits).
    Detach { record: Arc<Record>, end: u32 },
}

#[derive(Debug, Default)]
struct Queued {
    commands: Vec<CqCommand>,
    /// The poller was dropped: no CQE will be read any more.
    closed: bool,
}

/// The part of a completion queue that every thread may use.
pub struct CqCommandQueue {
    waiting: AtomicBool,
    queued: Mutex<Queued>,
    entries: Entries,
    /// Last field: the ring is dropped before its memory.
    _owner: Owner,
}

impl core::fmt::Debug for CqCommandQueue {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("CqCommandQueue")
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

impl CqCommandQueue {
    pub(super) fn new(entries: Entries, owner: Owner) -> Self {
        Self {
            waiting: AtomicBool::new(false),
            queued: Mutex::default(),
            entries,
            _owner: owner,
        }
    }

    fn queued(&self) -> MutexGuard<'_, Queued> {
        self.queued.lock()
    }

    fn send(&self, command: CqCommand) {
        let mut queued = self.queued();
        if !queued.closed {
            queued.commands.push(command);
            self.waiting.store(true, Ordering::Release);
        }
    }

    /// Queues the command that makes `record` known to the poller, before its first
    /// completion.
    pub(super) fn attach(&self, record: &Arc<Record>) {
        self.send(CqCommand::Attach(Arc::clone(record)));
    }

    /// Queues the command that removes `record` from the poller. The record is
    /// retired, and its queue pair is in RESET.
    pub(super) fn detach(&self, record: &Arc<Record>) {
        let end = self.entries.written_end();
        self.send(CqCommand::Detach {
            record: Arc::clone(record),
            end,
        });
    }

    /// Returns whether there are CQEs that were not polled.
    pub(crate) fn holds_any(&self) -> bool {
        self.entries.holds_any()
    }

    /// Returns whether commands are queued.
    #[inline(always)]
    pub(super) fn has_commands(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Takes all commands, oldest first.
    pub(super) fn take(&self) -> Vec<CqCommand> {
        let mut queued = self.queued();
        self.waiting.store(false, Ordering::Relaxed);
        core::mem::take(&mut queued.commands)
    }

    /// Closes the queue: later commands are discarded. Returns the queued ones.
    pub(super) fn close(&self) -> Vec<CqCommand> {
        self.queued().closed = true;
        self.take()
    }
}

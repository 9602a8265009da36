//! Commands to the poller of a completion queue: attach and detach queue pairs
//! while another thread polls.
//!
//! Decision: `docs/decisions/005-posting-and-polling-share-no-lock.md`

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use super::Owner;
use super::hot_qp::HotQps;
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

#[derive(Debug)]
struct Queued {
    commands: Vec<CqCommand>,
    /// The places of the poller's table.
    places: HotQps,
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
    pub(super) fn new(entries: Entries, places: HotQps, owner: Owner) -> Self {
        Self {
            waiting: AtomicBool::new(false),
            queued: Mutex::new(Queued {
                commands: Vec::new(),
                places,
                closed: false,
            }),
            entries,
            _owner: owner,
        }
    }

    fn queued(&self) -> MutexGuard<'_, Queued> {
        self.queued.lock()
    }

    fn send(&self, mut queued: MutexGuard<'_, Queued>, command: CqCommand) {
        if !queued.closed {
            queued.commands.push(command);
            self.waiting.store(true, Ordering::Release);
        }
    }

    /// Queues the command that makes `record` known to the poller, before its first
    /// completion.
    pub(super) fn attach(&self, record: &Arc<Record>) {
        self.send(self.queued(), CqCommand::Attach(Arc::clone(record)));
    }

    /// Hides `record`, which is retired and whose queue pair is in RESET, from the
    /// poller's fast path, and queues the command that removes it.
    pub(super) fn detach(&self, record: &Arc<Record>) {
        let end = self.entries.written_end();
        let queued = self.queued();
        queued.places.retire(record.qpn());
        let record = Arc::clone(record);
        self.send(queued, CqCommand::Detach { record, end });
    }

    /// Calls `change` with the places, while no record is retired in them.
    pub(super) fn change_places<R>(&self, change: impl FnOnce(&mut HotQps) -> R) -> R {
        change(&mut self.queued().places)
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

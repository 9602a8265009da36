//! How queue pairs come to and leave a completion queue that another thread
//! may be polling.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use super::Owner;
use super::record::Record;
use crate::sync::{Mutex, MutexGuard};
use mlx5_rings::complete::Entries;

/// A letter to the poller.
#[derive(Debug)]
pub(super) enum Change {
    /// A queue pair reports here from now on.
    Attach(Arc<Record>),
    /// A queue pair is gone (its record is retired, and the device writes no
    /// more for it); what it can have written lies before `end` (24 bits).
    Detach { record: Arc<Record>, end: u32 },
}

#[derive(Debug, Default)]
struct Letters {
    changes: Vec<Change>,
    /// The poller is gone: nobody will look at the entries again.
    closed: bool,
}

/// The part of a completion queue that everybody may touch.
pub struct Mailbox {
    waiting: AtomicBool,
    letters: Mutex<Letters>,
    entries: Entries,
    /// Last: the entries go before the memory they lie in.
    _owner: Owner,
}

impl core::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Mailbox")
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

impl Mailbox {
    pub(super) fn new(entries: Entries, owner: Owner) -> Self {
        Self {
            waiting: AtomicBool::new(false),
            letters: Mutex::default(),
            entries,
            _owner: owner,
        }
    }

    fn letters(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock()
    }

    fn send(&self, change: Change) {
        let mut letters = self.letters();
        if !letters.closed {
            letters.changes.push(change);
            self.waiting.store(true, Ordering::Release);
        }
    }

    /// Makes `record` known to the poller, before its first completion.
    pub(super) fn attach(&self, record: &Arc<Record>) {
        self.send(Change::Attach(Arc::clone(record)));
    }

    /// Takes `record` away from the poller. It is retired, and its queue pair
    /// is in RESET.
    pub(super) fn detach(&self, record: &Arc<Record>) {
        let end = self.entries.written_end();
        self.send(Change::Detach {
            record: Arc::clone(record),
            end,
        });
    }

    /// Whether there are completions that were not polled.
    pub(crate) fn holds_any(&self) -> bool {
        self.entries.holds_any()
    }

    /// Whether there are letters.
    #[inline(always)]
    pub(super) fn has_letters(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// All letters, oldest first.
    pub(super) fn take(&self) -> Vec<Change> {
        let mut letters = self.letters();
        self.waiting.store(false, Ordering::Relaxed);
        core::mem::take(&mut letters.changes)
    }

    /// No more letters are wanted.
    pub(super) fn close(&self) -> Vec<Change> {
        self.letters().closed = true;
        self.take()
    }
}

//! A completion queue of the verbs path: polling it, and removing the completions
//! of one queue pair.
//!
//! A queue pair that is dropped leaves completions behind, and the device may reuse
//! its number at once. Dropping it therefore takes its completions out of the
//! queue. The completions of other queue pairs are *staged* in order, and the
//! poller takes staged completions first. So polling never finds a completion of a
//! dropped queue pair.

use core::fmt;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use super::device::{BATCH, CompletionCalls, Device, Work};
use super::flush::End;
use super::order::{Early, Order};
use super::record::{Receives, Record};
use super::shared::SharedState;
use super::table::Table;
use super::tag::{Name, Side, Tag};
use crate::completion::{Completion, CompletionFlags, CompletionOp};
use crate::control::{GREETING_WR_ID, forks};
use crate::path::PollerCounters;
use crate::sync::{SpinGuard, SpinLock};

/// A completion queue, as creating queue pairs needs it. Clones are handles to the
/// same queue.
pub struct Completions<D: Device>(Arc<Queue<D>>);

struct Queue<D: Device> {
    calls: D::Completions,
    state: SpinLock<State<D>>,
    /// The queue was armed, and [`CompletionCalls::raise_event`] has raised no event
    /// since.
    armed: AtomicBool,
}

/// State that the poller shares with threads that create and drop queue pairs.
pub(super) struct State<D: Device> {
    /// Completions that were taken from the device, oldest first.
    pub(super) staged: VecDeque<Work>,
    pub(super) early: Early,
    pub(super) table: Table<D>,
    /// Shared receive queues whose receives complete here.
    shared: Vec<Weak<SharedState<D>>>,
    counters: PollerCounters,
    /// The poller was dropped: completions are discarded.
    closed: bool,
}

/// A completion in the device's format.
type Entry<D> = <<D as Device>::Completions as CompletionCalls>::Entry;

/// The polling side of a completion queue.
pub struct Poller<D: Device> {
    completions: Completions<D>,
    forks: u32,
}

/// Which completions are discarded: those under a name, and those of shared
/// receives under a QP number.
struct Discarded<'a, D: Device> {
    name: Name,
    record: &'a Record<D>,
}

impl<D: Device> Clone for Completions<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D: Device> fmt::Debug for Completions<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completions").finish_non_exhaustive()
    }
}

impl<D: Device> Completions<D> {
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    #[inline(always)]
    fn lock(&self) -> SpinGuard<'_, State<D>> {
        self.0.state.lock()
    }

    /// Calls `change` while no thread polls the queue. Not for a child of a fork: a
    /// thread of the parent may hold the lock there for ever.
    pub(crate) fn while_not_polled<R>(&self, change: impl FnOnce() -> R) -> R {
        let _state = self.lock();
        change()
    }

    /// Makes a queue pair known, before its first completion. Returns `None` if
    /// there are too many.
    pub(super) fn attach(&self, record: &Arc<Record<D>>) -> Option<Name> {
        let mut state = self.lock();
        if let Receives::Shared(shared) = &record.receives {
            state.add_shared(shared);
        }
        state.table.insert(Arc::clone(record))
    }

    /// Removes the present completions of a queue pair from the queue, and releases
    /// their shared receives.
    pub(super) fn forget(&self, name: Name, record: &Record<D>) {
        self.lock()
            .forget(&self.0.calls, &Discarded { name, record });
    }

    /// Does [`Self::forget`] for a queue pair that completes no more requests, and
    /// replaces its record by `next`. Returns the new name.
    pub(super) fn renew(&self, name: Name, record: &Record<D>, next: &Arc<Record<D>>) -> Name {
        let mut state = self.lock();
        state.forget(&self.0.calls, &Discarded { name, record });
        state.table.replace(name, Arc::clone(next))
    }

    /// Does [`Self::forget`] for a queue pair that is being dropped, and removes
    /// its record.
    pub(super) fn detach(&self, name: Name, record: &Record<D>) {
        let mut state = self.lock();
        state.forget(&self.0.calls, &Discarded { name, record });
        state.table.remove(name);
        state.early.forget(name);
    }

    /// Flushes as [`End::flush`] describes. The device raises no event for these
    /// completions. A thread that armed the queue polls it before it sleeps. If
    /// that poll took the lock first, `armed` is seen here; otherwise the poll
    /// finds the staged completions.
    pub(super) fn flush(&self, end: &End<D>, record: &Record<D>) {
        let flushed = self.lock().flush(&self.0.calls, end, record);
        if flushed && self.0.armed.swap(false, Ordering::Relaxed) {
            self.0.calls.raise_event();
        }
    }
}

impl<D: Device> Poller<D> {
    /// Creates the poller of a queue.
    pub fn new(calls: D::Completions) -> Self {
        let state = State {
            staged: VecDeque::new(),
            early: Early::new(),
            table: Table::new(),
            shared: Vec::new(),
            counters: PollerCounters::default(),
            closed: false,
        };
        Self {
            completions: Completions(Arc::new(Queue {
                calls,
                state: SpinLock::new(state),
                armed: AtomicBool::new(false),
            })),
            forks: forks(),
        }
    }

    /// Returns the handle for creating queue pairs that report to this queue.
    pub fn completions(&self) -> &Completions<D> {
        &self.completions
    }

    /// Returns how many completions polling has skipped.
    pub fn counters(&self) -> PollerCounters {
        self.completions.lock().counters
    }

    /// Returns the next completion, if there is one.
    #[inline(never)]
    pub fn poll(&mut self) -> Option<Completion> {
        if self.forks != forks() {
            return None;
        }
        let queue = &*self.completions.0;
        let mut state = queue.state.lock();
        if !state.staged.is_empty() {
            return state.next(&queue.calls);
        }
        let mut place = MaybeUninit::uninit();
        let entry = queue.calls.poll_one(&mut place)?;
        if D::Completions::is_good(entry)
            && let Some(completion) = state.find(&D::Completions::read(entry))
        {
            return Some(completion);
        }
        state.next_from(entry, &queue.calls)
    }

    /// Fills `out` with the completions that are there. Returns how many.
    #[inline(never)]
    pub fn poll_batch(&mut self, out: &mut [Completion]) -> usize {
        if self.forks != forks() {
            return 0;
        }
        let queue = &*self.completions.0;
        let mut state = self.completions.lock();
        let mut filled = 0;
        while filled < out.len()
            && let Some(completion) = state.next_staged()
        {
            out[filled] = completion;
            filled += 1;
        }
        let mut batch = [Work::default(); BATCH];
        while filled < out.len() {
            let most = BATCH.min(out.len() - filled);
            let found = queue.calls.poll(&mut batch[..most]);
            for work in &batch[..found] {
                if let Some(completion) = state.complete(work) {
                    out[filled] = completion;
                    filled += 1;
                }
            }
            // Fewer than requested, so the queue is empty.
            if found < most {
                break;
            }
        }
        filled
    }

    /// Arms the queue: the next completion raises an event.
    ///
    /// # Errors
    /// The device's error number.
    pub fn arm(&mut self, solicited_only: bool) -> Result<(), i32> {
        if self.forks != forks() {
            return Err(libc::EPERM);
        }
        let queue = &*self.completions.0;
        queue.armed.store(true, Ordering::Relaxed);
        queue.calls.arm(solicited_only)
    }
}

impl<D: Device> Drop for Poller<D> {
    fn drop(&mut self) {
        // In a child of a fork, a thread of the parent may hold the lock.
        if self.forks != forks() {
            return;
        }
        let mut state = self.completions.lock();
        state.closed = true;
        for work in core::mem::take(&mut state.staged) {
            state.release(&work);
        }
    }
}

impl<D: Device> fmt::Debug for Poller<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.completions.lock();
        f.debug_struct("Poller")
            .field("queue_pairs", &state.table.len())
            .field("staged", &state.staged.len())
            .field("counters", &state.counters)
            .finish_non_exhaustive()
    }
}

impl<D: Device> State<D> {
    /// Records that receives of a shared receive queue complete here.
    fn add_shared(&mut self, shared: &Arc<SharedState<D>>) {
        self.shared.retain(|known| known.strong_count() > 0);
        let same = |known: &Weak<_>| core::ptr::eq(known.as_ptr(), Arc::as_ptr(shared));
        if !self.shared.iter().any(same) {
            self.shared.push(Arc::downgrade(shared));
        }
    }

    /// Returns the next completion, starting with `work`, which was taken from the
    /// device.
    #[cold]
    #[inline(never)]
    fn next_from(&mut self, entry: &Entry<D>, calls: &D::Completions) -> Option<Completion> {
        let work = D::Completions::read(entry);
        self.complete(&work).or_else(|| self.next(calls))
    }

    /// Returns the next completion, staged or from the device.
    #[cold]
    #[inline(never)]
    fn next(&mut self, calls: &D::Completions) -> Option<Completion> {
        loop {
            let completion = match self.next_staged() {
                Some(completion) => Some(completion),
                None => {
                    let mut place = MaybeUninit::uninit();
                    let entry = calls.poll_one(&mut place)?;
                    self.complete(&D::Completions::read(entry))
                }
            };
            if completion.is_some() {
                return completion;
            }
        }
    }

    /// Returns the first staged completion that is to be reported.
    fn next_staged(&mut self) -> Option<Completion> {
        while let Some(work) = self.staged.pop_front() {
            let completion = self.complete(&work);
            if completion.is_some() {
                return completion;
            }
        }
        None
    }

    /// Converts a completion to what the application gets. `None`, counted, if its
    /// queue pair is unknown.
    #[inline(never)]
    fn complete(&mut self, work: &Work) -> Option<Completion> {
        match self.in_order(work) {
            Order::Unchanged => (),
            Order::Report(completion) => return Some(completion),
            Order::Hold => return None,
        }
        let completion = self.find(work);
        if completion.is_none() {
            self.unknown(work);
        }
        completion
    }

    #[inline(always)]
    fn find(&self, work: &Work) -> Option<Completion> {
        let Some(tag) = Tag::of_queue_pair(work.tag) else {
            return self.find_shared(*work);
        };
        let record = self.table.find(tag.name)?;
        if tag.side == Side::Recv {
            let wr_id = record.own.retire(tag.slot)?;
            return Some(received(wr_id, work, record));
        }
        if record.quirks.any() && !record.sends.is_next(tag.slot) {
            // `in_order` reports it in its order.
            return None;
        }
        let sent = record.sends.retire(tag.slot)?;
        let fills = sent.op == CompletionOp::Read || sent.op.is_atomic();
        let read = work.status.is_success() && fills;
        Some(Completion {
            wr_id: sent.wr_id,
            byte_len: if read { sent.length } else { 0 },
            imm: sent.wr_data,
            op: sent.op,
            ..common(work, record)
        })
    }

    #[inline(never)]
    fn find_shared(&self, work: Work) -> Option<Completion> {
        let tag = Tag::from_bits(work.tag)?;
        let record = self.table.find_number(work.qpn)?;
        let Receives::Shared(shared) = &record.receives else {
            return None;
        };
        if shared.name != tag.name {
            return None;
        }
        let wr_id = shared.take(tag.slot)?;
        Some(received(wr_id, &work, record))
    }

    /// Handles a completion that is not to be reported. The device violated its
    /// specification, but a shared receive is still released.
    #[cold]
    #[inline(never)]
    fn unknown(&mut self, work: &Work) {
        if work.tag == GREETING_WR_ID {
            return;
        }
        let was_own = Tag::from_bits(work.tag)
            .is_some_and(|tag| tag.side != Side::Shared && self.table.find(tag.name).is_none());
        if was_own || self.release(work) {
            self.counters.stale += 1;
        } else {
            self.counters.unknown += 1;
        }
    }

    /// Releases the shared receive of a completion. Returns whether it was one.
    fn release(&mut self, work: &Work) -> bool {
        let Some(Tag {
            side: Side::Shared,
            name,
            slot,
        }) = Tag::from_bits(work.tag)
        else {
            return false;
        };
        self.shared
            .iter()
            .filter_map(Weak::upgrade)
            .find(|shared| shared.name == name)
            .is_some_and(|shared| shared.take(slot).is_some())
    }

    /// Removes the completions of one queue pair, and stages the rest.
    fn forget(&mut self, calls: &D::Completions, discarded: &Discarded<'_, D>) {
        let mut staged = core::mem::take(&mut self.staged);
        staged.retain(|work| !self.is_forgotten(work, discarded));
        let mut batch = [Work::default(); BATCH];
        // Other queue pairs go on completing. The loop is bounded by the
        // completions that can have been there at its start.
        let mut left = calls.capacity() as usize + 1;
        while left > 0 {
            let found = calls.poll(&mut batch);
            for work in &batch[..found] {
                if !self.is_forgotten(work, discarded) {
                    staged.push_back(*work);
                }
            }
            if found < BATCH {
                break;
            }
            left = left.saturating_sub(found);
        }
        self.staged = staged;
    }

    /// Returns whether a completion is to be discarded. Its request is then
    /// released.
    fn is_forgotten(&mut self, work: &Work, discarded: &Discarded<'_, D>) -> bool {
        let forgotten = self.closed || discarded.is_of(work);
        if forgotten {
            self.release(work);
        }
        forgotten
    }
}

impl<D: Device> Discarded<'_, D> {
    fn is_of(&self, work: &Work) -> bool {
        let Some(tag) = Tag::from_bits(work.tag) else {
            return false;
        };
        match (tag.side, &self.record.receives) {
            (Side::Send | Side::Recv, _) => tag.name == self.name,
            (Side::Shared, Receives::Shared(shared)) => {
                work.qpn == self.record.qpn && tag.name == shared.name
            }
            (Side::Shared, _) => false,
        }
    }
}

/// Returns the fields that all kinds of completions have.
#[inline(always)]
pub(super) fn common<D: Device>(work: &Work, record: &Record<D>) -> Completion {
    if !work.status.is_success() {
        record.has_failed();
    }
    Completion {
        wr_id: 0,
        context: record.context,
        byte_len: 0,
        imm: 0,
        qpn: record.qpn,
        status: work.status,
        op: CompletionOp::Send,
        flags: CompletionFlags::empty(),
        vendor_syndrome: work.vendor,
    }
}

#[inline(always)]
fn received<D: Device>(wr_id: u64, work: &Work, record: &Record<D>) -> Completion {
    let flags = match work.imm {
        Some(_) => CompletionFlags::WITH_IMM,
        None => CompletionFlags::empty(),
    };
    Completion {
        wr_id,
        byte_len: work.length,
        imm: work.imm.unwrap_or(0),
        op: match work.by_write {
            true => CompletionOp::RecvWriteImm,
            false => CompletionOp::Recv,
        },
        flags,
        ..common(work, record)
    }
}

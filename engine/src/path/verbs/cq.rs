//! A completion queue of the verbs path: polling it, and removing the completions
//! of one queue pair.
//!
//! Completions that were taken from the device are *staged* in order, and the poller takes them
//! from there. A queue pair that is dropped leaves completions behind, and the device may reuse
//! its number at once. Dropping it therefore stages all completions, and removes its own. So
//! polling never finds a completion of a dropped queue pair.

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use super::device::{BATCH, CompletionCalls, Device, Work};
use super::quirks::Early;
use super::record::Record;
use super::shadow::Request;
use super::shared::SharedState;
use super::table::{Name, Side, Table, Tag};
use crate::completion::{Completion, CompletionFlags, CompletionOp};
use crate::control::{GREETING_WR_ID, forks};
use crate::path::PollerCounters;
use crate::sync::{SpinGuard, SpinLock};

/// A completion queue, as creating queue pairs needs it. Clones are handles to the
/// same queue.
#[derive(Clone)]
pub struct Completions<D: Device>(Arc<Queue<D>>);

struct Queue<D: Device> {
    calls: D::Completions,
    state: SpinLock<CqState<D>>,
    /// The queue was armed, and [`CompletionCalls::raise_event`] has raised no event
    /// since.
    armed: AtomicBool,
}

/// State that the poller shares with threads that create and drop queue pairs.
pub(super) struct CqState<D: Device> {
    /// Completions that were taken from the device, oldest first.
    pub(super) staged: VecDeque<Work>,
    pub(super) early: Early,
    table: Table<D>,
    /// Shared receive queues whose receives complete here.
    shared: Vec<Weak<SharedState<D>>>,
    counters: PollerCounters,
    /// The poller was dropped: completions are discarded.
    closed: bool,
}

/// The polling side of a completion queue.
pub struct Poller<D: Device> {
    completions: Completions<D>,
    forks: u32,
}

/// Where one queue of a queue pair reports its completions.
#[derive(Clone)]
pub(super) struct End<D: Device> {
    pub(super) completions: Completions<D>,
    pub(super) name: Name,
    pub(super) side: Side,
}

impl<D: Device> End<D> {
    /// Returns the tag of a request of this queue.
    pub(super) fn tag(&self, slot: u32) -> u64 {
        let (side, name) = (self.side, self.name);
        Tag { side, name, slot }.to_bits()
    }

    /// Flushes the requests that the device will not flush. The queue pair is in ERR.
    ///
    /// The device raises no event for these completions. A thread that armed the queue polls it
    /// before it sleeps. If that poll took the lock first, `armed` is seen here; otherwise the
    /// poll finds the staged completions.
    pub(super) fn flush(&self, record: &Record<D>) {
        let queue = &*self.completions.0;
        let mut state = self.completions.lock();
        state.stage_all(&queue.calls);
        let flushed = state.flush(self, record);
        drop(state);
        if flushed && queue.armed.swap(false, Ordering::Relaxed) {
            queue.calls.raise_event();
        }
    }
}

impl<D: Device> Completions<D> {
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn lock(&self) -> SpinGuard<'_, CqState<D>> {
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
        if let Some(shared) = &record.shared {
            let known = &mut state.shared;
            known.retain(|known| known.strong_count() > 0);
            if !known.iter().any(|it| it.as_ptr() == Arc::as_ptr(shared)) {
                known.push(Arc::downgrade(shared));
            }
        }
        state.table.insert(record)
    }

    /// Removes the present completions of a queue pair from the queue, and releases
    /// their shared receives.
    pub(super) fn forget(&self, name: Name, record: &Record<D>) {
        self.lock().forget(&self.0.calls, name, record);
    }

    /// Does [`Self::forget`] for a queue pair that completes no more requests, and replaces its
    /// record by `next`, or removes it. Returns its new name.
    pub(super) fn renew(
        &self,
        name: Name,
        record: &Record<D>,
        next: Option<&Arc<Record<D>>>,
    ) -> Name {
        let mut state = self.lock();
        state.forget(&self.0.calls, name, record);
        state.early.take(name);
        state.table.replace(name, next)
    }
}

impl<D: Device> Poller<D> {
    /// Creates the poller of a queue.
    pub fn new(calls: D::Completions) -> Self {
        let state = CqState {
            staged: VecDeque::with_capacity(BATCH),
            early: Early::default(),
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
        self.completions.lock().next(&self.completions.0.calls)
    }

    /// Fills `out` with the completions that are there. Returns how many.
    #[inline(never)]
    pub fn poll_batch(&mut self, out: &mut [Completion]) -> usize {
        if self.forks != forks() {
            return 0;
        }
        let calls = &self.completions.0.calls;
        let mut state = self.completions.lock();
        let found = core::iter::from_fn(|| state.next(calls));
        out.iter_mut()
            .zip(found)
            .map(|(place, completion)| *place = completion)
            .count()
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

impl<D: Device> CqState<D> {
    /// Returns the next completion that is to be reported, staged or from the device.
    fn next(&mut self, calls: &D::Completions) -> Option<Completion> {
        loop {
            if self.staged.is_empty() {
                calls.poll(&mut self.staged);
            }
            let work = self.staged.pop_front()?;
            let completion = self.complete(&work);
            if completion.is_some() {
                return completion;
            }
        }
    }

    /// Converts a completion to what the application gets. `None` if it is reported later, its
    /// request is not signalled, or, counted, it is of no outstanding request.
    fn complete(&mut self, work: &Work) -> Option<Completion> {
        let Some((tag, record)) = self.owner(work) else {
            return self.unknown(work);
        };
        if record.quirks.any() && tag.side == Side::Send {
            let record = Arc::clone(record);
            return self.complete_in_order(work, tag, &record);
        }
        let retired = match &record.shared {
            Some(shared) if tag.side == Side::Shared => shared.take(tag.slot),
            _ => record.shadow(tag.side).retire(tag.slot),
        };
        match retired {
            Some(request) => Some(completion(work, record, request)),
            None => self.unknown(work),
        }
    }

    /// Does [`Self::complete`] for a request on a device whose order needs corrections.
    fn complete_in_order(
        &mut self,
        work: &Work,
        tag: Tag,
        record: &Record<D>,
    ) -> Option<Completion> {
        if self.holds(work, tag, record) {
            return None;
        }
        let Some(request) = record.shadow(tag.side).retire(tag.slot) else {
            return self.unknown(work);
        };
        (!self.hides(work, tag, request)).then(|| completion(work, record, request))
    }

    /// Returns the tag of a completion, and its queue pair.
    fn owner(&self, work: &Work) -> Option<(Tag, &Arc<Record<D>>)> {
        let tag = Tag::from_bits(work.tag)?;
        let record = match tag.side {
            Side::Send | Side::Recv => self.table.find(tag.name)?,
            Side::Shared => self.table.find_number(work.qpn)?,
        };
        let is_its = tag.side != Side::Shared || record.takes_from(tag.name);
        is_its.then_some((tag, record))
    }

    /// Handles a completion that is not to be reported. The device violated its
    /// specification, but a shared receive is still released.
    #[cold]
    fn unknown(&mut self, work: &Work) -> Option<Completion> {
        if work.tag == GREETING_WR_ID {
            return None;
        }
        let was_own = Tag::from_bits(work.tag)
            .is_some_and(|tag| tag.side != Side::Shared && self.table.find(tag.name).is_none());
        if was_own || self.release(work) {
            self.counters.stale += 1;
        } else {
            self.counters.unknown += 1;
        }
        None
    }

    /// Releases the shared receive of a completion. Returns whether it was one.
    fn release(&self, work: &Work) -> bool {
        let tag = Tag::from_bits(work.tag).filter(|tag| tag.side == Side::Shared);
        tag.is_some_and(|tag| {
            let mut all = self.shared.iter().filter_map(Weak::upgrade);
            let shared = all.find(|shared| shared.name == tag.name);
            shared.is_some_and(|shared| shared.take(tag.slot).is_some())
        })
    }

    /// Stages all completions that the device has.
    fn stage_all(&mut self, calls: &D::Completions) {
        // Other queue pairs go on completing. The loop is bounded by the
        // completions that can have been there at its start.
        for _ in 0..=calls.capacity() as usize / BATCH {
            if calls.poll(&mut self.staged) < BATCH {
                break;
            }
        }
    }

    /// Stages all completions but those of one queue pair, whose requests are released.
    fn forget(&mut self, calls: &D::Completions, name: Name, record: &Record<D>) {
        self.stage_all(calls);
        let mut staged = core::mem::take(&mut self.staged);
        staged.retain(|work| {
            let is_its = Tag::from_bits(work.tag).is_some_and(|tag| match tag.side {
                Side::Send | Side::Recv => tag.name == name,
                Side::Shared => work.qpn == record.qpn && record.takes_from(tag.name),
            });
            let stays = !self.closed && !is_its;
            if !stays {
                self.release(work);
            }
            stays
        });
        self.staged = staged;
    }
}

/// Returns what the application gets.
fn completion<D: Device>(work: &Work, record: &Record<D>, request: Request) -> Completion {
    if !work.status.is_success() {
        record.has_failed();
    }
    let mut completion = Completion {
        wr_id: request.wr_id,
        context: record.context,
        byte_len: 0,
        imm: request.wr_data,
        qpn: record.qpn,
        status: work.status,
        vendor_syndrome: work.vendor,
        op: request.op,
        flags: CompletionFlags::empty(),
    };
    if request.op == CompletionOp::Recv {
        completion.byte_len = work.length;
        if let Some(imm) = work.imm {
            (completion.imm, completion.flags) = (imm, CompletionFlags::WITH_IMM);
        }
        if work.by_write {
            completion.op = CompletionOp::RecvWriteImm;
        }
    } else if work.status.is_success()
        && (request.op == CompletionOp::Read || request.op.is_atomic())
    {
        completion.byte_len = request.length;
    }
    completion
}

//! Polling a completion queue.
//!
//! [`Poller::peek`] is the only function that looks at the next CQE. The fast path
//! consumes the CQE inline ([`CqeRef::consume`]): a receive without immediate data, also
//! with a short payload in the CQE, or a successful request. Everything else, such as immediate data, errors and
//! stale CQEs, takes the slow path, one outlined function.
//!
//! Decision: `docs/decisions/010-one-look-at-a-cqe.md`

use std::sync::Arc;

use super::command_queue::CqCommand;
use super::decode::decode;
use super::record::Record;
use super::table::Table;
use super::{CqCommandQueue, CqeRef, Owner};
use crate::completion::Completion;
use crate::path::{Arrival, PollerCounters};
use mlx5_rings::complete::{Arm, CompletionRing, Slot};
use mlx5_rings::layout::{CompletionLayout, LayoutError};
use mlx5_rings::wire::{CqeOpcode, CqeTail};

/// The polling side of a completion queue.
pub struct Poller {
    pub(crate) ring: CompletionRing,
    pub(super) table: Table,
    commands: Arc<CqCommandQueue>,
    counters: PollerCounters,
}

impl core::fmt::Debug for Poller {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Poller")
            .field("queue_pairs", &self.table.len())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// The result of the slow path for one CQE.
enum Slow {
    /// A completion to report.
    Report(Completion),
    /// Nothing to report: the CQE is skipped.
    Skip,
    /// The table has changed: the same CQE is looked up again.
    Again,
    /// The CQE has not been written.
    Empty,
}

impl Poller {
    /// Creates the poller of the completion queue at `layout`, which belongs to
    /// `owner`.
    ///
    /// # Errors
    /// The layout is inconsistent.
    ///
    /// # Safety
    /// The memory and the register page of the layout are valid as long as `owner`
    /// lives, nothing else polls the queue, and every queue pair that reports to it
    /// is created with this poller's [`CqCommandQueue`].
    pub unsafe fn new(layout: &CompletionLayout, owner: Owner) -> Result<Self, LayoutError> {
        // SAFETY: the layout's memory is valid as long as the owner lives; the command queue
        // keeps the owner.
        let ring = unsafe { CompletionRing::new(layout) }?;
        let table = Table::new();
        let places = table.places().clone();
        let commands = Arc::new(CqCommandQueue::new(ring.entries(), places, owner));
        Ok(Self {
            ring,
            table,
            commands,
            counters: PollerCounters::default(),
        })
    }

    /// Returns the command queue, for creating queue pairs that report to this queue.
    pub fn commands(&self) -> &Arc<CqCommandQueue> {
        &self.commands
    }

    /// Returns how many CQEs polling has skipped.
    pub fn counters(&self) -> PollerCounters {
        self.counters
    }

    /// Returns the next CQE if the device has written it: reads the owner bit, a
    /// barrier, one lookup of the queue pair. Processes no commands, so a thread
    /// that polls only in this way calls [`Self::process_commands`] after queue pairs were
    /// dropped.
    #[inline(always)]
    pub fn peek(&mut self) -> Option<CqeRef<'_>> {
        let (slot, own_op) = self.ring.peek()?;
        Some(CqeRef::new(self, slot, own_op))
    }

    /// Returns the next completion, if there is one.
    #[inline(always)]
    pub fn poll(&mut self) -> Option<Completion> {
        if let Some(cqe) = self.peek() {
            if let Some(completion) = cqe.consume() {
                return Some(completion);
            }
        } else if !self.commands.has_commands() {
            return None;
        }
        // A separate variable, so that the completion of the fast path can stay in
        // registers.
        let mut found = Completion::default();
        self.poll_slow(&mut found).then_some(found)
    }

    /// Returns when the next CQE was written, without consuming it. A stale CQE
    /// counts until it is polled.
    pub fn arrival(&self) -> Arrival {
        match self.ring.peek() {
            Some((slot, _)) => arrival(slot),
            None => Arrival::Empty,
        }
    }

    /// Returns the next completion as [`Self::poll`] does, and when its CQE was written.
    pub fn poll_stamped(&mut self) -> Option<(Completion, Arrival)> {
        let mut found = Completion::default();
        let mut stamp = Arrival::Unknown;
        self.find(&mut found, |slot| stamp = arrival(slot))
            .then_some((found, stamp))
    }

    /// Fills `out` with the completions that are there. Returns how many.
    #[inline]
    pub fn poll_batch(&mut self, out: &mut [Completion]) -> usize {
        let mut filled = 0;
        while let Some(rest @ [_, ..]) = out.get_mut(filled..) {
            let taken = if let Some(cqe) = self.peek() {
                cqe.consume_run(rest)
            } else if self.commands.has_commands() {
                0
            } else {
                break;
            };
            if taken == 0 && !self.poll_slow(&mut rest[0]) {
                break;
            }
            filled += taken.max(1);
        }
        if filled > 0 {
            self.ring.publish();
        }
        filled
    }

    /// Finds the next completion on the slow path. Returns whether there is one.
    /// Gives the CQEs that it passes back to the device, and processes commands.
    #[cold]
    #[inline(never)]
    fn poll_slow(&mut self, found: &mut Completion) -> bool {
        if let Some(atomic) = self.peek().and_then(CqeRef::consume_atomic) {
            *found = atomic;
            return true;
        }
        self.find(found, |_| {})
    }

    /// As [`Self::poll_slow`]; passes the CQE to `see` before the device gets it back.
    #[inline(always)]
    fn find(&mut self, found: &mut Completion, mut see: impl FnMut(Slot)) -> bool {
        loop {
            let Some(CqeRef { slot, .. }) = self.peek() else {
                self.process_commands();
                return false;
            };
            match self.consume_slow(slot, slot.tail()) {
                Slow::Report(completion) => {
                    see(slot);
                    // SAFETY: the entry was written, and has been decoded.
                    unsafe {
                        self.ring
                            .advance_ahead(|group| self.table.look_ahead(group))
                    };
                    self.ring.publish();
                    *found = completion;
                    return true;
                }
                Slow::Skip => {
                    // SAFETY: the entry was written, and is not reported.
                    unsafe {
                        self.ring
                            .advance_ahead(|group| self.table.look_ahead(group))
                    };
                    self.ring.publish();
                }
                Slow::Again => {}
                Slow::Empty => {
                    self.process_commands();
                    return false;
                }
            }
        }
    }

    fn consume_slow(&mut self, slot: Slot, tail: CqeTail) -> Slow {
        match tail.own_op().opcode() {
            CqeOpcode::INVALID => return Slow::Empty,
            CqeOpcode::STALE => {
                self.counters.stale += 1;
                return Slow::Skip;
            }
            _ => {}
        }
        match self.table.search(tail.qpn()) {
            Some(record) if record.is_live() => {
                // SAFETY: the next CQE, which has been written; `poll_slow`
                // advances past it.
                if let Some(completion) = unsafe { decode(&self.ring, slot, tail, record) } {
                    return Slow::Report(completion);
                }
                self.counters.unknown += 1;
            }
            // The queue pair is being detached, is unknown, or its attach command
            // was not processed.
            _ if self.commands.has_commands() => {
                self.run_commands();
                return Slow::Again;
            }
            // The detach command is being queued by another thread. The QP number
            // has not been reused: the record, which the table has, keeps it.
            Some(record) => {
                // SAFETY: as above.
                unsafe { record.release(tail) };
                self.counters.stale += 1;
            }
            None => self.counters.unknown += 1,
        }
        Slow::Skip
    }

    /// Invalidates the stale CQEs of a queue pair before `end`, and releases their
    /// receives.
    fn cq_clean(&mut self, record: &Record, end: u32) {
        self.ring.cq_clean(record.qpn(), end, |tail| {
            // SAFETY: a completion of this queue, which is invalidated and so never
            // consumed.
            unsafe { record.release(tail) };
        });
    }

    /// Processes the queued commands: attaches and detaches queue pairs.
    fn run_commands(&mut self) {
        for command in self.commands.take() {
            match command {
                CqCommand::Attach(record) => self.commands.change_places(|places| {
                    self.table.insert(record);
                    places.clone_from(self.table.places());
                }),
                CqCommand::Detach { record, end } => {
                    self.cq_clean(&record, end);
                    self.commands.change_places(|_| self.table.remove(&record));
                }
            }
        }
        self.ring.look_ahead(self.table.is_large());
    }

    /// Processes the queued commands now, instead of at the next poll that finds no
    /// CQE. A destroyed queue pair keeps its number and its memory until all its
    /// completion queues have done this.
    pub fn process_commands(&mut self) {
        if self.commands.has_commands() {
            self.run_commands();
        }
    }

    /// Arms the queue; see [`CompletionRing::arm`].
    pub fn arm(&mut self, arm: Arm, events_read: u32) {
        self.ring.arm(arm, events_read);
    }
}

/// Returns when a CQE was written. An error CQE has its syndrome in place of the stamp.
fn arrival(slot: Slot) -> Arrival {
    match slot.own_op().opcode() {
        CqeOpcode::INVALID => Arrival::Empty,
        CqeOpcode::REQUESTER_ERROR | CqeOpcode::RESPONDER_ERROR => Arrival::Unknown,
        _ => Arrival::At(slot.timestamp()),
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        // Records in unprocessed commands are dropped here, with everything they
        // keep alive.
        for command in self.commands.close() {
            match command {
                CqCommand::Attach(_) => {}
                CqCommand::Detach { record, end } => self.cq_clean(&record, end),
            }
        }
    }
}

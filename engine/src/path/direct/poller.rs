//! Polling a completion queue.
//!
//! [`Poller::peek`] is the only look at the next CQE. The fast path consumes
//! it in line ([`CqeRef::consume`]): a receive without immediate data, a request
//! that went well. Everything else, from immediate data to errors and CQEs of
//! queue pairs that are gone, takes the slow path, one function out of line.

use std::sync::Arc;

use super::decode::decode;
use super::mailbox::Change;
use super::record::Record;
use super::table::Table;
use super::{CqeRef, Mailbox, Owner};
use crate::completion::Completion;
use crate::path::{Arrival, PollerCounters};
use mlx5_rings::complete::{CompletionRing, Slot};
use mlx5_rings::layout::{CompletionLayout, LayoutError};
use mlx5_rings::wire::{CqeOpcode, CqeTail, OwnOp};

/// The polling side of a completion queue.
pub struct Poller {
    ring: CompletionRing,
    table: Table,
    mailbox: Arc<Mailbox>,
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

/// What the slow path made of one CQE.
enum Slow {
    /// A completion to report.
    Report(Completion),
    /// Nothing to report; go on with the next.
    Skip,
    /// The place of the entry's queue pair has changed; look again.
    Again,
    /// Not written yet, after all.
    Empty,
}

impl Poller {
    /// The completion queue that lies where `layout` says and belongs to `owner`.
    ///
    /// # Errors
    /// If the layout contradicts itself.
    ///
    /// # Safety
    /// The memory and the register page of the layout are valid as long as
    /// `owner` lives, nobody else polls the queue, and every queue pair that
    /// reports to it is made with this poller's [`Mailbox`].
    pub unsafe fn new(layout: &CompletionLayout, owner: Owner) -> Result<Self, LayoutError> {
        // SAFETY: passed on to the caller; the mailbox keeps the owner.
        let ring = unsafe { CompletionRing::new(layout) }?;
        let mailbox = Arc::new(Mailbox::new(ring.entries(), owner));
        Ok(Self {
            ring,
            table: Table::new(),
            mailbox,
            counters: PollerCounters::default(),
        })
    }

    /// For creating queue pairs that report here.
    pub fn mailbox(&self) -> &Arc<Mailbox> {
        &self.mailbox
    }

    /// What polling has met so far.
    pub fn counters(&self) -> PollerCounters {
        self.counters
    }

    /// The next CQE, if the device has written it: the owner bit, the barrier,
    /// and one look-up of the queue pair. Reads no letters, so a thread that
    /// polls in this way alone has to call [`Self::settle`] when queue pairs
    /// have gone.
    #[inline(always)]
    pub fn peek(&mut self) -> Option<CqeRef<'_>> {
        let (slot, own_op) = self.ring.peek()?;
        let table = self.table.view();
        Some(CqeRef::new(&mut self.ring, table, slot, own_op))
    }

    /// Whether [`Self::peek`] would return a CQE: only its owner bit is read.
    #[inline(always)]
    pub fn has_cqe(&self) -> bool {
        self.ring.peek().is_some()
    }

    /// [`Self::peek`] without the look at the owner bit.
    ///
    /// # Safety
    /// [`Self::has_cqe`] was true, and nothing was consumed since.
    #[inline(always)]
    pub unsafe fn peek_unchecked(&mut self) -> CqeRef<'_> {
        let slot = self.ring.next_slot();
        let own_op = OwnOp(slot.own_op().0 & !OwnOp::OWNER);
        CqeRef::new(&mut self.ring, self.table.view(), slot, own_op)
    }

    /// The next completion, if there is one.
    #[inline(always)]
    pub fn poll(&mut self) -> Option<Completion> {
        if let Some(cqe) = self.peek() {
            if let Some(completion) = cqe.consume() {
                return Some(completion);
            }
        } else if !self.mailbox.has_letters() {
            return None;
        }
        // In a place of its own, so that the completion of the fast path need
        // not lie in memory.
        let mut found = Completion::default();
        self.poll_slow(&mut found).then_some(found)
    }

    /// Returns when the next entry was written, without taking it. An entry of a
    /// queue pair that is gone counts until it is polled.
    pub fn arrival(&self) -> Arrival {
        let Some((slot, _)) = self.ring.peek() else {
            return Arrival::Empty;
        };
        match slot.own_op().opcode() {
            CqeOpcode::INVALID => Arrival::Empty,
            CqeOpcode::REQUESTER_ERROR | CqeOpcode::RESPONDER_ERROR => Arrival::Unknown,
            _ => Arrival::At(slot.timestamp()),
        }
    }

    /// Fills `out` with completions as far as there are any. Returns how many.
    #[inline]
    pub fn poll_batch(&mut self, out: &mut [Completion]) -> usize {
        let mut filled = 0;
        while let Some(rest @ [_, ..]) = out.get_mut(filled..) {
            let taken = if let Some(cqe) = self.peek() {
                cqe.consume_run(rest)
            } else if self.mailbox.has_letters() {
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

    /// The slow path: the next completion, whatever it takes to find it.
    /// Returns whether there is one. Gives the CQEs that it goes past back to the
    /// device, and reads letters.
    #[cold]
    #[inline(never)]
    fn poll_slow(&mut self, found: &mut Completion) -> bool {
        loop {
            let Some(CqeRef { slot, .. }) = self.peek() else {
                self.settle();
                return false;
            };
            match self.consume_slow(slot, slot.tail()) {
                Slow::Report(completion) => {
                    // SAFETY: it was looked at, and is decoded.
                    unsafe { self.ring.advance() };
                    self.ring.publish();
                    *found = completion;
                    return true;
                }
                Slow::Skip => {
                    // SAFETY: it was looked at, and is not reported.
                    unsafe { self.ring.advance() };
                    self.ring.publish();
                }
                Slow::Again => {}
                Slow::Empty => {
                    self.settle();
                    return false;
                }
            }
        }
    }

    fn consume_slow(&mut self, slot: Slot, tail: CqeTail) -> Slow {
        match tail.own_op().opcode() {
            CqeOpcode::INVALID => return Slow::Empty,
            CqeOpcode::TOMBSTONE => {
                self.counters.stale += 1;
                return Slow::Skip;
            }
            _ => {}
        }
        match self.table.search(tail.qpn()) {
            Some(record) if record.is(tail.qpn()) => {
                // SAFETY: the next CQE, which is written; `poll_slow` goes past it.
                if let Some(completion) = unsafe { decode(&self.ring, slot, tail, record) } {
                    return Slow::Report(completion);
                }
                self.counters.unknown += 1;
            }
            // It is going, or was never here; or its letter has not been read.
            _ if self.mailbox.has_letters() => {
                self.read_letters();
                return Slow::Again;
            }
            // Its letter is being written. The number has not been given to
            // another yet: the record, which is here, holds it.
            Some(record) => {
                // SAFETY: as above.
                unsafe { record.give_back(tail) };
                self.counters.stale += 1;
            }
            None => self.counters.unknown += 1,
        }
        Slow::Skip
    }

    /// Crosses out the completions before `end` of a queue pair that is gone.
    fn bury(&mut self, record: &Record, end: u32) {
        self.ring.bury(record.qpn(), end, |tail| {
            // SAFETY: a completion of this queue, which is crossed out and so never
            // consumed.
            unsafe { record.give_back(tail) };
        });
    }

    /// Learns of queue pairs that came and went.
    fn read_letters(&mut self) {
        for change in self.mailbox.take() {
            match change {
                Change::Attach(record) => self.table.insert(record),
                Change::Detach { record, end } => {
                    self.bury(&record, end);
                    self.table.remove(&record);
                }
            }
        }
    }

    /// Learns of queue pairs that came and went now rather than at the next
    /// poll that finds nothing. A queue pair that was destroyed keeps its
    /// number, and its memory, until its completion queues have done this.
    pub fn settle(&mut self) {
        if self.mailbox.has_letters() {
            self.read_letters();
        }
    }

    /// Asks for one event; see [`CompletionRing::arm`].
    pub fn arm(&mut self, solicited_only: bool, events_read: u32) {
        self.ring.arm(solicited_only, events_read);
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        // Records in unread letters go now, and with them what they hold.
        for change in self.mailbox.close() {
            match change {
                Change::Attach(_) => {}
                Change::Detach { record, end } => self.bury(&record, end),
            }
        }
    }
}

//! Polling a completion queue.
//!
//! The usual completions (a receive, a request that is done) are handled in
//! line; everything else, from immediate data to errors and completions of
//! queue pairs that are no more, goes through one function out of line.

use std::sync::Arc;

use super::decode::{DONE, RECEIVED, decode, done, receive, received, requester_op};
use super::mailbox::Change;
use super::record::Record;
use super::run::take_run;
use super::table::{Table, View};
use super::{Mailbox, Owner};
use crate::completion::{Completion, CompletionOp};
use crate::path::{Arrival, PollerCounters};
use crate::ring::LayoutError;
use crate::ring::complete::{CompletionRing, Slot};
use crate::ring::layout::CompletionLayout;
use crate::ring::send::Retired;
use crate::wire::{CqeOpcode, CqeTail, OwnOp};

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

/// An entry that the device has written, not taken yet.
#[derive(Debug)]
pub struct Written<'a> {
    poller: &'a mut Poller,
    /// Its last byte but for the owner bit.
    form: u8,
}

/// What an entry is.
#[derive(Debug)]
pub enum Look<'a> {
    /// A receive that went well.
    Received(Ready<'a>),
    /// A request that is done.
    Done(Ready<'a>),
    /// Something else: `Poller::poll` has to see to it.
    Other,
}

/// A completion of the usual kind, not taken yet.
pub struct Ready<'a> {
    ring: &'a mut CompletionRing,
    record: &'a Record,
    slot: Slot,
}

/// What became of an unusual entry.
enum Unusual {
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

    /// The next completion, if there is one.
    #[inline(always)]
    pub fn poll(&mut self) -> Option<Completion> {
        let (slot, form) = self.ring.cursor.look();
        if self.is_nothing(form) {
            return None;
        }
        if let Some(completion) = usual(self.table.view(), slot, form) {
            self.ring.cursor.advance();
            self.ring.publish();
            return Some(completion);
        }
        // In a place of its own: so the usual one need not lie in memory.
        let mut found = Completion::default();
        if self.study(&mut found) {
            Some(found)
        } else {
            None
        }
    }

    /// The next entry, if it is written, to be looked at before it is taken.
    /// Nothing of that is called out of line, and no letters are read: who polls
    /// in this way alone has to [`Self::settle`] when queue pairs have gone.
    #[inline(always)]
    pub fn glance(&mut self) -> Option<Written<'_>> {
        let (_, form) = self.ring.cursor.look();
        (form & OwnOp::OWNER == 0).then_some(Written { poller: self, form })
    }

    /// Returns when the next entry was written, without taking it. An entry of a
    /// queue pair that is gone counts until it is polled.
    pub fn arrival(&self) -> Arrival {
        let Some(slot) = self.ring.peek() else {
            return Arrival::Empty;
        };
        match slot.own_op().opcode() {
            CqeOpcode::INVALID => Arrival::Empty,
            CqeOpcode::REQUESTER_ERROR | CqeOpcode::RESPONDER_ERROR => Arrival::Unknown,
            _ => Arrival::At(slot.timestamp()),
        }
    }

    /// Fills `out` with completions as far as there are any. Answers how many.
    #[inline]
    pub fn poll_batch(&mut self, out: &mut [Completion]) -> usize {
        let mut filled = 0;
        while let Some(rest @ [_, ..]) = out.get_mut(filled..) {
            let taken = take_run(self.table.view(), &mut self.ring.cursor, rest);
            filled += taken;
            if taken > 0 {
                continue;
            }
            let (_, form) = self.ring.cursor.look();
            if self.is_nothing(form) || !self.study(&mut rest[0]) {
                break;
            }
            filled += 1;
        }
        if filled > 0 {
            self.ring.publish();
        }
        filled
    }

    /// Whether the last byte of the next entry says that there is none, and no
    /// letter is waiting either.
    #[inline(always)]
    fn is_nothing(&self, form: u8) -> bool {
        form & OwnOp::OWNER != 0 && !self.mailbox.has_letters()
    }

    /// The next completion, whatever it takes to find it: whether there is one.
    /// Gives what it goes past back to the device.
    #[cold]
    #[inline(never)]
    fn study(&mut self, found: &mut Completion) -> bool {
        loop {
            let Some(slot) = self.ring.peek() else {
                self.settle();
                return false;
            };
            match self.unusual(slot, slot.tail()) {
                Unusual::Report(completion) => {
                    self.ring.cursor.advance();
                    self.ring.publish();
                    *found = completion;
                    return true;
                }
                Unusual::Skip => {
                    self.ring.cursor.advance();
                    self.ring.publish();
                }
                Unusual::Again => {}
                Unusual::Empty => {
                    self.settle();
                    return false;
                }
            }
        }
    }

    fn unusual(&mut self, slot: Slot, tail: CqeTail) -> Unusual {
        match tail.own_op().opcode() {
            CqeOpcode::INVALID => return Unusual::Empty,
            CqeOpcode::TOMBSTONE => {
                self.counters.stale += 1;
                return Unusual::Skip;
            }
            _ => {}
        }
        match self.table.search(tail.qpn()) {
            Some(record) if record.is(tail.qpn()) => {
                if let Some(completion) = decode(&self.ring, slot, tail, record) {
                    return Unusual::Report(completion);
                }
                self.counters.unknown += 1;
            }
            // It is going, or was never here; or its letter has not been read.
            _ if self.mailbox.has_letters() => {
                self.read_letters();
                return Unusual::Again;
            }
            // Its letter is being written. The number has not been given to
            // another yet: the record, which is here, holds it.
            Some(record) => {
                record.give_back(tail);
                self.counters.stale += 1;
            }
            None => self.counters.unknown += 1,
        }
        Unusual::Skip
    }

    /// Learns of queue pairs that came and went.
    fn read_letters(&mut self) {
        for change in self.mailbox.take() {
            match change {
                Change::Attach(record) => self.table.insert(record),
                Change::Detach { record, end } => {
                    self.ring
                        .bury(record.qpn(), end, |tail| record.give_back(tail));
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

impl<'a> Written<'a> {
    /// What it is.
    #[inline(always)]
    pub fn look(self) -> Look<'a> {
        let Self { poller, form } = self;
        let kind = form & !OwnOp::SOLICITED;
        if kind != RECEIVED && kind != DONE {
            return Look::Other;
        }
        let slot = poller.ring.cursor.slot();
        let Some(record) = poller.table.view().find(slot.request_qpn().qpn()) else {
            return Look::Other;
        };
        let ready = Ready {
            ring: &mut poller.ring,
            record,
            slot,
        };
        if kind == RECEIVED {
            Look::Received(ready)
        } else {
            Look::Done(ready)
        }
    }
}

impl core::fmt::Debug for Ready<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Ready")
            .field("context", &self.context())
            .finish_non_exhaustive()
    }
}

impl Ready<'_> {
    /// The context of the endpoint.
    #[inline(always)]
    pub fn context(&self) -> u64 {
        self.record.context
    }

    /// What a request was; nothing if that takes a closer look.
    #[inline(always)]
    pub fn op(&self) -> Option<CompletionOp> {
        requester_op(self.slot.request_opcode())
    }

    /// Whether that many entries behind it are written, at least.
    #[inline(always)]
    pub fn has_behind(&self, entries: u32) -> bool {
        self.ring.has_behind(entries)
    }

    /// Takes a receive: its cookie, and how many bytes it got. Nothing is done
    /// if it takes a closer look after all.
    #[inline(always)]
    pub fn take_received(self) -> Option<(u64, u32)> {
        let cookie = receive(self.slot, self.record)?;
        let byte_len = self.slot.byte_count();
        self.ring.cursor.advance();
        self.ring.publish();
        Some((cookie, byte_len))
    }

    /// Takes a request that is done: its cookie, and the note that it was posted
    /// with.
    #[inline(always)]
    pub fn take_done(self) -> (u64, u32) {
        let Retired { cookie, note } = self.record.sends.retire(self.slot.wqe_counter());
        self.ring.cursor.advance();
        self.ring.publish();
        (cookie, note)
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        // Records in unread letters go now, and with them what they hold.
        for change in self.mailbox.close() {
            match change {
                Change::Attach(_) => {}
                Change::Detach { record, end } => {
                    self.ring
                        .bury(record.qpn(), end, |tail| record.give_back(tail));
                }
            }
        }
    }
}

/// The completion in the next entry, if it is of the usual kind. Calls nothing
/// out of line, so that it costs its callers no registers.
#[inline(always)]
fn usual(table: View<'_>, slot: Slot, form: u8) -> Option<Completion> {
    match form & !OwnOp::SOLICITED {
        RECEIVED => {
            let whose = slot.request_qpn();
            received(slot, form, whose, table.find(whose.qpn())?)
        }
        DONE => {
            let whose = slot.request_qpn();
            done(slot, whose, table.find(whose.qpn())?)
        }
        _ => None,
    }
}

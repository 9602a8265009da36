//! A connected end with its messages: what the loops of `lat` and `bw` post and poll.

use std::ops::Range;
use std::time::Duration;

use dat_api::safe::RemoteSegment;
use dat_engine::DataInOrder;

use super::end::{Done, End, Fault, Flags, Op, Queue};
use super::interface::Connected;
use super::numbered::{Numbered, op};
use super::payload::{self, Payload};
use super::setup::Setup;
use super::watchdog::Stop;
use crate::failure::Failure;
use crate::options::Operation;

/// Timeout of one DAT wait, after which the loop checks for the end of the run.
/// Much longer than a message takes, and short for a user.
const WAIT_SLICE: Duration = Duration::from_millis(50);

/// A completion, or why the request failed.
pub(crate) type CompletionResult = Result<Done, Fault>;

/// One end of the connection, set to one operation and size.
pub(crate) struct Link<E: End> {
    pub(crate) end: E,
    // Points into the memory of `end`.
    payload: Payload,
    theirs: RemoteSegment,
    operation: Operation,
    verifies: bool,
    /// Whether completions are awaited by waits.
    waits: bool,
    largest_inline: u32,
    /// The requests of the current size.
    op: Op,
    local: Range<usize>,
    inline: bool,
    request: E::Request,
    receive: E::Receive,
    grant: E::Request,
    segments: u32,
    /// Whether completions are those of extensions, as DAT calls them.
    is_extended: bool,
    numbered: Numbered<E>,
}

/// An end with its messages. Those that differ from each other ([`Numbered`]) have methods with
/// `NUMBERED`, so that the others cost what they cost.
impl<E: End> Link<E> {
    /// Prepares the messages of a connected end.
    pub(crate) fn new(connected: Connected<E>, setup: &Setup) -> Result<Self, Failure> {
        let Connected {
            end,
            theirs,
            numbers: [ours, others],
        } = connected;
        let largest = setup.layout.largest;
        // SAFETY: the memory has that length (`Setup::shape`) and lives as long as `end`, and
        // ends form no references to it.
        let mut payload = unsafe { Payload::new(end.memory(), setup.operation, setup.layout) };
        payload.require_length(theirs.length)?;
        payload.set_side_numbers(ours, others);
        let (local, op) = (payload.local(0), op(setup.operation, 1));
        let numbered = Numbered::new(setup.operation, setup.checks, setup.receives);
        Ok(Self {
            request: end.request(
                op,
                local.clone(),
                part(theirs, payload.remote_offset(0), largest),
            ),
            receive: end.receive(payload.incoming()),
            grant: end.request(
                Op::Write,
                payload.our_grant(),
                part(theirs, payload.their_grant(), payload::GRANT as u32),
            ),
            operation: setup.operation,
            verifies: setup.verifies,
            waits: setup.waits,
            largest_inline: setup.inline,
            op,
            local,
            inline: false,
            theirs,
            payload,
            segments: setup.segments,
            is_extended: setup.operation.is_numbered(),
            numbered,
            end,
        })
    }

    /// Prepares messages of one size: fills the outgoing memory with this side's
    /// pattern, clears the incoming memory, and sets the size of requests. No
    /// message may be in flight.
    pub(crate) fn prepare(&mut self, size: u32) {
        self.payload.prepare(size);
        self.local = self.payload.local(0);
        let (theirs, end) = (self.theirs, &self.end);
        let remote = |offset| part(theirs, offset, size);
        let first = remote(self.payload.remote_offset(0));
        self.request = end.request(self.op, self.local.clone(), first);
        self.inline = !self.operation.fetches() && size <= self.largest_inline;
        self.numbered
            .prepare(end, &self.payload, self.segments, remote);
    }

    /// Prepares the memory for a numbered message that is checked. The message before it in its
    /// slot must have been checked.
    #[inline(always)]
    pub(crate) fn fill(&mut self, number: u64) {
        self.numbered.fill(&mut self.payload, number);
    }

    /// Compares the bytes of a numbered message that has arrived, in the order of arrival.
    #[inline(always)]
    pub(crate) fn check(&mut self, number: u64) -> Result<(), Stop> {
        self.numbered.check(&self.payload, number)
    }

    /// Compares what the completion of a receive says of a numbered message.
    #[inline(always)]
    pub(crate) fn check_received(&self, number: u64, done: &Done) -> Result<(), Stop> {
        self.numbered.check_received(number, done)
    }

    /// Returns whether numbered messages are to be checked.
    #[inline(always)]
    pub(crate) fn checks(&self) -> bool {
        self.numbered.checks()
    }

    /// Compares the received bytes with those that the other side sent, if it is dat-bench. No
    /// message may be in flight.
    pub(crate) fn verify(&self) -> Result<(), Failure> {
        match self.checks() || !self.verifies {
            // Each of them has been compared, or none can be.
            true => Ok(()),
            false => self.payload.verify(),
        }
    }

    pub(crate) fn data_in_order(&self) -> DataInOrder {
        self.end.data_in_order()
    }

    /// Posts a receive for a message of any size of this run.
    #[inline(always)]
    pub(crate) fn post_receive<const NUMBERED: bool>(&mut self) -> Result<(), Fault> {
        if NUMBERED {
            return self.numbered.post_receive(&mut self.end);
        }
        let into = self.payload.incoming();
        self.end.post_receive(into, &mut self.receive, 0)
    }

    /// Posts the operation of this run. The number is that of a numbered message.
    #[inline(always)]
    pub(crate) fn post<const NUMBERED: bool>(
        &mut self,
        number: u64,
        signaled: bool,
    ) -> Result<(), Fault> {
        let flags = Flags {
            signaled,
            inline: self.inline,
        };
        if NUMBERED {
            return self.numbered.post(&mut self.end, number, flags);
        }
        let local = self.local.clone();
        self.end.post(self.op, local, &mut self.request, 0, flags)
    }

    /// Posts an empty send, which takes a receive of the other side.
    #[inline(always)]
    pub(crate) fn post_empty(&mut self, signaled: bool) -> Result<(), Fault> {
        self.end.post_empty(signaled)
    }

    /// Posts one request of this run per element ([`End::post_list`]).
    #[inline(always)]
    pub(crate) fn post_list(&mut self, signaled: &[bool]) -> Result<(), Fault> {
        let (op, local, inline) = (self.op, self.local.clone(), self.inline);
        let request = &mut self.request;
        self.end.post_list(op, local, request, signaled, inline)
    }

    /// Writes the number of messages received into the other side's memory, signalled.
    /// The previous grant must be complete.
    #[inline(always)]
    pub(crate) fn post_grant(&mut self, received: u32) -> Result<(), Fault> {
        self.payload.write_grant(received);
        let (local, grant) = (self.payload.our_grant(), &mut self.grant);
        self.end.post(Op::Write, local, grant, 0, Flags::SIGNALED)
    }

    /// Returns the other side's grant; none while it is being written.
    #[inline(always)]
    pub(crate) fn granted(&self) -> Option<u32> {
        self.payload.read_grant()
    }

    /// Polls one completion of a send, write, read or grant.
    #[inline(always)]
    pub(crate) fn poll_sent(&mut self) -> Option<CompletionResult> {
        self.poll(Queue::Sent)
    }

    /// Polls one completion of a receive.
    #[inline(always)]
    pub(crate) fn poll_received(&mut self) -> Option<CompletionResult> {
        self.poll(Queue::Received)
    }

    /// Polls as [`Self::poll_sent`] does, or with `--wait` waits up to 50 ms.
    #[inline(always)]
    pub(crate) fn await_sent(&mut self) -> Option<CompletionResult> {
        self.take(Queue::Sent)
    }

    /// Polls as [`Self::poll_received`] does, or with `--wait` waits up to 50 ms.
    #[inline(always)]
    pub(crate) fn await_received(&mut self) -> Option<CompletionResult> {
        self.take(Queue::Received)
    }

    #[inline(always)]
    fn poll(&mut self, queue: Queue) -> Option<CompletionResult> {
        match self.is_extended {
            true => self.end.poll_extended(queue),
            false => self.end.poll(queue),
        }
    }

    #[inline(always)]
    fn take(&mut self, queue: Queue) -> Option<CompletionResult> {
        if !E::WAITS || !self.waits {
            return self.poll(queue);
        }
        self.end.wait(queue, 1, Some(WAIT_SLICE))
    }

    /// Stores a sequence number in the last byte of a write: the low byte of its number.
    #[inline(always)]
    pub(crate) fn write_sequence<const NUMBERED: bool>(&mut self, number: u64) {
        let slot = self.slot::<NUMBERED>(number);
        self.payload.write_sequence(slot, number as u8);
    }

    /// Returns whether the last byte that the other side writes is that of this message.
    #[inline(always)]
    pub(crate) fn has_sequence<const NUMBERED: bool>(&self, number: u64) -> bool {
        let slot = self.slot::<NUMBERED>(number);
        self.payload.read_sequence(slot) == number as u8
    }

    #[inline(always)]
    fn slot<const NUMBERED: bool>(&self, number: u64) -> usize {
        match NUMBERED {
            true => self.payload.layout().slot(number),
            false => 0,
        }
    }
}

/// Returns a part of the other side's buffer.
fn part(theirs: RemoteSegment, offset: usize, length: u32) -> RemoteSegment {
    RemoteSegment {
        address: theirs.address + offset as u64,
        length: length.into(),
        ..theirs
    }
}

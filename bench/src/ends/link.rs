//! A connected end with its messages: what the loops of `lat` and `bw` post and poll.

use std::ops::Range;
use std::time::Duration;

use dat_api::safe::RemoteSegment;
use dat_engine::DataInOrder;

use super::end::{End, Fault, Flags, Op, Queue};
use super::interface::Connected;
use super::payload::{self, Payload};
use super::setup::Setup;
use crate::failure::Failure;
use crate::options::Operation;

/// Timeout of one DAT wait, after which the loop checks for the end of the run.
/// Much longer than a message takes, and short for a user.
const WAIT_SLICE: Duration = Duration::from_millis(50);

/// A completion: its length in bytes, or why the request failed.
pub(crate) type CompletionResult = Result<u32, Fault>;

/// One end of the connection, set to one operation and size.
pub(crate) struct Link<E: End> {
    pub(crate) end: E,
    // Points into the memory of `end`.
    payload: Payload,
    theirs: RemoteSegment,
    operation: Operation,
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
}

impl<E: End> Link<E> {
    /// Prepares the messages of a connected end.
    pub(crate) fn new(connected: Connected<E>, setup: &Setup) -> Result<Self, Failure> {
        let Connected {
            end,
            theirs,
            numbers: [ours, others],
        } = connected;
        let largest = setup.largest;
        // SAFETY: the memory has that length (`Setup::shape`) and lives as long as `end`, and
        // ends form no references to it.
        let mut payload = unsafe { Payload::new(end.memory(), setup.operation, largest) };
        payload.require_length(theirs.length)?;
        payload.set_side_numbers(ours, others);
        let local = local(&payload, largest);
        let op = match setup.operation {
            Operation::Send => Op::Send,
            Operation::Write => Op::Write,
            Operation::Read => Op::Read,
        };
        Ok(Self {
            request: end.request(
                op,
                local.clone(),
                part(theirs, payload.remote_offset(), largest),
            ),
            receive: end.receive(payload.incoming()),
            grant: end.request(
                Op::Write,
                payload.our_grant(),
                part(theirs, payload.their_grant(), payload::GRANT as u32),
            ),
            operation: setup.operation,
            waits: setup.waits,
            largest_inline: setup.inline,
            op,
            local,
            inline: false,
            theirs,
            payload,
            end,
        })
    }

    /// Prepares messages of one size: fills the outgoing memory with this side's
    /// pattern, clears the incoming memory, and sets the size of requests. No
    /// message may be in flight.
    pub(crate) fn prepare(&mut self, size: u32) {
        self.payload.prepare(size);
        self.local = local(&self.payload, size);
        let remote = part(self.theirs, self.payload.remote_offset(), size);
        self.request = self.end.request(self.op, self.local.clone(), remote);
        self.inline = self.operation != Operation::Read && size <= self.largest_inline;
    }

    /// Compares the received bytes with those that the other side sent. No message
    /// may be in flight.
    pub(crate) fn verify(&self) -> Result<(), Failure> {
        self.payload.verify()
    }

    pub(crate) fn data_in_order(&self) -> DataInOrder {
        self.end.data_in_order()
    }

    /// Posts a receive for a message of any size of this run.
    #[inline(always)]
    pub(crate) fn post_receive(&mut self) -> Result<(), Fault> {
        let into = self.payload.incoming();
        self.end.post_receive(into, &mut self.receive, 0)
    }

    /// Posts the operation of this run.
    #[inline(always)]
    pub(crate) fn post(&mut self, signaled: bool) -> Result<(), Fault> {
        let flags = Flags {
            signaled,
            inline: self.inline,
        };
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
        Some(self.end.poll(queue)?.map(|done| done.length as u32))
    }

    #[inline(always)]
    fn take(&mut self, queue: Queue) -> Option<CompletionResult> {
        if !E::WAITS || !self.waits {
            return self.poll(queue);
        }
        let done = self.end.wait(queue, 1, Some(WAIT_SLICE))?;
        Some(done.map(|done| done.length as u32))
    }

    /// Stores a sequence number in the last byte of the next write.
    #[inline(always)]
    pub(crate) fn write_sequence(&mut self, sequence: u8) {
        self.payload.write_sequence(sequence);
    }

    /// Returns the last byte of the memory that the other side writes.
    #[inline(always)]
    pub(crate) fn read_sequence(&self) -> u8 {
        self.payload.read_sequence()
    }
}

/// Returns the local bytes of a request of this size.
fn local(payload: &Payload, size: u32) -> Range<usize> {
    let start = payload.local_offset();
    start..start + size as usize
}

/// Returns a part of the other side's buffer.
fn part(theirs: RemoteSegment, offset: usize, length: u32) -> RemoteSegment {
    RemoteSegment {
        address: theirs.address + offset as u64,
        length: length.into(),
        ..theirs
    }
}

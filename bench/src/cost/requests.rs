//! An end with the requests that are measured.

use std::time::Duration;

use dat_api::safe::RemoteSegment;
use dat_engine::AtomicOp;
use dat_engine::cm::ListenOn;

use crate::ends::end::{Done, End, Flags, Op, Polled, Queue};
use crate::ends::interface::{Connected, Shape};

/// Bytes of a message, if the caller can choose whether it is inline.
const MESSAGE: usize = 64;
/// Bytes of a message that is too long for DAT to send inline.
const LONGER: usize = 96;
/// An RDMA write with immediate data.
const IMMEDIATE: Op = Op::WriteImmediate(7);
/// Bytes of an atomic operation.
const ATOMIC: usize = 8;
/// Offset of outgoing messages in the buffer.
const OUT: usize = 0;
/// Offset of received messages.
const IN: usize = 1024;
/// Bytes of a receive.
const ROOM: usize = 256;
/// Offset of the target of RDMA writes, reads and atomic operations.
const TARGET: usize = 2048;
/// Size of the buffer.
const BUFFER: usize = 4096;
/// Depth of each send, receive and shared receive queue.
const DEPTH: u32 = 512;
/// Depth of each completion queue.
const COMPLETIONS: u32 = 1024;

/// Returned by calls that poll, instead of the number of completions: a
/// completion has an error status.
pub(super) const POLL_FAILED: usize = usize::MAX;

/// Returns the properties of the ends.
pub(super) fn shape() -> Shape {
    Shape {
        bytes: BUFFER,
        sends: DEPTH,
        receives: DEPTH,
        sent_completions: COMPLETIONS,
        received_completions: COMPLETIONS,
        inline: MESSAGE as u32,
        reads: 1,
        segments: 1,
        into: Vec::new(),
        policy: None,
        timeout: Duration::from_secs(10),
        listen: ListenOn::All,
    }
}

/// An end with prepared requests, all signalled. Calls that post return whether they
/// succeeded; calls that poll return the number of completions, and add what these say to
/// `sum`, so that the compiler cannot omit reading them.
pub(super) struct Requests<E: End> {
    pub(super) end: E,
    theirs: RemoteSegment,
    receive: E::Receive,
    inline: E::Request,
    send: E::Request,
    write: E::Request,
    read: E::Request,
    fetch_add: E::Request,
    compare_swap: E::Request,
    write_immediate: E::Request,
}

impl<E: End> Requests<E> {
    /// Bytes of a message that is not inline.
    const LONG: usize = if E::CHOOSES_INLINE { MESSAGE } else { LONGER };

    pub(super) fn new(connected: Connected<E>) -> Self {
        let Connected {
            mut end, theirs, ..
        } = connected;
        end.prepare_lists(IN..IN + ROOM, OUT..OUT + MESSAGE);
        let request = |op, at, length| end.request(op, at..at + length, target(theirs, length));
        let compare_swap = AtomicOp::CompareSwap {
            compare: 1,
            swap: 1,
        };
        Self {
            receive: end.receive(IN..IN + ROOM),
            inline: request(Op::Send, OUT, MESSAGE),
            send: request(Op::Send, OUT, Self::LONG),
            write: request(Op::Write, OUT, Self::LONG),
            read: request(Op::Read, IN, Self::LONG),
            fetch_add: request(Op::Atomic(AtomicOp::FetchAdd(1)), IN, ATOMIC),
            compare_swap: request(Op::Atomic(compare_swap), IN, ATOMIC),
            write_immediate: request(IMMEDIATE, OUT, ATOMIC),
            theirs,
            end,
        }
    }

    #[inline(always)]
    pub(super) fn receive(&mut self, cookie: u64) -> bool {
        let receive = &mut self.receive;
        self.end
            .post_receive(IN..IN + ROOM, receive, cookie)
            .is_ok()
    }

    pub(super) fn receive_list(&mut self) -> bool {
        self.end.receive_list(IN..IN + ROOM).is_ok()
    }

    #[inline(always)]
    pub(super) fn send(&mut self, cookie: u64, inline: bool) -> bool {
        let (local, request, flags) = if inline {
            (OUT..OUT + MESSAGE, &mut self.inline, Flags::INLINE)
        } else {
            (OUT..OUT + Self::LONG, &mut self.send, Flags::SIGNALED)
        };
        let end = &mut self.end;
        end.post(Op::Send, local, request, cookie, flags).is_ok()
    }

    pub(super) fn send_list(&mut self, inline: bool) -> bool {
        let length = if inline { MESSAGE } else { Self::LONG };
        self.end.send_list(OUT..OUT + length, inline).is_ok()
    }

    /// Returns a function that posts a send of `length` bytes. It is not measured.
    pub(super) fn send_short(&mut self, length: u32) -> impl FnMut(u64) -> bool {
        let (local, length) = (OUT..OUT + length as usize, length as usize);
        let request = self
            .end
            .request(Op::Send, local.clone(), target(self.theirs, length));
        let mut request = request;
        move |cookie| {
            let (local, end) = (local.clone(), &mut self.end);
            end.post(Op::Send, local, &mut request, cookie, Flags::SIGNALED)
                .is_ok()
        }
    }

    /// Posts an RDMA write that is not inline.
    #[inline(always)]
    pub(super) fn write(&mut self, cookie: u64) -> bool {
        let (local, request) = (OUT..OUT + Self::LONG, &mut self.write);
        let end = &mut self.end;
        end.post(Op::Write, local, request, cookie, Flags::SIGNALED)
            .is_ok()
    }

    #[inline(always)]
    pub(super) fn read(&mut self, cookie: u64) -> bool {
        let (local, request) = (IN..IN + Self::LONG, &mut self.read);
        let end = &mut self.end;
        end.post(Op::Read, local, request, cookie, Flags::SIGNALED)
            .is_ok()
    }

    #[inline(always)]
    pub(super) fn atomic(&mut self, cookie: u64, op: AtomicOp) -> bool {
        let request = match op {
            AtomicOp::FetchAdd(_) => &mut self.fetch_add,
            AtomicOp::CompareSwap { .. } => &mut self.compare_swap,
        };
        let (op, local) = (Op::Atomic(op), IN..IN + ATOMIC);
        self.end
            .post(op, local, request, cookie, Flags::SIGNALED)
            .is_ok()
    }

    /// Posts an RDMA write with immediate data. It is not measured.
    pub(super) fn write_immediate(&mut self, cookie: u64) -> bool {
        let (op, local, request) = (IMMEDIATE, OUT..OUT + ATOMIC, &mut self.write_immediate);
        self.end
            .post(op, local, request, cookie, Flags::SIGNALED)
            .is_ok()
    }

    #[inline(always)]
    pub(super) fn received(&mut self, sum: &mut u64) -> usize {
        taken(self.end.poll(Queue::Received), sum)
    }

    #[inline(always)]
    pub(super) fn received_batch(&mut self, sum: &mut u64) -> usize {
        let polled = self.end.poll_batch(Queue::Received, |done| add(done, sum));
        polled.unwrap_or(POLL_FAILED)
    }

    #[inline(always)]
    pub(super) fn sent(&mut self, sum: &mut u64) -> usize {
        taken(self.end.poll(Queue::Sent), sum)
    }

    #[inline(always)]
    pub(super) fn sent_batch(&mut self, sum: &mut u64) -> usize {
        let polled = self.end.poll_batch(Queue::Sent, |done| add(done, sum));
        polled.unwrap_or(POLL_FAILED)
    }

    /// Polls one completion of a request of any kind.
    #[inline(always)]
    pub(super) fn finished(&mut self) -> usize {
        taken(self.end.poll_extended(Queue::Sent), &mut 0)
    }

    /// Polls one completion of a receive with immediate data.
    #[inline(always)]
    pub(super) fn immediate(&mut self, sum: &mut u64) -> usize {
        taken(self.end.poll_extended(Queue::Received), sum)
    }

    /// Takes one completion of a receive by a wait for this many events, with timeout 0.
    #[inline(always)]
    pub(super) fn waited<const THRESHOLD: u8>(&mut self, sum: &mut u64) -> usize {
        let at_once = Some(Duration::ZERO);
        taken(self.end.wait(Queue::Received, THRESHOLD, at_once), sum)
    }

    /// Takes one completion of a receive, and sleeps until it comes.
    #[inline(always)]
    pub(super) fn slept(&mut self, sum: &mut u64) -> usize {
        taken(self.end.wait(Queue::Received, 1, None), sum)
    }

    /// As [`Self::slept`], by the descriptor of the queue.
    #[inline(always)]
    pub(super) fn awaited(&mut self, sum: &mut u64) -> usize {
        taken(self.end.wait_readable(Queue::Received), sum)
    }
}

/// Returns the target of requests of the other end.
fn target(theirs: RemoteSegment, length: usize) -> RemoteSegment {
    RemoteSegment {
        address: theirs.address + TARGET as u64,
        length: length as u64,
        ..theirs
    }
}

#[inline(always)]
fn taken(polled: Polled, sum: &mut u64) -> usize {
    match polled {
        None => 0,
        Some(Ok(done)) => {
            add(done, sum);
            1
        }
        Some(Err(_)) => POLL_FAILED,
    }
}

#[inline(always)]
fn add(done: Done, sum: &mut u64) {
    *sum = sum.wrapping_add(done.cookie + done.length + u64::from(done.more));
}

//! The requester: from send WQEs to packets, and from answers to completions.
//!
//! Requests leave in order and complete in order. A request waits in the
//! queue until the responder has answered all of its packets; whatever goes
//! wrong on the way, sending begins again at the oldest packet that is not
//! answered (go-back-N, IBA 9.7.5 and 9.7.7). Of an unreliable QP a request is
//! done when its last packet has left.

mod acknowledge;
mod datagram;
mod fetch;
mod retry;
mod transmit;

pub(super) use transmit::Turn;

use super::gather::Piece;
use super::psn;
use super::spec::QpAttr;
use crate::decode::cqe::Syndrome;
use crate::decode::umr::Umr;
use crate::decode::wqe::{Atomic, Fence, Opcode, Remote};
use datagram::Datagram;
use std::collections::VecDeque;

/// The send side's cursors and requests.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    /// WQEBB counter of the next WQE to take, 16 bits.
    pub(super) fetch: u16,
    /// WQEBB counter behind the last WQE that was rung for.
    pub(super) producer: u16,
    /// Taken and not completed, oldest first.
    requests: VecDeque<Request>,
    /// The request whose packets go out next, and which of them.
    cursor: usize,
    packet: u32,
    /// The first PSN of the next WQE taken.
    next_psn: u32,
    /// The PSN behind the highest ever sent (answers to read included).
    sent_psn: u32,
    /// Retries left without progress.
    retries: u8,
    rnr_retries: u8,
    /// The responder asked to wait; nothing is sent until the timer.
    waits_for_receiver: bool,
    /// The WQE before the next one changes a memory key.
    changes_key: bool,
    /// Sending has gone back for a lost response and no progress was made since.
    repeats: bool,
    /// Emptied lists for reuse.
    spare: Vec<Vec<Piece>>,
    /// The bytes of the WQE being taken.
    bytes: Vec<u8>,
}

/// A send WQE being executed.
#[derive(Debug)]
pub(super) struct Request {
    /// WQEBB counter at the WQE's start: what its CQE names.
    pub(super) counter: u16,
    /// Operation code as posted.
    pub(super) opcode: u8,
    operation: Option<Opcode>,
    signalled: bool,
    solicited: bool,
    fence: Fence,
    immediate: [u8; 4],
    remote: Remote,
    /// Where it goes, for datagrams only.
    datagram: Option<Datagram>,
    /// What becomes of the memory key `immediate`; taken when it is done.
    umr: Option<Umr>,
    /// Operands, for atomics only.
    atomic: Option<Atomic>,
    list: Vec<Piece>,
    length: u32,
    first_psn: u32,
    /// Sequence numbers it takes: packets sent, or responses awaited.
    packets: u32,
    /// How many of them are answered.
    progress: u32,
    /// It failed here; it says so when all before it have completed.
    failure: Option<Syndrome>,
    /// What was read, to be delivered inside the CQE.
    inline: Option<[u8; INLINE_ANSWER]>,
}

/// Bytes of an answer that fit into a CQE of 128 bytes, and into one of 64.
const INLINE_ANSWER: usize = 64;
const INLINE_ANSWER_32: usize = 32;

impl Request {
    fn is_read(&self) -> bool {
        self.operation == Some(Opcode::Read)
    }

    /// It is one packet, and done when the data it asks for have come: a read
    /// or an atomic.
    fn awaits_data(&self) -> bool {
        self.is_read() || self.atomic.is_some()
    }

    /// The PSN of its oldest packet that is not answered.
    fn unanswered(&self) -> u32 {
        psn::add(self.first_psn, self.progress)
    }
}

impl SendQueue {
    /// Entering RTS from RTR.
    pub(super) fn begin(&mut self, first_psn: u32, attr: &QpAttr) {
        self.next_psn = first_psn;
        self.sent_psn = first_psn;
        self.refill_retries(attr);
    }

    /// Nothing is being executed.
    pub(super) fn is_drained(&self) -> bool {
        self.requests.is_empty()
    }

    /// WQEBB counter of the oldest WQE the NIC still needs.
    pub(super) fn oldest(&self) -> u16 {
        self.requests
            .front()
            .map_or(self.fetch, |request| request.counter)
    }

    /// Takes the oldest request out.
    pub(super) fn pop_front(&mut self) -> Option<Request> {
        let mut request = self.requests.pop_front()?;
        let mut list = std::mem::take(&mut request.list);
        list.clear();
        self.spare.push(list);
        if self.cursor > 0 {
            self.cursor -= 1;
        } else {
            self.packet = 0;
        }
        Some(request)
    }

    /// The oldest PSN that was sent and is not answered.
    fn unanswered(&self) -> Option<u32> {
        let oldest = self.requests.front()?.unanswered();
        (psn::distance(self.sent_psn, oldest) > 0).then_some(oldest)
    }

    fn refill_retries(&mut self, attr: &QpAttr) {
        self.retries = attr.retry_count;
        self.rnr_retries = attr.rnr_retry;
    }
}

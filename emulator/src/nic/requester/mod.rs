//! The requester: from send WQEs to packets, and from responses to completions.
//!
//! Requests are sent and completed in order. A request stays in the queue until the
//! responder has acknowledged all of its packets. After any error on the way,
//! transmission resumes at the oldest unacknowledged packet (go-back-N, IBA 9.7.5
//! and 9.7.7). A request of an unreliable QP is finished when its last packet is
//! sent.

mod acknowledge;
mod datagram;
mod fetch;
mod retry;
mod transmit;

pub(super) use transmit::Turn;

use super::psn;
use super::scatter_gather::Sge;
use crate::decode::cqe::Syndrome;
use crate::decode::umr::Umr;
use crate::decode::wqe::{Atomic, Control, Fence, Opcode, RemoteAddress};
use crate::spec::QpAttr;
use datagram::Datagram;
use std::collections::VecDeque;

/// The positions in the send queue, and its requests.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    /// WQEBB counter of the next WQE to fetch, 16 bits.
    pub(super) fetch: u16,
    /// WQEBB counter after the last WQE that was announced by a doorbell.
    pub(super) producer: u16,
    /// Fetched and not yet completed requests, oldest first.
    requests: VecDeque<Request>,
    /// Index of the request that sends next, and its next packet.
    cursor: usize,
    packet: u32,
    /// The first PSN of the next fetched WQE.
    next_psn: u32,
    /// The PSN after the highest one sent (or expected in read responses).
    sent_psn: u32,
    /// Retries left until progress is made.
    retries: u8,
    rnr_retries: u8,
    /// Whether an RNR NAK was received; nothing is sent until the timer expires.
    waits_after_rnr_nak: bool,
    /// The newest BlueFlame copies of NOPs, of both halves of the register.
    pub(super) copied_nops: [Option<Control>; 2],
    /// Whether the previous WQE changes a memory key.
    changes_key: bool,
    /// Whether a lost response is being requested again, without progress yet.
    retransmits: bool,
    /// Empty lists for reuse.
    free_lists: Vec<Vec<Sge>>,
    /// The bytes of the WQE that is being fetched.
    bytes: Vec<u8>,
}

/// A send WQE in execution.
#[derive(Debug)]
pub(super) struct Request {
    /// WQEBB counter of the WQE's start, as in its CQE.
    pub(super) counter: u16,
    /// Opcode as posted.
    pub(super) opcode: u8,
    operation: Option<Opcode>,
    signalled: bool,
    solicited: bool,
    fence: Fence,
    immediate: [u8; 4],
    remote: RemoteAddress,
    /// Destination of a datagram.
    datagram: Option<Datagram>,
    /// The change of the memory key in `immediate`; taken when executed.
    umr: Option<Umr>,
    /// The translation entries of the change, for keys of guests.
    entries: Vec<u8>,
    /// Operands of an atomic.
    atomic: Option<Atomic>,
    sges: Vec<Sge>,
    length: u32,
    first_psn: u32,
    /// Number of PSNs: packets sent, or responses expected.
    packets: u32,
    /// How many of the PSNs are acknowledged.
    progress: u32,
    /// A local failure, which completes after all earlier requests.
    failure: Option<Syndrome>,
    /// Response data to be scattered to the CQE.
    inline: Option<[u8; MAX_INLINE_RESPONSE]>,
}

/// Maximum bytes of a response in a CQE of 128 bytes, and in one of 64.
const MAX_INLINE_RESPONSE: usize = 64;
const MAX_INLINE_RESPONSE_32: usize = 32;

impl Request {
    fn is_read(&self) -> bool {
        self.operation == Some(Opcode::Read)
    }

    /// Returns whether the request is a read or an atomic, which consists of one
    /// packet and is finished when its response data has arrived.
    fn has_response_data(&self) -> bool {
        self.is_read() || self.atomic.is_some()
    }

    /// Returns the PSN of the request's oldest unacknowledged packet.
    fn unacked(&self) -> u32 {
        psn::add(self.first_psn, self.progress)
    }
}

impl SendQueue {
    /// Starts the send queue, for the transition from RTR to RTS.
    pub(super) fn begin(&mut self, first_psn: u32, attr: &QpAttr) {
        self.next_psn = first_psn;
        self.sent_psn = first_psn;
        self.reset_retry_counters(attr);
    }

    /// Returns whether no request is in execution.
    pub(super) fn is_drained(&self) -> bool {
        self.requests.is_empty()
    }

    /// Returns the WQEBB counter of the oldest WQE that the NIC still needs.
    pub(super) fn oldest(&self) -> u16 {
        self.requests
            .front()
            .map_or(self.fetch, |request| request.counter)
    }

    /// Removes the oldest request.
    pub(super) fn pop_front(&mut self) -> Option<Request> {
        let mut request = self.requests.pop_front()?;
        let mut sges = std::mem::take(&mut request.sges);
        sges.clear();
        self.free_lists.push(sges);
        if self.cursor > 0 {
            self.cursor -= 1;
        } else {
            self.packet = 0;
        }
        Some(request)
    }

    /// Returns the oldest PSN that was sent and is not acknowledged.
    fn unacked(&self) -> Option<u32> {
        let oldest = self.requests.front()?.unacked();
        (psn::distance(self.sent_psn, oldest) > 0).then_some(oldest)
    }

    fn reset_retry_counters(&mut self, attr: &QpAttr) {
        self.retries = attr.retry_count;
        self.rnr_retries = attr.rnr_retry;
    }
}

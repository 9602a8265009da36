//! The responder: executes request packets and responds to them.
//!
//! A reliable connection accepts packets in order only. A gap is NAKed once, a
//! duplicate gets its response again and is not executed twice, except for reads
//! (IBA 9.7.4, 9.7.5). An unreliable connection drops packets that it cannot use and
//! waits for the next message; a datagram is a message of its own (IBA 9.8).

pub(super) mod aeth;
mod atomic;
mod congestion;
mod datagram;
mod execute;
mod receive;
mod response;
mod unreliable;

use super::psn;
use crate::fabric::packet::Operation;
use crate::spec::Nanos;
use response::Response;
use std::collections::VecDeque;

/// The responder side of a connection.
#[derive(Debug, Default)]
pub(super) struct Responder {
    /// Expected PSN: that of the next request packet.
    expected: u32,
    /// Message sequence number: messages completed, 24 bits.
    msn: u32,
    /// Whether a NAK for `expected` was sent; later packets are dropped silently.
    nak_sent: bool,
    /// The operation of the message in progress.
    message: Option<Operation>,
    /// Number of its bytes that have been placed.
    placed: u32,
    /// The destination of a write.
    target: Target,
    /// The responses to send, in order.
    pub(super) responses: VecDeque<Response>,
    /// The last atomics executed.
    atomics: atomic::Executed,
    /// Whether a packet has arrived since RTR.
    established: bool,
    /// When the next congestion notification may be sent.
    next_notification: Nanos,
}

/// The destination of a write.
#[derive(Clone, Copy, Debug, Default)]
struct Target {
    address: u64,
    key: u32,
    length: u32,
}

impl Responder {
    /// Sets the first expected PSN, for the transition to RTR.
    pub(super) fn expect(&mut self, first: u32) {
        self.expected = first;
    }

    /// Returns the PSN of the last packet executed.
    fn executed(&self) -> u32 {
        psn::add(self.expected, psn::MASK)
    }
}

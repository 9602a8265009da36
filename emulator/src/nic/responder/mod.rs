//! The responder: places requests into memory and answers them.
//!
//! A reliable connection accepts packets in order only. A gap is refused
//! once, a duplicate is answered again and never executed twice, except for
//! reads (IBA 9.7.4, 9.7.5). An unreliable one drops what it cannot use and
//! waits for the next message; a datagram stands alone (IBA 9.8).

pub(super) mod aeth;
mod answer;
mod atomic;
mod datagram;
mod place;
mod take;
mod unreliable;

use super::psn;
use crate::fabric::packet::Operation;
use answer::Answer;
use std::collections::VecDeque;

/// The receive side of a connection.
#[derive(Debug, Default)]
pub(super) struct Responder {
    /// PSN of the next request packet.
    expected: u32,
    /// Messages completed, 24 bits.
    msn: u32,
    /// A NAK for `expected` is out; later packets are dropped in silence.
    refused: bool,
    /// The message that is not complete yet.
    message: Option<Operation>,
    /// Bytes of it that have been placed.
    placed: u32,
    /// Its target, for a write.
    target: Target,
    /// What is owed to the requester, in order.
    pub(super) answers: VecDeque<Answer>,
    /// Atomics executed lately.
    atomics: atomic::Executed,
    /// A packet has arrived since RTR.
    established: bool,
}

/// Where a write goes.
#[derive(Clone, Copy, Debug, Default)]
struct Target {
    address: u64,
    key: u32,
    length: u32,
}

impl Responder {
    /// Entering RTR: the PSN the peer begins with.
    pub(super) fn expect(&mut self, first: u32) {
        self.expected = first;
    }

    /// The PSN of the last packet executed.
    fn executed(&self) -> u32 {
        psn::add(self.expected, psn::MASK)
    }
}

//! The timers of QPs: the ack timeout and the wait after an RNR NAK.
//!
//! A deadline moves with every ack, so the heap is lazy: a QP has one entry in
//! it, and an entry that comes up before the actual deadline is reinserted. A
//! timer starts with the next round of work, which has the time as an argument.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::number::Table;
use super::qp::Qp;
use crate::spec::Nanos;

/// The timer of one QP.
#[derive(Debug, Default)]
pub(super) struct Timer {
    /// When the timer expires.
    deadline: Option<Nanos>,
    /// The duration of a timer that has not been started yet.
    starting: Option<Nanos>,
    /// The earliest entry of the timer in the heap.
    queued: Option<Nanos>,
    /// Whether the timer is in the list of timers to start.
    listed: bool,
}

impl Timer {
    pub(super) fn is_running(&self) -> bool {
        self.deadline.is_some() || self.starting.is_some()
    }

    pub(super) fn stop(&mut self) {
        self.deadline = None;
        self.starting = None;
    }
}

/// The timers of all QPs.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Nanos, u32)>>,
    unstarted: Vec<u32>,
}

impl Timers {
    /// Starts or restarts a timer with the next round of work.
    pub(super) fn start(&mut self, qpn: u32, timer: &mut Timer, duration: Nanos) {
        timer.deadline = None;
        timer.starting = Some(duration);
        if !timer.listed {
            timer.listed = true;
            self.unstarted.push(qpn);
        }
    }

    /// Returns whether there are timers to start.
    pub(super) fn has_unstarted(&self) -> bool {
        !self.unstarted.is_empty()
    }

    /// Starts the timers that were requested since the last round.
    #[inline]
    pub(super) fn begin(&mut self, now: Nanos, qps: &mut Table<Box<Qp>>) {
        if self.has_unstarted() {
            self.begin_requested(now, qps);
        }
    }

    fn begin_requested(&mut self, now: Nanos, qps: &mut Table<Box<Qp>>) {
        for qpn in self.unstarted.drain(..) {
            let Some(qp) = qps.get_mut(qpn) else { continue };
            let timer = &mut qp.timer;
            timer.listed = false;
            let Some(duration) = timer.starting.take() else {
                continue;
            };
            let deadline = now.saturating_add(duration);
            timer.deadline = Some(deadline);
            if timer.queued.is_none_or(|queued| deadline < queued) {
                timer.queued = Some(deadline);
                self.heap.push(Reverse((deadline, qpn)));
            }
        }
    }

    /// Returns the next QP whose timer has expired, and stops the timer.
    pub(super) fn expire(&mut self, now: Nanos, qps: &mut Table<Box<Qp>>) -> Option<u32> {
        while let Some(Reverse((at, qpn))) = self.heap.peek().copied() {
            if at > now {
                return None;
            }
            self.heap.pop();
            let Some(qp) = qps.get_mut(qpn) else { continue };
            let timer = &mut qp.timer;
            if timer.queued != Some(at) {
                // An earlier deadline was inserted later; that entry counts.
                continue;
            }
            timer.queued = None;
            match timer.deadline {
                Some(deadline) if deadline > now => {
                    timer.queued = Some(deadline);
                    self.heap.push(Reverse((deadline, qpn)));
                }
                Some(_) => {
                    timer.deadline = None;
                    return Some(qpn);
                }
                None => {}
            }
        }
        None
    }

    /// Returns when to check for expired timers; may be too early.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }
}

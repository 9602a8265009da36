//! Waiting on a CNO.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use dat_engine::ControlError;
use dat_engine::wait::{ChannelEvent, ChannelFds, Deadline, NextStep, SteppedWait};
use dat_engine::wait::{WaitCounters, WaitOutcome};

use super::protocol::{Poller, WAITERS, WaitEnd};
use super::{Cno, PollMode, PollResult, Waiter, new_waiter};
use crate::handle::{self, Handle};
use crate::object::evd::{Timeout, poll_for_cno};
use crate::object::steps::{Begun, Slept, Steps};
use crate::refusal::CnoRefusal;

/// Waits until an EVD that is bound to the CNO triggers, and returns the EVD. It is a hint: other
/// EVDs may have events too, and another thread may have dequeued the events of this one. Returns
/// `None` if the IA is being closed, or the last of the EVDs was freed.
///
/// Any number of threads may wait; each trigger goes to one of them.
///
/// Unless the IA is strict ([`Conformance`]), a wait that begins also returns an EVD that was
/// returned before and still holds events that notify; and an EVD that holds several such events
/// goes to as many threads, also if these sleep already.
///
/// Decision: `docs/decisions/062-cno-wait-returns-leftovers.md`
///
/// [`Conformance`]: crate::object::ia::Conformance
///
/// # Errors
/// `QUEUE_EMPTY` when the timeout expires; `INTERRUPTED_CALL` after a signal; `INVALID_HANDLE`;
/// `INSUFFICIENT_RESOURCES`; `INTERNAL_ERROR` if the device cannot be armed.
pub fn wait(cno: Handle, timeout: Timeout) -> WaitEnd {
    begin(cno, timeout).finish()
}

/// The first poll of [`wait`], for callers that sleep by themselves.
pub fn begin(cno: Handle, timeout: Timeout) -> Begun<Waiting> {
    let Some(cno) = handle::pin::<Cno>(cno).map(|cno| cno.to_arc()) else {
        return Begun::Over(Err(CnoRefusal::Freed));
    };
    let mut poller = Poller::new(&cno, WAITERS, None);
    if let Some(end) = poller.poll_first() {
        return Begun::Over(end);
    }
    let deadline = match timeout {
        Timeout::Micros(0) => return Begun::Over(Err(cno.empty())),
        Timeout::Micros(micros) => Deadline::from_micros(u64::from(micros)),
        Timeout::Infinite => Deadline::NEVER,
    };
    match cno.add_waiter() {
        Err(refusal) => Begun::Over(Err(refusal)),
        Ok(waiter) => {
            poller.blocker = Some(Arc::clone(&waiter.0));
            Begun::Waits(Waiting {
                wait: SteppedWait::new(cno.ia.rules().wait, deadline),
                counters: WaitCounters::default(),
                waiter,
                poller,
            })
        }
    }
}

/// A wait in progress.
pub struct Waiting {
    wait: SteppedWait,
    counters: WaitCounters,
    waiter: Waiter,
    poller: Poller,
}

impl Steps for Waiting {
    type Answer = WaitEnd;

    fn step(&mut self, slept: Option<&Slept>) -> Result<NextStep, ControlError> {
        let (wait, (blocker, budget)) = (&mut self.wait, &mut self.waiter);
        wait.go_on(&mut self.poller, blocker, budget, &mut self.counters, slept)
    }

    fn over(&mut self, outcome: Result<WaitOutcome, ControlError>) -> Option<WaitEnd> {
        let cno = &self.poller.cno;
        match outcome {
            Ok(WaitOutcome::Ready) => self.poller.end,
            Ok(WaitOutcome::TimedOut) => Some(Err(cno.empty())),
            Ok(WaitOutcome::Interrupted) => Some(Err(CnoRefusal::Interrupted)),
            Err(error) => {
                tracing::error!(cno = ?cno.handle, "waiting failed: {error}");
                Some(Err(CnoRefusal::DeviceFailed))
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.wait.abandon(&self.waiter.0);
        let cno = &self.poller.cno;
        cno.counts.add(&self.counters);
        cno.update(|table| {
            table.remove_waiter(&self.waiter.0);
            table.idle.push(self.waiter.clone());
        });
    }
}

impl Cno {
    /// Returns the counters of waits on it, including those for its agent.
    #[must_use]
    pub fn counters(&self) -> WaitCounters {
        self.counts.read()
    }

    /// Returns the refusal of a timeout.
    pub(super) fn empty(&self) -> CnoRefusal {
        let code = self.ia.rules().conformance.empty;
        CnoRefusal::Empty { code }
    }

    /// Adds a waiter for this thread.
    fn add_waiter(&self) -> Result<Waiter, CnoRefusal> {
        self.update(|table| {
            if table.is_over {
                return Err(CnoRefusal::Freed);
            }
            let idle = table.idle.pop();
            let waiter = idle.map_or_else(new_waiter, Ok).map_err(|error| {
                tracing::error!(cno = ?self.handle, "waiting failed: {error}");
                CnoRefusal::NoWaiter
            })?;
            table.queues[WAITERS].waiters.push(Arc::clone(&waiter.0));
            Ok(waiter)
        })
    }

    /// Polls an EVD. Returns `None` if the EVD cannot trigger the CNO now.
    pub(super) fn poll_evd(&self, evd: Handle, mode: PollMode) -> Option<PollResult> {
        poll_for_cno(self.handle, evd, mode)
    }

    /// Returns all EVDs with device events that no thread has got by this call yet.
    pub(super) fn readable(&self) -> Vec<Handle> {
        let mut events = [ChannelEvent::default(); 64];
        let mut evds = Vec::new();
        loop {
            let before = evds.len();
            let names = self.channels.readable(&mut events);
            evds.extend(names.filter_map(|name| Handle::from_bits(name as usize)));
            if evds.len() - before < events.len() {
                return evds;
            }
        }
    }

    /// Returns what is readable when an EVD has a device event.
    pub(super) fn channel(&self) -> Option<ChannelFds<'_>> {
        Some(self.channels.as_fd().into())
    }
}

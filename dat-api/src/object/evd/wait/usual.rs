//! Waiting for one event where it usually comes: a completion that went well,
//! in the only queue of an EVD. It goes from there to the consumer, where the
//! wait that can do everything counts and keeps what it finds at each look.

use std::os::fd::BorrowedFd;

use dat_engine::wait::{Deadline, Source, WaitOutcome};
use dat_engine::{Completion, ControlError};

use super::super::consumer::Consumer;
use super::super::convert::hand_out_usual;
use super::super::streams::Attribute;
use super::{Evd, FAILED, INTERRUPTED, TIMED_OUT, Waited, Waiter, nmore};
use crate::types::Event;

/// Nothing if something else is there, or has come; it is kept, and the wait is
/// to be gone on with.
#[inline]
pub(super) fn wait(
    evd: &Evd,
    consumer: &mut Consumer,
    closings: u32,
    deadline: &mut Deadline,
) -> Option<Waited> {
    let states = evd.switches.states();
    let is_controlled = matches!(
        evd.switches.attribute(),
        Some(Attribute::Solicited | Attribute::Unsignalled)
    );
    // Looked at after the states were read: what comes later changes them.
    if is_controlled || evd.switches.is_over() || !consumer.has_one_queue() {
        return None;
    }
    let mut waiting = Waiting {
        evd,
        consumer,
        states,
        closings,
        found: None,
        is_over: false,
    };
    let outcome = if waiting.ready() {
        Ok(WaitOutcome::Ready)
    } else if deadline.is_now() {
        Ok(WaitOutcome::TimedOut)
    } else {
        evd.wait_for(&mut waiting, deadline)
    };
    // Handed out only now: who sees it counted sees nobody wait.
    if let Some(completion) = waiting.found {
        let Some(data) = hand_out_usual(&completion) else {
            consumer.keep(evd, &completion);
            return None;
        };
        consumer.gather(evd);
        let event = Event {
            evd: evd.handle,
            data,
        };
        return Some(Waited {
            result: Ok(event),
            nmore: nmore(consumer.known(evd)),
        });
    }
    match outcome {
        Ok(WaitOutcome::Ready) => None,
        // There was a look just before, which found nothing at all.
        Ok(WaitOutcome::TimedOut) => Some(TIMED_OUT.into()),
        Ok(WaitOutcome::Interrupted) => Some(INTERRUPTED.into()),
        Err(_) => Some(FAILED.into()),
    }
}

/// One wait under way.
struct Waiting<'a> {
    evd: &'a Evd,
    consumer: &'a mut Consumer,
    /// The states of the EVD when the wait began.
    states: u32,
    /// How often it had been made unwaitable.
    closings: u32,
    found: Option<Completion>,
    /// Something else is to be done.
    is_over: bool,
}

impl Source for Waiting<'_> {
    #[inline]
    fn ready(&mut self) -> bool {
        let switches = &self.evd.switches;
        if switches.states() == self.states && switches.closings() == self.closings && !self.is_over
        {
            match self.consumer.poll_usual(self.evd) {
                Some(None) => return false,
                Some(found) => {
                    self.found = found;
                    return true;
                }
                None => {}
            }
        }
        self.is_over = true;
        true
    }

    fn arm(&mut self) {
        // A failure is met again, and told of, where the wait goes on.
        self.is_over |= self.consumer.arm_queue().is_err();
    }

    fn take_events(&mut self) -> Result<u32, ControlError> {
        self.consumer.take_events()
    }

    fn channel(&self) -> Option<BorrowedFd<'_>> {
        self.consumer.channel()
    }
}

impl Waiter for Waiting<'_> {
    fn consumer(&mut self) -> &mut Consumer {
        self.consumer
    }
}

//! Waiting for one event where it usually comes: a completion that went well,
//! in the only queue of an EVD. It goes from there to the consumer, where the
//! wait that can do everything counts and keeps what it finds at each look.

use std::os::fd::BorrowedFd;

use dat_engine::wait::{Source, WaitOutcome};
use dat_engine::{Completion, ControlError};

use super::super::consumer::Consumer;
use super::super::convert::hand_out_usual;
use super::super::streams::Attribute;
use super::{Evd, FAILED, INTERRUPTED, TIMED_OUT, Waited, Waiter, nmore};
use crate::types::Event;

/// What such a wait has seen.
pub(super) struct State {
    /// The states of the EVD when the wait began.
    states: u32,
    /// How often it had been made unwaitable.
    closings: u32,
    /// Taken from the queue, and neither handed out nor kept. Between two steps
    /// of a wait that goes on there is none.
    found: Option<Completion>,
    /// Something else is to be done.
    is_over: bool,
}

impl State {
    /// Nothing if the EVD is not fit for such a wait.
    #[inline]
    pub(super) fn new(evd: &Evd, consumer: &Consumer, closings: u32) -> Option<Self> {
        let states = evd.switches.states();
        let is_controlled = matches!(
            evd.switches.attribute(),
            Some(Attribute::Solicited | Attribute::Unsignalled)
        );
        // Looked at after the states were read: what comes later changes them.
        if is_controlled || evd.switches.is_over() || !consumer.has_one_queue() {
            return None;
        }
        Some(Self {
            states,
            closings,
            found: None,
            is_over: false,
        })
    }

    /// One look.
    #[inline]
    pub(super) fn view<'a>(&'a mut self, evd: &'a Evd, consumer: &'a mut Consumer) -> View<'a> {
        View {
            evd,
            consumer,
            state: self,
        }
    }

    /// What the wait answers. Nothing if something else is there, or has come; it
    /// is kept, and the wait is to be gone on with.
    #[inline]
    pub(super) fn finish(
        &mut self,
        evd: &Evd,
        consumer: &mut Consumer,
        outcome: Result<WaitOutcome, ControlError>,
    ) -> Option<Waited> {
        // Handed out only now: a thread that sees the wait counted sees no waiter.
        if let Some(completion) = self.found.take() {
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
}

/// One look of such a wait.
pub(super) struct View<'a> {
    evd: &'a Evd,
    consumer: &'a mut Consumer,
    state: &'a mut State,
}

impl Source for View<'_> {
    #[inline]
    fn ready(&mut self) -> bool {
        let (switches, state) = (&self.evd.switches, &mut *self.state);
        if switches.states() == state.states
            && switches.closings() == state.closings
            && !state.is_over
        {
            match self.consumer.poll_usual(self.evd) {
                Some(None) => return false,
                Some(found) => {
                    state.found = found;
                    return true;
                }
                None => {}
            }
        }
        state.is_over = true;
        true
    }

    fn arm(&mut self) {
        // A failure is met again, and told of, where the wait goes on.
        self.state.is_over |= self.consumer.arm_queue().is_err();
    }

    fn take_events(&mut self) -> Result<u32, ControlError> {
        self.consumer.take_events()
    }

    fn channel(&self) -> Option<BorrowedFd<'_>> {
        self.consumer.channel()
    }
}

impl Waiter for View<'_> {
    fn consumer(&mut self) -> &mut Consumer {
        self.consumer
    }
}

//! A completion queue as an EVD polls it.

use std::os::fd::BorrowedFd;

use dat_engine::{Completion, CompletionChannel, CompletionQueue, ControlError};

/// A completion queue; in tests also one that the test fills.
pub(super) enum Queue {
    /// Of the device.
    Real(CompletionQueue),
    /// Of a test.
    #[cfg(test)]
    Fake(super::tests::FakeQueue),
}

/// Calls a method of the queue, whichever it is.
macro_rules! each {
    ($queue:expr, $name:ident => $call:expr) => {
        match $queue {
            Queue::Real($name) => $call,
            #[cfg(test)]
            Queue::Fake($name) => $call,
        }
    };
}

impl Queue {
    /// The next completion, if there is one.
    #[inline(always)]
    pub(super) fn poll(&mut self) -> Option<Completion> {
        each!(self, queue => queue.poll())
    }

    /// Completions that it holds at most.
    pub(super) fn capacity(&self) -> u32 {
        each!(self, queue => queue.capacity())
    }

    /// Where its events come.
    pub(super) fn channel(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Real(queue) => queue.channel().map(CompletionChannel::fd),
            #[cfg(test)]
            Self::Fake(queue) => Some(queue.channel()),
        }
    }

    /// Whether completions tell which of them were solicited.
    pub(super) fn tells_solicited(&self) -> bool {
        each!(self, queue => queue.tells_solicited())
    }

    /// Asks for an event on the channel.
    pub(super) fn arm(&mut self, solicited_only: bool) -> Result<(), ControlError> {
        each!(self, queue => queue.arm(solicited_only))
    }

    /// Takes the events of the channel, of all queues on it.
    pub(super) fn take_events(&mut self) -> Result<u32, ControlError> {
        each!(self, queue => queue.take_events())
    }

    /// The events of this queue that another on its channel has taken.
    pub(super) fn taken_events(&mut self) -> u32 {
        each!(self, queue => queue.taken_events())
    }

    /// Lets go of endpoints that are no more.
    pub(super) fn settle(&mut self) {
        each!(self, queue => queue.settle());
    }
}

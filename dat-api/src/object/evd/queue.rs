//! A completion queue as an EVD polls it.

use std::os::fd::BorrowedFd;

use dat_engine::{
    Arrival, Completion, CompletionChannel, CompletionOp, CompletionQueue, ControlError,
};

/// A completion queue; in tests also one that the test fills.
pub(super) enum Queue {
    /// Of the device.
    Real(CompletionQueue),
    /// Of a test.
    #[cfg(test)]
    Fake(super::tests::FakeQueue),
}

/// What a queue has next; see [`CompletionQueue::glance`].
pub(super) enum Glance<'a> {
    Empty,
    Written(Written<'a>),
    Other,
}

/// A completion that is there, and not taken yet.
pub(super) enum Written<'a> {
    /// Of the device.
    Real(dat_engine::Written<'a>),
    /// Of a test.
    #[cfg(test)]
    Fake(super::tests::FakeWritten<'a>),
}

/// What it is.
pub(super) enum Look<'a> {
    Received(Ready<'a>),
    Done(Ready<'a>),
    Other,
}

/// A completion of the usual kind, not taken yet.
pub(super) enum Ready<'a> {
    Real(dat_engine::Ready<'a>),
    #[cfg(test)]
    Fake(super::tests::FakeReady<'a>),
}

/// Calls a method of the queue, whichever it is.
macro_rules! each {
    ($queue:expr, $name:ident => $call:expr) => {
        match $queue {
            Self::Real($name) => $call,
            #[cfg(test)]
            Self::Fake($name) => $call,
        }
    };
}

impl Queue {
    /// The next completion, if there is one.
    #[inline(always)]
    pub(super) fn poll(&mut self) -> Option<Completion> {
        each!(self, queue => queue.poll())
    }

    /// Returns when the next completion arrived, without taking it.
    pub(super) fn arrival(&self) -> Arrival {
        each!(self, queue => queue.arrival())
    }

    /// What is next, without taking it.
    #[inline(always)]
    pub(super) fn glance(&mut self) -> Glance<'_> {
        match self {
            Self::Real(queue) => match queue.glance() {
                dat_engine::Glance::Empty => Glance::Empty,
                dat_engine::Glance::Written(written) => Glance::Written(Written::Real(written)),
                dat_engine::Glance::Other => Glance::Other,
            },
            #[cfg(test)]
            Self::Fake(queue) => queue.glance(),
        }
    }

    /// Whether [`Self::glance`] ever finds something.
    #[inline(always)]
    pub(super) fn can_glance(&self) -> bool {
        match self {
            Self::Real(queue) => queue.can_glance(),
            #[cfg(test)]
            Self::Fake(_) => true,
        }
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

impl<'a> Written<'a> {
    /// What it is.
    #[inline(always)]
    pub(super) fn look(self) -> Look<'a> {
        match self {
            Self::Real(written) => match written.look() {
                dat_engine::Look::Received(ready) => Look::Received(Ready::Real(ready)),
                dat_engine::Look::Done(ready) => Look::Done(Ready::Real(ready)),
                dat_engine::Look::Other => Look::Other,
            },
            #[cfg(test)]
            Self::Fake(written) => written.look(),
        }
    }
}

impl Ready<'_> {
    /// The context of the endpoint.
    #[inline(always)]
    pub(super) fn context(&self) -> u64 {
        each!(self, ready => ready.context())
    }

    /// What a request was; nothing if that takes a closer look.
    #[inline(always)]
    pub(super) fn op(&self) -> Option<CompletionOp> {
        each!(self, ready => ready.op())
    }

    /// Whether that many completions behind it are there, at least.
    #[inline(always)]
    pub(super) fn has_behind(&self, completions: u32) -> bool {
        each!(self, ready => ready.has_behind(completions))
    }

    /// Takes a receive: its cookie, and how many bytes it got. Nothing is done if
    /// it takes a closer look after all.
    #[inline(always)]
    pub(super) fn take_received(self) -> Option<(u64, u32)> {
        each!(self, ready => ready.take_received())
    }

    /// Takes a request that is done: its cookie, and the note that it was posted
    /// with.
    #[inline(always)]
    pub(super) fn take_done(self) -> (u64, u32) {
        each!(self, ready => ready.take_done())
    }
}

//! A completion queue as an EVD polls it.

use std::os::fd::BorrowedFd;

use dat_engine::{
    Arrival, Completion, CompletionChannel, CompletionOp, CompletionQueue, ControlError, CqeKind,
    CqeRef,
};

/// A completion queue; in tests also one that the test fills.
pub(super) enum Queue {
    /// One of the device.
    Real(CompletionQueue),
    /// One of a test.
    #[cfg(test)]
    Fake(super::tests::FakeQueue),
}

/// The next CQE of a queue; see [`dat_engine::CqeRef`].
pub(super) enum Cqe<'a> {
    /// One of the device.
    Real(CqeRef<'a>),
    /// One of a test.
    #[cfg(test)]
    Fake(super::tests::FakeCqe<'a>),
}

/// Calls a method on either kind of queue.
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
    /// Takes the next completion, if there is one.
    #[inline(always)]
    pub(super) fn poll(&mut self) -> Option<Completion> {
        each!(self, queue => queue.poll())
    }

    /// Returns when the next completion arrived, without taking it.
    pub(super) fn arrival(&self) -> Arrival {
        each!(self, queue => queue.arrival())
    }

    /// Returns the next CQE, if the device has written it. Consumes nothing.
    #[inline(always)]
    pub(super) fn peek(&mut self) -> Option<Cqe<'_>> {
        match self {
            Self::Real(queue) => queue.peek().map(Cqe::Real),
            #[cfg(test)]
            Self::Fake(queue) => queue.peek().map(Cqe::Fake),
        }
    }

    /// Returns whether [`Self::peek`] would return a CQE now.
    #[inline(always)]
    pub(super) fn has_cqe(&self) -> bool {
        each!(self, queue => queue.has_cqe())
    }

    /// As [`Self::peek`], without reading the owner bit again.
    ///
    /// # Safety
    /// [`Self::has_cqe`] returned `true`, and nothing was consumed since.
    #[inline(always)]
    pub(super) unsafe fn peek_unchecked(&mut self) -> Cqe<'_> {
        match self {
            // SAFETY: the caller's promise.
            Self::Real(queue) => Cqe::Real(unsafe { queue.peek_unchecked() }),
            #[cfg(test)]
            Self::Fake(queue) => Cqe::Fake(queue.peek().expect("the caller has seen a CQE")),
        }
    }

    /// Returns whether [`Self::peek`] returns CQEs: whether the queue is on the direct path.
    #[inline(always)]
    pub(super) fn can_peek(&self) -> bool {
        match self {
            Self::Real(queue) => queue.can_peek(),
            #[cfg(test)]
            Self::Fake(_) => true,
        }
    }

    /// Returns the most completions that it holds.
    pub(super) fn capacity(&self) -> u32 {
        each!(self, queue => queue.capacity())
    }

    /// Returns its completion channel.
    pub(super) fn channel(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Real(queue) => queue.channel().map(CompletionChannel::fd),
            #[cfg(test)]
            Self::Fake(queue) => Some(queue.channel()),
        }
    }

    /// Returns whether completions say which of them were solicited.
    pub(super) fn reports_solicited(&self) -> bool {
        each!(self, queue => queue.reports_solicited())
    }

    /// Arms the queue: the next completion raises an event on the channel.
    pub(super) fn arm(&mut self, solicited_only: bool) -> Result<(), ControlError> {
        each!(self, queue => queue.arm(solicited_only))
    }

    /// Takes the events of the channel, of all queues on it.
    pub(super) fn take_events(&mut self) -> Result<u32, ControlError> {
        each!(self, queue => queue.take_events())
    }

    /// Returns the events of this queue that another queue on its channel has taken.
    pub(super) fn taken_events(&mut self) -> u32 {
        each!(self, queue => queue.taken_events())
    }

    /// Processes the commands of the queue, and so releases endpoints that are gone.
    pub(super) fn process_commands(&mut self) {
        each!(self, queue => queue.process_commands());
    }
}

impl Cqe<'_> {
    /// Returns the context of the endpoint.
    #[inline(always)]
    pub(super) fn context(&self) -> Option<u64> {
        each!(self, cqe => cqe.context())
    }

    /// Returns whether it is a receive, a request, or something else.
    #[inline(always)]
    pub(super) fn kind(&self) -> CqeKind {
        each!(self, cqe => cqe.kind())
    }

    /// Returns the operation of a request.
    #[inline(always)]
    pub(super) fn request_op(&self) -> Option<CompletionOp> {
        each!(self, cqe => cqe.request_op())
    }

    /// Returns whether at least `completions` completions follow this one.
    #[inline(always)]
    pub(super) fn has_more(&self, completions: u32) -> bool {
        each!(self, cqe => cqe.has_more(completions))
    }

    /// Consumes a receive on the fast path. Returns its `wr_id` and the number of bytes received;
    /// `None` leaves it to the slow path.
    #[inline(always)]
    pub(super) fn consume_recv(self) -> Option<(u64, u32)> {
        each!(self, cqe => cqe.consume_recv())
    }

    /// Consumes a request on the fast path. Returns its `wr_id` and `wr_data`; `None` leaves it to
    /// the slow path.
    #[inline(always)]
    pub(super) fn consume_request(self) -> Option<(u64, u32)> {
        each!(self, cqe => cqe.consume_request())
    }
}

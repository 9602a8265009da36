//! Completion queues, as the application sees them.

use core::fmt;
use core::ops::Deref;
use std::sync::Arc;

use crate::completion::Completion;
use crate::control::{CompletionChannel, CqeSize, Device, VerbsCq};
use crate::error::{ControlError, ControlErrorKind};
pub use crate::path::Arrival;
pub use crate::path::direct::{CqeKind, CqeRef};
use crate::path::{self, PollerCounters, direct, verbs};
use mlx5_rings::layout::CompletionLayout;

/// How to create a [`CompletionQueue`].
#[derive(Clone, Copy, Default)]
pub struct CqOptions<'a> {
    /// Completions that it holds, at least. Make it as deep as all the queues
    /// that report to it together: a completion queue that overflows is dead.
    pub depth: u32,
    /// Size of its entries, on the direct path.
    pub cqe_size: CqeSize,
    /// Where its events go, for those who wait.
    pub channel: Option<&'a CompletionChannel>,
    /// Which interrupt raises the events, below the device's number of vectors.
    pub vector: u32,
}

/// A completion queue and the right to poll it.
///
/// Polling takes `&mut self`: one thread at a time. What may be done while
/// another thread polls, such as creating an endpoint that reports here, takes a
/// [`CompletionQueueHandle`], to which this dereferences.
pub struct CompletionQueue {
    path: path::Poller,
    handle: CompletionQueueHandle,
    /// Of [`VerbsCq::event_count`], how many [`Self::take_events`] has reported.
    events_taken: u32,
}

/// A completion queue without the right to poll it. Clones are handles to the
/// same queue.
#[derive(Clone)]
pub struct CompletionQueueHandle {
    pub(crate) verbs: VerbsCq,
    pub(crate) path: path::CqSide,
}

impl Device {
    /// Creates a completion queue.
    ///
    /// # Errors
    /// A depth of 0 or beyond the device's limit, or no memory for it.
    pub fn create_cq(&self, options: &CqOptions<'_>) -> Result<CompletionQueue, ControlError> {
        let CqOptions {
            depth,
            cqe_size,
            channel,
            vector,
        } = *options;
        let verbs = VerbsCq::create(self, depth, cqe_size, channel, vector)?;
        let path = match verbs.layout() {
            Some(layout) => {
                // SAFETY: the layout is that of a queue that was just created,
                // which lives as long as the owner; its ring was handed to us
                // alone, and endpoints are made with this poller's mailbox only.
                let poller = unsafe { direct::Poller::new(&layout, Arc::new(verbs.clone())) };
                path::Poller::Direct(poller.map_err(|error| {
                    ControlError::new(
                        ControlErrorKind::Unsupported,
                        "drive a completion queue directly",
                        error.to_string(),
                    )
                })?)
            }
            None => path::Poller::Verbs(verbs::Poller::new(verbs.clone())),
        };
        let handle = CompletionQueueHandle {
            verbs,
            path: path.side(),
        };
        Ok(CompletionQueue {
            path,
            handle,
            events_taken: 0,
        })
    }
}

impl CompletionQueueHandle {
    /// Whether polling may still write to the memory of a request that has
    /// completed: an mlx5 leaves short payloads in the completion, and whoever
    /// polls it copies them to where they belong. Memory that completed requests
    /// name may be given back once this was false, or the queue was polled empty.
    /// For any thread; may be true though nothing is there.
    #[must_use]
    pub fn may_hold_payload(&self) -> bool {
        self.verbs.is_mlx5() && self.path.may_hold_any()
    }
}

impl CompletionQueue {
    /// The next completion, if there is one.
    #[inline]
    pub fn poll(&mut self) -> Option<Completion> {
        self.path.poll()
    }

    /// The next CQE, if the device has written it, for a caller that has more to
    /// know before it is consumed. Always `None` on the verbs path
    /// ([`Self::can_peek`]). Does not notice endpoints that are gone: a caller
    /// that never polls has to call [`Self::settle`] for that.
    #[inline(always)]
    pub fn peek(&mut self) -> Option<CqeRef<'_>> {
        match &mut self.path {
            path::Poller::Direct(poller) => poller.peek(),
            path::Poller::Verbs(_) => None,
        }
    }

    /// Whether [`Self::peek`] returns CQEs: on the direct path.
    #[inline(always)]
    #[must_use]
    pub fn can_peek(&self) -> bool {
        matches!(self.path, path::Poller::Direct(_))
    }

    /// Returns when the next completion arrived, without taking it: for callers
    /// that merge several queues of one device.
    #[must_use]
    pub fn arrival(&self) -> Arrival {
        self.path.arrival()
    }

    /// Whether [`Self::peek`] would return a CQE now. Cheaper: only the owner bit
    /// is read.
    #[inline(always)]
    #[must_use]
    pub fn has_cqe(&self) -> bool {
        match &self.path {
            path::Poller::Direct(poller) => poller.has_cqe(),
            path::Poller::Verbs(_) => false,
        }
    }

    /// [`Self::peek`] without another look at the owner bit.
    ///
    /// # Safety
    /// [`Self::has_cqe`] was true, and nothing was polled or consumed since.
    #[inline(always)]
    pub unsafe fn peek_unchecked(&mut self) -> CqeRef<'_> {
        match &mut self.path {
            // SAFETY: passed on to the caller.
            path::Poller::Direct(poller) => unsafe { poller.peek_unchecked() },
            // SAFETY: `has_cqe` is never true on the verbs path.
            path::Poller::Verbs(_) => unsafe { core::hint::unreachable_unchecked() },
        }
    }

    /// Fills `out` from the start with completions, as far as there are any.
    /// Returns how many.
    #[inline]
    pub fn poll_batch(&mut self, out: &mut [Completion]) -> usize {
        self.path.poll_batch(out)
    }

    /// Asks for one event on the channel at the next completion, or at the next
    /// that is solicited or an error. Completions that came before count too,
    /// so poll once more after arming, and wait only if there is nothing.
    ///
    /// # Errors
    /// On the verbs path: the device failed, or belongs to a parent of this
    /// process. Then there will be no event.
    pub fn arm(&mut self, solicited_only: bool) -> Result<(), ControlError> {
        if let Some(channel) = self.handle.verbs.channel() {
            channel.expect_one_more();
        }
        self.path
            .arm(solicited_only, self.handle.verbs.event_count())
            .map_err(|errno| ControlError::verbs("ask a completion queue for an event", errno))
    }

    /// Takes the events off the channel without blocking, for all queues that
    /// share it, and returns how many there were for this one since the last
    /// call. 0 if it has no channel. As many are taken as queues were armed; if
    /// there are more, the channel stays readable.
    ///
    /// # Errors
    /// The device failed.
    pub fn take_events(&mut self) -> Result<u32, ControlError> {
        if let Some(channel) = self.handle.verbs.channel() {
            channel.drain()?;
        }
        Ok(self.taken_events())
    }

    /// The same, of events that [`Self::take_events`] of another queue on the
    /// channel has taken: without a system call.
    pub fn taken_events(&mut self) -> u32 {
        let count = self.handle.verbs.event_count();
        let new = count.wrapping_sub(self.events_taken);
        self.events_taken = count;
        new
    }

    /// Takes note of endpoints that were created and dropped. Polling does it
    /// by itself when it finds nothing; a queue that is not polled keeps the
    /// verbs objects, and the numbers, of endpoints that were dropped until
    /// this is called, or until it is dropped itself. On the verbs path there
    /// is nothing to be done.
    pub fn settle(&mut self) {
        self.path.settle();
    }

    /// Completions that polling had to skip.
    #[must_use]
    pub fn counters(&self) -> PollerCounters {
        self.path.counters()
    }

    /// What creating endpoints takes; for use while another thread polls.
    #[must_use]
    pub fn handle(&self) -> &CompletionQueueHandle {
        &self.handle
    }
}

impl Deref for CompletionQueue {
    type Target = CompletionQueueHandle;

    fn deref(&self) -> &CompletionQueueHandle {
        &self.handle
    }
}

impl CompletionQueueHandle {
    /// Its number on the device.
    #[must_use]
    pub fn cqn(&self) -> u32 {
        self.verbs.cqn()
    }

    /// How many completions it holds.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.verbs.capacity()
    }

    /// Whether its completions tell which of them the peer wanted to be told of
    /// ([`crate::CompletionFlags::SOLICITED`]). On the verbs path they do not;
    /// [`CompletionQueue::arm`] with `solicited_only` works nevertheless.
    #[must_use]
    pub fn tells_solicited(&self) -> bool {
        matches!(self.path, path::CqSide::Direct(_))
    }

    /// Gives the queue at least `depth` entries; completions that are in it stay.
    /// The queue may be polled meanwhile by another thread, which then waits.
    ///
    /// # Errors
    /// `Unsupported` if it is polled directly, or the device resizes none
    /// ([`Device::resizes_cqs`]); no memory. Nothing has changed then.
    pub fn resize(&self, depth: u32) -> Result<(), ControlError> {
        self.verbs.require_here()?;
        match &self.path {
            path::CqSide::Direct(_) => self.verbs.resize(depth),
            path::CqSide::Verbs(completions) => {
                completions.while_not_polled(|| self.verbs.resize(depth))
            }
        }
    }

    /// The channel that its events go to.
    #[must_use]
    pub fn channel(&self) -> Option<&CompletionChannel> {
        self.verbs.channel()
    }

    /// The verbs object, for matching asynchronous events.
    #[must_use]
    pub fn verbs(&self) -> &VerbsCq {
        &self.verbs
    }

    /// Where its ring lies: for tests and measurements that play the device.
    /// `None` on the verbs path.
    #[must_use]
    pub fn layout(&self) -> Option<CompletionLayout> {
        self.verbs.layout()
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("cqn", &self.cqn())
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for CompletionQueueHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueueHandle")
            .field("cqn", &self.cqn())
            .finish_non_exhaustive()
    }
}

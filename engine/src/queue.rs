//! Completion queues.

use core::fmt;
use core::ops::Deref;
use core::sync::atomic::AtomicU8;
use std::sync::Arc;

use crate::completion::Completion;
use crate::control::{CompletionChannel, CqeSize, Device, VerbsCq};
use crate::error::{ControlError, ControlErrorKind};
pub use crate::path::Arrival;
pub use crate::path::direct::{CqeKind, CqeRef};
use crate::path::{self, PollerCounters, direct, verbs};
use crate::wait::ChannelFds;
pub use mlx5_rings::complete::Arm;
use mlx5_rings::layout::CompletionLayout;

/// How to create a [`CompletionQueue`].
#[derive(Clone, Copy, Default)]
pub struct CqOptions<'a> {
    /// The least number of completions that the queue holds. It must be at least
    /// the sum of the depths of all queues that report to it: a completion queue
    /// that overruns is lost.
    pub depth: u32,
    /// The size of its CQEs, on the direct path.
    pub cqe_size: CqeSize,
    /// The channel on which its events arrive, for callers that wait.
    pub channel: Option<&'a CompletionChannel>,
    /// The interrupt vector of the events, below the device's number of vectors.
    pub vector: u32,
}

/// A completion queue and the right to poll it.
///
/// Polling takes `&mut self`: one thread at a time. Operations that are allowed
/// while another thread polls, such as creating an endpoint that reports to this
/// queue, take a [`CompletionQueueHandle`], to which this type dereferences.
pub struct CompletionQueue {
    path: path::Poller,
    handle: CompletionQueueHandle,
    /// How many of [`VerbsCq::event_count`] events [`Self::take_events`] has
    /// reported.
    events_taken: u32,
}

/// A completion queue without the right to poll it. Clones are handles to the same
/// queue.
#[derive(Clone)]
pub struct CompletionQueueHandle {
    pub(crate) verbs: VerbsCq,
    pub(crate) path: path::CqSide,
}

impl Device {
    /// Creates a completion queue.
    ///
    /// # Errors
    /// The depth is 0 or exceeds the device's limit, or there is no memory.
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
                let owner = Arc::new(verbs.clone());
                // SAFETY: the layout is that of a queue that was just created,
                // which lives as long as the owner; its ring is used by this poller
                // only, and endpoints are created with this poller's command queue only.
                let poller = unsafe { direct::Poller::new(&layout, owner) };
                path::Poller::Direct(poller.map_err(|error| {
                    ControlError::new(
                        ControlErrorKind::Unsupported,
                        "use a completion queue on the direct path",
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
    /// Returns whether polling may still write to the memory of a completed
    /// request. An mlx5 device leaves short payloads in the CQE, and the poll
    /// copies them to their buffer. Memory of completed requests may be freed once
    /// this returned `false` or a poll found the queue empty. May be called from
    /// any thread; may return `true` although the queue is empty.
    #[must_use]
    pub fn may_hold_payload(&self) -> bool {
        self.verbs.is_mlx5() && self.path.may_hold_any()
    }
}

impl CompletionQueue {
    /// Returns the next completion, if there is one.
    #[inline]
    pub fn poll(&mut self) -> Option<Completion> {
        self.path.poll()
    }

    /// Returns the next completion as [`Self::poll`] does, and when the device wrote its
    /// CQE; [`crate::DeviceClock`] converts that to nanoseconds. The time is
    /// [`Arrival::Unknown`] for a failed request or receive, and on the verbs path. Takes the
    /// slow path of polling.
    pub fn poll_stamped(&mut self) -> Option<(Completion, Arrival)> {
        self.path.poll_stamped()
    }

    /// Returns the next CQE without consuming it, if the device has written one.
    /// Always `None` on the verbs path ([`Self::can_peek`]). Does not detach
    /// dropped endpoints: a caller that never polls has to call [`Self::process_commands`].
    #[inline(always)]
    pub fn peek(&mut self) -> Option<CqeRef<'_>> {
        match &mut self.path {
            path::Poller::Direct(poller) => poller.peek(),
            path::Poller::Verbs(_) => None,
        }
    }

    /// Returns whether [`Self::peek`] returns CQEs, which is so on the direct path.
    #[inline(always)]
    #[must_use]
    pub fn can_peek(&self) -> bool {
        matches!(self.path, path::Poller::Direct(_))
    }

    /// Returns the byte that the device writes with the next completion; `None` on the verbs path.
    #[must_use]
    pub fn watched(&self) -> Option<&AtomicU8> {
        match &self.path {
            path::Poller::Direct(poller) => Some(poller.ring.next_own_op()),
            path::Poller::Verbs(_) => None,
        }
    }

    /// Returns when the next completion arrived, without consuming it, for callers
    /// that merge several queues of one device.
    #[must_use]
    pub fn arrival(&self) -> Arrival {
        self.path.arrival()
    }

    /// Returns whether [`Self::peek`] would return a CQE now. Reads the owner bit
    /// only.
    #[inline(always)]
    #[must_use]
    pub fn has_cqe(&self) -> bool {
        match &self.path {
            path::Poller::Direct(poller) => poller.ring.peek().is_some(),
            path::Poller::Verbs(_) => false,
        }
    }

    /// Returns how many CQEs the device has written that were not consumed, without consuming
    /// any: each CQE is looked at once, not in every call. Returns `None` if one of them is stale
    /// (its queue pair was destroyed or reset), and on the verbs path; polling then skips it.
    #[inline(always)]
    #[must_use]
    pub fn written(&mut self) -> Option<u32> {
        match &mut self.path {
            path::Poller::Direct(poller) => poller.ring.written(),
            path::Poller::Verbs(_) => None,
        }
    }

    /// Returns the next CQE as [`Self::peek`] does, without reading the owner bit
    /// again.
    ///
    /// # Safety
    /// [`Self::has_cqe`] returned `true`, and nothing was polled or consumed since.
    #[inline(always)]
    pub unsafe fn peek_unchecked(&mut self) -> CqeRef<'_> {
        match &mut self.path {
            path::Poller::Direct(poller) => {
                let (slot, own_op) = poller.ring.next_slot();
                CqeRef::new(poller, slot, own_op)
            }
            // SAFETY: `has_cqe` is never true on the verbs path.
            path::Poller::Verbs(_) => unsafe { core::hint::unreachable_unchecked() },
        }
    }

    /// Fills `out` from the start with the completions that are there. Returns how
    /// many.
    #[inline]
    pub fn poll_batch(&mut self, out: &mut [Completion]) -> usize {
        self.path.poll_batch(out)
    }

    /// Arms the queue: the next completion of this kind raises one event on the channel. Completions may arrive before the
    /// arm takes effect, so poll once more after arming, and sleep only if that
    /// poll finds nothing.
    ///
    /// # Errors
    /// On the verbs path: the device failed, or belongs to the parent of this
    /// process. No event follows.
    pub fn arm(&mut self, arm: Arm) -> Result<(), ControlError> {
        if let Some(channel) = self.handle.verbs.channel() {
            channel.expect_one_more();
        }
        self.path
            .arm(arm, self.handle.verbs.event_count())
            .map_err(|errno| ControlError::verbs("arm a completion queue", errno))
    }

    /// Takes events off the channel without blocking, for all queues that share the
    /// channel. Returns how many were for this queue since the last call; 0 without
    /// a channel. Takes at most one event per armed queue; if more are queued, the
    /// channel stays readable.
    ///
    /// # Errors
    /// The device failed.
    pub fn take_events(&mut self) -> Result<u32, ControlError> {
        if let Some(channel) = self.handle.verbs.channel() {
            channel.drain()?;
        }
        Ok(self.taken_events())
    }

    /// Returns the number of events for this queue that [`Self::take_events`] of
    /// another queue has taken off their channel. Makes no system call.
    pub fn taken_events(&mut self) -> u32 {
        let count = self.handle.verbs.event_count();
        let new = count.wrapping_sub(self.events_taken);
        self.events_taken = count;
        new
    }

    /// Attaches new endpoints and detaches dropped ones. Polling does so whenever
    /// it finds no CQE. A queue that is not polled keeps the queue pairs of dropped
    /// endpoints, and their QP numbers, until this is called or the queue is
    /// dropped. Does nothing on the verbs path.
    pub fn process_commands(&mut self) {
        self.path.process_commands();
    }

    /// Returns how many completions polling has skipped.
    #[must_use]
    pub fn counters(&self) -> PollerCounters {
        self.path.counters()
    }

    /// Returns the handle for creating endpoints, for use while another thread
    /// polls.
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
    /// Returns the queue's number (CQN).
    #[must_use]
    pub fn cqn(&self) -> u32 {
        self.verbs.cqn()
    }

    /// Returns how many completions the queue holds.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.verbs.capacity()
    }

    /// Returns whether completions report that the peer solicited an event
    /// ([`crate::CompletionFlags::SOLICITED`]). They do not on the verbs path;
    /// [`CompletionQueue::arm`] with `solicited_only` works nevertheless.
    #[must_use]
    pub fn reports_solicited(&self) -> bool {
        matches!(self.path, path::CqSide::Direct(_))
    }

    /// Grows the queue to at least `depth` entries; its completions stay. A thread
    /// that polls meanwhile waits.
    ///
    /// # Errors
    /// `Unsupported` on the direct path, or if the device resizes no completion
    /// queue ([`Device::resizes_cqs`]); or there is no memory. The queue is then
    /// unchanged.
    pub fn resize(&self, depth: u32) -> Result<(), ControlError> {
        self.verbs.require_here()?;
        match &self.path {
            path::CqSide::Direct(_) => self.verbs.resize(depth),
            path::CqSide::Verbs(completions) => {
                completions.while_not_polled(|| self.verbs.resize(depth))
            }
        }
    }

    /// Returns the channel on which the queue's events arrive.
    #[must_use]
    pub fn channel(&self) -> Option<&CompletionChannel> {
        self.verbs.channel()
    }

    /// Returns the descriptors of that channel.
    #[must_use]
    pub fn channel_fds(&self) -> Option<ChannelFds<'_>> {
        self.channel().map(CompletionChannel::fds)
    }

    /// Returns the libibverbs completion queue, for matching asynchronous events.
    #[must_use]
    pub fn verbs(&self) -> &VerbsCq {
        &self.verbs
    }

    /// Returns the location of the ring, for tests and benchmarks that simulate the
    /// device. `None` on the verbs path.
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

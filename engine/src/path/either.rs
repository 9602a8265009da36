//! The enum of the two data paths.

use std::sync::Arc;

use super::{Arrival, PollerCounters, direct, verbs};
use crate::completion::Completion;
use crate::control::{Access, MemoryWindow, WindowTarget};
use crate::request::{BindRequest, PostError};
use mlx5_rings::complete::Arm;
use mlx5_rings::wire::{MkeyAccess, WindowChange, WindowRange};

/// Calls the same method of either path.
macro_rules! each {
    ($path:expr, $name:ident => $call:expr) => {
        match $path {
            Self::Direct($name) => $call,
            Self::Verbs($name) => $call,
        }
    };
}

/// The posting side of a queue pair.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "the posts of the direct path reach its rings without another pointer"
)]
pub(crate) enum QueuePair {
    Direct(direct::QueuePair),
    Verbs(verbs::QueuePair),
}

impl QueuePair {
    /// Returns the queue pair on the direct path.
    ///
    /// # Safety
    /// It is on the direct path.
    #[inline(always)]
    pub(crate) unsafe fn direct(&mut self) -> &mut direct::QueuePair {
        match self {
            Self::Direct(path) => path,
            // SAFETY: the caller has found that the path is direct.
            Self::Verbs(_) => unsafe { core::hint::unreachable_unchecked() },
        }
    }

    /// Posts a bind or an unbind of a window, which is of the same path. Returns
    /// the window's new rkey.
    ///
    /// # Safety
    /// As for [`crate::Endpoint::post_bind`].
    pub(crate) unsafe fn post_bind(
        &mut self,
        window: &MemoryWindow,
        request: &BindRequest<'_>,
        wr_data: u32,
    ) -> Result<u32, PostError> {
        match self {
            Self::Direct(path) => {
                let change = WindowChange {
                    before: window.rkey(),
                    key: window.next_key(),
                    range: request.target.map(range),
                };
                // SAFETY: the window and its key are those of `window`, the memory
                // is that of a region, and the rest is required of the caller.
                unsafe {
                    path.sends
                        .post_change(request.wr_id, &change, request.flags, wr_data)
                }?;
                Ok(change.key)
            }
            // SAFETY: the region stays registered while the window is bound to it.
            Self::Verbs(path) => unsafe { path.post_bind(window, request, wr_data) },
        }
    }

    pub(crate) fn open_receives(&mut self) {
        each!(self, path => path.open_receives());
    }

    pub(crate) fn open_sends(&mut self) {
        each!(self, path => path.open_sends());
    }

    /// Prepares for a move to RESET, which the last user of the queue pair or
    /// [`Self::reset`] makes next.
    pub(crate) fn before_reset(&mut self) {
        match self {
            Self::Direct(_) => {}
            Self::Verbs(path) => path.before_reset(),
        }
    }

    /// Returns whether the queue pair may be destroyed from ERR: its leftover
    /// completions are distinguished from others, and hold nothing that a library
    /// would discard.
    pub(crate) fn may_be_destroyed_in_error(&self) -> bool {
        match self {
            Self::Direct(_) => false,
            Self::Verbs(path) => !path.has_shared_receives(),
        }
    }

    /// Resets the rings, after the queue pair was moved to RESET.
    pub(crate) fn reset(&mut self) {
        each!(self, path => path.reset());
    }

    pub(crate) fn limit(&mut self, sends: u32, receives: u32) {
        each!(self, path => path.limit(sends, receives));
    }

    pub(crate) fn send_capacity(&self) -> u32 {
        each!(self, path => path.send_capacity())
    }

    pub(crate) fn recv_capacity(&self) -> u32 {
        each!(self, path => path.recv_capacity())
    }

    #[inline]
    pub(crate) fn sends_idle(&self) -> bool {
        each!(self, path => path.sends_idle())
    }

    #[inline]
    pub(crate) fn recvs_outstanding(&self) -> u32 {
        each!(self, path => path.recvs_outstanding())
    }

    pub(crate) fn watch(&self) -> Watch {
        match self {
            Self::Direct(path) => Watch::Direct(path.watch()),
            Self::Verbs(path) => Watch::Verbs(path.watch()),
        }
    }
}

/// Returns a target as the ring's type.
fn range(target: WindowTarget<'_>) -> WindowRange {
    let mut access = MkeyAccess::empty();
    let asks = |right| target.access.contains(right);
    access.set(MkeyAccess::REMOTE_READ, asks(Access::REMOTE_READ));
    access.set(MkeyAccess::REMOTE_WRITE, asks(Access::REMOTE_WRITE));
    WindowRange {
        lkey: target.region.lkey(),
        addr: target.addr,
        length: target.length,
        access,
    }
}

/// Reads the state of a queue pair's rings from any thread, until the queue pair is
/// reset.
#[derive(Clone, Debug)]
pub(crate) enum Watch {
    Direct(direct::Watch),
    Verbs(verbs::Watch),
}

impl Watch {
    pub(crate) fn sends_idle(&self) -> bool {
        each!(self, path => path.sends_idle())
    }

    pub(crate) fn sends_retired(&self) -> u32 {
        each!(self, path => path.sends_retired())
    }

    pub(crate) fn recvs_outstanding(&self) -> u32 {
        each!(self, path => path.recvs_outstanding())
    }

    /// Announces that the caller is about to move the queue pair to ERR.
    pub(crate) fn will_fail(&self) {
        match self {
            Self::Direct(_) => {}
            Self::Verbs(path) => path.will_fail(),
        }
    }

    /// Reports that the queue pair is in ERR.
    pub(crate) fn has_failed(&self) {
        match self {
            Self::Direct(_) => {}
            Self::Verbs(path) => path.has_failed(),
        }
    }
}

/// The polling side of a completion queue.
#[derive(Debug)]
pub(crate) enum Poller {
    Direct(direct::Poller),
    Verbs(verbs::Poller),
}

impl Poller {
    #[inline(always)]
    pub(crate) fn poll(&mut self) -> Option<Completion> {
        match self {
            Self::Direct(path) => path.poll(),
            Self::Verbs(path) => Some(path.poll()?.copied()),
        }
    }

    /// As [`Self::poll`], and returns when the completion arrived.
    pub(crate) fn poll_stamped(&mut self) -> Option<(Completion, Arrival)> {
        match self {
            Self::Direct(path) => path.poll_stamped(),
            Self::Verbs(path) => Some((path.poll()?.copied(), Arrival::Unknown)),
        }
    }

    /// Returns when the next completion arrived, without taking it.
    pub(crate) fn arrival(&self) -> Arrival {
        match self {
            Self::Direct(path) => path.arrival(),
            Self::Verbs(_) => Arrival::Unknown,
        }
    }

    #[inline]
    pub(crate) fn poll_batch(&mut self, out: &mut [Completion]) -> usize {
        each!(self, path => path.poll_batch(out))
    }

    /// Arms the queue; `events_read` is the number of events read so far.
    ///
    /// # Errors
    /// The device's error number.
    pub(crate) fn arm(&mut self, arm: Arm, events_read: u32) -> Result<(), i32> {
        match self {
            Self::Direct(path) => {
                path.arm(arm, events_read);
                Ok(())
            }
            Self::Verbs(path) => path.arm(arm == Arm::Solicited),
        }
    }

    /// Attaches and detaches queue pairs. On the verbs path this happens at once.
    pub(crate) fn process_commands(&mut self) {
        match self {
            Self::Direct(path) => path.process_commands(),
            Self::Verbs(_) => {}
        }
    }

    pub(crate) fn counters(&self) -> PollerCounters {
        each!(self, path => path.counters())
    }

    /// Returns the part that creating queue pairs needs.
    pub(crate) fn side(&self) -> CqSide {
        match self {
            Self::Direct(path) => CqSide::Direct(Arc::clone(path.commands())),
            Self::Verbs(path) => CqSide::Verbs(path.completions().clone()),
        }
    }
}

/// A completion queue, as creating queue pairs needs it.
#[derive(Clone, Debug)]
pub(crate) enum CqSide {
    Direct(Arc<direct::CqCommandQueue>),
    Verbs(verbs::Completions),
}

impl CqSide {
    /// Returns whether there may be unpolled completions; on the verbs path this
    /// cannot be known.
    pub(crate) fn may_hold_any(&self) -> bool {
        match self {
            Self::Direct(commands) => commands.holds_any(),
            Self::Verbs(_) => true,
        }
    }
}

/// The posting side of a shared receive queue.
#[derive(Debug)]
pub(crate) enum SharedReceives {
    Direct(direct::SharedReceives),
    Verbs(verbs::SharedReceives),
}

impl SharedReceives {
    /// Returns the part that creating queue pairs needs.
    pub(crate) fn side(&self) -> SrqSide {
        match self {
            Self::Direct(path) => SrqSide::Direct(path.handle()),
            Self::Verbs(path) => SrqSide::Verbs(path.handle()),
        }
    }
}

/// A shared receive queue, as creating queue pairs needs it.
#[derive(Clone, Debug)]
pub(crate) enum SrqSide {
    Direct(direct::SharedReceivesHandle),
    Verbs(verbs::SharedReceivesHandle),
}

impl SrqSide {
    pub(crate) fn outstanding(&self) -> u32 {
        each!(self, path => path.outstanding())
    }
}

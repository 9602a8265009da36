//! The state flags of an EVD, and queries.

use core::sync::atomic::{AtomicU32, Ordering};

use dat_engine::wait::WaitCounters;

use super::Evd;
use super::streams::Attribute;
use crate::handle::Handle;
use crate::types::EvdFlags;

const DISABLED: u32 = 1 << 0;
const UNWAITABLE: u32 = 1 << 1;
const WAITED: u32 = 1 << 2;
const ABORTED: u32 = 1 << 3;
const FAILED: u32 = 1 << 4;
/// The bits from here on hold the attribute of the DTO streams, as a number.
const ATTRIBUTE_SHIFT: u32 = 8;

/// The state flags, which any thread may read.
#[derive(Debug, Default)]
pub(super) struct EvdState {
    states: AtomicU32,
    /// How often the EVD was made unwaitable: a waiter returns even if the EVD was made waitable
    /// again before the waiter ran.
    unwaitable_count: AtomicU32,
}

impl EvdState {
    #[inline(always)]
    fn is(&self, bit: u32) -> bool {
        self.states.load(Ordering::SeqCst) & bit != 0
    }

    fn set(&self, bit: u32) {
        self.states.fetch_or(bit, Ordering::SeqCst);
    }

    fn clear(&self, bit: u32) {
        self.states.fetch_and(!bit, Ordering::SeqCst);
    }

    /// Returns whether arriving events trigger the CNO.
    pub(super) fn is_enabled(&self) -> bool {
        !self.is(DISABLED)
    }

    /// Returns whether the EVD can be waited on.
    #[inline(always)]
    pub(super) fn is_waitable(&self) -> bool {
        !self.is(UNWAITABLE)
    }

    /// Returns how often the EVD was made unwaitable, modulo 2^32.
    pub(super) fn unwaitable_count(&self) -> u32 {
        self.unwaitable_count.load(Ordering::SeqCst)
    }

    /// Returns whether a thread blocks in a wait.
    #[inline(always)]
    pub(super) fn is_waited(&self) -> bool {
        self.is(WAITED)
    }

    pub(super) fn set_waited(&self, waited: bool) {
        if waited {
            self.set(WAITED);
        } else {
            self.clear(WAITED);
        }
    }

    /// Returns whether the EVD is being freed during a wait.
    pub(super) fn is_aborted(&self) -> bool {
        self.is(ABORTED)
    }

    pub(super) fn abort(&self) {
        self.set(ABORTED);
    }

    /// Returns whether one of its completion queues has failed.
    #[inline(always)]
    pub(super) fn has_failed(&self) -> bool {
        self.is(FAILED)
    }

    /// Returns whether a wait has to end for a reason other than being unwaitable.
    pub(super) fn has_ended(&self) -> bool {
        self.is(ABORTED | FAILED)
    }

    /// Returns the attribute of the DTO streams, if there are any.
    pub(super) fn attribute(&self) -> Option<Attribute> {
        Attribute::from_number(self.states.load(Ordering::Acquire) >> ATTRIBUTE_SHIFT)
    }

    pub(super) fn set_attribute(&self, attribute: Option<Attribute>) {
        let number = attribute.map_or(0, Attribute::number) << ATTRIBUTE_SHIFT;
        let others = (1 << ATTRIBUTE_SHIFT) - 1;
        // The only writer of these bits holds the lock of the attachments.
        let before = self.states.load(Ordering::Relaxed) & !others;
        self.states.fetch_xor(before ^ number, Ordering::AcqRel);
    }
}

/// What decides when a waiter of an EVD wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notification {
    /// Each completion, depending on how its request was posted (`CONFIG_NOTIFY`).
    PerPost,
    /// The peers, by solicited sends (`CONFIG_SOLICITED`).
    Solicited,
    /// The threshold of the wait (`CONFIG_THRESHOLD`).
    Threshold,
}

/// The result of `dat_evd_query`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvdInfo {
    /// The IA it belongs to.
    pub ia: Handle,
    /// The number of events that it holds.
    pub queue_length: u32,
    /// Whether arriving events trigger a CNO.
    pub enabled: bool,
    /// Whether it can be waited on.
    pub waitable: bool,
    /// How its data transfer streams notify; `None` as long as there are none.
    pub notification: Option<Notification>,
    /// The CNO that it triggers.
    pub cno: Option<Handle>,
    /// The streams that it may carry.
    pub flags: EvdFlags,
}

impl Evd {
    /// Returns its parameters and state.
    #[must_use]
    pub fn query(&self) -> EvdInfo {
        EvdInfo {
            ia: self.context.handle(),
            queue_length: self.queue_length(),
            enabled: self.state.is_enabled(),
            waitable: self.state.is_waitable(),
            notification: self.notification(),
            cno: self.binding.cno(),
            flags: self.flags,
        }
    }

    /// Returns how its DTO streams notify, if there are any.
    pub(super) fn notification(&self) -> Option<Notification> {
        Some(match self.state.attribute()? {
            Attribute::Default | Attribute::Unsignalled => Notification::PerPost,
            Attribute::Solicited => Notification::Solicited,
            Attribute::Threshold => Notification::Threshold,
        })
    }

    /// Returns whether it can be waited on.
    #[inline(always)]
    #[must_use]
    pub fn is_waitable(&self) -> bool {
        self.state.is_waitable()
    }

    /// Makes the EVD unwaitable: waits fail, and those in progress return at once.
    pub fn set_unwaitable(&self) {
        self.state.set(UNWAITABLE);
        self.state.unwaitable_count.fetch_add(1, Ordering::SeqCst);
        self.blocker.wake();
    }

    /// Makes the EVD waitable again.
    pub fn clear_unwaitable(&self) {
        self.state.clear(UNWAITABLE);
    }

    /// Makes arriving events trigger the CNO from now on, and those that arrived while the EVD was
    /// disabled.
    pub fn enable(&self) {
        if !self.state.is_enabled() {
            self.state.clear(DISABLED);
            self.rearm_for_cno();
        }
    }

    /// Stops arriving events from triggering the CNO.
    pub fn disable(&self) {
        self.state.set(DISABLED);
    }

    /// Marks the EVD as failed because a completion queue failed: dequeues fail, and waits return.
    pub(crate) fn fail(&self) {
        self.state.set(FAILED);
        self.posted.mark_failed();
        self.blocker.wake();
    }

    /// Returns the counters of waits.
    #[must_use]
    pub fn counters(&self) -> WaitCounters {
        self.counts.read()
    }
}

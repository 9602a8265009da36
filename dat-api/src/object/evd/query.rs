//! The states of an EVD, and what can be asked of it.

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
const DEAD: u32 = 1 << 4;
/// From here on: what the DTO streams are configured for, by number.
const ATTRIBUTE_SHIFT: u32 = 8;

/// The states, which any thread reads.
#[derive(Debug, Default)]
pub(super) struct Switches {
    states: AtomicU32,
    /// How often the EVD was made unwaitable: who waited meanwhile is told, even
    /// if it was made waitable again before he looked.
    closings: AtomicU32,
}

impl Switches {
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

    /// Whether arriving events trigger the CNO.
    pub(super) fn is_enabled(&self) -> bool {
        !self.is(DISABLED)
    }

    /// Whether one may wait on it.
    pub(super) fn is_waitable(&self) -> bool {
        !self.is(UNWAITABLE)
    }

    /// How often it was made unwaitable, modulo 2^32.
    pub(super) fn closings(&self) -> u32 {
        self.closings.load(Ordering::SeqCst)
    }

    /// Whether somebody blocks in a wait.
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

    /// Whether the EVD is being freed under a waiter.
    pub(super) fn is_aborted(&self) -> bool {
        self.is(ABORTED)
    }

    pub(super) fn abort(&self) {
        self.set(ABORTED);
    }

    /// Whether the device gave one of its queues up.
    #[inline(always)]
    pub(super) fn is_dead(&self) -> bool {
        self.is(DEAD)
    }

    /// Whether something ends a wait, other than being unwaitable.
    pub(super) fn is_over(&self) -> bool {
        self.is(ABORTED | DEAD)
    }

    /// What the DTO streams are configured for, if there are any.
    pub(super) fn attribute(&self) -> Option<Attribute> {
        Attribute::from_number(self.states.load(Ordering::Acquire) >> ATTRIBUTE_SHIFT)
    }

    pub(super) fn set_attribute(&self, attribute: Option<Attribute>) {
        let number = attribute.map_or(0, Attribute::number) << ATTRIBUTE_SHIFT;
        let others = (1 << ATTRIBUTE_SHIFT) - 1;
        // The only writer of these bits holds the ledger.
        let before = self.states.load(Ordering::Relaxed) & !others;
        self.states.fetch_xor(before ^ number, Ordering::AcqRel);
    }
}

/// What decides when a waiter of an EVD wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notification {
    /// Each completion as it was posted (`CONFIG_NOTIFY`).
    PerPost,
    /// The peers, with solicited sends (`CONFIG_SOLICITED`).
    Solicited,
    /// The threshold of the wait (`CONFIG_THRESHOLD`).
    Threshold,
}

/// What `dat_evd_query` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvdInfo {
    /// The IA it belongs to.
    pub ia: Handle,
    /// Events that it holds.
    pub queue_length: u32,
    /// Whether arriving events trigger a CNO.
    pub enabled: bool,
    /// Whether one may wait on it.
    pub waitable: bool,
    /// What the data transfer streams on it are configured for; nothing as long
    /// as there are none.
    pub notification: Option<Notification>,
    /// The CNO that it triggers.
    pub cno: Option<Handle>,
    /// The streams that it may carry.
    pub flags: EvdFlags,
}

impl Evd {
    /// What it is and how it is set.
    #[must_use]
    pub fn query(&self) -> EvdInfo {
        EvdInfo {
            ia: self.home.handle(),
            queue_length: self.queue_length(),
            enabled: self.switches.is_enabled(),
            waitable: self.switches.is_waitable(),
            notification: self.notification(),
            cno: self.feed.cno(),
            flags: self.flags,
        }
    }

    /// What the DTO streams on it are configured for, if there are any.
    pub(super) fn notification(&self) -> Option<Notification> {
        Some(match self.switches.attribute()? {
            Attribute::Default | Attribute::Unsignalled => Notification::PerPost,
            Attribute::Solicited => Notification::Solicited,
            Attribute::Threshold => Notification::Threshold,
        })
    }

    /// From now on nobody may wait: who waits returns at once.
    pub fn set_unwaitable(&self) {
        self.switches.set(UNWAITABLE);
        self.switches.closings.fetch_add(1, Ordering::SeqCst);
        self.blocker.wake();
    }

    /// One may wait again.
    pub fn clear_unwaitable(&self) {
        self.switches.clear(UNWAITABLE);
    }

    /// Arriving events trigger the CNO, from now on; and so do those that came
    /// while they did not.
    pub fn enable(&self) {
        if !self.switches.is_enabled() {
            self.switches.clear(DISABLED);
            self.return_to_cno();
        }
    }

    /// Arriving events trigger no CNO, from now on.
    pub fn disable(&self) {
        self.switches.set(DISABLED);
    }

    /// A completion queue of it failed: nothing can be taken from it any more,
    /// and who waits returns.
    pub(crate) fn kill(&self) {
        self.switches.set(DEAD);
        self.posted.note_dead();
        self.blocker.wake();
    }

    /// How waiting went so far.
    #[must_use]
    pub fn counters(&self) -> WaitCounters {
        self.counts.read()
    }
}

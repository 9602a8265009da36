//! What a device may do later than software expects.
//!
//! **Completion events.** A device may raise one interrupt for several completion
//! queues, long after the completions. Firing and delivering are separate here: a CQ
//! that has fired is no longer armed, and expects the next sequence number; the program
//! gets the event later.
//!
//! **Changes of memory keys.** A device may start the next request before it has
//! executed a UMR, unless a fence waits for it. Here a change waits for one round of
//! work. A request without a fence that starts meanwhile overtakes it, and the change
//! is then as late as the mode says. Completions stay in order.

use super::core::Core;
use crate::spec::{ChannelId, Cqn, Nanos};

/// The events that are not delivered yet.
#[derive(Debug, Default)]
pub(super) struct LateEvents {
    events: Vec<Late>,
    /// When the oldest is delivered even if the NIC is busy.
    due: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Late {
    channel: ChannelId,
    cqn: Cqn,
    user_handle: u64,
}

impl LateEvents {
    /// Returns when the events are due, if there are any.
    pub(super) fn due(&self) -> Option<Nanos> {
        (!self.events.is_empty()).then_some(self.due)
    }

    /// Drops the event of a CQ that is destroyed.
    pub(super) fn drop_events_of(&mut self, cqn: Cqn) {
        self.events.retain(|late| late.cqn != cqn);
    }
}

/// A change of a memory key that is not executed yet.
#[derive(Debug)]
pub(super) struct LateKey {
    pub(super) qpn: u32,
    pub(super) due: Nanos,
    /// Whether a round of work has passed.
    is_old: bool,
}

impl LateKey {
    pub(super) fn new(qpn: u32, due: Nanos) -> Self {
        Self {
            qpn,
            due,
            is_old: false,
        }
    }
}

impl Core {
    /// Delays the changes of a QP, since a request has overtaken them.
    pub(super) fn overtake_late_keys(&mut self, qpn: u32) {
        let Some(delay) = self.nasty.key_delay() else {
            return;
        };
        for late in self.late_keys.iter_mut().filter(|late| late.qpn == qpn) {
            late.due = self.now + delay;
        }
    }

    /// Removes a change that is due. Returns its QP.
    pub(super) fn take_late_key(&mut self, now: Nanos) -> Option<u32> {
        let mut late = self.late_keys.iter();
        let at = late.position(|late| late.is_old && late.due <= now)?;
        Some(self.late_keys.remove(at).qpn)
    }

    /// Records that a round of work has passed. Returns whether there are changes that
    /// the next round may execute.
    pub(super) fn age_late_keys(&mut self) -> bool {
        let mut aged = false;
        for late in &mut self.late_keys {
            aged |= !std::mem::replace(&mut late.is_old, true);
        }
        aged
    }

    /// Delivers the event of a CQ that has fired, or keeps it for later.
    pub(super) fn notify(&mut self, channel: ChannelId, cqn: Cqn, user_handle: u64) {
        let Some(delay) = self.nasty.event_delay(self.options.stepped) else {
            return self.events.completion(channel, cqn, user_handle);
        };
        let late = &mut self.late_events;
        if late.events.is_empty() {
            late.due = self.now + delay;
        }
        late.events.push(Late {
            channel,
            cqn,
            user_handle,
        });
    }

    /// Delivers the late events if they are due and the NIC has nothing else to do, or
    /// if they are overdue. Returns whether there were any.
    pub(super) fn deliver_late_events(&mut self, is_busy: bool) -> bool {
        /// The events wait for a busy NIC for as many times their delay.
        const PATIENCE: Nanos = 8;
        let Some(due) = self.late_events.due() else {
            return false;
        };
        let delay = self.nasty.event_delay(self.options.stepped).unwrap_or(0);
        let overdue = due + PATIENCE * delay;
        if self.now < due || (is_busy && (delay == 0 || self.now < overdue)) {
            return false;
        }
        for late in std::mem::take(&mut self.late_events.events) {
            self.events
                .completion(late.channel, late.cqn, late.user_handle);
        }
        true
    }
}

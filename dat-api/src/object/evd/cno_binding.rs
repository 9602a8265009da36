//! An EVD as its CNO uses it: polling it, and notifying the CNO.
//!
//! A CNO has no queue: a thread that waits on a CNO polls the EVDs that trigger it, owning each for
//! a moment. A poll is a trigger if [`Consumer`] has staged an event that notifies since the last
//! poll, or if the EVD was rearmed: it was bound to the CNO, was enabled, or a thread stopped
//! waiting on it. Posted events trigger at once, without a poll.
//!
//! [`Consumer`]: super::consumer::Consumer

use core::sync::atomic::{AtomicUsize, Ordering};

use dat_engine::CompletionChannel;
use dat_engine::sync::{Backoff, MutexGuard};
use dat_engine::wait::ChannelFds;

use super::Evd;
use super::attachments::Attachments;
use super::exclusive::open;
use super::streams::Attribute;
use crate::error::Result;
use crate::handle::{self, EvdChange, Handle, NotOwned};

/// Stored beside the handle, whose lowest bits are 0: rearmed, so that all events on the EVD
/// trigger at the next poll, however old they are.
const REARM: usize = 1;

/// Which CNO an EVD triggers: its handle, or 0; and [`REARM`]. One word, so that a poll for one
/// CNO does not clear the flag of another.
#[derive(Debug, Default)]
pub(super) struct CnoBinding(AtomicUsize);

impl CnoBinding {
    /// Returns whether there is a CNO.
    #[inline(always)]
    fn is_on(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }

    /// Returns the CNO.
    pub(super) fn cno(&self) -> Option<Handle> {
        Handle::from_bits(self.0.load(Ordering::SeqCst) & !REARM)
    }

    fn set(&self, cno: Option<Handle>) {
        let word = cno.map_or(0, |cno| cno.bits() | REARM);
        self.0.store(word, Ordering::SeqCst);
    }

    /// Rearms: all events that are there trigger at the next poll.
    fn rearm(&self) {
        let change = |word| (word != 0).then_some(word | REARM);
        let _ = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, change);
    }

    /// Begins a poll for this CNO. Returns whether the EVD was rearmed; `None` if the EVD is bound
    /// to another CNO.
    fn begin_poll(&self, cno: Handle) -> Option<bool> {
        let mut word = self.0.load(Ordering::SeqCst);
        loop {
            if word & !REARM != cno.bits() {
                return None;
            }
            if word & REARM == 0 {
                return Some(false);
            }
            let order = Ordering::SeqCst;
            match self.0.compare_exchange(word, word & !REARM, order, order) {
                Ok(_) => return Some(true),
                Err(now) => word = now,
            }
        }
    }
}

/// What a poll does besides looking for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollMode {
    /// Nothing. An EVD that another call owns is skipped.
    IfFree,
    /// Nothing. The poll waits for another call that owns the EVD.
    Wait,
    /// Arms the completion queues first.
    Arm,
    /// Takes the events of the device first.
    TakeEvents,
}

/// What a poll of an EVD has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PollResult {
    /// An event that triggers has arrived and is still there.
    pub(crate) fresh: bool,
    /// There are events.
    pub(crate) holds: bool,
    /// How many events there are up to the last one that triggers, whether or not it was reported as
    /// `fresh`.
    pub(crate) notifying: usize,
    /// Only events of the device say which completions notify, so spinning is useless.
    pub(crate) needs_device_events: bool,
    /// The device cannot be armed.
    pub(crate) failed: bool,
}

/// Polls an EVD for a CNO. Returns `None` if the EVD cannot trigger the CNO now: it is disabled, a
/// thread waits on it, it is bound to another CNO, or it is gone. The call that changes any of
/// these wakes the CNO.
///
/// An event is reported as `fresh` once.
pub(crate) fn poll_for_cno(cno: Handle, evd: Handle, mode: PollMode) -> Option<PollResult> {
    let mut backoff = Backoff::new();
    let mut owned = loop {
        match handle::own::<Evd>(evd) {
            Ok(owned) => break owned,
            Err(NotOwned::Stale) => return None,
            Err(NotOwned::Busy) if mode == PollMode::IfFree => return None,
            Err(NotOwned::Busy) => {}
        }
        if handle::pin::<Evd>(evd)?.state.is_waited() {
            return None;
        }
        backoff.wait();
    };
    let (evd, consumer) = open(&mut owned);
    if !evd.state.is_enabled() || evd.state.has_ended() {
        return None;
    }
    let rearmed = evd.binding.begin_poll(cno)?;
    let solicited = evd.state.attribute() == Some(Attribute::Solicited);
    let mut seen = PollResult {
        needs_device_events: solicited && !consumer.reports_solicited(),
        ..PollResult::default()
    };
    // As in a wait on the EVD: completions that come with an event of the device, or before the
    // device could have raised one, count as solicited.
    let mut evented = false;
    // An event that came while the EVD could not trigger this CNO is still there. Until it is
    // taken, the device ignores each arm as one from before the event.
    if rearmed || mode == PollMode::TakeEvents {
        match consumer.take_events() {
            Ok(count) => evented = count > 0,
            Err(error) => {
                tracing::error!("the completion events of a CNO's EVD cannot be read: {error}");
            }
        }
    }
    if mode == PollMode::Arm {
        seen.failed = !consumer.arm_all(solicited);
    }
    seen.failed |= consumer.is_cut_off;
    let found = consumer.gather(evd);
    let uncovered = found.completion && !consumer.is_covered;
    match mode {
        PollMode::Arm => consumer.is_covered = !seen.failed,
        _ => consumer.is_covered &= !evented,
    }
    let is_fresh = consumer.notice.take_fresh();
    let by_device = seen.needs_device_events && (evented || uncovered);
    if by_device {
        consumer.notice.count_all();
    }
    seen.holds = consumer.known(evd) > 0;
    seen.notifying = consumer.notifying(evd);
    seen.fresh = seen.holds && (is_fresh || rearmed || by_device);
    Some(seen)
}

impl Evd {
    /// Locks which CNO the EVD triggers, so that it can be changed.
    pub(crate) fn cno_binding(&self) -> CnoBindingGuard<'_> {
        CnoBindingGuard {
            binding: &self.binding,
            attachments: self.attachments(),
        }
    }

    /// Unbinds the EVD, which no handle names any more, from its CNO.
    pub(super) fn leave_cno(&self) {
        let binding = self.cno_binding();
        let Some(cno) = binding.cno() else { return };
        binding.set(None);
        let freed = EvdChange::Freed(binding.channel());
        self.report_change(cno, freed);
    }

    /// Notifies the CNO of a posted event, when no thread waits on the EVD itself.
    #[inline]
    pub(super) fn notify(&self) {
        if self.binding.is_on() && self.state.is_enabled() {
            self.notify_cno(EvdChange::Triggered);
        }
    }

    /// Makes a thread that waits on the CNO poll the EVD and arm it: its state has changed without
    /// an event.
    pub(crate) fn wake_cno_poller(&self) {
        if self.binding.is_on() {
            self.notify_cno(EvdChange::Look);
        }
    }

    /// Rearms the EVD: it triggers again, also for the events that are there.
    #[inline]
    pub(super) fn rearm_for_cno(&self) {
        if self.binding.is_on() {
            self.binding.rearm();
            self.notify_cno(EvdChange::Look);
        }
    }

    /// Reports a change that cannot fail to the CNO.
    #[cold]
    #[inline(never)]
    fn notify_cno(&self, change: EvdChange<'_>) {
        if let Some(cno) = self.binding.cno() {
            self.report_change(cno, change);
        }
    }

    fn report_change(&self, cno: Handle, change: EvdChange<'_>) {
        let result = (cno.upcalls().evd_changed)(cno, self.handle, change);
        debug_assert!(result.is_ok(), "only EvdChange::Channel can fail");
    }

    /// Makes the CNO wait on this completion channel from now on. The caller has locked the
    /// attachments.
    ///
    /// # Errors
    /// Resources.
    pub(super) fn announce_channel(&self, channel: ChannelFds<'_>) -> Result<()> {
        match self.binding.cno() {
            Some(cno) => (cno.upcalls().evd_changed)(cno, self.handle, EvdChange::Channel(channel)),
            None => Ok(()),
        }
    }
}

/// Which CNO an EVD triggers. No other call changes that, nor the channel of the EVD, while this
/// lives.
pub(crate) struct CnoBindingGuard<'a> {
    binding: &'a CnoBinding,
    attachments: MutexGuard<'a, Attachments>,
}

impl CnoBindingGuard<'_> {
    /// Returns the CNO.
    pub(crate) fn cno(&self) -> Option<Handle> {
        self.binding.cno()
    }

    /// Returns the completion channel of the EVD, if it has one yet.
    pub(crate) fn channel(&self) -> Option<ChannelFds<'_>> {
        self.attachments
            .channel
            .as_ref()
            .map(CompletionChannel::fds)
    }

    /// Binds the EVD to another CNO, or to none.
    pub(crate) fn set(&self, cno: Option<Handle>) {
        self.binding.set(cno);
    }
}

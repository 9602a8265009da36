//! An EVD as its CNO sees it: what a look at it brings, and when the CNO is told.
//!
//! A CNO has no queue: who waits on it looks at the EVDs that feed it, each
//! owned for a moment. What makes a look a trigger is [`Consumer`]'s note that
//! something that notifies was staged since the last; or that the EVD is to be
//! looked at afresh: it began to feed the CNO, was enabled, or was the direct
//! waiter's until now. Events that others post trigger at once, without a look.
//!
//! [`Consumer`]: super::consumer::Consumer

use core::sync::atomic::{AtomicUsize, Ordering};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::MutexGuard;

use super::Evd;
use super::exclusive::open;
use super::ledger::Ledger;
use super::streams::Attribute;
use super::take::pause;
use crate::error::Result;
use crate::handle::{self, EvdChange, Handle, NotOwned};

/// Beside the handle, whose lowest bits are 0: everything on the EVD counts at
/// the next look, however long it has been there.
const AFRESH: usize = 1;

/// Which CNO an EVD feeds: its handle, or 0; and [`AFRESH`]. One word, so that
/// a look for one CNO takes nothing from another.
#[derive(Debug, Default)]
pub(super) struct Feed(AtomicUsize);

impl Feed {
    /// Whether there is a CNO.
    #[inline(always)]
    fn is_on(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }

    /// The CNO.
    pub(super) fn cno(&self) -> Option<Handle> {
        Handle::from_bits(self.0.load(Ordering::SeqCst) & !AFRESH)
    }

    fn set(&self, cno: Option<Handle>) {
        let word = cno.map_or(0, |cno| cno.bits() | AFRESH);
        self.0.store(word, Ordering::SeqCst);
    }

    /// All that is there counts at the next look.
    fn refresh(&self) {
        let change = |word| (word != 0).then_some(word | AFRESH);
        let _ = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, change);
    }

    /// For a look by this CNO: whether all that is there counts. Nothing if it
    /// is not the one that is fed.
    fn begin_look(&self, cno: Handle) -> Option<bool> {
        let mut word = self.0.load(Ordering::SeqCst);
        loop {
            if word & !AFRESH != cno.bits() {
                return None;
            }
            if word & AFRESH == 0 {
                return Some(false);
            }
            let order = Ordering::SeqCst;
            match self.0.compare_exchange(word, word & !AFRESH, order, order) {
                Ok(_) => return Some(true),
                Err(now) => word = now,
            }
        }
    }
}

/// What a look does beside looking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Nothing. An EVD that somebody else has just now is passed over.
    Glance,
    /// Nothing; who has the EVD just now is waited for.
    Look,
    /// Asks the device for events first.
    Arm,
    /// Takes the device's events first.
    TakeEvents,
}

/// What a look at an EVD has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Something has come that triggers, and is there still.
    pub(crate) fresh: bool,
    /// There are events.
    pub(crate) holds: bool,
    /// Only events of the device tell what notifies: no use in spinning.
    pub(crate) blind: bool,
    /// The device cannot be asked for events.
    pub(crate) failed: bool,
}

/// Looks at an EVD for a CNO. Nothing if the EVD does not trigger it now: it is
/// disabled, a thread waits on it, it feeds another, or is gone. Whoever changes
/// that wakes the CNO.
///
/// What the look calls fresh it will not call so again.
pub(crate) fn look(cno: Handle, evd: Handle, task: Task) -> Option<Seen> {
    let mut round = 0;
    let mut owned = loop {
        match handle::own::<Evd>(evd) {
            Ok(owned) => break owned,
            Err(NotOwned::Stale) => return None,
            Err(NotOwned::Busy) if task == Task::Glance => return None,
            Err(NotOwned::Busy) => {}
        }
        if handle::pin::<Evd>(evd)?.switches.is_waited() {
            return None;
        }
        pause(round);
        round += 1;
    };
    let (evd, consumer) = open(&mut owned);
    if !evd.switches.is_enabled() || evd.switches.is_over() {
        return None;
    }
    let afresh = evd.feed.begin_look(cno)?;
    let solicited = evd.switches.attribute() == Some(Attribute::Solicited);
    let mut seen = Seen {
        blind: solicited && !consumer.tells_solicited(),
        ..Seen::default()
    };
    // As in a wait on the EVD: what comes with an event of the device, or before
    // the device could have raised one, counts as solicited.
    let mut evented = false;
    match task {
        Task::Glance | Task::Look => {}
        Task::Arm => seen.failed = !consumer.arm_all(solicited),
        Task::TakeEvents => match consumer.take_events() {
            Ok(count) => evented = count > 0,
            Err(error) => tracing::error!("the events of an EVD cannot be taken: {error}"),
        },
    }
    seen.failed |= consumer.is_cut_off;
    let found = consumer.gather(evd);
    let uncovered = found.completion && !consumer.is_covered;
    match task {
        Task::Arm => consumer.is_covered = !seen.failed,
        _ => consumer.is_covered &= !evented,
    }
    let news = consumer.take_news();
    seen.holds = consumer.known(evd) > 0;
    seen.fresh = seen.holds && (news || afresh || seen.blind && (evented || uncovered));
    Some(seen)
}

impl Evd {
    /// Returns which CNO the EVD feeds, to be changed.
    pub(crate) fn cno_binding(&self) -> CnoBinding<'_> {
        CnoBinding {
            feed: &self.feed,
            ledger: self.ledger(),
        }
    }

    /// The EVD is gone: nobody finds it any more.
    pub(super) fn leave_cno(&self) {
        let binding = self.cno_binding();
        let Some(cno) = binding.cno() else { return };
        binding.set(None);
        let freed = EvdChange::Freed(binding.channel());
        self.report_change(cno, freed);
    }

    /// An event was posted, with nobody waiting on the EVD itself.
    #[inline]
    pub(super) fn notify(&self) {
        if self.feed.is_on() && self.switches.is_enabled() {
            self.tell_cno(EvdChange::Triggered);
        }
    }

    /// Who waits on the CNO is to look at the EVD, and to ask the device for its
    /// events: something has changed that no event tells of.
    pub(crate) fn call_cno(&self) {
        if self.feed.is_on() {
            self.tell_cno(EvdChange::Look);
        }
    }

    /// The EVD triggers again, also for what is there.
    #[inline]
    pub(super) fn return_to_cno(&self) {
        if self.feed.is_on() {
            self.feed.refresh();
            self.tell_cno(EvdChange::Look);
        }
    }

    /// Tells the CNO of a change that it cannot refuse.
    #[cold]
    #[inline(never)]
    fn tell_cno(&self, change: EvdChange<'_>) {
        if let Some(cno) = self.feed.cno() {
            self.report_change(cno, change);
        }
    }

    fn report_change(&self, cno: Handle, change: EvdChange<'_>) {
        let told = (cno.upcalls().evd_changed)(cno, self.handle, change);
        debug_assert!(told.is_ok(), "only a channel can be refused");
    }

    /// The events of the device come on this channel from now on: the CNO has to
    /// wait on it. The caller has locked the ledger.
    ///
    /// # Errors
    /// Resources.
    pub(super) fn show_channel(&self, channel: BorrowedFd<'_>) -> Result<()> {
        match self.feed.cno() {
            Some(cno) => (cno.upcalls().evd_changed)(cno, self.handle, EvdChange::Channel(channel)),
            None => Ok(()),
        }
    }
}

/// Which CNO an EVD feeds. No other call changes it, nor the channel of the EVD,
/// while this lives.
pub(crate) struct CnoBinding<'a> {
    feed: &'a Feed,
    ledger: MutexGuard<'a, Ledger>,
}

impl CnoBinding<'_> {
    /// The CNO.
    pub(crate) fn cno(&self) -> Option<Handle> {
        self.feed.cno()
    }

    /// Where the device's events of the EVD come, if there is a place yet.
    pub(crate) fn channel(&self) -> Option<BorrowedFd<'_>> {
        self.ledger.channel.as_ref().map(AsFd::as_fd)
    }

    /// Has the EVD feed another CNO, or none.
    pub(crate) fn set(&self, cno: Option<Handle>) {
        self.feed.set(cno);
    }
}

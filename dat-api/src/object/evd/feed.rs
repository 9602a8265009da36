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
use std::sync::Arc;

use super::Evd;
use super::exclusive::open;
use super::streams::Attribute;
use super::take::pause;
use crate::error::{DatError, Result};
use crate::handle::{self, Handle, NotOwned};
use crate::object::cno::Cno;
use crate::object::usage::Use;
use crate::status::{ReturnType, Subtype};

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
    /// Lets the EVD trigger this CNO, or none. Events that are there trigger it.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE_CNO` if the CNO belongs to another IA, or is being
    /// freed; resources. The EVD feeds the CNO that it has fed then.
    pub fn set_cno(&self, cno: Option<&Arc<Cno>>) -> Result<()> {
        let new = cno.map(|cno| self.accept(cno)).transpose()?;
        let mut ledger = self.ledger();
        if let Some(new) = &new {
            if ledger
                .cno
                .as_ref()
                .is_some_and(|old| Arc::ptr_eq(old.arc(), new.arc()))
            {
                return Ok(());
            }
            let channel = ledger.channel.as_ref().map(AsFd::as_fd);
            new.attach(self.handle, channel)?;
        }
        self.feed.set(cno.map(|cno| cno.handle()));
        let old = core::mem::replace(&mut ledger.cno, new);
        if let Some(old) = &old {
            old.detach(self.handle, ledger.channel.as_ref().map(AsFd::as_fd), false);
        }
        drop(ledger);
        self.call_cno();
        Ok(())
    }

    fn accept(&self, cno: &Arc<Cno>) -> Result<Use<Cno>> {
        let refused =
            |cause| DatError::new(ReturnType::InvalidHandle, Subtype::InvalidHandleCno, cause);
        if !Arc::ptr_eq(cno.ia(), self.ia()) {
            return Err(refused("the CNO belongs to another IA"));
        }
        Use::of(cno).ok_or_else(|| refused("the CNO is being freed"))
    }

    /// The EVD is gone: nobody finds it any more.
    pub(super) fn leave_cno(&self) {
        let mut ledger = self.ledger();
        self.feed.set(None);
        let cno = ledger.cno.take();
        if let Some(cno) = &cno {
            cno.detach(self.handle, ledger.channel.as_ref().map(AsFd::as_fd), true);
        }
        drop(ledger);
    }

    /// An event was posted, with nobody waiting on the EVD itself.
    #[inline]
    pub(super) fn notify(&self) {
        if self.feed.is_on() && self.switches.is_enabled() {
            self.with_cno(|cno| cno.trigger(self.handle));
        }
    }

    /// Who waits on the CNO is to look at the EVD, and to ask the device for its
    /// events: something has changed that no event tells of.
    pub(super) fn call_cno(&self) {
        if self.feed.is_on() {
            self.with_cno(Cno::call);
        }
    }

    /// The EVD triggers again, also for what is there.
    #[inline]
    pub(super) fn return_to_cno(&self) {
        if self.feed.is_on() {
            self.feed.refresh();
            self.with_cno(Cno::call);
        }
    }

    #[cold]
    #[inline(never)]
    fn with_cno(&self, call: impl FnOnce(&Cno)) {
        // What it feeds is not freed; but an IA that is being closed does not ask.
        if let Some(cno) = self.feed.cno().and_then(handle::pin::<Cno>) {
            call(&cno);
        }
    }
}

/// A channel's descriptor, of whoever has one.
pub(super) fn watch(cno: Option<&Use<Cno>>, channel: BorrowedFd<'_>, evd: Handle) -> Result<()> {
    match cno {
        Some(cno) => cno.watch(channel, evd),
        None => Ok(()),
    }
}

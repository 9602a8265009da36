//! The usual dequeue: a completion that went well, in the only queue, of an
//! endpoint that need not see it. It goes from there to the consumer. Nothing
//! here is called out of line, and nothing is taken that is not handed out, so
//! that whatever else there is can be left to who looks everywhere.

use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;

use dat_engine::CompletionOp;

use super::Evd;
use super::convert::{NOTED_LENGTH, count_taken};
use super::exclusive::open;
use super::queue::{Glance, Look, Queue, Ready, Written};
use crate::handle::{Handle, Owned};
use crate::object::ep::Needs;
use crate::types::{DtoStatus, Event, EventData};

/// How the next event of an EVD can be had.
pub enum First {
    /// There is none.
    Empty,
    /// [`Found::take`] may have it.
    Found(Found),
    /// [`super::dequeue_any`] may have it.
    Elsewhere(Owned<Evd>),
}

/// A completion in the only queue of an EVD.
pub struct Found {
    /// What `written` refers to lives, and nobody else gets at it, while this is
    /// there.
    owned: Owned<Evd>,
    written: Written<'static>,
}

/// Where a [`Found`] lies. It can do nothing but become one again: apart from
/// the ownership of its EVD what it refers to may be another thread's, so it is
/// kept as bytes, of which nothing is assumed.
pub struct Place(MaybeUninit<Written<'static>>);

/// Looks where the next event usually is.
#[inline(always)]
pub fn first(mut owned: Owned<Evd>) -> First {
    let (evd, consumer) = open(&mut owned);
    if !evd.posted.is_usual() {
        return First::Elsewhere(owned);
    }
    debug_assert!(consumer.is_usual());
    let queues: *mut Queue = consumer.queues.as_mut_ptr();
    // SAFETY: there is one: the owner of the EVD, which is our caller, has said
    // so in the word that was just asked, and is the only one to change both. It
    // stays where it is as long as the EVD is owned, by what we answer, or by
    // nobody.
    let queue = unsafe { &mut *queues };
    // SAFETY: that was said of it too.
    unsafe { core::hint::assert_unchecked(queue.can_glance()) };
    match queue.glance() {
        Glance::Empty => First::Empty,
        Glance::Written(written) => First::Found(Found { owned, written }),
        Glance::Other => First::Elsewhere(owned),
    }
}

impl Found {
    /// Splits it into its parts, which fit two and one registers, where the
    /// whole would go through memory.
    #[inline(always)]
    #[must_use]
    pub fn into_parts(self) -> (Owned<Evd>, Place) {
        (self.owned, Place(MaybeUninit::new(self.written)))
    }

    /// Puts together what [`Self::into_parts`] has split.
    ///
    /// # Safety
    /// The parts come from one call of it.
    #[inline(always)]
    #[must_use]
    pub unsafe fn from_parts(owned: Owned<Evd>, place: Place) -> Self {
        // SAFETY: `into_parts` has made it of one, whose EVD is owned still.
        let written = unsafe { place.0.assume_init() };
        Self { owned, written }
    }

    /// Takes it and hands the event to `found`, for callers that put it
    /// somewhere else, and would rather not have it pass through memory first.
    ///
    /// # Errors
    /// It takes a closer look: that is for [`super::dequeue_any`]. Nothing is
    /// done.
    #[inline(always)]
    pub fn take<R>(self, found: impl FnOnce(Event) -> R) -> Result<R, Owned<Evd>> {
        let Self { owned, written } = self;
        let data = match written.look() {
            Look::Received(ready) => received(ready),
            Look::Done(ready) => done(ready),
            Look::Other => None,
        };
        match data {
            Some(data) => Ok(found(Event {
                evd: owned.handle(),
                data,
            })),
            None => Err(owned),
        }
    }
}

/// Hands a receive to the consumer, unless somebody else has to see it.
#[inline(always)]
fn received(ready: Ready<'_>) -> Option<EventData> {
    // SAFETY: the context of an endpoint's queue is the endpoint's handle.
    let (ep, slot) = unsafe { Handle::known(ready.context() as usize) };
    let meters = slot.meters();
    let needs = Needs(meters.third.load(Ordering::Relaxed));
    if !needs.are_none() {
        // The endpoint holds no more than what is in the queue: nothing of it is
        // staged.
        if ready.has_behind(needs.too_many_behind()?) {
            return None;
        }
    }
    let link = meters.link.load(Ordering::Relaxed) as usize;
    if link != 0 {
        // SAFETY: it is the handle of the SRQ.
        let (_, srq) = unsafe { Handle::known(link) };
        // It has a low watermark.
        if srq.meters().first.load(Ordering::Relaxed) != 0 {
            return None;
        }
    }
    let (cookie, length) = ready.take_received()?;
    count_taken(meters);
    Some(EventData::Dto {
        ep,
        cookie,
        status: DtoStatus::Success,
        length: length.into(),
    })
}

/// Hands a request to the consumer, unless somebody else has to see it.
#[inline(always)]
fn done(ready: Ready<'_>) -> Option<EventData> {
    // SAFETY: as above.
    let (ep, slot) = unsafe { Handle::known(ready.context() as usize) };
    let needs = Needs(slot.meters().third.load(Ordering::Relaxed));
    let is_transfer = matches!(
        ready.op(),
        Some(CompletionOp::Send | CompletionOp::Write | CompletionOp::Read)
    );
    if needs.look() || !is_transfer {
        return None;
    }
    let (cookie, note) = ready.take_done();
    Some(EventData::Dto {
        ep,
        cookie,
        status: DtoStatus::Success,
        length: (note & NOTED_LENGTH).into(),
    })
}

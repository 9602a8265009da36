//! The fast path of taking an event: one word says that nothing is posted or
//! staged and that completions come in one completion queue of the direct path.
//! The next CQE of that queue then is the next event, unless its endpoint has to
//! see it first. It goes from there to the consumer. Nothing is consumed that
//! is not handed out, so everything else can be left to the slow path
//! ([`super::dequeue_slow`]). Nothing here is called out of line.

use core::ptr::NonNull;

use super::Evd;
use super::consumer::Consumer;
use super::convert::{event, is_consumers};
use super::exclusive::open;
use super::queue::{Cqe, Queue};
use crate::handle::{Handle, Owned};
use crate::types::{DtoStatus, Event, EventData};

/// Only the slow path can tell.
pub(super) struct Slow;

/// A CQE that the device has written, in the only completion queue of an EVD.
///
/// Two words, so that it can be passed to a function out of line in registers.
pub struct Found {
    owned: Owned<Evd>,
    /// The queue of `owned`. A pointer: a reference in an argument would say that
    /// nothing else uses the queue before the function returns, but the EVD is
    /// given back inside of it.
    queue: NonNull<Queue>,
}

/// Takes the next event on the fast path; `None` if there is none.
///
/// # Errors
/// The slow path has to look ([`super::dequeue_slow`]). Nothing is done.
#[inline(always)]
pub fn next_fast(mut owned: Owned<Evd>) -> Result<Option<Event>, Owned<Evd>> {
    let handle = owned.handle();
    let (evd, consumer) = open(&mut owned);
    match consumer.next_fast(evd) {
        Ok(data) => Ok(data.map(|data| Event { evd: handle, data })),
        Err(Slow) => Err(owned),
    }
}

/// The first half of [`next_fast`]: looks for a CQE. For a caller that leaves
/// the second half, [`Found::take`], to a function out of line, because finding
/// nothing needs fewer registers.
///
/// # Errors
/// As [`next_fast`].
#[inline(always)]
pub fn peek(mut owned: Owned<Evd>) -> Result<Option<Found>, Owned<Evd>> {
    let (evd, consumer) = open(&mut owned);
    let Ok(queue) = consumer.fast_queue(evd) else {
        return Err(owned);
    };
    if !queue.has_cqe() {
        return Ok(None);
    }
    let queue = NonNull::from(queue);
    Ok(Some(Found { owned, queue }))
}

impl Found {
    /// Takes the event and hands it to `with`, for callers that put it somewhere
    /// else, and would rather not have it pass through memory first.
    ///
    /// # Errors
    /// The slow path has to take it ([`super::dequeue_slow`]). Nothing is done.
    #[inline(always)]
    pub fn take<R>(self, with: impl FnOnce(Event) -> R) -> Result<R, Owned<Evd>> {
        let Self { owned, mut queue } = self;
        // SAFETY: the queue belongs to the EVD, which has been owned since `peek`
        // made the pointer: it is where it was, and nothing else uses it.
        let queue = unsafe { queue.as_mut() };
        // SAFETY: `peek` has seen a CQE, and its owner has consumed none since.
        let cqe = unsafe { queue.peek_unchecked() };
        match take_fast(cqe) {
            Some(data) => Ok(with(Event {
                evd: owned.handle(),
                data,
            })),
            None => Err(owned),
        }
    }
}

/// The endpoint of a CQE that [`take_fast`] takes; `None` if the slow path has
/// to. Nothing is consumed.
#[inline(always)]
fn fast_receiver(cqe: &Cqe<'_>) -> Option<Handle> {
    let (op, context) = (cqe.op()?, cqe.context()?);
    // SAFETY: the context of an endpoint's queue is the endpoint's handle.
    let (ep, slot) = unsafe { Handle::known(context as usize) };
    is_consumers(slot.meters(), op, |many| cqe.has_behind(many)).then_some(ep)
}

/// Consumes a CQE and hands its event to the consumer. Nothing is done if the
/// slow path has to take it.
#[inline(always)]
fn take_fast(cqe: Cqe<'_>) -> Option<EventData> {
    let ep = fast_receiver(&cqe)?;
    let completion = cqe.consume()?;
    Some(event(&completion, ep, DtoStatus::Success))
}

impl Consumer {
    /// The only completion queue, if it alone can have the next event, and its
    /// CQEs can be looked at.
    #[inline(always)]
    fn fast_queue(&mut self, evd: &Evd) -> Result<&mut Queue, Slow> {
        if !evd.posted.allows_fast_path() {
            return Err(Slow);
        }
        debug_assert!(self.allows_fast_path());
        // SAFETY: there is one: the owner of the EVD has said so in the word that
        // was just asked, and only the owner changes either.
        let queue = unsafe { self.queues.get_unchecked_mut(0) };
        // SAFETY: that was said of it too.
        unsafe { core::hint::assert_unchecked(queue.can_peek()) };
        Ok(queue)
    }

    /// Takes the next event on the fast path; `None` if there is none.
    #[inline(always)]
    fn next_fast(&mut self, evd: &Evd) -> Result<Option<EventData>, Slow> {
        match self.fast_queue(evd)?.peek() {
            None => Ok(None),
            Some(cqe) => take_fast(cqe).map(Some).ok_or(Slow),
        }
    }

    /// Whether there is an event that [`Self::next_fast`] takes. Nothing is
    /// consumed.
    #[inline]
    pub(super) fn has_fast(&mut self, evd: &Evd) -> Result<bool, Slow> {
        match self.fast_queue(evd)?.peek() {
            None => Ok(false),
            Some(cqe) => fast_receiver(&cqe).map(|_| true).ok_or(Slow),
        }
    }

    /// The next event, if there is one: the fast path, then the slow path.
    #[inline]
    pub(super) fn next_event(&mut self, evd: &Evd) -> Option<EventData> {
        match self.next_fast(evd) {
            Ok(event) => event,
            Err(Slow) => self.next_slow(evd, |data| data),
        }
    }
}

//! The fast path of taking an event: one word says that nothing is posted or
//! staged and that completions come in one completion queue of the direct path.
//! The next CQE of that queue then is the next event, unless its endpoint has to
//! see it first. It goes from there to the consumer. Nothing is consumed that
//! is not handed out, so everything else can be left to the slow path
//! ([`super::dequeue_slow`]). Nothing here is called out of line.

use core::ptr::NonNull;

use dat_engine::CqeKind;

use super::Evd;
use super::consumer::Consumer;
use super::convert::{self, needs, requested_length, transfer};
use super::exclusive::open;
use super::queue::{Cqe, Queue};
use crate::handle::{Handle, Owned, Slot};
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

/// Looks for the next event on the fast path: a CQE. `None` if there is none.
/// The caller goes on with [`Found::take`], which it may leave to a function out
/// of line, because finding nothing needs fewer registers.
///
/// # Errors
/// The slow path has to look ([`super::dequeue_slow`]).
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

/// The endpoint of a CQE, and its slot; `None` if the slow path has to find it.
#[inline(always)]
fn receiver(cqe: &Cqe<'_>) -> Option<(Handle, &'static Slot)> {
    let context = cqe.context()?;
    // SAFETY: the context of an endpoint's queue is the endpoint's handle.
    Some(unsafe { Handle::known(context as usize) })
}

/// Whether a receive is the consumer's alone: its endpoint and SRQ need not see
/// it. No closures here: LLVM calls one that it does not inline, and then saves
/// registers for the call on every dequeue.
#[inline(always)]
fn is_recv_consumers(cqe: &Cqe<'_>, slot: &Slot) -> bool {
    let needs = needs(slot.meters());
    if !needs.are_none() {
        // With a high watermark, the endpoint holds no more than what is in the
        // queue: on the fast path nothing of it is staged.
        match needs.too_many_behind() {
            Some(many) if !cqe.has_behind(many) => {}
            _ => return false,
        }
    }
    slot.armed_srq().is_none()
}

/// Whether a request is the consumer's alone.
#[inline(always)]
fn is_request_consumers(cqe: &Cqe<'_>, slot: &Slot) -> bool {
    match cqe.request_op() {
        Some(op) => convert::is_request_consumers(slot.meters(), op),
        None => false,
    }
}

/// Consumes a CQE and hands its event to the consumer. Nothing is done if the
/// slow path has to take it.
///
/// The kinds go different ways to the end: where they meet before, LLVM asks
/// for the kind again.
#[inline(always)]
fn take_fast(cqe: Cqe<'_>) -> Option<EventData> {
    match cqe.kind() {
        CqeKind::Recv => {
            let (ep, slot) = receiver(&cqe)?;
            if !is_recv_consumers(&cqe, slot) {
                return None;
            }
            let (wr_id, length) = cqe.consume_recv()?;
            Some(transfer(ep, wr_id, DtoStatus::Success, length))
        }
        CqeKind::Request => {
            let (ep, slot) = receiver(&cqe)?;
            if !is_request_consumers(&cqe, slot) {
                return None;
            }
            let (wr_id, note) = cqe.consume_request()?;
            Some(transfer(
                ep,
                wr_id,
                DtoStatus::Success,
                requested_length(note),
            ))
        }
        CqeKind::Other => None,
    }
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
        let Some(cqe) = self.fast_queue(evd)?.peek() else {
            return Ok(false);
        };
        let (_, slot) = receiver(&cqe).ok_or(Slow)?;
        let is_consumers = match cqe.kind() {
            CqeKind::Recv => is_recv_consumers(&cqe, slot),
            CqeKind::Request => is_request_consumers(&cqe, slot),
            CqeKind::Other => false,
        };
        if is_consumers { Ok(true) } else { Err(Slow) }
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

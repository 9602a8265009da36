//! The fast path of dequeuing. One word says that nothing is posted or staged, and that completions
//! come from one completion queue of the direct path. The next CQE of that queue is then the next
//! event, unless its endpoint has to see the completion first. A CQE is consumed only if its event
//! is handed out; everything else is left to the slow path ([`super::dequeue_slow`]). No function
//! here makes an out-of-line call.
//!
//! Decision: `docs/decisions/010-one-look-at-a-cqe.md`

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, Ordering};

use dat_engine::CqeKind;

use super::consumer::Consumer;
use super::convert::{self, hooks, requested_length, transfer};
use super::exclusive::open;
use super::{Cqe, Evd, Queue};
use crate::handle::{Handle, Owned, Slot};
use crate::status::DatReturn;
use crate::types::{DtoOperation, DtoStatus, Event, EventData};

/// The slow path has to decide.
pub(super) struct Slow;

/// A CQE that the device has written, in the only completion queue of an EVD.
///
/// Two words, so that it can be passed to an out-of-line function in registers.
pub struct PeekedEvent {
    owned: Owned<Evd>,
    /// The queue of `owned`. It is a pointer because a reference in an argument would promise that
    /// nothing else uses the queue until the function returns, but the EVD is released inside the
    /// function.
    queue: NonNull<Queue>,
}

/// Looks for the next CQE on the fast path. Returns the code for an empty EVD if there is none. The
/// caller goes on with [`PeekedEvent::take`], possibly in an out-of-line function, because the empty
/// case needs fewer registers.
///
/// # Errors
/// The EVD: the slow path has to look ([`super::dequeue_slow`]).
#[inline(always)]
pub fn peek(mut owned: Owned<Evd>) -> Result<Result<PeekedEvent, DatReturn>, Owned<Evd>> {
    let (evd, consumer) = open(&mut owned);
    let Ok(queue) = consumer.fast_queue(evd) else {
        return Err(owned);
    };
    if !queue.has_cqe() {
        return Ok(Err(evd.empty));
    }
    let queue = NonNull::from(queue);
    Ok(Ok(PeekedEvent { owned, queue }))
}

impl PeekedEvent {
    /// Takes the event and passes it to `with`, which can store it without a copy in memory.
    ///
    /// # Errors
    /// The EVD, with nothing consumed: the slow path has to take the event
    /// ([`super::dequeue_slow`]).
    #[inline(always)]
    pub fn take<R>(mut self, with: impl FnOnce(Event) -> R) -> Result<R, Owned<Evd>> {
        self.consume(with).ok_or(self.owned)
    }

    /// Takes the event as [`Self::take`] does. Returns what `with` returns, and how many events are
    /// left.
    ///
    /// # Errors
    /// As [`Self::take`].
    #[inline(always)]
    pub fn take_counted<R>(
        mut self,
        with: impl FnOnce(Event) -> R,
    ) -> Result<(R, u32), Owned<Evd>> {
        let Some(result) = self.consume(with) else {
            return Err(self.owned);
        };
        // SAFETY: as in `consume`.
        let queue = unsafe { self.queue.as_mut() };
        // SAFETY: as in `fast_queue`.
        unsafe { core::hint::assert_unchecked(queue.can_peek()) };
        let written = queue.written();
        let (evd, consumer) = open(&mut self.owned);
        match written {
            Some(left) if evd.is_all_in_queue() => Ok((result, left)),
            _ => Ok((result, consumer.count(evd))),
        }
    }

    #[inline(always)]
    fn consume<R>(&mut self, with: impl FnOnce(Event) -> R) -> Option<R> {
        // SAFETY: the queue belongs to the EVD, which has been owned since `peek` made the pointer:
        // it has not moved, and nothing else uses it.
        let queue = unsafe { self.queue.as_mut() };
        // SAFETY: `peek` has seen a CQE, and the owner has consumed none since.
        let cqe = unsafe { queue.peek_unchecked() };
        let evd = self.owned.handle();
        take_fast(cqe, |data| with(Event { evd, data }))
    }
}

/// Returns the endpoint of a CQE, and its slot; `None` if the slow path has to find it.
#[inline(always)]
fn receiver(cqe: &Cqe<'_>) -> Option<(Handle, &'static Slot)> {
    let context = cqe.context()?;
    // SAFETY: the context of an endpoint's queue pair is the endpoint's handle.
    Some(unsafe { Handle::known(context as usize) })
}

/// Returns whether a receive can be handed out without its endpoint and SRQ. No closures here: LLVM
/// would call one out of line, and save registers for the call on every dequeue.
#[inline(always)]
fn is_recv_consumers(cqe: &Cqe<'_>, slot: &Slot) -> bool {
    let hooks = hooks(slot.counters());
    if !hooks.is_empty() {
        // On the fast path nothing is staged, so the completed receives of the endpoint are all in
        // the queue, behind this CQE.
        match hooks.watermark_behind() {
            Some(many) if !cqe.has_more(many) => {}
            _ => return false,
        }
    }
    slot.armed_srq().is_none()
}

/// Returns the operation of a request that can be handed out without its endpoint.
#[inline(always)]
fn consumers_request(cqe: &Cqe<'_>, slot: &Slot) -> Option<DtoOperation> {
    let op = cqe.request_op()?;
    convert::is_request_consumers(slot.counters(), op).then(|| convert::operation(op))
}

/// Consumes a CQE and passes its event to `with`; does nothing if the slow path has to take it.
///
/// The kinds return separately: if they joined, LLVM would test the kind again.
#[inline(always)]
fn take_fast<R>(cqe: Cqe<'_>, with: impl FnOnce(EventData) -> R) -> Option<R> {
    let success = DtoStatus::Success;
    match cqe.kind() {
        CqeKind::Recv => {
            let (ep, slot) = receiver(&cqe)?;
            if !is_recv_consumers(&cqe, slot) {
                return None;
            }
            let operation = DtoOperation::Receive;
            cqe.consume_recv(|wr_id, length| with(transfer(ep, wr_id, success, length, operation)))
        }
        CqeKind::RecvInCqe => {
            let (ep, slot) = receiver(&cqe)?;
            if !is_recv_consumers(&cqe, slot) {
                return None;
            }
            let operation = DtoOperation::Receive;
            cqe.consume_in_cqe(|wr_id, length| {
                with(transfer(ep, wr_id, success, length, operation))
            })
        }
        CqeKind::Request => {
            let (ep, slot) = receiver(&cqe)?;
            let operation = consumers_request(&cqe, slot)?;
            let (wr_id, wr_data) = cqe.consume_request()?;
            let length = requested_length(wr_data);
            Some(with(transfer(ep, wr_id, success, length, operation)))
        }
        CqeKind::Other => None,
    }
}

impl Evd {
    /// Returns whether each completion of the only queue is an event, and nothing is posted. To be
    /// read after the completions: an endpoint is counted before it posts what is discarded.
    #[inline(always)]
    fn is_all_in_queue(&self) -> bool {
        self.discarding.load(Ordering::Acquire) == 0 && self.posted.allows_fast_path()
    }
}

impl Consumer {
    /// Returns the only completion queue, if the next event can come only from it and its CQEs can
    /// be peeked at.
    #[inline(always)]
    fn fast_queue(&mut self, evd: &Evd) -> Result<&mut Queue, Slow> {
        if !evd.posted.allows_fast_path() {
            return Err(Slow);
        }
        debug_assert!(self.allows_fast_path());
        // SAFETY: there is one queue: the owner of the EVD set the word that was just read
        // accordingly, and only the owner changes the word and the queues.
        let queue = unsafe { self.queues.get_unchecked_mut(0) };
        // SAFETY: the word says this too.
        unsafe { core::hint::assert_unchecked(queue.can_peek()) };
        Ok(queue)
    }

    /// Returns the byte that the device writes with the next event, if it can come only from one
    /// completion queue.
    pub(super) fn watched(&self, evd: &Evd) -> Option<&AtomicU8> {
        match evd.posted.allows_fast_path() {
            true => self.queues.first()?.watched(),
            false => None,
        }
    }

    /// Takes the next event on the fast path; `None` if there is none.
    #[inline(always)]
    fn next_fast(&mut self, evd: &Evd) -> Result<Option<EventData>, Slow> {
        match self.fast_queue(evd)?.peek() {
            None => Ok(None),
            Some(cqe) => take_fast(cqe, |data| data).map(Some).ok_or(Slow),
        }
    }

    /// Takes events in their order until `events` is full or there is no more. Returns how many.
    #[inline]
    pub(super) fn drain(&mut self, evd: &Evd, events: &mut [Event]) -> usize {
        for (taken, place) in events.iter_mut().enumerate() {
            // Two assignments, so that the fast path has no copy in memory.
            match self.next_fast(evd) {
                Ok(Some(data)) => place.data = data,
                Ok(None) => return taken,
                Err(Slow) => match self.next_slow(evd, |data| data) {
                    Some(data) => place.data = data,
                    None => return taken,
                },
            }
            place.evd = evd.handle;
        }
        events.len()
    }

    /// Takes the next event: first on the fast path, then on the slow path.
    #[inline]
    pub(super) fn next_event(&mut self, evd: &Evd) -> Option<EventData> {
        match self.next_fast(evd) {
            Ok(event) => event,
            Err(Slow) => self.next_slow(evd, |data| data),
        }
    }
}

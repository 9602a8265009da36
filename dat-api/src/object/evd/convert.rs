//! The conversion of completions to events.
//!
//! On the fast path an event is made of the next CQE itself. One word says that nothing is posted
//! or staged, and that completions come from one completion queue of the direct path. The next CQE
//! of that queue is then the next event, unless its endpoint has to see the completion first. A CQE
//! is consumed only if its event is handed out; everything else is left to the slow path
//! ([`super::dequeue_slow`]). No function of the fast path makes an out-of-line call.
//!
//! On the verbs path the same is tested after the completion is consumed ([`hand_out_fast`]). Every
//! other completion goes through [`convert`], which calls the endpoint and the SRQ.
//!
//! Decision: `docs/decisions/010-one-look-at-a-cqe.md`

use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use dat_engine::{Completion, CompletionFlags, CompletionOp, CqeKind, Status};

use super::pending::{Item, Taken};
use super::state::{Consumer, Evd, halves};
use super::{Cqe, Queue};
use crate::handle::{Delivery, Handle, Owned, Slot};
use crate::object::post::immediate_order;
use crate::object::wr_data::{self, bound_rmr};
use crate::status::DatReturn;
use crate::types::{DtoOperation, DtoStatus, Event, EventData, ExtendedOperation};

/// A CQE that the device has written, in the only completion queue of an EVD.
///
/// Two words, so that it can be passed to an out-of-line function in registers.
pub struct PeekedEvent {
    pub(super) owned: Owned<Evd>,
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
    let (evd, consumer) = halves(&mut owned);
    let Some(queue) = consumer.only_queue(evd) else {
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
    /// Without `EXTENDED`, the event is one of a send, receive, read or write; with it, one of an
    /// extended operation. A caller tries the first and then, in an out-of-line function, the other:
    /// together they would need more registers on every call.
    ///
    /// # Errors
    /// The same, with nothing consumed: the other kinds, or the slow path
    /// ([`super::dequeue_slow`]), have to take the event.
    #[inline(always)]
    pub fn take<const EXTENDED: bool, R>(
        mut self,
        with: impl FnOnce(Event) -> R,
    ) -> Result<R, Self> {
        self.consume::<EXTENDED, R>(with).ok_or(self)
    }

    /// Returns the EVD, for the slow path.
    #[inline(always)]
    #[must_use]
    pub fn into_owned(self) -> Owned<Evd> {
        self.owned
    }

    #[inline(always)]
    pub(super) fn consume<const EXTENDED: bool, R>(
        &mut self,
        with: impl FnOnce(Event) -> R,
    ) -> Option<R> {
        let evd = self.owned.handle();
        // SAFETY: the queue belongs to the EVD, which has been owned since `peek` made the pointer:
        // it has not moved, and nothing else uses it.
        let queue = unsafe { self.queue.as_mut() };
        // SAFETY: `peek` has seen a CQE, and the owner has consumed none since.
        let cqe = unsafe { queue.peek_unchecked() };
        if EXTENDED {
            take_extended(cqe, evd, with)
        } else {
            take_fast(cqe, evd, with)
        }
    }

    /// Returns how many events are in the queue; `None` if they cannot be counted there, or if
    /// there are others.
    #[inline(always)]
    pub(super) fn count(&mut self) -> Option<u32> {
        // SAFETY: as in `consume`.
        let queue = unsafe { self.queue.as_mut() };
        // SAFETY: as in `only_queue`.
        unsafe { core::hint::assert_unchecked(queue.can_peek()) };
        let written = queue.written()?;
        let (evd, _) = halves(&mut self.owned);
        // Read after the completions: an endpoint is counted before it posts what is discarded.
        if evd.discarding.load(Ordering::Acquire) != 0
            || evd.posted.attention.load(Ordering::Relaxed) != 0
        {
            return None;
        }
        Some(written)
    }
}

/// Returns whether a receive can be handed out without its endpoint and SRQ. No closures here: LLVM
/// would call one out of line, and save registers for the call on every dequeue.
#[inline(always)]
fn is_recv_consumers(cqe: &Cqe<'_>, slot: &Slot) -> bool {
    let hooks = slot.hooks();
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

/// Returns the endpoint of a CQE, and its slot; `None` if the slow path has to find it.
#[inline(always)]
fn receiver(cqe: &Cqe<'_>) -> Option<(Handle, &'static Slot)> {
    let context = cqe.context()?;
    // SAFETY: the context of an endpoint's queue pair is the endpoint's handle.
    Some(unsafe { Handle::known(context as usize) })
}

/// Consumes a CQE and passes its event to `with`; does nothing if another path has to take it.
///
/// The kinds return separately: if they joined, LLVM would test the kind again.
#[inline(always)]
fn take_fast<R>(cqe: Cqe<'_>, evd: Handle, with: impl FnOnce(Event) -> R) -> Option<R> {
    let status = DtoStatus::Success;
    match cqe.kind() {
        CqeKind::Recv => {
            let (ep, slot) = receiver(&cqe)?;
            if !is_recv_consumers(&cqe, slot) {
                return None;
            }
            cqe.consume_recv(|cookie, length| {
                let data = transfer(ep, cookie, status, length, DtoOperation::Receive);
                with(Event { evd, data })
            })
        }
        CqeKind::RecvInCqe => {
            let (ep, slot) = receiver(&cqe)?;
            if !is_recv_consumers(&cqe, slot) {
                return None;
            }
            cqe.consume_in_cqe(|cookie, length| {
                let data = transfer(ep, cookie, status, length, DtoOperation::Receive);
                with(Event { evd, data })
            })
        }
        CqeKind::Request => {
            let (ep, slot) = receiver(&cqe)?;
            let operation = transferred(cqe.request_op()?)?;
            if slot.hooks().inspects_each() {
                return None;
            }
            let (cookie, wr_data) = cqe.consume_request()?;
            let data = transfer(ep, cookie, status, wr_data & wr_data::LENGTH, operation);
            Some(with(Event { evd, data }))
        }
        CqeKind::RecvImm | CqeKind::RecvWriteImm | CqeKind::Other => None,
    }
}

/// As [`take_fast`], for extended operations.
#[inline(always)]
fn take_extended<R>(cqe: Cqe<'_>, evd: Handle, with: impl FnOnce(Event) -> R) -> Option<R> {
    match cqe.kind() {
        CqeKind::RecvImm => take_imm(cqe, evd, ExtendedOperation::RecvMsgImmed, with),
        CqeKind::RecvWriteImm => take_imm(cqe, evd, ExtendedOperation::RecvImmed, with),
        CqeKind::Request => {
            let (ep, slot) = receiver(&cqe)?;
            if slot.hooks().inspects_each() {
                return None;
            }
            let operation = ExtendedOperation::of(cqe.extended_op()?, false)?;
            let (cookie, wr_data) = cqe.consume_request()?;
            let data = extended_transfer(
                ep,
                cookie,
                DtoStatus::Success,
                wr_data & wr_data::LENGTH,
                operation,
                0,
            );
            Some(with(Event { evd, data }))
        }
        _ => None,
    }
}

/// Consumes a receive with immediate data as [`take_fast`] does other receives.
#[inline(always)]
fn take_imm<R>(
    cqe: Cqe<'_>,
    evd: Handle,
    operation: ExtendedOperation,
    with: impl FnOnce(Event) -> R,
) -> Option<R> {
    let (ep, slot) = receiver(&cqe)?;
    if !is_recv_consumers(&cqe, slot) {
        return None;
    }
    let imm = cqe.imm();
    cqe.consume_recv(|cookie, length| {
        let data = extended_transfer(
            ep,
            cookie,
            DtoStatus::Success,
            length,
            operation,
            immediate_order(imm),
        );
        with(Event { evd, data })
    })
}

impl Consumer {
    /// Returns the only completion queue, if the next event can come only from it and its CQEs can
    /// be peeked at.
    #[inline(always)]
    fn only_queue(&mut self, evd: &Evd) -> Option<&mut Queue> {
        if evd.posted.attention.load(Ordering::Relaxed) != 0 {
            return None;
        }
        debug_assert!(self.staged.is_empty() && self.has_only_queue());
        // SAFETY: there is one queue: the owner of the EVD set the word that was just read
        // accordingly, and only the owner changes the word and the queues.
        let queue = unsafe { self.queues.get_unchecked_mut(0) };
        // SAFETY: the word says this too.
        unsafe { core::hint::assert_unchecked(queue.can_peek()) };
        Some(queue)
    }

    /// Takes the next event on the fast path: `Some(None)` if there is none, `None` if the slow
    /// path has to decide.
    #[inline(always)]
    pub(super) fn next_fast(&mut self, evd: &Evd) -> Option<Option<EventData>> {
        match self.only_queue(evd)?.peek() {
            None => Some(None),
            Some(cqe) => take_fast(cqe, evd.handle, |event| event.data).map(Some),
        }
    }
}

#[inline(always)]
fn is_receive(op: CompletionOp) -> bool {
    matches!(op, CompletionOp::Recv | CompletionOp::RecvWriteImm)
}

/// Returns the operation of a request that has an event of [`transfer`].
#[inline(always)]
fn transferred(op: CompletionOp) -> Option<DtoOperation> {
    Some(match op {
        CompletionOp::Send => DtoOperation::Send,
        CompletionOp::Write => DtoOperation::RdmaWrite,
        CompletionOp::Read => DtoOperation::RdmaRead,
        _ => return None,
    })
}

/// Returns the event of a consumed completion if that needs neither its endpoint nor its SRQ;
/// otherwise does nothing and returns `None`.
#[inline(always)]
pub(super) fn hand_out_fast(completion: &Completion) -> Option<EventData> {
    let ep = Handle::from_bits(completion.context as usize)?;
    let slot = ep.slot()?;
    let (is_consumers, operation) = if completion.op == CompletionOp::Recv {
        let is_consumers = !completion.flags.contains(CompletionFlags::WITH_IMM)
            && slot.hooks().is_empty()
            && slot.armed_srq().is_none();
        (is_consumers, DtoOperation::Receive)
    } else {
        (!slot.hooks().inspects_each(), transferred(completion.op)?)
    };
    (completion.status.is_success() && is_consumers).then(|| {
        let length = length(completion);
        transfer(ep, completion.wr_id, DtoStatus::Success, length, operation)
    })
}

/// Returns whether a completion is a receive of an endpoint with a high watermark: the endpoint has
/// to see all completed receives before this one is handed out.
#[cold]
pub(super) fn is_watched(completion: &Completion) -> bool {
    is_receive(completion.op)
        && Handle::from_bits(completion.context as usize)
            .is_some_and(|ep| (ep.upcalls().has_high_watermark)(ep))
}

/// Returns the event of a completion; `None` if it produces none. The endpoint and the SRQ are
/// called after `then` has put the event in its place.
#[inline(always)]
pub(super) fn convert<T>(completion: &Completion, then: impl FnOnce(Taken) -> T) -> Option<T> {
    let endpoint = Handle::from_bits(completion.context as usize)?;
    let slot = endpoint.slot()?;
    let failed = !completion.status.is_success();
    // Acquire: the flags are set after the state that they announce.
    let delivery = if slot.counters().cqe_flags.load(Ordering::Acquire) == 0 {
        Delivery::Notify
    } else {
        (slot.upcalls().completed)(completion)
    };
    let result = (delivery != Delivery::Discard).then(|| {
        then(Taken {
            event: Item {
                data: match bound_rmr(completion) {
                    None => event(completion, endpoint, status(completion.status)),
                    Some(rmr) => EventData::RmrBind {
                        ep: endpoint,
                        rmr,
                        cookie: completion.wr_id,
                        status: status(completion.status),
                    },
                },
                receiver: is_receive(completion.op).then_some(endpoint),
            },
            signalled: failed || delivery == Delivery::Notify,
            solicited: failed || completion.flags.contains(CompletionFlags::SOLICITED),
        })
    });
    if is_receive(completion.op) {
        slot.recv_taken();
    }
    if failed {
        (slot.upcalls().failed)(completion);
    }
    result
}

#[inline(always)]
fn event(completion: &Completion, ep: Handle, status: DtoStatus) -> EventData {
    let (cookie, length) = (completion.wr_id, length(completion));
    let with_imm = completion.flags.contains(CompletionFlags::WITH_IMM);
    let immediate = if with_imm {
        immediate_order(completion.imm)
    } else {
        0
    };
    match ExtendedOperation::of(completion.op, with_imm) {
        None => transfer(ep, cookie, status, length, operation(completion.op)),
        Some(operation) => extended_transfer(ep, cookie, status, length, operation, immediate),
    }
}

/// Returns the length of a transfer in bytes.
#[inline(always)]
fn length(completion: &Completion) -> u32 {
    if is_receive(completion.op) {
        completion.byte_len
    } else {
        // The endpoint stored it with the request: the device reports lengths of receives only.
        completion.imm & wr_data::LENGTH
    }
}

/// Returns the operation of a completion that is not extended. A failed marker or bind has no DTO
/// event.
#[inline(always)]
fn operation(op: CompletionOp) -> DtoOperation {
    match is_receive(op) {
        true => DtoOperation::Receive,
        false => transferred(op).unwrap_or(DtoOperation::Send),
    }
}

/// Returns the event of a data transfer that is not extended; the only place that creates one.
#[inline(always)]
fn transfer(
    ep: Handle,
    cookie: u64,
    status: DtoStatus,
    length: u32,
    operation: DtoOperation,
) -> EventData {
    EventData::Dto {
        ep,
        cookie,
        status,
        length: u64::from(length),
        operation,
    }
}

#[inline(always)]
fn extended_transfer(
    ep: Handle,
    cookie: u64,
    status: DtoStatus,
    length: u32,
    operation: ExtendedOperation,
    immediate: u32,
) -> EventData {
    EventData::ExtendedDto {
        ep,
        cookie,
        status,
        length: u64::from(length),
        operation,
        immediate,
    }
}

/// Translates a status of the engine.
pub(super) fn status(status: Status) -> DtoStatus {
    match status {
        Status::Success => DtoStatus::Success,
        Status::WrFlush => DtoStatus::Flushed,
        Status::LocalLength => DtoStatus::LocalLength,
        Status::LocalQpOperation => DtoStatus::LocalEp,
        Status::LocalProtection | Status::LocalAccess => DtoStatus::LocalProtection,
        Status::BadResponse => DtoStatus::BadResponse,
        Status::RemoteAccess => DtoStatus::RemoteAccess,
        Status::RemoteInvalidRequest | Status::RemoteOperation | Status::RemoteAborted => {
            DtoStatus::RemoteResponder
        }
        // A status without a name is the device's own error; it breaks the connection.
        Status::RetryExceeded | Status::General => DtoStatus::Transport,
        Status::RnrRetryExceeded => DtoStatus::ReceiverNotReady,
        Status::MwBind => DtoStatus::RmrOperationFailed,
    }
}

//! The conversion of completions to events.
//!
//! [`transfer`] creates every DTO event but those of extended operations. The fast path first tests
//! whether the completion needs neither its endpoint nor its SRQ: on the direct path before the CQE
//! is consumed (`fast.rs`), on the verbs path afterwards ([`hand_out_fast`]). Every other completion,
//! and every extended one, goes through [`convert`], which calls the endpoint and the SRQ.
//!
//! Decision: `docs/decisions/010-one-look-at-a-cqe.md`

use core::sync::atomic::{AtomicU32, Ordering};

use dat_engine::{Completion, CompletionFlags, CompletionOp, Status};

use crate::handle::{CompletionHooks, Delivery, Handle, SlotCounters};
use crate::object::post::immediate_order;
use crate::object::wr_data::{self, bound_rmr};
use crate::types::{DtoOperation, DtoStatus, EventData, ExtendedOperation};

/// An event that was taken from a completion queue.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    pub(super) event: Item,
    /// The request was not posted UNSIGNALLED, or it failed.
    pub(super) signalled: bool,
    /// The peer sent it solicited, or it failed.
    pub(super) solicited: bool,
}

/// An event to be handed to the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) data: EventData,
    /// The endpoint, if the event is a receive: the endpoint counts them.
    pub(super) receiver: Option<Handle>,
}

impl Item {
    fn counters(&self) -> Option<&'static SlotCounters> {
        Some(self.receiver?.slot()?.counters())
    }

    /// Counts the event as staged.
    pub(super) fn stage(&self) {
        if let Some(counters) = self.counters() {
            add(&counters.recv_staged, 1);
        }
    }

    /// Counts the event as no longer staged.
    pub(super) fn unstage(&self) {
        if let Some(counters) = self.counters() {
            add(&counters.recv_staged, u32::MAX);
        }
    }
}

/// All receives of an endpoint are on one EVD, and only its owner counts them, so a load and a
/// store suffice.
#[inline(always)]
fn add(counter: &AtomicU32, what: u32) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(what),
        Ordering::Relaxed,
    );
}

#[inline(always)]
fn is_receive(op: CompletionOp) -> bool {
    matches!(op, CompletionOp::Recv | CompletionOp::RecvWriteImm)
}

/// Returns what the completions of an endpoint need before they become events.
#[inline(always)]
pub(super) fn hooks(counters: &SlotCounters) -> CompletionHooks {
    CompletionHooks(counters.cqe_flags.load(Ordering::Relaxed))
}

/// Returns whether a successful request can be handed out without its endpoint.
#[inline(always)]
pub(super) fn is_request_consumers(counters: &SlotCounters, op: CompletionOp) -> bool {
    let is_transfer = matches!(
        op,
        CompletionOp::Send | CompletionOp::Write | CompletionOp::Read
    );
    is_transfer && !hooks(counters).inspects_each()
}

/// Returns the event of a consumed completion if that needs neither its endpoint nor its SRQ;
/// otherwise does nothing and returns `None`.
#[inline(always)]
pub(super) fn hand_out_fast(completion: &Completion) -> Option<EventData> {
    let ep = Handle::from_bits(completion.context as usize)?;
    let slot = ep.slot()?;
    let is_consumers = if completion.op == CompletionOp::Recv {
        !completion.flags.contains(CompletionFlags::WITH_IMM)
            && hooks(slot.counters()).is_empty()
            && slot.armed_srq().is_none()
    } else {
        is_request_consumers(slot.counters(), completion.op)
    };
    (completion.status.is_success() && is_consumers).then(|| {
        let (length, operation) = (length(completion), operation(completion.op));
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

/// Returns the event of a completion.
#[inline(always)]
fn event(completion: &Completion, ep: Handle, status: DtoStatus) -> EventData {
    let length = length(completion);
    match extended(completion) {
        None => transfer(
            ep,
            completion.wr_id,
            status,
            length,
            operation(completion.op),
        ),
        Some((operation, immediate)) => EventData::ExtendedDto {
            ep,
            cookie: completion.wr_id,
            status,
            length: length.into(),
            operation,
            immediate,
        },
    }
}

/// Returns the length of a transfer in bytes.
#[inline(always)]
fn length(completion: &Completion) -> u32 {
    if is_receive(completion.op) {
        completion.byte_len
    } else {
        requested_length(completion.imm)
    }
}

/// Returns the operation of an extended transfer, and its immediate data; `None` for any other.
fn extended(completion: &Completion) -> Option<(ExtendedOperation, u32)> {
    let with_imm = completion.flags.contains(CompletionFlags::WITH_IMM);
    let operation = match completion.op {
        CompletionOp::WriteImm => ExtendedOperation::RdmaWriteImmed,
        CompletionOp::FetchAdd => ExtendedOperation::FetchAdd,
        CompletionOp::CompareSwap => ExtendedOperation::CmpSwap,
        CompletionOp::RecvWriteImm => ExtendedOperation::RecvImmed,
        CompletionOp::Recv if with_imm => ExtendedOperation::RecvMsgImmed,
        _ => return None,
    };
    let immediate = match with_imm {
        true => immediate_order(completion.imm),
        false => 0,
    };
    Some((operation, immediate))
}

/// Returns the operation of a completion.
#[inline(always)]
pub(super) fn operation(op: CompletionOp) -> DtoOperation {
    match op {
        CompletionOp::Recv | CompletionOp::RecvWriteImm => DtoOperation::Receive,
        CompletionOp::Write => DtoOperation::RdmaWrite,
        CompletionOp::Read => DtoOperation::RdmaRead,
        // A failed marker or bind has no DTO event.
        CompletionOp::Send | CompletionOp::Nop | CompletionOp::Bind => DtoOperation::Send,
        // These have operations of their own ([`extended`]).
        CompletionOp::WriteImm | CompletionOp::FetchAdd | CompletionOp::CompareSwap => {
            DtoOperation::Send
        }
    }
}

/// Returns the event of a data transfer that is not extended; the only place that creates one.
#[inline(always)]
pub(super) fn transfer(
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

/// Returns the length of a request, which the endpoint stored with the request: the device reports
/// lengths of receives only.
#[inline(always)]
pub(super) fn requested_length(wr_data: u32) -> u32 {
    wr_data & wr_data::LENGTH
}

/// Translates a status of the engine.
fn status(status: Status) -> DtoStatus {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 3.3, by the number in `enum ibv_wc_status`.
    #[test]
    fn every_device_status_has_a_dat_status() {
        let rows = [
            (0, DtoStatus::Success),
            (5, DtoStatus::Flushed),
            (1, DtoStatus::LocalLength),
            (2, DtoStatus::LocalEp),
            (4, DtoStatus::LocalProtection),
            (8, DtoStatus::LocalProtection),
            (7, DtoStatus::BadResponse),
            (10, DtoStatus::RemoteAccess),
            (9, DtoStatus::RemoteResponder),
            (11, DtoStatus::RemoteResponder),
            (16, DtoStatus::RemoteResponder),
            (12, DtoStatus::Transport),
            (21, DtoStatus::Transport),
            (13, DtoStatus::ReceiverNotReady),
            (6, DtoStatus::RmrOperationFailed),
        ];
        assert_eq!(rows.len(), Status::ALL.len());
        for (number, expected) in rows {
            assert_eq!(
                status(Status::from_ibv_wc_status(number)),
                expected,
                "{number}"
            );
        }
        // The numbers are DAT's; no status becomes a partial packet (10).
        let numbers: Vec<u8> = rows.iter().map(|&(_, row)| row as u8).collect();
        assert!((0..=11).all(|number| numbers.contains(&number) || number == 10));
    }
}

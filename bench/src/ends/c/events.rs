//! EVDs: taking events by `dat_evd_dequeue` or `dat_evd_wait`.

use std::mem::MaybeUninit;

use dat::abi::{
    DAT_DTO_COMPLETION_EVENT, DAT_DTO_SUCCESS, DAT_EVENT, DAT_INTERRUPTED_CALL, DAT_QUEUE_EMPTY,
    DAT_RETURN, DAT_TIMEOUT_EXPIRED, DAT_TYPE_MASK,
};
use dat_api::DatReturn;
use dat_api::types::DtoStatus;

use crate::ends::dat::WAIT_SLICE;
use crate::ends::link::{CompletionResult, Fault};
use crate::udapl::v1::events::Queue;

/// Timeout of one wait for messages, microseconds.
const WAIT_SLICE_MICROS: u32 = WAIT_SLICE.as_micros() as u32;

impl Queue {
    /// Dequeues a completion, if there is one.
    #[inline(always)]
    pub(crate) fn poll(&self) -> Option<CompletionResult> {
        let mut event = MaybeUninit::<DAT_EVENT>::uninit();
        // SAFETY: an EVD; the event is a local variable that is written.
        let answer = unsafe { (self.adapter.calls.evd_dequeue)(self.evd, event.as_mut_ptr()) };
        if answer == 0 {
            // SAFETY: the call succeeded, so it has written the event.
            return Some(done(unsafe { &*event.as_ptr() }));
        }
        missed("dat_evd_dequeue", answer)
    }

    /// Waits for a completion, at most [`WAIT_SLICE`].
    #[inline(always)]
    pub(crate) fn wait(&self) -> Option<CompletionResult> {
        let mut event = MaybeUninit::<DAT_EVENT>::uninit();
        let mut more = 0;
        // SAFETY: an EVD; event and count are local variables that are written.
        let answer = unsafe {
            (self.adapter.calls.evd_wait)(
                self.evd,
                WAIT_SLICE_MICROS,
                1,
                event.as_mut_ptr(),
                &raw mut more,
            )
        };
        if answer == 0 {
            // SAFETY: the call succeeded, so it has written the event.
            return Some(done(unsafe { &*event.as_ptr() }));
        }
        missed("dat_evd_wait", answer)
    }
}

/// Returns `None` if there was no event, else the failure.
#[inline(always)]
fn missed(call: &'static str, answer: DAT_RETURN) -> Option<CompletionResult> {
    match answer & DAT_TYPE_MASK {
        DAT_QUEUE_EMPTY | DAT_TIMEOUT_EXPIRED | DAT_INTERRUPTED_CALL => None,
        _ => Some(Err(Fault::Call(call, DatReturn::from_bits(answer)))),
    }
}

/// Converts a DTO completion event.
#[inline(always)]
fn done(event: &DAT_EVENT) -> CompletionResult {
    if event.event_number != DAT_DTO_COMPLETION_EVENT {
        return Err(Fault::Event(event.event_number));
    }
    // SAFETY: the event number says that this member is valid.
    let data = unsafe { event.event_data.dto_completion_event_data };
    if data.status == DAT_DTO_SUCCESS {
        Ok(data.transfered_length as u32)
    } else {
        Err(failed(data.status))
    }
}

#[cold]
fn failed(status: u32) -> Fault {
    const ALL: [DtoStatus; 12] = [
        DtoStatus::Success,
        DtoStatus::Flushed,
        DtoStatus::LocalLength,
        DtoStatus::LocalEp,
        DtoStatus::LocalProtection,
        DtoStatus::BadResponse,
        DtoStatus::RemoteAccess,
        DtoStatus::RemoteResponder,
        DtoStatus::Transport,
        DtoStatus::ReceiverNotReady,
        DtoStatus::PartialPacket,
        DtoStatus::RmrOperationFailed,
    ];
    let named = ALL.into_iter().find(|&named| named as u32 == status);
    named.map_or(Fault::Event(status), Fault::Dto)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dat_api::{ReturnType, Subtype};

    #[test]
    fn a_dto_status_is_reported_by_name_if_it_has_one() {
        assert_eq!(failed(1), Fault::Dto(DtoStatus::Flushed));
        assert_eq!(failed(11), Fault::Dto(DtoStatus::RmrOperationFailed));
        assert_eq!(failed(99), Fault::Event(99));
    }

    #[test]
    fn every_return_code_but_no_event_is_a_failure() {
        for kind in [ReturnType::QueueEmpty, ReturnType::TimeoutExpired] {
            let code = DatReturn::error(kind, Subtype::NoSubtype);
            assert_eq!(missed("x", code.bits()), None);
        }
        let code = DatReturn::error(ReturnType::InvalidState, Subtype::NoSubtype);
        assert_eq!(missed("x", code.bits()), Some(Err(Fault::Call("x", code))));
    }
}

//! EVDs: events taken by `dat_evd_dequeue` or `dat_evd_wait`.

use std::mem::MaybeUninit;
use std::rc::Rc;
use std::time::{Duration, Instant};

use dat::abi::{
    DAT_DTO_COMPLETION_EVENT, DAT_DTO_SUCCESS, DAT_EVD_HANDLE, DAT_EVENT, DAT_INTERRUPTED_CALL,
    DAT_QUEUE_EMPTY, DAT_RETURN, DAT_SUCCESS, DAT_TIMEOUT_EXPIRED, DAT_TYPE_MASK,
};
use dat_api::DatReturn;
use dat_api::types::DtoStatus;

use super::Adapter;
use crate::failure::Failure;
use crate::lat::dat::{SLICE, nobody};
use crate::lat::link::{Done, Fault};

/// How long one wait for messages may be.
const SLICE_MICROS: u32 = SLICE.as_micros() as u32;

/// An EVD.
pub(crate) struct Queue {
    pub(crate) evd: DAT_EVD_HANDLE,
    pub(crate) adapter: Rc<Adapter>,
}

impl Queue {
    /// A completion if one is there.
    #[inline(always)]
    pub(in crate::lat) fn poll(&self) -> Option<Done> {
        let mut event = MaybeUninit::<DAT_EVENT>::uninit();
        // SAFETY: an EVD, and room for an event.
        let answer = unsafe { (self.adapter.calls.evd_dequeue)(self.evd, event.as_mut_ptr()) };
        if answer == 0 {
            // SAFETY: the call succeeded, so it has filled the event in.
            return Some(done(unsafe { &*event.as_ptr() }));
        }
        missed("dat_evd_dequeue", answer)
    }

    /// A completion if one comes within a slice.
    #[inline(always)]
    pub(in crate::lat) fn wait(&self) -> Option<Done> {
        let mut event = MaybeUninit::<DAT_EVENT>::uninit();
        let mut more = 0;
        // SAFETY: an EVD, room for an event, and a number.
        let answer = unsafe {
            (self.adapter.calls.evd_wait)(
                self.evd,
                SLICE_MICROS,
                1,
                event.as_mut_ptr(),
                &raw mut more,
            )
        };
        if answer == 0 {
            // SAFETY: the call succeeded, so it has filled the event in.
            return Some(done(unsafe { &*event.as_ptr() }));
        }
        missed("dat_evd_wait", answer)
    }

    /// An event of a control queue.
    pub(crate) fn await_event(&self, within: Duration, what: &str) -> Result<DAT_EVENT, Failure> {
        let end = Instant::now() + within;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let mut event = MaybeUninit::<DAT_EVENT>::zeroed();
            let mut more = 0;
            // SAFETY: an EVD, room for an event, and a number.
            let answer = unsafe {
                (self.adapter.calls.evd_wait)(
                    self.evd,
                    micros(left),
                    1,
                    event.as_mut_ptr(),
                    &raw mut more,
                )
            };
            match answer & DAT_TYPE_MASK {
                // SAFETY: the call succeeded, so it has filled the event in.
                DAT_SUCCESS => return Ok(unsafe { event.assume_init() }),
                DAT_INTERRUPTED_CALL => {}
                DAT_TIMEOUT_EXPIRED => return Err(nobody(what, within)),
                _ => {
                    return Err(Failure::run(format!(
                        "waiting for {what}: dat_evd_wait answered {}",
                        DatReturn::from_bits(answer)
                    )));
                }
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: an EVD that nothing reports to any more (order of fields).
        unsafe { (self.adapter.calls.evd_free)(self.evd) };
    }
}

/// No event: because there is none, or why.
#[inline(always)]
fn missed(call: &'static str, answer: DAT_RETURN) -> Option<Done> {
    match answer & DAT_TYPE_MASK {
        DAT_QUEUE_EMPTY | DAT_TIMEOUT_EXPIRED | DAT_INTERRUPTED_CALL => None,
        _ => Some(Err(Fault::Call(call, DatReturn::from_bits(answer)))),
    }
}

#[inline(always)]
fn done(event: &DAT_EVENT) -> Done {
    if event.event_number != DAT_DTO_COMPLETION_EVENT {
        return Err(Fault::Event(event.event_number));
    }
    // SAFETY: the number says that this is the member that counts.
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

/// As DAT counts time; the last value would mean "for ever".
pub(crate) fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).map_or(u32::MAX - 1, |micros| micros.min(u32::MAX - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dat_api::{ReturnType, Subtype};

    #[test]
    fn times_never_mean_for_ever() {
        assert_eq!(micros(Duration::from_millis(50)), SLICE_MICROS);
        assert_eq!(micros(Duration::MAX), u32::MAX - 1);
    }

    #[test]
    fn every_status_of_dat_has_its_name() {
        assert_eq!(failed(1), Fault::Dto(DtoStatus::Flushed));
        assert_eq!(failed(11), Fault::Dto(DtoStatus::RmrOperationFailed));
        assert_eq!(failed(99), Fault::Event(99));
    }

    #[test]
    fn only_the_absence_of_events_is_no_failure() {
        for kind in [ReturnType::QueueEmpty, ReturnType::TimeoutExpired] {
            let code = DatReturn::error(kind, Subtype::NoSubtype);
            assert_eq!(missed("x", code.bits()), None);
        }
        let code = DatReturn::error(ReturnType::InvalidState, Subtype::NoSubtype);
        assert_eq!(missed("x", code.bits()), Some(Err(Fault::Call("x", code))));
    }
}

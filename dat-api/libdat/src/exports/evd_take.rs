//! Taking events: the usual call neither allocates, locks, prints nor unwinds.

use std::panic::{AssertUnwindSafe, catch_unwind};

use dat_api::handle::{self, NotOwned, Owned};
use dat_api::object::evd::{self, Evd, Timeout};
use dat_api::{DatReturn, ReturnType, Subtype};

use crate::abi::{
    DAT_COUNT, DAT_EVD_HANDLE, DAT_EVENT, DAT_RETURN, DAT_TIMEOUT, DAT_TIMEOUT_INFINITE,
};
use crate::face::attributes::count;
use crate::face::event;
use crate::face::handles::{invalid, ours};
use crate::providers::hot;

const BAD_EVD: DatReturn = invalid(super::evd::WHICH);

const fn bad(argument: Subtype) -> DAT_RETURN {
    DatReturn::error(ReturnType::InvalidParameter, argument).bits()
}

/// The EVD for this call alone.
#[inline(always)]
fn own(handle: DAT_EVD_HANDLE) -> Result<Owned<Evd>, DatReturn> {
    match handle::own_bits::<Evd>(handle.addr()) {
        Ok(owned) => Ok(owned),
        Err(NotOwned::Stale) => Err(BAD_EVD),
        // Another taker leaves soon, a waiter does not.
        Err(NotOwned::Busy) => evd::own_when_free(ours(handle).ok_or(BAD_EVD)?),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_evd_dequeue(
    evd_handle: DAT_EVD_HANDLE,
    event: *mut DAT_EVENT,
) -> DAT_RETURN {
    let mut owned = match own(evd_handle) {
        Ok(owned) => owned,
        // SAFETY: passed on to the caller.
        Err(code) => return unsafe { hot::dequeue(evd_handle, event, code.bits()) },
    };
    if event.is_null() {
        return bad(Subtype::InvalidArg2);
    }
    let taken = evd::dequeue_with(&mut owned, |taken| {
        // SAFETY: not null, so by the contract of `exports` there is room.
        unsafe { event::write(event, &taken) };
    });
    match taken {
        Ok(()) => DatReturn::SUCCESS.bits(),
        Err(code) => code.bits(),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_evd_wait(
    evd_handle: DAT_EVD_HANDLE,
    timeout: DAT_TIMEOUT,
    threshold: DAT_COUNT,
    event: *mut DAT_EVENT,
    nmore: *mut DAT_COUNT,
) -> DAT_RETURN {
    let answer = catch_unwind(AssertUnwindSafe(|| {
        let mut owned = match own(evd_handle) {
            Ok(owned) => owned,
            Err(code) => {
                // SAFETY: passed on to the caller.
                return unsafe {
                    hot::wait(evd_handle, timeout, threshold, event, nmore, code.bits())
                };
            }
        };
        if event.is_null() {
            return bad(Subtype::InvalidArg4);
        }
        if nmore.is_null() {
            return bad(Subtype::InvalidArg5);
        }
        let timeout = match timeout {
            DAT_TIMEOUT_INFINITE => Timeout::Infinite,
            microseconds => Timeout::Micros(microseconds),
        };
        let waited = evd::wait(&mut owned, timeout, threshold);
        let (code, counted) = match waited.result {
            Ok(taken) => {
                // SAFETY: not null, so by the contract of `exports` there is room.
                unsafe { event::write(event, &taken) };
                (DatReturn::SUCCESS, true)
            }
            Err(code) => {
                let counted = matches!(
                    code.kind(),
                    Some(ReturnType::TimeoutExpired | ReturnType::InterruptedCall)
                );
                (code, counted)
            }
        };
        if counted {
            // SAFETY: the same.
            unsafe { nmore.write_unaligned(count(waited.nmore)) };
        }
        code.bits()
    }));
    match answer {
        Ok(answer) => answer,
        Err(_) => DatReturn::error(ReturnType::InternalError, Subtype::NoSubtype).bits(),
    }
}

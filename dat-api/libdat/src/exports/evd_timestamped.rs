//! Taking events with the time stamps of their completions: an extension that uDAPL does not have.

use dat_api::handle::{Object, Owned};
use dat_api::object::evd::{self, Evd, Timeout};
use dat_api::{DatReturn, EvdRefusal, Result, ReturnType, Subtype};

use super::evd::WHICH;
use super::evd_take::waited_with;
use crate::abi::{
    DAT_COUNT, DAT_EVD_HANDLE, DAT_EVENT, DAT_RETURN, DAT_TIMEOUT, DAT_TIMEOUT_INFINITE, DAT_UINT64,
};
use crate::face::event;
use crate::face::frame::forwarding;
use crate::face::handles::named;
use crate::face::output::Output;
use crate::face::refused::null_result;
use crate::face::subject::on;

/// Takes exclusive ownership of the EVD for this call.
fn own(handle: DAT_EVD_HANDLE) -> Result<Owned<Evd>> {
    Ok(evd::own(named(handle, Evd::KIND, WHICH)?).map_err(EvdRefusal::from)?)
}

#[unsafe(export_name = symbol!("dat_evd_dequeue_timestamped"))]
pub unsafe extern "C" fn dat_evd_dequeue_timestamped(
    evd_handle: DAT_EVD_HANDLE,
    event: *mut DAT_EVENT,
    nanoseconds: *mut DAT_UINT64,
) -> DAT_RETURN {
    forwarding("dat_evd_dequeue_timestamped", on("evd", evd_handle), || {
        let owned = own(evd_handle)?;
        if event.is_null() {
            return Err(null_result(Subtype::InvalidArg2, "event").into());
        }
        // SAFETY: the contract of `exports`.
        let nanoseconds = unsafe { Output::new(nanoseconds, Subtype::InvalidArg3) }?;
        match evd::dequeue_stamped(owned) {
            Ok(taken) => {
                // SAFETY: not null, so writable by the contract of `exports`.
                unsafe { event::write(event, &taken.event) };
                nanoseconds.set(taken.nanoseconds.unwrap_or(0));
                Ok(DatReturn::SUCCESS.bits())
            }
            // A code without a subtype is the same in every version of uDAPL.
            Err(empty) if empty.code().is(ReturnType::QueueEmpty) => Ok(empty.code().bits()),
            Err(error) => Err(error),
        }
    })
}

/// Unlike `dat_evd_wait`, this call is no cancellation point.
#[unsafe(export_name = symbol!("dat_evd_wait_timestamped"))]
pub unsafe extern "C" fn dat_evd_wait_timestamped(
    evd_handle: DAT_EVD_HANDLE,
    timeout: DAT_TIMEOUT,
    threshold: DAT_COUNT,
    event: *mut DAT_EVENT,
    nmore: *mut DAT_COUNT,
    nanoseconds: *mut DAT_UINT64,
) -> DAT_RETURN {
    forwarding("dat_evd_wait_timestamped", on("evd", evd_handle), || {
        let mut owned = own(evd_handle)?;
        if event.is_null() {
            return Err(null_result(Subtype::InvalidArg4, "event").into());
        }
        if nmore.is_null() {
            return Err(null_result(Subtype::InvalidArg5, "nmore").into());
        }
        // SAFETY: the contract of `exports`.
        let nanoseconds = unsafe { Output::new(nanoseconds, Subtype::InvalidArg6) }?;
        let timeout = match timeout {
            DAT_TIMEOUT_INFINITE => Timeout::Infinite,
            microseconds => Timeout::Micros(microseconds),
        };
        let waited = evd::wait_stamped(&mut owned, timeout, threshold)?;
        drop(owned);
        nanoseconds.set(waited.nanoseconds.unwrap_or(0));
        // SAFETY: both pointers were checked for null.
        Ok(unsafe { waited_with(&waited.event, event, nmore) }?)
    })
}

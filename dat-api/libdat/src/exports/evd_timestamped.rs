//! Taking events with the time stamps of their completions: an extension that uDAPL does not have.

use dat_api::object::evd::{self, Evd, Timeout};
use dat_api::{DatReturn, EvdRefusal, ReturnType, Subtype};

use super::evd_take::waited_with;
use crate::abi::*;
use crate::face::call::{Named, own_call};
use crate::face::event;
use crate::face::output::Out;
use crate::face::refused::null_result;

own_call!(
    dat_evd_dequeue_timestamped,
    forwarding,
    |evd: Named<Evd>, event: *mut DAT_EVENT, nanoseconds: Out<DAT_UINT64>| {
        let owned = evd::own(evd.0).map_err(EvdRefusal::from)?;
        if event.is_null() {
            return Err(null_result(Subtype::InvalidArg2, "event").into());
        }
        let nanoseconds = nanoseconds.required(Subtype::InvalidArg3)?;
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
    }
);

// Unlike `dat_evd_wait`, this call is no cancellation point.
own_call!(
    dat_evd_wait_timestamped,
    forwarding,
    |evd: Named<Evd>,
     timeout: DAT_TIMEOUT,
     threshold: DAT_COUNT,
     event: *mut DAT_EVENT,
     nmore: *mut DAT_COUNT,
     nanoseconds: Out<DAT_UINT64>| {
        let mut owned = evd::own(evd.0).map_err(EvdRefusal::from)?;
        if event.is_null() {
            return Err(null_result(Subtype::InvalidArg4, "event").into());
        }
        if nmore.is_null() {
            return Err(null_result(Subtype::InvalidArg5, "nmore").into());
        }
        let nanoseconds = nanoseconds.required(Subtype::InvalidArg6)?;
        let timeout = match timeout {
            DAT_TIMEOUT_INFINITE => Timeout::Infinite,
            microseconds => Timeout::Micros(microseconds),
        };
        let waited = evd::wait_stamped(&mut owned, timeout, threshold)?;
        drop(owned);
        nanoseconds.set(waited.nanoseconds.unwrap_or(0));
        // SAFETY: both pointers were checked for null.
        Ok(unsafe { waited_with(&waited.event, event, nmore) }?)
    }
);

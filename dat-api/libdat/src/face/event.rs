//! Conversion of events to C.

use core::ptr::with_exposed_provenance_mut as pointer;

use dat_api::types::{AsyncReason, Event, EventData};
use dat_api::{Handle, Kind};

use super::attributes::count;
use super::handles::{bare, to_c};
use crate::abi::{
    DAT_ASYNCH_ERROR_EVENT_DATA, DAT_CONNECTION_EVENT_DATA, DAT_CONNECTION_REQUEST_EVENT,
    DAT_CONTEXT, DAT_COUNT, DAT_DTO_COMPLETION_EVENT, DAT_EVENT, DAT_EVENT_DATA, DAT_EVENT_NUMBER,
    DAT_RMR_BIND_COMPLETION_EVENT, DAT_RMR_BIND_COMPLETION_EVENT_DATA, DAT_SOFTWARE_EVENT,
    DAT_SOFTWARE_EVENT_DATA,
};
use crate::version;

/// Writes an event to the application's buffer.
///
/// # Safety
/// `place` is writable for one event. It need not be aligned.
#[inline(always)]
pub(crate) unsafe fn write(place: *mut DAT_EVENT, event: &Event) {
    let (number, data) = match event.data {
        EventData::Dto {
            ep,
            cookie,
            status,
            length,
            operation,
        } => {
            let data = version::dto(bare(ep), cookie, status, length, operation);
            (DAT_DTO_COMPLETION_EVENT, data)
        }
        EventData::ExtendedDto {
            ep,
            cookie,
            status,
            length,
            operation,
            immediate,
        } => {
            // SAFETY: `place` is writable for one event.
            unsafe { version::write_extension(place, status, operation, immediate) };
            version::extended_dto(bare(ep), cookie, status, length, operation)
        }
        // SAFETY: `place` is writable for one event.
        _ => return unsafe { write_other(place, event) },
    };
    // SAFETY: `place` is writable for one event.
    unsafe {
        (&raw mut (*place).event_number).write_unaligned(number);
        (&raw mut (*place).evd_handle).write_unaligned(bare(event.evd));
        (&raw mut (*place).event_data.dto_completion_event_data).write_unaligned(data);
    }
}

/// Writes an event of any kind except a DTO completion.
///
/// # Safety
/// As for [`write()`].
#[cold]
#[inline(never)]
unsafe fn write_other(place: *mut DAT_EVENT, event: &Event) {
    // SAFETY: all members are numbers and pointers, for which 0 is valid. Fields
    // that the event does not use stay 0.
    let mut data: DAT_EVENT_DATA = unsafe { core::mem::zeroed() };
    let event_number = fill(&mut data, event.data);
    // SAFETY: `place` is writable for one event.
    unsafe {
        (&raw mut (*place).event_number).write_unaligned(event_number);
        (&raw mut (*place).evd_handle).write_unaligned(bare(event.evd));
        (&raw mut (*place).event_data).write_unaligned(data);
    }
}

fn fill(to: &mut DAT_EVENT_DATA, from: EventData) -> DAT_EVENT_NUMBER {
    match from {
        EventData::RmrBind {
            ep: _,
            rmr,
            cookie,
            status,
        } => {
            to.rmr_completion_event_data = DAT_RMR_BIND_COMPLETION_EVENT_DATA {
                rmr_handle: bare(rmr),
                user_cookie: DAT_CONTEXT { as_64: cookie },
                status: status as u32,
            };
            DAT_RMR_BIND_COMPLETION_EVENT
        }
        EventData::ConnectionRequest {
            sp,
            local_address,
            qualifier,
            cr,
        } => {
            to.cr_arrival_event_data.sp_handle.psp_handle = bare(sp);
            to.cr_arrival_event_data.local_ia_address_ptr = pointer(local_address);
            to.cr_arrival_event_data.conn_qual = qualifier;
            // The library made this object, so C gets its handle here first.
            to.cr_arrival_event_data.cr_handle = to_c(cr);
            DAT_CONNECTION_REQUEST_EVENT
        }
        EventData::Connection {
            kind,
            ep,
            private_data,
        } => {
            to.connect_event_data = DAT_CONNECTION_EVENT_DATA {
                ep_handle: bare(ep),
                private_data_size: count(private_data.len),
                private_data: pointer(private_data.address),
            };
            kind as DAT_EVENT_NUMBER
        }
        EventData::Async {
            kind,
            handle,
            reason,
        } => {
            to.asynch_error_event_data = DAT_ASYNCH_ERROR_EVENT_DATA {
                dat_handle: bare(handle),
                reason: number(handle, reason),
            };
            kind as DAT_EVENT_NUMBER
        }
        EventData::Software { pointer: given } => {
            to.software_event_data = DAT_SOFTWARE_EVENT_DATA {
                pointer: pointer(given),
            };
            DAT_SOFTWARE_EVENT
        }
        EventData::Dto { .. } | EventData::ExtendedDto { .. } => unreachable!("see `write`"),
    }
}

/// Returns the number of an asynchronous error's reason. The object's kind
/// selects the enumeration; LMRs and PZs have the single reason "other".
fn number(handle: Handle, reason: AsyncReason) -> DAT_COUNT {
    match (handle.kind(), reason) {
        (Some(Kind::Lmr | Kind::Rmr | Kind::Pz), _) | (_, AsyncReason::Failed) => 0,
        (_, AsyncReason::Other) => 1,
        (_, AsyncReason::Watermark) => 2,
    }
}

#[cfg(test)]
mod tests;

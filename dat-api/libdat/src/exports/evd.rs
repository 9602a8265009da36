//! Event dispatchers: every call except those that take events.

use std::sync::Arc;

use dat_api::handle::Pinned;
use dat_api::object::cno::Cno;
use dat_api::object::evd::{Evd, Notification};
use dat_api::object::ia::Ia;
use dat_api::types::EvdFlags;
use dat_api::{Result, Subtype};

use crate::abi::*;
use crate::face::attributes::count;
use crate::face::call::{Named, call};
use crate::face::frame::{bad_argument, require, require_with};
use crate::face::handles::{bare, or_null, pin_or_null};
use crate::face::output::Out;

fn cno_or_null(handle: DAT_CNO_HANDLE) -> Result<Option<Arc<Cno>>> {
    let cno = pin_or_null::<Cno>(handle, Subtype::InvalidHandleCno)?;
    Ok(cno.map(|cno| cno.to_arc()))
}

call!(
    dat_evd_create,
    |ia: Pinned<Ia>,
     evd_min_qlen: DAT_COUNT,
     cno_handle: DAT_CNO_HANDLE,
     evd_flags: DAT_EVD_FLAGS,
     evd_handle: Out<DAT_EVD_HANDLE>| {
        require_with(evd_min_qlen > 0, Subtype::InvalidArg2, || {
            format!("invalid EVD length {evd_min_qlen}: expected 1 or more")
        })?;
        let cno = cno_or_null(cno_handle)?;
        let flags = EvdFlags::from_bits(evd_flags).ok_or_else(|| {
            bad_argument(
                Subtype::InvalidArg4,
                format!(
                    "unknown EVD flags in {evd_flags:#x}: expected DAT_EVD_*_FLAG bits, of {:#x}",
                    EvdFlags::all().bits()
                ),
            )
        })?;
        let place = evd_handle.required(Subtype::InvalidArg5)?;
        let evd = Evd::create(&ia.to_arc(), evd_min_qlen, flags, None)?;
        if let Err(error) = evd.set_cno(cno.as_ref()) {
            let _ = Evd::free(evd.handle());
            return Err(error);
        }
        place.set_new(evd.handle(), Evd::free)
    }
);

fn state(enabled: bool, waitable: bool, notification: Option<Notification>) -> DAT_EVD_STATE {
    let enabled = if enabled {
        DAT_EVD_STATE_ENABLED
    } else {
        DAT_EVD_STATE_DISABLED
    };
    let waitable = if waitable {
        DAT_EVD_STATE_WAITABLE
    } else {
        DAT_EVD_STATE_UNWAITABLE
    };
    let notification = match notification {
        None => 0,
        Some(Notification::PerPost) => DAT_EVD_STATE_CONFIG_NOTIFY,
        Some(Notification::Solicited) => DAT_EVD_STATE_CONFIG_SOLICITED,
        Some(Notification::Threshold) => DAT_EVD_STATE_CONFIG_THRESHOLD,
    };
    enabled | waitable | notification
}

call!(
    dat_evd_query,
    |evd: Pinned<Evd>, mask: DAT_EVD_PARAM_MASK, param: Out<DAT_EVD_PARAM>| {
        param.answer(mask, DAT_EVD_FIELD_ALL, || {
            let info = evd.query();
            DAT_EVD_PARAM {
                ia_handle: bare(info.ia),
                evd_qlen: count(info.queue_length),
                evd_state: state(info.enabled, info.waitable, info.notification),
                cno_handle: or_null(info.cno),
                evd_flags: info.flags.bits(),
            }
        })
    }
);

call!(
    dat_evd_modify_cno,
    |evd: Pinned<Evd>, cno_handle: DAT_CNO_HANDLE| {
        evd.set_cno(cno_or_null(cno_handle)?.as_ref())
    }
);

call!(dat_evd_enable, |evd: Pinned<Evd>| {
    evd.enable();
    Ok(())
});

call!(dat_evd_disable, |evd: Pinned<Evd>| {
    evd.disable();
    Ok(())
});

call!(dat_evd_set_unwaitable, |evd: Pinned<Evd>| {
    evd.set_unwaitable();
    Ok(())
});

call!(dat_evd_clear_unwaitable, |evd: Pinned<Evd>| {
    evd.clear_unwaitable();
    Ok(())
});

call!(
    dat_evd_resize,
    |evd: Pinned<Evd>, evd_min_qlen: DAT_COUNT| evd.resize(evd_min_qlen)
);

// Reads only the event's number and its pointer.
call!(
    dat_evd_post_se,
    posting,
    |evd: Pinned<Evd>, event: *const DAT_EVENT| {
        require(
            !event.is_null(),
            Subtype::InvalidArg2,
            "the event is null: expected a DAT_SOFTWARE_EVENT",
        )?;
        // SAFETY: not null, so readable by the contract of `exports`. Only this
        // field is read: the caller may have left the rest uninitialised.
        let number = unsafe { (&raw const (*event).event_number).read_unaligned() };
        require_with(number == DAT_SOFTWARE_EVENT, Subtype::InvalidArg2, || {
            format!(
                "event number {number:#x}: expected {DAT_SOFTWARE_EVENT:#x}, DAT_SOFTWARE_EVENT; no \
             other event can be posted"
            )
        })?;
        // SAFETY: readable as above; a software event has this member.
        let pointer = unsafe {
            (&raw const (*event).event_data.software_event_data.pointer).read_unaligned()
        };
        Ok(evd.post_software(pointer.expose_provenance())?)
    }
);

call!(dat_evd_free, ending, |evd: Named<Evd>| Evd::free(evd.0));

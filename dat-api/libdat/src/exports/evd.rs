//! Event dispatchers: every call except those that take events.

use std::sync::Arc;

use dat_api::handle::Pinned;
use dat_api::object::cno::Cno;
use dat_api::object::evd::{Evd, Notification};
use dat_api::object::ia::Ia;
use dat_api::types::EvdFlags;
use dat_api::{Kind, Result, Subtype};

use crate::abi::{
    DAT_CNO_HANDLE, DAT_COUNT, DAT_EVD_FIELD_ALL, DAT_EVD_FLAGS, DAT_EVD_HANDLE, DAT_EVD_PARAM,
    DAT_EVD_PARAM_MASK, DAT_EVD_STATE, DAT_EVD_STATE_CONFIG_NOTIFY, DAT_EVD_STATE_CONFIG_SOLICITED,
    DAT_EVD_STATE_CONFIG_THRESHOLD, DAT_EVD_STATE_DISABLED, DAT_EVD_STATE_ENABLED,
    DAT_EVD_STATE_UNWAITABLE, DAT_EVD_STATE_WAITABLE, DAT_EVENT, DAT_IA_HANDLE, DAT_RETURN,
    DAT_SOFTWARE_EVENT,
};
use crate::face::attributes::count;
use crate::face::frame::{bad_argument, control, posting, require, require_with};
use crate::face::handles::{bare, named, or_null, pin, pin_or_null};
use crate::face::output::{Output, query_output};
use crate::face::subject::on;
use crate::providers::dispatch::foreign;

/// The subtype that all these calls return for a bad EVD handle, as Linux
/// registries do.
pub(super) const WHICH: Subtype = Subtype::InvalidHandleEvdRequest;

fn evd(handle: DAT_EVD_HANDLE) -> Result<Pinned<Evd>> {
    pin(handle, WHICH)
}

fn cno_or_null(handle: DAT_CNO_HANDLE) -> Result<Option<Arc<Cno>>> {
    let cno = pin_or_null::<Cno>(handle, Subtype::InvalidHandleCno)?;
    Ok(cno.map(|cno| cno.to_arc()))
}

#[unsafe(export_name = symbol!("dat_evd_create"))]
pub unsafe extern "C" fn dat_evd_create(
    ia_handle: DAT_IA_HANDLE,
    evd_min_qlen: DAT_COUNT,
    cno_handle: DAT_CNO_HANDLE,
    evd_flags: DAT_EVD_FLAGS,
    evd_handle: *mut DAT_EVD_HANDLE,
) -> DAT_RETURN {
    foreign!(ia_handle.evd_create_func(ia_handle, evd_min_qlen, cno_handle, evd_flags, evd_handle));
    control("dat_evd_create", on("ia", ia_handle), || {
        let ia = pin::<Ia>(ia_handle, Subtype::InvalidHandleIa)?;
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
        // SAFETY: the contract of `exports`.
        let place = unsafe { Output::new(evd_handle, Subtype::InvalidArg5) }?;
        let evd = Evd::create(&ia.to_arc(), evd_min_qlen, flags, None)?;
        if let Err(error) = evd.set_cno(cno.as_ref()) {
            let _ = Evd::free(evd.handle());
            return Err(error);
        }
        place.set_handle(evd.handle());
        Ok(())
    })
}

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

#[unsafe(export_name = symbol!("dat_evd_query"))]
pub unsafe extern "C" fn dat_evd_query(
    evd_handle: DAT_EVD_HANDLE,
    evd_param_mask: DAT_EVD_PARAM_MASK,
    evd_param: *mut DAT_EVD_PARAM,
) -> DAT_RETURN {
    foreign!(evd_handle.evd_query_func(evd_handle, evd_param_mask, evd_param));
    control("dat_evd_query", on("evd", evd_handle), || {
        let evd = evd(evd_handle)?;
        // SAFETY: the contract of `exports`.
        let place = unsafe { query_output(evd_param_mask, DAT_EVD_FIELD_ALL, evd_param) }?;
        let info = evd.query();
        place.set(DAT_EVD_PARAM {
            ia_handle: bare(info.ia),
            evd_qlen: count(info.queue_length),
            evd_state: state(info.enabled, info.waitable, info.notification),
            cno_handle: or_null(info.cno),
            evd_flags: info.flags.bits(),
        });
        Ok(())
    })
}

#[unsafe(export_name = symbol!("dat_evd_modify_cno"))]
pub unsafe extern "C" fn dat_evd_modify_cno(
    evd_handle: DAT_EVD_HANDLE,
    cno_handle: DAT_CNO_HANDLE,
) -> DAT_RETURN {
    foreign!(evd_handle.evd_modify_cno_func(evd_handle, cno_handle));
    control("dat_evd_modify_cno", on("evd", evd_handle), || {
        let evd = evd(evd_handle)?;
        evd.set_cno(cno_or_null(cno_handle)?.as_ref())
    })
}

#[unsafe(export_name = symbol!("dat_evd_enable"))]
pub unsafe extern "C" fn dat_evd_enable(evd_handle: DAT_EVD_HANDLE) -> DAT_RETURN {
    foreign!(evd_handle.evd_enable_func(evd_handle));
    control("dat_evd_enable", on("evd", evd_handle), || {
        evd(evd_handle)?.enable();
        Ok(())
    })
}

#[unsafe(export_name = symbol!("dat_evd_disable"))]
pub unsafe extern "C" fn dat_evd_disable(evd_handle: DAT_EVD_HANDLE) -> DAT_RETURN {
    foreign!(evd_handle.evd_disable_func(evd_handle));
    control("dat_evd_disable", on("evd", evd_handle), || {
        evd(evd_handle)?.disable();
        Ok(())
    })
}

#[unsafe(export_name = symbol!("dat_evd_set_unwaitable"))]
pub unsafe extern "C" fn dat_evd_set_unwaitable(evd_handle: DAT_EVD_HANDLE) -> DAT_RETURN {
    foreign!(evd_handle.evd_set_unwaitable_func(evd_handle));
    control("dat_evd_set_unwaitable", on("evd", evd_handle), || {
        evd(evd_handle)?.set_unwaitable();
        Ok(())
    })
}

#[unsafe(export_name = symbol!("dat_evd_clear_unwaitable"))]
pub unsafe extern "C" fn dat_evd_clear_unwaitable(evd_handle: DAT_EVD_HANDLE) -> DAT_RETURN {
    foreign!(evd_handle.evd_clear_unwaitable_func(evd_handle));
    control("dat_evd_clear_unwaitable", on("evd", evd_handle), || {
        evd(evd_handle)?.clear_unwaitable();
        Ok(())
    })
}

#[unsafe(export_name = symbol!("dat_evd_resize"))]
pub unsafe extern "C" fn dat_evd_resize(
    evd_handle: DAT_EVD_HANDLE,
    evd_min_qlen: DAT_COUNT,
) -> DAT_RETURN {
    foreign!(evd_handle.evd_resize_func(evd_handle, evd_min_qlen));
    control("dat_evd_resize", on("evd", evd_handle), || {
        evd(evd_handle)?.resize(evd_min_qlen)
    })
}

/// Reads only the event's number and its pointer.
#[unsafe(export_name = symbol!("dat_evd_post_se"))]
pub unsafe extern "C" fn dat_evd_post_se(
    evd_handle: DAT_EVD_HANDLE,
    event: *const DAT_EVENT,
) -> DAT_RETURN {
    foreign!(evd_handle.evd_post_se_func(evd_handle, event));
    posting("dat_evd_post_se", on("evd", evd_handle), || {
        let evd = evd(evd_handle)?;
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
                "event number {number:#x}: expected {DAT_SOFTWARE_EVENT:#x}, DAT_SOFTWARE_EVENT; \
                 no other event can be posted"
            )
        })?;
        // SAFETY: readable as above; a software event has this member.
        let pointer = unsafe {
            (&raw const (*event).event_data.software_event_data.pointer).read_unaligned()
        };
        Ok(evd.post_software(pointer.expose_provenance())?)
    })
}

#[unsafe(export_name = symbol!("dat_evd_free"))]
pub unsafe extern "C" fn dat_evd_free(evd_handle: DAT_EVD_HANDLE) -> DAT_RETURN {
    foreign!(evd_handle.evd_free_func(evd_handle));
    control("dat_evd_free", on("evd", evd_handle), || {
        Evd::free(named(evd_handle, Kind::Evd, WHICH)?)
    })
}

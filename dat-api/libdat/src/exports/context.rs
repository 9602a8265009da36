//! Calls for objects of any kind: consumer context and handle type.

use dat_api::{DatError, Handle, Kind, Subtype};

use crate::abi::{DAT_CONTEXT, DAT_HANDLE, DAT_HANDLE_TYPE, DAT_RETURN};
use crate::face::frame::control;
use crate::face::handles::{ours, refused_any};
use crate::face::output::Output;
use crate::face::subject::on;
use crate::providers::dispatch::foreign;

/// Returns the handle and kind of a live object of any kind.
fn any(handle: DAT_HANDLE) -> dat_api::Result<(Handle, Kind)> {
    ours(handle)
        .and_then(|handle| Some((handle, handle.kind()?)))
        .ok_or_else(|| gone(handle))
}

/// Returns the error for a handle of no live object.
fn gone(handle: DAT_HANDLE) -> DatError {
    refused_any(handle, "an object", Subtype::InvalidHandle1)
}

#[unsafe(export_name = symbol!("dat_set_consumer_context"))]
pub unsafe extern "C" fn dat_set_consumer_context(
    dat_handle: DAT_HANDLE,
    context: DAT_CONTEXT,
) -> DAT_RETURN {
    foreign!(dat_handle.set_consumer_context_func(dat_handle, context));
    control("dat_set_consumer_context", on("handle", dat_handle), || {
        let (handle, _) = any(dat_handle)?;
        // SAFETY: any 64 bits are a number.
        if handle.set_context(unsafe { context.as_64 }) {
            Ok(())
        } else {
            Err(gone(dat_handle))
        }
    })
}

#[unsafe(export_name = symbol!("dat_get_consumer_context"))]
pub unsafe extern "C" fn dat_get_consumer_context(
    dat_handle: DAT_HANDLE,
    context: *mut DAT_CONTEXT,
) -> DAT_RETURN {
    foreign!(dat_handle.get_consumer_context_func(dat_handle, context));
    control("dat_get_consumer_context", on("handle", dat_handle), || {
        let (handle, _) = any(dat_handle)?;
        // SAFETY: the contract of `exports`.
        let place = unsafe { Output::new(context, Subtype::InvalidArg2) }?;
        let as_64 = handle.context().ok_or_else(|| gone(dat_handle))?;
        place.set(DAT_CONTEXT { as_64 });
        Ok(())
    })
}

#[unsafe(export_name = symbol!("dat_get_handle_type"))]
pub unsafe extern "C" fn dat_get_handle_type(
    dat_handle: DAT_HANDLE,
    handle_type: *mut DAT_HANDLE_TYPE,
) -> DAT_RETURN {
    foreign!(dat_handle.get_handle_type_func(dat_handle, handle_type));
    control("dat_get_handle_type", on("handle", dat_handle), || {
        let (_, kind) = any(dat_handle)?;
        // SAFETY: the contract of `exports`.
        let place = unsafe { Output::new(handle_type, Subtype::InvalidArg2) }?;
        // `Kind` has the numbers of the header.
        place.set(kind as DAT_HANDLE_TYPE);
        Ok(())
    })
}

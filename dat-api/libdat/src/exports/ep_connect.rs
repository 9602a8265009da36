//! Endpoints: connecting and disconnecting.

use core::time::Duration;

use dat_api::object::ep::{Connect, Ep};
use dat_api::{Result, Subtype};

use super::ia::graceful;
use crate::abi::{
    DAT_CLOSE_FLAGS, DAT_CONN_QUAL, DAT_CONNECT_FLAGS, DAT_COUNT, DAT_EP_HANDLE,
    DAT_IA_ADDRESS_PTR, DAT_PVOID, DAT_QOS, DAT_RETURN, DAT_TIMEOUT, DAT_TIMEOUT_INFINITE,
};
use crate::face::address;
use crate::face::frame::{bad_argument, control, require_with};
use crate::face::handles::pin;
use crate::face::subject::on;
use crate::providers::dispatch::foreign;

/// Returns the private data of a call. `size` and `data` name the arguments for
/// error returns.
///
/// # Safety
/// The pointer is null, or leads to as many readable bytes as `count` says, for
/// the duration of the call.
pub(crate) unsafe fn private_data<'a>(
    count: DAT_COUNT,
    bytes: DAT_PVOID,
    size: Subtype,
    data: Subtype,
) -> Result<&'a [u8]> {
    let count = usize::try_from(count).map_err(|_| {
        bad_argument(
            size,
            format!("invalid size of the private data, {count} bytes: expected 0 or more"),
        )
    })?;
    if count == 0 {
        return Ok(&[]);
    }
    require_with(!bytes.is_null(), data, || {
        format!(
            "the private data are null, but their size is {count} bytes: expected data, or size 0"
        )
    })?;
    // SAFETY: required of the caller.
    Ok(unsafe { core::slice::from_raw_parts(bytes.cast::<u8>(), count) })
}

/// Converts a timeout. Returns `None` for an infinite one.
fn timeout(timeout: DAT_TIMEOUT, argument: Subtype) -> Result<Option<Duration>> {
    match timeout {
        DAT_TIMEOUT_INFINITE => Ok(None),
        0 => Err(bad_argument(
            argument,
            "the timeout is 0: expected 1 microsecond or more, or DAT_TIMEOUT_INFINITE",
        )),
        microseconds => Ok(Some(Duration::from_micros(microseconds.into()))),
    }
}

#[unsafe(export_name = symbol!("dat_ep_connect"))]
pub unsafe extern "C" fn dat_ep_connect(
    ep_handle: DAT_EP_HANDLE,
    remote_ia_address: DAT_IA_ADDRESS_PTR,
    remote_conn_qual: DAT_CONN_QUAL,
    timeout: DAT_TIMEOUT,
    private_data_size: DAT_COUNT,
    private_data: DAT_PVOID,
    quality_of_service: DAT_QOS,
    connect_flags: DAT_CONNECT_FLAGS,
) -> DAT_RETURN {
    foreign!(ep_handle.ep_connect_func(
        ep_handle,
        remote_ia_address,
        remote_conn_qual,
        timeout,
        private_data_size,
        private_data,
        quality_of_service,
        connect_flags
    ));
    control("dat_ep_connect", on("ep", ep_handle), || {
        let ep = pin::<Ep>(ep_handle, Subtype::InvalidHandleEp)?;
        // SAFETY: the contract of `exports`.
        let address = unsafe { address::read(remote_ia_address, Subtype::InvalidArg2) }?;
        let timeout = self::timeout(timeout, Subtype::InvalidArg4)?;
        // SAFETY: the contract of `exports`.
        let private_data = unsafe {
            self::private_data(
                private_data_size,
                private_data,
                Subtype::InvalidArg5,
                Subtype::InvalidArg6,
            )
        }?;
        ep.connect(&Connect {
            address,
            qualifier: remote_conn_qual,
            timeout,
            private_data,
            qos: quality_of_service,
            flags: connect_flags,
        })
    })
}

#[unsafe(export_name = symbol!("dat_ep_dup_connect"))]
pub unsafe extern "C" fn dat_ep_dup_connect(
    ep_handle: DAT_EP_HANDLE,
    ep_dup_handle: DAT_EP_HANDLE,
    timeout: DAT_TIMEOUT,
    private_data_size: DAT_COUNT,
    private_data: DAT_PVOID,
    quality_of_service: DAT_QOS,
) -> DAT_RETURN {
    foreign!(ep_handle.ep_dup_connect_func(
        ep_handle,
        ep_dup_handle,
        timeout,
        private_data_size,
        private_data,
        quality_of_service
    ));
    control("dat_ep_dup_connect", on("ep", ep_handle), || {
        let ep = pin::<Ep>(ep_handle, Subtype::InvalidHandleEp)?;
        let model = pin::<Ep>(ep_dup_handle, Subtype::InvalidHandleEp)?;
        let timeout = self::timeout(timeout, Subtype::InvalidArg3)?;
        // SAFETY: the contract of `exports`.
        let private_data = unsafe {
            self::private_data(
                private_data_size,
                private_data,
                Subtype::InvalidArg4,
                Subtype::InvalidArg5,
            )
        }?;
        ep.dup_connect(&model, timeout, private_data, quality_of_service)
    })
}

#[unsafe(export_name = symbol!("dat_ep_disconnect"))]
pub unsafe extern "C" fn dat_ep_disconnect(
    ep_handle: DAT_EP_HANDLE,
    close_flags: DAT_CLOSE_FLAGS,
) -> DAT_RETURN {
    foreign!(ep_handle.ep_disconnect_func(ep_handle, close_flags));
    control("dat_ep_disconnect", on("ep", ep_handle), || {
        let ep = pin::<Ep>(ep_handle, Subtype::InvalidHandleEp)?;
        let graceful = graceful(close_flags)?;
        // SAFETY: the contract of `exports`: calls on one endpoint take turns.
        unsafe { ep.disconnect(graceful) }
    })
}

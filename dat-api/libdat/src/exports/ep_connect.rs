//! Endpoints: connecting and disconnecting.

use core::time::Duration;

use dat_api::handle::Pinned;
use dat_api::object::ep::{Connect, Ep};
use dat_api::{Result, Subtype};

use super::ia::graceful;
use crate::abi::*;
use crate::face::address;
use crate::face::call::call;
use crate::face::frame::bad_argument;
use crate::face::handles::pin;
use crate::face::private_data::PrivateData;

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

call!(
    dat_ep_connect,
    |ep: Pinned<Ep>,
     remote_ia_address: DAT_IA_ADDRESS_PTR,
     qualifier: DAT_CONN_QUAL,
     timeout: DAT_TIMEOUT,
     private_data_size: DAT_COUNT,
     private_data: PrivateData,
     qos: DAT_QOS,
     flags: DAT_CONNECT_FLAGS| {
        // SAFETY: the contract of `exports`.
        let address = unsafe { address::read(remote_ia_address, Subtype::InvalidArg2) }?;
        let timeout = self::timeout(timeout, Subtype::InvalidArg4)?;
        let at = [Subtype::InvalidArg5, Subtype::InvalidArg6];
        ep.connect(&Connect {
            address,
            qualifier,
            timeout,
            private_data: private_data.of_size(private_data_size, at)?,
            qos,
            flags,
        })
    }
);

call!(
    dat_ep_dup_connect,
    |ep: Pinned<Ep>,
     ep_dup_handle: DAT_EP_HANDLE,
     timeout: DAT_TIMEOUT,
     private_data_size: DAT_COUNT,
     private_data: PrivateData,
     quality_of_service: DAT_QOS| {
        let model = pin::<Ep>(ep_dup_handle)?;
        let timeout = self::timeout(timeout, Subtype::InvalidArg3)?;
        let at = [Subtype::InvalidArg4, Subtype::InvalidArg5];
        let private_data = private_data.of_size(private_data_size, at)?;
        ep.dup_connect(&model, timeout, private_data, quality_of_service)
    }
);

call!(
    dat_ep_disconnect,
    ending,
    |ep: Pinned<Ep>, close_flags: DAT_CLOSE_FLAGS| {
        let graceful = graceful(close_flags)?;
        // SAFETY: the contract of `exports`: calls on one endpoint take turns.
        unsafe { ep.disconnect(graceful) }
    }
);

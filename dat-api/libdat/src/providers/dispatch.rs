//! Forwarding a call to the provider that its handle belongs to.

use dat_api::{DatError, ReturnType, Subtype};

pub(crate) use super::tables::of;

use crate::abi::{DAT_HANDLE, DAT_RETURN};
use crate::face::refused::refuse;
use crate::face::subject::on;

/// Refuses a call for which the provider's table has no function.
#[cold]
pub(crate) fn missing(call: &str, handle: DAT_HANDLE) -> DAT_RETURN {
    let error = DatError::new(
        ReturnType::NotImplemented,
        Subtype::NoSubtype,
        "the library that made the handle has no function for this call in its table: use a newer \
         version of that library, or do without the call",
    );
    refuse(call, on("handle", handle), &error)
}

/// Returns from the calling function with the result of another provider's function for a
/// call, if the handle belongs to one. Cancellation of the thread is disabled meanwhile.
macro_rules! foreign {
    ($call:ident ( $handle:ident $(, $argument:expr)* $(,)? )) => {
        if let Some(table) = $crate::providers::dispatch::of($handle) {
            let _held = dat_api::CancellationDisabled::new();
            return $crate::providers::dispatch::through!(table, $call($handle $(, $argument)*));
        }
    };
}

/// Like [`foreign`], for a call that is a cancellation point (pthreads(7)): the
/// thread may end inside the other provider's call, so the caller must hold
/// nothing that needs a drop.
macro_rules! foreign_wait {
    ($call:ident ( $handle:ident $(, $argument:expr)* $(,)? )) => {
        if let Some(table) = $crate::providers::dispatch::of($handle) {
            return $crate::providers::dispatch::through!(table, $call($handle $(, $argument)*));
        }
    };
}

/// Calls a function of a provider table.
macro_rules! through {
    ($table:ident, $call:ident ( $handle:ident $(, $argument:expr)* )) => {
        // SAFETY: a known table is readable, and the handle belongs to its
        // provider. The rest is required of the caller.
        unsafe {
            match $crate::face::provider::slot::$call($table) {
                Some(call) => call($handle $(, $argument)*),
                None => $crate::providers::dispatch::missing(stringify!($call), $handle),
            }
        }
    };
}

pub(crate) use {foreign, foreign_wait, through};

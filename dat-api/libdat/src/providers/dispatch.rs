//! Forwarding a call to the provider that its handle belongs to.

pub(crate) use super::tables::of;

/// Returned if the provider's table has no function for the call.
pub(crate) const MISSING: crate::abi::DAT_RETURN = dat_api::DatReturn::error(
    dat_api::ReturnType::NotImplemented,
    dat_api::Subtype::NoSubtype,
)
.bits();

/// Returns from the calling function with the result of another provider, if the
/// handle belongs to one. Cancellation of the thread is disabled meanwhile.
macro_rules! foreign {
    ($handle:ident . $slot:ident ( $($argument:expr),* $(,)? )) => {
        if let Some(table) = $crate::providers::dispatch::of($handle) {
            let _held = dat_api::CancellationDisabled::new();
            return $crate::providers::dispatch::through!(table, $slot($($argument),*));
        }
    };
}

/// Like [`foreign`], for a call that is a cancellation point (pthreads(7)): the
/// thread may end inside the other provider's call, so the caller must hold
/// nothing that needs a drop.
macro_rules! foreign_wait {
    ($handle:ident . $slot:ident ( $($argument:expr),* $(,)? )) => {
        if let Some(table) = $crate::providers::dispatch::of($handle) {
            return $crate::providers::dispatch::through!(table, $slot($($argument),*));
        }
    };
}

/// Calls a function of a provider table.
macro_rules! through {
    ($table:ident, $slot:ident ( $($argument:expr),* )) => {
        // SAFETY: a known table is readable, and the handle belongs to its
        // provider. The rest is required of the caller.
        unsafe {
            match (*$table.as_ptr()).$slot {
                Some(call) => call($($argument),*),
                None => $crate::providers::dispatch::MISSING,
            }
        }
    };
}

pub(crate) use {foreign, foreign_wait, through};

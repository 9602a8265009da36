//! Sending a call on to the provider whose handle it has.

pub(crate) use super::tables::of;

/// What a provider answers for a call that its table does not have.
pub(crate) const MISSING: crate::abi::DAT_RETURN = dat_api::DatReturn::error(
    dat_api::ReturnType::NotImplemented,
    dat_api::Subtype::NoSubtype,
)
.bits();

/// Ends the call with the answer of another provider, if the handle is its. The
/// thread is not cancelled meanwhile.
macro_rules! foreign {
    ($handle:ident . $slot:ident ( $($argument:expr),* $(,)? )) => {
        if let Some(table) = $crate::providers::dispatch::of($handle) {
            let _held = dat_api::CancellationHeld::new();
            return $crate::providers::dispatch::through!(table, $slot($($argument),*));
        }
    };
}

/// [`foreign`] for a call that is a cancellation point (pthreads(7)): the thread may
/// end in the other provider's call. So the caller holds nothing that is to be
/// dropped.
macro_rules! foreign_wait {
    ($handle:ident . $slot:ident ( $($argument:expr),* $(,)? )) => {
        if let Some(table) = $crate::providers::dispatch::of($handle) {
            return $crate::providers::dispatch::through!(table, $slot($($argument),*));
        }
    };
}

/// The answer of a call through a table.
macro_rules! through {
    ($table:ident, $slot:ident ( $($argument:expr),* )) => {
        // SAFETY: a table that is known is readable, and this is its provider's own
        // handle. The rest is the caller's promise.
        unsafe {
            match (*$table.as_ptr()).$slot {
                Some(call) => call($($argument),*),
                None => $crate::providers::dispatch::MISSING,
            }
        }
    };
}

pub(crate) use {foreign, foreign_wait, through};

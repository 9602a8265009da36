//! Sending a call on to the provider whose handle it has.

pub(crate) use super::tables::of;

/// What a provider answers for a call that its table does not have.
pub(crate) const MISSING: crate::abi::DAT_RETURN = dat_api::DatReturn::error(
    dat_api::ReturnType::NotImplemented,
    dat_api::Subtype::NoSubtype,
)
.bits();

/// Ends the call with the answer of another provider, if the handle is its.
macro_rules! foreign {
    ($handle:ident . $slot:ident ( $($argument:expr),* $(,)? )) => {
        if let Some(table) = $crate::providers::dispatch::of($handle) {
            // SAFETY: a table that is known is readable, and this is its
            // provider's own handle. The rest is the caller's promise.
            return unsafe {
                match (*table.as_ptr()).$slot {
                    Some(call) => call($($argument),*),
                    None => $crate::providers::dispatch::MISSING,
                }
            };
        }
    };
}
pub(crate) use foreign;

//! Names of return codes.

use core::ffi::c_char;

use dat_api::{DatReturn, ReturnType, Subtype};

use crate::abi::{DAT_INVALID_PARAMETER, DAT_RETURN};

/// Returns the enumerators' names of a return code. The subtype's name is empty
/// if the code has no detail. The class bits are ignored. As in other registries,
/// the return code for an unknown value has no class bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_strerror(
    value: DAT_RETURN,
    major_message: *mut *const c_char,
    minor_message: *mut *const c_char,
) -> DAT_RETURN {
    let bad = |argument| DatReturn::error(ReturnType::InvalidParameter, argument).bits();
    if major_message.is_null() {
        return bad(Subtype::InvalidArg2);
    }
    if minor_message.is_null() {
        return bad(Subtype::InvalidArg3);
    }
    let value = DatReturn::from_bits(value);
    let (Some(kind), Some(subtype)) = (value.kind(), value.subtype()) else {
        return DAT_INVALID_PARAMETER;
    };
    let detail = match subtype {
        Subtype::NoSubtype => c"",
        _ => subtype.c_name(),
    };
    // SAFETY: not null, so both are writable by the contract of `exports`.
    unsafe {
        major_message.write_unaligned(kind.c_name().as_ptr());
        minor_message.write_unaligned(detail.as_ptr());
    }
    DatReturn::SUCCESS.bits()
}

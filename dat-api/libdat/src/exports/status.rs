//! Names of return codes.

use core::ffi::c_char;

use dat_api::{DatError, DatReturn, Subtype};

use crate::abi::*;
use crate::face::refused::{null_result, refuse};
use crate::face::subject::Subject;
use crate::version;

/// Returns the enumerators' names of a return code. The subtype's name is empty
/// if the code has no detail. The class bits are ignored. As in other registries,
/// the return code for an unknown value has no class bits.
#[unsafe(export_name = symbol!(dat_strerror))]
pub unsafe extern "C" fn dat_strerror(
    value: DAT_RETURN,
    major_message: *mut *const c_char,
    minor_message: *mut *const c_char,
) -> DAT_RETURN {
    let refuse = |error: &DatError| refuse("dat_strerror", Subject::Nothing, error);
    if major_message.is_null() {
        return refuse(&null_result(Subtype::InvalidArg2, "name of the type").into());
    }
    if minor_message.is_null() {
        return refuse(&null_result(Subtype::InvalidArg3, "name of the subtype").into());
    }
    let (Some(kind), Some(subtype)) = version::names(value) else {
        return refuse(&DatError::explained(
            DatReturn::from_bits(DAT_INVALID_PARAMETER),
            format!(
                "unknown DAT_RETURN {value:#010x}: expected a code that a DAT call has returned"
            ),
        ));
    };
    let detail = match value & DAT_SUBTYPE_MASK {
        DAT_NO_SUBTYPE => c"",
        _ => subtype,
    };
    // SAFETY: not null, so both are writable by the contract of `exports`.
    unsafe {
        major_message.write_unaligned(kind.as_ptr());
        minor_message.write_unaligned(detail.as_ptr());
    }
    DatReturn::SUCCESS.bits()
}

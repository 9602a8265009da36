//! The Rust side of `c/extension.c`.

use core::ptr;

use dat_api::{DatError, ReturnType, Subtype};

use crate::abi::{
    DAT_EXTENDED_OP, DAT_HANDLE, DAT_HANDLE_EXTENDEDOP_FUNC, DAT_PROVIDER, DAT_RETURN,
};
use crate::face::frame::control;
use crate::face::subject::on;
use crate::providers::dispatch;

unsafe extern "C" {
    /// The extension call of this library, in `c/extension.c`, with the parameters of
    /// the table. Rust has no type for its `va_list`.
    fn libdat2_extension();
}

/// The extension call as the provider table has it.
pub(crate) const CALL: DAT_HANDLE_EXTENDEDOP_FUNC = {
    // SAFETY: functions have pointers of one size, and C defines this one with the
    // parameters of the table.
    unsafe {
        core::mem::transmute::<unsafe extern "C" fn(), DAT_HANDLE_EXTENDEDOP_FUNC>(
            libdat2_extension,
        )
    }
};

// Only C of this library calls the functions below.
core::arch::global_asm!(
    ".hidden libdat2_foreign_table",
    ".hidden libdat2_unknown_operation"
);

/// Returns the table of the other provider that a handle belongs to, or null.
#[unsafe(no_mangle)]
extern "C" fn libdat2_foreign_table(handle: DAT_HANDLE) -> *const DAT_PROVIDER {
    dispatch::of(handle).map_or(ptr::null(), |table| table.as_ptr().cast_const())
}

/// Refuses an operation.
#[unsafe(no_mangle)]
extern "C" fn libdat2_unknown_operation(
    handle: DAT_HANDLE,
    operation: DAT_EXTENDED_OP,
) -> DAT_RETURN {
    control("dat_extension_op", on("handle", handle), || {
        Err(DatError::new(
            ReturnType::ModelNotSupported,
            Subtype::NoSubtype,
            format!(
                "operation {operation:#x} is not supported: DAT_IA_ATTR.extension_supported says \
                 which extensions an adapter has"
            ),
        ))
    })
}

//! Where posts find what an `lmr_context` stands for.
use crate::status::DatReturn;
use crate::types::MemPrivileges;

/// An entry of the table, taken out when this is dropped.
#[derive(Debug)]
pub(super) struct Entry {}

/// The key of the device for a segment.
///
/// # Errors
/// - Not all of it inside the LMR: `DAT_INVALID_PARAMETER` (R10).
/// - An LMR of another zone: `DAT_PROTECTION_VIOLATION` (R11).
/// - No such LMR, or one without a privilege of `need`: `DAT_PRIVILEGES_VIOLATION` (R12).
#[inline]
pub(crate) fn lookup(
    context: u32,
    address: u64,
    length: u64,
    pz: u32,
    need: MemPrivileges,
) -> Result<u32, DatReturn> {
    let _ = (context, address, length, pz, need);
    unimplemented!()
}

//! The registry: which adapters there are, and the providers of others.

use core::ptr::NonNull;

use dat_api::Subtype;
use dat_api::registry;

use crate::abi::{DAT_COUNT, DAT_PROVIDER, DAT_PROVIDER_INFO, DAT_RETURN};
use crate::face::answer::{bad_argument, control, require};
use crate::face::output::Output;
use crate::face::strings::copy;
use crate::providers::{Key, dynamic};

/// Copies as many entries as there is room for, and counts all. If there are
/// more than that, or no room was given at all, the answer is
/// `DAT_INVALID_PARAMETER`: the caller knows then how many to ask for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_registry_list_providers(
    max_to_return: DAT_COUNT,
    entries_returned: *mut DAT_COUNT,
    dat_provider_list: *mut *mut DAT_PROVIDER_INFO,
) -> DAT_RETURN {
    control("dat_registry_list_providers", || {
        // SAFETY: the contract of `exports`.
        let counted = unsafe { Output::new(entries_returned, Subtype::InvalidArg2) }?;
        let room = usize::try_from(max_to_return)
            .map_err(|_| bad_argument(Subtype::InvalidArg1, "the room is negative"))?;
        require(
            room == 0 || !dat_provider_list.is_null(),
            Subtype::InvalidArg3,
            "the list is null",
        )?;
        let entries = registry::list_providers()?;
        let places = (0..room.min(entries.len()))
            .map(|at| {
                // SAFETY: not null, and by the contract an array of `room`.
                let place = unsafe { dat_provider_list.add(at).read_unaligned() };
                // SAFETY: the contract.
                unsafe { Output::new(place, Subtype::InvalidArg3) }
            })
            .collect::<Result<Vec<_>, _>>()?;
        counted.set(DAT_COUNT::try_from(entries.len()).unwrap_or(DAT_COUNT::MAX));
        for (place, entry) in places.into_iter().zip(&entries) {
            place.set(DAT_PROVIDER_INFO {
                ia_name: copy(&entry.name),
                dapl_version_major: entry.major,
                dapl_version_minor: entry.minor,
                is_thread_safe: entry.threadsafe.into(),
            });
        }
        require(
            room > 0 && room >= entries.len(),
            Subtype::InvalidArg1,
            "there are more entries than there is room for",
        )
    })
}

/// The arguments of both calls that follow.
///
/// # Safety
/// The contract of `exports`.
unsafe fn read(
    provider: *mut DAT_PROVIDER,
    info: *const DAT_PROVIDER_INFO,
) -> dat_api::Result<(Key, NonNull<DAT_PROVIDER>)> {
    let table = NonNull::new(provider)
        .filter(|table| table.is_aligned())
        .ok_or_else(|| bad_argument(Subtype::InvalidArg1, "the table is null or misaligned"))?;
    // SAFETY: the caller's promise.
    Ok((unsafe { Key::read(info, Subtype::InvalidArg2) }?, table))
}

/// Registers a provider: from now on `dat_ia_open` finds the name. The table
/// must stay until it is removed; the key is copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_registry_add_provider(
    provider: *mut DAT_PROVIDER,
    provider_info: *const DAT_PROVIDER_INFO,
) -> DAT_RETURN {
    control("dat_registry_add_provider", || {
        // SAFETY: the contract of `exports`.
        let (key, table) = unsafe { read(provider, provider_info) }?;
        dynamic::add(key, table)
    })
}

/// Removes a provider that has no open adapter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_registry_remove_provider(
    provider: *mut DAT_PROVIDER,
    provider_info: *const DAT_PROVIDER_INFO,
) -> DAT_RETURN {
    control("dat_registry_remove_provider", || {
        // SAFETY: the contract of `exports`.
        let (key, _) = unsafe { read(provider, provider_info) }?;
        dynamic::remove(&key)
    })
}

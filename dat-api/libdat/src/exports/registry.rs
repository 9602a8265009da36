//! The registry: listing adapters, and registering other providers.

use core::ptr::NonNull;

use dat_api::options::Options;
use dat_api::registry;
use dat_api::{Result, Subtype};

use crate::abi::*;
use crate::face::debug;
use crate::face::frame::{bad_argument, control, ending, require, require_with};
use crate::face::output::Out;
use crate::face::strings::copy;
use crate::face::subject::Subject;
use crate::providers::{Key, dynamic};
use crate::version::VERSION;

/// Copies as many entries as the array has room for, and returns their number in
/// `entries_returned`. Without room for one, or in strict mode without room for
/// all, the call returns `DAT_INVALID_PARAMETER` and the number of all entries,
/// with which the caller retries.
#[unsafe(export_name = symbol!(dat_registry_list_providers))]
pub unsafe extern "C" fn dat_registry_list_providers(
    max_to_return: DAT_COUNT,
    entries_returned: *mut DAT_COUNT,
    dat_provider_list: *mut *mut DAT_PROVIDER_INFO,
) -> DAT_RETURN {
    control("dat_registry_list_providers", Subject::Nothing, || {
        debug::follow_library();
        // SAFETY: the contract of `exports`.
        let counted = unsafe { Out::new(entries_returned) }.required(Subtype::InvalidArg2)?;
        let room = usize::try_from(max_to_return).map_err(|_| {
            bad_argument(
                Subtype::InvalidArg1,
                format!("room for {max_to_return} entries: expected 0 or more"),
            )
        })?;
        require(
            room == 0 || !dat_provider_list.is_null(),
            Subtype::InvalidArg3,
            "the list is null, but has room for entries: expected an array of pointers",
        )?;
        let (entries, is_refused) = entries_for(room)?;
        let places = (0..room.min(entries.len()))
            .map(|at| {
                // SAFETY: not null, and by the contract of `exports` an array of
                // `room` elements.
                let place = unsafe { dat_provider_list.add(at).read_unaligned() };
                // SAFETY: the contract of `exports`.
                unsafe { Out::new(place) }.required(Subtype::InvalidArg3)
            })
            .collect::<Result<Vec<_>, _>>()?;
        // A program that the call succeeds for reads as many entries as this says.
        let count = if is_refused {
            entries.len()
        } else {
            places.len()
        };
        counted.set(DAT_COUNT::try_from(count).unwrap_or(DAT_COUNT::MAX));
        for (place, entry) in places.into_iter().zip(&entries) {
            place.set(DAT_PROVIDER_INFO {
                ia_name: copy(&entry.name),
                dapl_version_major: entry.major,
                dapl_version_minor: entry.minor,
                is_thread_safe: entry.threadsafe.into(),
            });
        }
        let all = entries.len();
        require_with(!is_refused, Subtype::InvalidArg1, || {
            format!(
                "max_to_return is {room}, and there are {}: pass {all} pointers or more \
                 (entries_returned has the number)",
                counted_entries(all)
            )
        })?;
        if count < all {
            debug::remark("dat_registry_list_providers", || {
                format!(
                    "{count} of {} copied, because max_to_return is {room}: pass {all} pointers \
                     or more for all of them",
                    counted_entries(all)
                )
            });
        }
        Ok(())
    })
}

fn counted_entries(count: usize) -> String {
    match count {
        1 => "1 entry".to_owned(),
        _ => format!("{count} entries"),
    }
}

/// Returns all entries, in the order for an array of this size, and whether such
/// an array is refused.
fn entries_for(room: usize) -> Result<(Vec<registry::Provider>, bool)> {
    let all = registry::list_providers(VERSION)?;
    if room > 0 && room >= all.len() {
        return Ok((all, false));
    }
    if room == 0 || Options::from_environment()?.strict {
        return Ok((all, true));
    }
    Ok((registry::list_providers_served_first(VERSION)?, false))
}

/// Reads the arguments of both calls below.
///
/// # Safety
/// The contract of `exports`.
unsafe fn read(
    provider: *mut DAT_PROVIDER,
    info: *const DAT_PROVIDER_INFO,
) -> dat_api::Result<(Key, NonNull<DAT_PROVIDER>)> {
    let table = NonNull::new(provider)
        .filter(|table| table.is_aligned())
        .ok_or_else(|| bad_argument(Subtype::InvalidArg1, "the provider's table is null or misaligned: expected the address of a DAT_PROVIDER"))?;
    // SAFETY: `info` is null or leads to a key.
    Ok((unsafe { Key::read(info, Subtype::InvalidArg2) }?, table))
}

/// Registers a provider: `dat_ia_open` finds its name from then on. The table
/// must stay valid until the entry is removed; the key is copied.
#[unsafe(export_name = symbol!(dat_registry_add_provider))]
pub unsafe extern "C" fn dat_registry_add_provider(
    provider: *mut DAT_PROVIDER,
    provider_info: *const DAT_PROVIDER_INFO,
) -> DAT_RETURN {
    control("dat_registry_add_provider", Subject::Nothing, || {
        // SAFETY: the contract of `exports`.
        let (key, table) = unsafe { read(provider, provider_info) }?;
        dynamic::add(key, table)
    })
}

/// Removes a provider that has no open adapter.
#[unsafe(export_name = symbol!(dat_registry_remove_provider))]
pub unsafe extern "C" fn dat_registry_remove_provider(
    provider: *mut DAT_PROVIDER,
    provider_info: *const DAT_PROVIDER_INFO,
) -> DAT_RETURN {
    ending("dat_registry_remove_provider", Subject::Nothing, || {
        // SAFETY: the contract of `exports`.
        let (key, _) = unsafe { read(provider, provider_info) }?;
        dynamic::remove(&key)
    })
}

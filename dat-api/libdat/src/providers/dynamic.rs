//! The dynamic registry: the providers that have registered.

use core::ptr::NonNull;

use dat_api::sync::Mutex;
use dat_api::{DatError, Result, ReturnType, Subtype, memory};

use super::{Key, tables};
use crate::abi::DAT_PROVIDER;

struct Registration {
    key: Key,
    table: usize,
    /// Number of adapters that are open or being opened.
    opens: usize,
}

static ENTRIES: Mutex<Vec<Registration>> = Mutex::new(Vec::new());

/// Adds an entry.
///
/// # Errors
/// `DAT_PROVIDER_ALREADY_REGISTERED`.
pub(crate) fn add(key: Key, table: NonNull<DAT_PROVIDER>) -> Result<()> {
    let mut entries = ENTRIES.lock();
    if entries.iter().any(|entry| entry.key == key) {
        return Err(DatError::new(
            ReturnType::ProviderAlreadyRegistered,
            Subtype::NoSubtype,
            format!(
                "a provider of \"{}\" with this version and thread safety is already registered",
                key.text()
            ),
        ));
    }
    entries.reserve(1);
    tables::add(table);
    memory::commit().inspect_err(|_| tables::remove(table))?;
    entries.push(Registration {
        key,
        table: table.as_ptr().expose_provenance(),
        opens: 0,
    });
    Ok(())
}

/// Removes an entry.
///
/// # Errors
/// - `DAT_INVALID_PARAMETER`, argument 2: there is none.
/// - `DAT_PROVIDER_IN_USE`: an adapter of it is open.
pub(crate) fn remove(key: &Key) -> Result<()> {
    let mut entries = ENTRIES.lock();
    let Some(at) = entries.iter().position(|entry| entry.key == *key) else {
        return Err(DatError::new(
            ReturnType::InvalidParameter,
            Subtype::InvalidArg2,
            format!(
                "no provider of \"{}\" with this version and thread safety is registered",
                key.text()
            ),
        ));
    };
    if entries[at].opens > 0 {
        return Err(DatError::new(
            ReturnType::ProviderInUse,
            Subtype::NoSubtype,
            format!(
                "{} adapters of \"{}\" are open; close them first",
                entries[at].opens,
                key.text()
            ),
        ));
    }
    let entry = entries.swap_remove(at);
    drop(entries);
    tables::remove(table_at(entry.table));
    Ok(())
}

/// Returns the table of an entry, which cannot be removed until [`close`].
pub(super) fn open(key: &Key) -> Option<NonNull<DAT_PROVIDER>> {
    let mut entries = ENTRIES.lock();
    let entry = entries.iter_mut().find(|entry| entry.key == *key)?;
    entry.opens += 1;
    Some(table_at(entry.table))
}

/// Ends one [`open`].
pub(super) fn close(key: &Key) {
    if let Some(entry) = ENTRIES.lock().iter_mut().find(|entry| entry.key == *key) {
        entry.opens = entry.opens.saturating_sub(1);
    }
}

/// Returns whether adapters of the provider are open.
pub(super) fn is_in_use(key: &Key) -> bool {
    let entries = ENTRIES.lock();
    let mut of_it = entries.iter().filter(|entry| entry.key == *key);
    of_it.any(|entry| entry.opens > 0)
}

fn table_at(address: usize) -> NonNull<DAT_PROVIDER> {
    match NonNull::new(core::ptr::with_exposed_provenance_mut(address)) {
        Some(table) => table,
        None => unreachable!("it was taken from a pointer that is not null"),
    }
}

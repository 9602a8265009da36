//! This library as a provider in the registry of another library.
//!
//! Both libraries have the same soname, so the other registry loads this one under
//! another file name. It then calls `dat_provider_init` for an entry of
//! its dat.conf. The functions that add and remove the entry must be that
//! registry's: they are looked up with `dlsym`, because a call by name would
//! reach this library's own.
//!
//! Decision: `docs/decisions/017-provider-in-another-registry.md`

use core::ffi::{CStr, c_char, c_void};
use core::mem;
use core::ptr::NonNull;
use std::ffi::CString;

use dat_api::sync::Mutex;
use dat_api::{DatError, DatReturn, Result, ReturnType, Subtype, memory};

use super::Key;
use crate::abi::{DAT_PROVIDER, DAT_PROVIDER_INFO, DAT_RETURN};
use crate::exports::{dat_registry_add_provider, dat_registry_remove_provider, query_for_registry};
use crate::face::provider::PROVIDER;

/// The type of `dat_registry_add_provider` and `dat_registry_remove_provider`.
type Registry = unsafe extern "C" fn(*mut DAT_PROVIDER, *const DAT_PROVIDER_INFO) -> DAT_RETURN;

/// An entry in the other registry.
struct Guest {
    key: Key,
    /// A copy of [`PROVIDER`] with the entry's name and a query for later
    /// registries. It lives as long as the entry.
    table: Box<DAT_PROVIDER>,
    /// The text that the table's name points to.
    _name: CString,
    /// The instance data of the entry.
    instance_data: String,
}

// SAFETY: the pointers of the table lead to statics and to the name.
unsafe impl Send for Guest {}

static GUESTS: Mutex<Vec<Guest>> = Mutex::new(Vec::new());

/// What the other registry has for an adapter's name.
#[derive(Clone)]
pub(crate) struct RegistryEntry {
    pub(crate) instance_data: String,
    pub(crate) key: Key,
    table: usize,
}

impl RegistryEntry {
    /// Returns the table that the first word of the adapter's handle points to.
    pub(crate) fn table(&self) -> *const c_void {
        core::ptr::with_exposed_provenance(self.table)
    }
}

/// Returns the entry of a name, if another registry has one.
pub(crate) fn of(name: &[u8]) -> Option<RegistryEntry> {
    let guests = GUESTS.lock();
    let guest = guests.iter().rev().find(|guest| guest.key.name == name)?;
    Some(RegistryEntry {
        instance_data: guest.instance_data.clone(),
        key: guest.key.clone(),
        table: (&raw const *guest.table).expose_provenance(),
    })
}

/// Registers a key with the other registry.
///
/// # Errors
/// No other registry is loaded, or it refuses the key.
pub(crate) fn register(key: Key, instance_data: &str) -> Result<()> {
    let add = other(c"dat_registry_add_provider", dat_registry_add_provider)?;
    let name = CString::new(key.name.clone()).unwrap_or_default();
    let mut guest = Guest {
        table: Box::new(DAT_PROVIDER {
            device_name: name.as_ptr(),
            ia_query_func: Some(query_for_registry),
            ..PROVIDER
        }),
        _name: name,
        instance_data: instance_data.to_owned(),
        key,
    };
    let info = guest.key.to_info();
    GUESTS.lock().reserve(1);
    memory::commit()?;
    // SAFETY: the function was found by its name. The table lives until the entry
    // is removed, the key until the call returns.
    let code = unsafe { add(&raw mut *guest.table, &raw const info) };
    if code != DatReturn::SUCCESS.bits() {
        return Err(refused("does not add", &guest.key, code));
    }
    GUESTS.lock().push(guest);
    Ok(())
}

/// Removes a key from the other registry.
///
/// # Errors
/// There is no such entry, or the registry refuses.
pub(crate) fn unregister(key: &Key) -> Result<()> {
    let remove = other(
        c"dat_registry_remove_provider",
        dat_registry_remove_provider,
    )?;
    let mut guests = GUESTS.lock();
    let Some(at) = guests.iter().position(|guest| guest.key == *key) else {
        return Err(DatError::new(
            ReturnType::InvalidParameter,
            Subtype::InvalidArg1,
            format!("\"{}\" was not registered by this library", key.text()),
        ));
    };
    let mut guest = guests.swap_remove(at);
    drop(guests);
    let info = key.to_info();
    // SAFETY: as in `register`.
    let code = unsafe { remove(&raw mut *guest.table, &raw const info) };
    if code == DatReturn::SUCCESS.bits() {
        return Ok(());
    }
    // Leaked on purpose: the registry may still call through the table.
    mem::forget(guest);
    Err(refused("does not remove", key, code))
}

/// Looks up the function of this name in another library.
fn other(name: &CStr, ours: Registry) -> Result<Registry> {
    // SAFETY: a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    match NonNull::new(found) {
        Some(found) if found.addr().get() != ours as *const () as usize => {
            // SAFETY: the function was found by its name.
            Ok(unsafe { mem::transmute::<*mut c_void, Registry>(found.as_ptr()) })
        }
        _ => Err(DatError::new(
            ReturnType::InvalidState,
            Subtype::NoSubtype,
            "no other registry is there whose provider this library could be; a registry that is \
             loaded with dlopen needs RTLD_GLOBAL",
        )),
    }
}

fn refused(what: &str, key: &Key, code: DAT_RETURN) -> DatError {
    DatError::new(
        ReturnType::InternalError,
        Subtype::NoSubtype,
        format!(
            "the registry that loaded this library {what} \"{}\": {code:#010x}",
            key.text()
        ),
    )
}

/// Returns the instance data that a registry passes.
///
/// # Safety
/// The pointer is null or leads to a C string.
pub(crate) unsafe fn text<'a>(data: *const c_char) -> Result<&'a str> {
    if data.is_null() {
        return Ok("");
    }
    // SAFETY: not null, so it leads to a C string.
    unsafe { CStr::from_ptr(data) }.to_str().map_err(|_| {
        crate::face::frame::bad_argument(
            Subtype::InvalidArg2,
            "the instance data is not UTF-8: expected \"DEVICE PORT [KEY=VALUE…]\"",
        )
    })
}

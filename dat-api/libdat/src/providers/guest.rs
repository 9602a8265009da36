//! This library as a provider in the registry of another.
//!
//! That registry loads it under another file name than its own (`libdat.so.1`
//! is what both are called), and calls `dat_provider_init` for an entry of its
//! dat.conf. The functions that add and remove the entry are that registry's:
//! they are looked up, for calls by name would be our own.

use core::ffi::{CStr, c_char, c_void};
use core::mem;
use core::ptr::NonNull;
use std::ffi::CString;

use dat_api::sync::Mutex;
use dat_api::{DatError, DatReturn, Result, ReturnType, Subtype};

use super::Key;
use crate::abi::{DAT_PROVIDER, DAT_PROVIDER_INFO, DAT_RETURN};
use crate::exports::{dat_registry_add_provider, dat_registry_remove_provider, query_for_registry};
use crate::face::provider::PROVIDER;

/// `dat_registry_add_provider`, and remove.
type Registry = unsafe extern "C" fn(*mut DAT_PROVIDER, *const DAT_PROVIDER_INFO) -> DAT_RETURN;

/// An entry of the other registry.
struct Guest {
    key: Key,
    /// [`PROVIDER`] but for the name and a query of later registries; lives as long as the entry.
    table: Box<DAT_PROVIDER>,
    /// What the table has as its name.
    _name: CString,
    /// What the entry means to us.
    instance_data: String,
}

// SAFETY: the pointers of the table lead to statics and to the name.
unsafe impl Send for Guest {}

static GUESTS: Mutex<Vec<Guest>> = Mutex::new(Vec::new());

/// What an adapter of this name is to the registry that has it.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) instance_data: String,
    pub(crate) key: Key,
    table: usize,
}

impl Asked {
    /// What the first word of the adapter's handle leads to.
    pub(crate) fn table(&self) -> *const c_void {
        core::ptr::with_exposed_provenance(self.table)
    }
}

/// The entry of a name, if another registry has one.
pub(crate) fn of(name: &[u8]) -> Option<Asked> {
    let guests = GUESTS.lock();
    let guest = guests.iter().rev().find(|guest| guest.key.name == name)?;
    Some(Asked {
        instance_data: guest.instance_data.clone(),
        key: guest.key.clone(),
        table: (&raw const *guest.table).expose_provenance(),
    })
}

/// Registers a key with the other registry.
///
/// # Errors
/// There is no other, or it refuses.
pub(crate) fn enter(key: Key, instance_data: &str) -> Result<()> {
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
    // SAFETY: by its name it is such a function. The table lives until the
    // entry is removed, the key through the call.
    let answer = unsafe { add(&raw mut *guest.table, &raw const info) };
    if answer != DatReturn::SUCCESS.bits() {
        return Err(refused("does not add", &guest.key, answer));
    }
    GUESTS.lock().push(guest);
    Ok(())
}

/// Takes it back.
///
/// # Errors
/// There is no such entry, or the registry refuses.
pub(crate) fn leave(key: &Key) -> Result<()> {
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
    // SAFETY: as in `enter`.
    let answer = unsafe { remove(&raw mut *guest.table, &raw const info) };
    if answer == DatReturn::SUCCESS.bits() {
        return Ok(());
    }
    // The registry may still call through the table.
    mem::forget(guest);
    Err(refused("does not remove", key, answer))
}

/// The function of this name that is not ours.
fn other(name: &CStr, ours: Registry) -> Result<Registry> {
    // SAFETY: a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    match NonNull::new(found) {
        Some(found) if found.addr().get() != ours as *const () as usize => {
            // SAFETY: by its name it is such a function.
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

fn refused(what: &str, key: &Key, answer: DAT_RETURN) -> DatError {
    DatError::new(
        ReturnType::InternalError,
        Subtype::NoSubtype,
        format!(
            "the registry that loaded this library {what} \"{}\": {answer:#010x}",
            key.text()
        ),
    )
}

/// The instance data that a registry passes.
///
/// # Safety
/// Null, or a C string.
pub(crate) unsafe fn text<'a>(data: *const c_char) -> Result<&'a str> {
    if data.is_null() {
        return Ok("");
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(data) }.to_str().map_err(|_| {
        crate::face::answer::bad_argument(Subtype::InvalidArg2, "the instance data is not UTF-8")
    })
}

//! Opening and closing adapters of other providers.

use core::cell::Cell;
use core::ptr::NonNull;
use std::collections::HashMap;

use dat_api::registry::{self, Provider, ProviderLibrary};
use dat_api::sync::Mutex;
use dat_api::{CancellationDisabled, DatError, DatReturn, Result, ReturnType, Subtype, memory};

use super::library::Library;
use super::{Key, dynamic, tables};
use crate::abi::{
    DAT_CLOSE_FLAGS, DAT_COUNT, DAT_EVD_HANDLE, DAT_IA_HANDLE, DAT_NAME_PTR, DAT_PROVIDER,
    DAT_RETURN,
};
use crate::version::{self, VERSION};

/// The arguments of `dat_ia_openv`, without the key.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) name: DAT_NAME_PTR,
    pub(crate) qlen: DAT_COUNT,
    pub(crate) async_evd: *mut DAT_EVD_HANDLE,
    pub(crate) ia: *mut DAT_IA_HANDLE,
}

/// A library that was loaded for an entry of dat.conf.
struct Loaded {
    source: Source,
    library: Library,
    /// Number of adapters that are open or being opened.
    opens: usize,
}

#[derive(Clone, PartialEq, Eq)]
struct Source {
    key: Key,
    library: String,
    instance_data: String,
}

/// An open adapter of another provider.
struct Opened {
    key: Key,
    /// The library that was loaded for it.
    source: Option<Source>,
    /// The table that the adapter's handle leads to. It may differ from the table
    /// in the registry.
    table: Option<Table>,
}

#[derive(Clone, Copy)]
struct Table(NonNull<DAT_PROVIDER>);

// SAFETY: a table is only read.
unsafe impl Send for Table {}

static LOADED: Mutex<Vec<Loaded>> = Mutex::new(Vec::new());
static OPENED: Mutex<Option<HashMap<usize, Opened>>> = Mutex::new(None);

thread_local! {
    /// True while this thread loads a library. The library's initialisation must
    /// not open an adapter: that call would wait for itself.
    static LOADING: Cell<bool> = const { Cell::new(false) };
}

/// Result of looking for another provider.
pub(crate) enum Found {
    /// It has opened the adapter, or refused: its return code.
    Answered(DAT_RETURN),
    /// This library is to open the adapter.
    Ours,
    /// This library is to open the device of an entry of dat.conf, because the library
    /// that the entry names is not installed.
    InPlace {
        /// The entry's instance data.
        instance_data: String,
    },
}

/// Opens an adapter of another provider: of a library that a dat.conf entry
/// names, or one that has registered itself.
///
/// # Errors
/// `DAT_PROVIDER_NOT_FOUND` if dat.conf names libraries and none of them serves
/// the name. Otherwise the return code of the last library that was tried.
///
/// # Safety
/// The pointers of the request meet the contract of `dat_ia_openv`.
pub(crate) unsafe fn open(key: &Key, request: Request) -> Result<Found> {
    if LOADING.get() {
        return Err(DatError::new(
            ReturnType::InvalidState,
            Subtype::NoSubtype,
            "dat_provider_init and dat_provider_fini cannot open an adapter",
        ));
    }
    let mut causes = Vec::new();
    let mut code = None;
    for way in ways(key) {
        let ProviderLibrary::Foreign {
            library,
            instance_data,
            place,
            is_replaceable,
        } = way
        else {
            return Ok(Found::Ours);
        };
        let source = Source {
            key: key.clone(),
            library,
            instance_data,
        };
        if let Err(cause) = load(&source) {
            if is_replaceable {
                let instance_data = source.instance_data;
                return Ok(Found::InPlace { instance_data });
            }
            causes.push(format!(
                "{place}: {}: {cause}; name {} there if this library is to open the adapter",
                source.library,
                registry::library(VERSION)
            ));
            continue;
        }
        // SAFETY: the pointers are those of `dat_ia_openv`.
        match unsafe { open_registered(key, request, Some(&source)) } {
            Some(DatReturn::SUCCESS) => {
                return Ok(Found::Answered(version::code(DatReturn::SUCCESS)));
            }
            Some(refusal) => code = Some(refusal),
            None => causes.push(format!(
                "{place}: {} was loaded, but did not register \"{}\"",
                source.library,
                key.text()
            )),
        }
        unload(&source);
    }
    if let Some(refusal) = code {
        return Ok(Found::Answered(version::code(refusal)));
    }
    // A provider may have registered itself, whether or not dat.conf has the
    // name. SAFETY: the pointers are those of `dat_ia_openv`.
    match unsafe { open_registered(key, request, None) } {
        Some(code) => Ok(Found::Answered(version::code(code))),
        None if causes.is_empty() => Ok(Found::Ours),
        None => Err(DatError::new(
            ReturnType::ProviderNotFound,
            Subtype::NameNotRegistered,
            causes.join("; "),
        )),
    }
}

/// Only tables of this version match the layout that this library calls through.
fn ways(key: &Key) -> Vec<ProviderLibrary> {
    match str::from_utf8(&key.name) {
        Ok(name) if (key.major, key.minor) == VERSION => registry::libraries(&Provider {
            name: name.to_owned(),
            major: key.major,
            minor: key.minor,
            threadsafe: key.threadsafe,
        }),
        _ => Vec::new(),
    }
}

/// Loads a library, or counts one more use of it; [`unload`] undoes either.
fn load(source: &Source) -> core::result::Result<(), String> {
    let mut loaded = LOADED.lock();
    if let Some(entry) = loaded.iter_mut().find(|entry| entry.source == *source) {
        entry.opens += 1;
        return Ok(());
    }
    LOADING.set(true);
    let library = Library::load(&source.library, &source.key, &source.instance_data);
    LOADING.set(false);
    loaded.push(Loaded {
        source: source.clone(),
        library: library?,
        opens: 1,
    });
    Ok(())
}

fn unload(source: &Source) {
    let mut loaded = LOADED.lock();
    let Some(at) = loaded.iter().position(|entry| entry.source == *source) else {
        return;
    };
    // The count may already be zero if the library was kept then.
    loaded[at].opens = loaded[at].opens.saturating_sub(1);
    // An adapter may also have been opened while dat.conf did not name the
    // library; in that case the library stays loaded.
    if loaded[at].opens == 0 && !dynamic::is_in_use(&source.key) {
        let Loaded {
            source, library, ..
        } = loaded.swap_remove(at);
        LOADING.set(true);
        library.end(&source.key);
        LOADING.set(false);
    }
}

/// Opens the adapter through the provider that is registered for a key, if there
/// is one.
///
/// # Safety
/// As for [`open`].
unsafe fn open_registered(
    key: &Key,
    request: Request,
    source: Option<&Source>,
) -> Option<DatReturn> {
    if (key.major, key.minor) != VERSION {
        return None;
    }
    let table = dynamic::open(key)?;
    let Request {
        name,
        qlen,
        async_evd,
        ia,
    } = request;
    // SAFETY: a registered table is readable; the pointers meet the caller's
    // contract.
    let code = unsafe {
        match (*table.as_ptr()).ia_open_func {
            Some(call) => version::from_code(call(name, qlen, async_evd, ia)),
            None => DatReturn::error(ReturnType::NotImplemented, Subtype::NoSubtype),
        }
    };
    if code != DatReturn::SUCCESS {
        dynamic::close(key);
        return Some(code);
    }
    // SAFETY: the pointer meets the caller's contract, and the provider has just
    // written it.
    let handle = unsafe { ia.read_unaligned() };
    let table = tables::first_word(handle);
    if let Some(table) = table {
        tables::add(table);
    }
    let opened = Opened {
        key: key.clone(),
        source: source.cloned(),
        table: table.map(Table),
    };
    let mut all = OPENED.lock();
    all.get_or_insert_default().insert(handle.addr(), opened);
    Some(code)
}

/// Closes an adapter of another provider.
///
/// # Safety
/// `table` is the table of this handle.
pub(crate) unsafe fn close(
    table: NonNull<DAT_PROVIDER>,
    ia: DAT_IA_HANDLE,
    flags: DAT_CLOSE_FLAGS,
) -> DAT_RETURN {
    let _held = CancellationDisabled::new();
    let _call = memory::Call::ending();
    // Removed from the list before the close, because the next adapter may get
    // the same handle.
    let opened = {
        let mut all = OPENED.lock();
        all.as_mut().and_then(|all| all.remove(&ia.addr()))
    };
    // SAFETY: the table is that of this handle.
    let code = unsafe {
        match (*table.as_ptr()).ia_close_func {
            Some(call) => call(ia, flags),
            None => super::dispatch::missing("dat_ia_close", ia),
        }
    };
    let Some(opened) = opened else {
        return code;
    };
    if version::from_code(code) != DatReturn::SUCCESS {
        let mut all = OPENED.lock();
        all.get_or_insert_default().insert(ia.addr(), opened);
        return code;
    }
    if let Some(Table(table)) = opened.table {
        tables::remove(table);
    }
    dynamic::close(&opened.key);
    if let Some(source) = &opened.source {
        unload(source);
    }
    code
}

//! Interface adapters.

use core::ffi::CStr;

use dat_api::handle::Pinned;
use dat_api::object::ia::{AsyncEvd, Ia, OpenRequest};
use dat_api::{DatError, DatReturn, Kind, Result, ReturnType, Subtype, memory};

use crate::abi::*;
use crate::face::call::call;
use crate::face::frame::{bad_argument, control, ending, forwarding, require, require_with};
use crate::face::handles::{bare, named, named_as, to_c};
use crate::face::output::{Out, require_known};
use crate::face::subject::{Subject, on};
use crate::face::{attributes, debug};
use crate::providers::foreign::Found;
use crate::providers::{Key, dispatch, foreign, guest};
use crate::version::{self, VERSION};

/// Returns the bytes of an adapter's name.
///
/// # Safety
/// The pointer is null or leads to a C string, of which at most the first 256
/// bytes are read.
unsafe fn name<'a>(name: DAT_NAME_PTR) -> Result<&'a [u8]> {
    if name.is_null() {
        return Err(bad_argument(
            Subtype::InvalidArg1,
            "the name is null: expected the name of a device, or of an entry of dat.conf",
        ));
    }
    let most = DAT_NAME_MAX_LENGTH as usize;
    // SAFETY: the string ends at its NUL or is cut at the limit.
    let length = unsafe { libc::strnlen(name, most) };
    require(
        length < most,
        Subtype::InvalidArg1,
        "the name is longer than 255 bytes: expected the name of a device, or of an entry of \
         dat.conf",
    )?;
    // SAFETY: `strnlen` has just read these bytes up to the NUL.
    Ok(unsafe { CStr::from_ptr(name) }.to_bytes())
}

#[unsafe(export_name = symbol!(dat_ia_openv))]
pub unsafe extern "C" fn dat_ia_openv(
    provider: DAT_NAME_PTR,
    asynch_evd_min_qlen: DAT_COUNT,
    asynch_evd_handle: *mut DAT_EVD_HANDLE,
    ia_handle: *mut DAT_IA_HANDLE,
    dapl_major: DAT_UINT32,
    dapl_minor: DAT_UINT32,
    thread_safety: DAT_BOOLEAN,
) -> DAT_RETURN {
    // SAFETY: the contract of `exports`.
    unsafe {
        let named = name(provider);
        let subject = subject_of(&named);
        forwarding("dat_ia_openv", subject, || {
            debug::follow_library();
            let bytes = named?;
            // Checked before any provider is called.
            require_ia_pointer(ia_handle)?;
            let key = Key {
                name: bytes.to_vec(),
                major: dapl_major,
                minor: dapl_minor,
                threadsafe: thread_safety != DAT_FALSE,
            };
            let request = foreign::Request {
                name: provider,
                qlen: asynch_evd_min_qlen,
                async_evd: asynch_evd_handle,
                ia: ia_handle,
            };
            let source = match foreign::open(&key, request)? {
                Found::Ours => Source::Registry,
                Found::InPlace { instance_data } => Source::Entry { instance_data },
                Found::Answered(code) => match version::from_code(code) {
                    DatReturn::SUCCESS => {
                        // The other library has opened it, which is not undone.
                        let _ = memory::commit();
                        return Ok(DatReturn::SUCCESS.bits());
                    }
                    code => return Err(DatError::explained(code, REFUSED_ELSEWHERE)),
                },
            };
            let opening = Opening {
                key: &key,
                qlen: asynch_evd_min_qlen,
                async_evd: asynch_evd_handle,
                ia: ia_handle,
            };
            opening.run(&source)?;
            Ok(DatReturn::SUCCESS.bits())
        })
    }
}

const REFUSED_ELSEWHERE: &str = "another library, which dat.conf or the program names for this \
                                 adapter, has refused to open it: see that library's messages";

/// Returns the subject of a call that opens an adapter.
fn subject_of<'a>(name: &Result<&'a [u8]>) -> Subject<'a> {
    name.as_ref()
        .map_or(Subject::Nothing, |name| Subject::Name(name))
}

fn require_ia_pointer(ia_handle: *mut DAT_IA_HANDLE) -> Result<()> {
    if ia_handle.is_null() {
        return Err(DatError::new(
            ReturnType::InvalidHandle,
            Subtype::InvalidHandleIa,
            "the pointer for the IA handle is null: expected the address of a variable for it",
        ));
    }
    Ok(())
}

/// What says which device an adapter of this library is.
enum Source {
    /// The registry of this library, by the name.
    Registry,
    /// The instance data of an entry of dat.conf that is for another library.
    Entry { instance_data: String },
    /// The registry of another library, which has loaded this one.
    Guest(guest::RegistryEntry),
}

/// The arguments for opening an adapter of this library.
struct Opening<'a> {
    key: &'a Key,
    qlen: DAT_COUNT,
    async_evd: *mut DAT_EVD_HANDLE,
    ia: *mut DAT_IA_HANDLE,
}

impl Opening<'_> {
    /// Opens the adapter.
    ///
    /// # Safety
    /// The contract of `exports`.
    unsafe fn run(&self, source: &Source) -> Result<()> {
        require_ia_pointer(self.ia)?;
        // SAFETY: the arguments are those of the call.
        let evd_place = unsafe { Out::new(self.async_evd) }.required(Subtype::InvalidArg3)?;
        // SAFETY: not null, so it can be read by the contract.
        let given = unsafe { self.async_evd.read_unaligned() };
        let async_evd = if given == DAT_HANDLE_NULL {
            require_with(self.qlen > 0, Subtype::InvalidArg2, || {
                format!(
                    "invalid length of the asynchronous EVD, {}: expected 1 or more",
                    self.qlen
                )
            })?;
            AsyncEvd::New
        } else if given == DAT_EVD_ASYNC_EXISTS {
            AsyncEvd::Elsewhere
        } else {
            AsyncEvd::Existing(named_as(given, Kind::Evd, Subtype::InvalidHandleEvdAsync)?)
        };
        let name = str::from_utf8(&self.key.name).map_err(|_| {
            DatError::new(
                ReturnType::ProviderNotFound,
                Subtype::NameNotRegistered,
                "no adapter has this name, because it is not UTF-8: use the name of a device, or \
                 of an entry of dat.conf",
            )
        })?;
        let request = OpenRequest {
            name,
            async_qlen: self.qlen,
            async_evd,
            threadsafe: self.key.threadsafe,
            major: self.key.major,
            minor: self.key.minor,
            interface: VERSION,
        };
        let (ia, made) = match source {
            Source::Registry => Ia::open(&request)?,
            Source::Entry { instance_data } => Ia::open_configured(&request, instance_data)?,
            Source::Guest(entry) => Ia::open_configured(&request, &entry.instance_data)?,
        };
        if let Err(error) = memory::commit() {
            // SAFETY: the program has no handle of it yet.
            let _ = unsafe { Ia::close(ia.handle(), false) };
            return Err(error.into());
        }
        match (async_evd, made) {
            (AsyncEvd::Elsewhere, _) => evd_place.set(DAT_EVD_OUT_OF_SCOPE),
            (_, Some(evd)) => evd_place.set_handle(evd),
            (_, None) => {}
        }
        // SAFETY: not null, and writable by the contract.
        unsafe { Out::new(self.ia) }.set(to_c(ia.handle()));
        if let Source::Guest(entry) = source {
            // The other registry reads the adapter's name from this table.
            // SAFETY: the table is a copy of the provider's table, and is never
            // freed.
            unsafe { ia.handle().set_table(entry.table()) };
        }
        Ok(())
    }
}

/// Stands in the provider table in the place of [`dat_ia_openv`]. The calling
/// registry has already compared the key, and may have supplied instance data for
/// the name.
pub(crate) unsafe extern "C" fn dat_ia_open(
    provider: DAT_NAME_PTR,
    asynch_evd_min_qlen: DAT_COUNT,
    asynch_evd_handle: *mut DAT_EVD_HANDLE,
    ia_handle: *mut DAT_IA_HANDLE,
) -> DAT_RETURN {
    // SAFETY: the contract of `exports`.
    let named = unsafe { name(provider) };
    let subject = subject_of(&named);
    control("dat_ia_open", subject, || {
        let bytes = named?;
        let entry = guest::of(bytes);
        let key = match &entry {
            Some(entry) => entry.key.clone(),
            None => Key {
                name: bytes.to_vec(),
                major: DAT_VERSION_MAJOR,
                minor: DAT_VERSION_MINOR,
                threadsafe: DAT_THREADSAFE != DAT_FALSE,
            },
        };
        let opening = Opening {
            key: &key,
            qlen: asynch_evd_min_qlen,
            async_evd: asynch_evd_handle,
            ia: ia_handle,
        };
        let source = entry.map_or(Source::Registry, Source::Guest);
        // SAFETY: the contract of `exports`.
        unsafe { opening.run(&source) }
    })
}

call!(
    dat_ia_query,
    |ia: Pinned<Ia>,
     async_evd_handle: Out<DAT_EVD_HANDLE>,
     ia_mask: DAT_IA_ATTR_MASK,
     ia_attr: Out<DAT_IA_ATTR>,
     provider_mask: DAT_PROVIDER_ATTR_MASK,
     provider_attr: Out<DAT_PROVIDER_ATTR>| {
        require_known(ia_mask, DAT_IA_FIELD_ALL, Subtype::InvalidArg3)?;
        require_known(provider_mask, DAT_PROVIDER_FIELD_ALL, Subtype::InvalidArg5)?;
        let ia_place = match ia_mask {
            0 => None,
            _ => Some(ia_attr.required(Subtype::InvalidArg4)?),
        };
        let provider_place = match provider_mask {
            0 => None,
            _ => Some(provider_attr.required(Subtype::InvalidArg6)?),
        };
        let info = ia.query();
        async_evd_handle.set(info.async_evd.map_or(DAT_EVD_OUT_OF_SCOPE, bare));
        if let Some(place) = ia_place {
            place.set(attributes::ia(&info.ia));
        }
        if let Some(place) = provider_place {
            place.set(attributes::provider(&info));
        }
        Ok(())
    }
);

/// Stands in the provider table for another registry in the place of
/// [`dat_ia_query`]. A registry of a later version queries all fields of its version
/// before it closes an adapter.
pub(crate) unsafe extern "C" fn query_for_registry(
    ia_handle: DAT_IA_HANDLE,
    async_evd_handle: *mut DAT_EVD_HANDLE,
    ia_attr_mask: DAT_IA_ATTR_MASK,
    ia_attr: *mut DAT_IA_ATTR,
    provider_attr_mask: DAT_PROVIDER_ATTR_MASK,
    provider_attr: *mut DAT_PROVIDER_ATTR,
) -> DAT_RETURN {
    // SAFETY: the contract of `exports`; a later version's structures begin with
    // the fields of this version.
    unsafe {
        dat_ia_query(
            ia_handle,
            async_evd_handle,
            ia_attr_mask & DAT_IA_FIELD_ALL,
            ia_attr,
            provider_attr_mask & DAT_PROVIDER_FIELD_ALL,
            provider_attr,
        )
    }
}

#[unsafe(export_name = symbol!(dat_ia_close))]
pub unsafe extern "C" fn dat_ia_close(
    ia_handle: DAT_IA_HANDLE,
    close_flags: DAT_CLOSE_FLAGS,
) -> DAT_RETURN {
    if let Some(table) = dispatch::of(ia_handle) {
        // SAFETY: `table` was found for this handle.
        return unsafe { foreign::close(table, ia_handle, close_flags) };
    }
    ending("dat_ia_close", on("ia", ia_handle), || {
        let ia = named(ia_handle, Kind::Ia)?;
        let counted = debug::counters(ia);
        let graceful = graceful(close_flags)?;
        // SAFETY: by the contract of `exports` no thread posts to the objects
        // that are freed with the adapter.
        unsafe { Ia::close(ia, graceful) }?;
        if let Some((name, counters)) = counted {
            debug::closed(&name, &counters);
        }
        Ok(())
    })
}

/// Returns whether a close is graceful. The flags are the call's second argument.
pub(super) fn graceful(flags: DAT_CLOSE_FLAGS) -> Result<bool> {
    match flags {
        DAT_CLOSE_GRACEFUL_FLAG => Ok(true),
        DAT_CLOSE_ABRUPT_FLAG => Ok(false),
        _ => Err(bad_argument(
            Subtype::InvalidArg2,
            format!(
                "invalid close flags {flags:#x}: expected DAT_CLOSE_ABRUPT_FLAG \
                 ({DAT_CLOSE_ABRUPT_FLAG}) or DAT_CLOSE_GRACEFUL_FLAG ({DAT_CLOSE_GRACEFUL_FLAG})"
            ),
        )),
    }
}

//! Interface adapters.

use core::ffi::CStr;

use dat_api::object::ia::{AsyncEvd, Ia, OpenRequest};
use dat_api::{DatError, DatReturn, Kind, Result, ReturnType, Subtype};

use crate::abi::{
    DAT_BOOLEAN, DAT_CLOSE_ABRUPT_FLAG, DAT_CLOSE_FLAGS, DAT_CLOSE_GRACEFUL_FLAG, DAT_COUNT,
    DAT_EVD_ASYNC_EXISTS, DAT_EVD_HANDLE, DAT_EVD_OUT_OF_SCOPE, DAT_FALSE, DAT_HANDLE_NULL,
    DAT_IA_ATTR, DAT_IA_ATTR_MASK, DAT_IA_FIELD_ALL, DAT_IA_HANDLE, DAT_NAME_MAX_LENGTH,
    DAT_NAME_PTR, DAT_PROVIDER_ATTR, DAT_PROVIDER_ATTR_MASK, DAT_PROVIDER_FIELD_ALL, DAT_RETURN,
    DAT_THREADSAFE, DAT_UINT32, DAT_VERSION_MAJOR, DAT_VERSION_MINOR,
};
use crate::face::answer::{answer, bad_argument, control, require};
use crate::face::handles::{bare, named, pin};
use crate::face::output::Output;
use crate::face::{attributes, debug};
use crate::providers::dispatch::foreign;
use crate::providers::{Key, dispatch, foreign, guest};

/// The bytes of a name.
///
/// # Safety
/// Null, or a C string; more than its first 256 bytes are not read.
unsafe fn name<'a>(name: DAT_NAME_PTR) -> Result<&'a [u8]> {
    if name.is_null() {
        return Err(bad_argument(Subtype::InvalidArg1, "the name is null"));
    }
    let most = DAT_NAME_MAX_LENGTH as usize;
    // SAFETY: it ends at its NUL or at the limit.
    let length = unsafe { libc::strnlen(name, most) };
    require(
        length < most,
        Subtype::InvalidArg1,
        "the name is longer than 255 bytes",
    )?;
    // SAFETY: so many bytes were just read.
    Ok(unsafe { CStr::from_ptr(name) }.to_bytes())
}

#[unsafe(no_mangle)]
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
        answer("dat_ia_openv", || {
            debug::follow_warnings();
            let bytes = name(provider)?;
            // Refused before anybody is asked.
            require_place(ia_handle)?;
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
            if let Some(answer) = foreign::open(&key, request)? {
                return Ok(answer);
            }
            let opening = Opening {
                key: &key,
                qlen: asynch_evd_min_qlen,
                async_evd: asynch_evd_handle,
                ia: ia_handle,
            };
            opening.run(None)?;
            Ok(DatReturn::SUCCESS.bits())
        })
    }
}

fn require_place(ia_handle: *mut DAT_IA_HANDLE) -> Result<()> {
    if ia_handle.is_null() {
        return Err(DatError::new(
            ReturnType::InvalidHandle,
            Subtype::InvalidHandleIa,
            "the pointer for the handle is null",
        ));
    }
    Ok(())
}

/// An adapter of our own to be opened.
struct Opening<'a> {
    key: &'a Key,
    qlen: DAT_COUNT,
    async_evd: *mut DAT_EVD_HANDLE,
    ia: *mut DAT_IA_HANDLE,
}

impl Opening<'_> {
    /// As our registry says, or another's.
    ///
    /// # Safety
    /// The contract of `exports`.
    unsafe fn run(&self, asked: Option<&guest::Asked>) -> Result<()> {
        require_place(self.ia)?;
        // SAFETY: the caller's promise.
        let evd_place = unsafe { Output::new(self.async_evd, Subtype::InvalidArg3) }?;
        // SAFETY: not null, so it can be read by the contract.
        let given = unsafe { self.async_evd.read_unaligned() };
        let async_evd = if given == DAT_HANDLE_NULL {
            require(
                self.qlen > 0,
                Subtype::InvalidArg2,
                "an EVD for asynchronous events holds at least one",
            )?;
            AsyncEvd::New
        } else if given == DAT_EVD_ASYNC_EXISTS {
            AsyncEvd::Elsewhere
        } else {
            AsyncEvd::Existing(named(given, Kind::Evd, Subtype::InvalidHandleEvdAsync)?)
        };
        let name = str::from_utf8(&self.key.name).map_err(|_| {
            DatError::new(
                ReturnType::ProviderNotFound,
                Subtype::NameNotRegistered,
                "no adapter has a name that is not UTF-8",
            )
        })?;
        let request = OpenRequest {
            name,
            async_qlen: self.qlen,
            async_evd,
            threadsafe: self.key.threadsafe,
            major: self.key.major,
            minor: self.key.minor,
        };
        let (ia, made) = match asked {
            Some(asked) => Ia::open_configured(&request, &asked.instance_data)?,
            None => Ia::open(&request)?,
        };
        match (async_evd, made) {
            (AsyncEvd::Elsewhere, _) => evd_place.set(DAT_EVD_OUT_OF_SCOPE),
            (_, Some(evd)) => evd_place.made(evd),
            (_, None) => {}
        }
        // SAFETY: not null, and writable by the contract.
        if let Some(place) = unsafe { Output::wanted(self.ia) } {
            place.made(ia.handle());
        }
        if let Some(asked) = asked {
            // That registry reads the name of the adapter there.
            // SAFETY: it is a copy of the provider's table, which is never freed.
            unsafe { ia.handle().set_table(asked.table()) };
        }
        Ok(())
    }
}

/// What the table of the provider has instead of [`dat_ia_openv`]: a registry
/// has compared the key already, and may have said what the name means.
pub(crate) unsafe extern "C" fn open(
    provider: DAT_NAME_PTR,
    asynch_evd_min_qlen: DAT_COUNT,
    asynch_evd_handle: *mut DAT_EVD_HANDLE,
    ia_handle: *mut DAT_IA_HANDLE,
) -> DAT_RETURN {
    control("dat_ia_open", || {
        // SAFETY: the contract of `exports`.
        let bytes = unsafe { name(provider) }?;
        let asked = guest::of(bytes);
        let key = match &asked {
            Some(asked) => asked.key.clone(),
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
        // SAFETY: the same.
        unsafe { opening.run(asked.as_ref()) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_ia_query(
    ia_handle: DAT_IA_HANDLE,
    async_evd_handle: *mut DAT_EVD_HANDLE,
    ia_attr_mask: DAT_IA_ATTR_MASK,
    ia_attr: *mut DAT_IA_ATTR,
    provider_attr_mask: DAT_PROVIDER_ATTR_MASK,
    provider_attr: *mut DAT_PROVIDER_ATTR,
) -> DAT_RETURN {
    foreign!(ia_handle.ia_query_func(
        ia_handle,
        async_evd_handle,
        ia_attr_mask,
        ia_attr,
        provider_attr_mask,
        provider_attr
    ));
    control("dat_ia_query", || {
        let ia = pin::<Ia>(ia_handle, Subtype::InvalidHandleIa)?;
        let unknown = "the mask has bits that name no field";
        require(
            ia_attr_mask & !DAT_IA_FIELD_ALL == 0,
            Subtype::InvalidArg3,
            unknown,
        )?;
        require(
            provider_attr_mask & !DAT_PROVIDER_FIELD_ALL == 0,
            Subtype::InvalidArg5,
            unknown,
        )?;
        let ia_place = match ia_attr_mask {
            0 => None,
            // SAFETY: the contract of `exports`.
            _ => Some(unsafe { Output::new(ia_attr, Subtype::InvalidArg4) }?),
        };
        let provider_place = match provider_attr_mask {
            0 => None,
            // SAFETY: the same.
            _ => Some(unsafe { Output::new(provider_attr, Subtype::InvalidArg6) }?),
        };
        let info = ia.query();
        // SAFETY: the same.
        if let Some(place) = unsafe { Output::wanted(async_evd_handle) } {
            place.set(info.async_evd.map_or(DAT_EVD_OUT_OF_SCOPE, bare));
        }
        if let Some(place) = ia_place {
            place.set(attributes::ia(&info.ia));
        }
        if let Some(place) = provider_place {
            place.set(attributes::provider(&info.provider));
        }
        Ok(())
    })
}

/// [`dat_ia_query`] for the registry of another: one of DAT 2.0 asks, before
/// it closes an adapter, for all fields that it knows.
pub(crate) unsafe extern "C" fn query_for_registry(
    ia_handle: DAT_IA_HANDLE,
    async_evd_handle: *mut DAT_EVD_HANDLE,
    ia_attr_mask: DAT_IA_ATTR_MASK,
    ia_attr: *mut DAT_IA_ATTR,
    provider_attr_mask: DAT_PROVIDER_ATTR_MASK,
    provider_attr: *mut DAT_PROVIDER_ATTR,
) -> DAT_RETURN {
    // SAFETY: the same contract; ours are the first fields of its structures.
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

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_ia_close(
    ia_handle: DAT_IA_HANDLE,
    close_flags: DAT_CLOSE_FLAGS,
) -> DAT_RETURN {
    if let Some(table) = dispatch::of(ia_handle) {
        // SAFETY: the table of this handle.
        return unsafe { foreign::close(table, ia_handle, close_flags) };
    }
    control("dat_ia_close", || {
        let ia = named(ia_handle, Kind::Ia, Subtype::InvalidHandleIa)?;
        let counted = debug::counters(ia);
        let graceful = graceful(close_flags)?;
        // SAFETY: the contract of `exports`: nothing is posted to what goes with it.
        unsafe { Ia::close(ia, graceful) }?;
        if let Some((name, counters)) = counted {
            debug::closed(&name, &counters);
        }
        Ok(())
    })
}

/// Whether to end gracefully, from the second argument of a call.
pub(super) fn graceful(flags: DAT_CLOSE_FLAGS) -> Result<bool> {
    match flags {
        DAT_CLOSE_GRACEFUL_FLAG => Ok(true),
        DAT_CLOSE_ABRUPT_FLAG => Ok(false),
        _ => Err(bad_argument(
            Subtype::InvalidArg2,
            "the flags are neither graceful nor abrupt",
        )),
    }
}

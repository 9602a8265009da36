//! An open adapter.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::rc::Rc;

use super::abi::*;
use super::events::Queue;
use super::library::{Calls, Libdat};
use super::{NAMES, VERSION, described};
use crate::failure::Failure;

/// Length of the queues of connection events.
pub(crate) const CONNECTION_EVENTS: u32 = 8;

/// An open IA with a protection zone.
pub(crate) struct Adapter {
    pub(crate) calls: Calls,
    pub(crate) ia: DAT_IA_HANDLE,
    pub(crate) pz: DAT_PZ_HANDLE,
}

impl Adapter {
    pub(crate) fn open(libdat: &Libdat, name: &str, threadsafe: bool) -> Result<Rc<Self>, Failure> {
        let name = CString::new(name).map_err(|_| {
            Failure::usage(
                "the device name contains a zero byte; see 'dat-bench devices' for the names",
            )
        })?;
        let calls = libdat.calls;
        let (major, minor) = VERSION;
        let mut events = DAT_HANDLE_NULL;
        let mut adapter = Self {
            calls,
            ia: DAT_HANDLE_NULL,
            pz: DAT_HANDLE_NULL,
        };
        // SAFETY: `name` is a C string; both handles are local variables that are written.
        let code = unsafe {
            (calls.ia_openv)(
                name.as_ptr().cast_mut(),
                CONNECTION_EVENTS as DAT_COUNT,
                &raw mut events,
                &raw mut adapter.ia,
                major,
                minor,
                if threadsafe { DAT_TRUE } else { DAT_FALSE },
            )
        };
        control("dat_ia_openv", code)?;
        // SAFETY: the IA is open; the handle is a local variable that is written.
        let code = unsafe { (calls.pz_create)(adapter.ia, &raw mut adapter.pz) };
        control("dat_pz_create", code)?;
        Ok(Rc::new(adapter))
    }

    pub(crate) fn queue(
        self: &Rc<Self>,
        length: u32,
        streams: DAT_EVD_FLAGS,
    ) -> Result<Queue, Failure> {
        let mut evd = DAT_HANDLE_NULL;
        // SAFETY: the IA is open; the handle is a local variable that is written.
        let code = unsafe {
            (self.calls.evd_create)(
                self.ia,
                count(length),
                DAT_HANDLE_NULL,
                streams,
                &raw mut evd,
            )
        };
        control("dat_evd_create", code)?;
        Ok(Queue {
            evd,
            adapter: Rc::clone(self),
        })
    }

    pub(crate) fn query(&self) -> Result<DAT_IA_ATTR, Failure> {
        let mut events = DAT_HANDLE_NULL;
        let mut attributes = MaybeUninit::<DAT_IA_ATTR>::zeroed();
        // SAFETY: the IA is open; handle and attributes are local variables that are
        // written; no provider attributes are requested.
        let code = unsafe {
            (self.calls.ia_query)(
                self.ia,
                &raw mut events,
                DAT_IA_FIELD_ALL,
                attributes.as_mut_ptr(),
                DAT_PROVIDER_FIELD_NONE,
                null_mut(),
            )
        };
        control("dat_ia_query", code)?;
        // SAFETY: all zeros are a valid value, and the call has written it.
        Ok(unsafe { attributes.assume_init() })
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        // All objects of the adapter are freed: each of them has an `Rc` of it.
        // SAFETY: handles of this adapter, or null, which the calls refuse with an error.
        unsafe {
            (self.calls.pz_free)(self.pz);
            (self.calls.ia_close)(self.ia, DAT_CLOSE_ABRUPT_FLAG);
        }
    }
}

pub(crate) fn count(value: u32) -> DAT_COUNT {
    DAT_COUNT::try_from(value).unwrap_or(DAT_COUNT::MAX)
}

/// Converts the result of a control call.
pub(crate) fn control(call: &str, code: DAT_RETURN) -> Result<(), Failure> {
    if code == 0 {
        return Ok(());
    }
    Err(Failure::environment(format!(
        "{call} returned {}; DAT_DBG_TYPE=0xffff DAT_DBG_DEST=1 makes {}.so print the cause",
        described(code),
        NAMES.package
    )))
}

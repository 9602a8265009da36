//! Devices, protection domains and registered memory.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::mem::zeroed;
use core::ptr;
use core::slice;
use std::rc::Rc;

use dat_engine::PortInfo;
use dv_sys::inline::{dv_reg_mr, ibv_alloc_parent_domain, ibv_alloc_td, ibv_dealloc_td};
use dv_sys::verbs::*;

use super::{checked, errno};
use crate::support::side::Memory;

/// An open device.
pub struct Context {
    pub raw: *mut ibv_context,
    /// Its first port.
    pub port: PortInfo,
}

impl Context {
    /// Opens the device of this name; `port` is its first.
    pub fn open(name: &str, port: PortInfo) -> Rc<Self> {
        // SAFETY: plain verbs calls; the list has `count` devices, and is freed
        // after the device is opened.
        unsafe {
            let mut count = 0;
            let list = ibv_get_device_list(&raw mut count);
            assert!(!list.is_null(), "ibv_get_device_list: {}", errno());
            let devices = slice::from_raw_parts(list, count as usize);
            let named = |&device: &*mut ibv_device| {
                CStr::from_ptr(ibv_get_device_name(device)).to_bytes() == name.as_bytes()
            };
            let device = devices.iter().copied().find(named);
            let raw = ibv_open_device(device.expect("libibverbs lists the device"));
            ibv_free_device_list(list);
            assert!(!raw.is_null(), "ibv_open_device: {}", errno());
            Rc::new(Context { raw, port })
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: opened by `open`; everything created from it holds an Rc.
        checked("ibv_close_device", unsafe { ibv_close_device(self.raw) });
    }
}

/// A protection domain; with its own thread domain if `exclusive`.
pub struct Pd {
    pub raw: *mut ibv_pd,
    plain: *mut ibv_pd,
    thread_domain: *mut ibv_td,
    pub context: Rc<Context>,
}

impl Pd {
    pub fn new(context: &Rc<Context>) -> Rc<Self> {
        // SAFETY: the context is open.
        let plain = unsafe { ibv_alloc_pd(context.raw) };
        assert!(!plain.is_null(), "ibv_alloc_pd: {}", errno());
        let context = Rc::clone(context);
        Rc::new(Pd {
            raw: plain,
            plain,
            thread_domain: ptr::null_mut(),
            context,
        })
    }

    /// Creates a domain whose QPs have an exclusive doorbell register.
    pub fn exclusive(context: &Rc<Context>) -> Rc<Self> {
        // SAFETY: the context is open; zeroed attributes are the documented default.
        unsafe {
            let plain = ibv_alloc_pd(context.raw);
            assert!(!plain.is_null(), "ibv_alloc_pd: {}", errno());
            let thread_domain = ibv_alloc_td(context.raw, &mut zeroed());
            assert!(!thread_domain.is_null(), "ibv_alloc_td: {}", errno());
            let mut attr: ibv_parent_domain_init_attr = zeroed();
            (attr.pd, attr.td) = (plain, thread_domain);
            let raw = ibv_alloc_parent_domain(context.raw, &raw mut attr);
            assert!(!raw.is_null(), "ibv_alloc_parent_domain: {}", errno());
            Rc::new(Pd {
                raw,
                plain,
                thread_domain,
                context: Rc::clone(context),
            })
        }
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: created by `new` or `exclusive`; what uses it holds an Rc.
        unsafe {
            if !self.thread_domain.is_null() {
                checked("ibv_dealloc_pd (parent)", ibv_dealloc_pd(self.raw));
                checked("ibv_dealloc_td", ibv_dealloc_td(self.thread_domain));
            }
            checked("ibv_dealloc_pd", ibv_dealloc_pd(self.plain));
        }
    }
}

/// Returns every access right that a region can give to a peer.
pub fn all_access() -> u32 {
    ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0
        | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0
        | ibv_access_flags::IBV_ACCESS_REMOTE_READ.0
        | ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0
}

/// Registered memory.
pub struct Buffer {
    memory: Box<[UnsafeCell<u8>]>,
    pub mr: *mut ibv_mr,
    _pd: Rc<Pd>,
}

impl Buffer {
    pub fn new(pd: &Rc<Pd>, len: usize) -> Self {
        Self::with_access(pd, len, all_access())
    }

    /// Tries to deregister the memory.
    ///
    /// # Errors
    /// The errno of `ibv_dereg_mr`.
    pub fn deregister(&mut self) -> Result<(), i32> {
        // SAFETY: registered, and marked here as freed once it no longer is.
        match unsafe { ibv_dereg_mr(self.mr) } {
            0 => {
                self.mr = ptr::null_mut();
                Ok(())
            }
            error => Err(error),
        }
    }

    /// Returns bytes of the memory.
    pub fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        let cells = &self.memory[at..at + len];
        // SAFETY: the device does not run while the test reads.
        cells.iter().map(|cell| unsafe { *cell.get() }).collect()
    }

    /// Writes bytes to the memory.
    pub fn put(&self, at: usize, bytes: &[u8]) {
        for (cell, byte) in self.memory[at..].iter().zip(bytes) {
            // SAFETY: as in `bytes`.
            unsafe { *cell.get() = *byte };
        }
    }

    pub fn with_access(pd: &Rc<Pd>, len: usize, access: u32) -> Self {
        let memory: Box<[UnsafeCell<u8>]> = (0..len).map(|_| UnsafeCell::new(0)).collect();
        let first = memory.as_ptr().cast_mut().cast();
        // SAFETY: the region is deregistered before the memory is freed.
        let mr = unsafe { dv_reg_mr(pd.raw, first, len, access as i32) };
        assert!(!mr.is_null(), "ibv_reg_mr of {len} bytes: {}", errno());
        Buffer {
            memory,
            mr,
            _pd: Rc::clone(pd),
        }
    }
}

impl Memory for Buffer {
    fn addr(&self) -> u64 {
        self.memory.as_ptr() as u64
    }

    fn len(&self) -> usize {
        self.memory.len()
    }

    fn lkey(&self) -> u32 {
        // SAFETY: the region is registered.
        unsafe { (*self.mr).lkey }
    }

    fn rkey(&self) -> u32 {
        // SAFETY: the region is registered.
        unsafe { (*self.mr).rkey }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.mr.is_null() {
            return;
        }
        // SAFETY: registered by `with_access`.
        checked("ibv_dereg_mr", unsafe { ibv_dereg_mr(self.mr) });
    }
}

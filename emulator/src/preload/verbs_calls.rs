//! `ibv_open_device`, interposed for the modes that give libmlx5 other memory for its
//! rings: only libibverbs' own object of an open device can take an allocator.
//!
//! A program that finds the function with `dlsym` in its own copy of libibverbs is not
//! affected.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;

use super::calls::{Call, set_errno};
use super::session;
use crate::nasty::ring_memory::{Allocators, BUF_ALLOCATORS};

/// All interposed functions of this file. A reference to this keeps them in the link.
pub(super) const ALL: &[fn() -> Call] = &[|| ibv_open_device as Call];

/// Finds a function in a library that the process has loaded, in whatever scope.
fn find(library: &CStr, name: &CStr) -> *mut c_void {
    // SAFETY: two C strings; with RTLD_NOLOAD no code of the library runs.
    unsafe {
        let loaded = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if loaded.is_null() {
            return libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
        }
        let found = libc::dlsym(loaded, name.as_ptr());
        // The caller, or the open device, keeps the library.
        libc::dlclose(loaded);
        found
    }
}

/// Gives the rings of an open device the memory that the modes ask for.
fn set_ring_memory(context: *mut c_void) {
    let Some(allocators) = session::config().and_then(|config| Allocators::of(config.nasty)) else {
        return;
    };
    let found = find(c"libmlx5.so.1", c"mlx5dv_set_context_attr");
    if found.is_null() {
        return;
    }
    // SAFETY: libmlx5's function of this name, which has this C type.
    let set = unsafe {
        std::mem::transmute::<
            *mut c_void,
            unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int,
        >(found)
    };
    let attribute = (&raw const allocators).cast_mut().cast();
    // SAFETY: an open context, and allocators that libmlx5 copies. It refuses contexts
    // of other drivers.
    unsafe { set(context, BUF_ALLOCATORS, attribute) };
}

/// Opens a device as libibverbs does.
///
/// # Safety
/// As for libibverbs' function: `device` is in a list of devices.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn ibv_open_device(device: *mut c_void) -> *mut c_void {
    let found = find(c"libibverbs.so.1", c"ibv_open_device");
    if found.is_null() {
        set_errno(libc::ENOSYS);
        return null_mut();
    }
    // SAFETY: libibverbs' function of this name, which has this C type.
    let open = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void) -> *mut c_void>(found)
    };
    // SAFETY: the caller's argument, under the contract of that function.
    let context = unsafe { open(device) };
    if !context.is_null() {
        set_ring_memory(context);
    }
    context
}

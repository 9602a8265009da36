//! The list of devices that libibverbs finds.

use core::ptr::NonNull;

use dv_sys::verbs::{self, ibv_device};

use crate::descriptors;
use crate::error::{ControlError, last_errno};

/// The list that libibverbs allocates; its devices are valid while it lives.
pub(super) struct DeviceList {
    list: Option<NonNull<*mut ibv_device>>,
    length: usize,
}

impl DeviceList {
    /// Lists the devices. libibverbs skips files that it cannot open, and loads its
    /// drivers once per process: drivers for which it had no file descriptors would
    /// never be loaded. So this first checks that there are some.
    pub(super) fn new() -> Result<Self, ControlError> {
        /// The descriptors for the directory of drivers and a file in it, and two
        /// to spare.
        const TO_LOOK: usize = 4;
        if let Some(error) = descriptors::shortage(TO_LOOK) {
            let errno = error.raw_os_error().unwrap_or(libc::EMFILE);
            return Err(ControlError::verbs("list RDMA devices", errno));
        }
        let mut length = 0;
        // SAFETY: `length` is writable.
        let list = NonNull::new(unsafe { verbs::ibv_get_device_list(&raw mut length) });
        if list.is_none() {
            match last_errno() {
                // The errors of a kernel without RDMA.
                libc::ENOSYS | libc::ENOENT | libc::ENODEV => length = 0,
                errno => return Err(ControlError::verbs("list RDMA devices", errno)),
            }
        }
        Ok(Self {
            list,
            length: usize::try_from(length).unwrap_or(0),
        })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ibv_device> {
        let list = self.list;
        (0..self.length).filter_map(move |index| {
            let list = list?;
            // SAFETY: the array has `length` entries, which libibverbs does not
            // change until the list is freed, when `self` is dropped.
            unsafe { list.add(index).read().as_ref() }
        })
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        if let Some(list) = self.list {
            // SAFETY: the list comes from ibv_get_device_list and is freed once.
            unsafe { verbs::ibv_free_device_list(list.as_ptr()) };
        }
    }
}

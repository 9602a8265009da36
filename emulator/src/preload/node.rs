//! The device files of `/dev/infiniband` that are emulated.

use std::ffi::{CStr, c_char, c_int};

use libc::{EACCES, ENOENT};

use super::redirect::starts_with;
use super::session;
use crate::refusal::refuse;
use crate::spec::{Errno, Result};
use crate::sysfs::{DEVICE_MAJOR, FIRST_MINOR, RDMA_CM, RDMA_CM_NAME, device_file};
use crate::uverbs::{EmulatedFile, files};

/// An emulated device file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// `uverbsN`, the device with this index.
    Verbs(u8),
    /// `rdma_cm`.
    RdmaCm,
}

impl Node {
    /// The type and permissions of a device file: everyone may read and write it.
    pub(super) const MODE: u32 = libc::S_IFCHR | 0o666;

    /// Returns the device file that an absolute path names. There may be no device
    /// with the index of [`Self::Verbs`]: see [`Self::check`].
    ///
    /// # Safety
    /// `path` is null or a C string.
    pub(super) unsafe fn of(path: *const c_char) -> Option<Self> {
        const DIRECTORY: &[u8] = b"/dev/infiniband/";
        // SAFETY: `path` is null or a C string.
        if !unsafe { starts_with(path, DIRECTORY) } {
            return None;
        }
        let config = session::config()?;
        // SAFETY: the string begins with the directory, so its rest is a C string.
        let name = unsafe { CStr::from_ptr(path.add(DIRECTORY.len())) };
        let name = name.to_str().ok()?;
        match name.strip_prefix("uverbs") {
            Some(index) => index.parse().ok().map(Self::Verbs),
            None => (name == RDMA_CM_NAME && config.rdma_cm).then_some(Self::RdmaCm),
        }
    }

    /// Returns the device file behind a descriptor, if it is an emulated one.
    pub(super) fn behind(fd: c_int) -> Option<Self> {
        match files().get(fd)? {
            EmulatedFile::Device(file) => Some(Self::Verbs(file.device())),
            EmulatedFile::Cm(_) => Some(Self::RdmaCm),
            EmulatedFile::Events(_) | EmulatedFile::Netlink(_) => None,
        }
    }

    /// Returns an error unless the device exists.
    pub(super) fn check(self) -> Result<()> {
        let devices = session::config().map_or(0, |config| config.devices);
        match self {
            Self::Verbs(device) if device >= devices => Err(refuse(
                ENOENT,
                "there is no device of this number (--devices)",
            )),
            Self::Verbs(_) | Self::RdmaCm => Ok(()),
        }
    }

    pub(super) fn check_access(self, mode: c_int) -> Result<()> {
        self.check()?;
        match mode & libc::X_OK {
            0 => Ok(()),
            _ => Err(Errno(EACCES)),
        }
    }

    /// Returns the name in `/dev/infiniband`.
    pub(super) fn name(self) -> String {
        match self {
            Self::Verbs(device) => device_file(device),
            Self::RdmaCm => RDMA_CM_NAME.into(),
        }
    }

    /// Returns major and minor number.
    pub(super) fn number(self) -> (u32, u32) {
        match self {
            Self::Verbs(device) => (DEVICE_MAJOR, FIRST_MINOR + u32::from(device)),
            Self::RdmaCm => RDMA_CM,
        }
    }
}

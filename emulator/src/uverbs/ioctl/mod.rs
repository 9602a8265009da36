//! The ioctl interface: methods with attributes.

mod handlers;
mod methods;

use std::sync::Arc;

use libc::{EINVAL, ENOTTY, EPROTONOSUPPORT};

use self::methods::METHODS;
use super::abi::{self, DRIVER_MLX5, IoctlHeader, RDMA_VERBS_IOCTL, request};
use super::attributes::{Attributes, Spec, UHW};
use super::context::DeviceFile;
use super::files::FILES;
use super::user;
use crate::config::Face;
use crate::nic::spec::{Errno, Result};

/// A method: its attributes and its function.
struct Method {
    object: u16,
    method: u16,
    attributes: &'static [Spec],
    uhw: bool,
    run: fn(&Arc<DeviceFile>, &Attributes) -> Result<()>,
}

/// Maximum length of a command in bytes, a page as in the kernel.
const MAX_COMMAND: u16 = 4096;

impl DeviceFile {
    /// Handles `ioctl(fd, request, argument)`.
    ///
    /// # Errors
    /// `ENOTTY` for ioctls other than `RDMA_VERBS_IOCTL`, and for that too if commands
    /// are accepted by `write()` only; `EIO` if the device has failed;
    /// `EPROTONOSUPPORT` for an unsupported method, and the command's own errors.
    pub fn ioctl(self: &Arc<Self>, number: libc::c_ulong, argument: u64) -> Result<()> {
        if number != RDMA_VERBS_IOCTL || self.face() == Face::Write {
            return Err(Errno(ENOTTY));
        }
        self.check_alive()?;
        let header: IoctlHeader = request(&user::copy_in(argument, size_of::<IoctlHeader>())?);
        let expected =
            size_of::<IoctlHeader>() + usize::from(header.num_attrs) * size_of::<abi::Attribute>();
        if header.length > MAX_COMMAND || usize::from(header.length) != expected {
            return Err(Errno(EINVAL));
        }
        if header.reserved1 != 0 || header.reserved2 != 0 {
            return Err(Errno(EPROTONOSUPPORT));
        }
        if header.driver_id != DRIVER_MLX5 {
            return Err(Errno(EINVAL));
        }
        let method = METHODS
            .iter()
            .find(|it| it.object == header.object_id && it.method == header.method_id)
            .ok_or(Errno(EPROTONOSUPPORT))?;
        let uhw: &[Spec] = if method.uhw { &UHW } else { &[] };
        let attributes = Attributes::read(&header, argument, &[method.attributes, uhw])?;
        (method.run)(self, &attributes)
    }
}

/// Closes a descriptor that was not returned to the application yet.
pub(super) fn close(fd: i32) {
    FILES.closed(fd);
    // SAFETY: the descriptor was created by the current command, and its number
    // was not returned.
    unsafe { libc::close(fd) };
}

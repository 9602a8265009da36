//! The ioctl interface: methods with attributes.

mod handlers;
mod methods;

use std::sync::Arc;

use libc::{EINVAL, ENOTTY, EPROTONOSUPPORT};

use self::methods::METHODS;
use super::abi::{self, DRIVER_MLX5, IoctlHeader, RDMA_VERBS_IOCTL, request};
use super::attributes::{Attributes, Spec, UHW};
use super::context::DeviceFile;
use super::files::files;
use super::names;
use crate::config::Face;
use crate::log;
use crate::refusal::{OrRefuse, refuse_if};
use crate::spec::Result;
use crate::user;

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
        log::observed("ioctl", || self.ioctl_command(number, argument))
    }

    fn ioctl_command(self: &Arc<Self>, number: libc::c_ulong, argument: u64) -> Result<()> {
        refuse_if(
            number != RDMA_VERBS_IOCTL,
            ENOTTY,
            "the device file has no such ioctl",
        )?;
        refuse_if(
            self.face() == Face::Write,
            ENOTTY,
            "a kernel before Linux 4.20 takes commands by write() only (--face write)",
        )?;
        self.check_alive()?;
        let header: IoctlHeader = request(&user::copy_in(argument, size_of::<IoctlHeader>())?);
        let expected =
            size_of::<IoctlHeader>() + usize::from(header.num_attrs) * size_of::<abi::Attribute>();
        refuse_if(
            header.length > MAX_COMMAND || usize::from(header.length) != expected,
            EINVAL,
            "the length of the request is not that of its attributes, or is above a page",
        )?;
        refuse_if(
            header.reserved1 != 0 || header.reserved2 != 0,
            EPROTONOSUPPORT,
            "a reserved field of the request is not 0",
        )?;
        refuse_if(
            header.driver_id != DRIVER_MLX5,
            EINVAL,
            "the request is for another driver than mlx5",
        )?;
        log::name(|| names::method_name(header.object_id, header.method_id));
        let method = METHODS
            .iter()
            .find(|it| it.object == header.object_id && it.method == header.method_id)
            .or_refuse(EPROTONOSUPPORT, "the device does not have this method")?;
        let uhw: &[Spec] = if method.uhw { &UHW } else { &[] };
        let attributes = Attributes::read(&header, argument, &[method.attributes, uhw])?;
        log::request(|| attributes.describe());
        (method.run)(self, &attributes)
    }
}

/// Closes a descriptor that was not returned to the application yet.
pub(super) fn close(fd: i32) {
    files().closed(fd);
    // SAFETY: the descriptor was created by the current command, and its number
    // was not returned.
    unsafe { libc::close(fd) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_has_a_name() {
        for method in METHODS {
            let name = names::method_name(method.object, method.method);
            assert!(!name.contains("method"), "{name}");
        }
    }
}

//! A device of the list: what the engine and sysfs say of it, and its inline size.

use std::path::Path;

use dat_api::object::ia::IaAttributes;
use dat_engine::{
    ControlError, DataPath, Device, DeviceInfo, InlineShape, PathRequest, PortInfo, Transport,
};

use super::place::{self, CLASS, Place};

/// Why a device gets the direct path.
pub(super) const WHY_DIRECT: &str = "an mlx5 device: the engine writes its rings itself";

/// A device and its inline size, which only a queue pair can tell.
pub(super) struct ListedDevice {
    pub(super) info: DeviceInfo,
    /// The largest inline send of one segment, or why no queue pair could be
    /// created; [`MAX_INLINE_TRIED`] means that or more. None if the device is unusable.
    pub(super) inline: Option<Result<u32, ControlError>>,
    pub(super) place: Place,
}

/// The largest inline size that is tried, bytes.
pub(super) const MAX_INLINE_TRIED: u32 = 1024;

impl ListedDevice {
    pub(super) fn new(info: DeviceInfo) -> Self {
        let usable = !matches!(info.path, DataPath::Unusable { .. });
        let inline =
            (usable && info.transport != Transport::Other).then(|| probe_inline(&info.name));
        let place = Place::read(Path::new(CLASS), &info.name);
        Self {
            info,
            inline,
            place,
        }
    }

    pub(super) fn inline_bytes(&self) -> Option<u32> {
        self.inline.as_ref()?.as_ref().ok().copied()
    }

    /// Returns what DAT offers on the device.
    pub(super) fn offer(&self) -> Option<IaAttributes> {
        let connects = self.info.transport != Transport::Other;
        let limits = self.info.limits.as_ref().filter(|_| connects)?;
        Some(IaAttributes::of(limits))
    }
}

/// Finds the inline size by creating queue pairs, since no query returns it.
fn probe_inline(name: &str) -> Result<u32, ControlError> {
    let device = Device::open_with(name, PathRequest::from_environment()?)?;
    let shape = InlineShape {
        send_depth: 1,
        recv_depth: 1,
        send_segments: 1,
    };
    device.alloc_pd()?.probe_inline(&shape, MAX_INLINE_TRIED)
}

/// Returns the speed of a port, as sysfs has it.
pub(super) fn rate_of(device: &str, port: &PortInfo) -> Option<String> {
    place::rate(Path::new(CLASS), device, port.number)
}

/// Returns the network interface of a GID.
pub(super) fn interface_of(device: &str, port: &PortInfo, gid: u8) -> Option<String> {
    place::interface(Path::new(CLASS), device, port.number, gid)
}

//! Finding, describing and opening devices.

use super::context::{self, Context};
use super::device_list::DeviceList;
use super::limits::Limits;
use super::memlock::LockedMemory;
use super::path::PathRequest;
use super::port::PortInfo;
use super::quirks::Quirks;
use super::transport::Transport;
use super::window;
use crate::environment;
use crate::error::{ControlError, ControlErrorKind, last_errno};
use core::ffi::CStr;
use core::ptr::NonNull;
use dv_sys::verbs::{self, ibv_device, ibv_device_attr_ex};
use std::path::Path;
use std::sync::Arc;
use std::{fmt, fs};

/// How the engine drives a device, or would.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataPath {
    /// By writing to its mlx5 rings.
    Direct,
    /// Through libibverbs, for the given reason.
    Verbs {
        /// Why not directly.
        reason: String,
    },
    /// Not at all: it could not be opened, or not driven as was asked. In the
    /// first case only `name` and `guid` of its [`DeviceInfo`] are known.
    Unusable {
        /// The error, with its remedy.
        reason: String,
    },
}

impl fmt::Display for DataPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct => f.write_str("direct"),
            Self::Verbs { reason } => write!(f, "verbs ({reason})"),
            Self::Unusable { reason } => write!(f, "unusable ({reason})"),
        }
    }
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Name, as in `mlx5_0`.
    pub name: String,
    /// Node GUID, in host byte order.
    pub guid: u64,
    /// PCI vendor.
    pub vendor_id: u32,
    /// The vendor's number for the model.
    pub part_id: u32,
    /// Firmware version.
    pub firmware: String,
    /// What carries its connections; by the link of its first port.
    pub transport: Transport,
    /// What it can do at most; `None` if it could not be opened.
    pub limits: Option<Limits>,
    /// Ports, in order of their numbers.
    pub ports: Vec<PortInfo>,
    /// How it is driven, or, of a device that is only described, would be.
    pub path: DataPath,
}

/// Describes every RDMA device that libibverbs sees, as [`Device::open`] would
/// drive it; empty if there is none.
///
/// # Errors
/// libibverbs could not list devices, or `DAT_PATH` means nothing.
pub fn devices() -> Result<Vec<DeviceInfo>, ControlError> {
    devices_with(PathRequest::from_environment()?)
}

/// Describes every RDMA device that libibverbs sees, as [`Device::open_with`]
/// would drive it; empty if there is none.
///
/// # Errors
/// libibverbs could not list devices.
pub fn devices_with(request: PathRequest) -> Result<Vec<DeviceInfo>, ControlError> {
    let list = DeviceList::new()?;
    Ok(list
        .iter()
        .map(|device| describe(device, request))
        .collect())
}

/// An open device. Clones are handles to the same one.
#[derive(Clone)]
pub struct Device {
    pub(super) context: Arc<Context>,
    info: Arc<DeviceInfo>,
    limits: Limits,
    mlx5: bool,
}

impl Device {
    /// Opens the device of the given name, and drives it as the variable
    /// `DAT_PATH` says: see [`PathRequest::from_environment`].
    ///
    /// # Errors
    /// As for [`Self::open_with`], or `DAT_PATH` means nothing.
    pub fn open(name: &str) -> Result<Self, ControlError> {
        Self::open_with(name, PathRequest::from_environment()?)
    }

    /// Opens the device of the given name; all that is made of it is driven as
    /// [`DeviceInfo::path`] then says.
    ///
    /// # Errors
    /// No such device, no permission, or a failure of the driver; or the device
    /// cannot be driven as asked.
    pub fn open_with(name: &str, request: PathRequest) -> Result<Self, ControlError> {
        LockedMemory::current().warn_if_low();
        let list = DeviceList::new()?;
        let Some(device) = list.iter().find(|&device| name_of(device) == name) else {
            return Err(not_found(name, &list));
        };
        let path = data_path(device, request);
        if let DataPath::Unusable { reason } = path {
            return Err(not_as_asked(name, reason));
        }
        let mut context = open(device)?;
        context::set_nonblocking(context.async_fd(), "prepare the device's event descriptor")?;
        let (info, limits) = info_of(device, &context, path)?;
        if Quirks::of(info.vendor_id) == Quirks::Siw {
            context.reserve_siw_offset();
        }
        tracing::info!(device = name, path = %info.path, firmware = info.firmware, "opened");
        Ok(Self {
            context: Arc::new(context),
            info: Arc::new(info),
            limits,
            mlx5: is_mlx5(device),
        })
    }

    /// What the device was when it was opened. Ports change: see [`Device::port`].
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// What it can do at most.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The present state of a port; ports count from 1.
    ///
    /// # Errors
    /// There is no such port.
    pub fn port(&self, number: u8) -> Result<PortInfo, ControlError> {
        PortInfo::query(&self.context, number)
    }

    /// Whether receives of a shared queue are checked against the domain of that
    /// queue, so that its endpoints may be of other domains. Known of mlx5;
    /// Soft-RoCE checks against the domain of the endpoint.
    #[must_use]
    pub fn srq_domain_may_differ(&self) -> bool {
        self.mlx5
    }

    /// Whether a completion queue can wake for solicited receives alone. siw's
    /// never wakes for a receive then (Linux, `siw_rqe_complete` in
    /// drivers/infiniband/sw/siw/siw_qp.c), so there every completion wakes.
    #[must_use]
    pub fn tells_solicited(&self) -> bool {
        Quirks::of(self.info.vendor_id) == Quirks::None
    }

    /// Whether what is made of it has rings for us, or is left to libibverbs.
    pub(super) fn is_direct(&self) -> bool {
        self.info.path == DataPath::Direct
    }

    /// Whether libmlx5 is its library, whatever the path.
    pub(super) fn is_mlx5(&self) -> bool {
        self.mlx5
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.info.name).finish()
    }
}

fn name_of(device: &ibv_device) -> String {
    text(&device.name)
}

fn guid_of(device: &ibv_device) -> u64 {
    // SAFETY: the device is alive by its borrow; the call only reads it.
    let guid = unsafe { verbs::ibv_get_device_guid(pointer(device)) };
    u64::from_be(guid)
}

fn pointer(device: &ibv_device) -> *mut ibv_device {
    core::ptr::from_ref(device).cast_mut()
}

/// Text in a fixed array of C, which a terminator may end.
fn text(field: &[core::ffi::c_char]) -> String {
    // `char` is signed on x86-64 and unsigned on aarch64.
    let bytes: Vec<u8> = field.iter().flat_map(|c| c.to_ne_bytes()).collect();
    let text = CStr::from_bytes_until_nul(&bytes)
        .map(CStr::to_bytes)
        .unwrap_or(&bytes);
    String::from_utf8_lossy(text).into_owned()
}

fn open(device: &ibv_device) -> Result<Context, ControlError> {
    // SAFETY: the device is alive by its borrow.
    let raw = unsafe { verbs::ibv_open_device(pointer(device)) };
    match NonNull::new(raw) {
        // SAFETY: just opened, and closed nowhere else.
        Some(raw) => Ok(unsafe { Context::from_raw(raw) }),
        None => Err(open_failed(&name_of(device), last_errno())),
    }
}

fn open_failed(name: &str, errno: i32) -> ControlError {
    let error = ControlError::verbs(format!("open {name}"), errno);
    match errno {
        libc::ENOENT | libc::ENXIO => error
            .with_kind(ControlErrorKind::NoDevice)
            .with_cause("its device file /dev/infiniband/uverbs* is missing")
            .with_remedy(
                "load the kernel's user verbs (modprobe ib_uverbs); in a container pass \
                 --device=/dev/infiniband",
            ),
        _ => LockedMemory::current().explain(error, 4096),
    }
}

fn query(context: &Context, name: &str) -> Result<ibv_device_attr_ex, ControlError> {
    // SAFETY: the struct holds integers and byte arrays, for which zero is valid.
    let mut attr: ibv_device_attr_ex = unsafe { core::mem::zeroed() };
    // SAFETY: the context is open; `attr` is as large as the header that the
    // shim was compiled with says.
    let errno = unsafe {
        dv_sys::inline::ibv_query_device_ex(context.as_ptr(), core::ptr::null(), &raw mut attr)
    };
    match errno {
        0 => Ok(attr),
        _ => Err(ControlError::verbs(format!("query {name}"), errno)),
    }
}

fn firmware_of(attr: &ibv_device_attr_ex) -> String {
    text(&attr.orig_attr.fw_ver)
}

fn ports(context: &Context, attr: &ibv_device_attr_ex) -> Result<Vec<PortInfo>, ControlError> {
    (1..=attr.orig_attr.phys_port_cnt)
        .map(|port| PortInfo::query(context, port))
        .collect()
}

/// Describes an open device, which is driven on `path`.
fn info_of(
    device: &ibv_device,
    context: &Context,
    path: DataPath,
) -> Result<(DeviceInfo, Limits), ControlError> {
    let name = name_of(device);
    let attr = query(context, &name)?;
    let ports = ports(context, &attr)?;
    let transport = Transport::of(device, &ports);
    let mut limits = Limits::new(&attr.orig_attr, context.vectors(), transport);
    if limits.windows > 0 && !is_mlx5(device) && !window::can_be_allocated(context) {
        limits.windows = 0;
    }
    let info = DeviceInfo {
        name,
        guid: guid_of(device),
        vendor_id: attr.orig_attr.vendor_id,
        part_id: attr.orig_attr.vendor_part_id,
        firmware: firmware_of(&attr),
        transport,
        limits: Some(limits),
        ports,
        path,
    };
    Ok((info, limits))
}

fn describe(device: &ibv_device, request: PathRequest) -> DeviceInfo {
    let opened = open(device).and_then(|context| {
        let (info, _) = info_of(device, &context, data_path(device, request))?;
        Ok(info)
    });
    opened.unwrap_or_else(|error| DeviceInfo {
        name: name_of(device),
        guid: guid_of(device),
        vendor_id: 0,
        part_id: 0,
        firmware: String::new(),
        transport: Transport::of(device, &[]),
        limits: None,
        ports: Vec::new(),
        path: DataPath::Unusable {
            reason: error.to_string(),
        },
    })
}

/// How to drive a device that can be opened.
fn data_path(device: &ibv_device, request: PathRequest) -> DataPath {
    match (request, obstacle(device)) {
        (PathRequest::Verbs, _) => DataPath::Verbs {
            reason: "it was asked for".to_owned(),
        },
        (_, None) => DataPath::Direct,
        (PathRequest::Auto, Some(reason)) => DataPath::Verbs { reason },
        (PathRequest::Direct, Some(reason)) => DataPath::Unusable {
            reason: format!("the direct path was asked for, but {reason}"),
        },
    }
}

/// What keeps us from a device's rings.
fn obstacle(device: &ibv_device) -> Option<String> {
    if !is_mlx5(device) {
        return Some("it is no mlx5 device".to_owned());
    }
    // Either adds a signature to the WQEs of its queues, which moves the segments.
    ["MLX5_QP_SIGNATURE", "MLX5_SRQ_SIGNATURE"]
        .into_iter()
        .find(|switch| environment::driver_switch(switch).is_some())
        .map(|switch| format!("{switch} is set and changes the rings"))
}

fn is_mlx5(device: &ibv_device) -> bool {
    // SAFETY: the device is alive by its borrow; the call only reads it.
    unsafe { dv_sys::mlx5dv::mlx5dv_is_supported(pointer(device)) }
}

fn not_as_asked(name: &str, reason: String) -> ControlError {
    ControlError::new(
        ControlErrorKind::Unsupported,
        format!("open {name}"),
        reason,
    )
    .with_remedy("ask for the path auto or verbs (DAT_PATH)")
}

fn not_found(name: &str, list: &DeviceList) -> ControlError {
    let names: Vec<String> = list.iter().map(name_of).collect();
    if names.is_empty() {
        return no_device(name, Path::new("/sys/class/infiniband"));
    }
    ControlError::new(
        ControlErrorKind::UnknownDevice,
        format!("open {name}"),
        "there is no RDMA device of that name",
    )
    .with_remedy(format!("there are: {}", names.join(", ")))
}

/// Tells a host without RDMA hardware from one without the software for it.
fn no_device(name: &str, class: &Path) -> ControlError {
    let known: Vec<String> = fs::read_dir(class)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let (cause, remedy) = if known.is_empty() {
        (
            "this host has no RDMA device".to_owned(),
            "with an adapter installed, load its driver (modprobe mlx5_ib) and check lspci and \
             `ibv_devices`",
        )
    } else {
        (
            format!(
                "the kernel has {}, but libibverbs sees no device",
                known.join(", ")
            ),
            "install the user-space drivers (apt-get install ibverbs-providers), of the same \
             version of rdma-core as libibverbs, and load the user verbs (modprobe ib_uverbs)",
        )
    };
    ControlError::new(ControlErrorKind::NoDevice, format!("open {name}"), cause).with_remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_an_error_that_says_what_there_is() {
        let error = Device::open("no_such_device").expect_err("no such device");
        let expected = match devices().expect("a list").is_empty() {
            true => ControlErrorKind::NoDevice,
            false => ControlErrorKind::UnknownDevice,
        };
        assert_eq!(error.kind(), expected);
        assert!(!error.remedy().is_empty());
    }

    #[test]
    fn missing_hardware_and_missing_user_drivers_are_told_apart() {
        let folder = std::env::temp_dir().join(format!("rdma-class-{}", std::process::id()));
        let hardware = no_device("mlx5_0", &folder);
        assert!(
            hardware.to_string().contains("no RDMA device"),
            "{hardware}"
        );
        fs::create_dir_all(folder.join("mlx5_7")).expect("a temporary folder");
        let software = no_device("mlx5_0", &folder);
        fs::remove_dir_all(&folder).expect("the folder is ours");
        assert!(
            software.to_string().contains("the kernel has mlx5_7"),
            "{software}"
        );
        assert!(
            software.remedy().contains("ibverbs-providers"),
            "{software}"
        );
        assert!(
            software.remedy().contains("same version of rdma-core"),
            "{software}"
        );
    }

    #[test]
    fn a_missing_device_file_and_missing_rights_have_their_own_remedies() {
        let missing = open_failed("mlx5_0", libc::ENOENT);
        assert!(missing.remedy().contains("ib_uverbs"), "{missing}");
        let denied = open_failed("mlx5_0", libc::EACCES);
        assert_eq!(denied.kind(), ControlErrorKind::Permission);
        assert!(denied.remedy().contains("/dev/infiniband"), "{denied}");
    }

    #[test]
    fn text_ends_at_its_terminator_or_its_array() {
        let c = |bytes: &[u8]| {
            bytes
                .iter()
                .map(|&b| core::ffi::c_char::from_ne_bytes([b]))
                .collect::<Vec<_>>()
        };
        assert_eq!(text(&c(b"16.28\0zzz")), "16.28");
        assert_eq!(text(&c(b"full")), "full");
    }
}

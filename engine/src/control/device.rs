//! Finding, describing and opening devices.

use super::context::{self, Context};
use super::device_list::DeviceList;
use super::limits::Limits;
use super::memlock::LockedMemory;
use super::path::PathRequest;
use super::port::PortInfo;
use super::quirks::Quirks;
use super::transport::Transport;
use super::transport_options::TransportOptions;
use super::window;
use crate::environment::{self, EnvironmentOptions};
use crate::error::{ControlError, ControlErrorKind, last_errno};
use core::ffi::CStr;
use core::ptr::NonNull;
use dv_sys::verbs::{self, ibv_device, ibv_device_attr_ex};
use std::path::Path;
use std::sync::Arc;
use std::{fmt, fs};

/// The data path of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataPath {
    /// Direct: the engine writes to its mlx5 rings.
    Direct,
    /// Through libibverbs, for the given reason.
    Verbs {
        /// Why the direct path is not used.
        reason: String,
    },
    /// None: the device could not be opened, or the requested path is not possible.
    /// In the first case only `name` and `guid` of its [`DeviceInfo`] are known.
    Unusable {
        /// The error, with its remedy.
        reason: String,
    },
}

impl DataPath {
    /// Returns its name in one word.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Verbs { .. } => "verbs",
            Self::Unusable { .. } => "unusable",
        }
    }

    /// Returns why it is not the direct path.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Direct => None,
            Self::Verbs { reason } | Self::Unusable { reason } => Some(reason),
        }
    }
}

impl fmt::Display for DataPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self.reason() {
            None => Ok(()),
            Some(reason) => write!(f, " ({reason})"),
        }
    }
}

/// A GUID, in host byte order. It is displayed in four groups of four hexadecimal digits, as
/// `ibv_devinfo` does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid(pub u64);

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = |shift: u32| (self.0 >> shift) as u16;
        let [a, b, c, d] = [48, 32, 16, 0].map(group);
        write!(f, "{a:04x}:{b:04x}:{c:04x}:{d:04x}")
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The description of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The name, such as `mlx5_0`.
    pub name: String,
    /// Node GUID.
    pub guid: Guid,
    /// The PCI vendor.
    pub vendor_id: u32,
    /// The vendor's number for the model.
    pub part_id: u32,
    /// Firmware version.
    pub firmware: String,
    /// The transport of its connections, determined by the link layer of its first
    /// port.
    pub transport: Transport,
    /// Its limits; `None` if it could not be opened.
    pub limits: Option<Limits>,
    /// The ports, in order of their numbers.
    pub ports: Vec<PortInfo>,
    /// Its data path; for a device that is not open, the path it would be opened
    /// on.
    pub path: DataPath,
}

/// Describes every RDMA device that libibverbs finds, with the data path that
/// [`Device::open`] would select; empty if there is none.
///
/// # Errors
/// libibverbs could not list devices, or the value of `DAT_PATH` is invalid.
pub fn devices() -> Result<Vec<DeviceInfo>, ControlError> {
    devices_with(PathRequest::from_environment()?)
}

/// Describes every RDMA device that libibverbs finds, with the data path that
/// [`Device::open_with`] would select; empty if there is none.
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

/// An open device. Clones are handles to the same device.
#[derive(Clone)]
pub struct Device {
    pub(super) context: Arc<Context>,
    info: Arc<DeviceInfo>,
    limits: Limits,
    mlx5: bool,
}

impl Device {
    /// Opens the device of the given name on the data path that the variable
    /// `DAT_PATH` selects: see [`PathRequest::from_environment`].
    ///
    /// # Errors
    /// As for [`Self::open_with`], or the value of `DAT_PATH` is invalid.
    pub fn open(name: &str) -> Result<Self, ControlError> {
        Self::open_with(name, PathRequest::from_environment()?)
    }

    /// Opens the device of the given name. All objects of the device are on the
    /// data path in [`DeviceInfo::path`].
    ///
    /// # Errors
    /// There is no such device, the process lacks the permission, the driver
    /// failed, or the requested data path is not possible.
    pub fn open_with(name: &str, request: PathRequest) -> Result<Self, ControlError> {
        LockedMemory::current().warn_if_low();
        let list = DeviceList::new()?;
        let Some(device) = list.iter().find(|&device| name_of(device) == name) else {
            return Err(not_found(name, &list));
        };
        let path = data_path(device, request);
        if let DataPath::Unusable { reason } = path {
            return Err(path_not_possible(name, reason));
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

    /// Returns the description of the device when it was opened. Ports may change:
    /// see [`Device::port`].
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Returns the limits of the device.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the present state of a port; ports count from 1.
    ///
    /// # Errors
    /// There is no such port.
    pub fn port(&self, number: u8) -> Result<PortInfo, ControlError> {
        PortInfo::query(&self.context, number)
    }

    /// Returns the most retries after an ACK timeout: 7, or 6 on devices other than
    /// mlx5. Soft-RoCE takes 7 as infinite, as for RNR retries, and would never
    /// detect that a peer has disappeared.
    #[must_use]
    pub fn max_retry(&self) -> u8 {
        match self.mlx5 {
            true => TransportOptions::RETRY,
            false => TransportOptions::RETRY - 1,
        }
    }

    /// Returns whether receives of a shared receive queue are checked against the
    /// protection domain of that queue, so that its endpoints may be in other
    /// domains. This is known of mlx5; Soft-RoCE checks against the domain of the
    /// endpoint.
    #[must_use]
    pub fn srq_domain_may_differ(&self) -> bool {
        self.mlx5
    }

    /// Returns whether a completion queue can wake for solicited receives only. siw
    /// never wakes for a receive then (Linux, `siw_rqe_complete` in
    /// drivers/infiniband/sw/siw/siw_qp.c), so on siw every completion wakes.
    #[must_use]
    pub fn reports_solicited(&self) -> bool {
        Quirks::of(self.info.vendor_id) == Quirks::None
    }

    /// Returns what the environment says of its endpoints.
    pub(crate) fn environment(&self) -> EnvironmentOptions {
        self.context.environment
    }

    /// Returns whether the device is on the direct path.
    pub(crate) fn is_direct(&self) -> bool {
        self.info.path == DataPath::Direct
    }

    /// Returns whether libmlx5 is its library, on either path.
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

fn guid_of(device: &ibv_device) -> Guid {
    // SAFETY: the borrow keeps the device alive; the call only reads it.
    let guid = unsafe { verbs::ibv_get_device_guid(pointer(device)) };
    Guid(u64::from_be(guid))
}

fn pointer(device: &ibv_device) -> *mut ibv_device {
    core::ptr::from_ref(device).cast_mut()
}

/// Returns the text in a fixed C array, up to its terminator if it has one.
pub(super) fn text(field: &[core::ffi::c_char]) -> String {
    // `char` is signed on x86-64 and unsigned on aarch64.
    let bytes: Vec<u8> = field.iter().flat_map(|c| c.to_ne_bytes()).collect();
    let text = CStr::from_bytes_until_nul(&bytes)
        .map(CStr::to_bytes)
        .unwrap_or(&bytes);
    String::from_utf8_lossy(text).into_owned()
}

fn open(device: &ibv_device) -> Result<Context, ControlError> {
    // SAFETY: the borrow keeps the device alive.
    let raw = unsafe { verbs::ibv_open_device(pointer(device)) };
    match NonNull::new(raw) {
        // SAFETY: just opened, and has no other owner.
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
    // SAFETY: the context is open; the size of `attr` is that of the header that
    // the shim was compiled with.
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

/// Selects the data path for a device that can be opened.
fn data_path(device: &ibv_device, request: PathRequest) -> DataPath {
    match (request, obstacle(device)) {
        (PathRequest::Verbs, _) => DataPath::Verbs {
            reason: "it was requested".to_owned(),
        },
        (_, None) => DataPath::Direct,
        (PathRequest::Auto, Some(reason)) => DataPath::Verbs { reason },
        (PathRequest::Direct, Some(reason)) => DataPath::Unusable {
            reason: format!("the direct path was requested, but {reason}"),
        },
    }
}

/// Returns the reason why the direct path is not possible.
fn obstacle(device: &ibv_device) -> Option<String> {
    if !is_mlx5(device) {
        return Some("it is not an mlx5 device".to_owned());
    }
    // Each adds a signature to the WQEs of its queues, which moves the segments.
    ["MLX5_QP_SIGNATURE", "MLX5_SRQ_SIGNATURE"]
        .into_iter()
        .find(|switch| environment::driver_variable(switch).is_some())
        .map(|switch| format!("{switch} is set and changes the rings"))
}

fn is_mlx5(device: &ibv_device) -> bool {
    // SAFETY: the borrow keeps the device alive; the call only reads it.
    unsafe { dv_sys::mlx5dv::mlx5dv_is_supported(pointer(device)) }
}

fn path_not_possible(name: &str, reason: String) -> ControlError {
    ControlError::new(
        ControlErrorKind::Unsupported,
        format!("open {name}"),
        reason,
    )
    .with_remedy("select the data path auto or verbs (DAT_PATH)")
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
    .with_remedy(format!("available devices: {}", names.join(", ")))
}

/// Returns the error for a host without devices: it distinguishes missing hardware
/// from missing drivers.
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
    fn a_guid_is_shown_in_hexadecimal_as_ibv_devinfo_does() {
        let guid = Guid(0x5065_8a03_0001_0203);
        assert_eq!(
            format!("{guid} {guid:?}"),
            "5065:8a03:0001:0203 5065:8a03:0001:0203"
        );
        assert_eq!(Guid(1).to_string(), "0000:0000:0000:0001");
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_the_devices() {
        let error = Device::open("no_such_device").expect_err("no such device");
        let expected = match devices().expect("a list").is_empty() {
            true => ControlErrorKind::NoDevice,
            false => ControlErrorKind::UnknownDevice,
        };
        assert_eq!(error.kind(), expected);
        assert!(!error.remedy().is_empty());
    }

    #[test]
    fn missing_hardware_and_missing_user_drivers_are_distinguished() {
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
    fn a_missing_device_file_and_a_missing_permission_have_different_remedies() {
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

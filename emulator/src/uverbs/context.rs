//! One open device file: the kernel's state per `open` of
//! `/dev/infiniband/uverbsN`.

use std::ffi::c_int;
use std::fs::File;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use libc::{EINVAL, EIO, ENODEV};

use super::backend::Backend;
use super::clock;
use super::events::Events;
use super::handles::Handles;
use super::pages::Pages;
use super::registers::Registers;
use crate::config::{Config, DataInOrder, Face};
use crate::fabric::name::PortNames;
use crate::hidden::HiddenFile;
use crate::limits::Limits;
use crate::log;
use crate::nasty::Modes;
use crate::refusal::{OrRefuse, refuse_if};
use crate::spec::gid::Gid;
use crate::spec::gid::mac_of_address;
use crate::spec::{ContextId, Link, Result, UarPage};
use crate::sync::{Mutex, MutexGuard};

/// Size of a doorbell page in bytes, and the unit of mmap offsets.
pub const PAGE_SIZE: u64 = 4096;

/// The part of the configuration that the replies to commands depend on.
#[derive(Clone, Copy, Debug)]
pub struct DeviceConfig {
    /// Link layer of the ports.
    pub link: Link,
    /// Number of devices.
    pub devices: u8,
    /// Number of ports of each device.
    pub ports: u8,
    /// The command interface. `write()` is always accepted, as by a kernel with both.
    pub face: Face,
    /// The newest CQE version that is offered.
    pub cqe_version: u8,
    /// The limits of the devices.
    pub limits: Limits,
    /// Whether the devices have BlueFlame.
    pub blue_flame: bool,
    /// What the devices say about the order of a message's bytes.
    pub data_in_order: DataInOrder,
    /// Whether they send to other hosts.
    pub reaches_others: bool,
}

impl From<&Config> for DeviceConfig {
    fn from(config: &Config) -> Self {
        Self {
            link: config.link,
            devices: config.devices,
            ports: config.ports,
            face: config.face,
            cqe_version: config.cqe_version,
            limits: config.limits,
            blue_flame: !config.nasty.modes.contains(Modes::NO_BLUEFLAME),
            // A device in this mode does not write bytes in their order.
            reaches_others: !config.interfaces.is_empty(),
            data_in_order: match config.data_in_order {
                DataInOrder::Yes if config.nasty.modes.contains(Modes::PARTS) => DataInOrder::No,
                chosen => chosen,
            },
        }
    }
}

/// An open device.
pub struct DeviceFile {
    backend: Arc<dyn Backend>,
    device: u8,
    config: DeviceConfig,
    /// The memory file of the doorbell pages.
    memory: HiddenFile,
    state: Mutex<ContextState>,
}

/// What a mapping of a device file shows.
#[derive(Clone, Copy, Debug)]
pub enum Mapped {
    /// The clock page, at this offset in the memory file.
    Clock(u64),
    /// A doorbell page.
    Doorbells(UarPage),
}

/// The mutable state of an open device.
#[derive(Default)]
pub(super) struct ContextState {
    /// Set by `GET_CONTEXT`; most commands need it.
    pub(super) context: Option<ContextId>,
    /// The negotiated CQE version.
    pub(super) cqe_version: u8,
    /// Whether the context may send DevX commands.
    pub(super) has_devx: bool,
    pub(super) handles: Handles,
    pub(super) pages: Pages,
    /// The registers that the kernel assigns, if libmlx5 does not allocate doorbell
    /// pages by command.
    pub(super) registers: Option<Registers>,
}

impl DeviceFile {
    /// Opens a device. [`DeviceFile::application_descriptor`] returns its descriptor
    /// for the application.
    ///
    /// # Errors
    /// Returns an error if the memory file cannot be created.
    pub fn open(
        backend: Arc<dyn Backend>,
        device: u8,
        config: DeviceConfig,
    ) -> std::io::Result<Self> {
        // SAFETY: a C string and flags; the call accesses no other memory.
        let fd = unsafe { libc::memfd_create(c"mlx5-emu-uverbs".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: memfd_create has just created it; it is owned here only.
        let memory = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        memory.set_len(clock::MEMORY_PAGES * PAGE_SIZE)?;
        clock::write_page(memory.as_fd(), backend.wall_clock())?;
        let state = Mutex::default();
        Ok(Self {
            backend,
            device,
            config,
            memory: HiddenFile::new(memory),
            state,
        })
    }

    /// Returns a descriptor of the memory file for the application, close-on-exec.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn application_descriptor(&self) -> std::io::Result<OwnedFd> {
        self.memory.try_clone().map(OwnedFd::from)
    }

    /// Checks a mapping of the clock page before it is made. Returns the offset in the
    /// memory file, or `None` for a mapping of another page.
    ///
    /// # Errors
    /// As mlx5_ib: `EINVAL`, `EOPNOTSUPP`, `EPERM`; see `clock`.
    pub(super) fn check_clock_mapping(
        &self,
        offset: u64,
        len: usize,
        writes: bool,
    ) -> Result<Option<u64>> {
        clock::check(offset, len, writes)
    }

    /// Checks a mapping of a doorbell page before it is made. Returns the page.
    ///
    /// # Errors
    /// `ENODEV` before the context is open; `EINVAL` unless the mapping is exactly
    /// one doorbell page of the context.
    pub(super) fn check_page_mapping(&self, offset: u64, len: usize) -> Result<UarPage> {
        let mut state = self.lock();
        let context = state.context;
        let context = context.or_refuse(ENODEV, "the descriptor has no context yet")?;
        refuse_if(
            !offset.is_multiple_of(PAGE_SIZE) || len == 0 || len as u64 > PAGE_SIZE,
            EINVAL,
            "a mapping of a device file is one whole page",
        )?;
        let page_offset = offset / PAGE_SIZE;
        let ContextState {
            pages, registers, ..
        } = &mut *state;
        let page = match registers {
            Some(registers) => registers.page_at(page_offset, pages)?,
            None => u32::try_from(page_offset)
                .or_refuse(EINVAL, "the offset is that of no doorbell page")?,
        };
        pages.check(page).map(|page| UarPage { context, page })
    }

    /// Checks a mapping before it is made. The arguments are those of `mmap`.
    ///
    /// # Errors
    /// As mlx5_ib: `ENODEV` before the context is open; `EINVAL`, `EOPNOTSUPP` and
    /// `EPERM` for a mapping that does not exist.
    pub fn check_mapping(
        &self,
        offset: i64,
        len: usize,
        protection: c_int,
        flags: c_int,
    ) -> Result<Mapped> {
        log::observed("mmap", || {
            log::request(|| format!("offset {offset:#x}, {len} bytes"));
            refuse_if(
                flags & libc::MAP_SHARED == 0,
                EINVAL,
                "a mapping of a device file must be shared (MAP_SHARED)",
            )?;
            let offset = u64::try_from(offset).or_refuse(EINVAL, "the offset is negative")?;
            let writes = protection & libc::PROT_WRITE != 0;
            match self.check_clock_mapping(offset, len, writes)? {
                Some(place) => Ok(Mapped::Clock(place)),
                None => self.check_page_mapping(offset, len).map(Mapped::Doorbells),
            }
        })
    }

    /// Records a checked mapping: from now on the NIC scans the page.
    ///
    /// # Errors
    /// Returns an error if the NIC cannot map the page.
    pub fn mapped(&self, page: UarPage, address: usize) -> Result<()> {
        self.backend.page_mapped(page, address, self.memory.as_fd())
    }

    /// Returns the event files.
    pub fn events(&self) -> &Arc<Events> {
        self.backend.events()
    }

    /// Returns the index of the device, from 0.
    pub fn device(&self) -> u8 {
        self.device
    }

    pub(super) fn link(&self) -> Link {
        self.config.link
    }

    pub(super) fn ports(&self) -> u8 {
        self.config.ports
    }

    /// Returns the addresses of a port.
    ///
    /// # Errors
    /// `EINVAL` if there is no such port.
    pub(super) fn port_names(&self, port: u64) -> Result<PortNames> {
        let port = u8::try_from(port).ok();
        let port = port.filter(|port| (1..=self.ports()).contains(port));
        let port = port.or_refuse(
            EINVAL,
            "the device has no port of this number; ports count from 1",
        )?;
        Ok(self.backend.identity(self.device).port(port))
    }

    pub(super) fn cqe_version(&self) -> u8 {
        self.config.cqe_version
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.config.limits
    }

    pub(super) fn has_blue_flame(&self) -> bool {
        self.config.blue_flame
    }

    pub(super) fn data_in_order(&self) -> DataInOrder {
        self.config.data_in_order
    }

    /// Returns whether contexts with DevX can be opened. The command interface of
    /// [`Face::Write`] is from before DevX.
    pub(super) fn has_devx(&self) -> bool {
        self.data_in_order() != DataInOrder::Unknown && self.face() == Face::Ioctl
    }

    /// Returns the GIDs of a port, by their index.
    ///
    /// # Errors
    /// The same as for [`DeviceFile::port_names`].
    pub(super) fn gids(&self, port: u64) -> Result<Vec<Gid>> {
        let gids = self.port_names(port)?.gids(self.link());
        Ok(gids.into_iter().flatten().collect())
    }

    /// Returns the MAC address of the port of the fabric with a GID, on a RoCE link.
    pub(super) fn neighbour(&self, gid: &[u8; 16]) -> Option<[u8; 6]> {
        let mut ports = (0..self.config.devices).flat_map(|device| {
            let identity = self.backend.identity(device);
            (1..=self.ports()).map(move |port| identity.port(port))
        });
        let found = ports.find(|it| it.roce_gids().any(|it| it == *gid));
        let elsewhere = || self.config.reaches_others.then(|| mac_of_address(gid));
        found.map(|it| it.mac).or_else(elsewhere)
    }

    /// Returns whether the devices send to other hosts.
    pub(super) fn reaches_others(&self) -> bool {
        self.config.reaches_others
    }

    pub(super) fn face(&self) -> Face {
        self.config.face
    }

    /// Returns `EIO` once the device has failed, as a kernel does after the device was
    /// removed.
    pub(super) fn check_alive(&self) -> Result<()> {
        let context = self.lock().context;
        refuse_if(
            context.is_some_and(|context| self.backend.events().has_failed(context)),
            EIO,
            "the device has failed (IBV_EVENT_DEVICE_FATAL): close it",
        )
    }

    pub(super) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ContextState> {
        self.state.lock()
    }
}

impl Drop for DeviceFile {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let Some(context) = state.context else { return };
        self.backend.close_context(context);
        for page in state.pages.iter() {
            self.backend.remove_page(UarPage { context, page });
        }
        self.backend.events().remove_context(context);
    }
}

//! One open device file: what the kernel keeps per `open` of
//! `/dev/infiniband/uverbsN`.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use libc::{EINVAL, ENOMEM};

use super::events::Events;
use super::handles::Handles;
use super::machine::Machine;
use crate::config::Link;
use crate::nic::spec::{ContextId, Errno, Result, UarPage};

/// Size of a doorbell page, and the unit of mmap offsets.
pub const PAGE_SIZE: u64 = 4096;

/// Doorbell pages of one context. A CQ names its page in 16 bits.
const MAX_PAGES: u32 = 16_384;

/// An open device.
pub struct DeviceFile {
    machine: Arc<dyn Machine>,
    device: u8,
    link: Link,
    /// The doorbell pages are pages of this file, at their mmap offset.
    memory: OwnedFd,
    state: Mutex<State>,
}

/// What changes in an open device.
#[derive(Default)]
pub(super) struct State {
    /// Set by `GET_CONTEXT`; most commands need it.
    pub(super) context: Option<ContextId>,
    /// CQE format agreed on.
    pub(super) cqe_version: u8,
    pub(super) handles: Handles,
    pub(super) pages: Pages,
}

/// Which doorbell pages of a context exist. Page 0 never does, so that a
/// page number left out of a request is not a valid one.
#[derive(Default)]
pub(super) struct Pages {
    in_use: BTreeSet<u32>,
    free: BTreeSet<u32>,
    highest: u32,
}

impl Pages {
    pub(super) fn allocate(&mut self) -> Result<u32> {
        let page = match self.free.pop_first() {
            Some(page) => page,
            None if self.highest + 1 < MAX_PAGES => {
                self.highest += 1;
                self.highest
            }
            None => return Err(Errno(ENOMEM)),
        };
        self.in_use.insert(page);
        Ok(page)
    }

    pub(super) fn release(&mut self, page: u32) {
        if self.in_use.remove(&page) {
            self.free.insert(page);
        }
    }

    /// The page a request names.
    pub(super) fn check(&self, page: u32) -> Result<u32> {
        self.in_use
            .contains(&page)
            .then_some(page)
            .ok_or(Errno(EINVAL))
    }
}

impl DeviceFile {
    /// Opens a device. The descriptor for the application is
    /// [`DeviceFile::application_descriptor`].
    ///
    /// # Errors
    /// What making the memory file answers.
    pub fn open(machine: Arc<dyn Machine>, device: u8, link: Link) -> std::io::Result<Self> {
        // SAFETY: a C string and flags; the call touches no memory of ours.
        let fd = unsafe { libc::memfd_create(c"mlx5-emu-uverbs".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: memfd_create has just made it; nobody else owns it.
        let memory = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        memory.set_len(u64::from(MAX_PAGES) * PAGE_SIZE)?;
        let state = Mutex::default();
        Ok(Self {
            machine,
            device,
            link,
            memory: memory.into(),
            state,
        })
    }

    /// A descriptor of the memory file for the application, close-on-exec.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn application_descriptor(&self) -> std::io::Result<OwnedFd> {
        self.memory.try_clone()
    }

    /// Checks a mapping before it is made.
    ///
    /// # Errors
    /// `EINVAL` unless it is exactly one doorbell page that was allocated.
    pub fn check_mapping(&self, offset: u64, len: usize) -> Result<UarPage> {
        let state = self.lock();
        let context = state.context.ok_or(Errno(EINVAL))?;
        if !offset.is_multiple_of(PAGE_SIZE) || len == 0 || len as u64 > PAGE_SIZE {
            return Err(Errno(EINVAL));
        }
        let page = u32::try_from(offset / PAGE_SIZE).map_err(|_| Errno(EINVAL))?;
        state
            .pages
            .check(page)
            .map(|page| UarPage { context, page })
    }

    /// The checked mapping was made: from now on the NIC watches the page.
    ///
    /// # Errors
    /// What mapping it for the NIC answers.
    pub fn mapped(&self, page: UarPage, address: usize) -> Result<()> {
        self.machine.page_mapped(page, address, self.memory.as_fd())
    }

    /// The machine's event files.
    pub fn events(&self) -> &Arc<Events> {
        self.machine.events()
    }

    /// Index of the device, from 0.
    pub fn device(&self) -> u8 {
        self.device
    }

    pub(super) fn link(&self) -> Link {
        self.link
    }

    pub(super) fn machine(&self) -> &dyn Machine {
        &*self.machine
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for DeviceFile {
    fn drop(&mut self) {
        let state = self
            .state
            .get_mut()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(context) = state.context else { return };
        self.machine.close_context(context);
        for &page in &state.pages.in_use {
            self.machine.remove_page(UarPage { context, page });
        }
        self.machine.events().forget_context(context);
    }
}

//! Serves the device on a Unix socket, to one client after another.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mlx5emu::config::{Config, Wake};
use mlx5emu::emulator::{Emulator, StartError};
use mlx5emu::limits::MAX_DEVICES;
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_INFO_NORESIZE, VFIO_PCI_CONFIG_REGION_INDEX,
    VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS, VFIO_REGION_INFO_FLAG_MMAP,
    VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
    vfio_region_sparse_mmap_area,
};
use vfio_user::{IrqInfo, Server, ServerRegion, SparseArea};

use crate::commands::{BAR, FIRST_UAR, Function};
use crate::config_space;
use crate::device::Device;
use crate::events::{Events, INTERRUPTS, Sink};
use crate::memory::PAGE;

/// Why the device cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A process serves a device on the socket.
    #[error("{0} is in use: another process listens there; give each device a socket of its own")]
    InUse(PathBuf),
    /// There is something that is not a socket.
    #[error("{0} exists and is not a socket: name a path that is free")]
    NotASocket(PathBuf),
    /// The socket cannot be made.
    #[error("cannot make the socket {path}: {source}")]
    Socket {
        /// The path of the socket.
        path: PathBuf,
        /// Why not.
        source: vfio_user::Error,
    },
    /// The emulator does not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The system lacks something.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// A device that listens on a socket.
pub struct Listening {
    server: Server,
    device: Device,
}

/// Makes a device, number `index` of a fabric, and listens for a client. Commands are written
/// to `trace`.
///
/// # Errors
/// Returns [`ServeError`].
pub fn listen(
    socket: &Path,
    mut config: Config,
    index: u8,
    trace: Option<File>,
) -> Result<Listening, ServeError> {
    let system = |what| move |source| ServeError::System { what, source };
    clear(socket)?;
    // Doorbells are stored by another process, which no signal reports.
    config.wake = Wake::Nap;
    // So that the device finds all others of the fabric by their LIDs.
    config.devices = MAX_DEVICES;
    let events = Arc::new(Events::default());
    let sink = Box::new(Sink::new(Arc::clone(&events), config.explain));
    let emulator = Emulator::start(config, sink)?;
    let bar = bar().map_err(system("make the memory of the doorbell pages"))?;
    let copy = || bar.try_clone().map_err(system("duplicate a descriptor"));
    let function = Function::new(emulator, index, Arc::clone(&events), copy()?, trace);
    let function = function.map_err(system("reserve addresses for the guest's memory"))?;
    let device = Device::new(function, events, copy()?);
    let server = Server::new(socket, true, interrupts(), regions(bar)).map_err(|source| {
        ServeError::Socket {
            path: socket.to_owned(),
            source,
        }
    })?;
    Ok(Listening { server, device })
}

impl Listening {
    /// Serves clients, one after another, for ever. After each the device is as after power-on.
    pub fn serve(&mut self) -> ! {
        loop {
            let Self { server, device } = self;
            // The protocol's library panics at some messages that no client should send.
            let served = catch_unwind(AssertUnwindSafe(|| server.run(device)));
            device.disconnect();
            match served {
                Ok(Ok(())) => {
                    eprintln!("mlx5-emu pci: the client has disconnected; waiting for the next one")
                }
                Ok(Err(error)) => {
                    eprintln!("mlx5-emu pci: the connection to the client failed: {error}")
                }
                Err(_) => eprintln!(
                    "mlx5-emu pci: the client has sent something that is not vfio-user; disconnected"
                ),
            }
        }
    }
}

/// Removes the socket of a process that has ended.
fn clear(socket: &Path) -> Result<(), ServeError> {
    let Ok(found) = std::fs::symlink_metadata(socket) else {
        return Ok(());
    };
    if !found.file_type().is_socket() {
        return Err(ServeError::NotASocket(socket.to_owned()));
    }
    if UnixStream::connect(socket).is_ok() {
        return Err(ServeError::InUse(socket.to_owned()));
    }
    // If it cannot be removed, binding says why.
    let _kept = std::fs::remove_file(socket);
    Ok(())
}

/// Returns the memory of BAR 0, of which only doorbell pages are used.
fn bar() -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a name that ends with 0.
    let fd = unsafe { libc::memfd_create(c"mlx5-bar0".as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nothing else owns.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(BAR)?;
    // The client gets the descriptor too. The NIC's polls of a shorter file would raise SIGBUS.
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    // SAFETY: this changes a property of the file; no memory is accessed.
    if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

fn interrupts() -> Vec<IrqInfo> {
    let msix = |index| index == VFIO_PCI_MSIX_IRQ_INDEX;
    (0..VFIO_PCI_NUM_IRQS)
        .map(|index| IrqInfo {
            index,
            flags: if msix(index) {
                VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_NORESIZE
            } else {
                0
            },
            count: if msix(index) { INTERRUPTS as u32 } else { 0 },
        })
        .collect()
}

/// The regions by their numbers: BAR 0, whose doorbell pages the client maps, and the
/// configuration space.
fn regions(bar: File) -> Vec<ServerRegion> {
    let access = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
    let first = u64::from(FIRST_UAR) * PAGE;
    let doorbells = vfio_region_sparse_mmap_area {
        offset: first,
        size: BAR - first,
    };
    let region = |index, flags, size| ServerRegion {
        region_info: vfio_region_info {
            argsz: size_of::<vfio_region_info>() as u32,
            flags,
            index,
            cap_offset: 0,
            size,
            offset: 0,
        },
        sparse_areas: Vec::new(),
        mmap_fd: None,
    };
    let mut regions: Vec<_> = (0..VFIO_PCI_NUM_REGIONS)
        .map(|index| region(index, 0, 0))
        .collect();
    regions[0] = ServerRegion {
        sparse_areas: vec![SparseArea { area: doorbells }],
        // The client may ask for it as long as the process lives.
        mmap_fd: Some(Box::leak(Box::new(bar)).as_raw_fd()),
        ..region(0, access | VFIO_REGION_INFO_FLAG_MMAP, BAR)
    };
    let config = VFIO_PCI_CONFIG_REGION_INDEX;
    regions[config as usize] = region(config, access, config_space::SIZE as u64);
    regions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_cannot_take_the_doorbell_pages_from_the_nic() {
        let bar = bar().unwrap();
        assert!(bar.set_len(PAGE).is_err());
        assert_eq!(bar.metadata().unwrap().len(), BAR);
    }
}

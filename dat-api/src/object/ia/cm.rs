//! The connection managers, one of each kind for all IAs of the process.

use core::net::IpAddr;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};

use dat_engine::cm::{
    self, CmError, DeviceSink, DeviceWatch, Local, Manager, ManagerKind, ManagerOptions,
};

use super::Ia;
use crate::error::{DatError, Result};
use crate::options::{CmChoice, Options};
use crate::per_process::PerProcess;
use crate::status::{ReturnType, Subtype};
use crate::warnings::warn_once;
use dat_engine::{DeviceInfo, Transport};

/// A manager, shared by the IAs that use it. Its thread ends with the last of them.
pub(super) struct SharedManager {
    manager: Manager,
}

/// The current managers, by kind.
static CURRENT: [PerProcess<Weak<SharedManager>>; 2] = [PerProcess::new(), PerProcess::new()];

impl SharedManager {
    /// Returns the manager of this process, and starts it if there is none.
    fn get(kind: ManagerKind) -> Result<Arc<Self>, CmError> {
        // Locked while a manager is started, so that two IAs that are opened at the same time share
        // it.
        let place = &CURRENT[usize::from(kind == ManagerKind::Rdma)];
        let mut current = place.lock();
        if let Some(shared) = current.upgrade() {
            return Ok(shared);
        }
        let manager = Manager::start(kind, ManagerOptions::default())?;
        let shared = Arc::new(Self { manager });
        *current = Arc::downgrade(&shared);
        Ok(shared)
    }

    pub(super) fn manager(&self) -> &Manager {
        &self.manager
    }
}

/// The connection manager that an IA uses.
pub(super) struct Chosen {
    pub(super) shared: Arc<SharedManager>,
    pub(super) local: Local,
    /// Forwards the removal of the device to the IA, once that exists.
    pub(super) departure: Arc<RemovalSink>,
    pub(super) watch: DeviceWatch,
}

/// A port, and the network interface that the configuration names for it.
pub(super) struct Port<'a> {
    pub(super) device: &'a DeviceInfo,
    pub(super) number: u8,
    /// The name of the interface, or one of its addresses.
    pub(super) interface: Option<&'a str>,
    pub(super) options: &'a Options,
}

/// Starts the configured manager. By default that is rdma_cm where the port has an IP address of
/// its own that the kernel serves, otherwise sockets.
pub(super) fn choose(port: &Port<'_>) -> Result<Chosen> {
    // Without free descriptors, files look as if they did not exist, and another manager or address
    // would be chosen. The kernel's manager takes 12 of them, with its libraries.
    let to_look = match port.options.cm {
        CmChoice::Socket => 8,
        CmChoice::RdmaCm | CmChoice::Auto => 16,
    };
    if let Some(error) = dat_engine::descriptors::shortage(to_look) {
        return Err(DatError::new(
            ReturnType::InsufficientResources,
            Subtype::ResourceDevice,
            format!("cannot look for a connection manager: {error}; see also `ulimit -n`"),
        ));
    }
    port.options.listen.require_here().map_err(|error| {
        DatError::new(
            ReturnType::InvalidAddress,
            Subtype::InvalidAddressUnsupported,
            format!("the address of DAT_LISTEN or of the key listen: {error}"),
        )
    })?;
    match port.options.cm {
        CmChoice::Socket => port
            .start(ManagerKind::Socket)
            .map_err(|error| refused(ManagerKind::Socket, &error)),
        CmChoice::RdmaCm => port
            .start(ManagerKind::Rdma)
            .and_then(|chosen| require_up(chosen.local.address).map(|()| chosen))
            .map_err(|error| refused(ManagerKind::Rdma, &error)),
        CmChoice::Auto => port
            .start(ManagerKind::Rdma)
            .map_err(|error| (ManagerKind::Rdma, error))
            .or_else(|(manager, error)| match error {
                // The manager would work at another time.
                CmError::Resources(_) => Err((manager, error)),
                // iWARP works with rdma_cm only.
                _ if port.device.transport == Transport::Iwarp => Err((manager, error)),
                _ => {
                    report_sockets(&port.device.name, &error);
                    port.start(ManagerKind::Socket)
                        .map_err(|error| (ManagerKind::Socket, error))
                }
            })
            .map_err(|(manager, error)| refused(manager, &error)),
    }
}

/// Reports why an adapter whose manager was not configured connects over TCP. That is normal where
/// there is no rdma_cm; where rdma_cm fails, peers that use it cannot connect to the adapter.
fn report_sockets(device: &str, error: &CmError) {
    let cause = error.to_string().replace('\n', "; ");
    let is_absent = match error {
        CmError::Missing(error) => error.kind() == io::ErrorKind::NotFound,
        error => matches!(error, CmError::NotServed(_)),
    };
    match is_absent {
        true => tracing::debug!(device, cause, "no rdma_cm: connects over TCP"),
        false => warn_once(
            0,
            &format!(
                "{device} connects over TCP, because rdma_cm fails: {cause}; DAT_CM=socket or \
                 DAT_CM=rdma_cm on both sides chooses"
            ),
        ),
    }
}

impl Port<'_> {
    fn start(&self, kind: ManagerKind) -> Result<Chosen, CmError> {
        let (device, transport) = (self.device.name.clone(), self.device.transport);
        if (kind, transport) == (ManagerKind::Socket, Transport::Iwarp) {
            return Err(CmError::OnlyRdma { device });
        }
        let shared = SharedManager::get(kind)?;
        let address = match (self.named_address(), kind) {
            (Some(address), _) => address,
            (None, ManagerKind::Socket) => shared.manager.local_address(&device).ip(),
            (None, ManagerKind::Rdma) => self.own_address()?,
        };
        let local = Local {
            device,
            transport,
            port: self.number,
            address,
            listen_on: self.options.listen,
            options: self.options.transport,
        };
        let departure = Arc::new(RemovalSink::default());
        let watch = shared.manager.watch_device(&local, departure.clone())?;
        Ok(Chosen {
            shared,
            local,
            departure,
            watch,
        })
    }

    fn named_address(&self) -> Option<IpAddr> {
        // The only address that service points listen on is also that of the port.
        if let Some(address) = self.options.listen.address() {
            return Some(address);
        }
        let interface = self.interface?;
        interface
            .parse()
            .ok()
            .or_else(|| cm::interface_address(interface))
    }

    fn own_address(&self) -> Result<IpAddr, CmError> {
        let (device, number) = (&self.device.name, self.number);
        let found = match self.interface {
            Some(_) => None,
            None => cm::own_address(device, number),
        };
        found.ok_or_else(|| {
            CmError::NotServed(match self.interface {
                Some(interface) => format!("the network interface {interface} has no IP address"),
                None if self.device.transport == Transport::Iwarp => {
                    cm::why_no_address(device, number)
                }
                None => {
                    format!("the network interface of {device} port {number} has no IP address")
                }
            })
        })
    }
}

/// Refuses an address that the kernel serves, but whose interface is down. Only for a configured
/// manager: by default, a link that is down for a moment must not change how an adapter connects.
fn require_up(address: IpAddr) -> Result<(), CmError> {
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    let Some(interface) = all.into_iter().find(|one| one.ip() == address) else {
        return Ok(());
    };
    let name = interface.name;
    // The kernel prints them as 0x1003.
    let flags = fs::read_to_string(Path::new("/sys/class/net").join(&name).join("flags"));
    let flags = flags.ok().and_then(|text| {
        let digits = text.trim().trim_start_matches("0x");
        i32::from_str_radix(digits, 16).ok()
    });
    match flags {
        Some(flags) if flags & libc::IFF_UP == 0 => Err(CmError::NotServed(format!(
            "the network interface {name}, which has the address {address}, is down"
        ))),
        _ => Ok(()),
    }
}

/// Returns the error for a manager that cannot be used. Most are errors of the configuration, not a
/// shortage of resources.
fn refused(manager: ManagerKind, error: &CmError) -> DatError {
    let (kind, subtype) = match error {
        CmError::Missing(_) | CmError::OnlyRdma { .. } => {
            (ReturnType::ModelNotSupported, Subtype::NoSubtype)
        }
        CmError::NotServed(_) => (
            ReturnType::InvalidAddress,
            Subtype::InvalidAddressUnsupported,
        ),
        _ => (ReturnType::InsufficientResources, Subtype::ResourceDevice),
    };
    DatError::new(
        kind,
        subtype,
        format!("the connection manager {manager} cannot be used: {error}"),
    )
}

/// Forwards the removal of the device.
#[derive(Default)]
pub(super) struct RemovalSink(OnceLock<Weak<Ia>>);

impl RemovalSink {
    pub(super) fn of(&self, ia: &Arc<Ia>) {
        let _ = self.0.set(Arc::downgrade(ia));
    }
}

impl DeviceSink for RemovalSink {
    fn removed(&self) {
        if let Some(ia) = self.0.get().and_then(Weak::upgrade) {
            ia.device_lost();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::tests::in_child;
    use crate::warnings;
    use std::cell::RefCell;

    #[test]
    fn sockets_in_place_of_an_rdma_cm_that_fails_are_a_warning_and_of_none_are_not() {
        thread_local! {
            static PRINTED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
        }
        let missing = |errno| CmError::Missing(io::Error::from_raw_os_error(errno));
        warnings::collect(
            |line| PRINTED.with_borrow_mut(|printed| printed.push(line.to_owned())),
            || {
                for error in [
                    missing(libc::ENOENT),
                    CmError::NotServed("no address".to_owned()),
                    missing(libc::EACCES),
                    CmError::Unavailable,
                    // Already said.
                    missing(libc::EACCES),
                ] {
                    report_sockets("mlx5_test", &error);
                }
            },
        );
        let printed = PRINTED.take();
        assert_eq!(printed.len(), 2, "{printed:?}");
        for (line, cause) in printed.iter().zip(["Permission denied", "has ended"]) {
            assert!(line.starts_with("mlx5_test connects over TCP"), "{line}");
            assert!(line.contains(cause) && line.contains("DAT_CM"), "{line}");
        }
    }

    /// The lock is held for as long as a manager takes to start.
    #[test]
    fn a_child_gets_a_manager_while_a_thread_of_the_parent_starts_one() {
        let held = CURRENT.each_ref().map(PerProcess::lock);
        let answer = in_child(|| {
            let kinds = [ManagerKind::Socket, ManagerKind::Rdma];
            let managers = kinds.map(SharedManager::get);
            u8::from(managers.iter().any(Result::is_ok))
        });
        drop(held);
        assert_eq!(answer, 1, "sockets are everywhere");
    }
}

//! Opening an IA.

use core::net::SocketAddr;
use core::sync::atomic::AtomicBool;
use std::sync::Arc;

use dat_engine::sync::Mutex;
use dat_engine::{ControlErrorKind, Device, PathRequest, PortInfo};

use super::Ia;
use super::children::Children;
use super::cm::{self, Chosen};
use super::describe::Described;
use super::doors::Doors;
use super::reports::{self, Reports};
use super::service::Service;
use super::watch::Watch;
use crate::error::{DatError, Result};
use crate::handle::{self, Handle, Reservation};
use crate::object::evd::{Evd, StreamKind};
use crate::object::exhausted;
use crate::object::peer::PeerAddress;
use crate::options::Options;
use crate::registry::{self, Instance, Key, Resolved};
use crate::status::{ReturnType, Subtype};
use crate::types::EvdFlags;

/// What to open.
#[derive(Clone, Copy, Debug)]
pub struct OpenRequest<'a> {
    /// `DEVICE`, `DEVICE-PORT`, or an entry of dat.conf: see [`crate::registry`].
    pub name: &'a str,
    /// Events that a new asynchronous EVD holds at least.
    pub async_qlen: i32,
    /// Where asynchronous events go.
    pub async_evd: AsyncEvd,
    /// Whether several threads may call on one object at a time.
    pub threadsafe: bool,
    /// DAT version that the caller wants: 1.
    pub major: u32,
    /// DAT version that the caller wants: 2.
    pub minor: u32,
}

/// Where the asynchronous events of an IA go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvd {
    /// To an EVD that is made for it, and goes with it.
    New,
    /// To this EVD, made of another open IA of the same device.
    Existing(Handle),
    /// To the EVD of another open IA of the same device
    /// (`DAT_EVD_ASYNC_EXISTS`); logged while there is none.
    Elsewhere,
}

impl Ia {
    /// Opens an adapter. Also answers the new asynchronous EVD, if one was
    /// made: it cannot be freed, and goes with the IA.
    ///
    /// Starts the IA's thread, and with the first IA of the process that uses
    /// a connection manager the thread of that.
    ///
    /// # Errors
    /// - `DAT_INVALID_PARAMETER`: argument 1, the name is longer than 255
    ///   bytes; argument 2, a new EVD of no events; without an argument, a
    ///   variable of the environment has a value that means nothing.
    /// - `DAT_PROVIDER_NOT_FOUND`: no such device or port, or dat.conf says
    ///   something that cannot be done. The cause lists what there is.
    /// - `DAT_INVALID_HANDLE_EVD_ASYNC`: the given EVD is none, was not made
    ///   for asynchronous events, or is of another device.
    /// - `DAT_INVALID_ADDRESS`: the configured GID is not in the port's table;
    ///   or this host does not have the address that service points are to
    ///   listen on; or rdma_cm was asked for, and the port's network interface
    ///   has no address that it serves.
    /// - `DAT_MODEL_NOT_SUPPORTED`: the device cannot be driven as the
    ///   configuration says, or not at all; or the kernel has no rdma_cm that
    ///   was asked for; or the device speaks iWARP, and sockets were asked for.
    /// - `DAT_INSUFFICIENT_RESOURCES`: descriptors, threads, memory, or the
    ///   permission to use the device.
    pub fn open(request: &OpenRequest<'_>) -> Result<(Arc<Self>, Option<Handle>)> {
        Self::open_as(request, || {
            registry::resolve(Key {
                name: request.name,
                major: request.major,
                minor: request.minor,
                threadsafe: request.threadsafe,
            })
        })
    }

    /// [`Self::open`] for a name that somebody else has looked up, who says
    /// what it means: the instance data of an entry as in dat.conf.
    ///
    /// # Errors
    /// As there.
    pub fn open_configured(
        request: &OpenRequest<'_>,
        instance_data: &str,
    ) -> Result<(Arc<Self>, Option<Handle>)> {
        Self::open_as(request, || Resolved::configured(instance_data))
    }

    fn open_as(
        request: &OpenRequest<'_>,
        resolve: impl FnOnce() -> Result<Resolved>,
    ) -> Result<(Arc<Self>, Option<Handle>)> {
        if request.async_evd == AsyncEvd::New && request.async_qlen <= 0 {
            return Err(DatError::new(
                ReturnType::InvalidParameter,
                Subtype::InvalidArg2,
                format!(
                    "an asynchronous EVD of {} events; it must hold at least 1",
                    request.async_qlen
                ),
            ));
        }
        let resolved = resolve()?;
        let environment = Options::from_environment()?;
        let (device, instance, options) = open_device(request.name, &resolved, environment)?;
        let port = device.port(instance.port)?;
        check(&device, &port, &options)?;

        let place = Reservation::new().ok_or_else(exhausted)?;
        let interface = instance.interface.as_deref();
        let chosen = cm::choose(
            options.cm,
            &cm::Port {
                device: &device.info().name,
                transport: device.info().transport,
                number: port.number,
                interface,
                listen_on: options.listen,
            },
        )?;
        let ia = Self::assemble(request, place.handle(), device, &port, options, chosen);
        let made = ia.attach_events(request)?;
        if let Err(error) = ia.start() {
            // The EVD and the IA know each other.
            ia.dismantle();
            return Err(error);
        }
        place.publish(Arc::clone(&ia));
        Ok((ia, made))
    }

    fn assemble(
        request: &OpenRequest<'_>,
        handle: Handle,
        device: Device,
        port: &PortInfo,
        options: Options,
        chosen: Chosen,
    ) -> Arc<Self> {
        let Chosen {
            shared: cm,
            local,
            departure,
            watch: device_watch,
        } = chosen;
        let address = SocketAddr::new(local.address, 0);
        let local_address = PeerAddress::new(address);
        let described = Described {
            name: request.name,
            device: &device,
            port,
            address,
            local_address: local_address.address(),
            manager: cm.manager(),
            threadsafe: request.threadsafe,
            options: &options,
        };
        let attributes = (described.adapter(), described.provider());
        let ia = Arc::new(Self {
            handle,
            process: std::process::id(),
            name: request.name.to_owned(),
            device,
            port: port.number,
            options,
            threadsafe: request.threadsafe,
            local,
            address,
            local_address,
            attributes,
            cm,
            children: Children::default(),
            doors: Doors::default(),
            reports: Reports::default(),
            watch: Watch::default(),
            service: Mutex::new(None),
            device_watch: Mutex::new(Some(device_watch)),
            lost: AtomicBool::new(false),
        });
        departure.of(&ia);
        ia
    }

    /// Decides where asynchronous events go; answers the EVD if it was made.
    fn attach_events(self: &Arc<Self>, request: &OpenRequest<'_>) -> Result<Option<Handle>> {
        match request.async_evd {
            AsyncEvd::New => {
                let evd = Evd::create_async(self, request.async_qlen, EvdFlags::ASYNC, None)?;
                let handle = evd.handle();
                match evd.attach(StreamKind::Async) {
                    Ok(stream) => self.reports.set_own(stream),
                    Err(error) => {
                        Evd::abort(handle);
                        return Err(error);
                    }
                }
                Ok(Some(handle))
            }
            AsyncEvd::Existing(handle) => {
                let evd = handle::pin::<Evd>(handle)
                    .ok_or_else(|| bad_evd("the handle names no EVD for asynchronous events"))?;
                if evd.ia().device().info().guid != self.device.info().guid {
                    return Err(bad_evd("the EVD belongs to an IA of another device"));
                }
                self.reports.set(evd.to_arc().attach(StreamKind::Async)?);
                Ok(None)
            }
            AsyncEvd::Elsewhere => {
                self.reports.set_elsewhere();
                Ok(None)
            }
        }
    }

    /// Starts what runs by itself.
    fn start(self: &Arc<Self>) -> Result<()> {
        let service = Service::start(self)?;
        *self.service.lock() = Some(service);
        reports::enlist(self);
        Ok(())
    }
}

/// Opens the first candidate that there is, as its settings say.
fn open_device(
    name: &str,
    resolved: &Resolved,
    environment: Options,
) -> Result<(Device, Instance, Options)> {
    let mut cause: Option<String> = None;
    for instance in &resolved.candidates {
        let options = configured(environment, instance);
        // Settings that mean nothing are told of a device that is there.
        let path = options
            .as_ref()
            .map_or(PathRequest::Auto, |known| known.path);
        match Device::open_with(&instance.device, path) {
            Ok(device) => {
                let ports = &device.info().ports;
                if ports.iter().any(|port| port.number == instance.port) {
                    return Ok((device, instance.clone(), options?));
                }
                cause = Some(format!(
                    "{} has {} ports, and no port {}",
                    instance.device,
                    ports.len(),
                    instance.port
                ));
            }
            Err(error)
                if matches!(
                    error.kind(),
                    ControlErrorKind::UnknownDevice | ControlErrorKind::NoDevice
                ) =>
            {
                cause.get_or_insert_with(|| error.to_string().replace('\n', "; "));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(registry::not_found(format!(
        "no adapter \"{name}\": {}; {}",
        cause.unwrap_or_default(),
        resolved.hint
    )))
}

/// The options of the environment, changed by those of dat.conf.
fn configured(mut options: Options, instance: &Instance) -> Result<Options> {
    for (key, value) in &instance.settings {
        options.set(key, value).map_err(|cause| {
            registry::not_found(format!("in the instance data of dat.conf: {cause}"))
        })?;
    }
    Ok(options)
}

/// Refuses a device that will not do.
fn check(device: &Device, port: &PortInfo, options: &Options) -> Result<()> {
    match options.gid {
        Some(index) if port.gids.iter().all(|entry| entry.index != index) => Err(DatError::new(
            ReturnType::InvalidAddress,
            Subtype::InvalidAddressUnsupported,
            format!(
                "port {} of {} has no GID {index} (show_gids lists them)",
                port.number,
                device.info().name
            ),
        )),
        _ => Ok(()),
    }
}

fn bad_evd(cause: &'static str) -> DatError {
    DatError::new(
        ReturnType::InvalidHandle,
        Subtype::InvalidHandleEvdAsync,
        cause,
    )
}

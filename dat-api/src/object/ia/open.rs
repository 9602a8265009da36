//! Opening an IA.

use core::net::SocketAddr;
use core::sync::atomic::AtomicBool;
use std::sync::Arc;

use dat_engine::cm::Manager;
use dat_engine::sync::Mutex;
use dat_engine::{ControlErrorKind, Device, PathRequest, PortInfo};

use super::Ia;
use super::children::Children;
use super::cm::{self, Chosen};
use super::describe;
use super::reports::{self, Reports};
use super::rules::Rules;
use super::service::Service;
use super::service_points::ServicePoints;
use super::watch::Watch;
use crate::error::Result;
use crate::handle::{Handle, Reservation};
use crate::object::exhausted;
use crate::object::peer::PeerAddress;
use crate::options::Options;
use crate::registry::{self, Instance, Resolved};

/// What to open.
#[derive(Clone, Copy, Debug)]
pub struct OpenRequest<'a> {
    /// `DEVICE`, `DEVICE-PORT`, or an entry of dat.conf: see [`crate::registry`].
    pub name: &'a str,
    /// The least length of a new asynchronous EVD.
    pub async_qlen: i32,
    /// Where asynchronous events go.
    pub async_evd: AsyncEvd,
    /// Whether several threads may use one object at a time.
    pub threadsafe: bool,
    /// The major DAT version that the caller wants.
    pub major: u32,
    /// The minor DAT version that the caller wants.
    pub minor: u32,
    /// The DAT version of the caller's interface, which opens adapters of no other version.
    pub interface: (u32, u32),
}

/// Where the asynchronous events of an IA go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvd {
    /// To an EVD that is created for the IA, and freed with it.
    New,
    /// To this EVD, of another open IA of the same device.
    Existing(Handle),
    /// To the EVD of another open IA of the same device (`DAT_EVD_ASYNC_EXISTS`); logged while
    /// there is none.
    Elsewhere,
}

/// What rules and attributes are derived from.
pub(super) struct Opening<'a> {
    pub(super) request: &'a OpenRequest<'a>,
    pub(super) device: &'a Device,
    pub(super) port: &'a PortInfo,
    pub(super) manager: &'a Manager,
    /// The address of the IA, and that of its `sockaddr`.
    pub(super) address: SocketAddr,
    pub(super) local_address: usize,
    pub(super) options: &'a Options,
}

impl Ia {
    /// Opens the device of an adapter. No thread runs yet, and asynchronous events go nowhere.
    pub(in crate::object) fn make(
        request: &OpenRequest<'_>,
        resolve: impl FnOnce() -> Result<Resolved>,
    ) -> Result<(Reservation, Arc<Self>)> {
        let resolved = resolve()?;
        let environment = Options::from_environment()?;
        let (device, instance, options) = open_device(request.name, &resolved, environment)?;
        let port = device.port(instance.port)?;

        let place = Reservation::new().ok_or_else(exhausted)?;
        let Chosen {
            shared: cm,
            local,
            departure,
            watch: device_watch,
        } = cm::choose(&cm::Port {
            device: device.info(),
            number: port.number,
            interface: instance.interface.as_deref(),
            options: &options,
        })?;
        let address = SocketAddr::new(local.address, 0);
        let local_address = PeerAddress::new(address);
        let opening = Opening {
            request,
            device: &device,
            port: &port,
            manager: cm.manager(),
            address,
            local_address: local_address.address(),
            options: &options,
        };
        let rules = Rules::new(&opening)?;
        let numa = describe::placement(&device, options.numa);
        let provider = opening.provider(&rules, numa);
        let ia = Arc::new(Self {
            handle: place.handle(),
            process: std::process::id(),
            device,
            rules,
            provider,
            local,
            local_address,
            cm,
            children: Children::default(),
            service_points: ServicePoints::default(),
            reports: Reports::default(),
            watch: Watch::default(),
            service: Mutex::new(None),
            device_watch: Mutex::new(Some(device_watch)),
            lost: AtomicBool::new(false),
        });
        departure.of(&ia);
        Ok((place, ia))
    }

    /// Starts the threads.
    pub(in crate::object) fn start(self: &Arc<Self>) -> Result<()> {
        let service = Service::start(self)?;
        *self.service.lock() = Some(service);
        reports::enlist(self);
        Ok(())
    }
}

/// Opens the first candidate that exists, with its settings.
fn open_device(
    name: &str,
    resolved: &Resolved,
    environment: Options,
) -> Result<(Device, Instance, Options)> {
    let mut cause: Option<String> = None;
    for instance in &resolved.candidates {
        let options = configured(environment, instance);
        // Invalid settings are reported only for a device that exists.
        let path = options
            .as_ref()
            .map_or(PathRequest::Auto, |known| known.path);
        match Device::open_with(&instance.device, path) {
            Ok(device) => {
                let ports = &device.info().ports;
                if ports.iter().any(|port| port.number == instance.port) {
                    return Ok((device, instance.clone(), options?));
                }
                let count = match ports.len() {
                    1 => "1 port".to_owned(),
                    count => format!("{count} ports"),
                };
                cause = Some(format!(
                    "{} has {count}, and no port {}",
                    instance.device, instance.port
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
    let places = resolved.candidates.iter();
    let places: Vec<&str> = places.filter_map(|one| one.place.as_deref()).collect();
    let places = match &places[..] {
        [] => String::new(),
        places => format!(" ({})", places.join(", ")),
    };
    let mut text = format!(
        "no adapter \"{name}\"{places}: {}",
        cause.unwrap_or_default()
    );
    if !resolved.hint.is_empty() {
        text += &format!("; {}", resolved.hint);
    }
    Err(registry::not_found(text))
}

/// Returns the options of the environment, overridden by those of dat.conf.
fn configured(mut options: Options, instance: &Instance) -> Result<Options> {
    for (key, value) in &instance.settings {
        options.set(key, value).map_err(|cause| {
            let place = instance.place.as_deref().unwrap_or("dat.conf");
            registry::not_found(format!("{place}: in the instance data: {cause}"))
        })?;
    }
    Ok(options)
}

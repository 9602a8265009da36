//! The configuration of an emulator. The launcher passes it in `MLX5EMU_*`
//! environment variables; a test sets the fields of [`Config`].

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::fabric::interfaces::{self, Interface};
use crate::fabric::name::{DeviceIdentity, FabricName};
use crate::fabric::slow_link::Speed;
use crate::faults::FaultSpec;
use crate::limits::{Limits, MAX_DEVICES, MAX_PORTS};
use crate::nasty::Nasty;
use crate::spec::Link;

/// The kernel command interface that libibverbs sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    /// `RDMA_VERBS_IOCTL` with native methods, and commands by `write()`.
    Ioctl,
    /// Commands by `write()` only; every ioctl fails with `ENOTTY`.
    Write,
}

/// What runs the NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A thread, which the emulator starts.
    Threaded,
    /// The caller, by [`step`](crate::emulator::Emulator::step). Runs are
    /// deterministic.
    Stepped,
}

/// How the NIC notices a doorbell while the NIC thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The first of `Signal`, `Uffd` and `Nap` that the kernel and the program support.
    Auto,
    /// A store to a doorbell page raises `SIGBUS` (`userfaultfd`), and the
    /// handler runs the NIC on the storing thread. Starting fails if this is
    /// not possible.
    Signal,
    /// A store to a doorbell page waits in a page fault (`userfaultfd` write
    /// protection) that wakes the NIC thread. Starting fails if this is not
    /// possible.
    Uffd,
    /// The NIC thread sleeps briefly and scans the doorbell pages.
    Nap,
}

/// What a device answers to `ibv_query_qp_data_in_order`: whether it writes the bytes of
/// one message to memory in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataInOrder {
    /// It does.
    Yes,
    /// It need not.
    No,
    /// The device has no DevX, by which libmlx5 asks; libibverbs then answers no.
    Unknown,
}

/// The longest time in milliseconds that the resolution of a route can take.
pub const MAX_RESOLVE_TIME_MS: u64 = 10_000;

/// The settings that are fixed when the first device is opened.
#[derive(Clone, Debug)]
pub struct Config {
    /// Processes with the same fabric name reach each other.
    pub fabric: FabricName,
    /// Link layer.
    pub link: Link,
    /// Number of devices, from 1 to [`MAX_DEVICES`].
    pub devices: u8,
    /// Number of ports of each device, from 1 to [`MAX_PORTS`].
    pub ports: u8,
    /// The wire, without its speed: [`Self::WIRE`].
    pub wire: String,
    /// On the UDP wire, the network interfaces of the devices, one each; empty on the local
    /// wire.
    pub interfaces: Vec<Interface>,
    /// On the UDP wire, the speed of the link to other hosts.
    pub speed: Speed,
    /// Whether a doorbell record alone starts work, without a doorbell.
    pub lenient: bool,
    /// Command interface.
    pub face: Face,
    /// The newest CQE version that the device offers: 0 or 1.
    pub cqe_version: u8,
    /// The file to which WQEs and CQEs are appended as text.
    pub trace: Option<PathBuf>,
    /// The file to which a line for each command is appended.
    pub trace_commands: Option<PathBuf>,
    /// The file to which the packets on the wire are appended (pcap).
    pub pcap: Option<PathBuf>,
    /// Whether each failed command is explained on standard error.
    pub explain: bool,
    /// What runs the NIC.
    pub mode: Mode,
    /// How the NIC notices a doorbell while the NIC thread sleeps.
    pub wake: Wake,
    /// Whether registered memory counts against `RLIMIT_MEMLOCK`.
    pub memlock: bool,
    /// Whether `/dev/infiniband/rdma_cm` is emulated. By default it is under the
    /// launcher, and not for a test that contains the devices.
    pub rdma_cm: bool,
    /// The most that rdma_cm takes to resolve a route while no process listens there. In
    /// stepped mode it takes no time.
    pub resolve_time: Duration,
    /// The faults to inject.
    pub faults: Option<FaultSpec>,
    /// The limits of every device.
    pub limits: Limits,
    /// The modes in which the devices do not forgive mistakes of drivers.
    pub nasty: Nasty,
    /// What the devices say about the order of a message's bytes. A device that says
    /// yes says no in the mode `parts`.
    pub data_in_order: DataInOrder,
    /// The NUMA node of the host that the devices say they are near to; `None`: they
    /// state none. Node 0 need not exist: they then state none, too.
    pub numa_node: Option<u16>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            fabric: FabricName::default(),
            link: Link::Ib,
            devices: 1,
            ports: 1,
            wire: "local".into(),
            interfaces: Vec::new(),
            speed: Speed::default(),
            lenient: false,
            face: Face::Ioctl,
            cqe_version: 1,
            trace: None,
            trace_commands: None,
            pcap: None,
            explain: false,
            mode: Mode::Threaded,
            wake: Wake::Auto,
            memlock: false,
            rdma_cm: false,
            resolve_time: Duration::from_millis(100),
            faults: None,
            limits: Limits::DEVICE,
            nasty: Nasty::default(),
            data_in_order: DataInOrder::Yes,
            numa_node: Some(0),
        }
    }
}

/// An environment variable whose value is not valid.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("invalid {variable}={value:?}: {reason}")]
pub struct ConfigError {
    /// The variable.
    pub variable: &'static str,
    /// The value of the variable.
    pub value: OsString,
    /// What is wrong with the value, or which values are accepted.
    pub reason: String,
}

impl Config {
    /// Name of the fabric.
    pub const FABRIC: &'static str = "MLX5EMU_FABRIC";
    /// `ib` or `roce`.
    pub const LINK: &'static str = "MLX5EMU_LINK";
    /// Number of devices.
    pub const DEVICES: &'static str = "MLX5EMU_DEVICES";
    /// Number of ports of each device.
    pub const PORTS: &'static str = "MLX5EMU_PORTS";
    /// `local`, or `udp` or `udp=ADDRESS`, with `,latency=TIME` and `,bandwidth=RATE`.
    pub const WIRE: &'static str = "MLX5EMU_WIRE";
    /// The interfaces of the UDP wire that a launcher has found, which its programs use
    /// ([`Self::found`]).
    pub const INTERFACES: &'static str = "MLX5EMU_INTERFACES";
    /// `1` to start work on doorbell records alone.
    pub const LENIENT: &'static str = "MLX5EMU_LENIENT";
    /// `ioctl` or `write`.
    pub const FACE: &'static str = "MLX5EMU_FACE";
    /// `0` for CQEs without a user index, as older kernels negotiate.
    pub const CQE_VERSION: &'static str = "MLX5EMU_CQE_VERSION";
    /// File to which the trace is appended.
    pub const TRACE: &'static str = "MLX5EMU_TRACE";
    /// File to which commands are appended.
    pub const TRACE_COMMANDS: &'static str = "MLX5EMU_TRACE_COMMANDS";
    /// File to which the packets on the wire are appended.
    pub const PCAP: &'static str = "MLX5EMU_PCAP";
    /// `1` to explain failed commands on standard error.
    pub const EXPLAIN: &'static str = "MLX5EMU_EXPLAIN";
    /// `auto`, `signal`, `uffd` or `nap`.
    pub const WAKE: &'static str = "MLX5EMU_WAKE";
    /// `1` to count registered memory against `RLIMIT_MEMLOCK`.
    pub const MEMLOCK: &'static str = "MLX5EMU_MEMLOCK";
    /// `1` to emulate `/dev/infiniband/rdma_cm`.
    pub const RDMA_CM: &'static str = "MLX5EMU_RDMA_CM";
    /// Milliseconds that the resolution of a route by rdma_cm takes at most.
    pub const RESOLVE_TIME: &'static str = "MLX5EMU_RESOLVE_TIME";
    /// Faults to inject, in the syntax of [`FaultSpec`].
    pub const FAULTS: &'static str = "MLX5EMU_FAULTS";
    /// Limits of the devices, in the syntax of [`Limits`].
    pub const LIMITS: &'static str = "MLX5EMU_LIMITS";
    /// Modes of a device that does not forgive, in the syntax of [`Nasty`].
    pub const NASTY: &'static str = "MLX5EMU_NASTY";
    /// `yes`, `no` or `unknown`.
    pub const DATA_IN_ORDER: &'static str = "MLX5EMU_DATA_IN_ORDER";
    /// The NUMA node that the devices say they are near to: a number, or `none`.
    pub const NUMA_NODE: &'static str = "MLX5EMU_NUMA_NODE";

    /// The variable that selects the addresses on which the connection managers
    /// of programs listen, and its default on emulated devices. On the local wire
    /// they exist on this host only, so no other host needs to reach the program.
    /// The emulator itself does not read the variable.
    pub const LISTEN: (&'static str, &'static str) = ("DAT_LISTEN", "loopback");

    /// Returns [`Self::LISTEN`] if the environment has no value for it.
    #[must_use]
    pub fn listen_default() -> Option<(&'static str, &'static str)> {
        let given = std::env::var_os(Self::LISTEN.0);
        given
            .is_none_or(|value| value.is_empty())
            .then_some(Self::LISTEN)
    }

    /// The variables that select how UCX and libfabric observe changes of mappings, and
    /// their values for programs on emulated devices: not at all. Both overwrite the
    /// beginning of functions. With UCX 1.15 and older, which overwrite the interposed
    /// `mmap`, the emulator would miss the doorbell pages. libfabric overwrites `munmap`
    /// while another thread, such as the NIC's when it starts, may be in it.
    pub const MEMORY_HOOKS: [(&'static str, &'static str); 2] = [
        ("UCX_MEM_MMAP_HOOK_MODE", "none"),
        ("FI_MR_CACHE_MONITOR", "disabled"),
    ];

    /// Returns those of [`Self::MEMORY_HOOKS`] that the environment does not have.
    pub fn memory_hooks_default() -> impl Iterator<Item = (&'static str, &'static str)> {
        Self::MEMORY_HOOKS
            .into_iter()
            .filter(|(name, _)| std::env::var_os(name).is_none())
    }

    /// Selects the wire. On the UDP wire there is a RoCE device for each network interface, and
    /// the fabric is named after the first address, since all processes of an address are on one.
    fn set_wire(&mut self, wire: &str, found: Option<Found>) -> Result<(), String> {
        let mut parts = wire.split(',');
        let name = parts.next().unwrap_or_default();
        let address = match name {
            "local" if wire == "local" => return Ok(()),
            "local" => return Err("only the udp wire has a latency and a bandwidth".into()),
            "udp" => None,
            other => match other.strip_prefix("udp=").map(|it| (it, it.parse())) {
                Some((_, Ok(address))) => Some::<IpAddr>(address),
                Some((text, Err(_))) => return Err(format!("'{text}' is no IP address")),
                None => return Err("expected local, udp or udp=ADDRESS".into()),
            },
        };
        parts.try_for_each(|part| self.speed.set(part))?;
        let found = found.filter(|(of, _)| of == name);
        self.interfaces = found.map_or_else(|| interfaces::select(address), |(_, it)| Ok(it))?;
        self.wire = name.into();
        self.link = Link::Roce;
        self.devices = self.interfaces.len() as u8;
        self.ports = 1;
        self.fabric = FabricName::of_address(self.interfaces[0].addresses[0]);
        Ok(())
    }

    /// Returns the value of [`Self::INTERFACES`] for programs of this launcher: the wire and its
    /// interfaces; nothing on the local wire.
    #[must_use]
    pub fn found(&self) -> String {
        let all = self.interfaces.iter().map(|it| format!(" {it}"));
        match self.interfaces.is_empty() {
            true => String::new(),
            false => self.wire.clone() + &all.collect::<String>(),
        }
    }

    /// Returns the names of a device.
    #[must_use]
    pub fn identity(&self, device: u8) -> DeviceIdentity {
        match self.interfaces.get(usize::from(device)) {
            Some(interface) => DeviceIdentity::of_interface(interface.names(), device),
            None => DeviceIdentity::derive(&self.fabric, device),
        }
    }

    /// Returns the network interface of a device on a RoCE link. libibverbs requires an
    /// existing one; on the local wire it is loopback, which exists on every host.
    #[must_use]
    pub fn interface_name(&self, device: u8) -> &str {
        let interface = self.interfaces.get(usize::from(device));
        interface.map_or("lo", |interface| &interface.name)
    }

    /// Reads the environment. An unset or empty variable means its default.
    ///
    /// # Errors
    /// Returns the first variable whose value is not valid.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_lookup(std::env::var_os)
    }

    /// Reads the variables from any source, otherwise as [`from_env`](Self::from_env).
    ///
    /// # Errors
    /// Returns the first variable whose value is not valid.
    pub fn from_lookup(
        lookup: impl Fn(&'static str) -> Option<OsString>,
    ) -> Result<Self, ConfigError> {
        let get = |name| lookup(name).filter(|value| !value.is_empty());
        let mut config = Self::default();
        if let Some(value) = get(Self::FABRIC) {
            config.fabric = value
                .to_str()
                .and_then(|text| FabricName::new(text).ok())
                .ok_or_else(|| {
                    invalid(
                        Self::FABRIC,
                        &value,
                        format!("expected {}", FabricName::RULE),
                    )
                })?;
        }
        if let Some(value) = get(Self::LINK) {
            config.link = choice(
                Self::LINK,
                &value,
                &[("ib", Link::Ib), ("roce", Link::Roce)],
            )?;
        }
        if let Some(value) = get(Self::DEVICES) {
            config.devices = count(Self::DEVICES, &value, MAX_DEVICES)?;
        }
        if let Some(value) = get(Self::PORTS) {
            config.ports = count(Self::PORTS, &value, MAX_PORTS)?;
        }
        if let Some(value) = get(Self::WIRE) {
            let wrong = |reason| invalid(Self::WIRE, &value, reason);
            let wire = value
                .to_str()
                .ok_or_else(|| wrong("expected ASCII text".into()))?;
            let found = get(Self::INTERFACES).map(|text| {
                found_in(&text).ok_or_else(|| {
                    invalid(
                        Self::INTERFACES,
                        &text,
                        "expected what mlx5-emu run has set; unset it",
                    )
                })
            });
            let found = found.transpose()?;
            config.set_wire(wire, found).map_err(wrong)?;
        }
        if let Some(value) = get(Self::LENIENT) {
            config.lenient = choice(Self::LENIENT, &value, &[("0", false), ("1", true)])?;
        }
        if let Some(value) = get(Self::FACE) {
            config.face = choice(
                Self::FACE,
                &value,
                &[("ioctl", Face::Ioctl), ("write", Face::Write)],
            )?;
        }
        if let Some(value) = get(Self::CQE_VERSION) {
            config.cqe_version = choice(Self::CQE_VERSION, &value, &[("0", 0), ("1", 1)])?;
        }
        if let Some(value) = get(Self::WAKE) {
            let known = [
                ("auto", Wake::Auto),
                ("signal", Wake::Signal),
                ("uffd", Wake::Uffd),
                ("nap", Wake::Nap),
            ];
            config.wake = choice(Self::WAKE, &value, &known)?;
        }
        if let Some(value) = get(Self::MEMLOCK) {
            config.memlock = choice(Self::MEMLOCK, &value, &[("0", false), ("1", true)])?;
        }
        if let Some(value) = get(Self::RDMA_CM) {
            config.rdma_cm = choice(Self::RDMA_CM, &value, &[("0", false), ("1", true)])?;
        }
        if let Some(value) = get(Self::RESOLVE_TIME) {
            let millis = value.to_str().and_then(|text| text.parse().ok());
            let millis = millis.filter(|millis| *millis <= MAX_RESOLVE_TIME_MS);
            config.resolve_time = Duration::from_millis(millis.ok_or_else(|| {
                invalid(
                    Self::RESOLVE_TIME,
                    &value,
                    format!("expected milliseconds, from 0 to {MAX_RESOLVE_TIME_MS}"),
                )
            })?);
        }
        if let Some(value) = get(Self::FAULTS) {
            config.faults = Some(parsed(Self::FAULTS, &value)?);
        }
        if let Some(value) = get(Self::LIMITS) {
            config.limits = parsed(Self::LIMITS, &value)?;
        }
        if let Some(value) = get(Self::NASTY) {
            config.nasty = parsed(Self::NASTY, &value)?;
        }
        if let Some(value) = get(Self::DATA_IN_ORDER) {
            let known = [
                ("yes", DataInOrder::Yes),
                ("no", DataInOrder::No),
                ("unknown", DataInOrder::Unknown),
            ];
            config.data_in_order = choice(Self::DATA_IN_ORDER, &value, &known)?;
        }
        if let Some(value) = get(Self::NUMA_NODE) {
            config.numa_node = match value.to_str() {
                Some("none") => None,
                number => Some(number.and_then(|text| text.parse().ok()).ok_or_else(|| {
                    invalid(
                        Self::NUMA_NODE,
                        &value,
                        "expected the number of a node, or none",
                    )
                })?),
            };
        }
        config.trace = get(Self::TRACE).map(PathBuf::from);
        config.trace_commands = get(Self::TRACE_COMMANDS).map(PathBuf::from);
        config.pcap = get(Self::PCAP).map(PathBuf::from);
        if let Some(value) = get(Self::EXPLAIN) {
            config.explain = choice(Self::EXPLAIN, &value, &[("0", false), ("1", true)])?;
        }
        Ok(config)
    }
}

/// The interfaces that a launcher has found, behind the wire for which it did.
type Found = (String, Vec<Interface>);

fn found_in(text: &OsStr) -> Option<Found> {
    let (wire, all) = text.to_str()?.split_once(' ')?;
    Some((wire.into(), interfaces::parse(all)?))
}

fn invalid(variable: &'static str, value: &OsString, reason: impl Into<String>) -> ConfigError {
    ConfigError {
        variable,
        value: value.clone(),
        reason: reason.into(),
    }
}

fn parsed<T>(variable: &'static str, value: &OsString) -> Result<T, ConfigError>
where
    T: FromStr<Err: Display>,
{
    let text = value.to_str();
    let text = text.ok_or_else(|| invalid(variable, value, "expected ASCII text"))?;
    text.parse()
        .map_err(|error: T::Err| invalid(variable, value, error.to_string()))
}

fn count(variable: &'static str, value: &OsString, max: u8) -> Result<u8, ConfigError> {
    value
        .to_str()
        .and_then(|text| text.parse().ok())
        .filter(|count| (1..=max).contains(count))
        .ok_or_else(|| {
            invalid(
                variable,
                value,
                format!("expected a number from 1 to {max}"),
            )
        })
}

fn choice<T: Copy>(
    variable: &'static str,
    value: &OsString,
    known: &[(&str, T)],
) -> Result<T, ConfigError> {
    known
        .iter()
        .find(|(name, _)| value == name)
        .map(|&(_, chosen)| chosen)
        .ok_or_else(|| {
            let names: Vec<_> = known.iter().map(|&(name, _)| name).collect();
            invalid(
                variable,
                value,
                format!("expected one of: {}", names.join(", ")),
            )
        })
}

#[cfg(test)]
mod tests;

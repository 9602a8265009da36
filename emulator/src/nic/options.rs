//! The options with which a NIC is created, and what it reports while it runs.

use crate::decode::cqe::Syndrome;
use crate::fabric::counters::Counters;
use crate::limits::Limits;
use crate::nasty::Nasty;
use crate::spec::gid::{Gid, GidType};
use crate::spec::{DoorbellView, Nanos, Path, PortAddress, PortIdentity};

/// Finds the port that an address vector of a device addresses. Returns `None` if
/// there is no such port; packets to it are dropped, as on a wire.
pub type Resolver = Box<dyn Fn(u8, &Path) -> Option<PortAddress> + Send>;

/// Returns the LID and GIDs of a port.
pub type Identify = Box<dyn Fn(PortAddress) -> PortIdentity + Send>;

/// The options with which a NIC is created.
pub struct NicOptions {
    /// The process's slot on the fabric, 1..=64: the upper 8 bits of its QP numbers.
    pub slot: u8,
    /// Number of emulated devices.
    pub devices: u8,
    /// Number of ports of each device.
    pub ports: u8,
    /// How doorbells are observed.
    pub view: DoorbellView,
    /// Whether receives and RDMA read responses may be scattered to CQEs where the
    /// QP allows it.
    pub scatter_to_cqe: bool,
    /// Whether responses may be scattered to CQEs of 128 bytes too, as a ConnectX
    /// does. libmlx5 before version 64 reads them from a wrong offset there.
    pub scatter_to_large_cqes: bool,
    /// Whether registered memory counts against `RLIMIT_MEMLOCK`, as pinned memory
    /// does without `CAP_IPC_LOCK`.
    pub enforce_memlock: bool,
    /// The limits of the devices. The NIC checks the number of objects and the
    /// posted requests; `uverbs` checks the commands.
    pub limits: Limits,
    /// The modes in which the device does not forgive.
    pub nasty: Nasty,
    /// What is added to timestamps, in ticks.
    pub timestamp_offset: u64,
    /// Whether the NIC is stepped: its time advances only when a test advances it.
    pub stepped: bool,
    /// The counters of the ports.
    pub counters: Counters,
    /// Finds the port of an address vector. The default uses LID n + 1 for port 1
    /// of device n, and device 0 for a path without LID (a global one).
    pub resolve: Resolver,
    /// Returns the addresses of a port. The default matches that of `resolve`.
    pub identify: Identify,
}

fn gid_of_device(device: u8) -> Option<Gid> {
    Some(Gid {
        raw: [device; 16],
        kind: GidType::Ib,
    })
}

impl Default for NicOptions {
    fn default() -> Self {
        Self {
            slot: 1,
            devices: 1,
            ports: 1,
            view: DoorbellView::Exact,
            scatter_to_cqe: true,
            scatter_to_large_cqes: false,
            enforce_memlock: false,
            limits: Limits::DEVICE,
            nasty: Nasty::default(),
            timestamp_offset: 0,
            stepped: false,
            counters: Counters::default(),
            resolve: Box::new(|_, path| {
                let device = u8::try_from(path.dlid.saturating_sub(1)).ok()?;
                Some(PortAddress { device, port: 1 })
            }),
            identify: Box::new(|port| PortIdentity {
                lid: u16::from(port.device) + 1,
                gids: std::array::from_fn(|at| gid_of_device(port.device).filter(|_| at == 0)),
                ethernet: false,
                mtu: 5,
            }),
        }
    }
}

/// What happens to a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionOutcome {
    /// It is written as it is.
    Success,
    /// It gets an unknown error syndrome, and its QP fails.
    Corrupt,
    /// It gets this error syndrome, and its QP fails.
    Failed(Syndrome),
    /// It overruns its CQ.
    Overrun,
}

/// Injects faults into a NIC. The NIC calls it wherever a fault may occur.
pub trait FaultInjector {
    /// Returns whether a message finds no receive. Called when it needs one.
    fn no_receive(&mut self) -> bool;
    /// Returns the outcome of a completion that is about to be written, of a request or
    /// of a receive.
    fn completion(&mut self, of_request: bool) -> CompletionOutcome;
    /// Returns whether the device is out of memory for a valid command that creates an
    /// object or changes the state of a QP.
    fn out_of_memory(&mut self) -> bool;
}

/// The result of one round of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whether something was done; another round may find more.
    pub worked: bool,
    /// When work becomes due even without a doorbell or packet.
    pub next_deadline: Option<Nanos>,
}

impl Progress {
    /// Returns the result of two rounds.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            worked: self.worked | other.worked,
            next_deadline: earlier(self.next_deadline, other.next_deadline),
        }
    }
}

/// Returns the earlier of two times, if there is any.
#[inline]
pub(crate) fn earlier(one: Option<Nanos>, other: Option<Nanos>) -> Option<Nanos> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        _ => one.or(other),
    }
}

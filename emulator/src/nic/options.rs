//! What a NIC is made with, and what it tells while it runs.

use super::spec::{DoorbellView, Path, PortAddress, PortIdentity};
use crate::decode::cqe::Syndrome;
use crate::limits::Limits;

/// Monotonic time in nanoseconds, from any origin.
pub type Nanos = u64;

/// Finds the port that an address vector of a device leads to; `None` when
/// there is none, and packets vanish as on a wire.
pub type Resolver = Box<dyn Fn(u8, &Path) -> Option<PortAddress> + Send>;

/// Tells what a port is.
pub type Identify = Box<dyn Fn(PortAddress) -> PortIdentity + Send>;

/// What a NIC is made with.
pub struct NicOptions {
    /// The process' number on the fabric, 1..=64: the upper 8 bits of its QP numbers.
    pub slot: u8,
    /// Emulated devices.
    pub devices: u8,
    /// Ports of each device.
    pub ports: u8,
    /// How doorbells are seen.
    pub view: DoorbellView,
    /// Receives and reads may be delivered inside their CQE where the QP allows it.
    pub scatter_to_cqe: bool,
    /// Answers may be delivered inside CQEs of 128 bytes, too, as a ConnectX
    /// does. libmlx5 before version 64 takes them from a wrong place there.
    pub scatter_to_large_cqes: bool,
    /// Registered memory counts against `RLIMIT_MEMLOCK`, as pinned memory
    /// does without `CAP_IPC_LOCK`.
    pub enforce_memlock: bool,
    /// What the devices can do. The NIC counts objects, and looks at the
    /// requests posted; commands are checked before they come here.
    pub limits: Limits,
    /// Its time stands still unless a test lets it pass: it is stepped by hand.
    pub stepped: bool,
    /// Where address vectors lead. The default takes a local identifier of
    /// n + 1 for port 1 of device n, and a path without one (a global one)
    /// for device 0.
    pub resolve: Resolver,
    /// What the ports are. The default fits that of `resolve`.
    pub identify: Identify,
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
            stepped: false,
            resolve: Box::new(|_, path| {
                let device = u8::try_from(path.dlid.saturating_sub(1)).ok()?;
                Some(PortAddress { device, port: 1 })
            }),
            identify: Box::new(|port| PortIdentity {
                lid: u16::from(port.device) + 1,
                gids: [Some([port.device; 16]), None],
                ethernet: false,
            }),
        }
    }
}

/// What befalls a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionFate {
    /// Nothing.
    Good,
    /// It is an error that no driver knows, and its QP fails.
    Corrupt,
    /// It is a failure of this kind, and its QP fails.
    Failed(Syndrome),
    /// It finds its CQ full.
    Overrun,
}

/// What happens to a NIC from outside. It is asked where it matters, for the
/// NIC knows no chance itself.
pub trait Mishaps {
    /// A message is about to take a receive: whether it finds none.
    fn receiver_is_not_ready(&mut self) -> bool;
    /// A completion, of a request or of a receive, is about to be written.
    fn completion(&mut self, of_request: bool) -> CompletionFate;
    /// A command that is otherwise good is about to make an object, or to
    /// bring a QP further: whether the device has no memory for it.
    fn memory_is_used_up(&mut self) -> bool;
}

/// What a round of work did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Something was done: another round may find more.
    pub worked: bool,
    /// Work is due then without a doorbell or packet before.
    pub next_deadline: Option<Nanos>,
}

/// Told of everything that crosses the border to software.
pub trait Trace {
    /// A send WQE was taken, of a datagram QP or of a connected one; `counter`
    /// is the WQEBB counter of its start.
    fn send_wqe(&mut self, qpn: u32, counter: u16, datagram: bool, bytes: &[u8]);
    /// A receive WQE was taken by a QP: from its own queue, where `index` is
    /// a counter, or from a shared one, where it is the WQE's place.
    fn receive_wqe(&mut self, qpn: u32, index: u16, shared: bool, bytes: &[u8]);
    /// A CQE was written; `index` is the producer counter.
    fn cqe(&mut self, cqn: u32, index: u32, bytes: &[u8]);
    /// Something worth knowing.
    fn note(&mut self, text: &str);
}

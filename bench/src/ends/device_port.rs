//! The device and port of a run, for all interfaces.

use dat_api::object::ia::IaAttributes;
use dat_engine::{Device, InlineShape, Limits, Mtu, PortInfo, Transport};

use crate::failure::Failure;
use crate::host;
use crate::options::{Api, Operation, RunArgs};
use crate::report::DeviceFacts;
use crate::select::Selected;

use super::payload::Layout;
use super::probe::Probe;

/// What a run needs of the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// The largest message, bytes.
    pub(crate) largest: u32,
    /// Endpoints per interface and side.
    pub(crate) endpoints: u32,
}

/// An open device and one of its ports.
pub(crate) struct DevicePort {
    pub(crate) device: Device,
    pub(crate) port: PortInfo,
    fabric: Option<String>,
    /// The deepest queue that all measured interfaces support.
    pub(crate) most_depth: u32,
    /// The ends of a run in this process.
    ends: u64,
}

impl DevicePort {
    /// Opens the device, and refuses options beyond its limits.
    pub(crate) fn open(selected: Selected, args: &RunArgs, needs: &Needs) -> Result<Self, Failure> {
        let device = Device::open(&selected.name)?;
        let port = device.port(args.on.ib_port)?;
        let largest = needs.largest;
        require_mtu(args.perftest.network.transport().mtu, port.active_mtu)?;
        if largest > port.max_message {
            return Err(Failure::usage(format!(
                "{} port {} has messages of up to {} bytes, not {largest}; give a smaller -s",
                selected.name, port.number, port.max_message
            )));
        }
        let sides = args.api.len() as u64 * if args.loopback { 2 } else { 1 };
        let limits = device.limits();
        require_operation(&device, args.operation)?;
        let most_segments = match args.operation.fetches() {
            true => limits.read_segments,
            false => limits.segments,
        };
        if args.sge > most_segments {
            return Err(Failure::usage(format!(
                "{} has requests of up to {most_segments} segments; give a smaller --sge than {}",
                selected.name, args.sge
            )));
        }
        let most_depth = most_depth(limits, args);
        for (option, depth) in [("-t", args.tx_depth), ("-r", args.rx_depth)] {
            if let Some(depth) = depth.filter(|&depth| depth > most_depth) {
                return Err(Failure::usage(format!(
                    "{} has queues of up to {most_depth} requests; {option} {depth} is too deep",
                    selected.name
                )));
            }
        }
        Ok(Self {
            device,
            port,
            fabric: selected.fabric,
            most_depth,
            ends: sides * u64::from(needs.endpoints),
        })
    }

    /// Refuses a run for whose buffers there is no memory.
    pub(crate) fn require_memory(&self, layout: Layout) -> Result<(), Failure> {
        let (largest, needed) = (layout.largest, self.ends * layout.bytes() as u64);
        match host::available_memory().filter(|&bytes| bytes < needed) {
            None => Ok(()),
            Some(available) => Err(Failure::environment(format!(
                "messages of {largest} bytes need buffers of {needed} bytes in total, but {available} bytes of memory are available; give a smaller -s, or with --check a smaller -t"
            ))),
        }
    }

    /// Returns whether the device speaks iWARP, so that only rdma_cm can connect
    /// queue pairs.
    pub(crate) fn is_iwarp(&self) -> bool {
        self.device.info().transport == Transport::Iwarp
    }

    /// Returns what can be asked of a queue pair of the port.
    pub(crate) fn probe(&self) -> Probe {
        Probe {
            device: self.device.clone(),
            port: self.port.number,
        }
    }

    /// Returns the largest inline size, up to `requested`, of endpoints with these
    /// depths through all these interfaces.
    pub(crate) fn inline(
        &self,
        requested: u32,
        apis: &[Api],
        (tx_depth, rx_depth): (u32, u32),
        send_segments: u32,
    ) -> Result<u32, Failure> {
        let domain = self.device.alloc_pd()?;
        let mut least = requested;
        for api in apis {
            let send_depth = match api {
                Api::Engine => tx_depth,
                // One more request for the marker of a disconnect. Deeper queues have no inline data.
                Api::Rust | Api::C if tx_depth < self.device.limits().queue_depth / 2 => {
                    tx_depth + 1
                }
                Api::Rust | Api::C => return Ok(0),
            };
            let shape = InlineShape {
                send_depth,
                recv_depth: rx_depth,
                send_segments,
            };
            least = domain.probe_inline(&shape, least)?;
        }
        Ok(least)
    }

    /// Returns DAT's name of the port.
    pub(crate) fn adapter_name(&self) -> String {
        format!("{}-{}", self.device.info().name, self.port.number)
    }

    pub(crate) fn facts(&self) -> DeviceFacts {
        DeviceFacts::new(self.device.info(), &self.port, self.fabric.clone())
    }
}

/// Returns the deepest queue. Its completions must fit in a completion queue,
/// and DAT needs one request for itself.
fn most_depth(limits: &Limits, args: &RunArgs) -> u32 {
    match args.measures_dat() {
        true => IaAttributes::of(limits).max_dto_per_ep.unsigned_abs(),
        false => limits.queue_depth.min(limits.cq_depth),
    }
}

/// Refuses an operation that the device does not have: it would be refused when it is posted, or
/// never complete.
fn require_operation(device: &Device, operation: Operation) -> Result<(), Failure> {
    let (info, limits) = (device.info(), device.limits());
    let (served, issued) = (limits.reads_served, limits.reads_issued);
    let cause = match operation {
        it if it.is_atomic() && !limits.atomics => "atomic operations".to_owned(),
        Operation::WriteImm if info.transport == Transport::Iwarp => {
            "immediate data: iWARP has none".to_owned()
        }
        it if it.fetches() && (served == 0 || issued == 0) => {
            format!("RDMA reads (max_qp_rd_atom = {served}, max_qp_init_rd_atom = {issued})")
        }
        _ => return Ok(()),
    };
    Err(Failure::usage(format!(
        "{} has no {cause}; measure -o send or -o write",
        info.name
    )))
}

/// Refuses an MTU above the port's, which the port could not use.
fn require_mtu(asked: Option<Mtu>, of_port: Mtu) -> Result<(), Failure> {
    match asked {
        Some(mtu) if mtu > of_port => Err(Failure::usage(format!(
            "the port has an MTU of {} bytes: -m {} is too large",
            of_port.bytes(),
            mtu.bytes()
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mtu_above_the_ports_is_refused() {
        let [small, port, large] = [512, 1024, 2048].map(Mtu::from_bytes);
        let check = |asked| require_mtu(asked, port.expect("an MTU"));
        assert!(check(None).is_ok() && check(small).is_ok() && check(port).is_ok());
        let said = check(large).unwrap_err().to_string();
        assert_eq!(
            said,
            "the port has an MTU of 1024 bytes: -m 2048 is too large"
        );
    }
}

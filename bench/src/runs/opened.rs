//! The open device and APIs of a run.

use dat_engine::cm::ListenOn;

use super::common::CommonPlan;
use super::sides::{Command, OpenInterface};
use crate::ends::engine::Engine;
use crate::ends::engine::rdma_cm::EngineRdmaCm;
use crate::ends::rust::Rust;
use crate::ends::udapl::v1::{C, Libdat};
use crate::ends::{DevicePort, Needs};
use crate::exchange;
use crate::failure::Failure;
use crate::host::{self, Host};
use crate::options::{Api, LISTEN, PeerProgram, RunArgs};
use crate::report::{Checked, ClockFacts, RunConditions};

/// The open device and APIs of a run.
pub(crate) struct Opened<P> {
    pub(crate) device_port: DevicePort,
    /// The library of the API `c`.
    libdat: Option<Libdat>,
    /// In the order of `--api`.
    pub(crate) interfaces: Vec<Box<dyn OpenInterface<P>>>,
    /// Where a server listens.
    pub(crate) listen: ListenOn,
}

/// Opens the device and the APIs, then pins the calling thread. Called before there are other
/// threads.
pub(crate) fn open<P: Command>(args: &RunArgs, needs: &Needs) -> Result<Opened<P>, Failure> {
    if let Some(host) = &args.host {
        // Refuses a mistyped name before a device is opened or emulated.
        exchange::resolve(host, args.port)?;
    }
    let libdat = args.api.contains(&Api::C).then(Libdat::load).transpose()?;
    let listen = args.listen()?;
    if args.listen.is_some() {
        // SAFETY: the threads of `--threads` wait until the first one has opened the device, and no
        // other thread runs before.
        unsafe { std::env::set_var(LISTEN, listen.to_string()) };
    }
    let device_port = DevicePort::open(args.on.select()?, args, needs)?;
    let adapter = device_port.adapter_name();
    let network = &args.perftest.network;
    let open = |api: &Api| -> Result<Box<dyn OpenInterface<P>>, Failure> {
        let DevicePort { device, port, .. } = &device_port;
        // These may start threads.
        Ok(match (api, &libdat) {
            (Api::Engine, _) if device_port.is_iwarp() || network.rdma_cm => {
                Box::new(EngineRdmaCm::open(&device_port, args)?)
            }
            (Api::Engine, _) => {
                let engine = Engine::open(device, port.clone(), true)?;
                Box::new(engine.through(args.gid_index, network.transport()))
            }
            (Api::Rust, _) => Box::new(Rust::open(&adapter, false)?),
            (Api::C, libdat) => {
                let libdat = libdat.as_ref().expect("loaded, because --api has c");
                Box::new(C::open(libdat, &adapter, false, Some(device_port.probe()))?)
            }
        })
    };
    let interfaces = args.api.iter().map(open).collect::<Result<_, _>>()?;
    // After the interfaces are open: threads that they started stay unpinned.
    if let Some(&cpu) = args.cpu.first() {
        host::pin(cpu)?;
    }
    Ok(Opened {
        device_port,
        libdat,
        interfaces,
        listen,
    })
}

impl<P: Command> Opened<P> {
    /// Returns the conditions of a run.
    pub(crate) fn conditions(&self, plan: &CommonPlan, args: &RunArgs) -> RunConditions {
        let (setup, amount) = (&plan.setup, &plan.amount);
        let operation = setup.operation;
        RunConditions {
            host: Host::read(),
            device: self.device_port.facts(),
            apis: amount.apis.clone(),
            libdat: self.libdat.as_ref().map(|it| it.path().to_owned()),
            rounds: amount.rounds(),
            operation,
            loopback: args.host.is_none(),
            peer: args.host.as_ref().map(|host| match args.peer {
                PeerProgram::DatBench => host.clone(),
                PeerProgram::Perftest => format!("perftest on {host}"),
            }),
            goal: amount.goal,
            warmup: amount.warmup,
            tx_depth: setup.tx_depth,
            rx_depth: operation.takes_receives().then_some(setup.receives),
            inline_bytes: setup.inline,
            inline_bytes_wanted: setup.inline_requested,
            checked: match setup.checks {
                true => Checked::Inside,
                false => Checked::No,
            },
            segments: setup.segments,
            cpu: args.cpu.first().copied(),
            network: args.perftest.network,
            verified: setup.verifies,
            clock: ClockFacts::of(plan.clock),
        }
    }
}

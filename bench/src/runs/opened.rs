//! The open device and APIs of a run.
//!
//! A command that runs several APIs in turns keeps them as trait objects
//! ([`OpenInterface`]), whose methods are called once per pass; the loops behind them are
//! compiled for each API.

use dat_engine::cm::ListenOn;

use super::amount::Amount;
use super::device_port::{DevicePort, Needs};
use super::engine::Engine;
use super::engine::rdma_cm::EngineRdmaCm;
use super::rust::Rust;
use super::setup::Setup;
use super::sides::OpenInterface;
use super::udapl::v1::{C, Libdat};
use crate::clock::Clock;
use crate::exchange;
use crate::failure::Failure;
use crate::host::{self, Host};
use crate::options::{Api, LISTEN, Operation, RunArgs};
use crate::report::{ClockFacts, RunConditions};

/// The open device and APIs of a run.
pub(crate) struct Opened<O: ?Sized> {
    pub(crate) device_port: DevicePort,
    /// The library of the API `c`.
    libdat: Option<Libdat>,
    /// In the order of `--api`.
    pub(crate) interfaces: Vec<Box<O>>,
    /// Where a server listens.
    pub(crate) listen: ListenOn,
}

/// Opens the device and the APIs, then pins the calling thread. Called before there are other
/// threads.
pub(crate) fn open<P, L, R>(
    args: &RunArgs,
    needs: &Needs,
) -> Result<Opened<dyn OpenInterface<P, L, R>>, Failure>
where
    Engine: OpenInterface<P, L, R>,
    EngineRdmaCm: OpenInterface<P, L, R>,
    Rust: OpenInterface<P, L, R>,
    C: OpenInterface<P, L, R>,
{
    if let Some(host) = &args.host {
        // Refuses a mistyped name before a device is opened or emulated.
        exchange::resolve(host, args.port)?;
    }
    let libdat = args.api.contains(&Api::C).then(Libdat::load).transpose()?;
    let listen = args.listen()?;
    if args.listen.is_some() {
        // SAFETY: no other thread of this program runs before a device is opened.
        unsafe { std::env::set_var(LISTEN, listen.to_string()) };
    }
    let device_port = DevicePort::open(args.on.select()?, args, needs)?;
    let adapter = device_port.adapter_name();
    let open = |api: &Api| -> Result<Box<dyn OpenInterface<P, L, R>>, Failure> {
        let DevicePort { device, port, .. } = &device_port;
        // These may start threads.
        Ok(match (api, &libdat) {
            (Api::Engine, _) if device_port.is_iwarp() => {
                Box::new(EngineRdmaCm::open(&device_port, args)?)
            }
            (Api::Engine, _) => Box::new(Engine::open(device, port.clone(), args.gid_index, true)?),
            (Api::Rust, _) => Box::new(Rust::open(&adapter, false)?),
            (Api::C, libdat) => {
                let libdat = libdat.as_ref().expect("loaded, because --api has c");
                Box::new(C::open(libdat, &adapter, false, Some(device_port.probe()))?)
            }
        })
    };
    let interfaces = args.api.iter().map(open).collect::<Result<_, _>>()?;
    // After the interfaces are open: threads that they started stay unpinned.
    if let Some(cpu) = args.cpu {
        host::pin(cpu)?;
    }
    Ok(Opened {
        device_port,
        libdat,
        interfaces,
        listen,
    })
}

impl<O: ?Sized> Opened<O> {
    /// Returns the conditions of a run.
    pub(crate) fn conditions(
        &self,
        setup: &Setup,
        amount: &Amount,
        args: &RunArgs,
        clock: Clock,
    ) -> RunConditions {
        let operation = setup.operation;
        RunConditions {
            host: Host::read(),
            device: self.device_port.facts(),
            apis: amount.apis.clone(),
            libdat: self.libdat.as_ref().map(|it| it.path().to_owned()),
            rounds: amount.rounds(),
            operation,
            loopback: args.host.is_none(),
            peer: args.host.clone(),
            goal: amount.goal,
            warmup: amount.warmup,
            tx_depth: setup.tx_depth,
            rx_depth: (operation == Operation::Send).then_some(setup.receives),
            inline_bytes: setup.inline,
            inline_bytes_wanted: setup.inline_requested,
            cpu: args.cpu,
            clock: ClockFacts::of(clock),
        }
    }
}

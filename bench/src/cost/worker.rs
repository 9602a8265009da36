//! The worker process: measures one variant, and writes the results to standard
//! output for the parent process.

use std::time::Duration;

use dat_engine::Device;
use serde::{Deserialize, Serialize};

use super::meter::{Meter, Record};
use super::rounds::Rounds;
use super::variant::Variant;
use crate::clock::Clock;
use crate::cost::options::CostArgs;
use crate::ends::engine::Engine;
use crate::ends::interface::Interface;
use crate::ends::libmlx5::Verbs;
use crate::ends::rust::Rust;
use crate::ends::udapl::{v1, v2};
use crate::failure::Failure;
use crate::nic::Nic;
use crate::noise::{Noise, Watch};
use crate::select::Selected;
use crate::{host, launcher, output};

/// Operations per timed section.
pub(super) const TIMED: u32 = 256;
/// Operations per section of the three counted rounds. The first round is
/// warm-up; the result is the difference of the other two.
pub(super) const COUNTED: [u32; 3] = [256, 128, 256];
/// Warm-up rounds of a timed run.
const WARMUP: u32 = 3;

/// The results of a worker process.
#[derive(Deserialize, Serialize)]
pub(super) struct Report {
    /// The sections, in the order of measurement.
    pub(super) records: Vec<Record>,
    /// What disturbed the thread, between the sections too; none under callgrind.
    pub(super) noise: Noise,
}

/// Measures one variant.
pub(super) fn run(variant: Variant, args: &CostArgs) -> Result<(), Failure> {
    let Selected { name, .. } = args.common.on.select()?;
    let port = args.common.on.ib_port;
    // Time for acknowledgements, which the loops do not poll for.
    let drain_time = if args.common.counted {
        Duration::from_millis(20)
    } else {
        Duration::from_micros(300)
    };
    let nic = Nic::find(launcher::fabric().is_some(), drain_time)?;
    let adapter = format!("{name}-{port}");
    let safe = variant.is_threadsafe();
    match variant {
        Variant::Libmlx5 | Variant::Libmlx5St => {
            let device = Device::open(&name)?;
            let (port, atomics) = (device.port(port)?, device.limits().atomics);
            measure(&Verbs::open(&name, port, atomics)?, nic, args)
        }
        Variant::Engine | Variant::EngineSt => {
            let device = Device::open(&name)?;
            let port = device.port(port)?;
            measure(&Engine::open(&device, port, !safe)?, nic, args)
        }
        Variant::Rust | Variant::RustSt => measure(&Rust::open(&adapter, safe)?, nic, args),
        Variant::C | Variant::CSt => {
            let libdat = v1::Libdat::load()?;
            measure(&v1::C::open(&libdat, &adapter, safe, None)?, nic, args)
        }
        Variant::C2 | Variant::C2St => {
            let libdat = v2::Libdat::load()?;
            measure(&v2::C::open(&libdat, &adapter, safe, None)?, nic, args)
        }
    }
}

fn measure<I: Interface>(interface: &I, nic: Nic, args: &CostArgs) -> Result<(), Failure> {
    // After the interface is open: threads that it started stay unpinned.
    if let Some(cpu) = args.common.cpu {
        host::pin(cpu)?;
    }
    let clock = if args.common.counted {
        Clock::monotonic()
    } else {
        Clock::calibrate()
    };
    let mut noise = Noise::default();
    let mut rounds = Rounds::new(interface, nic, Meter::new(clock))?;
    if args.common.counted {
        for count in COUNTED {
            rounds.round(count)?;
        }
    } else {
        for _ in 0..WARMUP {
            rounds.round(TIMED)?;
        }
        rounds.meter.records.clear();
        let watch = Watch::begin(&clock);
        for _ in 0..args.rounds {
            rounds.round(TIMED)?;
        }
        noise = watch.end();
    }
    let report = Report {
        records: core::mem::take(&mut rounds.meter.records),
        noise,
    };
    let text = serde_json::to_string(&report).expect("text keys and finite numbers only");
    output::line(text)
}

//! How rdma_cm of this process starts.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use super::agent::Ucma;
use super::host::{Host, SystemHost};
use super::network::Network;
use super::ports::{HostLocks, Ports};
use super::rdma_cm::{Parts, RdmaCm};
use super::services::{Directory, NoOthers};
use crate::config::Mode;
use crate::emulator::Emulator;
use crate::fabric::registry::Registry;
use crate::log::warn;

impl Ucma {
    /// Starts rdma_cm on the emulator of this process.
    pub(crate) fn start(emulator: &'static Emulator) -> Arc<Self> {
        let host = SystemHost;
        // Stepped runs are all the same.
        let seed = match emulator.config().mode {
            Mode::Stepped => 0,
            Mode::Threaded => RandomState::new().build_hasher().finish(),
        };
        let (locks, directory) = shared(emulator);
        let parts = Parts {
            slot: emulator.slot(),
            network: Network::new(emulator.config(), Arc::clone(emulator.hosts())),
            ports: Ports::new(locks, host.ephemeral_ports(), seed),
            host: Box::new(host),
            directory,
            resolve_time: match emulator.config().mode {
                Mode::Stepped => Duration::ZERO,
                Mode::Threaded => emulator.config().resolve_time,
            },
            seed,
        };
        let is_stepped = emulator.config().mode == Mode::Stepped;
        // A kernel sends within the call: the process may end right after it.
        let run = Box::new(|| drop(emulator.nic_after_packets()));
        let ucma = Arc::new(Self::new(RdmaCm::new(parts), run, is_stepped));
        emulator.set_agent(Arc::clone(&ucma) as Arc<_>);
        ucma
    }
}

/// Returns what this process shares with the others of the fabric.
fn shared(emulator: &Emulator) -> (Box<dyn HostLocks>, Box<dyn Directory>) {
    let registry = emulator.place().cloned().map(Registry::open);
    match registry {
        Some(Ok(registry)) => {
            let registry = Arc::new(registry);
            (Box::new(Arc::clone(&registry)), Box::new(registry))
        }
        Some(Err(error)) => {
            let text = format!("rdma_cm reaches this process only: {error}");
            warn("registry", &text);
            (Box::new(NoOthers), Box::new(NoOthers))
        }
        None => (Box::new(NoOthers), Box::new(NoOthers)),
    }
}

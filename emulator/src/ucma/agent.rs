//! rdma_cm of this process, as commands and the NIC thread share it.

use std::collections::HashMap;

use super::events::EventQueue;
use super::rdma_cm::RdmaCm;
use crate::cm::{Agent, MANAGEMENT_QPN, Origin, Peer, decode, management};
use crate::fabric::packet::{Destination, Packet, Transmit, management_qpn};
use crate::nic::Progress;
use crate::nic::resources::{Resource, number_of};
use crate::refusal::aside;
use crate::spec::gid::ip_of_gid;
use crate::spec::{Nanos, PortAddress, PortSet, Result};
use crate::sync::Mutex;

/// How often the processes of connections are checked for life, in nanoseconds.
const CHECK_INTERVAL: Nanos = 50_000_000;

/// rdma_cm of this process.
pub(crate) struct Ucma {
    inner: Mutex<Inner>,
    /// Runs the NIC, which sends messages and starts timers. Called without the lock.
    run: Box<dyn Fn() + Send + Sync>,
    /// Whether messages from this process to itself arrive at once, without the
    /// fabric. In stepped mode no packet moves until the test steps the NIC, and
    /// a thread of the application may wait for a connection meanwhile.
    direct: bool,
}

struct Inner {
    state: RdmaCm,
    peers: Peers,
}

/// The processes of connections.
#[derive(Default)]
struct Peers {
    /// Their generations: a process that has another one is a later process.
    generations: HashMap<u8, u32>,
    next_check: Nanos,
    /// Whether there may be connections with other processes.
    is_watching: bool,
    /// Processes that the last check has found gone, as a bit for each slot. Their last
    /// messages may have arrived after the packets of that round were taken.
    leaving: u64,
}

impl Ucma {
    pub(super) fn new(state: RdmaCm, run: Box<dyn Fn() + Send + Sync>, direct: bool) -> Self {
        let peers = Peers::default();
        Self {
            inner: Mutex::new(Inner { state, peers }),
            run,
            direct,
        }
    }

    /// Runs a command, and handles what follows from it.
    ///
    /// # Errors
    /// Returns the error of the command.
    pub(super) fn with<T>(&self, command: impl FnOnce(&mut RdmaCm) -> Result<T>) -> Result<T> {
        let mut inner = self.inner.lock();
        let state = &mut inner.state;
        let done = command(state);
        aside(|| {
            state.handle_events();
            if self.direct {
                deliver_own(state);
            }
        });
        let has_work = state.cm.has_work() || state.resolutions.has_unstarted();
        drop(inner);
        if has_work {
            (self.run)();
        }
        done
    }

    pub(super) fn add_file(&self, queue: EventQueue) -> u64 {
        self.inner.lock().state.add_file(queue)
    }
}

impl Agent for Ucma {
    fn device_failed(&self, device: u8) {
        self.inner.lock().state.device_removed(device);
    }

    fn ports_changed(&self, down: PortSet) {
        self.inner.lock().state.down = down;
    }

    fn resources(&self) -> Vec<Resource> {
        let state = &self.inner.lock().state;
        let ids = state.ids.iter();
        ids.filter_map(|(number, id)| id.resource(number_of(state.slot, *number)))
            .collect()
    }

    fn stop(&self) {
        let mut inner = self.inner.lock();
        // The files stay: a thread that waits on one must not return before the
        // process is gone.
        let ids: Vec<u32> = inner.state.ids.keys().copied().collect();
        for id in ids {
            inner.state.destroy(id);
        }
    }

    fn work(&self, now: Nanos, arrived: &mut Vec<Packet>, tx: &mut dyn Transmit) -> Progress {
        let mut inner = self.inner.lock();
        let Inner { state, peers } = &mut *inner;
        let mut worked = !arrived.is_empty();
        for packet in arrived.drain(..) {
            if packet.header.source.host().is_some() {
                if let Some(message) = decode(&packet.payload) {
                    state.cm.receive(Peer::Host(packet.header.source), message);
                }
                continue;
            }
            let from = (packet.header.source_qpn.0 >> 16) as u8;
            // The message is the last one of a process that has died meanwhile, or comes
            // from a process that has replaced another one.
            let is_last = tx.generation_of(from).is_none();
            if !is_last {
                peers.check(from, state, tx);
            }
            if let Some(message) = decode(&packet.payload) {
                state.cm.receive(Peer::Process(from), message);
            }
            if is_last {
                peers.check(from, state, tx);
            }
        }
        let check = peers.check_all(now, state, tx);
        let timers = state.cm.work(now);
        let resolutions = state.expire_resolutions(now);
        state.handle_events();
        worked |= send(state, peers, tx);
        // Events and messages may have started timers.
        let timers = if state.cm.has_work() {
            state.cm.work(now)
        } else {
            timers
        };
        let deadlines = [check, timers, resolutions];
        Progress {
            worked,
            next_deadline: deadlines.into_iter().flatten().min(),
        }
    }
}

/// Delivers the messages of this process to itself.
fn deliver_own(state: &mut RdmaCm) {
    let own = state.slot;
    loop {
        let mut messages = Vec::new();
        state.cm.send_messages(|outgoing| {
            let is_own = outgoing.to == Peer::Process(own);
            if is_own {
                messages.push(outgoing.message.clone());
            }
            is_own
        });
        if messages.is_empty() {
            return;
        }
        for message in messages {
            state.cm.receive(Peer::Process(own), message);
        }
        state.handle_events();
    }
}

/// Sends the messages for which there is room. Messages to processes that are
/// gone are dropped.
fn send(state: &mut RdmaCm, peers: &mut Peers, tx: &mut dyn Transmit) -> bool {
    let RdmaCm {
        slot: own,
        network,
        host,
        cm,
        ..
    } = state;
    let own = *own;
    // The port from which the routes of this host lead to another one.
    let toward = |peer: PortAddress| {
        let to = ip_of_gid(&network.gid(peer));
        let source = host.source_for(to, 0).ok()?;
        Some(network.source_toward(to, source)?.0)
    };
    cm.send_messages(|outgoing| {
        let port = |gid: Option<[u8; 16]>| {
            gid.and_then(|gid| network.port_of_gid(&gid))
                .unwrap_or(PortAddress { device: 0, port: 1 })
        };
        let source = match (outgoing.path, outgoing.to) {
            (None, Peer::Host(peer)) => toward(peer).unwrap_or(port(None)),
            (path, _) => port(path.map(|path| path.sgid)),
        };
        let to = match outgoing.to {
            Peer::Process(slot) if tx.generation_of(slot).is_none() => return true,
            Peer::Process(slot) => {
                peers.remember(slot, tx);
                Destination {
                    port: Some(port(outgoing.path.map(|path| path.dgid))),
                    qpn: management_qpn(slot),
                }
            }
            Peer::Host(host) => Destination {
                port: Some(host),
                qpn: MANAGEMENT_QPN,
            },
        };
        if !tx.has_room(to) {
            return false;
        }
        let path = outgoing.path.as_ref();
        let from = Origin {
            port: source,
            qpn: management_qpn(own),
            local: network.local_route(source),
            route: network.route(source, to.port.unwrap_or(source), path),
        };
        tx.send(management(from, to, &outgoing.message)).is_ok()
    })
}

impl Peers {
    fn remember(&mut self, slot: u8, tx: &mut dyn Transmit) {
        self.is_watching = true;
        if let Some(generation) = tx.generation_of(slot) {
            self.generations.entry(slot).or_insert(generation);
        }
    }

    /// Reports a process that is gone, or has been replaced by a later one.
    fn check(&mut self, slot: u8, state: &mut RdmaCm, tx: &mut dyn Transmit) {
        self.is_watching = true;
        let generation = tx.generation_of(slot);
        let known = self.generations.get(&slot).copied();
        let is_replaced = known.is_some() && known != generation;
        if generation.is_none() || is_replaced {
            self.generations.remove(&slot);
            state.cm.peer_died(slot);
        }
        if let Some(generation) = generation {
            self.generations.insert(slot, generation);
        }
    }

    /// Checks all processes of connections if it is time. Returns the time of
    /// the next check.
    fn check_all(
        &mut self,
        now: Nanos,
        state: &mut RdmaCm,
        tx: &mut dyn Transmit,
    ) -> Option<Nanos> {
        if self.is_watching && now >= self.next_check {
            self.next_check = now + CHECK_INTERVAL;
            // Looks at each connection, so not in every call.
            let others = state.cm.peers() & !(1 << (state.slot - 1));
            let before = core::mem::take(&mut self.leaving);
            for slot in (0..u64::BITS as u8).filter(|bit| others & 1 << bit != 0) {
                if tx.generation_of(slot + 1).is_none() && before & 1 << slot == 0 {
                    self.leaving |= 1 << slot;
                    self.next_check = now;
                } else {
                    self.check(slot + 1, state, tx);
                }
            }
            self.is_watching = others != 0;
        }
        self.is_watching.then_some(self.next_check)
    }
}

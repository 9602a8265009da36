//! The ids and files of a process.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use libc::{EINVAL, ENOENT, ENXIO};

use super::address::Address;
use super::events::EventQueue;
use super::host::Host;
use super::id::{Id, IdState};
use super::network::Network;
use super::ports::{Ports, Space};
use super::services::{Directory, service};
use crate::cm::{CommId, Manager, Timers};
use crate::fabric::registry::Service;
use crate::refusal::{OrRefuse, refuse_if};
use crate::spec::{PortAddress, PortSet, Result};

/// Why a command that needs a device is refused.
pub(super) const NO_DEVICE: &str =
    "the id has no device yet: resolve an address, or bind it to the address of a port";

const DESTROYED: &str = "the id was destroyed";

/// The state of rdma_cm in this process.
pub(super) struct RdmaCm {
    /// The slot of this process on the fabric.
    pub(super) slot: u8,
    pub(super) network: Network,
    pub(super) host: Box<dyn Host>,
    pub(super) ports: Ports,
    pub(super) directory: Box<dyn Directory>,
    pub(super) cm: Manager,
    pub(super) down: PortSet,
    /// The most that the resolution of a route takes.
    pub(super) resolve_time: Duration,
    /// Ids that wait for the address of another host, or for a path.
    pub(super) resolutions: Timers<u32>,
    pub(super) ids: BTreeMap<u32, Id>,
    /// The ids that have begun to listen.
    pub(super) listeners: BTreeSet<u32>,
    pub(super) comm_ids: HashMap<CommId, u32>,
    pub(super) files: HashMap<u64, EventQueue>,
    free_ids: BTreeSet<u32>,
    last_file: u64,
    random: u64,
}

/// What a process is made of, outside of rdma_cm.
pub(super) struct Parts {
    pub(super) slot: u8,
    pub(super) network: Network,
    pub(super) host: Box<dyn Host>,
    pub(super) ports: Ports,
    pub(super) directory: Box<dyn Directory>,
    /// The most that the resolution of a route takes.
    pub(super) resolve_time: Duration,
    /// Where the pseudo-random numbers start.
    pub(super) seed: u64,
}

impl RdmaCm {
    pub(super) fn new(parts: Parts) -> Self {
        Self {
            slot: parts.slot,
            network: parts.network,
            host: parts.host,
            ports: parts.ports,
            directory: parts.directory,
            cm: Manager::of(parts.slot, parts.seed),
            down: PortSet::default(),
            resolve_time: parts.resolve_time,
            resolutions: Timers::default(),
            ids: BTreeMap::new(),
            listeners: BTreeSet::new(),
            comm_ids: HashMap::new(),
            files: HashMap::new(),
            free_ids: BTreeSet::new(),
            last_file: 0,
            random: parts.seed,
        }
    }

    /// Adds a file with this queue. Returns its number.
    pub(super) fn add_file(&mut self, queue: EventQueue) -> u64 {
        self.last_file += 1;
        self.files.insert(self.last_file, queue);
        self.last_file
    }

    /// Destroys the ids of a file, and the file.
    pub(super) fn remove_file(&mut self, file: u64) {
        let of_file = |(number, id): (&u32, &Id)| (id.file == file).then_some(*number);
        let ids: Vec<u32> = self.ids.iter().filter_map(of_file).collect();
        for id in ids {
            self.destroy(id);
        }
        self.files.remove(&file);
    }

    /// Adds an id, under the lowest free number: librdmacm keeps a table of them.
    pub(super) fn add_id(&mut self, id: Id) -> u32 {
        let number = self.free_ids.pop_first().unwrap_or_else(|| {
            // Without free numbers, the ids have the numbers below their count.
            u32::try_from(self.ids.len()).unwrap_or(u32::MAX)
        });
        self.ids.insert(number, id);
        number
    }

    /// Returns an id of a file.
    ///
    /// # Errors
    /// `ENOENT` if there is none, `EINVAL` if it belongs to another file, `ENXIO`
    /// if its device is gone.
    pub(super) fn id(&mut self, file: u64, number: u32) -> Result<&mut Id> {
        let id = self.owned(file, number)?;
        refuse_if(
            id.state == IdState::DeviceRemoval,
            ENXIO,
            "the device of the id was removed (RDMA_CM_EVENT_DEVICE_REMOVAL): destroy the id",
        )?;
        Ok(id)
    }

    /// Returns an id of a file that has a device, and its port.
    ///
    /// # Errors
    /// As for [`id`](Self::id); `EINVAL` without a device.
    pub(super) fn id_with_port(
        &mut self,
        file: u64,
        number: u32,
    ) -> Result<(&mut Id, PortAddress)> {
        let id = self.id(file, number)?;
        let port = id.port.or_refuse(EINVAL, NO_DEVICE)?;
        Ok((id, port))
    }

    /// Returns an id of a file, also if its device is gone.
    pub(super) fn owned(&mut self, file: u64, number: u32) -> Result<&mut Id> {
        let id = self.ids.get_mut(&number);
        let id = id.or_refuse(ENOENT, "there is no rdma_cm id of this number")?;
        refuse_if(
            id.file != file,
            EINVAL,
            "the id belongs to another event channel",
        )?;
        Ok(id)
    }

    /// Returns an id whose file was checked.
    ///
    /// # Errors
    /// `EINVAL` if there is none.
    pub(super) fn known(&self, number: u32) -> Result<&Id> {
        self.ids.get(&number).or_refuse(EINVAL, DESTROYED)
    }

    /// As [`known`](Self::known), to change the id.
    pub(super) fn known_mut(&mut self, number: u32) -> Result<&mut Id> {
        self.ids.get_mut(&number).or_refuse(EINVAL, DESTROYED)
    }

    /// Destroys an id, with the requests to it that the application has not
    /// taken. Returns the number of its events that the application has taken.
    pub(super) fn destroy(&mut self, number: u32) -> u32 {
        let Some(id) = self.ids.remove(&number) else {
            return 0;
        };
        self.free_ids.insert(number);
        if let Some(comm) = id.comm {
            self.comm_ids.remove(&comm);
            self.cm.destroy(comm);
        }
        self.resolutions.stop(number);
        if let Some((space, port)) = id.claim {
            self.ports.release(space, port, number);
        }
        if self.listeners.remove(&number) {
            // Fails only if the directory is gone, and the others with it.
            let _ = self.publish();
        }
        let requests = match self.files.get_mut(&id.file) {
            Some(queue) => queue.remove_events_of(number),
            None => Vec::new(),
        };
        for request in requests {
            self.destroy(request);
        }
        id.events_reported
    }

    /// Publishes the services of all ids that listen.
    ///
    /// # Errors
    /// Returns the error number of the system.
    pub(super) fn publish(&mut self) -> Result<()> {
        let services: Vec<Service> = self.services().map(|(_, service)| service).collect();
        self.directory.publish(&services)
    }

    /// Returns the ids that listen, and their services.
    pub(super) fn services(&self) -> impl Iterator<Item = (u32, Service)> + '_ {
        self.listeners.iter().filter_map(|number| {
            let id = self.ids.get(number)?;
            let local = id.local.filter(|_| id.state == IdState::Listen)?;
            let is_any = self.network.is_any(&local);
            let family_only = id.family_only.unwrap_or(false);
            let service = service(id.service_id(&local), &local, is_any, family_only);
            Some((*number, service))
        })
    }

    /// Returns a pseudo-random number (SplitMix64).
    pub(super) fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn random_psn(&mut self) -> u32 {
        (self.random() & 0xff_ffff) as u32
    }

    /// Returns a new id with a random PSN.
    pub(super) fn new_id(&mut self, file: u64, uid: u64, space: Space, qp_type: u8) -> Id {
        let psn = self.random_psn();
        Id::new(file, uid, space, qp_type, psn)
    }

    /// Returns whether an address stands for all addresses.
    pub(super) fn is_any(&self, address: &Address) -> bool {
        self.network.is_any(address)
    }
}

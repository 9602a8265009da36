//! An rdma_cm id, and its states.

use super::address::Address;
use super::ports::Space;
use super::services::Target;
use crate::cm::{CommId, Ece, Path};
use crate::nic::resources::{Field, Kind, Resource};
use crate::refusal::refuse;
use crate::spec::{PortAddress, Result};
use libc::EINVAL;

/// The state of an id, as in the kernel's `enum rdma_cm_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdState {
    Idle = 0,
    AddrBound = 7,
    AddrQuery = 1,
    AddrResolved = 2,
    RouteQuery = 3,
    RouteResolved = 4,
    Connect = 5,
    Disconnect = 6,
    Listen = 8,
    /// The device is gone.
    DeviceRemoval = 9,
}

/// An rdma_cm id.
#[derive(Debug)]
pub(super) struct Id {
    /// The file whose queue takes the events.
    pub(super) file: u64,
    /// librdmacm's own handle, returned in events. 0 for a request that is not
    /// accepted yet, which gets no events.
    pub(super) uid: u64,
    /// Number of events that the application has taken.
    pub(super) events_reported: u32,
    pub(super) space: Space,
    /// `enum ibv_qp_type`.
    pub(super) qp_type: u8,
    pub(super) state: IdState,
    pub(super) local: Option<Address>,
    pub(super) remote: Option<Address>,
    /// The port that is claimed.
    pub(super) claim: Option<(Space, u16)>,
    /// The port of a device, once one is selected.
    pub(super) port: Option<PortAddress>,
    /// The port of the other end.
    pub(super) remote_port: Option<PortAddress>,
    /// The path, from the beginning of its resolution.
    pub(super) path: Option<Path>,
    /// How often the resolution of the route may still look for a listener.
    pub(super) looks: u64,
    /// The connection.
    pub(super) comm: Option<CommId>,
    /// `RDMA_OPTION_ID_AFONLY`, once set.
    pub(super) family_only: Option<bool>,
    /// `RDMA_OPTION_ID_REUSEADDR`.
    pub(super) reuse: bool,
    /// `RDMA_OPTION_ID_TOS`.
    pub(super) tos: u8,
    /// `RDMA_OPTION_ID_ACK_TIMEOUT`, once set.
    pub(super) ack_timeout: Option<u8>,
    /// How many more requests may wait for the application.
    pub(super) backlog: u32,
    /// The first PSN to expect.
    pub(super) psn: u32,
    pub(super) qp_num: u32,
    pub(super) srq: bool,
    /// The key of datagrams, once known.
    pub(super) qkey: Option<u32>,
    pub(super) ece: Ece,
}

impl Id {
    pub(super) fn new(file: u64, uid: u64, space: Space, qp_type: u8, psn: u32) -> Self {
        Self {
            file,
            uid,
            events_reported: 0,
            space,
            qp_type,
            state: IdState::Idle,
            local: None,
            remote: None,
            claim: None,
            port: None,
            remote_port: None,
            path: None,
            looks: 0,
            comm: None,
            family_only: None,
            reuse: false,
            tos: 0,
            ack_timeout: None,
            backlog: 0,
            psn,
            qp_num: 0,
            srq: false,
            qkey: None,
            ece: Ece::default(),
        }
    }

    /// Returns what a host lists of the id (`fill_res_cm_id_entry`), once it has a device.
    pub(super) fn resource(&self, number: u32) -> Option<Resource> {
        let PortAddress { device, port } = self.port?;
        let mut fields = vec![
            (Field::Space, self.space.number().into()),
            (Field::State, self.state as u64),
        ];
        if self.qp_num != 0 {
            let qp_type = (Field::Type, self.qp_type.into());
            fields.extend([(Field::Qpn, self.qp_num.into()), qp_type]);
        }
        Some(Resource {
            kind: Kind::CmId,
            device,
            port,
            number,
            fields,
            addresses: [self.local, self.remote].map(|it| it.map(|it| it.bytes())),
            queue_pairs: Vec::new(),
        })
    }

    pub(super) fn is_datagram(&self) -> bool {
        self.qp_type == super::abi::qp_type::UD
    }

    /// Sets `RDMA_OPTION_ID_REUSEADDR` (`rdma_set_reuseaddr`).
    ///
    /// # Errors
    /// `EINVAL` if the id listens, or to clear the option once it is bound.
    pub(super) fn set_reuse(&mut self, reuse: bool) -> Result<()> {
        if reuse && self.state != IdState::Listen || self.state == IdState::Idle {
            self.reuse = reuse;
            return Ok(());
        }
        Err(refuse(
            EINVAL,
            "RDMA_OPTION_ID_REUSEADDR can be set before the id listens, and cleared before it is bound",
        ))
    }

    /// Sets `RDMA_OPTION_ID_AFONLY` (`rdma_set_afonly`).
    ///
    /// # Errors
    /// `EINVAL` once the id resolves or listens.
    pub(super) fn set_family_only(&mut self, family_only: bool) -> Result<()> {
        if [IdState::Idle, IdState::AddrBound].contains(&self.state) {
            self.family_only = Some(family_only);
            return Ok(());
        }
        Err(refuse(
            EINVAL,
            "RDMA_OPTION_ID_AFONLY can be set before the id listens or resolves an address",
        ))
    }

    /// Sets `RDMA_OPTION_ID_ACK_TIMEOUT` (`rdma_set_ack_timeout`). The kernel
    /// takes any value of 8 bits; a queue pair has 5.
    ///
    /// # Errors
    /// `EINVAL` for ids of other queue pairs than RC and XRC initiators.
    pub(super) fn set_ack_timeout(&mut self, timeout: u8) -> Result<()> {
        use super::abi::qp_type::{RC, XRC_INI};
        if [RC, XRC_INI].contains(&self.qp_type) {
            self.ack_timeout = Some(timeout);
            return Ok(());
        }
        Err(refuse(
            EINVAL,
            "RDMA_OPTION_ID_ACK_TIMEOUT is for RC queue pairs and XRC initiators",
        ))
    }

    /// Returns the target of a request to this address.
    pub(super) fn target(&self, remote: &Address) -> Target {
        Target {
            service_id: self.service_id(remote),
            family: remote.family(),
            address: remote.octets(),
        }
    }

    /// Returns the service ID of an address (`rdma_get_service_id`).
    pub(super) fn service_id(&self, address: &Address) -> u64 {
        match address {
            Address::Ib { sid, .. } => *sid,
            other => u64::from(self.space.number()) << 16 | u64::from(other.port()),
        }
    }
}

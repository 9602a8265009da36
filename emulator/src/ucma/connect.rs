//! Connections: what the application does with them, and what happens to them
//! (the kernel's `rdma_connect`, `rdma_accept`, …, `cma_ib_handler`).

use libc::{EINVAL, EISCONN, ETIMEDOUT};
use zerocopy::FromZeros;

use super::abi::{ConnParam, EceParam, UDP_QKEY, UdParam, event};
use super::address::Family;
use super::events::Content;
use super::id::{Id, IdState};
use super::private_header;
use super::qp_attributes::ah_attributes;
use super::rdma_cm::RdmaCm;
use super::services::{Target, flat};
use crate::cm::{
    CommId, Ece, Event, Peer, Rej, RejReason, Rep, Req, SidrRep, SidrReq, SidrStatus, data_of,
};
use crate::refusal::{OrRefuse, aside, refuse, refuse_if};
use crate::spec::{Nanos, Result};

/// How often a message is sent again (`CMA_MAX_CM_RETRIES`).
const MAX_RETRIES: u8 = 15;
/// How long a manager waits for a reply: 4.096 µs · 2^20, about 4.3 seconds
/// (`CMA_CM_RESPONSE_TIMEOUT`).
const RESPONSE_TIMEOUT: u8 = 20;
/// The same for datagram services, in nanoseconds.
const SERVICE_TIMEOUT: Nanos = 4_096_000_000;
/// How long the device may take for an acknowledgement, as it reports.
const ACK_DELAY: u8 = 16;
/// The largest retry count, which has 3 bits.
const MAX_COUNT: u8 = 7;
const QPN_MASK: u32 = 0xff_ffff;
/// `IB_EVENT_COMM_EST`.
const COMM_EST: u32 = 4;

const NO_ROUTE: &str =
    "the id has no route to a peer (rdma_resolve_route and its event), or it connects already";
const LONG_DATA: &str = "the private data are longer than the message has room for";
const NO_CONNECTION: &str = "the id has no connection, and no request for one";
const OVER: &str = "the request is over: it was accepted or rejected, or the peer has given up";

/// The parameters of a connect or accept command.
#[derive(Debug)]
pub(super) struct Parameters {
    pub(super) conn: ConnParam,
    pub(super) ece: Ece,
}

impl Parameters {
    pub(super) fn new(conn: ConnParam, ece: EceParam) -> Self {
        Self {
            conn,
            ece: Ece {
                vendor_id: ece.vendor_id,
                options: ece.attr_mod,
            },
        }
    }

    fn private_data(&self) -> &[u8] {
        &self.conn.private_data[..usize::from(self.conn.private_data_len)]
    }
}

impl RdmaCm {
    /// Requests a connection, or asks for the queue pair of a datagram service.
    ///
    /// # Errors
    /// `EINVAL` in another state, or if the private data are too long.
    pub(super) fn connect(&mut self, number: u32, with: &Parameters) -> Result<()> {
        let id = self.known(number)?;
        refuse_if(id.state != IdState::RouteResolved, EINVAL, NO_ROUTE)?;
        let addresses = id.local.zip(id.remote);
        let (local, remote) = addresses.or_refuse(EINVAL, NO_ROUTE)?;
        let path = id.path.or_refuse(EINVAL, NO_ROUTE)?;
        let target = id.target(&remote);
        let service_id = target.service_id;
        let host = id.remote_port.filter(|port| port.host().is_some());
        let peer = host.map(Peer::Host);
        let peer = peer.or_else(|| self.find_listener(&target).map(Peer::Process));
        let data = match remote.family() {
            Family::Ib => with.private_data().to_vec(),
            _ => [
                &private_header::encode(&local, &remote)[..],
                with.private_data(),
            ]
            .concat(),
        };
        let comm = if id.is_datagram() {
            let private_data = data_of::<SidrReq>(&data).or_refuse(EINVAL, LONG_DATA)?;
            let pkey = path.pkey;
            let req = SidrReq {
                service_id,
                pkey,
                private_data,
            };
            self.cm.ask(peer, req, SERVICE_TIMEOUT, MAX_RETRIES)
        } else {
            let conn = &with.conn;
            let req = Req {
                service_id,
                guid: self.network.guid(id.port.map_or(0, |port| port.device)),
                qpn: conn.qp_num & QPN_MASK,
                qp_type: id.qp_type,
                starting_psn: id.psn,
                responder_resources: conn.responder_resources,
                initiator_depth: conn.initiator_depth,
                flow_control: conn.flow_control != 0,
                retry_count: conn.retry_count.min(MAX_COUNT),
                rnr_retry_count: conn.rnr_retry_count.min(MAX_COUNT),
                srq: conn.srq != 0,
                max_cm_retries: MAX_RETRIES,
                response_timeout: RESPONSE_TIMEOUT,
                path,
                ece: with.ece,
                private_data: data_of::<Req>(&data).or_refuse(EINVAL, LONG_DATA)?,
            };
            self.cm.connect(peer, req)
        };
        let id = self.known_mut(number)?;
        id.state = IdState::Connect;
        id.comm = Some(comm);
        set_queue_pair(id, with);
        self.comm_ids.insert(comm, number);
        Ok(())
    }

    /// Returns the process that listens, preferably at exactly this address.
    pub(super) fn find_listener(&self, target: &Target) -> Option<u8> {
        let own = self.services().map(|(_, service)| (self.slot, service));
        target.find(own.chain(flat(self.directory.others())))
    }

    /// Accepts a request; or, without parameters, confirms the reply to one.
    ///
    /// # Errors
    /// `EINVAL` in another state, or if the private data are too long. The
    /// request is then refused.
    pub(super) fn accept(
        &mut self,
        number: u32,
        uid: u64,
        with: Option<&Parameters>,
    ) -> Result<()> {
        let id = self.known_mut(number)?;
        refuse_if(
            id.state != IdState::Connect,
            EINVAL,
            "the id is no request for a connection, and its own request has no reply",
        )?;
        let comm = id.comm.or_refuse(EINVAL, NO_CONNECTION)?;
        if let Some(with) = with {
            set_queue_pair(id, with);
        }
        let (is_datagram, psn) = (id.is_datagram(), id.psn);
        let device = id.port.map_or(0, |port| port.device);
        let done = match with {
            _ if is_datagram => self.answer_service(number, comm, with),
            Some(with) => reply(with, psn, self.network.guid(device))
                .and_then(|rep| self.cm.accept(comm, rep).or_refuse(EINVAL, OVER)),
            None => (self.cm.confirm(comm))
                .or_refuse(EINVAL, "the peer has not accepted, or has given up"),
        };
        if done.is_err() {
            let _ = aside(|| self.reject(number, RejReason::CONSUMER_DEFINED, &[]));
        } else if with.is_some()
            && let Some(id) = self.ids.get_mut(&number)
        {
            id.uid = uid;
        }
        done
    }

    fn answer_service(
        &mut self,
        number: u32,
        comm: CommId,
        with: Option<&Parameters>,
    ) -> Result<()> {
        let id = self.known_mut(number)?;
        let is_ib = id.local.is_some_and(|it| it.family() == Family::Ib);
        let given = with.filter(|_| is_ib).map_or(0, |with| with.conn.qkey);
        let qkey = *id
            .qkey
            .get_or_insert(if given != 0 { given } else { UDP_QKEY });
        refuse_if(
            given != 0 && given != qkey,
            EINVAL,
            "the id has another queue key already",
        )?;
        let data = with.map_or(&[][..], Parameters::private_data);
        let rep = SidrRep {
            service_id: 0,
            status: SidrStatus::SUCCESS,
            qpn: id.qp_num,
            qkey,
            ece: with.map_or_else(Ece::default, |with| with.ece),
            private_data: data_of::<SidrRep>(data).or_refuse(EINVAL, LONG_DATA)?,
        };
        self.cm.answer(comm, rep).or_refuse(EINVAL, OVER)
    }

    /// Refuses a request or a reply.
    ///
    /// # Errors
    /// `EINVAL` in another state, or if the private data are too long.
    pub(super) fn reject(&mut self, number: u32, reason: RejReason, data: &[u8]) -> Result<()> {
        let id = self.known(number)?;
        let comm = id.comm.or_refuse(EINVAL, NO_CONNECTION)?;
        let done = if id.is_datagram() {
            let rep = SidrRep {
                service_id: 0,
                status: SidrStatus::REJECTED,
                qpn: 0,
                qkey: 0,
                ece: Ece::default(),
                private_data: data_of::<SidrRep>(data).or_refuse(EINVAL, LONG_DATA)?,
            };
            self.cm.answer(comm, rep)
        } else {
            let data = data_of::<Rej>(data).or_refuse(EINVAL, LONG_DATA)?;
            self.cm.reject(comm, reason, data)
        };
        done.or_refuse(EINVAL, OVER)
    }

    /// Requests a disconnect, or confirms one. In other states nothing happens.
    ///
    /// # Errors
    /// `EINVAL` if the id was never connected.
    pub(super) fn disconnect(&mut self, number: u32) -> Result<()> {
        let id = self.known(number)?;
        let comm = id.comm.or_refuse(EINVAL, NO_CONNECTION)?;
        if self.cm.disconnect(comm).is_err() {
            let _ = self.cm.confirm_disconnect(comm);
        }
        Ok(())
    }

    /// Handles an asynchronous event of the id's queue pair.
    ///
    /// # Errors
    /// `EINVAL` for other events than `IBV_EVENT_COMM_EST` and in other states,
    /// `EISCONN` if the connection is established already.
    pub(super) fn notify_of_queue_pair(&mut self, number: u32, event: u32) -> Result<()> {
        let comm = self.known(number)?.comm;
        refuse_if(
            event != COMM_EST,
            EINVAL,
            "only IBV_EVENT_COMM_EST can be reported",
        )?;
        let comm = comm.or_refuse(EINVAL, NO_CONNECTION)?;
        match self.cm.established_by_traffic(comm) {
            Ok(false) => Ok(()),
            Ok(true) => Err(refuse(EISCONN, "the connection is established already")),
            Err(_) => Err(refuse(
                EINVAL,
                "the connection does not wait for the peer to complete it",
            )),
        }
    }

    /// Turns the events of connections into events of ids.
    pub(super) fn handle_events(&mut self) {
        while let Some((comm, event)) = self.cm.next_event() {
            match event {
                Event::Request(req) => self.handle_request(comm, &req),
                Event::ServiceRequest(req) => self.handle_service_request(comm, &req),
                other => {
                    if let Some(&number) = self.comm_ids.get(&comm) {
                        self.handle_event(number, other);
                    }
                }
            }
        }
    }

    fn handle_event(&mut self, number: u32, happened: Event) {
        let Some(id) = self.ids.get_mut(&number) else {
            return;
        };
        let expected = match happened {
            Event::TimeWaitOver => IdState::Disconnect,
            _ => IdState::Connect,
        };
        if id.state != expected {
            return;
        }
        let none = Content::empty;
        let (event, status, content, ece) = match happened {
            Event::Reply(rep) => {
                // The application answers: the peer must not give up meanwhile.
                if let Some(comm) = id.comm {
                    self.cm.delay_reply(comm);
                }
                (event::CONNECT_RESPONSE, 0, reply_content(&rep), rep.ece)
            }
            Event::Established => (event::ESTABLISHED, 0, none(), Ece::default()),
            Event::Rejected(rej) => {
                let status = i32::from(rej.reason.0);
                let content = connection(|param| set_data(param, &rej.private_data));
                (event::REJECTED, status, content, Ece::default())
            }
            Event::Unreachable | Event::ServiceTimeout => {
                (event::UNREACHABLE, -ETIMEDOUT, none(), Ece::default())
            }
            Event::DisconnectRequested | Event::Disconnected | Event::DisconnectTimeout => {
                id.state = IdState::Disconnect;
                let is_late = matches!(happened, Event::DisconnectTimeout);
                let status = if is_late { -ETIMEDOUT } else { 0 };
                (event::DISCONNECTED, status, none(), Ece::default())
            }
            Event::TimeWaitOver => (event::TIMEWAIT_EXIT, 0, none(), Ece::default()),
            Event::ServiceReply(rep) => return self.handle_service_reply(number, &rep),
            Event::Request(_) | Event::ServiceRequest(_) => return,
        };
        self.notify_with_ece(number, event, status, &content, ece);
    }

    fn handle_service_reply(&mut self, number: u32, rep: &SidrRep) {
        let network = self.network.clone();
        let Some(id) = self.ids.get_mut(&number) else {
            return;
        };
        let mut param = UdParam::new_zeroed();
        param.private_data[..rep.private_data.len()].copy_from_slice(&rep.private_data);
        param.private_data_len = rep.private_data.len() as u8;
        let (event, status) = if rep.status != SidrStatus::SUCCESS {
            (event::UNREACHABLE, i32::from(rep.status.0))
        } else if id.qkey.is_some_and(|qkey| qkey != rep.qkey) {
            (event::ADDR_ERROR, -EINVAL)
        } else {
            id.qkey = Some(rep.qkey);
            (param.qp_num, param.qkey) = (rep.qpn, rep.qkey);
            if let (Some(path), Some(port)) = (&id.path, id.port) {
                let gid_index = network.gid_index(port, &path.sgid);
                param.ah_attr = ah_attributes(path, port.port, network.is_roce(), gid_index);
            }
            (event::ESTABLISHED, 0)
        };
        let content = Content::Datagram(Box::new(param));
        self.notify_with_ece(number, event, status, &content, rep.ece);
    }
}

fn set_queue_pair(id: &mut Id, with: &Parameters) {
    id.qp_num = with.conn.qp_num & QPN_MASK;
    id.srq = with.conn.srq != 0;
    id.ece = with.ece;
}

fn reply(with: &Parameters, psn: u32, guid: [u8; 8]) -> Result<Rep> {
    let conn = &with.conn;
    Ok(Rep {
        qpn: conn.qp_num & QPN_MASK,
        guid,
        starting_psn: psn,
        responder_resources: conn.responder_resources,
        initiator_depth: conn.initiator_depth,
        flow_control: conn.flow_control != 0,
        rnr_retry_count: conn.rnr_retry_count.min(MAX_COUNT),
        srq: conn.srq != 0,
        target_ack_delay: ACK_DELAY,
        ece: with.ece,
        private_data: data_of::<Rep>(with.private_data()).or_refuse(EINVAL, LONG_DATA)?,
    })
}

fn reply_content(rep: &Rep) -> Content {
    connection(|param| {
        set_data(param, &rep.private_data);
        param.responder_resources = rep.initiator_depth;
        param.initiator_depth = rep.responder_resources;
        param.flow_control = rep.flow_control.into();
        param.rnr_retry_count = rep.rnr_retry_count;
        param.srq = rep.srq.into();
        param.qp_num = rep.qpn;
    })
}

pub(super) fn connection(fill: impl FnOnce(&mut ConnParam)) -> Content {
    let mut param = ConnParam::new_zeroed();
    fill(&mut param);
    Content::Connection(Box::new(param))
}

pub(super) fn set_data(param: &mut ConnParam, data: &[u8]) {
    param.private_data[..data.len()].copy_from_slice(data);
    param.private_data_len = data.len() as u8;
}

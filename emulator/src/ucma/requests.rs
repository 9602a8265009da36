//! Requests of peers: which id listens, and the new id that the application
//! accepts (the kernel's `cma_ib_req_handler`).

use zerocopy::FromZeros;

use super::abi::UdParam;
use super::address::{Address, Family};
use super::connect::{connection, set_data};
use super::events::Content;
use super::id::{Id, IdState};
use super::private_header::{self, HEADER};
use super::rdma_cm::RdmaCm;
use super::services::Target;
use crate::cm::{CommId, Ece, Rej, RejReason, Req, SidrRep, SidrReq, SidrStatus};
use crate::spec::PortAddress;

impl RdmaCm {
    /// Returns the id that listens for a request.
    fn listener(&self, service_id: u64, data: &[u8]) -> Option<u32> {
        let target = Target::of(service_id, data);
        let found = self.services().find(|(_, service)| target.matches(service));
        found.map(|(number, _)| number)
    }

    pub(super) fn handle_request(&mut self, comm: CommId, req: &Req) {
        let Some(listener) = self.listener(req.service_id, &req.private_data) else {
            let none = [0; Rej::PRIVATE_DATA];
            let _ = self.cm.reject(comm, RejReason::INVALID_SERVICE_ID, none);
            return self.cm.destroy(comm);
        };
        let port = self.network.port_of_gid(&req.path.dgid);
        let accepts = |id: &Id| id.qp_type == req.qp_type || id.qp_type == 0;
        let (Some(port), true) = (port, self.ids.get(&listener).is_some_and(accepts)) else {
            return self.cm.destroy(comm);
        };
        let Some((request, offset)) = self.add_request(
            comm,
            listener,
            req.qp_type,
            req.service_id,
            &req.private_data,
            port,
        ) else {
            return;
        };
        if let Some(id) = self.ids.get_mut(&request) {
            id.path = Some(req.path.reversed());
            id.remote_port = self.network.port_of_any(&req.path.sgid);
            self.cm.expect_psn(comm, id.psn);
        }
        self.cm.delay_reply(comm);
        let content = connection(|param| {
            set_data(param, &req.private_data[offset..]);
            param.responder_resources = req.initiator_depth;
            param.initiator_depth = req.responder_resources;
            param.flow_control = req.flow_control.into();
            param.retry_count = req.retry_count;
            param.rnr_retry_count = req.rnr_retry_count;
            param.srq = req.srq.into();
            param.qp_num = req.qpn;
        });
        self.notify_request(listener, request, &content, req.ece);
    }

    pub(super) fn handle_service_request(&mut self, comm: CommId, req: &SidrReq) {
        let listener = self.listener(req.service_id, &req.private_data);
        let listener = listener.filter(|number| self.ids.get(number).is_some_and(Id::is_datagram));
        let Some(listener) = listener else {
            let unsupported = SidrRep {
                service_id: req.service_id,
                status: SidrStatus::UNSUPPORTED,
                qpn: 0,
                qkey: 0,
                ece: Ece::default(),
                private_data: [0; SidrRep::PRIVATE_DATA],
            };
            let _ = self.cm.answer(comm, unsupported);
            return self.cm.destroy(comm);
        };
        let port = self.ids.get(&listener).and_then(|id| id.port);
        let ip = private_header::decode(&req.private_data, req.service_id)
            .and_then(|(local, _)| local.ip());
        let port = port
            .or_else(|| ip.map(|ip| self.network.port_of(ip)))
            .unwrap_or(PortAddress { device: 0, port: 1 });
        let ud = super::abi::qp_type::UD;
        let Some((request, offset)) =
            self.add_request(comm, listener, ud, req.service_id, &req.private_data, port)
        else {
            return;
        };
        let mut param = UdParam::new_zeroed();
        let data = &req.private_data[offset..];
        param.private_data[..data.len()].copy_from_slice(data);
        param.private_data_len = data.len() as u8;
        let content = Content::Datagram(Box::new(param));
        self.notify_request(listener, request, &content, Ece::default());
    }

    /// Adds the id of a request to `listener`. Returns the id, and where the
    /// application's private data begin. Returns `None` if too many requests
    /// wait: the peer will repeat this one.
    fn add_request(
        &mut self,
        comm: CommId,
        listener: u32,
        qp_type: u8,
        service_id: u64,
        data: &[u8],
        port: PortAddress,
    ) -> Option<(u32, usize)> {
        let psn = self.random_psn();
        let id = self.ids.get_mut(&listener)?;
        if id.backlog == 0 {
            self.cm.ignore_request(comm);
            return None;
        }
        id.backlog -= 1;
        let listens_at = id.local?;
        let addresses = private_header::decode(data, service_id);
        let (local, remote) = match (listens_at.family(), addresses) {
            (Family::Ib, _) | (_, None) => (listens_at, Address::unspecified(Family::Ib)),
            (_, Some(addresses)) => addresses,
        };
        let offset = match listens_at.family() {
            Family::Ib => 0,
            _ => HEADER,
        };
        let mut request = Id::new(id.file, 0, id.space, qp_type, psn);
        request.state = IdState::Connect;
        (request.local, request.remote) = (Some(local), Some(remote));
        request.port = Some(port);
        request.comm = Some(comm);
        request.tos = id.tos;
        request.family_only = id.family_only;
        let number = self.add_id(request);
        self.comm_ids.insert(comm, number);
        Some((number, offset))
    }
}

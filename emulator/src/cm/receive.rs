//! The messages that arrive, and the processes that die.

use super::endpoint::{Endpoint, EndpointPhase, Link, ack_timeout};
use super::manager::{Event, Manager, Peer, service_answer};
use super::message::{
    Answers, Body, CommId, Message, Rej, RejReason, Rep, Req, SidrReq, SidrStatus, timeout,
};

/// The time that an MRA asks for: 69 seconds.
const SERVICE_TIME: u8 = 24;

impl Manager {
    /// Takes a message of `from`.
    pub(crate) fn receive(&mut self, from: Peer, message: Message) {
        let Message {
            sender,
            receiver,
            body,
        } = message;
        match body {
            Body::Req(req) => return self.receive_req(from, sender, req),
            Body::SidrReq(req) => return self.receive_sidr_req(from, sender, req),
            _ => {}
        }
        let Some(id) = self.find(from, sender, receiver) else {
            // The connection was destroyed, and its last message was lost.
            if let Body::Dreq { .. } = body {
                let message = Message {
                    sender: receiver_or(receiver),
                    receiver: sender,
                    body: Body::Drep,
                };
                self.send_unknown(from, message);
            }
            return;
        };
        match body {
            Body::Mra { time, .. } => self.receive_mra(id, time),
            Body::Rep(rep) => self.receive_rep(id, sender, rep),
            Body::Rtu => self.receive_rtu(id),
            Body::Rej(rej) => self.receive_rej(id, rej),
            Body::Dreq { .. } => self.receive_dreq(id),
            Body::Drep => self.receive_drep(id),
            Body::SidrRep(rep) => {
                if self.in_state(id, &[EndpointPhase::SidrReqSent]).is_ok() {
                    self.forget(id);
                    self.report(id, Event::ServiceReply(rep));
                }
            }
            Body::Req(_) | Body::SidrReq(_) => {}
        }
    }

    /// Handles the death of a process: its connections end as if its kernel
    /// had closed its files.
    pub(crate) fn peer_died(&mut self, slot: u8) {
        let dead = Peer::Process(slot);
        let of_peer = |(id, it): (&CommId, &Endpoint)| (it.peer == dead).then_some(*id);
        let mut ids: Vec<_> = self.endpoints.iter().filter_map(of_peer).collect();
        ids.sort_unstable();
        // A later process in the same slot counts its connections from 1 again.
        self.remotes.retain(|&(peer, _), _| peer != dead);
        self.discard_messages_to(dead);
        for id in ids {
            let Some(endpoint) = self.endpoints.get_mut(&id) else {
                continue;
            };
            endpoint.peer = Peer::NONE;
            match endpoint.state {
                EndpointPhase::ReqSent if endpoint.remote == CommId::NONE => {
                    self.refused(id, RejReason::INVALID_SERVICE_ID);
                }
                EndpointPhase::ReqReceived => self.refused(id, RejReason::TIMEOUT),
                EndpointPhase::ReqSent | EndpointPhase::RepSent | EndpointPhase::RepReceived => {
                    self.refused(id, RejReason::CONSUMER_DEFINED);
                }
                EndpointPhase::Established => self.receive_dreq(id),
                EndpointPhase::DreqSent => self.receive_drep(id),
                EndpointPhase::SidrReqSent => self.answered(id, SidrStatus::REJECTED),
                EndpointPhase::SidrReqReceived => self.forget(id),
                EndpointPhase::DreqReceived | EndpointPhase::TimeWait | EndpointPhase::Idle => {}
            }
        }
    }

    /// Returns the connection that a message is for. The communication IDs of
    /// both ends must match, as far as both are known.
    fn find(&self, from: Peer, sender: CommId, receiver: CommId) -> Option<CommId> {
        let id = if receiver == CommId::NONE {
            // A REJ from a peer that has not seen a message of this end.
            *self.remotes.get(&(from, sender))?
        } else {
            receiver
        };
        let endpoint = self.endpoints.get(&id)?;
        // Another host may have several addresses, and answer from any of them.
        let is_from_peer = match (endpoint.peer, from) {
            (Peer::Host(_), Peer::Host(_)) => true,
            (peer, from) => peer == from,
        };
        let matches = is_from_peer
            && endpoint.state != EndpointPhase::Idle
            && (endpoint.remote == CommId::NONE || endpoint.remote == sender);
        matches.then_some(id)
    }

    fn receive_req(&mut self, from: Peer, sender: CommId, req: Box<Req>) {
        if let Some(&id) = self.remotes.get(&(from, sender)) {
            // A repeated request: the reply was lost, which the timer of the
            // reply handles, or the application has not decided.
            let waits = self.in_state(id, &[EndpointPhase::ReqReceived]);
            if waits.is_ok_and(|endpoint| endpoint.delayed) {
                self.send(id, delay(Answers::Req));
            }
            return;
        }
        let link = Link {
            path: Some(req.path.reversed()),
            remote_qpn: req.qpn,
            rq_psn: 0,
            sq_psn: req.starting_psn,
            responder_resources: req.initiator_depth,
            initiator_depth: req.responder_resources,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            ack_timeout: (req.path.packet_life_time + 1).min(31),
            ..Link::default()
        };
        let id = self.add(Endpoint {
            state: EndpointPhase::ReqReceived,
            peer: from,
            remote: sender,
            delayed: false,
            pending: None,
            retries_left: 0,
            max_retries: req.max_cm_retries,
            timeout: timeout(req.response_timeout),
            link,
        });
        self.remotes.insert((from, sender), id);
        self.report(id, Event::Request(req));
    }

    fn receive_sidr_req(&mut self, from: Peer, sender: CommId, req: Box<SidrReq>) {
        if self.remotes.contains_key(&(from, sender)) {
            return;
        }
        let id = self.add(Endpoint {
            state: EndpointPhase::SidrReqReceived,
            peer: from,
            remote: sender,
            delayed: false,
            pending: None,
            retries_left: 0,
            max_retries: 0,
            timeout: 0,
            link: Link {
                service_id: req.service_id,
                ..Link::default()
            },
        });
        self.remotes.insert((from, sender), id);
        self.report(id, Event::ServiceRequest(req));
    }

    fn receive_mra(&mut self, id: CommId, time: u8) {
        let Ok(endpoint) = self.in_state(id, &[EndpointPhase::ReqSent, EndpointPhase::RepSent])
        else {
            return;
        };
        let duration = timeout(time) + endpoint.timeout;
        self.timers.start(id, duration);
    }

    fn receive_rep(&mut self, id: CommId, sender: CommId, rep: Box<Rep>) {
        if self.in_state(id, &[EndpointPhase::Established]).is_ok() {
            // The RTU was lost.
            return self.send(id, Body::Rtu);
        }
        if self
            .in_state(id, &[EndpointPhase::RepReceived])
            .is_ok_and(|endpoint| endpoint.delayed)
        {
            return self.send(id, delay(Answers::Rep));
        }
        let Ok(endpoint) = self.in_state(id, &[EndpointPhase::ReqSent]) else {
            return;
        };
        endpoint.state = EndpointPhase::RepReceived;
        endpoint.remote = sender;
        let link = &mut endpoint.link;
        link.remote_qpn = rep.qpn;
        link.sq_psn = rep.starting_psn;
        link.responder_resources = rep.initiator_depth;
        link.initiator_depth = rep.responder_resources;
        link.rnr_retry_count = rep.rnr_retry_count;
        let life_time = link.path.map_or(0, |path| path.packet_life_time.min(31));
        link.ack_timeout = ack_timeout(rep.target_ack_delay, life_time);
        let peer = endpoint.peer;
        self.remotes.insert((peer, sender), id);
        self.stop_repeating(id);
        self.report(id, Event::Reply(rep));
    }

    fn receive_rtu(&mut self, id: CommId) {
        let Ok(endpoint) = self.in_state(id, &[EndpointPhase::RepSent]) else {
            return;
        };
        endpoint.state = EndpointPhase::Established;
        self.stop_repeating(id);
        self.report(id, Event::Established);
    }

    fn receive_rej(&mut self, id: CommId, rej: Box<Rej>) {
        use EndpointPhase::{DreqSent, Established, RepReceived, RepSent, ReqReceived, ReqSent};
        let Some(endpoint) = self.endpoints.get(&id) else {
            return;
        };
        match endpoint.state {
            ReqSent | ReqReceived | RepSent => self.forget(id),
            RepReceived | DreqSent | Established => self.enter_time_wait(id),
            _ => return,
        }
        self.report(id, Event::Rejected(rej));
    }

    fn receive_dreq(&mut self, id: CommId) {
        use EndpointPhase::{DreqReceived, DreqSent, Established, RepSent, TimeWait};
        let Some(endpoint) = self.endpoints.get_mut(&id) else {
            return;
        };
        match endpoint.state {
            // The peer's RTU was lost, or both ends disconnect at once.
            RepSent | DreqSent | Established => endpoint.state = DreqReceived,
            // The DREP was lost.
            TimeWait => return self.send(id, Body::Drep),
            _ => return,
        }
        self.stop_repeating(id);
        self.report(id, Event::DisconnectRequested);
    }

    fn receive_drep(&mut self, id: CommId) {
        let states = [EndpointPhase::DreqSent, EndpointPhase::DreqReceived];
        if self.in_state(id, &states).is_ok() {
            self.enter_time_wait(id);
            self.report(id, Event::Disconnected);
        }
    }
}

/// Returns the message that the reply takes longer.
fn delay(answers: Answers) -> Body {
    Body::Mra {
        answers,
        time: SERVICE_TIME,
    }
}

/// Returns the answer of a host on which no process has the service or the connection that a
/// request is for; `None` if it is no request. The process that answers is in a slot.
pub(crate) fn answer_of_none(request: &Message, slot: u8) -> Option<Message> {
    let body = match &request.body {
        Body::Dreq { .. } => Body::Drep,
        Body::Req(_) => Body::Rej(Box::new(Rej {
            answers: Answers::Req,
            guid: None,
            reason: RejReason::INVALID_SERVICE_ID,
            private_data: [0; Rej::PRIVATE_DATA],
        })),
        Body::SidrReq(req) => {
            Body::SidrRep(service_answer(req.service_id, SidrStatus::UNSUPPORTED))
        }
        _ => return None,
    };
    let sender = match request.receiver {
        CommId::NONE => CommId::before(slot, 0).next(),
        known => known,
    };
    Some(Message {
        sender,
        receiver: request.sender,
        body,
    })
}

/// Returns a communication ID for a message about a connection that does not
/// exist any more. It must not be 0, which no connection has.
fn receiver_or(receiver: CommId) -> CommId {
    if receiver == CommId::NONE {
        CommId(u32::MAX)
    } else {
        receiver
    }
}

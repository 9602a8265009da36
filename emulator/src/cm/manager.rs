//! The connections of a process, and what the application does with them.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use super::endpoint::{Attributes, Endpoint, EndpointPhase, Link, QpState, reply_timeout};
use super::message::{
    Answers, Body, CommId, Message, Path, Rej, RejReason, Rep, Req, SidrRep, SidrReq, SidrStatus,
};
use super::timers::Timers;
use crate::spec::{Nanos, PortAddress};

/// The operation is not possible in the state of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrongState;

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    /// A process of this host, by its slot; 0 is none.
    Process(u8),
    /// Another host.
    Host(PortAddress),
}

impl Peer {
    /// No process: that of a connection has died, or there never was one.
    pub(super) const NONE: Self = Self::Process(0);
}

/// A message, and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing {
    pub(crate) to: Peer,
    /// The path of the connection, if it has one.
    pub(crate) path: Option<Path>,
    pub(crate) message: Message,
}

/// What happened to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A peer wants to connect. The connection is new.
    Request(Box<Req>),
    /// The peer has accepted. [`Manager::confirm`] completes the connection.
    Reply(Box<Rep>),
    /// The peer has confirmed; the connection is established.
    Established,
    /// The peer has refused, or has given up.
    Rejected(Box<Rej>),
    /// The peer did not answer a REQ or REP.
    Unreachable,
    /// The peer wants to disconnect.
    DisconnectRequested,
    /// The peer has confirmed the disconnect.
    Disconnected,
    /// The peer did not answer a DREQ.
    DisconnectTimeout,
    /// No packet of the connection can arrive any more.
    TimeWaitOver,
    /// A peer asks for the queue pair of a service. The connection is new.
    ServiceRequest(Box<SidrReq>),
    /// The answer to a question for the queue pair of a service.
    ServiceReply(Box<SidrRep>),
    /// The question was not answered.
    ServiceTimeout,
}

/// The connections of a process.
#[derive(Debug, Default)]
pub(crate) struct Manager {
    last_id: CommId,
    pub(super) endpoints: HashMap<CommId, Endpoint>,
    /// Connections by the other end and its communication ID.
    pub(super) remotes: HashMap<(Peer, CommId), CommId>,
    pub(super) timers: Timers<CommId>,
    outbox: VecDeque<Outgoing>,
    events: VecDeque<(CommId, Event)>,
}

impl Manager {
    /// Returns the manager of the process in a slot, which is in its communication IDs: where
    /// several processes receive for one address, it says which one a message is for. They
    /// count from a number that should be random: a host that was switched off without a word
    /// would otherwise have those of its connections again, which its peers still know.
    pub(crate) fn of(slot: u8, start: u64) -> Self {
        Self {
            last_id: CommId::before(slot, start),
            ..Self::default()
        }
    }

    /// Sends a request to connect to `peer`. If there is none,
    /// because no process on the host listens, the request is rejected as that
    /// host's manager would have done.
    pub(crate) fn connect(&mut self, peer: Option<Peer>, req: Req) -> CommId {
        let link = Link {
            path: Some(req.path),
            guid: req.guid,
            rq_psn: req.starting_psn,
            responder_resources: req.responder_resources,
            initiator_depth: req.initiator_depth,
            retry_count: req.retry_count,
            ..Link::default()
        };
        let id = self.add(Endpoint {
            state: EndpointPhase::ReqSent,
            peer: peer.unwrap_or(Peer::NONE),
            remote: CommId::NONE,
            delayed: false,
            pending: None,
            retries_left: 0,
            max_retries: req.max_cm_retries,
            timeout: reply_timeout(&req),
            link,
        });
        if peer.is_none() {
            self.refused(id, RejReason::INVALID_SERVICE_ID);
        } else {
            self.send_until_answered(id, Body::Req(Box::new(req)));
        }
        id
    }

    /// Asks `peer` for the queue pair of a service, and repeats the
    /// question `retries` times at intervals of `interval` nanoseconds.
    pub(crate) fn ask(
        &mut self,
        peer: Option<Peer>,
        req: SidrReq,
        interval: Nanos,
        retries: u8,
    ) -> CommId {
        let id = self.add(Endpoint {
            state: EndpointPhase::SidrReqSent,
            peer: peer.unwrap_or(Peer::NONE),
            remote: CommId::NONE,
            delayed: false,
            pending: None,
            retries_left: 0,
            max_retries: retries,
            timeout: interval,
            link: Link::default(),
        });
        if peer.is_none() {
            self.answered(id, SidrStatus::UNSUPPORTED);
        } else {
            self.send_until_answered(id, Body::SidrReq(Box::new(req)));
        }
        id
    }

    /// Tells the peer, if it repeats its REQ or REP, that the reply takes
    /// longer: the application has not decided yet.
    pub(crate) fn delay_reply(&mut self, id: CommId) {
        if let Some(endpoint) = self.endpoints.get_mut(&id) {
            endpoint.delayed = true;
        }
    }

    /// Accepts a request.
    ///
    /// # Errors
    /// [`WrongState`] unless the connection is a request.
    pub(crate) fn accept(&mut self, id: CommId, rep: Rep) -> Result<(), WrongState> {
        let endpoint = self.in_state(id, &[EndpointPhase::ReqReceived])?;
        let link = &mut endpoint.link;
        link.rq_psn = rep.starting_psn;
        link.responder_resources = rep.responder_resources;
        link.initiator_depth = rep.initiator_depth;
        endpoint.state = EndpointPhase::RepSent;
        self.send_until_answered(id, Body::Rep(Box::new(rep)));
        Ok(())
    }

    /// Sets the PSN that the queue pair of a request will expect. It must be
    /// known before the request is accepted.
    pub(crate) fn expect_psn(&mut self, id: CommId, rq_psn: u32) {
        if let Some(endpoint) = self.endpoints.get_mut(&id) {
            endpoint.link.rq_psn = rq_psn;
        }
    }

    /// Answers a question for the queue pair of a service.
    ///
    /// # Errors
    /// [`WrongState`] unless the connection is such a question.
    pub(crate) fn answer(&mut self, id: CommId, mut rep: SidrRep) -> Result<(), WrongState> {
        let endpoint = self.in_state(id, &[EndpointPhase::SidrReqReceived])?;
        rep.service_id = endpoint.link.service_id;
        self.send(id, Body::SidrRep(Box::new(rep)));
        self.forget(id);
        Ok(())
    }

    /// Confirms the reply to a request: the connection is established.
    ///
    /// # Errors
    /// [`WrongState`] unless a reply has arrived.
    pub(crate) fn confirm(&mut self, id: CommId) -> Result<(), WrongState> {
        self.in_state(id, &[EndpointPhase::RepReceived])?.state = EndpointPhase::Established;
        self.send(id, Body::Rtu);
        Ok(())
    }

    /// Records that a message of the peer has arrived on the queue pair, so the
    /// connection is established before the peer's confirmation. Returns
    /// whether it was established already.
    ///
    /// # Errors
    /// [`WrongState`] unless the connection was accepted.
    pub(crate) fn established_by_traffic(&mut self, id: CommId) -> Result<bool, WrongState> {
        if self.in_state(id, &[EndpointPhase::Established]).is_ok() {
            return Ok(true);
        }
        self.in_state(id, &[EndpointPhase::RepSent])?.state = EndpointPhase::Established;
        self.stop_repeating(id);
        self.report(id, Event::Established);
        Ok(false)
    }

    /// Refuses a request or a reply.
    ///
    /// # Errors
    /// [`WrongState`] if the connection is established, closed or refused.
    pub(crate) fn reject(
        &mut self,
        id: CommId,
        reason: RejReason,
        private_data: [u8; Rej::PRIVATE_DATA],
    ) -> Result<(), WrongState> {
        use EndpointPhase::{RepReceived, RepSent, ReqReceived, ReqSent};
        let endpoint = self.in_state(id, &[ReqSent, ReqReceived, RepSent, RepReceived])?;
        let was_accepted = endpoint.state == RepSent;
        let body = refusal(endpoint, reason, private_data);
        self.send(id, body);
        if was_accepted {
            self.enter_time_wait(id);
        } else {
            self.forget(id);
        }
        Ok(())
    }

    /// Requests a disconnect.
    ///
    /// # Errors
    /// [`WrongState`] unless the connection is established.
    pub(crate) fn disconnect(&mut self, id: CommId) -> Result<(), WrongState> {
        let endpoint = self.in_state(id, &[EndpointPhase::Established])?;
        endpoint.state = EndpointPhase::DreqSent;
        let qpn = endpoint.link.remote_qpn;
        self.send_until_answered(id, Body::Dreq { qpn });
        Ok(())
    }

    /// Confirms a disconnect that the peer has requested.
    ///
    /// # Errors
    /// [`WrongState`] unless the peer has.
    pub(crate) fn confirm_disconnect(&mut self, id: CommId) -> Result<(), WrongState> {
        self.in_state(id, &[EndpointPhase::DreqReceived])?;
        self.send(id, Body::Drep);
        self.enter_time_wait(id);
        Ok(())
    }

    /// Ends a connection in any state, as the kernel does when its file is
    /// closed: the peer is told, once.
    pub(crate) fn destroy(&mut self, id: CommId) {
        let Some(endpoint) = self.endpoints.get(&id) else {
            return;
        };
        let none = [0; Rej::PRIVATE_DATA];
        let last = match endpoint.state {
            EndpointPhase::ReqSent => Some(refusal(endpoint, RejReason::TIMEOUT, none)),
            EndpointPhase::ReqReceived | EndpointPhase::RepSent | EndpointPhase::RepReceived => {
                Some(refusal(endpoint, RejReason::CONSUMER_DEFINED, none))
            }
            EndpointPhase::Established => Some(Body::Dreq {
                qpn: endpoint.link.remote_qpn,
            }),
            EndpointPhase::DreqReceived => Some(Body::Drep),
            EndpointPhase::SidrReqReceived => {
                let service_id = endpoint.link.service_id;
                Some(Body::SidrRep(service_answer(
                    service_id,
                    SidrStatus::REJECTED,
                )))
            }
            EndpointPhase::Idle
            | EndpointPhase::DreqSent
            | EndpointPhase::TimeWait
            | EndpointPhase::SidrReqSent => None,
        };
        if let Some(body) = last {
            self.send(id, body);
        }
        self.drop_endpoint(id);
    }

    /// Ends a connection without a message to the peer, which will send its
    /// request again.
    pub(crate) fn ignore_request(&mut self, id: CommId) {
        self.drop_endpoint(id);
    }

    /// Returns the attributes with which the queue pair of a connection moves
    /// to a state.
    ///
    /// # Errors
    /// [`WrongState`] if they are not known yet.
    pub(crate) fn attributes(&self, id: CommId, state: QpState) -> Result<Attributes, WrongState> {
        let endpoint = self.endpoints.get(&id).ok_or(WrongState)?;
        endpoint.attributes(state).ok_or(WrongState)
    }

    /// Returns the processes of this host with which there are connections.
    pub(crate) fn peers(&self) -> u64 {
        let open = self
            .endpoints
            .values()
            .filter(|it| it.state != EndpointPhase::Idle);
        open.fold(0, |peers, it| match it.peer {
            Peer::Process(slot) => peers | bit(slot),
            Peer::Host(_) => peers,
        })
    }

    /// Handles the timers that have expired. Returns the next deadline.
    pub(crate) fn work(&mut self, now: Nanos) -> Option<Nanos> {
        self.timers.begin(now);
        while let Some(id) = self.timers.expire(now) {
            self.timed_out(id);
            self.timers.begin(now);
        }
        self.timers.next()
    }

    /// Returns whether [`work`](Self::work) or the outbox has something to do.
    pub(crate) fn has_work(&self) -> bool {
        self.timers.has_unstarted() || !self.outbox.is_empty()
    }

    /// Passes the messages to send to `send`, in order. It returns `false` for a
    /// message that cannot be sent now. Returns whether a message was sent.
    pub(crate) fn send_messages(&mut self, mut send: impl FnMut(&Outgoing) -> bool) -> bool {
        let before = self.outbox.len();
        self.outbox.retain(|outgoing| !send(outgoing));
        self.outbox.len() < before
    }

    pub(super) fn discard_messages_to(&mut self, peer: Peer) {
        self.outbox.retain(|outgoing| outgoing.to != peer);
    }

    /// Takes the oldest event.
    pub(crate) fn next_event(&mut self) -> Option<(CommId, Event)> {
        self.events.pop_front()
    }

    fn timed_out(&mut self, id: CommId) {
        let Some(endpoint) = self.endpoints.get_mut(&id) else {
            return;
        };
        if endpoint.state == EndpointPhase::TimeWait {
            self.forget(id);
            self.report(id, Event::TimeWaitOver);
            return;
        }
        let Some(message) = endpoint.pending.clone() else {
            return;
        };
        if endpoint.retries_left > 0 {
            endpoint.retries_left -= 1;
            let (to, duration) = (endpoint.peer, endpoint.timeout);
            let path = endpoint.link.path;
            self.outbox.push_back(Outgoing { to, path, message });
            self.timers.start(id, duration);
            return;
        }
        let event = match endpoint.state {
            EndpointPhase::DreqSent => {
                self.enter_time_wait(id);
                self.report(id, Event::DisconnectTimeout);
                return;
            }
            EndpointPhase::SidrReqSent => Event::ServiceTimeout,
            _ => Event::Unreachable,
        };
        self.forget(id);
        self.report(id, event);
    }

    pub(super) fn add(&mut self, endpoint: Endpoint) -> CommId {
        loop {
            self.last_id = self.last_id.next();
            let id = self.last_id;
            if let Entry::Vacant(free) = self.endpoints.entry(id) {
                free.insert(endpoint);
                return id;
            }
        }
    }

    pub(super) fn report(&mut self, id: CommId, event: Event) {
        self.events.push_back((id, event));
    }

    /// Reports a refusal by a manager that there is not, or not any more.
    pub(super) fn refused(&mut self, id: CommId, reason: RejReason) {
        self.forget(id);
        let rej = Rej {
            answers: Answers::Other,
            guid: None,
            reason,
            private_data: [0; Rej::PRIVATE_DATA],
        };
        self.report(id, Event::Rejected(Box::new(rej)));
    }

    pub(super) fn answered(&mut self, id: CommId, status: SidrStatus) {
        self.forget(id);
        self.report(id, Event::ServiceReply(service_answer(0, status)));
    }

    pub(super) fn send(&mut self, id: CommId, body: Body) {
        let Some(endpoint) = self.endpoints.get(&id) else {
            return;
        };
        let (to, receiver) = (endpoint.peer, endpoint.remote);
        let path = endpoint.link.path;
        let message = Message {
            sender: id,
            receiver,
            body,
        };
        self.outbox.push_back(Outgoing { to, path, message });
    }

    /// Sends a message to a connection of `to` that this end does not know.
    pub(super) fn send_unknown(&mut self, to: Peer, message: Message) {
        let path = None;
        self.outbox.push_back(Outgoing { to, path, message });
    }

    pub(super) fn send_until_answered(&mut self, id: CommId, body: Body) {
        let Some(endpoint) = self.endpoints.get_mut(&id) else {
            return;
        };
        let message = Message {
            sender: id,
            receiver: endpoint.remote,
            body,
        };
        endpoint.pending = Some(message.clone());
        endpoint.retries_left = endpoint.max_retries;
        let (to, duration) = (endpoint.peer, endpoint.timeout);
        let path = endpoint.link.path;
        self.outbox.push_back(Outgoing { to, path, message });
        self.timers.start(id, duration);
    }

    pub(super) fn stop_repeating(&mut self, id: CommId) {
        self.timers.stop(id);
        if let Some(endpoint) = self.endpoints.get_mut(&id) {
            endpoint.pending = None;
        }
    }

    pub(super) fn enter_time_wait(&mut self, id: CommId) {
        self.stop_repeating(id);
        if let Some(endpoint) = self.endpoints.get_mut(&id) {
            endpoint.state = EndpointPhase::TimeWait;
            let duration = endpoint.time_wait();
            self.timers.start(id, duration);
        }
    }

    /// Makes a connection idle: messages for it are not answered any more.
    pub(super) fn forget(&mut self, id: CommId) {
        self.stop_repeating(id);
        if let Some(endpoint) = self.endpoints.get_mut(&id) {
            endpoint.state = EndpointPhase::Idle;
            let key = (endpoint.peer, endpoint.remote);
            if self.remotes.get(&key) == Some(&id) {
                self.remotes.remove(&key);
            }
        }
    }

    fn drop_endpoint(&mut self, id: CommId) {
        self.forget(id);
        self.endpoints.remove(&id);
        self.events.retain(|(of, _)| *of != id);
    }

    pub(super) fn in_state(
        &mut self,
        id: CommId,
        states: &[EndpointPhase],
    ) -> Result<&mut Endpoint, WrongState> {
        let endpoint = self.endpoints.get_mut(&id).ok_or(WrongState)?;
        if states.contains(&endpoint.state) {
            Ok(endpoint)
        } else {
            Err(WrongState)
        }
    }
}

/// Returns the refusal of what an end of a connection has received.
fn refusal(endpoint: &Endpoint, reason: RejReason, private_data: [u8; Rej::PRIVATE_DATA]) -> Body {
    Body::Rej(Box::new(Rej {
        answers: match endpoint.state {
            EndpointPhase::ReqReceived => Answers::Req,
            EndpointPhase::RepReceived => Answers::Rep,
            _ => Answers::Other,
        },
        guid: (reason == RejReason::TIMEOUT).then_some(endpoint.link.guid),
        reason,
        private_data,
    }))
}

pub(super) fn service_answer(service_id: u64, status: SidrStatus) -> Box<SidrRep> {
    Box::new(SidrRep {
        service_id,
        status,
        qpn: 0,
        qkey: 0,
        ece: super::Ece::default(),
        private_data: [0; SidrRep::PRIVATE_DATA],
    })
}

fn bit(slot: u8) -> u64 {
    1u64.checked_shl(u32::from(slot).wrapping_sub(1))
        .unwrap_or(0)
}

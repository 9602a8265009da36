//! The connections of this host, as far as the messages show them that arrive. A process that
//! is killed does not end its own, as a kernel would.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::cm::{Body, CommId, Message};
use crate::spec::PortAddress;

/// Most connections that are known. The peers of others do not notice that a process is killed.
const MAX: usize = 65_536;
/// How often a peer is asked to disconnect that does not answer.
const REQUESTS: u8 = 5;

/// The connections, by the peer's address and its number of the connection.
#[derive(Default)]
pub(super) struct Connections(HashMap<(IpAddr, CommId), Connection>);

#[derive(Clone, Copy)]
struct Connection {
    end: LocalEnd,
    /// This host's number of the connection, once the peer has named it.
    local: CommId,
    /// The peer's queue pair.
    qpn: u32,
    /// How often the peer was asked to disconnect.
    requests: u8,
}

/// The end of a connection on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LocalEnd {
    pub(super) port: PortAddress,
    pub(super) address: IpAddr,
    /// The process.
    pub(super) slot: u8,
    pub(super) generation: u32,
}

impl Connections {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Follows a message of a peer to a process.
    pub(super) fn follow(&mut self, peer: IpAddr, message: &Message, end: LocalEnd) {
        let (qpn, local) = match &message.body {
            Body::Req(req) => (req.qpn, CommId::NONE),
            Body::Rep(rep) => (rep.qpn, message.receiver),
            Body::Rtu => {
                let known = self.0.get_mut(&(peer, message.sender));
                return known.into_iter().for_each(|it| it.local = message.receiver);
            }
            _ => return,
        };
        let new = Connection {
            end,
            local,
            qpn,
            requests: 0,
        };
        if self.0.len() >= MAX {
            // Refused requests, and those of strangers.
            self.0.retain(|_, it| it.local != CommId::NONE);
        }
        let has_room = self.0.len() < MAX;
        match self.0.get_mut(&(peer, message.sender)) {
            // It was sent again.
            Some(known) if known.qpn == qpn && known.end == end => {}
            Some(known) => *known = new,
            None if has_room => drop(self.0.insert((peer, message.sender), new)),
            None => {}
        }
    }

    /// Forgets the connection that a message of a peer ends.
    pub(super) fn forget_ended(&mut self, peer: IpAddr, message: &Message) {
        if matches!(message.body, Body::Dreq { .. } | Body::Drep | Body::Rej(_)) {
            self.0.remove(&(peer, message.sender));
        }
    }

    /// Returns the messages that end the connections of processes which are not alive, each
    /// with its peer's address.
    pub(super) fn end_dead(
        &mut self,
        is_alive: impl Fn(&LocalEnd) -> bool,
    ) -> Vec<(IpAddr, LocalEnd, Message)> {
        let mut messages = Vec::new();
        self.0.retain(|&(peer, receiver), it| {
            if is_alive(&it.end) {
                return true;
            }
            // The peer of an unanswered request asks again, and is refused.
            let is_known = it.local != CommId::NONE;
            if is_known {
                let message = Message {
                    sender: it.local,
                    receiver,
                    body: Body::Dreq { qpn: it.qpn },
                };
                messages.push((peer, it.end, message));
            }
            it.requests += 1;
            is_known && it.requests < REQUESTS
        });
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const END: LocalEnd = LocalEnd {
        port: PortAddress { device: 0, port: 1 },
        address: PEER,
        slot: 3,
        generation: 7,
    };

    fn message(body: Body) -> Message {
        let (sender, receiver) = (CommId(5), CommId(0x0300_0001));
        Message {
            sender,
            receiver,
            body,
        }
    }

    fn sample(is_one: impl Fn(&Body) -> bool) -> Message {
        let messages = crate::cm::tests::garbage::datagrams();
        let mut messages = messages.iter().filter_map(|it| crate::cm::decode(it));
        messages.find(|it| is_one(&it.body)).unwrap()
    }

    /// Returns connections with one that a peer has requested and confirmed.
    fn connected() -> Connections {
        let mut all = Connections::default();
        let mut request = sample(|it| matches!(it, Body::Req(_)));
        (request.sender, request.receiver) = (CommId(5), CommId::NONE);
        all.follow(PEER, &request, END);
        all.follow(PEER, &message(Body::Rtu), END);
        all.follow(PEER, &request, END);
        all
    }

    #[test]
    fn the_peers_of_a_dead_process_are_asked_to_disconnect_until_they_answer() {
        let mut all = connected();
        assert!(all.end_dead(|_| true).is_empty() && !all.is_empty());
        for _ in 0..2 {
            let [(PEER, END, asked)] = &all.end_dead(|_| false)[..] else {
                panic!("one message to the peer");
            };
            assert_eq!(asked.receiver, CommId(5));
            assert_eq!(asked.sender, CommId(0x0300_0001));
            assert!(matches!(asked.body, Body::Dreq { .. }));
        }
        all.forget_ended(PEER, &message(Body::Drep));
        assert!(all.is_empty());
        let mut silent = connected();
        let asked = (0..9).map(|_| silent.end_dead(|_| false).len());
        assert_eq!(asked.sum::<usize>(), usize::from(REQUESTS));
        assert!(silent.is_empty());
    }

    #[test]
    fn requests_that_are_not_confirmed_leave_room_for_connections() {
        let mut all = connected();
        let request = all.0[&(PEER, CommId(5))];
        let stranger = IpAddr::from([192, 0, 2, 2]);
        for number in 0..MAX as u32 {
            let local = CommId::NONE;
            let unconfirmed = Connection { local, ..request };
            all.0.insert((stranger, CommId(number)), unconfirmed);
        }
        let mut reply = sample(|it| matches!(it, Body::Rep(_)));
        (reply.sender, reply.receiver) = (CommId(6), CommId(0x0300_0002));
        all.follow(PEER, &reply, END);
        let ended = all.end_dead(|_| false);
        let mut known: Vec<_> = ended.iter().map(|(_, _, it)| it.receiver).collect();
        known.sort_unstable();
        assert_eq!(known, [CommId(5), CommId(6)]);
    }

    #[test]
    fn a_connection_that_ends_is_forgotten() {
        for body in [Body::Dreq { qpn: 1 }, Body::Drep] {
            let mut all = connected();
            all.forget_ended([192, 0, 2, 2].into(), &message(body.clone()));
            assert!(!all.is_empty());
            all.forget_ended(PEER, &message(body));
            assert!(all.is_empty());
        }
    }
}

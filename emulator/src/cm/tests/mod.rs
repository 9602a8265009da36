//! Two managers, whose messages the test carries.

mod connection;
mod endings;
pub(crate) mod garbage;

use super::manager::WrongState;
use super::message::{Answers, Body, Message, timeout};
use super::wire::encode;
use super::*;
use crate::spec::Nanos;

/// The process of the active side.
const ACTIVE: u8 = 1;
/// The process of the passive side.
const PASSIVE: u8 = 2;
const SERVICE: u64 = 0x0106_1234;
/// Longer than any timer but that of an MRA.
const LONG: Nanos = 60_000_000_000;

/// What happens to a message on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Arrives,
    Lost,
    Twice,
}

struct Pair {
    active: Manager,
    passive: Manager,
    now: Nanos,
    /// Number of messages sent so far.
    sent: usize,
    active_events: Vec<(CommId, Event)>,
    passive_events: Vec<(CommId, Event)>,
}

impl Pair {
    fn new() -> Self {
        Self {
            active: Manager::default(),
            passive: Manager::default(),
            now: 1,
            sent: 0,
            active_events: Vec::new(),
            passive_events: Vec::new(),
        }
    }

    /// Carries messages until there are none. `fate` decides by their number.
    fn carry(&mut self, mut fate: impl FnMut(usize) -> Fate) {
        loop {
            let mut messages = Vec::new();
            self.active
                .send_messages(|it| take(&mut messages, ACTIVE, PASSIVE, it.to, &it.message));
            self.passive
                .send_messages(|it| take(&mut messages, PASSIVE, ACTIVE, it.to, &it.message));
            self.active.work(self.now);
            self.passive.work(self.now);
            if messages.is_empty() {
                break;
            }
            for (from, message) in messages {
                let times = match fate(self.sent) {
                    Fate::Arrives => 1,
                    Fate::Lost => 0,
                    Fate::Twice => 2,
                };
                self.sent += 1;
                for _ in 0..times {
                    // Through the bytes, as on the fabric.
                    let message = decode(&encode(&message)).expect("encoded by us");
                    match from {
                        ACTIVE => self.passive.receive(Peer::Process(ACTIVE), message),
                        _ => self.active.receive(Peer::Process(PASSIVE), message),
                    }
                }
            }
        }
        self.active_events
            .extend(std::iter::from_fn(|| self.active.next_event()));
        self.passive_events
            .extend(std::iter::from_fn(|| self.passive.next_event()));
    }

    fn carry_all(&mut self) {
        self.carry(|_| Fate::Arrives);
    }

    /// Lets timers expire one after the other for `by`, and carries messages.
    fn advance(&mut self, by: Nanos, mut fate: impl FnMut(usize) -> Fate) {
        let end = self.now + by;
        loop {
            let next = [self.active.work(self.now), self.passive.work(self.now)];
            self.carry(&mut fate);
            let next = next.into_iter().flatten().min().filter(|&due| due <= end);
            let Some(due) = next else { break };
            self.now = due.max(self.now + 1);
        }
        self.now = end;
    }

    fn connect(&mut self) -> CommId {
        self.active.connect(Some(Peer::Process(PASSIVE)), req())
    }

    /// Returns the connection of the only request so far.
    fn request(&mut self) -> CommId {
        let requests: Vec<_> = std::mem::take(&mut self.passive_events);
        match &requests[..] {
            [(id, Event::Request(_))] => *id,
            other => panic!("expected one request: {other:?}"),
        }
    }

    /// Returns both ends of an established connection.
    fn establish(&mut self) -> (CommId, CommId) {
        let active = self.connect();
        self.carry_all();
        let passive = self.request();
        self.passive.expect_psn(passive, 70);
        self.passive.accept(passive, rep()).unwrap();
        self.carry_all();
        self.active.confirm(active).unwrap();
        self.carry_all();
        assert!(matches!(self.active_events[..], [(_, Event::Reply(_))]));
        assert_eq!(self.passive_events, [(passive, Event::Established)]);
        self.active_events.clear();
        self.passive_events.clear();
        (active, passive)
    }
}

fn take(
    to: &mut Vec<(u8, Message)>,
    from: u8,
    peer: u8,
    addressed: Peer,
    message: &Message,
) -> bool {
    // Messages to dead processes go nowhere.
    if addressed == Peer::Process(peer) {
        to.push((from, message.clone()));
    }
    true
}

fn path() -> Path {
    Path {
        sgid: [1; 16],
        dgid: [2; 16],
        slid: 1,
        dlid: 2,
        pkey: 0xffff,
        flow_label: 3,
        traffic_class: 0,
        hop_limit: 0,
        sl: 0,
        mtu: 5,
        rate: 16,
        packet_life_time: 17,
    }
}

fn req() -> Req {
    Req {
        service_id: SERVICE,
        guid: [8; 8],
        qpn: 0x01_0005,
        qp_type: 2,
        starting_psn: 50,
        responder_resources: 3,
        initiator_depth: 4,
        flow_control: true,
        retry_count: 6,
        rnr_retry_count: 5,
        srq: false,
        max_cm_retries: 15,
        response_timeout: 20,
        path: path(),
        ece: Ece::default(),
        private_data: data_of::<Req>(b"hello").unwrap(),
    }
}

fn rep() -> Rep {
    Rep {
        qpn: 0x02_0007,
        guid: [9; 8],
        starting_psn: 70,
        responder_resources: 4,
        initiator_depth: 3,
        flow_control: true,
        rnr_retry_count: 2,
        srq: true,
        target_ack_delay: 16,
        ece: Ece {
            vendor_id: 1,
            options: 2,
        },
        private_data: data_of::<Rep>(b"welcome").unwrap(),
    }
}

fn sidr_req() -> SidrReq {
    SidrReq {
        service_id: SERVICE,
        pkey: 0xffff,
        private_data: data_of::<SidrReq>(b"where?").unwrap(),
    }
}

fn sidr_rep() -> SidrRep {
    SidrRep {
        service_id: SERVICE,
        status: SidrStatus::SUCCESS,
        qpn: 9,
        qkey: 0x1234,
        ece: Ece::default(),
        private_data: data_of::<SidrRep>(b"here").unwrap(),
    }
}

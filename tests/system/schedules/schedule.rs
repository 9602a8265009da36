//! One schedule: the actions of the program, the device and the faults, in an
//! order that follows from a seed.

use std::time::Duration;

use dat_engine::control::QpState;
use dat_engine::{
    Completion, ConnectOptions, Endpoint, EndpointOptions, RecvRequest, Segment, SendFlags, SendOp,
    SendRequest, Status, TransportOptions,
};
use mlx5emu::faults::FaultSpec;

use super::account::{Account, Posted, Queue, Totals};
use super::random::Random;
use crate::support::device;
use crate::support::fixture::Fixture;
use crate::support::side::Memory;

/// Number of actions in a schedule.
const ACTIONS: usize = 150;
/// Bytes of a request's place in the common buffer.
const SLOT: usize = 512;
/// Bytes of a message's number, at its beginning.
const NUMBER: usize = 8;

/// The results of a schedule.
pub struct Outcome {
    pub totals: Totals,
    /// Every completion, in order.
    pub log: Vec<(u64, Status, u32)>,
}

struct Schedule {
    random: Random,
    // Fields are dropped in this order: the fixture last, because it releases the
    // device.
    _faults: Faults,
    ends: Vec<Endpoint>,
    fixture: Fixture,
    account: Account,
    free: Vec<usize>,
    messages: u64,
    shared: bool,
    log: Vec<(u64, Status, u32)>,
}

/// While this value exists, the device has faults.
struct Faults;

impl Faults {
    fn begin(spec: &FaultSpec) -> Self {
        device::emulator().expect("emulated").set_faults(Some(spec));
        Faults
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        device::emulator().expect("emulated").set_faults(None);
    }
}

fn faults(random: &mut Random, seed: u64) -> FaultSpec {
    let mut words = vec![format!("seed={seed}")];
    for name in ["drop", "dup", "delay", "reorder", "rnr"] {
        match random.below(4) {
            0 => words.push(format!("{name}=0.01")),
            1 => words.push(format!("{name}=0.1")),
            _ => {}
        }
    }
    if random.one_in(3) {
        let late = random.pick(&["1us", "70us", "2ms", "90ms"]);
        words.push(format!("delay=0.03:{late}"));
    }
    for (name, rarity, within) in [
        ("kill-qp", 4, 150),
        ("corrupt-cqe", 6, 80),
        ("port-flap", 5, 150),
        ("gid-change", 8, 150),
    ] {
        if random.one_in(rarity) {
            words.push(format!("{name}@{}", 1 + random.below(within)));
        }
    }
    words.join(",").parse().expect("a specification")
}

/// Runs the schedule of a seed. Panics if the account is wrong.
pub fn run(seed: u64) -> Outcome {
    let mut random = Random::new(seed);
    let fixture = Fixture::new(256);
    let shared = random.one_in(3);
    let pairs = 1 + random.below(2);
    let spec = faults(&mut random, seed);
    let slots = fixture.buffer.len() / SLOT;
    let mut schedule = Schedule {
        ends: (0..2 * pairs).map(|_| endpoint(&fixture, shared)).collect(),
        random,
        account: Account::default(),
        // The first place is for writes and reads, whose bytes are not checked.
        free: (1..slots).rev().collect(),
        messages: 0,
        shared,
        log: Vec::new(),
        fixture,
        _faults: Faults::begin(&spec),
    };
    for pair in 0..pairs {
        schedule.join(pair);
    }
    for _ in 0..ACTIONS {
        schedule.act();
    }
    schedule.finish();
    Outcome {
        totals: schedule.account.totals,
        log: schedule.log,
    }
}

fn endpoint(fixture: &Fixture, shared: bool) -> Endpoint {
    let options = EndpointOptions {
        srq: shared.then(|| fixture.srq.handle()),
        send_depth: 8,
        recv_depth: 8,
        inline_bytes: 16,
        ..EndpointOptions::new(fixture.cq.handle(), fixture.cq.handle())
    };
    fixture
        .domain
        .create_endpoint(&options)
        .expect("an endpoint")
}

impl Schedule {
    fn join(&mut self, pair: usize) {
        let options = ConnectOptions {
            transport: TransportOptions {
                // Both are sometimes shorter than the delays.
                timeout: Some(self.random.pick(&[8, 12, 14])),
                retry: Some(self.random.pick(&[1, 7, 7, 7])),
                rnr_retry: Some(self.random.pick(&[0, 3, 7, 7, 7])),
                ..TransportOptions::default()
            },
            reads_issued: self.random.pick(&[1, 16]),
            ..ConnectOptions::default()
        };
        let pair = &mut self.ends[2 * pair..2 * pair + 2];
        let at = [0, 1].map(|i: usize| pair[i].local_address(1).expect("an active port"));
        pair[0].connect(&at[1], &options).expect("connected");
        pair[1].connect(&at[0], &options).expect("connected");
    }

    fn act(&mut self) {
        let end = self.random.below(self.ends.len());
        match self.random.below(100) {
            0..30 => self.send(end),
            30..55 => self.receive(end),
            55..75 => device::steps(1 + self.random.below(40) as u32),
            75..85 => {
                let most = 1 + self.random.below(8);
                self.poll(most);
            }
            85..90 => device::run(),
            90..98 => {
                let time = self.random.pick(&[1, 50, 1_000, 20_000, 100_000]);
                device::advance(Duration::from_micros(time));
            }
            98 => {
                if self.random.one_in(3) {
                    self.ends[end].to_error().expect("to error");
                }
            }
            _ => {
                if self.random.one_in(2) {
                    self.reset(end / 2);
                }
            }
        }
    }

    fn segment(&self, slot: usize, length: usize) -> Segment {
        self.fixture
            .buffer
            .segment(slot * SLOT, length as u32)
            .expect("inside")
    }

    fn send(&mut self, end: usize) {
        let Some(slot) = self.free.pop() else { return };
        let wr_id = self.account.wr_id();
        let peer = end ^ 1;
        let length = NUMBER + self.random.below(SLOT - NUMBER);
        let spare = self.fixture.buffer.segment(0, SLOT as u32).expect("inside");
        let (remote_addr, rkey) = (spare.addr, self.fixture.buffer.rkey());
        let imm = wr_id as u32;
        let op = match self.random.below(10) {
            0..4 => SendOp::Send,
            4..6 => SendOp::SendImm(imm),
            6..8 => SendOp::Write { remote_addr, rkey },
            8 => SendOp::Read { remote_addr, rkey },
            _ => SendOp::Nop,
        };
        let takes_receive = matches!(op, SendOp::Send | SendOp::SendImm(_));
        let signalled = op == SendOp::Nop || self.random.one_in(2);
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, signalled);
        flags.set(SendFlags::FENCE, self.random.one_in(8));
        let mut segment = self.segment(slot, length);
        if takes_receive && self.random.one_in(3) {
            flags |= SendFlags::INLINE;
            segment.length = NUMBER as u32;
        }
        let message = takes_receive.then_some(self.messages);
        self.write_number(slot, self.messages);
        let request = SendRequest {
            wr_id,
            op,
            flags,
            segments: &[segment],
        };
        // SAFETY: the buffer outlives the endpoints, and the place is not used
        // otherwise before the request is accounted for.
        let posted = unsafe { self.ends[end].post_send(&request) };
        if posted.is_err() {
            self.account.refused();
            self.free.push(slot);
            return;
        }
        device::after_doorbell();
        self.messages += u64::from(takes_receive);
        let queue = Queue::Send(end);
        let request = Posted {
            queue,
            signalled,
            message,
            slot,
        };
        self.account.posted(request, peer);
    }

    fn receive(&mut self, end: usize) {
        let Some(slot) = self.free.pop() else { return };
        let request = RecvRequest {
            wr_id: self.account.wr_id(),
            segments: &[self.segment(slot, SLOT)],
        };
        // SAFETY: as in `send`.
        let posted = unsafe {
            if self.shared {
                self.fixture.srq.post(&request)
            } else {
                self.ends[end].post_recv(&request)
            }
        };
        if posted.is_err() {
            self.account.refused();
            self.free.push(slot);
            return;
        }
        let queue = match self.shared {
            true => Queue::Shared,
            false => Queue::Receive(end),
        };
        let request = Posted {
            queue,
            signalled: true,
            message: None,
            slot,
        };
        self.account.posted(request, end);
    }

    fn write_number(&self, slot: usize, number: u64) {
        let at = self.segment(slot, NUMBER).addr as *mut u64;
        // SAFETY: inside the buffer, at a place that no request uses now.
        unsafe { at.write_volatile(number) };
    }

    fn poll(&mut self, most: usize) -> bool {
        for taken in 0..most {
            let Some(completion) = self.fixture.cq.poll() else {
                return taken > 0;
            };
            self.account_for(&completion);
        }
        true
    }

    fn account_for(&mut self, completion: &Completion) {
        let end = self
            .ends
            .iter()
            .position(|end| end.qpn() == completion.qpn)
            .unwrap_or_else(|| panic!("of an unknown endpoint: {completion:?}"));
        let buffer = &self.fixture.buffer;
        let read = |slot: usize| {
            let segment = buffer.segment(slot * SLOT, NUMBER as u32).expect("inside");
            // SAFETY: inside the buffer, written by the device before the
            // completion.
            unsafe { (segment.addr as *const u64).read_volatile() }
        };
        let free = self.account.completed(completion, end, read);
        self.free.extend(free);
        // The QP number is left out: it differs between runs of one seed.
        self.log
            .push((completion.wr_id, completion.status, completion.byte_len));
    }

    /// Resets and reconnects both ends; their outstanding requests are dropped.
    fn reset(&mut self, pair: usize) {
        // A receive that an end took from the shared queue returns to it without
        // a completion: the account could not distinguish it from a lost one.
        if self.shared {
            return;
        }
        let ends = [2 * pair, 2 * pair + 1];
        for end in ends {
            self.ends[end].reset().expect("RESET");
        }
        // Packets that the wire still delays from before the reset arrive now, if
        // ever.
        device::advance(Duration::from_millis(100));
        // They may have taken the link down once more.
        for _ in 0..100 {
            if self.ends[2 * pair].local_address(1).is_ok() {
                break;
            }
            device::advance(Duration::from_millis(10));
        }
        let free = self.account.reset(ends);
        self.free.extend(free);
        self.join(pair);
    }

    /// Completes or flushes everything, and closes the account.
    fn finish(&mut self) {
        self.run_to_idle();
        self.check_delivery();
        for end in &mut self.ends {
            end.to_error().expect("to error");
        }
        self.run_to_idle();
        self.account.close();
        let left = self.account.shared_open() as u32;
        let capacity = self.fixture.srq.capacity();
        // Receives that no end took are still posted: exactly the others fit.
        let more = (0..).take_while(|_| self.shared_has_room()).count() as u32;
        assert_eq!(left + more, capacity, "places of the shared queue");
    }

    /// Checks that between two working ends every message arrives once it has a
    /// receive, and every request completes.
    fn check_delivery(&mut self) {
        for _ in 0..8 {
            for end in self.working_ends() {
                let wanted = self.account.messages_to(end);
                let posted = self.account.receives_open(end, self.shared);
                for _ in posted..wanted {
                    self.receive(end);
                }
            }
            self.run_to_idle();
        }
        for end in self.working_ends() {
            self.account.assert_no_sends_open(end);
        }
    }

    fn working_ends(&self) -> Vec<usize> {
        let is_working = |end: &usize| matches!(self.ends[*end].state(), Ok(QpState::ReadyToSend));
        let all = 0..self.ends.len();
        all.filter(|end| is_working(end) && is_working(&(end ^ 1)))
            .collect()
    }

    fn shared_has_room(&mut self) -> bool {
        let segments = [self.segment(0, SLOT)];
        let request = RecvRequest {
            wr_id: u64::MAX,
            segments: &segments,
        };
        // SAFETY: as in `send`; no endpoint takes receives any more.
        unsafe { self.fixture.srq.post(&request) }.is_ok()
    }

    /// Advances time beyond every retry, delay and port failure.
    fn run_to_idle(&mut self) {
        for _ in 0..4 {
            device::advance(Duration::from_millis(300));
            while self.poll(64) {}
        }
    }
}

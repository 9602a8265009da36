//! Two queue pairs made alike: libmlx5 posts to one, the engine to the other,
//! and the test completes the requests of both by hand. The device never runs.

use std::collections::VecDeque;

use dat_engine::{Access, SendFlags};

use super::behaviour::Behaviour;
use super::hand::{Cqe, HandRing};
use super::libmlx5::Answer;
use super::rings::{Place, Rings, Seen};
use super::side::{Memory, Refused, Side};
use super::store_tracer::StoreTracer;
use super::work::{BindWork, RecvWork, SendWork};

/// Bytes of a twin's registered memory.
pub const MEMORY: usize = 4096;

/// `MLX5_CQE_REQ` and `MLX5_CQE_RESP_SEND`.
pub const REQUEST_DONE: u8 = 0;
pub const RECEIVED: u8 = 2;
/// `MLX5_OPCODE_RDMA_READ` and `MLX5_OPCODE_UMR`.
pub const READ: u8 = 0x10;
const UMR: u8 = 0x25;
/// Bytes of a segment, among them the link that a shared WQE begins with.
const UNIT: usize = 16;
/// `mlx5_wqe_srq_next_seg::next_wqe_index`.
const LINK: core::ops::Range<usize> = 2..4;

/// One of the two.
pub struct Twin {
    pub side: Box<dyn Side>,
    pub rings: Rings,
    pub user_index: u32,
    pub send_cq: HandRing,
    pub recv_cq: HandRing,
    pub receives: Receives,
}

/// The receives of a queue, as completions name them: WQEs of a shared queue, or
/// counters of an own one.
#[derive(Debug)]
pub struct Receives {
    /// What the next post takes.
    next: u16,
    /// Bytes from one WQE to the next, of a shared queue.
    shared: Option<usize>,
    /// Those posted and not completed, in the order of posting.
    posted: Vec<u16>,
}

impl Receives {
    /// Of a new queue: a shared one of that stride, or an own one.
    pub fn new(shared: Option<usize>) -> Self {
        Receives {
            next: 0,
            shared,
            posted: vec![],
        }
    }

    /// What the next post takes.
    pub fn next(&self) -> u16 {
        self.next
    }

    /// Follows posts: of a shared queue from link to link, as the device does.
    fn note_posts(&mut self, rings: &Rings, count: usize) {
        let ring = self.shared.map(|stride| (stride, rings.recv_bytes()));
        for _ in 0..count {
            self.posted.push(self.next);
            self.next = match &ring {
                None => self.next.wrapping_add(1),
                Some((stride, ring)) => {
                    let link = &ring[usize::from(self.next) * stride..][LINK];
                    u16::from_be_bytes([link[0], link[1]])
                }
            };
        }
    }
}

/// A send that was posted and not completed.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    /// WQEBB counter of its first block.
    counter: u16,
    signaled: bool,
    opcode: u8,
}

/// Both, and what is outstanding on either.
pub struct Twins {
    pub theirs: Twin,
    pub ours: Twin,
    /// Compares all stores; without it, only what they leave.
    pub tracer: Option<StoreTracer>,
    /// How libmlx5 behaves where versions differ.
    pub behaviour: Behaviour,
    sends: VecDeque<Outstanding>,
    next: u32,
    received: u32,
}

impl Twins {
    pub fn new(theirs: Twin, ours: Twin, behaviour: Behaviour) -> Self {
        let of = |twin: &Twin| (twin.rings.send.1, twin.rings.recv.1);
        assert_eq!(of(&theirs), of(&ours), "the twins' rings differ in size");
        let sends = VecDeque::new();
        Twins {
            theirs,
            ours,
            tracer: None,
            behaviour,
            sends,
            next: 0,
            received: 0,
        }
    }

    /// Watches the doorbell register and records of both, and the rings if asked.
    pub fn trace(&mut self, rings: bool) {
        let mut tracer = StoreTracer::default();
        for twin in [&self.theirs, &self.ours] {
            // SAFETY: the pages belong to the queue pair, which lives as long
            // as the twins; the device does not run during a recording.
            unsafe {
                tracer.watch(twin.rings.register, 512);
                tracer.watch(twin.rings.send_record, 4);
                tracer.watch(twin.rings.recv_record, 4);
                if rings {
                    tracer.watch(twin.rings.send.0, twin.rings.send.1);
                    tracer.watch(twin.rings.recv.0, twin.rings.recv.1);
                }
            }
        }
        self.tracer = Some(tracer);
    }

    /// WQEBBs posted so far.
    pub fn position(&self) -> u32 {
        self.next
    }

    /// Posts a list to both; answers what each was seen to store.
    pub fn send(&mut self, list: &[SendWork]) -> (Result<(), Refused>, [Vec<Seen>; 2]) {
        let (theirs, their_stores) = self
            .theirs
            .post(self.tracer.as_ref(), |s| s.post_sends(list));
        let (ours, our_stores) = self.ours.post(self.tracer.as_ref(), |s| s.post_sends(list));
        assert_eq!(
            ours,
            theirs,
            "how many of {} requests were posted",
            list.len()
        );
        let posted = ours.map_or_else(|refused| refused.posted, |()| list.len());
        for work in &list[..posted] {
            let (counter, signaled, opcode) = (self.next as u16, work.signaled(), work.opcode());
            self.sends.push_back(Outstanding {
                counter,
                signaled,
                opcode,
            });
            self.next += work.wqebbs();
        }
        (ours, [their_stores, our_stores])
    }

    /// Posts a change of a window to both, in our numbers; answers the key.
    pub fn bind(
        &mut self,
        flags: SendFlags,
        to: Option<(u64, u64, Access)>,
    ) -> (Result<u32, Refused>, [Vec<Seen>; 2]) {
        let work = BindWork {
            cookie: u64::from(self.next),
            flags,
            keys: self.ours.side.window_keys(),
            to,
        };
        let (theirs, mut their_stores) = self
            .theirs
            .post(self.tracer.as_ref(), |s| s.post_bind(&work));
        if theirs.is_ok() {
            let wqe = self.next as usize * 64;
            for at in unwritten(to.is_some()) {
                self.theirs.rings.clear_send_byte(wqe + at);
                for seen in &mut their_stores {
                    if let (Place::Register(_), Some(byte)) = (seen.place, seen.bytes.get_mut(at)) {
                        *byte = 0;
                    }
                }
            }
        }
        let (ours, our_stores) = self.ours.post(self.tracer.as_ref(), |s| s.post_bind(&work));
        assert_eq!(ours, theirs, "the new key");
        if ours.is_ok() {
            self.sends.push_back(Outstanding {
                counter: self.next as u16,
                signaled: flags.contains(SendFlags::SIGNALED),
                opcode: UMR,
            });
            self.next += if to.is_some() { 3 } else { 2 };
        }
        (ours, [their_stores, our_stores])
    }

    /// Posts a list of receives to both.
    pub fn recv(&mut self, list: &[RecvWork]) -> (Result<(), Refused>, [Vec<Seen>; 2]) {
        let (theirs, their_stores) = self.theirs.post_recvs(self.tracer.as_ref(), list);
        let (ours, our_stores) = self.ours.post_recvs(self.tracer.as_ref(), list);
        assert_eq!(
            ours,
            theirs,
            "how many of {} receives were posted",
            list.len()
        );
        let posted = ours.map_or_else(|refused| refused.posted, |()| list.len());
        self.received += posted as u32;
        (ours, [their_stores, our_stores])
    }

    /// Fails if anything differs that a device could see.
    pub fn compare(&self, stores: &[Vec<Seen>; 2]) {
        let [theirs, ours] = stores;
        let translated = |(i, our): (usize, &Seen)| {
            let bytes = theirs.get(i).map_or(&[][..], |their| &their.bytes);
            if bytes.len() != our.bytes.len() {
                return our.clone();
            }
            Seen {
                place: our.place,
                bytes: self.translated(&our.bytes, bytes),
            }
        };
        let ours: Vec<_> = ours.iter().enumerate().map(translated).collect();
        assert_eq!(&ours, theirs, "stores by us, stores by libmlx5");
        self.compare_memory();
    }

    /// Our bytes of a WQE or a doorbell, with the number of libmlx5's twin.
    pub fn translated(&self, ours: &[u8], theirs: &[u8]) -> Vec<u8> {
        self.ours.rings.translated(ours, theirs, &self.theirs.rings)
    }

    /// Fails if rings or doorbell records differ.
    pub fn compare_memory(&self) {
        let [theirs, ours] = [&self.theirs.rings, &self.ours.rings];
        assert_eq!(
            ours.records(),
            theirs.records(),
            "doorbell records {{receive, send}}"
        );
        let sends = theirs.send_bytes();
        same_bytes(
            "send ring",
            &self.translated(&ours.send_bytes(), &sends),
            &sends,
        );
        self.compare_receives();
    }

    /// Fails if the device would read other receives from either ring, or would
    /// find anything else in them. Links of shared WQEs that are not posted are
    /// not compared: libmlx5 links a run at once, the engine with each post.
    fn compare_receives(&self) {
        let [theirs, ours] = [&self.theirs, &self.ours];
        let [mut their_ring, mut our_ring] = [theirs, ours].map(|twin| twin.rings.recv_bytes());
        let Some(stride) = ours.receives.shared else {
            return same_bytes("receive ring", &our_ring, &their_ring);
        };
        let posted = [&theirs.receives.posted, &ours.receives.posted];
        if self.behaviour.nearest_wqe {
            assert_eq!(posted[1], posted[0], "WQEs of our receives, of libmlx5's");
            let idle = (0..our_ring.len() / stride).filter(|&at| !posted[0].contains(&(at as u16)));
            for at in idle {
                for ring in [&mut their_ring, &mut our_ring] {
                    ring[at * stride..][LINK].fill(0);
                }
            }
            return same_bytes("shared receive ring", &our_ring, &their_ring);
        }
        // The same receives one after the other, in WQEs that may differ.
        assert_eq!(posted[1].len(), posted[0].len());
        for (&our, &their) in posted[1].iter().zip(posted[0]) {
            let [our, their] = [(our, &our_ring), (their, &their_ring)]
                .map(|(at, ring)| segments(&ring[usize::from(at) * stride..][..stride]));
            same_bytes("shared receive", our, their);
        }
    }

    /// Signalled requests that are not completed.
    pub fn signaled(&self) -> usize {
        self.sends.iter().filter(|send| send.signaled).count()
    }

    /// Requests posted since the last signalled one.
    pub fn unsignaled_run(&self) -> usize {
        self.sends
            .iter()
            .rev()
            .take_while(|send| !send.signaled)
            .count()
    }

    /// Completes the oldest signalled requests and what comes before them.
    pub fn complete_sends(&mut self, count: usize) {
        for _ in 0..count {
            while self.sends.front().is_some_and(|send| !send.signaled) {
                self.sends.pop_front();
            }
            let Some(done) = self.sends.pop_front() else {
                return;
            };
            let (opcode, sent, wqe_counter) = (REQUEST_DONE, done.opcode, done.counter);
            for twin in [&mut self.theirs, &mut self.ours] {
                twin.push_send(&Cqe {
                    opcode,
                    sent,
                    wqe_counter,
                    ..Cqe::default()
                });
            }
            self.same_answer(|side| side.poll_send());
        }
    }

    /// Completes the oldest receives of an own queue.
    pub fn complete_receives(&mut self, count: usize) {
        if self.ours.receives.shared.is_none() {
            for _ in 0..count.min(self.ours.receives.posted.len()) {
                self.complete_receive(0);
            }
        }
    }

    /// Receives of the shared queue that are not completed.
    pub fn shared_posted(&self) -> usize {
        let Receives { shared, posted, .. } = &self.ours.receives;
        shared.map_or(0, |_| posted.len())
    }

    /// Completes a receive of the shared queue, by its place in the order of posting.
    pub fn complete_shared(&mut self, place: usize) {
        if self.ours.receives.shared.is_some() {
            self.complete_receive(place);
        }
    }

    fn complete_receive(&mut self, place: usize) {
        for twin in [&mut self.theirs, &mut self.ours] {
            let wqe_counter = twin.receives.posted.remove(place);
            twin.push_recv(&Cqe {
                opcode: RECEIVED,
                wqe_counter,
                ..Cqe::default()
            });
        }
        self.same_answer(|side| side.poll_recv());
    }

    /// Polls both once and compares.
    pub fn same_answer(&mut self, poll: impl FnMut(&mut dyn Side) -> Option<Answer>) {
        let [theirs, ours] = self.answers(poll);
        assert_eq!(ours, theirs, "our answer, libmlx5's answer");
    }

    /// Polls both once: libmlx5's answer and ours, but for the number of the
    /// queue pair.
    pub fn answers(
        &mut self,
        mut poll: impl FnMut(&mut dyn Side) -> Option<Answer>,
    ) -> [Answer; 2] {
        [&mut self.theirs, &mut self.ours].map(|twin| {
            let mut answer = poll(&mut *twin.side).expect("a completion is there");
            assert_eq!(answer.qp_num, twin.rings.qpn);
            answer.qp_num = 0;
            answer
        })
    }

    /// Where the next send begins, in WQEBBs.
    pub fn next_counter(&self) -> u16 {
        self.next as u16
    }

    /// Forgets what was posted: the test completes it by [`Self::say`].
    pub fn forget_outstanding(&mut self) {
        self.sends.clear();
        for twin in [&mut self.theirs, &mut self.ours] {
            twin.receives.posted.clear();
        }
    }

    /// How completions name the receive that was posted last.
    pub fn last_receive(&self) -> u16 {
        let [theirs, ours] = [&self.theirs, &self.ours].map(|twin| twin.receives.posted.last());
        assert_eq!(ours, theirs, "of queues that complete in order");
        *ours.expect("a receive")
    }

    /// Writes a CQE about the queue pair's sends or receives to both, and
    /// polls both; answers what is in `memory` after either poll.
    pub fn say(&mut self, sends: bool, cqe: &Cqe, memory: &dyn Memory) -> [Vec<u8>; 2] {
        let ([theirs, ours], left) = self.told(sends, cqe, memory);
        assert_eq!(ours, theirs, "our answer, libmlx5's answer");
        left
    }

    /// As [`Self::say`], with answers that may differ.
    pub fn told(
        &mut self,
        sends: bool,
        cqe: &Cqe,
        memory: &dyn Memory,
    ) -> ([Answer; 2], [Vec<u8>; 2]) {
        for twin in [&mut self.theirs, &mut self.ours] {
            if sends {
                twin.push_send(cqe);
            } else {
                twin.push_recv(cqe);
            }
        }
        let mut left = Vec::new();
        let answers = self.answers(|side| {
            memory.write(0, &vec![0; memory.len()]);
            let answer = if sends {
                side.poll_send()
            } else {
                side.poll_recv()
            };
            left.push(memory.read(0, memory.len()));
            answer
        });
        (answers, left.try_into().expect("two polls"))
    }

    /// Receives posted so far.
    pub fn received(&self) -> u32 {
        self.received
    }

    /// Posts and completes so many receives on both.
    pub fn advance_receives(&mut self, count: u32) {
        let tracer = self.tracer.take();
        let nothing = RecvWork {
            cookie: 0,
            segments: vec![],
        };
        for _ in 0..count {
            self.recv(std::slice::from_ref(&nothing)).0.expect("room");
            self.complete_receive(0);
        }
        self.tracer = tracer;
    }

    /// Moves both rings forward to a WQEBB counter, by requests of one block.
    pub fn advance_to(&mut self, position: u32) {
        let tracer = self.tracer.take();
        let nothing = SendWork {
            cookie: 0,
            op: dat_engine::SendOp::Send,
            flags: SendFlags::SIGNALED,
            segments: vec![],
        };
        while self.next < position {
            let batch = (position - self.next).min(8) as usize;
            self.send(&vec![nothing.clone(); batch])
                .0
                .expect("room in the send queue");
            self.complete_sends(batch);
        }
        self.tracer = tracer;
    }
}

impl Twin {
    /// Posts a list of receives.
    pub fn post_recvs(
        &mut self,
        tracer: Option<&StoreTracer>,
        list: &[RecvWork],
    ) -> (Result<(), Refused>, Vec<Seen>) {
        let (result, stores) = self.post(tracer, |side| side.post_recvs(list));
        let posted = result.map_or_else(|refused| refused.posted, |()| list.len());
        self.receives.note_posts(&self.rings, posted);
        (result, stores)
    }

    /// Completes a request of the queue pair as `cqe` says.
    pub fn push_send(&mut self, cqe: &Cqe) {
        let cqe = self.addressed(cqe);
        self.send_cq.push(&cqe);
    }

    /// Completes a receive of the queue pair as `cqe` says.
    pub fn push_recv(&mut self, cqe: &Cqe) {
        let cqe = self.addressed(cqe);
        self.recv_cq.push(&cqe);
    }

    fn addressed(&self, cqe: &Cqe) -> Cqe {
        Cqe {
            qpn: self.rings.qpn,
            user_index: self.user_index,
            ..cqe.clone()
        }
    }

    fn post<R>(
        &mut self,
        tracer: Option<&StoreTracer>,
        post: impl FnOnce(&mut dyn Side) -> R,
    ) -> (R, Vec<Seen>) {
        match tracer {
            None => (post(&mut *self.side), vec![]),
            Some(tracer) => {
                let (result, stores) = tracer.record(|| post(&mut *self.side));
                (result, self.rings.seen(stores))
            }
        }
    }
}

/// Bytes of a bind's WQE that libmlx5 does not write: of the key's context
/// those that are reserved, or mean nothing in an unbind. There it leaves what
/// an older WQE left; the engine leaves zeroes.
fn unwritten(binds: bool) -> impl Iterator<Item = usize> {
    const CONTEXT: usize = 64;
    let written = move |at: usize| match at {
        0 | 4..8 => true,
        2 | 16..32 => binds,
        _ => false,
    };
    (0..64)
        .filter(move |&at| !written(at))
        .map(|at| CONTEXT + at)
}

/// The segments of a shared WQE, up to the one that ends them
/// (`MLX5_INVALID_LKEY`): behind it lies what an older receive has left.
fn segments(wqe: &[u8]) -> &[u8] {
    const END: [u8; UNIT] = [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let segments = &wqe[UNIT..];
    let end = segments.chunks(UNIT).position(|segment| segment == END);
    &segments[..end.map_or(segments.len(), |end| (end + 1) * UNIT)]
}

/// Compares without printing whole rings.
fn same_bytes(what: &str, ours: &[u8], theirs: &[u8]) {
    assert_eq!(ours.len(), theirs.len(), "length of the {what}");
    if let Some(wrong) = (0..ours.len()).find(|&i| ours[i] != theirs[i]) {
        let start = wrong & !63;
        let block = start..(start + 64).min(ours.len());
        panic!(
            "{what} differs at byte {wrong:#x}\n   ours {:02x?}\n theirs {:02x?}",
            &ours[block.clone()],
            &theirs[block]
        );
    }
}

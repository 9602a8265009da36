//! Two queue pairs with equal attributes, of which libmlx5 posts to one and the
//! engine to the other. The test completes the requests of both itself; the
//! device never runs.

use std::collections::VecDeque;

use dat_engine::{Access, SendFlags};

use super::behaviour::Behaviour;
use super::cqe_writer::{Cqe, CqeWriter};
use super::libmlx5::Answer;
use super::operations::opcode;
use super::rings::{Place, Rings, Seen};
use super::shadow_page::ShadowPage;
use super::side::{Memory, Refused, Side};
use super::store_tracer::StoreTracer;
use super::work::{BindWork, RecvWork, SendWork};

/// Size in bytes of each queue pair's registered memory.
pub const MEMORY: usize = 4096;

/// `MLX5_CQE_REQ` and `MLX5_CQE_RESP_SEND`.
pub const REQUEST_DONE: u8 = 0;
pub const RECEIVED: u8 = 2;
/// `MLX5_OPCODE_RDMA_READ` and `MLX5_OPCODE_UMR`.
pub const READ: u8 = 0x10;
const UMR: u8 = 0x25;
/// Size in bytes of a segment, such as the link that begins a shared WQE.
const UNIT: usize = 16;
/// `mlx5_wqe_srq_next_seg::next_wqe_index`.
const LINK: core::ops::Range<usize> = 2..4;

/// One of the two queue pairs.
pub struct ComparedQp {
    /// Memory over the doorbell registers of an existing device, so that it does not run.
    /// Dropped before `side`, so that its registers are in place when its queues are destroyed.
    pub _shadows: Vec<ShadowPage>,
    pub side: Box<dyn Side>,
    pub rings: Rings,
    pub user_index: u32,
    pub send_cq: CqeWriter,
    pub recv_cq: CqeWriter,
    pub receives: Receives,
}

/// The receives of a queue, as completions name them: WQE indices for a shared
/// queue, counters for a queue pair's own.
#[derive(Debug)]
pub struct Receives {
    /// What the next post uses.
    next: u16,
    /// Bytes from one WQE to the next, for a shared queue.
    shared: Option<usize>,
    /// Receives posted and not completed, in posting order.
    posted: Vec<u16>,
}

impl Receives {
    /// Begins with an empty queue: a shared one of that stride, or an own one.
    pub fn new(shared: Option<usize>) -> Self {
        Receives {
            next: 0,
            shared,
            posted: vec![],
        }
    }

    /// Returns what the next post uses.
    pub fn next(&self) -> u16 {
        self.next
    }

    /// Follows posts; for a shared queue from link to link, as the device does.
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

/// Both queue pairs, and the requests outstanding on each.
pub struct ComparedQps {
    pub theirs: ComparedQp,
    pub ours: ComparedQp,
    /// If set, compares all stores; otherwise only the final content.
    pub tracer: Option<StoreTracer>,
    /// The behaviour of libmlx5 where versions differ.
    pub behaviour: Behaviour,
    sends: VecDeque<Outstanding>,
    next: u32,
    received: u32,
}

impl ComparedQps {
    pub fn new(theirs: ComparedQp, ours: ComparedQp, behaviour: Behaviour) -> Self {
        let of = |compared_qp: &ComparedQp| (compared_qp.rings.send.1, compared_qp.rings.recv.1);
        assert_eq!(
            of(&theirs),
            of(&ours),
            "the rings of both queue pairs differ in size"
        );
        let sends = VecDeque::new();
        ComparedQps {
            theirs,
            ours,
            tracer: None,
            behaviour,
            sends,
            next: 0,
            received: 0,
        }
    }

    /// Watches the doorbell registers and records of both, and the rings if
    /// asked.
    pub fn trace(&mut self, rings: bool) {
        let mut tracer = StoreTracer::default();
        for compared_qp in [&self.theirs, &self.ours] {
            // SAFETY: the pages belong to queue pairs that live as long as this
            // value; the device does not run during a recording.
            unsafe {
                tracer.watch(compared_qp.rings.register, 512);
                tracer.watch(compared_qp.rings.send_record, 4);
                tracer.watch(compared_qp.rings.recv_record, 4);
                if rings {
                    tracer.watch(compared_qp.rings.send.0, compared_qp.rings.send.1);
                    tracer.watch(compared_qp.rings.recv.0, compared_qp.rings.recv.1);
                }
            }
        }
        self.tracer = Some(tracer);
    }

    /// Returns how many WQEBBs were posted so far.
    pub fn position(&self) -> u32 {
        self.next
    }

    /// Posts a list to both, and returns the stores of each.
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
            let (counter, signaled, opcode) = (self.next as u16, work.signaled(), opcode(work.op));
            self.sends.push_back(Outstanding {
                counter,
                signaled,
                opcode,
            });
            self.next += work.wqebbs();
        }
        (ours, [their_stores, our_stores])
    }

    /// Posts a bind to both, with the keys of the engine's side, and returns the
    /// new key.
    pub fn bind(
        &mut self,
        flags: SendFlags,
        to: Option<(u64, u64, Access)>,
    ) -> (Result<u32, Refused>, [Vec<Seen>; 2]) {
        let work = BindWork {
            wr_id: u64::from(self.next),
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

    /// Fails if there is a difference that a device could notice.
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
        assert_eq!(&ours, theirs, "stores of the engine, stores of libmlx5");
        self.compare_memory();
    }

    /// Returns the engine's bytes of a WQE or a doorbell, with the QP number of
    /// libmlx5's queue pair.
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

    /// Fails if the device would read other receives from either ring, or find
    /// any other difference in them. Links of shared WQEs that are not posted are
    /// not compared: libmlx5 links a run at once, the engine with each post.
    fn compare_receives(&self) {
        let [theirs, ours] = [&self.theirs, &self.ours];
        let [mut their_ring, mut our_ring] =
            [theirs, ours].map(|compared_qp| compared_qp.rings.recv_bytes());
        let Some(stride) = ours.receives.shared else {
            return same_bytes("receive ring", &our_ring, &their_ring);
        };
        let posted = [&theirs.receives.posted, &ours.receives.posted];
        if self.behaviour.nearest_wqe {
            assert_eq!(
                posted[1], posted[0],
                "WQEs of the engine's receives, of libmlx5's"
            );
            let idle = (0..our_ring.len() / stride).filter(|&at| !posted[0].contains(&(at as u16)));
            for at in idle {
                for ring in [&mut their_ring, &mut our_ring] {
                    ring[at * stride..][LINK].fill(0);
                }
            }
            return same_bytes("shared receive ring", &our_ring, &their_ring);
        }
        // The same receives in the same order, in WQEs that may differ.
        assert_eq!(posted[1].len(), posted[0].len());
        for (&our, &their) in posted[1].iter().zip(posted[0]) {
            let [our, their] = [(our, &our_ring), (their, &their_ring)]
                .map(|(at, ring)| segments(&ring[usize::from(at) * stride..][..stride]));
            same_bytes("shared receive", our, their);
        }
    }

    /// Returns the number of signalled requests that are not completed.
    pub fn signaled(&self) -> usize {
        self.sends.iter().filter(|send| send.signaled).count()
    }

    /// Returns the number of requests posted since the last signalled one.
    pub fn unsignaled_run(&self) -> usize {
        self.sends
            .iter()
            .rev()
            .take_while(|send| !send.signaled)
            .count()
    }

    /// Completes the oldest signalled requests, and those before them.
    pub fn complete_sends(&mut self, count: usize) {
        for _ in 0..count {
            while self.sends.front().is_some_and(|send| !send.signaled) {
                self.sends.pop_front();
            }
            let Some(done) = self.sends.pop_front() else {
                return;
            };
            let (opcode, sent, wqe_counter) = (REQUEST_DONE, done.opcode, done.counter);
            for compared_qp in [&mut self.theirs, &mut self.ours] {
                compared_qp.push_send(&Cqe {
                    opcode,
                    sent,
                    wqe_counter,
                    ..Cqe::default()
                });
            }
            self.same_answer(|side| side.poll_send());
        }
    }

    /// Completes the oldest receives of a queue pair's own queue.
    pub fn complete_receives(&mut self, count: usize) {
        if self.ours.receives.shared.is_none() {
            for _ in 0..count.min(self.ours.receives.posted.len()) {
                self.complete_receive(0);
            }
        }
    }

    /// Returns the number of receives of the shared queue that are not completed.
    pub fn shared_posted(&self) -> usize {
        let Receives { shared, posted, .. } = &self.ours.receives;
        shared.map_or(0, |_| posted.len())
    }

    /// Completes a receive of the shared queue, by its index in posting order.
    pub fn complete_shared(&mut self, place: usize) {
        if self.ours.receives.shared.is_some() {
            self.complete_receive(place);
        }
    }

    fn complete_receive(&mut self, place: usize) {
        for compared_qp in [&mut self.theirs, &mut self.ours] {
            let wqe_counter = compared_qp.receives.posted.remove(place);
            compared_qp.push_recv(&Cqe {
                opcode: RECEIVED,
                wqe_counter,
                ..Cqe::default()
            });
        }
        self.same_answer(|side| side.poll_recv());
    }

    /// Polls both once and compares the results.
    pub fn same_answer(&mut self, poll: impl FnMut(&mut dyn Side) -> Option<Answer>) {
        let [theirs, ours] = self.answers(poll);
        assert_eq!(
            ours, theirs,
            "the engine's completion, libmlx5's completion"
        );
    }

    /// Polls both once. Returns libmlx5's completion and the engine's, without
    /// the number of the queue pair.
    pub fn answers(
        &mut self,
        mut poll: impl FnMut(&mut dyn Side) -> Option<Answer>,
    ) -> [Answer; 2] {
        [&mut self.theirs, &mut self.ours].map(|compared_qp| {
            let mut answer = poll(&mut *compared_qp.side).expect("a completion exists");
            assert_eq!(answer.qp_num, compared_qp.rings.qpn);
            answer.qp_num = 0;
            answer
        })
    }

    /// Returns the WQEBB counter at which the next send begins.
    pub fn next_counter(&self) -> u16 {
        self.next as u16
    }

    /// Drops the record of posted requests: the test completes them by
    /// [`Self::complete`].
    pub fn clear_outstanding(&mut self) {
        self.sends.clear();
        for compared_qp in [&mut self.theirs, &mut self.ours] {
            compared_qp.receives.posted.clear();
        }
    }

    /// Returns how completions name the receive that was posted last.
    pub fn last_receive(&self) -> u16 {
        let [theirs, ours] =
            [&self.theirs, &self.ours].map(|compared_qp| compared_qp.receives.posted.last());
        assert_eq!(ours, theirs, "names in queues that complete in order");
        *ours.expect("a receive")
    }

    /// Writes a CQE of the queue pair's sends or receives to both, and polls
    /// both. Returns the content of `memory` after each poll.
    pub fn complete(&mut self, sends: bool, cqe: &Cqe, memory: &dyn Memory) -> [Vec<u8>; 2] {
        let ([theirs, ours], left) = self.completed(sends, cqe, memory);
        assert_eq!(
            ours, theirs,
            "the engine's completion, libmlx5's completion"
        );
        left
    }

    /// Like [`Self::complete`], with completions that may differ.
    pub fn completed(
        &mut self,
        sends: bool,
        cqe: &Cqe,
        memory: &dyn Memory,
    ) -> ([Answer; 2], [Vec<u8>; 2]) {
        for compared_qp in [&mut self.theirs, &mut self.ours] {
            if sends {
                compared_qp.push_send(cqe);
            } else {
                compared_qp.push_recv(cqe);
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

    /// Returns the number of receives posted so far.
    pub fn received(&self) -> u32 {
        self.received
    }

    /// Posts and completes this many receives on both.
    pub fn advance_receives(&mut self, count: u32) {
        let tracer = self.tracer.take();
        let nothing = RecvWork {
            wr_id: 0,
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
            wr_id: 0,
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

impl ComparedQp {
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

    /// Writes a CQE for a request of the queue pair.
    pub fn push_send(&mut self, cqe: &Cqe) {
        let cqe = self.addressed(cqe);
        self.send_cq.push(&cqe);
    }

    /// Writes a CQE for a receive of the queue pair.
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

/// Returns the bytes of a bind's WQE that libmlx5 does not write: reserved bytes
/// of the key's context, and bytes without meaning in an unbind. libmlx5 leaves
/// there what an older WQE had; the engine leaves zeroes.
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

/// Returns the segments of a shared WQE up to the one that ends them
/// (`MLX5_INVALID_LKEY`); after it an older receive's segments are left.
fn segments(wqe: &[u8]) -> &[u8] {
    const END: [u8; UNIT] = [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let segments = &wqe[UNIT..];
    let end = segments.chunks(UNIT).position(|segment| segment == END);
    &segments[..end.map_or(segments.len(), |end| (end + 1) * UNIT)]
}

/// Compares, and prints only the bytes around the first difference.
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

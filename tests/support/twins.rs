//! Two queue pairs made alike: libmlx5 posts to one, the engine to the other,
//! and the test completes the requests of both by hand. The device never runs.

use std::collections::VecDeque;

use dat_engine::{Access, SendFlags};

use super::hand::{Cqe, HandRing};
use super::libmlx5::Answer;
use super::rings::{Place, Rings, Seen};
use super::side::{Memory, Refused, Side};
use super::store_tracer::StoreTracer;
use super::work::{BindWork, RecvWork, SendWork};

/// Bytes of a twin's registered memory.
pub const MEMORY: usize = 4096;

/// `MLX5_CQE_REQ` and `MLX5_CQE_RESP_SEND`.
const REQUEST_DONE: u8 = 0;
const RECEIVED: u8 = 2;
/// `MLX5_OPCODE_UMR`.
const UMR: u8 = 0x25;

/// One of the two.
pub struct Twin {
    pub side: Box<dyn Side>,
    pub rings: Rings,
    pub user_index: u32,
    pub send_cq: HandRing,
    pub recv_cq: HandRing,
}

/// A shared receive queue that both fill alike, as far as the test needs it.
#[derive(Debug)]
pub struct SharedQueue {
    /// The WQE that the next post takes.
    pub head: u16,
    /// Bytes from one WQE to the next.
    pub stride: usize,
    /// WQEs posted and not completed, in the order of posting.
    posted: Vec<u16>,
}

impl SharedQueue {
    pub fn new(head: u16, stride: usize) -> Self {
        SharedQueue {
            head,
            stride,
            posted: vec![],
        }
    }

    /// Notes that WQEs were taken from the head of the free list.
    fn note_posts(&mut self, ring: &[u8], count: usize) {
        for _ in 0..count {
            self.posted.push(self.head);
            // `mlx5_wqe_srq_next_seg::next_wqe_index`.
            let link = usize::from(self.head) * self.stride + 2;
            self.head = u16::from_be_bytes([ring[link], ring[link + 1]]);
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
    sends: VecDeque<Outstanding>,
    receives: usize,
    pub shared: Option<SharedQueue>,
    next: u32,
    received: u32,
}

impl Twins {
    pub fn new(theirs: Twin, ours: Twin) -> Self {
        let of = |twin: &Twin| (twin.rings.send.1, twin.rings.recv.1);
        assert_eq!(of(&theirs), of(&ours), "the twins' rings differ in size");
        let sends = VecDeque::new();
        Twins {
            theirs,
            ours,
            tracer: None,
            sends,
            receives: 0,
            shared: None,
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
        let (theirs, their_stores) = self
            .theirs
            .post(self.tracer.as_ref(), |s| s.post_recvs(list));
        let (ours, our_stores) = self.ours.post(self.tracer.as_ref(), |s| s.post_recvs(list));
        assert_eq!(
            ours,
            theirs,
            "how many of {} receives were posted",
            list.len()
        );
        let posted = ours.map_or_else(|refused| refused.posted, |()| list.len());
        self.received += posted as u32;
        match &mut self.shared {
            Some(shared) => shared.note_posts(&self.theirs.rings.recv_bytes(), posted),
            None => self.receives += posted,
        }
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
        same_bytes("receive ring", &ours.recv_bytes(), &theirs.recv_bytes());
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
            for twin in [&mut self.theirs, &mut self.ours] {
                let (qpn, user_index) = (twin.rings.qpn, twin.user_index);
                let (opcode, sent, wqe_counter) = (REQUEST_DONE, done.opcode, done.counter);
                let cqe = Cqe {
                    opcode,
                    sent,
                    wqe_counter,
                    qpn,
                    user_index,
                    ..Cqe::default()
                };
                twin.send_cq.push(&cqe);
            }
            self.same_answer(|side| side.poll_send());
        }
    }

    /// Completes the oldest receives.
    pub fn complete_receives(&mut self, count: usize) {
        for _ in 0..count.min(self.receives) {
            self.receives -= 1;
            for twin in [&mut self.theirs, &mut self.ours] {
                let (qpn, user_index, opcode) = (twin.rings.qpn, twin.user_index, RECEIVED);
                twin.recv_cq.push(&Cqe {
                    opcode,
                    qpn,
                    user_index,
                    ..Cqe::default()
                });
            }
            self.same_answer(|side| side.poll_recv());
        }
    }

    /// Receives of the shared queue that are not completed.
    pub fn shared_posted(&self) -> usize {
        self.shared.as_ref().map_or(0, |shared| shared.posted.len())
    }

    /// Completes a receive of the shared queue, by its place in the order of posting.
    pub fn complete_shared(&mut self, place: usize) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        let wqe_counter = shared.posted.remove(place);
        for twin in [&mut self.theirs, &mut self.ours] {
            let (qpn, user_index, opcode) = (twin.rings.qpn, twin.user_index, RECEIVED);
            twin.recv_cq.push(&Cqe {
                opcode,
                wqe_counter,
                qpn,
                user_index,
                ..Cqe::default()
            });
        }
        self.same_answer(|side| side.poll_recv());
    }

    /// Polls both once and compares.
    pub fn same_answer(&mut self, mut poll: impl FnMut(&mut dyn Side) -> Option<Answer>) {
        let masked = |twin: &mut Twin, poll: &mut dyn FnMut(&mut dyn Side) -> _| {
            let mut answer: Option<Answer> = poll(&mut *twin.side);
            if let Some(answer) = &mut answer {
                assert_eq!(answer.qp_num, twin.rings.qpn);
                answer.qp_num = 0;
            }
            answer
        };
        let theirs = masked(&mut self.theirs, &mut poll);
        let ours = masked(&mut self.ours, &mut poll);
        assert!(theirs.is_some(), "libmlx5 sees no completion");
        assert_eq!(ours, theirs, "our answer, libmlx5's answer");
    }

    /// Where the next send begins, in WQEBBs.
    pub fn next_counter(&self) -> u16 {
        self.next as u16
    }

    /// Forgets what was posted: the test completes it by [`Self::say`].
    pub fn forget_outstanding(&mut self) {
        self.sends.clear();
        self.receives = 0;
        if let Some(shared) = &mut self.shared {
            shared.posted.clear();
        }
    }

    /// The WQE of the shared queue that was posted last.
    pub fn last_shared(&self) -> Option<u16> {
        self.shared.as_ref()?.posted.last().copied()
    }

    /// Writes a CQE about the queue pair's sends or receives to both, and
    /// polls both; answers what is in `memory` after either poll.
    pub fn say(&mut self, sends: bool, cqe: &Cqe, memory: &dyn Memory) -> [Vec<u8>; 2] {
        for twin in [&mut self.theirs, &mut self.ours] {
            let (qpn, user_index) = (twin.rings.qpn, twin.user_index);
            let ring = if sends {
                &mut twin.send_cq
            } else {
                &mut twin.recv_cq
            };
            ring.push(&Cqe {
                qpn,
                user_index,
                ..cqe.clone()
            });
        }
        let mut left = Vec::new();
        self.same_answer(|side| {
            memory.write(0, &vec![0; memory.len()]);
            let answer = if sends {
                side.poll_send()
            } else {
                side.poll_recv()
            };
            left.push(memory.read(0, memory.len()));
            answer
        });
        left.try_into().expect("two polls")
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
            if self.shared.is_some() {
                self.complete_shared(0);
            } else {
                self.complete_receives(1);
            }
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

//! The whole verbs path without libibverbs: the tests simulate the device.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use dv_sys::verbs::{ibv_mw, ibv_mw_bind, ibv_recv_wr, ibv_send_wr};

use super::chain::Chain;
use super::cq::Poller;
use super::device::{CompletionCalls, Device, QueueCalls, Refused, SharedCalls, Work};
use super::queue_pair::{QueuePair, QueuePairParts};
use super::quirks::Quirks;
use super::shared::SharedReceives;
use crate::completion::{Completion, CompletionOp, Status};
use crate::control::QpGrant;
use crate::path::PollerCounters;
use crate::request::{ListError, PostError, RecvRequest, Segment, SendFlags, SendOp, SendRequest};

mod lifetimes;
mod model;
mod polling;
mod posting;
mod quirks;

/// The simulated device of these tests.
#[derive(Clone)]
struct Fake;

impl Device for Fake {
    type Queue = Arc<FakeQueue>;
    type Completions = Arc<FakeCq>;
    type Shared = Arc<FakeSrq>;
}

/// A queue of the simulated device, which takes as many work requests as the test
/// allows.
#[derive(Default)]
struct FakeQueue {
    qpn: u32,
    quirks: Quirks,
    sends: Mutex<VecDeque<u64>>,
    /// The lengths of the segments of each send that was posted to it.
    lengths: Mutex<Vec<Vec<u32>>>,
    recvs: Mutex<VecDeque<u64>>,
    /// How often it was asked to flush.
    flushes: AtomicU32,
    /// The number of requests that it takes, from the next chain on.
    poll_limit: PollLimit,
}

struct PollLimit(AtomicUsize);

impl Default for PollLimit {
    fn default() -> Self {
        Self(AtomicUsize::new(usize::MAX))
    }
}

impl PollLimit {
    /// Returns how many requests of a chain are taken.
    fn take(&self, count: usize) -> usize {
        let left = self.0.load(Ordering::Relaxed);
        let taken = left.min(count);
        self.0.store(left - taken, Ordering::Relaxed);
        taken
    }

    fn answer(taken: usize, count: usize) -> Result<(), Refused> {
        if taken == count {
            return Ok(());
        }
        let error = PostError::QueueFull;
        Err(Refused { taken, error })
    }
}

/// Returns what `look` reports for each request of a chain.
fn follow<T, P>(chain: Chain<'_, T>, look: impl Fn(&T) -> (P, *mut T)) -> Vec<P> {
    let (mut at, mut found) = (chain.first.cast_const(), Vec::new());
    // SAFETY: the links are those of a chain that is being posted.
    while let Some(work) = unsafe { at.as_ref() } {
        let (one, next) = look(work);
        found.push(one);
        at = next;
    }
    assert_eq!(found.len(), chain.count);
    found
}

/// Returns the lengths of the segments of a send.
fn lengths_of(work: &ibv_send_wr) -> Vec<u32> {
    let count = usize::try_from(work.num_sge).expect("a count");
    // SAFETY: the index is in the list of a request that is being posted.
    let at = |index| unsafe { (*work.sg_list.add(index)).length };
    (0..count).map(at).collect()
}

fn tags(chain: Chain<'_, ibv_recv_wr>) -> Vec<u64> {
    follow(chain, |work| (work.wr_id, work.next))
}

impl QueueCalls for Arc<FakeQueue> {
    fn qpn(&self) -> u32 {
        self.qpn
    }

    fn quirks(&self) -> Quirks {
        self.quirks
    }

    unsafe fn post_send(&self, chain: Chain<'_, ibv_send_wr>) -> Result<(), Refused> {
        let posted = follow(chain, |work| (work.wr_id, work.next));
        let lengths = follow(chain, |work| (lengths_of(work), work.next));
        self.lengths.lock().unwrap().extend(lengths);
        let taken = self.poll_limit.take(posted.len());
        self.sends.lock().unwrap().extend(&posted[..taken]);
        PollLimit::answer(taken, posted.len())
    }

    unsafe fn post_recv(&self, chain: Chain<'_, ibv_recv_wr>) -> Result<(), Refused> {
        let posted = tags(chain);
        let taken = self.poll_limit.take(posted.len());
        self.recvs.lock().unwrap().extend(&posted[..taken]);
        PollLimit::answer(taken, posted.len())
    }

    unsafe fn bind(&self, _window: *mut ibv_mw, bind: &mut ibv_mw_bind) -> Result<(), PostError> {
        let taken = self.poll_limit.take(1);
        let mut sends = self.sends.lock().unwrap();
        sends.extend(core::iter::repeat_n(bind.wr_id, taken));
        PollLimit::answer(taken, 1).map_err(|refused| refused.error)
    }

    fn flush(&self) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }
}

impl FakeQueue {
    /// Returns the tag of the oldest send, or receive.
    fn next(&self, receive: bool) -> Option<u64> {
        let queue = if receive { &self.recvs } else { &self.sends };
        queue.lock().unwrap().pop_front()
    }

    fn flushes(&self) -> u32 {
        self.flushes.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
struct FakeSrq {
    recvs: Mutex<VecDeque<u64>>,
    poll_limit: PollLimit,
}

impl SharedCalls for Arc<FakeSrq> {
    unsafe fn post(&self, chain: Chain<'_, ibv_recv_wr>) -> Result<(), Refused> {
        let posted = tags(chain);
        let taken = self.poll_limit.take(posted.len());
        self.recvs.lock().unwrap().extend(&posted[..taken]);
        PollLimit::answer(taken, posted.len())
    }
}

#[derive(Default)]
struct FakeCq {
    works: Mutex<VecDeque<Work>>,
    arms: Mutex<Vec<bool>>,
    rings: AtomicU32,
}

impl CompletionCalls for Arc<FakeCq> {
    fn capacity(&self) -> u32 {
        1 << 10
    }

    fn poll(&self, staged: &mut VecDeque<Work>) -> usize {
        let mut works = self.works.lock().unwrap();
        let found = works.len().min(super::device::BATCH);
        staged.extend(works.drain(..found));
        found
    }

    fn arm(&self, solicited_only: bool) -> Result<(), i32> {
        self.arms.lock().unwrap().push(solicited_only);
        Ok(())
    }

    fn raise_event(&self) {
        self.rings.fetch_add(1, Ordering::Relaxed);
    }
}

/// A completion queue, and the simulated device that fills it.
struct Cq {
    device: Arc<FakeCq>,
    poller: Poller<Fake>,
}

impl Cq {
    fn new() -> Self {
        let device = Arc::<FakeCq>::default();
        let poller = Poller::new(Arc::clone(&device));
        Self { device, poller }
    }

    fn poll(&mut self) -> Option<Completion> {
        self.poller.poll()
    }

    fn wr_ids(&mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.poll())
            .map(|one| one.wr_id)
            .collect()
    }

    fn write(&self, work: Work) {
        self.device.works.lock().unwrap().push_back(work);
    }

    fn counters(&self) -> [u64; 2] {
        let PollerCounters { unknown, stale } = self.poller.counters();
        [unknown, stale]
    }
}

/// A shared receive queue for several queue pairs.
struct Srq {
    device: Arc<FakeSrq>,
    receives: SharedReceives<Fake>,
}

impl Srq {
    fn new(capacity: u32) -> Self {
        let device = Arc::<FakeSrq>::default();
        let receives = SharedReceives::new(Arc::clone(&device), capacity, 2);
        Self { device, receives }
    }

    fn post(&mut self, wr_id: u64) -> Result<(), PostError> {
        let segments = &[];
        // SAFETY: there are no segments.
        unsafe { self.receives.post(&RecvRequest { wr_id, segments }) }
    }

    fn next(&self) -> u64 {
        let mut recvs = self.device.recvs.lock().unwrap();
        recvs.pop_front().expect("a posted receive")
    }

    fn outstanding(&self) -> u32 {
        self.receives.handle().outstanding()
    }
}

/// A queue pair with 4 sends and 4 receives of 2 segments.
struct Qp {
    device: Arc<FakeQueue>,
    pair: QueuePair<Fake>,
}

const GRANT: QpGrant = QpGrant {
    sends: 4,
    receives: 4,
    send_segments: 2,
    read_segments: 2,
    recv_segments: 2,
    inline_bytes: 16,
    windows: true,
    atomics: true,
};

fn closed(qpn: u32, send: &Cq, recv: &Cq, srq: Option<&Srq>) -> Qp {
    let queue = FakeQueue {
        qpn,
        ..FakeQueue::default()
    };
    of_queue(queue, send, recv, srq)
}

fn of_queue(queue: FakeQueue, send: &Cq, recv: &Cq, srq: Option<&Srq>) -> Qp {
    let (qpn, device) = (queue.qpn, Arc::new(queue));
    let parts = QueuePairParts {
        queue: Arc::clone(&device),
        grant: GRANT,
        shared: srq.map(|srq| srq.receives.handle()),
        send: send.poller.completions().clone(),
        recv: recv.poller.completions().clone(),
        context: context(qpn),
    };
    let pair = QueuePair::new(parts).expect("few queue pairs");
    Qp { device, pair }
}

fn qp(qpn: u32, send: &Cq, recv: &Cq, srq: Option<&Srq>) -> Qp {
    let mut qp = closed(qpn, send, recv, srq);
    qp.open();
    qp
}

/// Returns the context that completions of a test's queue pair carry.
fn context(qpn: u32) -> u64 {
    0xc0de_0000_0000_0000 | u64::from(qpn)
}

impl Qp {
    fn open(&mut self) {
        self.pair.open_receives();
        self.pair.open_sends();
    }

    fn send(&mut self, wr_id: u64) -> Result<(), PostError> {
        self.post(wr_id, SendOp::Send, SendFlags::SIGNALED, 0)
    }

    fn post(
        &mut self,
        wr_id: u64,
        op: SendOp,
        flags: SendFlags,
        wr_data: u32,
    ) -> Result<(), PostError> {
        let request = SendRequest {
            wr_id,
            op,
            flags,
            segments: &[SEGMENT],
        };
        // SAFETY: the simulated device accesses no memory.
        unsafe { self.pair.post_send_with_data(&request, wr_data) }
    }

    fn recv(&mut self, wr_id: u64) -> Result<(), PostError> {
        let segments = &[SEGMENT];
        // SAFETY: as above.
        unsafe { self.pair.post_recv(&RecvRequest { wr_id, segments }) }
    }

    /// Completes the oldest send, or receive, with a completion.
    fn complete(&self, cq: &Cq, receive: bool) {
        cq.write(Work {
            tag: self.device.next(receive).expect("a posted request"),
            qpn: self.device.qpn,
            ..Work::default()
        });
    }

    /// Carries out the oldest send without a completion.
    fn pass(&self) {
        self.device.next(false).expect("a posted request");
    }
}

const SEGMENT: Segment = Segment {
    addr: 0x1000,
    length: 9,
    lkey: 1,
};

fn good(wr_id: u64, op: CompletionOp, qpn: u32) -> Completion {
    Completion {
        wr_id,
        context: context(qpn),
        op,
        qpn,
        ..Completion::default()
    }
}

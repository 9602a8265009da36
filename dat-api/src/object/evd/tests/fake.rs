//! A completion queue that the test fills.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use dat_engine::sync::Mutex;
use dat_engine::wait::ChannelFds;
use dat_engine::{
    Arm, Arrival, Completion, CompletionFlags, CompletionOp, CompletionQueue, ControlError,
    CqeKind, Device, DeviceClock, PathRequest,
};

/// What an armed queue raises an event for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    No,
    Solicited,
    Any,
}

#[derive(Debug)]
struct Inside {
    completions: VecDeque<(Completion, Arrival)>,
    armed: Armed,
}

/// The completion channel of all queues of an EVD.
#[derive(Debug)]
pub(super) struct Channel {
    read: UnixStream,
    raise: UnixStream,
}

impl Channel {
    pub(super) fn new() -> Self {
        let (read, raise) = UnixStream::pair().expect("a channel");
        read.set_nonblocking(true).expect("a channel");
        Self { read, raise }
    }
}

/// The test's half of a queue.
#[derive(Debug)]
pub(in super::super) struct Ring {
    inside: Mutex<Inside>,
    pub(super) capacity: u32,
    channel: Arc<Channel>,
    is_direct: bool,
    /// Whether its completions say that they were solicited.
    pub(super) reports_solicited: AtomicBool,
    /// Whether arming it fails.
    pub(super) is_broken: AtomicBool,
    /// How often it was armed.
    pub(super) arms: AtomicU32,
    /// How often its commands were processed.
    pub(super) processed: AtomicU32,
    /// How many of the next completions are stale when they are consumed, though they looked valid
    /// to `peek`.
    pub(super) stale: AtomicU32,
}

impl Ring {
    /// Adds a completion as the device does: first the completion, then the event, once for each
    /// arm.
    pub(super) fn complete(&self, completion: Completion) {
        self.complete_at(completion, Arrival::Unknown);
    }

    /// As [`Self::complete`], with an arrival time.
    pub(super) fn complete_at(&self, completion: Completion, arrival: Arrival) {
        let mut inside = self.inside.lock();
        assert!(
            inside.completions.len() < self.capacity as usize,
            "a completion queue of {} overflows",
            self.capacity
        );
        let mut seen = completion;
        if !self.reports_solicited.load(Ordering::Relaxed) {
            seen.flags -= CompletionFlags::SOLICITED;
        }
        inside.completions.push_back((seen, arrival));
        let counts = match inside.armed {
            Armed::No => false,
            Armed::Any => true,
            Armed::Solicited => {
                !completion.status.is_success()
                    || completion.flags.contains(CompletionFlags::SOLICITED)
            }
        };
        if counts {
            inside.armed = Armed::No;
            (&self.channel.raise).write_all(&[1]).expect("an event");
        }
    }

    /// Returns the number of completions that were not polled.
    pub(super) fn len(&self) -> usize {
        let inside = self.inside.lock();
        inside.completions.len()
    }
}

/// The EVD's half of a queue.
#[derive(Debug)]
pub(in super::super) struct FakeQueue(Arc<Ring>);

impl FakeQueue {
    pub(super) fn new(capacity: u32, channel: Arc<Channel>, is_direct: bool) -> (Self, Arc<Ring>) {
        let ring = Arc::new(Ring {
            inside: Mutex::new(Inside {
                completions: VecDeque::new(),
                armed: Armed::No,
            }),
            capacity,
            channel,
            is_direct,
            reports_solicited: AtomicBool::new(true),
            is_broken: AtomicBool::new(false),
            arms: AtomicU32::new(0),
            processed: AtomicU32::new(0),
            stale: AtomicU32::new(0),
        });
        (Self(Arc::clone(&ring)), ring)
    }

    pub(in super::super) fn can_peek(&self) -> bool {
        self.0.is_direct
    }

    pub(in super::super) fn watched(&self) -> Option<&AtomicU8> {
        None
    }

    pub(in super::super) fn has_cqe(&self) -> bool {
        self.0.is_direct && self.0.len() > 0
    }

    pub(in super::super) fn written(&mut self) -> Option<u32> {
        let counts = self.0.is_direct && self.0.stale.load(Ordering::Relaxed) == 0;
        counts.then(|| self.0.len() as u32)
    }

    pub(in super::super) fn peek(&mut self) -> Option<FakeCqe<'_>> {
        let inside = self.0.inside.lock();
        let (completion, _) = inside
            .completions
            .front()
            .filter(|_| self.0.is_direct)
            .copied()?;
        drop(inside);
        Some(FakeCqe {
            queue: self,
            completion,
        })
    }

    /// # Safety
    /// As for the engine's.
    #[allow(unsafe_code)]
    pub(in super::super) unsafe fn peek_unchecked(&mut self) -> FakeCqe<'_> {
        self.peek().expect("the caller has seen a CQE")
    }

    pub(in super::super) fn poll(&mut self) -> Option<Completion> {
        self.poll_stamped().map(|(completion, _)| completion)
    }

    pub(in super::super) fn poll_stamped(&mut self) -> Option<(Completion, Arrival)> {
        let mut inside = self.0.inside.lock();
        for _ in 0..self.0.stale.swap(0, Ordering::Relaxed) {
            inside.completions.pop_front();
        }
        inside.completions.pop_front()
    }

    pub(in super::super) fn arrival(&self) -> Arrival {
        let inside = self.0.inside.lock();
        let front = inside.completions.front();
        front.map_or(Arrival::Empty, |&(_, arrival)| arrival)
    }

    pub(in super::super) fn capacity(&self) -> u32 {
        self.0.capacity
    }

    pub(in super::super) fn reports_solicited(&self) -> bool {
        self.0.reports_solicited.load(Ordering::Relaxed)
    }

    pub(in super::super) fn arm(&mut self, arm: Arm) -> Result<(), ControlError> {
        if self.0.is_broken.load(Ordering::Relaxed) {
            // Any error will do.
            return Err(Device::open_with("", PathRequest::Auto).expect_err("no device"));
        }
        let mut inside = self.0.inside.lock();
        // A request for any completion is not narrowed by a later one.
        inside.armed = match (inside.armed, arm) {
            (Armed::Any, _) | (_, Arm::Any) => Armed::Any,
            _ => Armed::Solicited,
        };
        self.0.arms.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    pub(in super::super) fn take_events(&mut self) -> Result<u32, ControlError> {
        let mut bytes = [0; 64];
        let mut taken = 0;
        while let Ok(count @ 1..) = (&self.0.channel.read).read(&mut bytes) {
            taken += count as u32;
        }
        Ok(taken)
    }

    /// Returns 0: the queue that reads the channel has counted the events.
    pub(in super::super) fn taken_events(&mut self) -> u32 {
        0
    }

    pub(in super::super) fn process_commands(&mut self) {
        self.0.processed.fetch_add(1, Ordering::Relaxed);
    }

    pub(in super::super) fn channel_fds(&self) -> Option<ChannelFds<'_>> {
        Some(self.0.channel.read.as_fd().into())
    }
}

impl From<CompletionQueue> for FakeQueue {
    fn from(_: CompletionQueue) -> Self {
        unreachable!("these tests have no device")
    }
}

/// The clock of these tests: a tick is 10 ns, and 1000 ticks and more cannot be converted.
#[derive(Debug)]
pub(in super::super) struct FakeClock;

impl FakeClock {
    pub(in super::super) fn nanoseconds(&self, stamp: u64) -> Option<u64> {
        (stamp < 1000).then_some(10 * stamp)
    }
}

impl From<DeviceClock> for FakeClock {
    fn from(_: DeviceClock) -> Self {
        unreachable!("these tests have no device")
    }
}

/// The first completion of a queue.
#[derive(Debug)]
pub(in super::super) struct FakeCqe<'a> {
    queue: &'a mut FakeQueue,
    completion: Completion,
}

impl FakeCqe<'_> {
    pub(in super::super) fn context(&self) -> Option<u64> {
        Some(self.completion.context)
    }

    pub(in super::super) fn kind(&self) -> CqeKind {
        let Completion {
            status, op, flags, ..
        } = self.completion;
        match op {
            _ if !status.is_success() => CqeKind::Other,
            CompletionOp::RecvWriteImm => CqeKind::RecvWriteImm,
            CompletionOp::Recv if flags.contains(CompletionFlags::WITH_IMM) => CqeKind::RecvImm,
            CompletionOp::Recv => CqeKind::Recv,
            _ => CqeKind::Request,
        }
    }

    pub(in super::super) fn request_op(&self) -> Option<CompletionOp> {
        Some(self.completion.op)
    }

    pub(in super::super) fn extended_op(&self) -> Option<CompletionOp> {
        self.request_op()
    }

    pub(in super::super) fn imm(&self) -> u32 {
        self.completion.imm
    }

    pub(in super::super) fn has_more(&self, completions: u32) -> bool {
        self.queue.0.len() > completions as usize
    }

    pub(in super::super) fn consume_recv<R>(self, with: impl FnOnce(u64, u32) -> R) -> Option<R> {
        self.consume().map(|done| with(done.wr_id, done.byte_len))
    }

    pub(in super::super) fn consume_in_cqe<R>(self, with: impl FnOnce(u64, u32) -> R) -> Option<R> {
        self.consume_recv(with)
    }

    pub(in super::super) fn consume_request(self) -> Option<(u64, u32)> {
        self.consume().map(|done| (done.wr_id, done.imm))
    }

    fn consume(self) -> Option<Completion> {
        if self.queue.0.stale.load(Ordering::Relaxed) > 0 {
            return None;
        }
        self.queue.poll()
    }
}

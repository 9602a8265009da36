//! The fixture of these tests: an EVD without a device.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dat_engine::sync::Mutex;
use dat_engine::wait::WaitPolicy;
use dat_engine::{Completion, CompletionOp};

use super::fake::{Channel, FakeClock, FakeQueue, Ring};
use crate::error::DatError;
use crate::handle::{Handle, Reservation, SlotCounters};
use crate::object::evd::state::EvdContext;
use crate::object::evd::streams::FIRST_QUEUE;
use crate::object::evd::{
    DtoRole, DtoStream, Evd, Timeout, Waited, dequeue, own, take_counted, wait,
};
use crate::object::ia::{Rules, small_adapter};
use crate::refusal::EvdRefusal;
use crate::status::{DatReturn, ReturnType, Subtype};
use crate::types::{
    AsyncKind, AsyncReason, CompletionFlags, ConnectionKind, EvdFlags, EventData, PrivateData,
};

/// What the EVD has in place of an IA.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct FakeIa(Arc<Inside>);

#[derive(Debug, Default)]
struct Inside {
    rules: OnceLock<Rules>,
    reports: Mutex<Vec<(AsyncKind, Handle, AsyncReason)>>,
    rings: Mutex<Vec<Arc<Ring>>>,
    channel: OnceLock<Arc<Channel>>,
    first_queue: AtomicU32,
    has_no_clock: AtomicBool,
    is_verbs: AtomicBool,
}

impl FakeIa {
    pub(in super::super) fn rules(&self) -> &Rules {
        let make = || small_adapter(|limits| limits.cq_depth = 1 << 16);
        self.0.rules.get_or_init(make)
    }

    pub(in super::super) fn report(&self, kind: AsyncKind, handle: Handle, reason: AsyncReason) {
        let mut reports = self.0.reports.lock();
        reports.push((kind, handle, reason));
    }

    /// Returns the asynchronous events that were reported.
    pub(super) fn reports(&self) -> Vec<(AsyncKind, Handle, AsyncReason)> {
        let reports = self.0.reports.lock();
        reports.clone()
    }

    pub(in super::super) fn make_queue(&self, depth: u32) -> FakeQueue {
        let channel = self.0.channel.get_or_init(|| Arc::new(Channel::new()));
        let is_direct = !self.0.is_verbs.load(Ordering::Relaxed);
        let (queue, ring) = FakeQueue::new(depth, Arc::clone(channel), is_direct);
        let mut rings = self.0.rings.lock();
        rings.push(ring);
        queue
    }

    /// Chooses the data path of queues that are created from now on.
    pub(super) fn choose_path(&self, is_direct: bool) {
        self.0.is_verbs.store(!is_direct, Ordering::Relaxed);
    }

    /// Returns the least entries of the first queue: 0 unless the test has asked for as many as on
    /// a device.
    pub(in super::super) fn first_queue(&self) -> u32 {
        self.0.first_queue.load(Ordering::Relaxed)
    }

    /// Makes the first queue as long as on devices that cannot resize queues.
    pub(super) fn make_first_queue_long(&self) {
        self.0.first_queue.store(FIRST_QUEUE, Ordering::Relaxed);
    }

    pub(in super::super) fn clock(&self) -> Result<FakeClock, DatError> {
        if self.0.has_no_clock.load(Ordering::Relaxed) {
            let kind = ReturnType::ModelNotSupported;
            return Err(DatError::new(kind, Subtype::NoSubtype, "no stamps"));
        }
        Ok(FakeClock)
    }

    /// Makes the device one whose completions have no stamps.
    pub(super) fn remove_clock(&self) {
        self.0.has_no_clock.store(true, Ordering::Relaxed);
    }

    /// Returns the completion queues, in order of creation.
    pub(super) fn rings(&self) -> Vec<Arc<Ring>> {
        let rings = self.0.rings.lock();
        rings.clone()
    }
}

/// An EVD with surroundings of its own, freed with this.
pub(super) struct Fixture {
    pub(super) ia: FakeIa,
    pub(super) evd: Arc<Evd>,
}

impl Fixture {
    /// Creates an EVD of `length` events whose waits block at once.
    pub(super) fn new(length: i32, flags: EvdFlags) -> Self {
        Self::with_policy(length, flags, WaitPolicy::Block)
    }

    pub(super) fn with_policy(length: i32, flags: EvdFlags, policy: WaitPolicy) -> Self {
        let ia = FakeIa::default();
        let context = EvdContext::Test(ia.clone());
        let evd = Evd::make(context, length, flags, Some(policy), false).expect("an EVD");
        Self { ia, evd }
    }

    /// Creates one for software events.
    pub(super) fn software(length: i32) -> Self {
        Self::new(length, EvdFlags::SOFTWARE)
    }

    /// Creates one with a receive stream of `depth` with these flags, and returns its queue.
    pub(super) fn receiving(depth: u32, flags: CompletionFlags) -> (Self, DtoStream, Arc<Ring>) {
        let fixture = Self::new(depth as i32, EvdFlags::DTO | EvdFlags::CONNECTION);
        let role = DtoRole::Recv { depth };
        let stream = fixture.evd.attach_dto(role, flags, &[]).expect("attached");
        let ring = fixture.ia.rings().pop().expect("a queue");
        (fixture, stream, ring)
    }

    pub(super) fn handle(&self) -> Handle {
        self.evd.handle()
    }

    pub(super) fn post(&self, pointer: usize) {
        self.evd.post_software(pointer).expect("room");
    }

    pub(super) fn dequeue(&self) -> Result<EventData, EvdRefusal> {
        dequeue(own(self.handle())?).map(|event| {
            assert_eq!(event.evd, self.handle());
            event.data
        })
    }

    pub(super) fn wait(&self, timeout: Timeout, threshold: i32) -> Waited {
        let owned = match own(self.handle()) {
            Ok(owned) => owned,
            Err(error) => return EvdRefusal::from(error).into(),
        };
        let taken = take_counted(owned, threshold);
        let left = match taken {
            Ok((event, nmore)) => {
                return Waited {
                    result: Ok(event),
                    nmore,
                };
            }
            Err(left) => left.map_or_else(|| own(self.handle()), Ok),
        };
        match left {
            Ok(mut owned) => wait(&mut owned, timeout, threshold),
            Err(error) => EvdRefusal::from(error).into(),
        }
    }

    /// Waits without blocking.
    pub(super) fn poll(&self, threshold: i32) -> Waited {
        self.wait(Timeout::Micros(0), threshold)
    }

    /// Returns when a thread blocks on the EVD, and has had time to sleep.
    pub(super) fn until_blocked(&self) {
        while !self.evd.state.is_waited() {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        Evd::abort(self.handle());
    }
}

/// An endpoint's handle and counters, without an endpoint.
pub(super) struct FakeEp(Reservation);

impl FakeEp {
    pub(super) fn new() -> Self {
        Self(Reservation::new().expect("a slot"))
    }

    pub(super) fn handle(&self) -> Handle {
        self.0.handle()
    }

    pub(super) fn counters(&self) -> &'static SlotCounters {
        self.handle().slot().expect("a slot").counters()
    }

    /// Returns the completion of a receive of 10 bytes more than its cookie.
    pub(super) fn received(&self, cookie: u64) -> Completion {
        Completion {
            wr_id: cookie,
            context: self.handle().bits() as u64,
            byte_len: cookie as u32 + 10,
            op: CompletionOp::Recv,
            ..Completion::default()
        }
    }

    pub(super) fn solicited(&self, cookie: u64) -> Completion {
        Completion {
            flags: dat_engine::CompletionFlags::SOLICITED,
            ..self.received(cookie)
        }
    }

    /// Returns the completion of a send of as many bytes as its cookie.
    pub(super) fn sent(&self, cookie: u64) -> Completion {
        Completion {
            wr_id: cookie,
            context: self.handle().bits() as u64,
            imm: cookie as u32,
            op: CompletionOp::Send,
            ..Completion::default()
        }
    }

    pub(super) fn connection(&self, kind: ConnectionKind) -> EventData {
        EventData::Connection {
            kind,
            ep: self.handle(),
            private_data: PrivateData::default(),
        }
    }
}

/// Returns the cookie of a DTO event, or the pointer of a software event.
pub(super) fn number(data: EventData) -> u64 {
    match data {
        EventData::Dto { cookie, .. } => cookie,
        EventData::Software { pointer } => pointer as u64,
        other => panic!("no number in {other:?}"),
    }
}

/// Returns the type and subtype of an error.
#[track_caller]
pub(super) fn code<T: core::fmt::Debug>(
    result: Result<T, impl Into<DatReturn>>,
) -> (ReturnType, Subtype) {
    let code: DatReturn = result.expect_err("an error").into();
    // An empty EVD for completions returns the type alone.
    assert!(code.is_error_class() || code.is(ReturnType::QueueEmpty));
    (
        code.kind().expect("a type"),
        code.subtype().expect("a subtype"),
    )
}

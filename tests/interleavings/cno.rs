//! A model of waits on a CNO: all interleavings of several waits with each other, with the device,
//! and with threads that post. Only with `--cfg loom`:
//!
//! ```text
//! perf-scripts/test loom
//! ```
//!
//! The protocol with its polls (`object/cno/protocol`), the steps of a wait and the sleep word are
//! the library's own sources, compiled with loom's atomics and locks; the items that they take from
//! the module above them are defined here. This file models what surrounds them: EVDs, each owned by
//! one poll at a time; a device that raises an event only for completions that come after arming;
//! the one channel set that all waiters sleep on; the waiters, and the agent's thread. If a wake-up
//! is lost, a waiter sleeps for ever, which loom reports as a deadlock. Only the waiters take events
//! here; `tests/dat/cno` tests that a trigger is dropped with its events. Waits take all events of
//! the EVD if the CNO is strict, and one event if it is not.

#![cfg(loom)]

use core::time::Duration;
use std::sync::Arc;

use dat_engine::ControlError;
use dat_engine::wait::{ChannelFds, Deadline, SpinBudget, WaitPolicy};
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::sync::{Condvar, Mutex};

#[allow(dead_code, unreachable_pub, reason = "compiled in place")]
#[path = "../../dat-api/src/object/cno/protocol.rs"]
mod cno;
#[allow(dead_code, unreachable_pub, missing_docs, reason = "compiled in place")]
#[path = "../../engine/src/wait/protocol.rs"]
mod protocol;
#[path = "../../engine/src/wait/word.rs"]
mod word;

#[path = "cno/models.rs"]
mod models;

mod sync {
    pub(super) use loom::sync::atomic::{AtomicU32, Ordering, fence};
}

use cno::{AGENT, ALL, DESCRIPTOR, Poller, Table, WAITERS};
use protocol::{BlockResult, Platform, Source, WaitCounters, WaitOutcome};
use word::SleepWord;

const EVDS: usize = 2;
const THREADS: usize = 2;
/// The number of the descriptor's alarm, behind those of the threads.
const ALARM: usize = THREADS;

/// What the waiters sleep on.
#[derive(Default)]
struct Descriptors {
    /// The wake-ups of each waiter.
    alarms: [u32; THREADS + 1],
    /// Whether the channel of each EVD has an event whose name no waiter has taken. All
    /// waiters see it.
    channels: [bool; EVDS],
    /// The descriptor may have become readable since the program's edge-triggered set was asked.
    has_edge: bool,
}

impl Descriptors {
    fn is_readable(&self) -> bool {
        self.alarms[ALARM] > 0 || self.channels != [false; EVDS]
    }
}

#[derive(Default)]
struct Wires {
    descriptors: Mutex<Descriptors>,
    readable: Condvar,
}

impl Wires {
    fn change(&self, change: impl FnOnce(&mut Descriptors)) {
        let mut all = self.descriptors.lock().unwrap();
        change(&mut all);
        all.has_edge = true;
        drop(all);
        self.readable.notify_all();
    }
}

/// What a waiter sleeps on: the engine's `Blocker`, whose descriptor is in `alarms`.
struct Blocker {
    number: usize,
    word: SleepWord,
    wires: Arc<Wires>,
    /// Whether a signal is handled whenever this waiter would sleep.
    is_disturbed: bool,
}

impl Blocker {
    fn clear_alarm(&self) {
        self.wires.descriptors.lock().unwrap().alarms[self.number] = 0;
    }

    fn wake(&self) {
        if self.word.take() {
            self.wires.change(|all| all.alarms[self.number] += 1);
        }
    }

    fn announce(&self) {
        self.word.announce();
    }

    fn abandon(&self) {
        self.word.retract();
        self.clear_alarm();
    }
}

impl Platform for Blocker {
    type Guard = ();

    fn now(&self) -> u64 {
        0
    }

    fn is_multiprocessor(&self) -> bool {
        true
    }

    fn yield_now(&self) {}

    fn guard(&self) {}

    fn interrupted(&self, (): &()) -> bool {
        false
    }

    fn announce(&self) {
        Self::announce(self);
    }

    fn block(
        &self,
        _channel: Option<ChannelFds<'_>>,
        timeout: Option<Duration>,
        (): &(),
    ) -> Result<BlockResult, ControlError> {
        assert_eq!(timeout, None);
        if self.is_disturbed {
            self.retract();
            return Ok(BlockResult::Signal);
        }
        let mut all = self.wires.descriptors.lock().unwrap();
        while all.alarms[self.number] == 0 && all.channels == [false; EVDS] {
            all = self.wires.readable.wait(all).unwrap();
        }
        let rung = all.alarms[self.number] > 0;
        drop(all);
        if self.word.retract() || rung {
            self.clear_alarm();
        }
        Ok(BlockResult::Woken)
    }

    fn retract(&self) {
        if self.word.retract() {
            self.clear_alarm();
        }
    }
}

fn blocker(wires: &Arc<Wires>, number: usize, is_disturbed: bool) -> Arc<Blocker> {
    Arc::new(Blocker {
        number,
        word: SleepWord::new(),
        wires: Arc::clone(wires),
        is_disturbed,
    })
}

/// The events that the device and posting threads have added to an EVD.
#[derive(Default)]
struct Arrived {
    events: u32,
    is_armed: bool,
    /// The EVD has no completion queue yet that could be armed.
    is_detached: bool,
}

/// The state of an EVD's owner.
#[derive(Default)]
struct Known {
    events: u32,
    /// An event was staged that no waiter got a trigger for.
    has_news: bool,
}

#[derive(Default)]
struct Evd {
    arrived: Mutex<Arrived>,
    owned: Mutex<Known>,
}

impl Evd {
    /// As `evd::owner::poll_for_cno`.
    fn poll(&self, mode: PollMode) -> Option<PollResult> {
        let mut known = match mode {
            PollMode::IfFree => self.owned.try_lock().ok()?,
            _ => self.owned.lock().unwrap(),
        };
        if mode == PollMode::Arm {
            let mut arrived = self.arrived.lock().unwrap();
            arrived.is_armed = !arrived.is_detached;
        }
        self.gather(&mut known);
        let (news, events) = (core::mem::take(&mut known.has_news), known.events);
        Some(PollResult {
            fresh: news && events > 0,
            holds: events > 0,
            notifying: events as usize,
            ..PollResult::default()
        })
    }

    fn gather(&self, known: &mut Known) {
        let events = core::mem::take(&mut self.arrived.lock().unwrap().events);
        known.events += events;
        known.has_news |= events > 0;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PollMode {
    IfFree,
    Wait,
    Arm,
    TakeEvents,
}

#[derive(Default)]
struct PollResult {
    fresh: bool,
    holds: bool,
    notifying: usize,
    needs_device_events: bool,
    failed: bool,
}

/// The index of an EVD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Handle(usize);

impl Handle {
    fn from_bits(bits: usize) -> Option<Self> {
        Some(Self(bits))
    }
}

/// Agents, their threads and reused waiters; the protocol only stores them.
type Agent = ();
type Runner = ();
type Waiter = ();

#[derive(Clone, Copy, Debug)]
enum CnoRefusal {
    DeviceFailed,
}

/// A lock without poisoning.
struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

/// A CNO and its surroundings.
struct Cno {
    table: Lock<Table>,
    changes: AtomicU32,
    returns_leftovers: bool,
    /// That of the descriptor, once there is one.
    alarm: Arc<Blocker>,
    has_descriptor: AtomicBool,
    evds: [Evd; EVDS],
    wires: Arc<Wires>,
    /// How many waiters have got a trigger, and have taken the events.
    served: Mutex<usize>,
    service: Condvar,
}

/// What the protocol calls.
impl Cno {
    fn poll_evd(&self, evd: Handle, mode: PollMode) -> Option<PollResult> {
        self.evds[evd.0].poll(mode)
    }

    fn readable(&self) -> Vec<Handle> {
        let mut all = self.wires.descriptors.lock().unwrap();
        let names = core::mem::take(&mut all.channels);
        let evds = (0..EVDS).filter(|&evd| names[evd]);
        evds.map(Handle).collect()
    }

    fn channel(&self) -> Option<ChannelFds<'_>> {
        None
    }

    fn alarm(&self) -> Option<&Arc<Blocker>> {
        let has_descriptor = self.has_descriptor.load(Ordering::SeqCst);
        has_descriptor.then_some(&self.alarm)
    }
}

impl Cno {
    fn new(is_strict: bool) -> Arc<Self> {
        let mut table = Table::default();
        table.evds.extend((0..EVDS).map(Handle));
        let wires = Arc::default();
        Arc::new(Self {
            table: Lock(Mutex::new(table)),
            changes: AtomicU32::new(0),
            returns_leftovers: !is_strict,
            alarm: blocker(&wires, ALARM, false),
            has_descriptor: AtomicBool::new(false),
            evds: Default::default(),
            wires,
            served: Mutex::new(0),
            service: Condvar::new(),
        })
    }

    fn with_descriptor(is_strict: bool) -> Arc<Self> {
        let simulated = Self::new(is_strict);
        simulated.create_descriptor();
        simulated
    }

    /// Creates the descriptor as `Cno::descriptor` does.
    fn create_descriptor(&self) {
        self.update(|table| {
            table.add_descriptor(&self.alarm);
            self.has_descriptor.store(true, Ordering::SeqCst);
        });
    }

    /// The device completes a request.
    fn complete(&self, evd: usize) {
        let mut arrived = self.evds[evd].arrived.lock().unwrap();
        arrived.events += 1;
        let raise = core::mem::take(&mut arrived.is_armed);
        drop(arrived);
        if raise {
            self.wires.change(|all| all.channels[evd] = true);
        }
    }

    /// Another thread attaches a completion queue, and requests a poll that arms it.
    fn attach(&self, evd: usize) {
        self.evds[evd].arrived.lock().unwrap().is_detached = false;
        self.update(Table::wake_poller);
    }

    /// A thread posts an event.
    fn post(&self, evd: usize) {
        self.evds[evd].arrived.lock().unwrap().events += 1;
        self.record_posted(evd);
    }

    /// Records the trigger of a posted event.
    fn record_posted(&self, evd: usize) {
        self.update(|table| table.record(Handle(evd), &[], &ALL));
    }

    fn blocker(&self, number: usize, is_disturbed: bool) -> Arc<Blocker> {
        blocker(&self.wires, number, is_disturbed)
    }

    /// Polls the descriptor as a program's edge-triggered set does: it looks at the descriptor after
    /// an edge.
    fn poll_descriptor(&self) {
        let mut all = self.wires.descriptors.lock().unwrap();
        while !(core::mem::take(&mut all.has_edge) && all.is_readable()) {
            all = self.wires.readable.wait(all).unwrap();
        }
    }

    /// Arms the descriptor as `Cno::arm` does.
    fn arm_descriptor(self: &Arc<Self>) {
        let alarm = self.alarm().unwrap();
        Poller::new(self, DESCRIPTOR, Some(alarm)).arm_descriptor(alarm);
        self.update(|table| table.forget(alarm));
    }

    /// Takes a trigger as `Cno::trigger` does, or as a wait without time does.
    fn take_trigger(self: &Arc<Self>, queue: usize) -> Option<&Evd> {
        let alarm = self.alarm().filter(|_| queue == DESCRIPTOR);
        match Poller::new(self, queue, alarm).poll_first() {
            None => None,
            Some(Ok(Some(evd))) => Some(&self.evds[evd.0]),
            other => panic!("{other:?}"),
        }
    }

    /// Waits as the thread of an agent does that has been set.
    fn agent_waits(self: &Arc<Self>, number: usize) {
        let blocker = self.blocker(number, false);
        let added = Arc::clone(&blocker);
        self.update(|table| table.queues[AGENT].waiters.push(added));
        let mut poller = Poller::new(self, AGENT, Some(&blocker));
        let outcome = protocol::run(
            &mut poller,
            &*blocker,
            &mut SpinBudget::new(),
            WaitPolicy::Block,
            &mut { Deadline::NEVER },
            &mut WaitCounters::default(),
        );
        self.update(|table| {
            table.queues[AGENT].waiters.clear();
            table.wake_poller();
        });
        assert_eq!(outcome.expect("no failure"), WaitOutcome::Ready);
        assert!(matches!(poller.end, Some(Ok(Some(_)))), "{:?}", poller.end);
    }

    /// Waits as `cno::wait` does. Returns the EVD.
    fn triggered_evd(
        self: &Arc<Self>,
        number: usize,
        is_disturbed: bool,
    ) -> Result<&Evd, WaitOutcome> {
        let mut poller = Poller::new(self, WAITERS, None);
        let mut end = poller.poll_first();
        if end.is_none() {
            let blocker = self.blocker(number, is_disturbed);
            poller.blocker = Some(Arc::clone(&blocker));
            let added = Arc::clone(&blocker);
            self.update(|table| table.queues[WAITERS].waiters.push(added));
            let outcome = protocol::run_on(
                &mut poller,
                &*blocker,
                &mut SpinBudget::new(),
                WaitPolicy::Block,
                &mut { Deadline::NEVER },
                &mut WaitCounters::default(),
            );
            self.update(|table| table.remove_waiter(&blocker));
            if outcome.expect("no failure") == WaitOutcome::Interrupted {
                return Err(WaitOutcome::Interrupted);
            }
            end = poller.end;
        }
        match end {
            Some(Ok(Some(evd))) => Ok(&self.evds[evd.0]),
            other => panic!("the wait ended with {other:?}"),
        }
    }

    /// Takes `most` events of an EVD. Returns how many it has taken.
    fn dequeue(&self, evd: &Evd, most: u32) -> u32 {
        let mut known = evd.owned.lock().unwrap();
        evd.gather(&mut known);
        let taken = most.min(known.events);
        known.events -= taken;
        taken
    }

    /// Waits, and takes one event of the EVD.
    fn wait_for_one(self: &Arc<Self>) {
        let evd = self.evd_for_one(0);
        assert_eq!(self.dequeue(evd, 1), 1);
    }

    /// Waits as programs do that take one event. Returns the EVD.
    fn evd_for_one(self: &Arc<Self>, number: usize) -> &Evd {
        let waited = self.triggered_evd(number, false);
        waited.unwrap_or_else(|outcome| panic!("{outcome:?}"))
    }

    /// Waits, and takes all events of the EVD.
    fn wait(self: &Arc<Self>, number: usize, is_disturbed: bool) -> WaitOutcome {
        let evd = match self.triggered_evd(number, is_disturbed) {
            Ok(evd) => evd,
            Err(outcome) => return outcome,
        };
        let mut known = evd.owned.lock().unwrap();
        evd.gather(&mut known);
        assert!(known.events > 0, "only waiters take events here");
        *known = Known::default();
        drop(known);
        *self.served.lock().unwrap() += 1;
        self.service.notify_all();
        WaitOutcome::Ready
    }

    /// Waits until `count` waits have returned.
    fn until_served(&self, count: usize) {
        let mut served = self.served.lock().unwrap();
        while *served < count {
            served = self.service.wait(served).unwrap();
        }
    }
}

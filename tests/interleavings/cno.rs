//! A model of waits on a CNO: all interleavings of several waits with each other, with the device,
//! and with threads that post. Only with `--cfg loom`:
//!
//! ```text
//! perf-scripts/test loom
//! ```
//!
//! The protocol (`object/cno/protocol`), the pending triggers, the steps of a wait and the sleep
//! word are the library's own sources, compiled with loom's atomics. This file models what
//! surrounds them: EVDs, each owned by one poll at a time; a device that raises an event only for
//! completions that come after arming; the one channel set that all waiters sleep on; and the
//! waiters. If a wake-up is lost, a waiter sleeps for ever, which loom reports as a deadlock. Only
//! the waiters take events here; `tests/dat/cno` tests that a trigger is dropped with its events.
//! Waits are strict, and take all events of the EVD, unless a model says otherwise.

#![cfg(loom)]

use core::time::Duration;
use std::ops::DerefMut;
use std::sync::Arc;

use dat_engine::ControlError;
use dat_engine::wait::{ChannelFds, Deadline, SpinBudget, WaitPolicy};
use loom::sync::atomic::AtomicUsize;
use loom::sync::{Condvar, Mutex};

#[allow(dead_code, unreachable_pub, reason = "compiled in place")]
#[path = "../../dat-api/src/object/cno/protocol.rs"]
mod cno;
#[allow(dead_code, reason = "compiled in place")]
#[path = "../../dat-api/src/object/cno/pending.rs"]
mod pending;
#[allow(dead_code, unreachable_pub, missing_docs, reason = "compiled in place")]
#[path = "../../engine/src/wait/protocol.rs"]
mod protocol;
#[path = "../../engine/src/wait/word.rs"]
mod word;

#[path = "cno/models.rs"]
mod models;

mod sync {
    pub(super) use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
}

use cno::{CnoState, EvdPoller, Finder, HasAgent, Held, Table, WaitEnd, Wake};
use protocol::{BlockResult, Platform, Source, WaitCounters, WaitOutcome};
use word::SleepWord;

const EVDS: usize = 2;
const WAITERS: usize = 2;

/// What the waiters sleep on.
#[derive(Default)]
struct Descriptors {
    /// The wake-ups of each waiter.
    alarms: [u32; WAITERS],
    /// Whether the channel of each EVD has an event whose name no waiter has taken. All
    /// waiters see it.
    channels: [bool; EVDS],
}

#[derive(Default)]
struct Wires {
    descriptors: Mutex<Descriptors>,
    readable: Condvar,
}

impl Wires {
    fn change(&self, change: impl FnOnce(&mut Descriptors)) {
        change(&mut self.descriptors.lock().unwrap());
        self.readable.notify_all();
    }
}

/// A waiter: a `Blocker` whose descriptor is in `alarms`.
struct Waiter {
    number: usize,
    word: SleepWord,
    wires: Arc<Wires>,
    /// Whether a signal is handled whenever this waiter would sleep.
    is_disturbed: bool,
}

impl Waiter {
    fn clear_alarm(&self) {
        self.wires.descriptors.lock().unwrap().alarms[self.number] = 0;
    }
}

impl Wake for Waiter {
    fn wake(&self) {
        if self.word.take() {
            self.wires.change(|all| all.alarms[self.number] += 1);
        }
    }
}

impl Platform for Waiter {
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
        self.word.announce();
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

/// The events that the device and posting threads have added to an EVD.
#[derive(Default)]
struct Arrived {
    events: u32,
    is_armed: bool,
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
    /// As `evd::cno_binding::poll_for_cno`.
    fn look(&self, mode: PollMode) -> Option<(bool, u32)> {
        let mut known = match mode {
            PollMode::IfFree => self.owned.try_lock().ok()?,
            _ => self.owned.lock().unwrap(),
        };
        match mode {
            PollMode::IfFree | PollMode::Wait | PollMode::TakeEvents => {}
            PollMode::Arm => self.arrived.lock().unwrap().is_armed = true,
        }
        self.gather(&mut known);
        let (news, events) = (core::mem::take(&mut known.has_news), known.events);
        Some((news && events > 0, events))
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

/// No agent is modelled.
struct NoAgent;

impl HasAgent<Waiter> for NoAgent {
    fn agent_waiter(&self) -> Option<Arc<Waiter>> {
        None
    }
}

/// A CNO and its surroundings.
struct SimulatedCno {
    inside: Mutex<Table<usize, Waiter, NoAgent>>,
    triggered: AtomicUsize,
    evds: [Evd; EVDS],
    wires: Arc<Wires>,
    /// How many waiters have got a trigger, and have taken the events.
    served: Mutex<usize>,
    service: Condvar,
}

impl CnoState for SimulatedCno {
    type Evd = usize;
    type Waiter = Waiter;
    type Rest = NoAgent;

    fn lock(&self) -> impl DerefMut<Target = Table<usize, Waiter, NoAgent>> {
        self.inside.lock().unwrap()
    }

    fn triggered(&self) -> &AtomicUsize {
        &self.triggered
    }
}

impl SimulatedCno {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inside: Mutex::new(Table {
                evds: (0..EVDS).collect(),
                ..Table::new(NoAgent)
            }),
            triggered: AtomicUsize::new(0),
            evds: Default::default(),
            wires: Arc::default(),
            served: Mutex::new(0),
            service: Condvar::new(),
        })
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

    /// A thread posts an event.
    fn post(&self, evd: usize) {
        self.evds[evd].arrived.lock().unwrap().events += 1;
        cno::record_trigger(self, evd, Finder::NotPolled);
    }

    /// Waits as `cno::wait` does. Returns the EVD.
    fn triggered_evd(
        &self,
        number: usize,
        is_disturbed: bool,
        takes_leftovers: bool,
    ) -> Result<&Evd, WaitOutcome> {
        let mut waiting = Waiting {
            simulated: self,
            takes_leftovers,
            is_shared: takes_leftovers,
            wait_end: None,
        };
        waiting.wait_end = cno::poll_first(&mut waiting, takes_leftovers);
        waiting.takes_leftovers = false;
        if waiting.wait_end.is_none() {
            let waiter = Arc::new(Waiter {
                number,
                word: SleepWord::new(),
                wires: Arc::clone(&self.wires),
                is_disturbed,
            });
            self.lock().waiters.push(Arc::clone(&waiter));
            let outcome = protocol::run_on(
                &mut waiting,
                &*waiter,
                &mut SpinBudget::new(),
                WaitPolicy::Block,
                &mut { Deadline::NEVER },
                &mut WaitCounters::default(),
            );
            cno::remove_waiter(self, &waiter);
            if outcome.expect("no failure") == WaitOutcome::Interrupted {
                return Err(WaitOutcome::Interrupted);
            }
        }
        match waiting.wait_end {
            Some(WaitEnd::Triggered(evd)) => Ok(&self.evds[evd]),
            other => panic!("the wait ended with {other:?}"),
        }
    }

    /// Waits, and takes one event of the EVD.
    fn wait_for_one(&self) {
        let evd = self.evd_for_one(0);
        let mut known = evd.owned.lock().unwrap();
        evd.gather(&mut known);
        known.events = known.events.checked_sub(1).expect("an event");
    }

    /// Waits as programs do that take one event. Returns the EVD.
    fn evd_for_one(&self, number: usize) -> &Evd {
        let waited = self.triggered_evd(number, false, true);
        waited.unwrap_or_else(|outcome| panic!("{outcome:?}"))
    }

    /// Waits, and takes all events of the EVD.
    fn wait(&self, number: usize, is_disturbed: bool) -> WaitOutcome {
        let evd = match self.triggered_evd(number, is_disturbed, false) {
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

struct Waiting<'a> {
    simulated: &'a SimulatedCno,
    takes_leftovers: bool,
    /// Several events of an EVD are for as many waiters.
    is_shared: bool,
    wait_end: Option<WaitEnd<usize>>,
}

impl Waiting<'_> {
    fn look(&self, evd: usize, mode: PollMode) -> Held {
        let simulated = self.simulated;
        let seen = simulated.evds[evd].look(mode);
        let (is_fresh, events) = seen.unwrap_or_default();
        if is_fresh {
            cno::record_trigger(simulated, evd, Finder::Waiter);
        } else if self.takes_leftovers && events > 0 {
            cno::record_leftover(simulated, evd);
        }
        Held {
            any: events > 0,
            waiters: match self.is_shared {
                true => events as usize,
                false => 1,
            },
        }
    }
}

impl EvdPoller for Waiting<'_> {
    type Cno = SimulatedCno;

    fn cno(&self) -> &SimulatedCno {
        self.simulated
    }

    fn finder(&self) -> Finder {
        Finder::Waiter
    }

    fn is_released(&self) -> bool {
        false
    }

    fn has_failed(&self) -> bool {
        false
    }

    fn holds(&self, evd: usize) -> Held {
        self.look(evd, PollMode::Wait)
    }

    fn poll_all(&mut self) {
        let mode = match self.takes_leftovers {
            true => PollMode::Wait,
            false => PollMode::IfFree,
        };
        for evd in 0..EVDS {
            self.look(evd, mode);
        }
    }
}

impl Source for Waiting<'_> {
    fn ready(&mut self) -> bool {
        self.wait_end = cno::poll_once(self);
        self.wait_end.is_some()
    }

    fn arm(&mut self) {
        for evd in 0..EVDS {
            self.look(evd, PollMode::Arm);
        }
    }

    fn take_events(&mut self) -> Result<u32, ControlError> {
        let mut all = self.simulated.wires.descriptors.lock().unwrap();
        let names = core::mem::take(&mut all.channels);
        drop(all);
        let mut count = 0;
        for evd in (0..EVDS).filter(|&evd| names[evd]) {
            count += 1;
            self.look(evd, PollMode::TakeEvents);
        }
        Ok(count)
    }

    fn channel(&self) -> Option<ChannelFds<'_>> {
        None
    }
}

//! All interleavings of a wait with what ends it: the device, and threads that
//! change the source and wake. Only with `--cfg loom`:
//!
//! ```text
//! perf-scripts/test loom
//! ```
//!
//! The protocol and the word are the engine's own sources, compiled with loom's
//! atomics. This file simulates the system around them: descriptors that become
//! readable, and a device that raises an event only for completions after the arm.
//! A lost wake-up leaves the waiter asleep with no thread to wake it, which loom
//! reports as a deadlock.

#![cfg(loom)]

use core::time::Duration;

use dat_engine::ControlError;
use dat_engine::wait::{ChannelFds, Deadline, SpinBudget, WaitPolicy};
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

#[allow(dead_code, unreachable_pub, missing_docs, reason = "compiled in place")]
#[path = "../../engine/src/wait/protocol.rs"]
mod protocol;
#[path = "../../engine/src/wait/word.rs"]
mod word;

mod sync {
    pub(super) use loom::sync::atomic::{AtomicU32, Ordering, fence};
}

use protocol::{BlockResult, Platform, Source, WaitCounters, WaitOutcome};
use word::SleepWord;

/// The state of a descriptor for `ppoll`: how much there is to read.
#[derive(Default)]
struct Descriptors {
    alarm: u32,
    channel: u32,
}

/// The state that the threads share.
struct SimulatedSystem {
    word: SleepWord,
    descriptors: Mutex<Descriptors>,
    readable: Condvar,
    /// The completions that the device has written, and whether it is armed. The
    /// device does one thing at a time.
    completions: AtomicU32,
    armed: Mutex<bool>,
    /// The messages of other threads.
    messages: AtomicU32,
}

impl SimulatedSystem {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            word: SleepWord::new(),
            descriptors: Mutex::default(),
            readable: Condvar::new(),
            completions: AtomicU32::new(0),
            armed: Mutex::new(false),
            messages: AtomicU32::new(0),
        })
    }

    /// Completes a request, as the device.
    fn complete(&self) {
        let mut armed = self.armed.lock().unwrap();
        self.completions.fetch_add(1, Ordering::Release);
        let raise = core::mem::take(&mut *armed);
        drop(armed);
        if raise {
            self.descriptors.lock().unwrap().channel += 1;
            self.readable.notify_one();
        }
    }

    /// Sends a message; `Blocker::wake` follows.
    fn send_message(&self) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        if self.word.take() {
            self.descriptors.lock().unwrap().alarm += 1;
            self.readable.notify_one();
        }
    }

    fn clear_alarm(&self) {
        self.descriptors.lock().unwrap().alarm = 0;
    }
}

/// Does what `Blocker` does, on the simulated descriptors.
impl Platform for SimulatedSystem {
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
        let mut descriptors = self.descriptors.lock().unwrap();
        while descriptors.alarm == 0 && descriptors.channel == 0 {
            descriptors = self.readable.wait(descriptors).unwrap();
        }
        let rung = descriptors.alarm > 0;
        drop(descriptors);
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

/// A source that is ready after a number of completions and messages.
struct Need {
    system: Arc<SimulatedSystem>,
    all: u32,
}

impl Source for Need {
    fn ready(&mut self) -> bool {
        let completions = self.system.completions.load(Ordering::Acquire);
        completions + self.system.messages.load(Ordering::Relaxed) >= self.all
    }

    fn arm(&mut self) {
        *self.system.armed.lock().unwrap() = true;
    }

    fn take_events(&mut self) -> Result<u32, ControlError> {
        let mut descriptors = self.system.descriptors.lock().unwrap();
        Ok(core::mem::take(&mut descriptors.channel))
    }

    fn channel(&self) -> Option<ChannelFds<'_>> {
        None
    }
}

/// Waits until there are `all`. Returns the statistics of the wait.
fn wait_for(system: &Arc<SimulatedSystem>, all: u32) -> WaitCounters {
    let mut source = Need {
        system: Arc::clone(system),
        all,
    };
    let mut counters = WaitCounters::default();
    let outcome = protocol::run(
        &mut source,
        &**system,
        &mut SpinBudget::new(),
        WaitPolicy::Block,
        &mut { Deadline::NEVER },
        &mut counters,
    );
    assert_eq!(outcome.expect("no failure"), WaitOutcome::Ready);
    counters
}

/// All interleavings.
const ALL: Option<usize> = None;
/// Interleavings in which a thread is preempted at most three times, besides its
/// own blocking: nearly all mistakes appear with two.
const MOST: Option<usize> = Some(3);

fn model(preemptions: Option<usize>, check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(check);
}

fn in_thread(
    system: &Arc<SimulatedSystem>,
    act: impl FnOnce(&SimulatedSystem) + 'static,
) -> thread::JoinHandle<()> {
    let system = Arc::clone(system);
    thread::spawn(move || act(&system))
}

#[test]
fn a_completion_ends_the_sleep() {
    model(ALL, || {
        let system = SimulatedSystem::new();
        let device = in_thread(&system, SimulatedSystem::complete);
        let counters = wait_for(&system, 1);
        assert!(counters.blocks <= 1 && counters.spurious == 0);
        device.join().unwrap();
    });
}

#[test]
fn completions_one_by_one_end_the_sleep() {
    model(ALL, || {
        let system = SimulatedSystem::new();
        let device = in_thread(&system, |system| {
            system.complete();
            system.complete();
        });
        let counters = wait_for(&system, 2);
        assert!(counters.blocks <= 2 && counters.spurious <= 1);
        device.join().unwrap();
    });
}

#[test]
fn a_message_of_a_thread_ends_the_sleep() {
    model(ALL, || {
        let system = SimulatedSystem::new();
        let other = in_thread(&system, SimulatedSystem::send_message);
        let counters = wait_for(&system, 1);
        assert!(counters.blocks <= 1 && counters.spurious == 0);
        other.join().unwrap();
    });
}

#[test]
fn consecutive_waits_all_end_and_a_late_token_costs_one_sleep() {
    model(MOST, || {
        let system = SimulatedSystem::new();
        let other = in_thread(&system, |system| {
            system.send_message();
            system.send_message();
        });
        let first = wait_for(&system, 1);
        let second = wait_for(&system, 2);
        assert!(first.spurious == 0 && second.spurious <= 1);
        other.join().unwrap();
        assert!(!system.word.take(), "no thread sleeps any more");
    });
}

#[test]
fn a_completion_and_an_abort_both_end_the_sleep() {
    model(MOST, || {
        let system = SimulatedSystem::new();
        let device = in_thread(&system, SimulatedSystem::complete);
        let abort = in_thread(&system, SimulatedSystem::send_message);
        wait_for(&system, 2);
        device.join().unwrap();
        abort.join().unwrap();
    });
}

#[test]
fn two_simultaneous_wakers_both_end_the_sleep() {
    model(MOST, || {
        let system = SimulatedSystem::new();
        let others = [(); 2].map(|()| in_thread(&system, SimulatedSystem::send_message));
        wait_for(&system, 2);
        for other in others {
            other.join().unwrap();
        }
    });
}

//! One wait policy at one rate: the waiting thread and the sending thread.
//!
//! ```text
//! sender  due │ post, step the NIC up to the completion │ take the time │ step: write the completion │ step until the
//!             │                                         │               │                            │ waiter has it
//! waiter      wait ................................................................ take the time │ wait
//! ```
//!
//! The sender continues to step the NIC until the waiter has the message: if the
//! waiter arms the completion queue just when the completion is written, a later
//! step serves the arming.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use dat_api::safe::{EventDispatcher, WaitCounters, WaitPolicy};
use serde::Serialize;

use super::pair::{DEPTH, Pair, number};
use crate::clock::Clock;
use crate::ends::rust::Rust;
use crate::failure::Failure;
use crate::host;
use crate::nic::Nic;
use crate::noise::{Noise, Ran, Watch};
use crate::stats::{Reported, Samples};
use crate::wake::options::Rate;

/// Least number of measured messages.
const MIN_MESSAGES: u64 = 20;
/// Least and most warm-up messages, in which an adaptive wait learns.
const WARMUP: (u64, u64) = (10, 1000);
/// Number of messages with which the steps up to a completion are counted.
const CALIBRATION: u64 = 4;
/// Timeout for one message.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A sender with more time than this until the next message sleeps.
const MIN_SLEEP: Duration = Duration::from_millis(1);

/// The CPUs of the two threads; none if not pinned.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Cpus {
    pub(super) waiter: Option<usize>,
    pub(super) sender: Option<usize>,
}

impl Cpus {
    /// Returns the two requested CPUs, or the first two of this process; no pinning
    /// if it has only one.
    pub(super) fn choose(asked: &[usize]) -> Result<Self, Failure> {
        let there: Vec<usize> = core_affinity::get_core_ids()
            .unwrap_or_default()
            .iter()
            .map(|core| core.id)
            .collect();
        let &[waiter, sender, ..] = (if asked.is_empty() { &there } else { asked }) else {
            return Ok(Self {
                waiter: None,
                sender: None,
            });
        };
        for cpu in [waiter, sender] {
            if !there.contains(&cpu) {
                // Returns the failure that lists the CPUs.
                host::pin(cpu)?;
            }
        }
        Ok(Self {
            waiter: Some(waiter),
            sender: Some(sender),
        })
    }
}

/// The parameters of one measurement.
pub(super) struct Case {
    pub(super) policy: WaitPolicy,
    pub(super) rate: Rate,
    pub(super) duration: Duration,
    pub(super) cpus: Cpus,
    pub(super) clock: Clock,
}

pub(super) struct RoundResult {
    /// Latencies, from the sender's time until the waiter has the event.
    pub(super) samples: Samples,
    /// Response times, from the time at which the message was due; none in a closed
    /// loop.
    pub(super) response: Samples,
    /// What disturbed the waiter, in the warm-up too: a message that was sent then
    /// may be taken later.
    pub(super) noise: Noise,
    /// How long the waiter ran after the warm-up.
    pub(super) ran: Ran,
    pub(super) waits: WaitCounters,
    /// Posts to full queues of the adapter.
    pub(super) refused: u64,
    /// Messages sent more than one interval after they were due.
    pub(super) late: u64,
}

/// State that the two threads share.
struct Shared {
    /// The sender's time of message n, at index n modulo the depth.
    stamps: [AtomicU64; DEPTH as usize],
    /// When message n was due, likewise.
    dues: [AtomicU64; DEPTH as usize],
    /// Number of messages that the waiter has taken.
    taken: AtomicU64,
    /// Number of messages to send; the sender reduces it when the time is over.
    end: AtomicU64,
    /// The waiter has ended, after the last message or by a failure.
    has_ended: AtomicBool,
}

impl Shared {
    /// Returns how many messages below `number` the waiter has not taken, and
    /// whether it has ended. `between` runs between the two loads, for tests.
    fn backlog(&self, number: u64, between: impl FnOnce()) -> (u64, bool) {
        // In this order: after the waiter has ended, the count is final.
        let has_ended = self.has_ended.load(Ordering::Acquire);
        between();
        (number - self.taken.load(Ordering::Acquire), has_ended)
    }
}

impl Case {
    pub(super) fn run(&self, rust: &Rust, nic: &mut Nic) -> Result<RoundResult, Failure> {
        let before = rust.adapter.counters().refused_posts;
        let (mut pair, received) = Pair::new(rust, self.policy)?;
        nic.hold()?;
        let steps = steps_to_a_completion(&mut pair, &received, nic)?;
        // With a rate, the number of messages is known; in a closed loop, the time decides.
        let count = match self.rate {
            Rate::PerSecond(rate) => {
                ((rate * self.duration.as_secs_f64()) as u64).max(MIN_MESSAGES)
            }
            Rate::Closed => u64::MAX / 2,
        };
        let warmup = match self.rate {
            Rate::PerSecond(_) => (count / 10).clamp(WARMUP.0, WARMUP.1),
            Rate::Closed => 100,
        };
        let first = CALIBRATION + warmup;
        let shared = Shared {
            stamps: [const { AtomicU64::new(0) }; DEPTH as usize],
            dues: [const { AtomicU64::new(0) }; DEPTH as usize],
            taken: AtomicU64::new(CALIBRATION),
            end: AtomicU64::new(first + count),
            has_ended: AtomicBool::new(false),
        };
        let looked = Barrier::new(2);
        let (sent, result) = thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let watch = self.watch();
                looked.wait();
                let result = watch.and_then(|watch| self.wait(watch, &received, &shared, first));
                shared.has_ended.store(true, Ordering::Release);
                result
            });
            looked.wait();
            let sent = self.send(&mut pair, nic, steps, &shared, first);
            if sent.is_err() {
                // Ends the wait of the waiter.
                let _ = received.set_unwaitable();
            }
            (sent, waiter.join().expect("the waiter does not panic"))
        });
        // Destroying queues needs a running NIC.
        nic.release();
        match (sent, result) {
            (Ok(late), Ok(result)) => Ok(RoundResult {
                late,
                refused: rust.adapter.counters().refused_posts - before,
                ..result
            }),
            (Err(failure), Ok(_)) | (Ok(_), Err(failure)) => Err(failure),
            (Err(sender), Err(waiter)) => Err(Failure::run(format!("{sender}; {waiter}"))),
        }
    }

    /// Runs the sender. Returns the number of late messages.
    fn send(
        &self,
        pair: &mut Pair,
        nic: &Nic,
        steps: u32,
        shared: &Shared,
        first: u64,
    ) -> Result<u64, Failure> {
        let clock = self.clock;
        // The limit ends a run that cannot keep its rate.
        let (interval, ahead, limit) = match self.rate {
            Rate::PerSecond(rate) => (
                clock.ticks(Duration::from_secs_f64(1.0 / rate)),
                DEPTH - CALIBRATION,
                clock.ticks(
                    self.duration * 2 + Duration::from_secs_f64(2.0 * WARMUP.0 as f64 / rate),
                ),
            ),
            Rate::Closed => (0, 1, clock.ticks(self.duration)),
        };
        let begin = clock.now();
        let (mut due, mut late) = (begin, 0);
        for number in CALIBRATION.. {
            self.wait_until_due(nic, shared, due, number, ahead)?;
            let now = clock.now();
            if now.wrapping_sub(begin) > limit && number >= first + MIN_MESSAGES {
                shared.end.store(number + 1, Ordering::Release);
            }
            if interval > 0 && now.wrapping_sub(due) > interval {
                late += 1;
            }
            let at = (number % DEPTH) as usize;
            let stamp = &shared.stamps[at];
            // Published by the store to `stamp`.
            shared.dues[at].store(due, Ordering::Relaxed);
            if nic.is_emulated() {
                pair.send()?;
                for _ in 0..steps {
                    nic.step();
                }
                stamp.store(clock.now(), Ordering::Release);
                nic.step();
            } else {
                stamp.store(clock.now(), Ordering::Release);
                pair.send()?;
            }
            pair.receive()?;
            due = due.wrapping_add(interval);
            if number + 1 == shared.end.load(Ordering::Relaxed) {
                self.wait_until_due(nic, shared, due, number + 1, 1)?;
                break;
            }
        }
        Ok(late)
    }

    /// Waits until message `number` is due and the waiter has fewer than `most`
    /// messages to take.
    fn wait_until_due(
        &self,
        nic: &Nic,
        shared: &Shared,
        due: u64,
        number: u64,
        most: u64,
    ) -> Result<(), Failure> {
        let clock = self.clock;
        let (min_sleep, timeout) = (clock.ticks(MIN_SLEEP), clock.ticks(TIMEOUT));
        let begin = clock.now();
        loop {
            let now = clock.now();
            let left = due.wrapping_sub(now).cast_signed();
            let (ahead, has_ended) = shared.backlog(number, || ());
            if left <= 0 && ahead < most {
                return Ok(());
            }
            if has_ended {
                return match ahead {
                    0 => Ok(()),
                    _ => Err(Failure::run("the waiting thread ended early")),
                };
            }
            if ahead > 0 {
                nic.step();
                if now.wrapping_sub(begin) > timeout {
                    return Err(Failure::run(
                        "the waiting thread did not take a message within 10 s",
                    ));
                }
            } else if left > min_sleep.cast_signed() {
                let nanos =
                    (left.cast_unsigned() - min_sleep / 2) as f64 * clock.nanoseconds_per_tick();
                thread::sleep(Duration::from_nanos(nanos as u64));
            }
        }
    }

    /// Pins the waiter and looks at its core.
    fn watch(&self) -> Result<Watch, Failure> {
        if let Some(cpu) = self.cpus.waiter {
            host::pin_unchecked(cpu)?;
        }
        Ok(Watch::begin(&self.clock))
    }

    /// Runs the waiter.
    fn wait(
        &self,
        watch: Watch,
        received: &EventDispatcher,
        shared: &Shared,
        first: u64,
    ) -> Result<RoundResult, Failure> {
        let clock = self.clock;
        let new = || Samples::new(&clock, Reported::FullRoundTrip);
        let (mut samples, mut response) = (new(), new());
        let has_schedule = matches!(self.rate, Rate::PerSecond(_));
        let counters = || {
            received
                .wait_counters()
                .map_err(|code| Failure::run(format!("cannot read the wait counters: {code}")))
        };
        let (mut warm, mut waits) = (Ran::default(), counters()?);
        loop {
            let event = received
                .wait(None)
                .map_err(|code| Failure::run(format!("the wait ended with {code}")))?;
            let now = clock.now();
            let number = number(&event)?;
            let at = (number % DEPTH) as usize;
            let stamp = shared.stamps[at].load(Ordering::Acquire);
            if number >= first {
                samples.record(now.wrapping_sub(stamp));
                if has_schedule {
                    let due = shared.dues[at].load(Ordering::Relaxed);
                    response.record(now.wrapping_sub(due));
                }
            }
            // Read before `taken` is stored, after which the sender may reduce it.
            let end = shared.end.load(Ordering::Acquire);
            shared.taken.store(number + 1, Ordering::Release);
            if number + 1 == first {
                (warm, waits) = (watch.ran(), counters()?);
            }
            if number + 1 == end {
                break;
            }
        }
        let noise = watch.end();
        let after = counters()?;
        Ok(RoundResult {
            samples,
            response,
            ran: noise.ran.since(warm),
            noise,
            waits: WaitCounters {
                spins: after.spins - waits.spins,
                hits: after.hits - waits.hits,
                blocks: after.blocks - waits.blocks,
                spurious: after.spurious - waits.spurious,
            },
            refused: 0,
            late: 0,
        })
    }
}

/// Counts the steps of the NIC between a post and the step that writes the
/// receiver's completion; 0 on a real device.
fn steps_to_a_completion(
    pair: &mut Pair,
    received: &EventDispatcher,
    nic: &Nic,
) -> Result<u32, Failure> {
    /// More than any message needs.
    const MOST: u32 = 1000;
    let mut least = MOST;
    for _ in 0..CALIBRATION {
        pair.send()?;
        let begin = std::time::Instant::now();
        let mut steps = 0;
        loop {
            nic.step();
            steps += 1;
            match received.dequeue() {
                Ok(Some(event)) => {
                    number(&event)?;
                    break;
                }
                Ok(None) if begin.elapsed() < TIMEOUT => {}
                Ok(None) => {
                    return Err(Failure::run(
                        "a message did not arrive within 10 s; is the port active?",
                    ));
                }
                Err(code) => return Err(Failure::run(format!("cannot dequeue an event: {code}"))),
            }
        }
        while nic.step() {}
        pair.receive()?;
        least = least.min(steps);
    }
    Ok(if nic.is_emulated() { least - 1 } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_that_ends_between_the_two_loads_has_taken_all_messages() {
        let shared = Shared {
            stamps: [const { AtomicU64::new(0) }; DEPTH as usize],
            dues: [const { AtomicU64::new(0) }; DEPTH as usize],
            taken: AtomicU64::new(9),
            end: AtomicU64::new(10),
            has_ended: AtomicBool::new(false),
        };
        // The waiter takes the last message and ends between the two loads.
        let ends = || {
            shared.taken.store(10, Ordering::Release);
            shared.has_ended.store(true, Ordering::Release);
        };
        assert_eq!(shared.backlog(10, ends), (0, false));
        assert_eq!(shared.backlog(10, || ()), (0, true));
    }
}

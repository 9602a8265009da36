//! One policy at one rate: a thread that waits, and the one that sends.
//!
//! ```text
//! sender  due │ post, steps that lead to the completion │ stamp │ step: the completion comes out │ steps until the
//!             │                                         │       │                                │ waiter has it
//! waiter      wait ............................................................. has it: stamp │ wait
//! ```
//!
//! The sender goes on stepping until the waiter has the message: the waiter may
//! ask for an event just when the completion comes out, and that question is
//! heard by a step.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use dat_api::safe::{Adapter, EventDispatcher, WaitCounters, WaitPolicy};
use serde::Serialize;

use super::pair::{DEPTH, Pair, number};
use crate::cli::Rate;
use crate::clock::Clock;
use crate::failure::Failure;
use crate::host;
use crate::nic::Nic;
use crate::stats::{Reported, Samples};

/// Messages that a case has at least.
const LEAST: u64 = 20;
/// Messages before the first that counts, at least and at most: an adaptive wait
/// learns.
const WARMUP: (u64, u64) = (10, 1000);
/// Messages by which the steps are counted.
const CALIBRATION: u64 = 4;
/// How long one message may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// A sender that has so long to go sleeps most of it.
const NAP: Duration = Duration::from_millis(1);

/// Where the threads are.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Cpus {
    pub(super) waiter: Option<usize>,
    pub(super) sender: Option<usize>,
}

impl Cpus {
    /// As was asked for, or the first two that there are.
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
                // Says which there are.
                host::pin(cpu)?;
            }
        }
        Ok(Self {
            waiter: Some(waiter),
            sender: Some(sender),
        })
    }
}

/// What is measured.
pub(super) struct Case {
    pub(super) policy: WaitPolicy,
    pub(super) rate: Rate,
    pub(super) duration: Duration,
    pub(super) cpus: Cpus,
    pub(super) clock: Clock,
}

/// What was seen in one round.
pub(super) struct Seen {
    /// From the stamp of the sender until the waiter has the message.
    pub(super) samples: Samples,
    /// The waiter's own CPU time, nanoseconds.
    pub(super) cpu: u64,
    /// How long that was, nanoseconds.
    pub(super) wall: u64,
    pub(super) waits: WaitCounters,
    /// Posts that were refused in the adapter.
    pub(super) refused: u64,
    /// Messages that could not be sent when they were due.
    pub(super) late: u64,
}

/// What the two threads share.
struct Shared {
    /// When message n was let out, in place n modulo the depth.
    stamps: [AtomicU64; DEPTH as usize],
    /// How many were taken.
    taken: AtomicU64,
    /// How many there are; it becomes less when the time is up.
    end: AtomicU64,
    /// The waiter has ended: it has all, or has given up.
    is_over: AtomicBool,
}

impl Shared {
    /// Returns how many messages before this number are not taken, and whether
    /// the waiter has ended.
    fn look(&self, number: u64, between: impl FnOnce()) -> (u64, bool) {
        // In this order: of a waiter that has ended, the count is final.
        let is_over = self.is_over.load(Ordering::Acquire);
        between();
        (number - self.taken.load(Ordering::Acquire), is_over)
    }
}

impl Case {
    pub(super) fn run(&self, adapter: &Adapter, nic: &mut Nic) -> Result<Seen, Failure> {
        let before = adapter.counters().refused_posts;
        let (mut pair, received) = Pair::new(adapter, self.policy)?;
        nic.hold()?;
        let steps = steps_to_a_completion(&mut pair, &received, nic)?;
        // Of a rate; otherwise the time says.
        let count = match self.rate {
            Rate::PerSecond(rate) => ((rate * self.duration.as_secs_f64()) as u64).max(LEAST),
            Rate::Closed => u64::MAX / 2,
        };
        let warmup = match self.rate {
            Rate::PerSecond(_) => (count / 10).clamp(WARMUP.0, WARMUP.1),
            Rate::Closed => 100,
        };
        let first = CALIBRATION + warmup;
        let shared = Shared {
            stamps: [const { AtomicU64::new(0) }; DEPTH as usize],
            taken: AtomicU64::new(CALIBRATION),
            end: AtomicU64::new(first + count),
            is_over: AtomicBool::new(false),
        };
        let (sent, seen) = thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let seen = self.wait(&received, &shared, first);
                shared.is_over.store(true, Ordering::Release);
                seen
            });
            let sent = self.send(&mut pair, nic, steps, &shared, first);
            if sent.is_err() {
                // Who still waits is let go.
                let _ = received.set_unwaitable();
            }
            (sent, waiter.join().expect("the waiter does not panic"))
        });
        // Closing needs a NIC that answers.
        nic.release();
        match (sent, seen) {
            (Ok(late), Ok(seen)) => Ok(Seen {
                late,
                refused: adapter.counters().refused_posts - before,
                ..seen
            }),
            (Err(failure), Ok(_)) | (Ok(_), Err(failure)) => Err(failure),
            (Err(sender), Err(waiter)) => Err(Failure::run(format!("{sender}; {waiter}"))),
        }
    }

    /// The sender's thread. Answers how many were late.
    fn send(
        &self,
        pair: &mut Pair,
        nic: &Nic,
        steps: u32,
        shared: &Shared,
        first: u64,
    ) -> Result<u64, Failure> {
        let clock = self.clock;
        // A paced run that is too slow for its rate ends as well.
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
            self.until_due(nic, shared, due, number, ahead)?;
            let now = clock.now();
            if now.wrapping_sub(begin) > limit && number >= first + LEAST {
                shared.end.store(number + 1, Ordering::Release);
            }
            if interval > 0 && now.wrapping_sub(due) > interval {
                late += 1;
            }
            let stamp = &shared.stamps[(number % DEPTH) as usize];
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
                self.until_due(nic, shared, due, number + 1, 1)?;
                break;
            }
        }
        Ok(late)
    }

    /// Until a message is due, and fewer than so many are ahead of the waiter.
    fn until_due(
        &self,
        nic: &Nic,
        shared: &Shared,
        due: u64,
        number: u64,
        most: u64,
    ) -> Result<(), Failure> {
        let clock = self.clock;
        let (nap, patience) = (clock.ticks(NAP), clock.ticks(PATIENCE));
        let begin = clock.now();
        loop {
            let now = clock.now();
            let left = due.wrapping_sub(now).cast_signed();
            let (ahead, is_over) = shared.look(number, || ());
            if left <= 0 && ahead < most {
                return Ok(());
            }
            if is_over {
                return match ahead {
                    0 => Ok(()),
                    _ => Err(Failure::run("the waiter has given up")),
                };
            }
            if ahead > 0 {
                nic.step();
                if now.wrapping_sub(begin) > patience {
                    return Err(Failure::run("a message is not taken"));
                }
            } else if left > nap.cast_signed() {
                let nanos = (left.cast_unsigned() - nap / 2) as f64 * clock.nanoseconds_per_tick();
                thread::sleep(Duration::from_nanos(nanos as u64));
            }
        }
    }

    /// The waiter's thread.
    fn wait(
        &self,
        received: &EventDispatcher,
        shared: &Shared,
        first: u64,
    ) -> Result<Seen, Failure> {
        if let Some(cpu) = self.cpus.waiter {
            host::pin_beside(cpu)?;
        }
        let clock = self.clock;
        let mut samples = Samples::new(&clock, Reported::FullRoundTrip);
        let counters = || {
            received
                .wait_counters()
                .map_err(|code| Failure::run(format!("no counters: {code}")))
        };
        let (mut begin, mut cpu, mut waits) = (clock.now(), cpu_time(), counters()?);
        loop {
            let event = received
                .wait(None)
                .map_err(|code| Failure::run(format!("the wait ended with {code}")))?;
            let now = clock.now();
            let number = number(&event)?;
            let stamp = shared.stamps[(number % DEPTH) as usize].load(Ordering::Acquire);
            if number >= first {
                samples.record(now.wrapping_sub(stamp));
            }
            // Read before the sender is told, who may make it less.
            let end = shared.end.load(Ordering::Acquire);
            shared.taken.store(number + 1, Ordering::Release);
            if number + 1 == first {
                (begin, cpu, waits) = (clock.now(), cpu_time(), counters()?);
            }
            if number + 1 == end {
                break;
            }
        }
        let wall = clock.now().wrapping_sub(begin) as f64 * clock.nanoseconds_per_tick();
        let after = counters()?;
        Ok(Seen {
            samples,
            cpu: cpu_time() - cpu,
            wall: wall as u64,
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

/// Steps of the NIC, after a message was posted, before the one that writes the
/// receiver's completion; none on a device that is not emulated.
fn steps_to_a_completion(
    pair: &mut Pair,
    received: &EventDispatcher,
    nic: &Nic,
) -> Result<u32, Failure> {
    /// More than there are.
    const MOST: u32 = 1000;
    let mut least = MOST;
    for _ in 0..CALIBRATION {
        pair.send()?;
        let begin = std::time::Instant::now();
        let mut steps = 0;
        loop {
            nic.step();
            steps += 1;
            match received.next() {
                Ok(Some(event)) => {
                    number(&event)?;
                    break;
                }
                Ok(None) if begin.elapsed() < PATIENCE => {}
                Ok(None) => return Err(Failure::run("a message does not arrive")),
                Err(code) => return Err(Failure::run(format!("no event: {code}"))),
            }
        }
        while nic.step() {}
        pair.receive()?;
        least = least.min(steps);
    }
    Ok(if nic.is_emulated() { least - 1 } else { 0 })
}

/// What the calling thread has had of the processor, nanoseconds.
fn cpu_time() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a live timespec; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    // Both are positive.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_that_ends_while_the_sender_looks_has_not_given_up() {
        let shared = Shared {
            stamps: [const { AtomicU64::new(0) }; DEPTH as usize],
            taken: AtomicU64::new(9),
            end: AtomicU64::new(10),
            is_over: AtomicBool::new(false),
        };
        // It takes the last message, and ends, between the two loads.
        let ends = || {
            shared.taken.store(10, Ordering::Release);
            shared.is_over.store(true, Ordering::Release);
        };
        assert_eq!(shared.look(10, ends), (0, false));
        assert_eq!(shared.look(10, || ()), (0, true));
    }
}

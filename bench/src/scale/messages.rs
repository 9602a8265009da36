//! Cost per message with many endpoints on one shared receive queue.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::endpoints::{Endpoints, RECEIVES};
use super::pages::{Counter, Pages};
use crate::clock::Clock;
use crate::ends::interface::SharedQueues;
use crate::failure::Failure;
use crate::nic::Nic;
use crate::noise::{Noise, Watch};
use crate::scale::options::ScaleArgs;
use crate::worker::section::measured;
use crate::worker::valgrind;
use crate::{host, launcher};

/// Messages per timed section.
pub(super) const TIMED: u32 = RECEIVES / 2;
/// Messages of the counted sections; the first one is warm-up.
const COUNTED: [u32; 3] = [1024, 512, 1024];
const WARMUP: u32 = 3;
/// Timeout for messages.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The result of a worker process, as JSON on its standard output.
#[derive(Deserialize, Serialize)]
pub(super) enum WorkerResult {
    /// The timed sections.
    Timed {
        /// Per message, per section.
        nanoseconds: Vec<f64>,
        /// What disturbed the thread, between the sections too.
        noise: Box<Noise>,
        pages: Pages,
    },
    /// Messages per counted section; callgrind's files have the counts.
    Counted(Vec<u32>),
    /// Growth of resident bytes.
    Memory(u64),
}

/// Measures the messages of this many endpoints, as a worker process.
pub(super) fn run<I: SharedQueues>(
    interface: &I,
    count: u32,
    args: &ScaleArgs,
) -> Result<WorkerResult, Failure> {
    let nic = Nic::find(launcher::fabric().is_some(), Duration::from_millis(5))?;
    let mut sender = Sender {
        endpoints: Endpoints::create(interface, count)?,
        nic,
        next: 0,
    };
    if let Some(cpu) = args.common.cpu {
        host::pin(cpu)?;
    }
    let result = match args.common.counted {
        true => counted(&mut sender),
        false => timed(&mut sender, args.rounds),
    };
    sender.nic.release();
    result
}

/// Counts the instructions of messages.
fn counted<I: SharedQueues>(sender: &mut Sender<I>) -> Result<WorkerResult, Failure> {
    for count in COUNTED {
        sender.section(count, &mut |work| {
            valgrind::start();
            measured(work);
            valgrind::stop();
        })?;
    }
    Ok(WorkerResult::Counted(COUNTED.to_vec()))
}

/// Measures the time of messages.
fn timed<I: SharedQueues>(sender: &mut Sender<I>, rounds: u32) -> Result<WorkerResult, Failure> {
    let clock = Clock::calibrate();
    let mut nanoseconds = Vec::new();
    let mut watch = None;
    let mut counter = Counter::new();
    for round in 0..WARMUP + rounds {
        if round == WARMUP {
            watch = Some(Watch::begin(&clock));
        }
        let mut ticks = 0;
        sender.section(TIMED, &mut |work| {
            if round >= WARMUP {
                counter.begin();
            }
            let begin = clock.now();
            measured(work);
            ticks = clock.now().wrapping_sub(begin);
            if round >= WARMUP {
                counter.end();
            }
        })?;
        if round >= WARMUP {
            nanoseconds.push(ticks as f64 * clock.nanoseconds_per_tick() / f64::from(TIMED));
        }
    }
    let noise = watch.map(Watch::end).unwrap_or_default();
    Ok(WorkerResult::Timed {
        nanoseconds,
        noise: Box::new(noise),
        pages: counter.pages(),
    })
}

/// Sends messages to the endpoints.
struct Sender<I: SharedQueues> {
    endpoints: Endpoints<I>,
    nic: Nic,
    /// Index of the endpoint that gets the next message.
    next: usize,
}

impl<I: SharedQueues> Sender<I> {
    /// Queues `count` messages, then calls `how` with the work that takes them.
    fn section(
        &mut self,
        count: u32,
        how: &mut dyn FnMut(&mut dyn FnMut()),
    ) -> Result<(), Failure> {
        // The NIC is stepped until each message has arrived, before the next is
        // sent, so that the order is always the same.
        self.nic.hold()?;
        let (mut done, begin) = (0, Instant::now());
        for _ in 0..count {
            done += self.send()?;
            while self.nic.step() {}
            done += self.endpoints.sent()?;
        }
        while done < count {
            done += self.endpoints.sent()?;
            if begin.elapsed() > TIMEOUT {
                return Err(Failure::run(
                    "messages did not arrive within 10 s; is the port active?",
                ));
            }
        }
        if !self.nic.is_emulated() {
            self.nic.drain_and_hold()?;
        }
        let mut taken = 0;
        let endpoints = &mut self.endpoints;
        how(&mut || taken = endpoints.take(count));
        if taken == count {
            Ok(())
        } else {
            Err(Failure::run(format!(
                "only {taken} of {count} messages had arrived before the timed section; run again, or with fewer endpoints (-q)"
            )))
        }
    }

    /// Sends the next message, to an endpoint far from the previous one. Returns
    /// the number of send completions that it polled.
    fn send(&mut self) -> Result<u32, Failure> {
        let count = self.endpoints.count();
        // Steps by the golden ratio spread the messages over all endpoints.
        self.next = (self.next + (count as f64 * 0.618_034) as usize + 1) % count;
        let (begin, mut done) = (Instant::now(), 0);
        while !self.endpoints.send(self.next) {
            done += self.endpoints.sent()?;
            if begin.elapsed() > TIMEOUT {
                return Err(Failure::run(
                    "a send queue stayed full for 10 s; is the port active?",
                ));
            }
        }
        Ok(done)
    }
}

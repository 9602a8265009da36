//! Cost per message with many endpoints on one shared receive queue.

use std::time::{Duration, Instant};

use dat_engine::{
    CompletionQueue, ConnectOptions, CqOptions, Device, Endpoint, EndpointOptions, RecvRequest,
    RegisteredBuffer, Segment, SendFlags, SendOp, SendRequest, SharedReceiveQueue, SrqOptions,
};

use super::pages::Counter;
use super::{Kind, WorkerResult, valgrind};
use crate::cli::ScaleArgs;
use crate::clock::Clock;
use crate::cost::meter::measured;
use crate::failure::Failure;
use crate::nic::Nic;
use crate::noise::Watch;
use crate::select::Selected;
use crate::{host, launcher};

/// Messages per timed section.
pub(super) const TIMED: u32 = 1024;
/// Messages of the counted sections; the first one is warm-up.
const COUNTED: [u32; 3] = [1024, 512, 1024];
const WARMUP: u32 = 3;
/// Depth of the shared receive queue.
const RECEIVES: u32 = 2 * TIMED;
/// Send queue depth of an endpoint.
const SENDS: u32 = 16;
/// Bytes of a message, which is inline if the device supports it.
const MESSAGE: u32 = 32;
/// Timeout for messages.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The endpoints and their queues.
struct EndpointSet {
    // Dropped in this order: the memory after all objects that write to it.
    endpoints: Vec<Endpoint>,
    srq: SharedReceiveQueue,
    sent: CompletionQueue,
    received: CompletionQueue,
    _buffer: RegisteredBuffer,
    out: [Segment; 1],
    into: [Segment; 1],
    inline: SendFlags,
    nic: Nic,
    /// Index of the endpoint that gets the next message.
    next: usize,
    sum: u64,
}

/// Measures one number of endpoints.
pub(super) fn run(
    kind: Kind,
    selected: &Selected,
    count: u32,
    args: &ScaleArgs,
) -> Result<WorkerResult, Failure> {
    let mut set = EndpointSet::new(selected, count, args.on.ib_port)?;
    if let Some(cpu) = args.cpu {
        host::pin(cpu)?;
    }
    if kind == Kind::Counted {
        for count in COUNTED {
            set.section(count, &mut |work| {
                valgrind::start();
                measured(work);
                valgrind::stop();
            })?;
        }
        set.nic.release();
        return Ok(WorkerResult::Counted(COUNTED.to_vec()));
    }
    let clock = Clock::calibrate();
    let mut nanoseconds = Vec::new();
    let mut watch = None;
    let mut counter = Counter::new();
    for round in 0..WARMUP + args.rounds {
        if round == WARMUP {
            watch = Some(Watch::begin(&clock));
        }
        let mut ticks = 0;
        set.section(TIMED, &mut |work| {
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
    set.nic.release();
    let noise = watch.map(Watch::end).unwrap_or_default();
    Ok(WorkerResult::Timed {
        nanoseconds,
        noise: Box::new(noise),
        pages: counter.pages(),
    })
}

impl EndpointSet {
    fn new(selected: &Selected, count: u32, port: u8) -> Result<Self, Failure> {
        let domain = Device::open(&selected.name)?.alloc_pd()?;
        let nic = Nic::find(launcher::fabric().is_some(), Duration::from_millis(5))?;
        let buffer = domain.allocate(4096, dat_engine::Access::default())?;
        let queue = || {
            domain.device().create_cq(&CqOptions {
                depth: 2 * RECEIVES,
                ..CqOptions::default()
            })
        };
        let (sent, received) = (queue()?, queue()?);
        let srq = domain.create_srq(&SrqOptions {
            depth: RECEIVES,
            max_segments: 1,
        })?;
        let options = ConnectOptions {
            port,
            ..ConnectOptions::default()
        };
        let mut endpoints = Vec::new();
        for context in 0..count {
            let mut endpoint = domain.create_endpoint(&EndpointOptions {
                srq: Some(srq.handle()),
                send_depth: SENDS,
                inline_bytes: MESSAGE,
                inline_or_fewer: true,
                context: context.into(),
                ..EndpointOptions::new(sent.handle(), received.handle())
            })?;
            let own = endpoint.local_address(port)?;
            endpoint.connect(&own, &options)?;
            endpoints.push(endpoint);
        }
        let segment = |at| {
            buffer
                .segment(at, MESSAGE)
                .expect("both segments are within the buffer")
        };
        let goes_inline = endpoints
            .iter()
            .all(|endpoint| endpoint.max_inline() >= MESSAGE);
        let mut set = Self {
            inline: if goes_inline {
                SendFlags::INLINE
            } else {
                SendFlags::empty()
            },
            out: [segment(0)],
            into: [segment(1024)],
            endpoints,
            srq,
            sent,
            received,
            _buffer: buffer,
            nic,
            next: 0,
            sum: 0,
        };
        for wr_id in 0..u64::from(RECEIVES) {
            if !post(&mut set.srq, &set.into, wr_id) {
                return Err(Failure::run(
                    "a receive was refused although the queue has room; report it with the command line",
                ));
            }
        }
        Ok(set)
    }

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
            done += self.sent()?;
        }
        while done < count {
            done += self.sent()?;
            if begin.elapsed() > TIMEOUT {
                return Err(Failure::run(
                    "messages did not arrive within 10 s; is the port active?",
                ));
            }
        }
        if !self.nic.is_emulated() {
            self.nic.drain_and_hold()?;
        }
        let Self {
            received,
            srq,
            into,
            sum,
            ..
        } = self;
        let mut taken = 0;
        how(&mut || taken = take(count, received, srq, into, sum));
        core::hint::black_box(self.sum);
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
        let count = self.endpoints.len();
        // Steps by the golden ratio spread the messages over all endpoints.
        self.next = (self.next + (count as f64 * 0.618_034) as usize + 1) % count;
        let request = SendRequest {
            wr_id: 0,
            op: SendOp::Send,
            flags: SendFlags::SIGNALED | self.inline,
            segments: &self.out.clone(),
        };
        let (begin, mut done) = (Instant::now(), 0);
        // SAFETY: the memory outlives the endpoints (order of fields), and there
        // are no references to it.
        while unsafe { self.endpoints[self.next].post_send(&request) }.is_err() {
            done += self.sent()?;
            if begin.elapsed() > TIMEOUT {
                return Err(Failure::run(
                    "a send queue stayed full for 10 s; is the port active?",
                ));
            }
        }
        Ok(done)
    }

    /// Polls send completions. Returns their number.
    fn sent(&mut self) -> Result<u32, Failure> {
        let mut done = 0;
        while let Some(completion) = self.sent.poll() {
            if !completion.status.is_success() {
                return Err(Failure::run(format!("a send failed: {completion:?}")));
            }
            done += 1;
        }
        Ok(done)
    }
}

/// Polls `count` messages and posts their receives again. Returns how many it
/// got before a poll was empty or a call failed.
#[inline(always)]
fn take(
    count: u32,
    received: &mut CompletionQueue,
    srq: &mut SharedReceiveQueue,
    into: &[Segment; 1],
    sum: &mut u64,
) -> u32 {
    for taken in 0..count {
        let Some(completion) = received.poll() else {
            return taken;
        };
        if !completion.status.is_success() || !post(srq, into, completion.wr_id) {
            return taken;
        }
        *sum = sum.wrapping_add(completion.context + u64::from(completion.byte_len));
    }
    count
}

#[inline(always)]
fn post(srq: &mut SharedReceiveQueue, into: &[Segment; 1], wr_id: u64) -> bool {
    let request = RecvRequest {
        wr_id,
        segments: into,
    };
    // SAFETY: the memory outlives the queue (order of fields of `EndpointSet`).
    unsafe { srq.post(&request) }.is_ok()
}

//! What all queue pairs share: keys, completion and shared receive queues,
//! events, buffers, the time.

use super::clock::Clock;
use super::cq::Cq;
use super::incidents::Devices;
use super::mr::Mrs;
use super::number::Table;
use super::options::{Mishaps, Nanos, NicOptions, Trace};
use super::pd::{Context, Pd};
use super::spec::{AsyncEvent, AsyncObject, ContextId, Errno, EventSink, Result};
use super::srq::Srq;
use super::timers::Timers;
use super::violations::Violations;

/// Contexts of one process; more than any program opens.
const MAX_CONTEXT: u32 = 1 << 16;
/// Empty payload buffers kept for reuse.
const POOL: usize = 256;

/// Everything but the queue pairs, so that a queue pair and this can be
/// borrowed side by side.
pub(super) struct Core {
    pub(super) options: NicOptions,
    pub(super) events: Box<dyn EventSink>,
    pub(super) trace: Option<Box<dyn Trace + Send>>,
    pub(super) mishaps: Option<Box<dyn Mishaps + Send>>,
    pub(super) violations: Violations,
    /// Ports that are down, devices that have failed.
    pub(super) devices: Devices,
    pub(super) contexts: Table<Context>,
    pub(super) pds: Table<Pd>,
    pub(super) mrs: Mrs,
    pub(super) cqs: Table<Cq>,
    pub(super) srqs: Table<Srq>,
    pub(super) timers: Timers,
    /// The time of the latest round of work.
    pub(super) now: Nanos,
    clock: Clock,
    /// QPs with packets to send, in turn.
    pub(super) ready: std::collections::VecDeque<u32>,
    /// QPs in error whose receive queue may still be posted to.
    pub(super) flushing: Vec<u32>,
    /// CQs that overran and whose QPs are still to be told.
    pub(super) overrun: Vec<u32>,
    /// QPs that fail at the end of the round: a completion of theirs was no
    /// good, or their rings cannot be read.
    pub(super) failing: Vec<u32>,
    pool: Vec<Vec<u8>>,
}

impl Core {
    pub(super) fn new(options: NicOptions, events: Box<dyn EventSink>) -> Self {
        let (limits, stepped) = (options.limits, options.stepped);
        Self {
            options,
            events,
            trace: None,
            mishaps: None,
            violations: Violations::default(),
            devices: Devices::default(),
            contexts: Table::new(1, MAX_CONTEXT),
            pds: Table::new(1, limits.max_pd),
            mrs: Mrs::new(limits.max_mr, limits.max_mw),
            cqs: Table::new(1, limits.max_cq),
            srqs: Table::new(1, limits.max_srq),
            timers: Timers::default(),
            now: 0,
            clock: Clock::new(stepped),
            ready: std::collections::VecDeque::new(),
            flushing: Vec::new(),
            overrun: Vec::new(),
            failing: Vec::new(),
            pool: Vec::new(),
        }
    }

    /// Memory of the device for what a command is about to make.
    ///
    /// # Errors
    /// `ENOMEM` if a mishap has it that there is none.
    pub(super) fn room(&mut self) -> Result<()> {
        let mishaps = self.mishaps.as_mut();
        match mishaps.is_some_and(|mishaps| mishaps.memory_is_used_up()) {
            true => Err(Errno(libc::ENOMEM)),
            false => Ok(()),
        }
    }

    /// Writes down a breach of the contract.
    #[cold]
    pub(super) fn violation(&mut self, text: String) {
        if let Some(trace) = &mut self.trace {
            trace.note(&text);
        }
        self.violations.record(text);
    }

    /// Tells the trace, if there is one; the text is made only then.
    pub(super) fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.note(&text());
        }
    }

    pub(super) fn raise(&self, context: ContextId, event: AsyncEvent, object: AsyncObject) {
        self.events.asynchronous(context, event, object);
    }

    /// The time stamp of a completion that is made now.
    pub(super) fn stamp(&mut self) -> u64 {
        self.clock.stamp(self.now)
    }

    /// An empty buffer for a packet's payload.
    pub(super) fn take_buffer(&mut self) -> Vec<u8> {
        self.pool.pop().unwrap_or_default()
    }

    /// Takes a payload back when its packet is done with.
    pub(super) fn recycle(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() > 0 && self.pool.len() < POOL {
            buffer.clear();
            self.pool.push(buffer);
        }
    }
}

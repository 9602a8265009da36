//! The state that all QPs share: keys, CQs and SRQs, events, buffers, the time.

use super::clock::Clock;
use super::cq::Cq;
use super::failures::FailingQp;
use super::guest_keys::Translator;
use super::incidents::Devices;
use super::late::{LateEvents, LateKey};
use super::mr::MkeyTable;
use super::number::Table;
use super::options::{FaultInjector, NicOptions};
use super::parts::Parts;
use super::pd::{Context, Pd};
use super::srq::Srq;
use super::timers::Timers;
use super::violations::Violations;
use crate::decode::text::TraceWriter;
use crate::fabric::packet::Header;
use crate::nasty::policies::Policies;
use crate::refusal::refuse;
use crate::spec::{EventSink, Nanos, Result};

/// Maximum number of contexts of one process.
const MAX_CONTEXT: u32 = 1 << 16;
/// Maximum number of free payload buffers.
const POOL: usize = 256;

/// The state of the NIC except the QPs, so that a QP and this state can be borrowed
/// at the same time.
pub(super) struct Core {
    pub(super) options: NicOptions,
    pub(super) events: Box<dyn EventSink>,
    pub(super) trace: Option<TraceWriter>,
    pub(super) fault_injector: Option<Box<dyn FaultInjector + Send>>,
    /// What the modes of `--nasty` decide.
    pub(super) nasty: Policies,
    pub(super) violations: Violations,
    /// Ports that are down and devices that have failed.
    pub(super) devices: Devices,
    pub(super) contexts: Table<Context>,
    pub(super) pds: Table<Pd>,
    pub(super) mkeys: MkeyTable,
    /// The translation of guests' keys, if there are any.
    pub(super) translator: Option<Box<dyn Translator>>,
    pub(super) cqs: Table<Cq>,
    pub(super) srqs: Table<Srq>,
    pub(super) timers: Timers,
    /// The time of the current round of work.
    pub(super) now: Nanos,
    clock: Clock,
    /// QPs with packets to send, in order of their turns.
    pub(super) ready: std::collections::VecDeque<u32>,
    /// QPs in error to whose receive queue software may still post.
    pub(super) flushing: Vec<u32>,
    /// CQs that overran and whose QPs must still be moved to error.
    pub(super) overrun: Vec<u32>,
    /// QPs that are moved to error at the end of the round, since a completion of
    /// theirs failed or their rings cannot be read.
    pub(super) failing: Vec<FailingQp>,
    /// Completion events that are late.
    pub(super) late_events: LateEvents,
    /// QPs with late changes of memory keys.
    pub(super) late_keys: Vec<LateKey>,
    /// Payload that is not visible yet.
    pub(super) parts: Parts,
    pool: Vec<Vec<u8>>,
}

impl Core {
    pub(super) fn new(options: NicOptions, events: Box<dyn EventSink>) -> Self {
        let (limits, stepped) = (options.limits, options.stepped);
        let offset = options.timestamp_offset;
        let nasty = Policies::new(options.nasty);
        let first = nasty.first_number();
        Self {
            options,
            events,
            trace: None,
            fault_injector: None,
            nasty,
            violations: Violations::default(),
            devices: Devices::default(),
            contexts: Table::new(1, MAX_CONTEXT),
            pds: Table::new(1, limits.max_pd),
            mkeys: MkeyTable::new(limits.max_mr, limits.max_mw),
            translator: None,
            cqs: Table::new(first, limits.max_cq),
            srqs: Table::new(first, limits.max_srq),
            timers: Timers::default(),
            now: 0,
            clock: Clock::new(stepped, offset),
            ready: std::collections::VecDeque::new(),
            flushing: Vec::new(),
            overrun: Vec::new(),
            failing: Vec::new(),
            late_events: LateEvents::default(),
            late_keys: Vec::new(),
            parts: Parts::default(),
            pool: Vec::new(),
        }
    }

    /// Checks whether the device has memory for a new object.
    ///
    /// # Errors
    /// `ENOMEM` if an injected fault hits the command.
    pub(super) fn check_memory(&mut self) -> Result<()> {
        let fault_injector = self.fault_injector.as_mut();
        match fault_injector.is_some_and(|fault_injector| fault_injector.out_of_memory()) {
            true => Err(refuse(
                libc::ENOMEM,
                "the fault enomem of --faults hit this command",
            )),
            false => Ok(()),
        }
    }

    /// Records a violation of the device's contract.
    #[cold]
    pub(super) fn violation(&mut self, text: String) {
        if let Some(trace) = &mut self.trace {
            trace.note(&text);
        }
        self.events.explain(&text);
        self.violations.record(text);
    }

    /// Writes to the trace that a packet is dropped, and why.
    pub(super) fn note_dropped(&mut self, header: &Header, reason: impl FnOnce() -> String) {
        let (from, to) = (header.source_qpn.0, header.destination_qpn.0);
        self.note(|| format!("QP {to:#x}: packet from QP {from:#x} dropped: {}", reason()));
    }

    /// Writes a note to the trace, if there is one. The text is only formatted then.
    pub(super) fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.note(&text());
        }
    }

    /// Returns the timestamp of a completion that is generated now.
    pub(super) fn timestamp(&mut self) -> u64 {
        self.clock.timestamp(self.now)
    }

    /// Returns an empty buffer for a packet's payload.
    pub(super) fn take_buffer(&mut self) -> Vec<u8> {
        self.pool.pop().unwrap_or_default()
    }

    /// Keeps the buffer of a packet for reuse.
    pub(super) fn recycle(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() > 0 && self.pool.len() < POOL {
            buffer.clear();
            self.pool.push(buffer);
        }
    }
}

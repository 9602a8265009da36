//! Completions as the endpoint sees them: the polling of those that the consumer does not poll, what
//! each of them changes, and warnings if none come.
//!
//! # Polling
//! Completions of an endpoint without an EVD go to a completion queue of the endpoint, which the
//! endpoint polls when it needs room. After a graceful disconnect, the completions up to its marker
//! must be polled; usually the disconnect itself or a wait on the request EVD finds the marker. If
//! neither does, a thread polls until all disconnecting endpoints have their markers.
//!
//! # Stalled requests
//! With `rnr_retry=7` a device sends a message for which the peer has posted no receive again for
//! ever. Nothing fails, so the thread of the IA looks for it, if the program has asked for warnings.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use dat_engine::sync::Mutex;
use dat_engine::thread::{CancellationDisabled, Thread, leave_pinned_cpus};
use dat_engine::{
    AsyncEventKind, Completion, CompletionOp, CompletionQueue, CqOptions, Device, EndpointHandle,
    Status, Transport,
};

use super::Ep;
use crate::error::Result;
use crate::handle::{self, CompletionHooks, Delivery, Handle};
use crate::object::evd::{self, Evd};
use crate::object::wr_data::{NO_EVENT, SUPPRESSED, UNSIGNALLED, bound_rmr};
use crate::per_process::PerProcess;
use crate::state::Trigger;
use crate::types::EpState;

/// The completion queue for completions without an EVD, if there is one.
#[derive(Default)]
pub(super) struct Unreported(Mutex<Option<CompletionQueue>>);

impl Unreported {
    pub(super) fn queue(device: &Device, depth: u32) -> Result<CompletionQueue> {
        Ok(device.create_cq(&CqOptions {
            depth,
            ..CqOptions::default()
        })?)
    }

    /// Replaces the queue.
    pub(super) fn replace(&self, queue: Option<CompletionQueue>) {
        let old = core::mem::replace(&mut *self.0.lock(), queue);
        drop(old);
    }

    /// Attaches a new queue pair to the queue.
    pub(super) fn attach_new(&self) {
        if let Some(queue) = &mut *self.0.lock() {
            queue.process_commands();
        }
    }
}

impl Ep {
    /// Polls the completions without an EVD. Does nothing if another thread is doing it. Neither
    /// allocates nor waits, unless to end a connection.
    pub(super) fn poll_unreported(&self) {
        let Some(slot) = self.handle.slot() else {
            return;
        };
        // Each is handled without this lock, because that may take the control's.
        while let Some(completion) = self.next_unreported() {
            let _: Delivery = completed(&completion);
            if matches!(
                completion.op,
                CompletionOp::Recv | CompletionOp::RecvWriteImm
            ) {
                slot.recv_taken();
            }
            if !completion.status.is_success() {
                failed(&completion);
            }
        }
    }

    fn next_unreported(&self) -> Option<Completion> {
        self.unreported.0.try_lock()?.as_mut()?.poll()
    }

    /// Polls the completions of suppressed requests, or of requests without an EVD, which occupy
    /// ring entries. Neither allocates nor waits.
    pub(super) fn poll_suppressed(&self) {
        self.poll_unreported();
        if self.inspects_completions()
            && let Some(evd) = Handle::from_bits(self.requests.load(Ordering::Relaxed))
        {
            evd::poll_completions(evd);
        }
    }

    /// Polls all completions of the endpoint.
    pub(crate) fn poll_everything(&self) {
        self.poll_unreported();
        let evds = self.control().streams.evds();
        for evd in evds {
            evd.drain();
        }
    }

    /// Polls all completions, and waits for a thread that has just taken some: one may be a
    /// failure. When this returns, the failure has been handled, or the endpoint is no longer
    /// connected.
    pub(super) fn poll_for_failures(&self) {
        let is_over = || self.state() != EpState::Connected;
        self.poll_unreported();
        let evds = self.control().streams.evds();
        for evd in evds {
            evd.drain_behind_owner(is_over);
        }
    }

    /// Returns whether a graceful disconnect still waits for its requests.
    fn is_draining(&self) -> bool {
        self.control().draining
    }
}

/// The endpoints whose marker has not completed.
static WAITING: PerProcess<Vec<Handle>> = PerProcess::new();

/// The shortest and the longest pause between two polls.
const PAUSES: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(2));

/// Makes sure that the marker of an endpoint is found even if the consumer does not poll the
/// request EVD.
pub(super) fn watch(ep: Handle) {
    let mut waiting = WAITING.lock();
    waiting.push(ep);
    if waiting.len() > 1 {
        // The thread runs: it ends only when the list is empty, under this lock.
        return;
    }
    if let Err(error) = Thread::start(c"dat-drain", poll_until_drained) {
        tracing::warn!(
            "no thread for a graceful disconnect ({error}): it completes when the request EVD is polled"
        );
        waiting.clear();
    }
}

fn poll_until_drained() {
    leave_pinned_cpus();
    let mut pause = PAUSES.0;
    loop {
        let list = {
            let mut waiting = WAITING.lock();
            waiting.retain(|&ep| handle::pin::<Ep>(ep).is_some_and(|ep| ep.is_draining()));
            if waiting.is_empty() {
                return;
            }
            waiting.clone()
        };
        for ep in list {
            if let Some(ep) = handle::pin::<Ep>(ep) {
                ep.poll_everything();
            }
        }
        thread::sleep(pause);
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Returns how to deliver a completion. The EVD calls it for each completion of an endpoint whose
/// [`crate::handle::SlotCounters`] have `cqe_flags`, before the completion becomes an event or is
/// staged. It is cheap, and calls no EVD.
pub(super) fn completed(completion: &Completion) -> Delivery {
    let is_receive = match completion.op {
        CompletionOp::Bind if !completion.status.is_success() => return Delivery::Notify,
        CompletionOp::Bind if completion.imm & SUPPRESSED != 0 => return Delivery::Discard,
        CompletionOp::Bind if completion.imm & UNSIGNALLED != 0 => return Delivery::Unsignalled,
        CompletionOp::Bind => return Delivery::Notify,
        CompletionOp::Nop => {
            if let Some(ep) = of(completion) {
                ep.drained();
            }
            return Delivery::Discard;
        }
        CompletionOp::Recv | CompletionOp::RecvWriteImm => true,
        _ => false,
    };
    if is_receive {
        let Some(ep) = of(completion) else {
            return Delivery::Notify;
        };
        if completion.status.is_success() {
            ep.takes_one();
        }
        return if ep.unsignalled.next() && completion.status.is_success() {
            Delivery::Unsignalled
        } else {
            Delivery::Notify
        };
    }
    match completion.imm {
        _ if !completion.status.is_success() => Delivery::Notify,
        NO_EVENT => Delivery::Discard,
        wr_data if wr_data & UNSIGNALLED != 0 => Delivery::Unsignalled,
        _ => Delivery::Notify,
    }
}

/// Breaks the connection after a failed completion. The EVD calls it after it has handed out or
/// staged the completion. It may post a connection event to this or another EVD, so the caller
/// holds no lock of an EVD's queue.
#[cold]
pub(super) fn failed(completion: &Completion) {
    // The consumer's thread that dequeues must not be cancelled here: waking the connection manager
    // is a cancellation point.
    let _held = CancellationDisabled::new();
    if let Some(rmr) = bound_rmr(completion) {
        (rmr.upcalls().bind_failed)(completion);
    }
    // In any other state the connection has ended: there may be thousands of flushed requests.
    if let Some(ep) = of(completion)
        && matches!(ep.state(), EpState::Connected | EpState::CompletionPending)
        && !ep.manager_reports_flush(completion)
    {
        ep.broken();
    }
}

/// Handles a device event about the endpoint's queue pair.
pub(super) fn device_event(ep: Handle, kind: AsyncEventKind) {
    if kind == AsyncEventKind::Established
        && let Some(ep) = handle::pin::<Ep>(ep)
    {
        ep.message_received();
    }
    let breaks = matches!(
        kind,
        AsyncEventKind::QpFatal
            | AsyncEventKind::QpRequestError
            | AsyncEventKind::QpAccessError
            | AsyncEventKind::DeviceFatal
    );
    if breaks && let Some(ep) = handle::pin::<Ep>(ep) {
        ep.broken();
    }
}

fn pinned_evd(handle: usize) -> Option<handle::Pinned<Evd>> {
    handle::pin(Handle::from_bits(handle)?)
}

fn of(completion: &Completion) -> Option<handle::Pinned<Ep>> {
    handle::pin(Handle::from_bits(completion.context as usize)?)
}

impl Ep {
    /// Returns whether the connection manager will report why a request was flushed: the kernel
    /// flushes an iWARP queue pair before it reports the peer's disconnect.
    fn manager_reports_flush(&self, completion: &Completion) -> bool {
        completion.status == Status::WrFlush && self.ia.rules().transport == Transport::Iwarp
    }

    /// Breaks the connection because a transfer failed.
    #[cold]
    pub(super) fn broken(&self) {
        let mut control = self.control();
        let moved = self.step(&mut control, Trigger::Failed)
            || self.step(&mut control, Trigger::AcceptFailed);
        let connection = if moved {
            control.connection.take()
        } else {
            None
        };
        drop(control);
        // Without the lock, because it waits for the sink.
        if let Some(connection) = connection {
            connection.fail();
        }
    }

    /// Handles a message on a connection that is not yet known to be established.
    fn message_received(&self) {
        let control = self.control();
        if self.state() == EpState::CompletionPending
            && let Some(connection) = &control.connection
        {
            connection.message_received();
        }
    }

    /// Continues a graceful disconnect whose marker has completed.
    fn drained(&self) {
        // As in `failed`.
        let _held = CancellationDisabled::new();
        let mut control = self.control();
        if core::mem::take(&mut control.draining)
            && let Some(connection) = &control.connection
        {
            connection.disconnect();
        }
    }

    /// Has every completion passed to the endpoint from now on: some requests complete without an
    /// event.
    #[inline]
    pub(super) fn inspect_completions(&self) {
        if self.discarded_of.load(Ordering::Relaxed) == 0 {
            self.begin_inspection();
        }
    }

    #[cold]
    fn begin_inspection(&self) {
        self.change_hooks(CompletionHooks::with_inspection);
        let requests = self.requests.load(Ordering::Relaxed);
        if let Some(evd) = pinned_evd(requests) {
            evd.begin_discarding();
            let order = Ordering::Relaxed;
            // Another thread may have been faster.
            if self
                .discarded_of
                .compare_exchange(0, requests, order, order)
                .is_err()
            {
                evd.end_discarding();
            }
        }
    }

    /// No request that completes without an event is outstanding any more.
    pub(super) fn end_inspection(&self) {
        if let Some(evd) = pinned_evd(self.discarded_of.swap(0, Ordering::Relaxed)) {
            evd.end_discarding();
        }
    }

    /// Updates the completion word after a change of the high watermarks.
    pub(super) fn update_watermark_hook(&self) {
        self.change_hooks(|hooks| hooks.with_watermark(self.marks.lowest()));
    }

    fn change_hooks(&self, change: impl Fn(CompletionHooks) -> CompletionHooks) {
        if let Some(slot) = self.handle.slot() {
            let change = |word| Some(change(CompletionHooks(word)).0);
            let order = Ordering::AcqRel;
            let _ = slot
                .counters()
                .cqe_flags
                .fetch_update(order, Ordering::Relaxed, change);
        }
    }

    pub(super) fn inspects_completions(&self) -> bool {
        self.handle.slot().is_some_and(|slot| {
            !CompletionHooks(slot.counters().cqe_flags.load(Ordering::Relaxed)).is_empty()
        })
    }
}

/// Which receives were posted UNSIGNALLED: one bit each, in the order of the receive queue, which is
/// also the order of completion. Empty unless the endpoint's receives are configured UNSIGNALLED.
#[derive(Debug, Default)]
pub(super) struct UnsignalledReceives {
    ring: OnceLock<Box<[AtomicBool]>>,
    /// How many receives were posted since the endpoint was created or reset. Written by the poster.
    posted: AtomicU32,
    /// How many of them have completed. Written by the poller of the receives.
    completed: AtomicU32,
}

impl UnsignalledReceives {
    /// Makes room for this many outstanding receives. Has an effect only once, before any is
    /// posted.
    pub(super) fn make_room(&self, receives: u32) {
        let places = receives.max(1).next_power_of_two();
        let _ = self
            .ring
            .set((0..places).map(|_| AtomicBool::new(false)).collect());
    }

    fn entry(&self, number: u32) -> Option<&AtomicBool> {
        let ring = self.ring.get()?;
        ring.get(number as usize & (ring.len() - 1))
    }

    /// Records whether the receive that is posted next is UNSIGNALLED. [`Self::posted`] follows
    /// once it is posted. Only for the poster.
    pub(super) fn posting(&self, unsignalled: bool) {
        if let Some(entry) = self.entry(self.posted.load(Ordering::Relaxed)) {
            entry.store(unsignalled, Ordering::Release);
        }
    }

    /// Counts a posted receive. Only for the poster.
    pub(super) fn posted(&self) {
        count(&self.posted);
    }

    /// Counts a completed receive. Returns whether it was posted UNSIGNALLED. Only for the poller
    /// of the receives.
    pub(super) fn next(&self) -> bool {
        self.entry(count(&self.completed))
            .is_some_and(|entry| entry.load(Ordering::Acquire))
    }

    /// Restarts counting when nothing is outstanding.
    pub(super) fn reset(&self) {
        self.posted.store(0, Ordering::Relaxed);
        self.completed.store(0, Ordering::Relaxed);
    }
}

/// Adds one to a counter that one thread at a time writes. Returns the number before.
fn count(counter: &AtomicU32) -> u32 {
    let number = counter.load(Ordering::Relaxed);
    counter.store(number.wrapping_add(1), Ordering::Relaxed);
    number
}

/// What the thread has seen of an endpoint's requests.
#[derive(Default)]
pub(super) struct Progress {
    /// The position of the oldest outstanding request.
    oldest: Option<u32>,
    /// Whether it has been reported.
    reported: bool,
}

impl Progress {
    /// Records the oldest outstanding request. Returns `true` once if it was the oldest at the last
    /// call, too.
    fn has_stalled(&mut self, oldest: Option<u32>) -> bool {
        if oldest.is_none() || oldest != self.oldest {
            *self = Self {
                oldest,
                reported: false,
            };
            return false;
        }
        !core::mem::replace(&mut self.reported, true)
    }
}

impl Ep {
    /// Warns if no request has completed since the last call, and some are outstanding. Does
    /// nothing if another thread is changing the endpoint.
    pub(super) fn warn_of_stalled_requests(&self) {
        let Some(mut control) = self.control.try_lock() else {
            return;
        };
        let connected = matches!(
            self.state(),
            EpState::Connected | EpState::DisconnectPending
        );
        let qp = control.qp.as_ref().filter(|_| connected);
        let oldest = qp.and_then(EndpointHandle::oldest_send);
        let has_stalled = control.progress.has_stalled(oldest);
        drop(control);
        if has_stalled {
            tracing::warn!(
                endpoint = %format_args!("{:#x}", self.handle.bits()),
                adapter = self.ia.name(),
                "requests of an endpoint have been outstanding for 10 s, and none has completed: \
                 if the program takes the events of its requests, the peer has posted no receive, \
                 and rnr_retry=7 tries again for ever; with rnr_retry=6 in dat.conf such a send \
                 fails with DAT_DTO_ERR_RECEIVER_NOT_READY"
            );
        }
    }
}

mod watermarks;

pub(super) use watermarks::HighMarks;

#[cfg(test)]
mod tests;

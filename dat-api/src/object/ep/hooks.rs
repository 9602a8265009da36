//! Handling completions and device events of an endpoint.
//!
//! Decision: `docs/decisions/039-message-before-established.md`

use core::sync::atomic::Ordering;

use dat_engine::thread::CancellationDisabled;
use dat_engine::{AsyncEventKind, Completion, CompletionOp, Status, Transport};

use super::Ep;
use crate::handle::{self, CompletionHooks, Delivery, Handle};
use crate::object::evd::Evd;
use crate::object::wr_data::{NO_EVENT, SUPPRESSED, UNSIGNALLED, bound_rmr};
use crate::state::Trigger;
use crate::types::EpState;

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
        completion.status == Status::WrFlush
            && self.ia.device().info().transport == Transport::Iwarp
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

//! What completions and the device tell an endpoint.

use core::sync::atomic::Ordering;

use dat_engine::thread::CancellationHeld;
use dat_engine::{AsyncEventKind, Completion, CompletionOp, Status, Transport};

use super::Ep;
use crate::handle::{self, Handle, Needs, Verdict};
use crate::object::wr_data::{QUIET, SUPPRESSED, SWALLOW, bound_rmr};
use crate::state::Trigger;
use crate::types::EpState;

/// The slow hook of completions: called by the EVD for each completion of an
/// endpoint whose [`crate::handle::Meters`] have `cqe_flags`, before the completion becomes an event
/// (or is staged). Cheap; calls back into no EVD.
pub(super) fn completed(completion: &Completion) -> Verdict {
    let is_receive = match completion.op {
        CompletionOp::Bind if !completion.status.is_success() => return Verdict::Deliver,
        CompletionOp::Bind if completion.imm & SUPPRESSED != 0 => return Verdict::Swallow,
        CompletionOp::Bind if completion.imm & QUIET != 0 => return Verdict::DeliverQuietly,
        CompletionOp::Bind => return Verdict::Deliver,
        CompletionOp::Nop => {
            if let Some(ep) = of(completion) {
                ep.drained();
            }
            return Verdict::Swallow;
        }
        CompletionOp::Recv | CompletionOp::RecvWriteImm => true,
        _ => false,
    };
    if is_receive {
        let Some(ep) = of(completion) else {
            return Verdict::Deliver;
        };
        if completion.status.is_success() {
            ep.takes_one();
        }
        return if ep.quiet.next() && completion.status.is_success() {
            Verdict::DeliverQuietly
        } else {
            Verdict::Deliver
        };
    }
    match completion.imm {
        _ if !completion.status.is_success() => Verdict::Deliver,
        SWALLOW => Verdict::Swallow,
        note if note & QUIET != 0 => Verdict::DeliverQuietly,
        _ => Verdict::Deliver,
    }
}

/// Called by the EVD after it has handed out (or staged) a completion whose
/// status is not success: breaks the connection. May post a connection event
/// to this or another EVD, so the caller holds no lock of an EVD's queue.
#[cold]
pub(super) fn failed(completion: &Completion) {
    // A consumer's thread, which takes events: the connection manager is woken.
    let _held = CancellationHeld::new();
    if let Some(rmr) = bound_rmr(completion) {
        (rmr.upcalls().bind_failed)(completion);
    }
    // A flushed marker says nothing new, and flushes come by the thousand.
    if let Some(ep) = of(completion)
        && matches!(ep.state(), EpState::Connected | EpState::CompletionPending)
        && !ep.hears_of_flush(completion)
    {
        ep.broken();
    }
}

/// The device tells something about the endpoint's queue pair.
pub(super) fn device_event(ep: Handle, kind: AsyncEventKind) {
    if kind == AsyncEventKind::Established
        && let Some(ep) = handle::pin::<Ep>(ep)
    {
        ep.heard();
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

fn of(completion: &Completion) -> Option<handle::Pinned<Ep>> {
    handle::pin(Handle::from_bits(completion.context as usize)?)
}

impl Ep {
    /// Whether the connection manager will say why something was flushed: the
    /// kernel flushes an iWARP queue pair before it tells that the peer has
    /// disconnected.
    fn hears_of_flush(&self, completion: &Completion) -> bool {
        completion.status == Status::WrFlush
            && self.ia.device().info().transport == Transport::Iwarp
    }

    /// A transfer failed.
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
        // Not under the lock, since it waits for the sink.
        if let Some(connection) = connection {
            connection.fail();
        }
    }

    /// A message came over a connection that may not be known to be there.
    fn heard(&self) {
        let control = self.control();
        if self.state() == EpState::CompletionPending
            && let Some(connection) = &control.connection
        {
            connection.heard();
        }
    }

    /// The marker of a graceful disconnect has come through.
    fn drained(&self) {
        // As in `failed`.
        let _held = CancellationHeld::new();
        let mut control = self.control();
        if core::mem::take(&mut control.draining)
            && let Some(connection) = &control.connection
        {
            connection.disconnect();
        }
    }

    /// Completions need more than counting from now on.
    pub(super) fn want_completions(&self) {
        self.change_needs(Needs::with_look);
    }

    /// The high watermarks have changed.
    pub(super) fn mark_completions(&self) {
        self.change_needs(|needs| needs.with_mark(self.marks.lowest()));
    }

    fn change_needs(&self, change: impl Fn(Needs) -> Needs) {
        if let Some(slot) = self.handle.slot() {
            let change = |word| Some(change(Needs(word)).0);
            let order = Ordering::AcqRel;
            let _ = slot
                .meters()
                .cqe_flags
                .fetch_update(order, Ordering::Relaxed, change);
        }
    }

    pub(super) fn wants_completions(&self) -> bool {
        self.handle
            .slot()
            .is_some_and(|slot| !Needs(slot.meters().cqe_flags.load(Ordering::Relaxed)).are_none())
    }
}

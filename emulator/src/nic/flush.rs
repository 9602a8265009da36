//! The error states: outstanding and posted requests complete as flushed, in
//! order.

use super::adapter::Nic;
use super::core::Core;
use super::memory;
use super::qp::Qp;
use crate::decode::cqe::Syndrome;
use crate::decode::wqe::{Control, WQEBB};
use crate::spec::{AsyncEvent, QpState};

impl Nic {
    /// Flushes the receive queues of QPs in error. Posts to them ring no doorbell,
    /// so they are checked every round.
    pub(super) fn flush_posted_receives(&mut self) -> bool {
        let mut worked = false;
        let mut index = 0;
        while let Some(qpn) = self.core.flushing.get(index).copied() {
            if let Some(qp) = self.qps.get_mut(qpn) {
                worked |= qp.flush_receives(&mut self.core);
            }
            index += 1;
        }
        worked
    }
}

impl Qp {
    /// Moves the QP to error, unless it is there, and flushes both queues.
    /// Pending responses to the peer are still sent.
    pub(super) fn enter_error(&mut self, core: &mut Core) {
        if self.state == QpState::Err {
            return;
        }
        self.state = QpState::Err;
        self.timer.stop();
        self.notify_drained = false;
        self.flush_requests(core);
        self.flush_receives(core);
        if self.spec.srq.is_some() {
            self.raise(core, AsyncEvent::QpLastWqeReached);
        } else if self.spec.rq_wqe_count > 0 {
            core.flushing.push(self.qpn.0);
        }
    }

    /// Handles a failed send. The receive side of an unreliable QP continues, and
    /// software may restart its send queue (IBA 10.3.1.6).
    pub(super) fn enter_send_error(&mut self, core: &mut Core) {
        if self.is_reliable() {
            return self.enter_error(core);
        }
        if matches!(self.state, QpState::Sqe | QpState::Err) {
            return;
        }
        self.state = QpState::Sqe;
        self.notify_drained = false;
        self.flush_requests(core);
    }

    /// Flushes the started and the posted requests of the send queue.
    fn flush_requests(&mut self, core: &mut Core) {
        while let Some(request) = self.sq.pop_front() {
            self.complete_failed(core, request.counter, request.opcode, Syndrome::Flushed);
        }
        self.flush_sends(core);
    }

    /// Moves the QP to error with `QP_FATAL`, after an error that no completion
    /// reports.
    pub(super) fn fail_fatally(&mut self, core: &mut Core, cause: &str) {
        if !matches!(self.state, QpState::Reset | QpState::Err) {
            self.enter_error(core);
            self.raise_failure(core, AsyncEvent::QpFatal, cause);
        }
    }

    /// Flushes the send WQEs that were posted and not started.
    pub(super) fn flush_sends(&mut self, core: &mut Core) {
        while self.sq.fetch != self.sq.producer {
            let counter = self.sq.fetch;
            let slot = u32::from(counter) & (self.spec.sq_wqebb_count - 1);
            let mut bytes = [0; 16];
            // An unreadable WQE counts as one WQEBB without opcode.
            let _unreadable = memory::read(
                self.spec.sq_buf + u64::from(slot) * WQEBB as u64,
                &mut bytes,
            );
            let control = Control::parse(&bytes);
            let left = self.sq.producer.wrapping_sub(counter);
            self.sq.fetch = counter.wrapping_add(control.wqebbs().clamp(1, left));
            self.complete_failed(core, counter, control.opcode, Syndrome::Flushed);
        }
    }
}

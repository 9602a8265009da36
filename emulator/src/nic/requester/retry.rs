//! Repeating requests: the ack timeout, sequence errors, and receivers that
//! are not ready (IBA 9.7.6, 9.7.7).

use super::super::core::Core;
use super::super::options::Nanos;
use super::super::qp::Qp;
use super::super::spec::{QpState, Qpn};
use crate::decode::cqe::Syndrome;
use crate::fabric::packet::Transmit;

/// `rnr_retry` of 7 is without end.
const FOR_EVER: u8 = 7;

/// Waiting times of RNR NAK timer codes, in units of 10 µs (IBA table 45).
const RNR_TIMES: [u32; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024,
    1_536, 2_048, 3_072, 4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

impl Qp {
    /// The QP's timer has expired.
    pub(in crate::nic) fn time_is_up(&mut self, core: &mut Core, tx: &mut dyn Transmit) {
        if !matches!(self.state, QpState::Rts | QpState::Sqd) {
            return;
        }
        if self.sq.waits_for_receiver {
            self.sq.waits_for_receiver = false;
            self.go_back(core);
        } else if self.sq.unanswered().is_some() {
            if tx.is_unheard(Qpn(self.attr.dest_qpn)) {
                // Nothing was lost: the peer has not had a chance to answer.
                return self.watch_for_answers(core);
            }
            self.repeat_or_give_up(core);
        }
    }

    /// Runs the ack timer while something is unanswered.
    pub(super) fn watch_for_answers(&mut self, core: &mut Core) {
        if self.attr.timeout == 0 || self.timer.is_running() || self.sq.unanswered().is_none() {
            return;
        }
        // 4.096 µs × 2^code.
        let duration: Nanos = 4096 << self.attr.timeout;
        core.timers.start(self.qpn.0, &mut self.timer, duration);
    }

    /// The responder has no receive posted: wait as long as it says.
    pub(super) fn wait_for_receiver(&mut self, core: &mut Core, code: u8) {
        if self.sq.waits_for_receiver {
            return;
        }
        if self.attr.rnr_retry != FOR_EVER {
            if self.sq.rnr_retries == 0 {
                return self.fail_oldest(core, Syndrome::RnrRetryExceeded);
            }
            self.sq.rnr_retries -= 1;
        }
        self.sq.waits_for_receiver = true;
        let duration = Nanos::from(RNR_TIMES[usize::from(code & 31)]) * 10_000;
        core.timers.start(self.qpn.0, &mut self.timer, duration);
    }

    /// Sends again from the oldest unanswered packet, or fails its request
    /// when that was done often enough.
    pub(super) fn repeat_or_give_up(&mut self, core: &mut Core) {
        if self.sq.waits_for_receiver {
            // It goes back anyway, when the receiver's time is over.
            return;
        }
        if self.sq.retries == 0 {
            return self.fail_oldest(core, Syndrome::TransportRetryExceeded);
        }
        self.sq.retries -= 1;
        self.go_back(core);
    }

    pub(super) fn go_back(&mut self, core: &mut Core) {
        self.sq.cursor = 0;
        self.sq.packet = self
            .sq
            .requests
            .front()
            .map_or(0, |request| request.progress);
        self.sq.repeats = false;
        self.timer.stop();
        self.make_ready(core);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timer_codes_have_the_times_of_the_architecture() {
        let millis = |code: usize| f64::from(RNR_TIMES[code]) / 100.0;
        let known = [(0, 655.36), (1, 0.01), (12, 0.64), (14, 1.28), (31, 491.52)];
        for (code, expected) in known {
            assert!((millis(code) - expected).abs() < 1e-9, "code {code}");
        }
    }
}

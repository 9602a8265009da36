//! Retransmission: ack timeouts, sequence errors and RNR NAKs (IBA 9.7.6, 9.7.7).
//!
//! The emulated NICs are threads, and on a busy machine a peer's thread can be off the processor for
//! longer than an acknowledgement timeout. If the timeout expires before the peer's thread has taken,
//! or finished with, what was sent to it, the timer starts again and no retry is counted. So a busy
//! machine breaks no connection. Of another host this is not known, and the timer runs longer. A peer
//! that is dead, or that runs and does not answer, exceeds the retries as on a wire.

use super::super::core::Core;
use super::super::qp::Qp;
use crate::decode::cqe::Syndrome;
use crate::fabric::counters::Counter;
use crate::fabric::packet::Transmit;
use crate::spec::{Nanos, QpState};

/// The value of `rnr_retry` for an unlimited number of retries.
const UNLIMITED: u8 = 7;

/// The shortest ack timeout for another host: its NIC, and the launcher that receives for it, may
/// wait for a core.
const LEAST_TIMEOUT_OF_HOST: Nanos = 200_000_000;

/// Delays of the RNR NAK timer codes in units of 10 µs (IBA table 45).
const RNR_TIMES: [u32; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024,
    1_536, 2_048, 3_072, 4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

impl Qp {
    /// Handles the expiry of the QP's timer.
    pub(in crate::nic) fn timer_expired(&mut self, core: &mut Core, tx: &mut dyn Transmit) {
        if !matches!(self.state, QpState::Rts | QpState::Sqd) {
            return;
        }
        if self.sq.waits_after_rnr_nak {
            self.sq.waits_after_rnr_nak = false;
            self.go_back(core);
        } else if self.sq.unacked().is_some() {
            if tx.peer_is_busy(self.destination()) {
                // Nothing is lost: the peer's NIC has not run yet.
                return self.start_ack_timer(core);
            }
            self.retry_or_fail(core, Counter::AckTimeouts);
        }
    }

    /// Starts the ack timer if a packet is unacknowledged.
    pub(super) fn start_ack_timer(&mut self, core: &mut Core) {
        if self.attr.timeout == 0 || self.timer.is_running() || self.sq.unacked().is_none() {
            return;
        }
        // 4.096 µs × 2^code.
        let mut duration: Nanos = 4096 << self.attr.timeout;
        if self.destination().is_other_host() {
            duration = duration.max(LEAST_TIMEOUT_OF_HOST);
        }
        core.timers.start(self.qpn.0, &mut self.timer, duration);
    }

    /// Handles an RNR NAK: waits for the time given by `code`.
    pub(super) fn handle_rnr_nak(&mut self, core: &mut Core, code: u8) {
        if self.sq.waits_after_rnr_nak {
            return;
        }
        if self.attr.rnr_retry != UNLIMITED {
            if self.sq.rnr_retries == 0 {
                return self.fail_oldest(core, Syndrome::RnrRetryExceeded);
            }
            self.sq.rnr_retries -= 1;
        }
        core.count(self.port(), Counter::RnrNaks);
        self.sq.waits_after_rnr_nak = true;
        let duration = Nanos::from(RNR_TIMES[usize::from(code & 31)]) * 10_000;
        core.timers.start(self.qpn.0, &mut self.timer, duration);
    }

    /// Retransmits from the oldest unacknowledged packet, or fails its request if no
    /// retries are left. A retry is counted for its cause.
    pub(super) fn retry_or_fail(&mut self, core: &mut Core, cause: Counter) {
        if self.sq.waits_after_rnr_nak {
            // Retransmission follows anyway when the RNR timer expires.
            return;
        }
        if self.sq.retries == 0 {
            return self.fail_oldest(core, Syndrome::TransportRetryExceeded);
        }
        self.sq.retries -= 1;
        core.count(self.port(), cause);
        self.go_back(core);
    }

    pub(super) fn go_back(&mut self, core: &mut Core) {
        self.sq.cursor = 0;
        self.sq.packet = self
            .sq
            .requests
            .front()
            .map_or(0, |request| request.progress);
        self.sq.retransmits = false;
        self.timer.stop();
        self.make_ready(core);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rnr_timer_codes_have_the_times_of_the_architecture() {
        let millis = |code: usize| f64::from(RNR_TIMES[code]) / 100.0;
        let known = [(0, 655.36), (1, 0.01), (12, 0.64), (14, 1.28), (31, 491.52)];
        for (code, expected) in known {
            assert!((millis(code) - expected).abs() < 1e-9, "code {code}");
        }
    }
}

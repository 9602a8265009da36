//! Atomics: executed once, with the response replayed on duplicates (IBA 9.4.5,
//! 9.7.5.1.4).

use super::super::core::Core;
use super::super::memory;
use super::super::qp::Qp;
use super::execute::{INACCESSIBLE, NOT_PERMITTED, NakReason, TOO_MANY};
use super::response::Response;
use crate::fabric::packet::Header;
use crate::limits::MAX_RD_ATOMIC;
use crate::spec::Access;

/// Size of the operand of an atomic in bytes.
const WIDTH: u64 = 8;
const MISALIGNED: &str = "its address is not a multiple of 8";

/// The original values of the last atomics, by PSN. A requester has no more of them
/// unacknowledged than this holds, so a duplicate that is not found is older than any
/// that the requester still waits for.
#[derive(Debug, Default)]
pub(super) struct Executed {
    ring: [Option<(u32, u64)>; MAX_RD_ATOMIC as usize],
    next: usize,
}

impl Executed {
    fn record_original(&mut self, psn: u32, original: u64) {
        self.ring[self.next] = Some((psn, original));
        self.next = (self.next + 1) % self.ring.len();
    }

    /// Returns the original value for a PSN; the latest one, if PSNs have wrapped.
    fn find(&self, psn: u32) -> Option<u64> {
        let (newer, older) = self.ring.split_at(self.next);
        let newest_first = newer.iter().rev().chain(older.iter().rev());
        newest_first
            .flatten()
            .find(|(executed, _)| *executed == psn)
            .map(|(_, original)| *original)
    }
}

impl Qp {
    /// Executes an atomic with the expected PSN.
    pub(super) fn execute_atomic(
        &mut self,
        core: &mut Core,
        header: &Header,
    ) -> Result<u32, NakReason> {
        let needs = Access::REMOTE_ATOMIC;
        // With max_dest_rd_atomic 0 atomics are not permitted (mlx5 clears the access
        // flag).
        if !self.attr.access.contains(needs) || self.attr.max_dest_rd_atomic == 0 {
            return Err(NakReason::Invalid(NOT_PERMITTED));
        }
        let address = header.remote_address;
        if !address.is_multiple_of(WIDTH) {
            return Err(NakReason::Invalid(MISALIGNED));
        }
        if !self.has_resource() {
            return Err(NakReason::Invalid(TOO_MANY));
        }
        let open = core
            .mkeys
            .translate_remote(header.key, self.key_user(), address, WIDTH, needs);
        let host = open.map_err(|denied| NakReason::Access(denied.text()))?;
        core.place_rest();
        let [operand, compare] = header.atomic;
        let done = if header.atomic_compare {
            memory::compare_swap(host, compare, operand)
        } else {
            memory::fetch_add(host, operand)
        };
        // The host address may be misaligned although the remote address is not.
        let reason = match host.is_multiple_of(WIDTH) {
            true => INACCESSIBLE,
            false => MISALIGNED,
        };
        let original = done.map_err(|_| NakReason::Invalid(reason))?;
        self.responder.atomics.record_original(header.psn, original);
        self.queue_atomic_response(core, header.psn, original, false);
        Ok(1)
    }

    /// Replays the response of an atomic that was executed before. A request that is
    /// too old is dropped.
    pub(super) fn replay_atomic(&mut self, core: &mut Core, header: &Header) {
        let is_pending =
            self.responder.responses.iter().any(
                |response| matches!(response, Response::Atomic { psn, .. } if *psn == header.psn),
            );
        if is_pending {
            return;
        }
        if let Some(original) = self.responder.atomics.find(header.psn) {
            self.queue_atomic_response(core, header.psn, original, true);
        }
    }

    fn queue_atomic_response(&mut self, core: &mut Core, psn: u32, original: u64, replayed: bool) {
        let msn = self.responder.msn;
        self.responder.responses.push_back(Response::Atomic {
            psn,
            original,
            msn,
            replayed,
        });
        self.make_ready(core);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_atomics_are_found_and_the_newest_of_a_psn_counts() {
        let mut executed = Executed::default();
        assert_eq!(executed.find(0), None);
        for n in 0..=u32::from(MAX_RD_ATOMIC) {
            executed.record_original(n, u64::from(n) + 100);
        }
        assert_eq!(executed.find(0), None, "the oldest is dropped");
        assert_eq!(executed.find(1), Some(101));
        executed.record_original(5, 7);
        assert_eq!((executed.find(5), executed.find(1)), (Some(7), None));
    }
}

//! Atomics: executed once, answered as often as asked (IBA 9.4.5, 9.7.5.1.4).

use super::super::core::Core;
use super::super::memory;
use super::super::qp::Qp;
use super::super::spec::Access;
use super::answer::Answer;
use super::place::Refusal;
use crate::fabric::packet::Header;
use crate::limits::MAX_RD_ATOMIC;

/// Bytes an atomic works on.
const WIDTH: u64 = 8;

/// What the latest atomics found, by PSN. A requester has no more of them
/// unanswered than this remembers, so a duplicate that is not here is older
/// than any it still waits for.
#[derive(Debug, Default)]
pub(super) struct Executed {
    ring: [Option<(u32, u64)>; MAX_RD_ATOMIC as usize],
    next: usize,
}

impl Executed {
    fn remember(&mut self, psn: u32, original: u64) {
        self.ring[self.next] = Some((psn, original));
        self.next = (self.next + 1) % self.ring.len();
    }

    /// What the atomic of that PSN found: the latest one, should numbers have
    /// gone around.
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
    /// Executes an atomic whose turn it is.
    pub(super) fn execute_atomic(
        &mut self,
        core: &mut Core,
        header: &Header,
    ) -> Result<u32, Refusal> {
        let needs = Access::REMOTE_ATOMIC;
        // Without resources for atomics the QP does not allow them (mlx5
        // clears the right).
        if !self.attr.access.contains(needs) || self.attr.max_dest_rd_atomic == 0 {
            return Err(Refusal::Access);
        }
        let address = header.remote_address;
        if !address.is_multiple_of(WIDTH) || !self.has_resource() {
            return Err(Refusal::Invalid);
        }
        let open = core
            .mrs
            .translate_remote(header.key, self.key_user(), address, WIDTH, needs);
        let host = open.map_err(|_| Refusal::Access)?;
        let [operand, compare] = header.atomic;
        let done = if header.atomic_compare {
            memory::compare_swap(host, compare, operand)
        } else {
            memory::fetch_add(host, operand)
        };
        // A region may lie otherwise than its addresses say.
        let original = done.map_err(|_| Refusal::Invalid)?;
        self.responder.atomics.remember(header.psn, original);
        self.owe_original(core, header.psn, original, false);
        Ok(1)
    }

    /// Answers an atomic again that was executed before. One that is too old
    /// is dropped.
    pub(super) fn repeat_atomic(&mut self, core: &mut Core, header: &Header) {
        let is_owed = self
            .responder
            .answers
            .iter()
            .any(|answer| matches!(answer, Answer::Atomic { psn, .. } if *psn == header.psn));
        if is_owed {
            return;
        }
        if let Some(original) = self.responder.atomics.find(header.psn) {
            self.owe_original(core, header.psn, original, true);
        }
    }

    fn owe_original(&mut self, core: &mut Core, psn: u32, original: u64, repeated: bool) {
        let msn = self.responder.msn;
        self.responder.answers.push_back(Answer::Atomic {
            psn,
            original,
            msn,
            repeated,
        });
        self.make_ready(core);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_remembered_and_the_newest_of_a_number_counts() {
        let mut executed = Executed::default();
        assert_eq!(executed.find(0), None);
        for n in 0..=u32::from(MAX_RD_ATOMIC) {
            executed.remember(n, u64::from(n) + 100);
        }
        assert_eq!(executed.find(0), None, "the oldest went");
        assert_eq!(executed.find(1), Some(101));
        executed.remember(5, 7);
        assert_eq!((executed.find(5), executed.find(1)), (Some(7), None));
    }
}

//! What happens to the NIC itself.

use super::decisions::Decisions;
use super::spec::{FaultSpec, Kind};
use crate::nic::{CompletionFate, Mishaps};

/// Answers the NIC's questions by a specification.
#[derive(Debug)]
pub struct Decided(Decisions);

impl Decided {
    /// By `spec`.
    #[must_use]
    pub fn new(spec: &FaultSpec) -> Self {
        Self(Decisions::new(spec))
    }
}

impl Mishaps for Decided {
    fn receiver_is_not_ready(&mut self) -> bool {
        self.0.strikes(Kind::NotReady)
    }

    fn completion(&mut self) -> CompletionFate {
        let corrupt = self.0.strikes(Kind::CorruptCqe);
        match (self.0.strikes(Kind::OverrunCq), corrupt) {
            (true, _) => CompletionFate::Overrun,
            (_, true) => CompletionFate::Corrupt,
            _ => CompletionFate::Good,
        }
    }
}

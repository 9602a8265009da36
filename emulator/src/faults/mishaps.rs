//! What happens to the NIC itself.

use super::decisions::Decisions;
use super::spec::{FaultSpec, Kind};
use crate::decode::cqe::Syndrome;
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

    fn completion(&mut self, of_request: bool) -> CompletionFate {
        // Each counts, whichever happens.
        let corrupt = self.0.strikes(Kind::CorruptCqe);
        let overruns = self.0.strikes(Kind::OverrunCq);
        let bad_response = of_request && self.0.strikes(Kind::BadResponse);
        let never_ready = of_request && self.0.strikes(Kind::RnrExceeded);
        match () {
            () if overruns => CompletionFate::Overrun,
            () if corrupt => CompletionFate::Corrupt,
            () if bad_response => CompletionFate::Failed(Syndrome::BadResponse),
            () if never_ready => CompletionFate::Failed(Syndrome::RnrRetryExceeded),
            () => CompletionFate::Good,
        }
    }

    fn memory_is_used_up(&mut self) -> bool {
        self.0.strikes(Kind::NoMemory)
    }
}

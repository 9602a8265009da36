//! Faults inside the NIC: receives, completions and memory.

use super::decisions::Decisions;
use super::spec::{FaultSpec, Kind};
use crate::decode::cqe::Syndrome;
use crate::nic::{CompletionOutcome, FaultInjector};

/// The NIC's fault injector for a [`FaultSpec`].
#[derive(Debug)]
pub struct SeededFaults(Decisions);

impl SeededFaults {
    /// Returns a fault injector for `spec`.
    #[must_use]
    pub fn new(spec: &FaultSpec) -> Self {
        Self(Decisions::new(spec))
    }
}

impl FaultInjector for SeededFaults {
    fn no_receive(&mut self) -> bool {
        self.0.decide(Kind::NotReady)
    }

    fn completion(&mut self, of_request: bool) -> CompletionOutcome {
        // Every kind counts every completion, whichever fault applies.
        let corrupt = self.0.decide(Kind::CorruptCqe);
        let overruns = self.0.decide(Kind::OverrunCq);
        let bad_response = of_request && self.0.decide(Kind::BadResponse);
        let never_ready = of_request && self.0.decide(Kind::RnrExceeded);
        match () {
            () if overruns => CompletionOutcome::Overrun,
            () if corrupt => CompletionOutcome::Corrupt,
            () if bad_response => CompletionOutcome::Failed(Syndrome::BadResponse),
            () if never_ready => CompletionOutcome::Failed(Syndrome::RnrRetryExceeded),
            () => CompletionOutcome::Success,
        }
    }

    fn out_of_memory(&mut self) -> bool {
        self.0.decide(Kind::NoMemory)
    }
}

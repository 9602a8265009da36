//! The conditions of a run, which are printed and stored with its figures.

use std::fmt;

use super::arrival::Arrival;
use crate::options::{Operation, Wait};
use crate::output::counted;
use crate::report::RunConditions;
use crate::stats::Reported;

/// What is the same for all sizes of a run of `lat`.
#[derive(Clone, Debug)]
pub(super) struct Conditions {
    pub(super) run: RunConditions,
    /// DAT's wait policy; none if its events are dequeued in a loop.
    pub(super) wait: Option<Wait>,
    /// Endpoints of each side, which take turns.
    pub(super) endpoints: u32,
    /// Messages per second of the open loop; empty for the closed loop.
    pub(super) rates: Vec<f64>,
    /// The reported part of a round trip.
    pub(super) reported: Reported,
    /// How the receiver of a write notices it; for write only.
    pub(super) arrival: Option<Arrival>,
}

impl Conditions {
    /// Returns whether messages were sent on schedule.
    pub(super) fn is_open(&self) -> bool {
        !self.rates.is_empty()
    }

    /// Returns the reported part of the round trip, for headings.
    pub(super) fn reported_name(&self) -> &'static str {
        match self.reported {
            _ if self.is_open() => "response time",
            Reported::HalfRoundTrip => "half round trip",
            Reported::FullRoundTrip => "full round trip",
        }
    }
}

/// The lines above the table.
impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = &self.run;
        writeln!(f, " {}", run.device.emulation_note())?;
        let (operation, sides) = (run.operation.name(), run.sides());
        if self.is_open() {
            let most = match run.operation {
                Operation::Write => 1,
                _ => run.tx_depth,
            };
            writeln!(
                f,
                " {operation} on schedule (open loop), {sides}; up to {most} in flight"
            )?;
            writeln!(
                f,
                " reported: response time from DUE to answered, service time from SENT to answered; FULL round trips"
            )?;
        } else {
            writeln!(f, " {operation} ping-pong, {sides}; one message in flight")?;
            let part = match self.reported {
                Reported::HalfRoundTrip => "HALF of the round trip",
                Reported::FullRoundTrip => "the FULL round trip",
            };
            writeln!(
                f,
                " reported: {part} (perftest's convention for {operation})"
            )?;
        }
        if let Some(arrival) = &self.arrival {
            writeln!(f, " arrival  : {arrival}")?;
        }
        if self.endpoints > 1 {
            writeln!(
                f,
                " queues   : {} per side, which take turns",
                counted(self.endpoints, "endpoint")
            )?;
        }
        let events = match (run.measures_dat(), self.wait) {
            (false, _) => String::new(),
            (true, None) => "; DAT's events by dequeue".to_owned(),
            (true, Some(wait)) => format!("; DAT's events by wait, {}", wait.name()),
        };
        write!(f, "{}{}", run.device_line(), run.api_lines(&events))?;
        writeln!(
            f,
            " run      : {} after {} per size; {}, {}",
            run.goal,
            counted(run.warmup, "warm-up round trip"),
            run.depths(),
            run.inline()
        )?;
        f.write_str(&run.message_line())?;
        f.write_str(&run.host_lines())
    }
}

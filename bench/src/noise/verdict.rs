//! When a result is unreliable.

use std::fmt;

use serde::Serialize;

use super::record::{Noise, Ran};
use crate::output::counted;

/// A thread that spins and runs less than this share of the time was starved.
const LEAST_SHARE: f64 = 0.95;
/// A shorter loss is no starvation, whatever its share of a short run.
const LEAST_LOSS: u64 = 1_000_000;
/// Most steal, as a share of the elapsed time.
const MOST_STOLEN: f64 = 0.01;
/// Most time lost in gaps before the rounds, as a share of the watched time.
const MOST_GAPS: f64 = 0.02;
/// Gaps that are shorter together are no problem, whatever their share of a short look.
const LEAST_GAPS: u64 = 100_000;
/// Most change of the core's speed.
const MOST_CHANGE: f64 = 1.2;

/// Whether the thread keeps its processor while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    Spins,
    Sleeps,
}

/// Why a result is unreliable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    /// A name for programs: `starved`, `stolen`, `gaps` or `speed`.
    pub(crate) kind: &'static str,
    pub(crate) reason: String,
    pub(crate) remedy: &'static str,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

const OWN_CORE: &str = "give each spinning thread a core of its own: --cpu with an isolated core (isolcpus, nohz_full), and stop other programs";
const OWN_HOST: &str =
    "measure on a host without a hypervisor, or on a virtual machine with dedicated processors";
const FIXED_SPEED: &str = "set the governor 'performance' (cpupower frequency-set -g performance), and leave the core's sibling thread idle";

/// Returns why a result is unreliable; nothing if it can be relied on. `thread`
/// is the name of the thread, such as `the waiter`.
pub(crate) fn problems(noise: &Noise, thread: &str, waiting: Waiting) -> Vec<Problem> {
    let ran_too_little = match waiting {
        Waiting::Spins => starved(noise.ran, thread),
        Waiting::Sleeps => kept_waiting(noise, thread),
    };
    let responder = noise
        .responder
        .and_then(|ran| starved(ran, "the responder on the server"));
    let mut problems: Vec<_> = [ran_too_little, responder, stolen(noise), gaps(noise)]
        .into_iter()
        .flatten()
        .collect();
    // On a core that is taken away again and again, the fixed loop is interrupted, too.
    if problems.is_empty() {
        problems.extend(speed(noise));
    }
    problems
}

fn starved(ran: Ran, thread: &str) -> Option<Problem> {
    let lost = ran.elapsed_nanoseconds.saturating_sub(ran.cpu_nanoseconds);
    (ran.share() < LEAST_SHARE && lost >= LEAST_LOSS).then(|| Problem {
        kind: "starved",
        reason: format!(
            "{thread} ran {:.0} % of the time ({})",
            ran.share() * 100.0,
            counted(ran.involuntary_switches, "involuntary switch")
        ),
        remedy: OWN_CORE,
    })
}

/// Judges a thread that sleeps by its time on run queues.
fn kept_waiting(noise: &Noise, thread: &str) -> Option<Problem> {
    let waited = noise.run_queue_nanoseconds?;
    let ready = waited + noise.ran.cpu_nanoseconds;
    let share = noise.ran.cpu_nanoseconds as f64 / ready.max(1) as f64;
    (share < LEAST_SHARE && waited >= LEAST_LOSS).then(|| Problem {
        kind: "starved",
        reason: format!(
            "{thread} ran {:.0} % of the time in which it was ready to run",
            share * 100.0
        ),
        remedy: OWN_CORE,
    })
}

fn stolen(noise: &Noise) -> Option<Problem> {
    let share = noise.stolen_nanoseconds? as f64 / noise.ran.elapsed_nanoseconds.max(1) as f64;
    (share > MOST_STOLEN).then(|| Problem {
        kind: "stolen",
        reason: format!(
            "the hypervisor took {:.0} % of the processor's time (steal)",
            share.min(1.0) * 100.0
        ),
        remedy: OWN_HOST,
    })
}

fn gaps(noise: &Noise) -> Option<Problem> {
    let hiccups = &noise.hiccups;
    let lost_enough = hiccups.lost_nanoseconds >= LEAST_GAPS;
    (hiccups.share() > MOST_GAPS && lost_enough).then(|| Problem {
        kind: "gaps",
        reason: format!(
            "before the rounds, something else took {:.0} % of its core's time, up to {:.0} us at once",
            hiccups.share() * 100.0,
            hiccups.longest_nanoseconds as f64 / 1000.0
        ),
        remedy: OWN_CORE,
    })
}

fn speed(noise: &Noise) -> Option<Problem> {
    let ratio = noise.step_nanoseconds?.ratio();
    let frequency = noise.frequency_megahertz.map_or_else(String::new, |range| {
        format!("; {:.0} to {:.0} MHz", range.least, range.most)
    });
    (ratio > MOST_CHANGE).then(|| Problem {
        kind: "speed",
        reason: format!(
            "the core's speed changed by {:.0} % between the rounds{frequency}",
            (ratio - 1.0) * 100.0
        ),
        remedy: FIXED_SPEED,
    })
}

/// The summary of a run in one line, without a heading.
impl fmt::Display for Noise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the thread ran {:.1} % of the time",
            self.ran.share() * 100.0
        )?;
        if let Some(waited) = self.run_queue_nanoseconds {
            write!(f, " and waited {:.1} ms to run", waited as f64 / 1e6)?;
        }
        write!(
            f,
            ", {}",
            counted(self.ran.involuntary_switches, "involuntary switch")
        )?;
        if let Some(ran) = self.responder {
            write!(
                f,
                "; the server's {:.1} %, {}",
                ran.share() * 100.0,
                ran.involuntary_switches
            )?;
        }
        if let Some(stolen) = self.stolen_nanoseconds {
            write!(f, "; steal {:.0} ms", stolen as f64 / 1e6)?;
        }
        if self.hiccups.looks > 0 {
            write!(
                f,
                "; gaps {:.1} % of the core's time, up to {:.0} us",
                self.hiccups.share() * 100.0,
                self.hiccups.longest_nanoseconds as f64 / 1000.0
            )?;
        }
        if let Some(range) = self.step_nanoseconds {
            write!(
                f,
                "; speed varied by {:.0} %",
                (range.ratio() - 1.0) * 100.0
            )?;
        }
        if self.migrations > 0 {
            write!(f, "; CPU changed in {}", counted(self.migrations, "round"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::look::Hiccups;
    use crate::noise::record::Range;

    fn ran(cpu_milliseconds: u64, elapsed_milliseconds: u64) -> Ran {
        Ran {
            elapsed_nanoseconds: elapsed_milliseconds * 1_000_000,
            cpu_nanoseconds: cpu_milliseconds * 1_000_000,
            involuntary_switches: 12,
        }
    }

    fn reasons(noise: &Noise, waiting: Waiting) -> Vec<String> {
        let problems = problems(noise, "the waiter", waiting);
        assert!(problems.iter().all(|problem| problem.remedy.len() > 20));
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_starved_waiter_is_named_with_its_share() {
        let noise = Noise {
            ran: ran(29, 100),
            ..Noise::default()
        };
        assert_eq!(
            reasons(&noise, Waiting::Spins),
            ["the waiter ran 29 % of the time (12 involuntary switches)"]
        );
        // One that sleeps is judged by its time on run queues.
        assert!(reasons(&noise, Waiting::Sleeps).is_empty());
        let waited = |milliseconds: u64| Noise {
            run_queue_nanoseconds: Some(milliseconds * 1_000_000),
            ..noise.clone()
        };
        assert!(reasons(&waited(0), Waiting::Sleeps).is_empty());
        assert_eq!(
            reasons(&waited(29), Waiting::Sleeps),
            ["the waiter ran 50 % of the time in which it was ready to run"]
        );
    }

    #[test]
    fn a_quiet_thread_and_a_loss_of_less_than_a_millisecond_are_no_problem() {
        let quiet = Noise {
            ran: ran(999, 1000),
            stolen_nanoseconds: Some(0),
            step_nanoseconds: Some(Range {
                least: 1.0,
                most: 1.1,
            }),
            ..Noise::default()
        };
        assert!(reasons(&quiet, Waiting::Spins).is_empty());
        let short = Noise {
            ran: Ran {
                elapsed_nanoseconds: 1_000_000,
                cpu_nanoseconds: 500_000,
                involuntary_switches: 1,
            },
            ..Noise::default()
        };
        assert!(reasons(&short, Waiting::Spins).is_empty());
        assert!(reasons(&Noise::default(), Waiting::Spins).is_empty());
    }

    #[test]
    fn steal_gaps_speed_and_a_starved_server_are_problems_too() {
        let noise = Noise {
            ran: ran(1000, 1000),
            stolen_nanoseconds: Some(30_000_000),
            frequency_megahertz: Some(Range {
                least: 1200.0,
                most: 2400.0,
            }),
            step_nanoseconds: Some(Range {
                least: 1.0,
                most: 2.0,
            }),
            hiccups: Hiccups {
                watched_nanoseconds: 10_000_000,
                looks: 1,
                gaps: 1,
                lost_nanoseconds: 500_000,
                longest_nanoseconds: 50_000,
                log: Vec::new(),
            },
            responder: Some(ran(400, 1000)),
            ..Noise::default()
        };
        assert_eq!(
            reasons(&noise, Waiting::Spins),
            [
                "the responder on the server ran 40 % of the time (12 involuntary switches)",
                "the hypervisor took 3 % of the processor's time (steal)",
                "before the rounds, something else took 5 % of its core's time, up to 50 us at once",
            ]
        );
        // The speed is judged on a core that was not taken away.
        let quiet = Noise {
            stolen_nanoseconds: None,
            responder: None,
            hiccups: Hiccups::default(),
            ..noise.clone()
        };
        assert_eq!(
            reasons(&quiet, Waiting::Spins),
            ["the core's speed changed by 100 % between the rounds; 1200 to 2400 MHz"]
        );
        let line = noise.to_string();
        for word in [
            "100.0 %",
            "the server's 40.0 %",
            "steal 30 ms",
            "up to 50 us",
        ] {
            assert!(line.contains(word), "{word} in {line}");
        }
    }
}

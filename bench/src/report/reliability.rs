//! Whether the results of a run can be relied on: the lines below a table, the
//! keys of result files, and `--strict`.

use std::fmt::Write;

use serde::Serialize;

use super::fit::fit;
use crate::failure::Failure;
use crate::noise::{Noise, Problem, Waiting, problems};
use crate::output::counted;

/// Most unreliable cases that are listed.
const MOST_LISTED: usize = 8;

/// What is known of the reliability of one case; also its keys in result files.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Reliability<'a> {
    /// What distinguishes the case; empty if there is one only.
    #[serde(skip)]
    case: String,
    #[serde(flatten)]
    verdict: Verdict,
    noise: &'a Noise,
}

/// Whether a case is reliable; also its keys in result files.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    reliable: bool,
    /// Why the case is not reliable.
    unreliable: Vec<Problem>,
}

impl<'a> Reliability<'a> {
    /// Judges the noise of a case. `thread` is the name of its thread.
    pub(crate) fn of(case: String, noise: &'a Noise, thread: &str, waiting: Waiting) -> Self {
        let unreliable = problems(noise, thread, waiting);
        Self {
            case,
            verdict: Verdict {
                reliable: unreliable.is_empty(),
                unreliable,
            },
            noise,
        }
    }

    /// Returns the verdict without the noise.
    pub(crate) fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Adds a problem that the noise does not show.
    pub(crate) fn extend(&mut self, problem: Option<Problem>) {
        self.verdict.unreliable.extend(problem);
        self.verdict.reliable = self.verdict.unreliable.is_empty();
    }
}

/// Returns the lines below a table: the noise of the run, the unreliable cases,
/// and what to do.
pub(crate) fn text(all: &[Reliability<'_>]) -> String {
    let mut out = noise_line(all);
    // Writing to a String cannot fail.
    let unreliable: Vec<_> = all.iter().filter(|it| !it.verdict.reliable).collect();
    for it in unreliable.iter().take(MOST_LISTED) {
        let _ = writeln!(out, " UNRELIABLE: {}", reasons(it));
    }
    if let Some(more) = unreliable.len().checked_sub(MOST_LISTED + 1) {
        let _ = writeln!(out, " UNRELIABLE: {} more", more + 1);
    }
    let mut remedies: Vec<&str> = unreliable
        .iter()
        .flat_map(|it| it.verdict.unreliable.iter().map(|problem| problem.remedy))
        .collect();
    remedies.sort_unstable();
    remedies.dedup();
    for remedy in remedies {
        let _ = writeln!(out, " to do    : {remedy}");
    }
    fit(&out)
}

/// Returns the lines below the table of a first look, at a host that is not tuned: the
/// noise, what the unreliable cases mean, and one thing to do.
pub(crate) fn first_look(all: &[Reliability<'_>]) -> String {
    let mut out = noise_line(all);
    let mut unreliable = all.iter().filter(|it| !it.verdict.reliable);
    if let Some(first) = unreliable.next() {
        let others = match unreliable.count() {
            0 => String::new(),
            more => format!("; and {more} more of {} results", all.len()),
        };
        out += &format!(
            " rough    : {}{others}. That is normal on a machine that also does other things: read the typical time as a rough figure, and the tail (99 % and above) as the machine's\n next     : perf-scripts/check lists what to change on this machine for figures to rely on\n",
            reasons(first)
        );
    }
    fit(&out)
}

/// Returns the line that shows the noise of the whole run.
fn noise_line(all: &[Reliability<'_>]) -> String {
    let mut noise = Noise::default();
    all.iter().for_each(|it| noise.add(it.noise));
    format!(" noise    : {noise}\n")
}

fn reasons(of: &Reliability<'_>) -> String {
    let reasons: Vec<_> = of
        .verdict
        .unreliable
        .iter()
        .map(ToString::to_string)
        .collect();
    match of.case.as_str() {
        "" => reasons.join("; "),
        case => format!("{case}: {}", reasons.join("; ")),
    }
}

/// Fails if results are unreliable and `--strict` was given.
pub(crate) fn require(strict: bool, all: &[Reliability<'_>]) -> Result<(), Failure> {
    let bad: Vec<_> = all.iter().filter(|it| !it.verdict.reliable).collect();
    match bad.first() {
        Some(first) if strict => Err(Failure::run(format!(
            "UNRELIABLE: {} of {}, and --strict was given: {}",
            bad.len(),
            counted(all.len() as u64, "result"),
            reasons(first)
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Ran;

    fn noise(cpu_share: u64) -> Noise {
        Noise {
            ran: Ran {
                elapsed_nanoseconds: 1_000_000_000,
                cpu_nanoseconds: cpu_share * 10_000_000,
                involuntary_switches: 3,
            },
            ..Noise::default()
        }
    }

    fn judged<'a>(noises: &'a [Noise]) -> Vec<Reliability<'a>> {
        let judge = |(at, noise): (usize, &'a Noise)| {
            Reliability::of(format!("case {at}"), noise, "the waiter", Waiting::Spins)
        };
        noises.iter().enumerate().map(judge).collect()
    }

    #[test]
    fn unreliable_cases_are_named_with_reason_and_one_remedy() {
        let noises = [noise(99), noise(29), noise(30)];
        let all = judged(&noises);
        let text = text(&all);
        assert!(
            text.contains(" UNRELIABLE: case 1: the waiter ran 29 % of the time"),
            "{text}"
        );
        assert!(!text.contains("case 0"), "{text}");
        assert_eq!(text.matches(" to do    : ").count(), 1, "{text}");
        assert!(
            text.contains("ran 52.7 % of the time, 9 involuntary"),
            "{text}"
        );
        let failure = require(true, &all).unwrap_err();
        assert_eq!(failure.status(), 3);
        assert!(
            failure
                .to_string()
                .contains("UNRELIABLE: 2 of 3 results, and"),
            "{failure}"
        );
        require(false, &all).unwrap();
        require(true, &all[..1]).unwrap();
    }

    #[test]
    fn a_first_look_names_the_reason_as_normal_and_one_thing_to_do() {
        let noises = [noise(99), noise(29), noise(30)];
        let text = first_look(&judged(&noises)).replace("\n            ", " ");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with(" noise    : "), "{text}");
        assert!(
            lines[1].starts_with(" rough    : case 1: the waiter ran 29 % of the time"),
            "{text}"
        );
        for part in ["and 1 more of 3 results", "normal on a machine"] {
            assert!(lines[1].contains(part), "{part} in {text}");
        }
        assert!(
            lines[2].starts_with(" next     : perf-scripts/check "),
            "{text}"
        );
        for word in ["UNRELIABLE", "isolcpus"] {
            assert!(!text.contains(word), "{word} in {text}");
        }
        let reliable = [noise(99)];
        assert_eq!(first_look(&judged(&reliable)).lines().count(), 1);
    }

    #[test]
    fn a_long_list_is_cut_and_says_so() {
        let noises = vec![noise(10); 20];
        let text = text(&judged(&noises));
        assert_eq!(
            text.matches("UNRELIABLE").count(),
            MOST_LISTED + 1,
            "{text}"
        );
        assert!(text.contains("UNRELIABLE: 12 more"), "{text}");
    }

    #[test]
    fn result_files_have_a_flag_the_reasons_and_the_noise() {
        let noises = [noise(29)];
        let value = serde_json::to_value(&judged(&noises)[0]).unwrap();
        assert_eq!(value["reliable"], false);
        assert_eq!(value["unreliable"][0]["kind"], "starved");
        assert_eq!(value["noise"]["cpu_nanoseconds"], 290_000_000);
    }
}

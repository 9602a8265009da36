//! Output of `scale`: table and JSON.

use std::fmt::Write;

use serde::Serialize;

use super::pages::{Faults, Pages};
use crate::host::Host;
use crate::noise::{Noise, Waiting};
use crate::output::counted;
use crate::report::columns::{figure, table};
use crate::report::document::{document, object};
use crate::report::fit::fit;
use crate::report::{DeviceFacts, Reliability, head, pinned, reliability};
use crate::stats::rounds::Summary;

/// Name and version of the schema.
const SCHEMA: &str = "dat-bench/scale/4";

/// The conditions of a run.
#[derive(Serialize)]
pub(super) struct Conditions {
    pub(super) host: Host,
    pub(super) device: DeviceFacts,
    pub(super) rounds: u32,
    pub(super) messages_per_section: u32,
    pub(super) cpu: Option<usize>,
}

/// The cost per message.
pub(super) struct Cost {
    /// Per section.
    pub(super) nanoseconds: Vec<f64>,
    pub(super) noise: Noise,
    /// Of all timed sections.
    pub(super) pages: Pages,
    pub(super) instructions: Option<f64>,
    /// Distinct lines of 64 bytes.
    pub(super) cache_lines: Option<f64>,
}

/// The result of one number of endpoints.
pub(super) struct Outcome {
    pub(super) endpoints: u32,
    pub(super) engine: Cost,
    /// Of libmlx5, without locks.
    pub(super) libmlx5: Cost,
    pub(super) memory: Memory,
}

/// Judges the times of each number of endpoints. The thread sleeps between sections.
pub(super) fn judged(outcomes: &[Outcome]) -> Vec<Reliability<'_>> {
    let judged = outcomes.iter().flat_map(|outcome| {
        let costs = outcome.costs();
        costs.map(|(interface, cost)| cost.reliability(interface, outcome.endpoints))
    });
    judged.collect()
}

impl Outcome {
    /// Returns the costs with the names of the interfaces.
    fn costs(&self) -> [(&'static str, &Cost); 2] {
        [(ENGINE, &self.engine), (LIBMLX5, &self.libmlx5)]
    }

    fn memory_cells(&self) -> Vec<String> {
        let Memory {
            libmlx5,
            engine,
            dat,
        } = self.memory;
        let [lib, ours, dats] =
            [libmlx5, engine, dat].map(|bytes| bytes as f64 / f64::from(self.endpoints));
        let each = [f64::from(self.endpoints), lib, ours, ours - lib, dats];
        let all = [engine, dat].map(|bytes| format!("{:.1}", bytes as f64 / MIB));
        let each = each.map(|figure| format!("{figure:.0}"));
        each.into_iter().chain(all).collect()
    }
}

const ENGINE: &str = "engine";
const LIBMLX5: &str = "libmlx5";

impl Cost {
    fn reliability(&self, interface: &str, endpoints: u32) -> Reliability<'_> {
        let case = format!("{interface}, {}", counted(endpoints, "endpoint"));
        Reliability::of(case, &self.noise, "the measuring thread", Waiting::Sleeps)
    }

    /// Returns the nanoseconds per message.
    fn summary(&self) -> Summary {
        Summary::of(&self.nanoseconds).expect("at least one section is timed")
    }

    /// Returns misses of the data TLB per message.
    fn tlb_misses(&self, messages: u32) -> Option<f64> {
        let all = self.nanoseconds.len() as f64 * f64::from(messages);
        Some(self.pages.tlb_misses? as f64 / all)
    }
}

const MIB: f64 = (1 << 20) as f64;

pub(super) fn text(conditions: &Conditions, outcomes: &[Outcome]) -> String {
    let place = pinned(conditions.cpu);
    let mut out = head(&conditions.device, &conditions.host, &place);
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "\n per message (one SRQ; libmlx5 without locks): poll its completion and post its receive again; median of {} of {}, ± half the interquartile range",
        counted(conditions.rounds, "section"),
        counted(conditions.messages_per_section, "message")
    );
    let mut rows = Vec::new();
    for outcome in outcomes {
        for (interface, cost) in outcome.costs() {
            let Faults { minor, major } = cost.pages.faults;
            rows.push(vec![
                outcome.endpoints.to_string(),
                interface.to_owned(),
                format!("{:.1}", cost.summary().median),
                format!("{:.1}", cost.summary().spread()),
                figure(cost.instructions, 1),
                figure(cost.cache_lines, 2),
                figure(cost.tlb_misses(conditions.messages_per_section), 3),
                minor.to_string(),
                major.to_string(),
            ]);
        }
    }
    let names = "endpoints||ns|± ns|instructions|cache lines|dTLB misses|minor faults|major faults";
    out += &table(2, names, &rows);
    for reason in reasons(outcomes) {
        let _ = writeln!(out, " dTLB misses were not counted: {reason}");
    }
    let _ = writeln!(
        out,
        " faults: page faults of all timed sections together\n\n memory: resident bytes per endpoint, default depths (128 requests; DAT 127), and of all endpoints together [MiB]{}",
        match conditions.device.emulated_fabric {
            Some(_) => "; each includes the state of the emulated device",
            None => "",
        }
    );
    let rows: Vec<Vec<String>> = outcomes.iter().map(Outcome::memory_cells).collect();
    let names = "endpoints|libmlx5|engine|engine - lib|DAT|engine [MiB]|DAT [MiB]";
    out += &table(1, names, &rows);
    fit(&out) + "\n" + &reliability::text(&judged(outcomes))
}

/// Returns why dTLB misses were not counted: each reason once.
fn reasons(outcomes: &[Outcome]) -> Vec<&str> {
    let costs = outcomes.iter().flat_map(Outcome::costs);
    let all = costs.filter_map(|(_, cost)| cost.pages.tlb_reason.as_deref());
    let mut reasons: Vec<_> = all.collect();
    reasons.dedup();
    reasons
}

/// Growth of resident bytes by all endpoints.
#[derive(Serialize)]
pub(super) struct Memory {
    pub(super) libmlx5: u64,
    pub(super) engine: u64,
    pub(super) dat: u64,
}

/// Returns the JSON document.
pub(super) fn json(conditions: &Conditions, outcomes: &[Outcome]) -> String {
    let results = outcomes.iter().map(|outcome| {
        let [engine, libmlx5] = outcome.costs().map(|(interface, cost)| {
            object! {
                nanoseconds: cost.summary(),
                instructions: cost.instructions,
                cache_lines: cost.cache_lines,
                tlb_misses: cost.tlb_misses(conditions.messages_per_section),
                tlb_reason: cost.pages.tlb_reason.as_deref(),
                page_faults: cost.pages.faults,
                #[serde(flatten)]
                reliability: cost.reliability(interface, outcome.endpoints),
            }
        });
        object! {
            endpoints: outcome.endpoints,
            #[serde(flatten)]
            engine: engine,
            libmlx5: libmlx5,
            memory: &outcome.memory,
        }
    });
    let body = object! {
        conditions: conditions,
        results: results.collect::<Vec<_>>(),
    };
    document(SCHEMA, &conditions.device, body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fit::assert_fits;

    #[test]
    fn both_tables_fit_a_terminal() {
        let conditions = Conditions {
            host: Host::read(),
            device: DeviceFacts::emulated(),
            rounds: 50,
            messages_per_section: 1024,
            cpu: None,
        };
        let cost = |endpoints: u32| Cost {
            nanoseconds: vec![123_456.7, 234_567.8],
            noise: Noise::default(),
            pages: Pages {
                faults: Faults {
                    minor: 1_234_567,
                    major: 12_345,
                },
                tlb_misses: (endpoints > 1).then_some(1_234_567),
                tlb_reason: (endpoints == 1).then(|| "the processor does not count them".into()),
            },
            instructions: Some(12_345.6),
            cache_lines: Some(123.45),
        };
        let outcome = |endpoints: u32| Outcome {
            endpoints,
            engine: cost(endpoints),
            libmlx5: cost(endpoints),
            memory: Memory {
                engine: 1_234_567 * u64::from(endpoints),
                dat: 2_345_678 * u64::from(endpoints),
                libmlx5: 3_456_789 * u64::from(endpoints),
            },
        };
        let text = text(&conditions, &[outcome(1), outcome(60_000)]);
        assert_fits(&text);
        assert!(text.contains("engine [MiB]"), "{text}");
        assert!(
            text.contains("dTLB misses were not counted: the processor"),
            "{text}"
        );
        assert!(text.contains(" 602.816"), "per message: {text}");
    }
}

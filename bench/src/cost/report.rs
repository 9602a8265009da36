//! Output of `cost`: tables and JSON.

use std::fmt::Write;

use serde::Serialize;

use super::operation::Operation;
use super::variant::Variant;
use crate::host::Host;
use crate::noise::{Noise, Waiting};
use crate::output;
use crate::report::columns::table;
use crate::report::document::{document, object};
use crate::report::fit::fit;
use crate::report::reliability;
use crate::report::{DeviceFacts, Reliability, head, pinned};
use crate::stats::rounds::Summary;

/// Name and version of the schema.
const SCHEMA: &str = "dat-bench/cost/2";

/// The results of one operation.
#[derive(Default)]
struct Measured {
    /// Nanoseconds per operation, one value per round.
    samples: Vec<f64>,
    /// Number of rounds left out because they had to wait for completions.
    left_out: u32,
    instructions: Option<f64>,
}

/// The results of one variant.
pub(super) struct Outcome {
    pub(super) variant: Variant,
    operations: [Measured; Operation::ALL.len()],
    pub(super) noise: Noise,
}

/// Judges the times of each variant. The thread sleeps between sections.
pub(super) fn judged(outcomes: &[Outcome]) -> Vec<Reliability<'_>> {
    outcomes.iter().map(Outcome::reliability).collect()
}

impl Outcome {
    pub(super) fn new(variant: Variant) -> Self {
        Self {
            variant,
            operations: Operation::ALL.map(|_| Measured::default()),
            noise: Noise::default(),
        }
    }

    fn reliability(&self) -> Reliability<'_> {
        let case = self.variant.name().to_owned();
        Reliability::of(case, &self.noise, "the measuring thread", Waiting::Sleeps)
    }

    /// Adds the figure of a round; `None` is a round that is left out.
    pub(super) fn take(&mut self, operation: Operation, nanoseconds: Option<f64>) {
        let of = &mut self.operations[operation as usize];
        match nanoseconds {
            Some(value) => of.samples.push(value),
            None => of.left_out += 1,
        }
    }

    /// Sets the instructions of an operation.
    pub(super) fn count(&mut self, operation: Operation, instructions: f64) {
        self.operations[operation as usize].instructions = Some(instructions);
    }
}

/// The conditions of a run.
#[derive(Serialize)]
pub(super) struct Conditions {
    pub(super) host: Host,
    pub(super) device: DeviceFacts,
    /// File name of the library that provides the compared verbs.
    pub(super) libmlx5: Option<String>,
    pub(super) build: &'static str,
    pub(super) rounds: u32,
    pub(super) turns: u32,
    pub(super) operations_per_section: u32,
    pub(super) cpu: Option<usize>,
}

pub(super) fn text(conditions: &Conditions, outcomes: &[Outcome]) -> String {
    let place = format!(
        "compared with {}; {} build; {}",
        conditions
            .libmlx5
            .as_deref()
            .unwrap_or("the device's own verbs"),
        conditions.build,
        pinned(conditions.cpu)
    );
    let mut out = head(&conditions.device, &conditions.host, &place);
    // Writing to a String cannot fail.
    let mut measured = outcomes.iter().flat_map(|it| &it.operations);
    let counted = measured.any(|it| it.instructions.is_some());
    let _ = writeln!(
        out,
        "\n nanoseconds per operation: median of {} of {} (± half the interquartile range)",
        output::counted(conditions.rounds * conditions.turns, "round"),
        conditions.operations_per_section
    );
    out += &operations(outcomes, |measured| {
        let figure = Summary::of(&measured.samples)?;
        Some(format!("{:.1} ±{:.1}", figure.median, figure.spread()))
    });
    if counted {
        let _ = writeln!(
            out,
            "\n instructions per operation (callgrind), including the calling loop"
        );
        out += &operations(outcomes, |measured| {
            measured.instructions.map(|count| format!("{count:.1}"))
        });
    }
    let measured = outcomes.iter().flat_map(|it| &it.operations);
    let left_out: u32 = measured.map(|it| it.left_out).sum();
    if left_out > 0 {
        let _ = writeln!(
            out,
            "\n left out  : {}, because completions had not arrived",
            output::counted(left_out, "section")
        );
    }
    let _ = writeln!(out, " -: the interface has no such call");
    fit(&out) + "\n" + &reliability::text(&judged(outcomes))
}

/// Returns a table with a row per operation and a column per variant.
fn operations(outcomes: &[Outcome], cell: impl Fn(&Measured) -> Option<String>) -> String {
    let variants = outcomes.iter().map(|it| it.variant.name());
    let names: Vec<&str> = ["operation"].into_iter().chain(variants).collect();
    let names = names.join("|");
    let rows = Operation::ALL.map(|operation| {
        let measured = outcomes.iter().map(|it| &it.operations[operation as usize]);
        let cells = measured.map(|it| cell(it).unwrap_or_else(|| "-".to_owned()));
        [operation.title().to_owned()]
            .into_iter()
            .chain(cells)
            .collect()
    });
    format!("\n{}", table(1, &names, &rows))
}

/// Returns the JSON document.
pub(super) fn json(conditions: &Conditions, outcomes: &[Outcome]) -> String {
    let results = outcomes.iter().flat_map(|outcome| {
        Operation::ALL.map(|operation| {
            let measured = &outcome.operations[operation as usize];
            object! {
                operation: operation.key(),
                variant: outcome.variant,
                nanoseconds: Summary::of(&measured.samples),
                rounds: measured.samples.len(),
                spoiled: measured.left_out,
                instructions: measured.instructions,
                #[serde(flatten)]
                verdict: outcome.reliability().verdict().clone(),
            }
        })
    });
    let noise = outcomes.iter().map(|outcome| {
        object! {
            variant: outcome.variant,
            #[serde(flatten)]
            noise: &outcome.noise,
        }
    });
    let body = object! {
        conditions: conditions,
        noise: noise.collect::<Vec<_>>(),
        results: results.collect::<Vec<_>>(),
    };
    document(SCHEMA, &conditions.device, body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fit::assert_fits;
    use clap::ValueEnum;

    fn conditions() -> Conditions {
        Conditions {
            host: Host::read(),
            device: DeviceFacts::emulated(),
            libmlx5: Some("libmlx5.so.1.24.44.0".into()),
            build: "release",
            rounds: 100,
            turns: 3,
            operations_per_section: 256,
            cpu: Some(2),
        }
    }

    #[test]
    fn a_variant_whose_thread_waited_for_a_processor_is_unreliable() {
        let mut outcomes = [Variant::C, Variant::Rust].map(Outcome::new);
        for outcome in &mut outcomes {
            outcome.take(Operation::Send, Some(50.0));
            outcome.noise.ran.cpu_nanoseconds = 100_000_000;
        }
        outcomes[0].noise.run_queue_nanoseconds = Some(25_000_000);
        outcomes[1].noise.run_queue_nanoseconds = Some(1_000_000);
        let text = text(&conditions(), &outcomes);
        assert!(
            text.contains("UNRELIABLE: c: the measuring thread ran 80 %"),
            "{text}"
        );
        assert_eq!(text.matches("UNRELIABLE").count(), 1, "{text}");
        let json: serde_json::Value =
            serde_json::from_str(&json(&conditions(), &outcomes)).unwrap();
        let reliable = |variant: &str| {
            let of = |it: &&serde_json::Value| it["variant"] == variant;
            let all: Vec<_> = json["results"]
                .as_array()
                .unwrap()
                .iter()
                .filter(of)
                .collect();
            all.iter().all(|it| it["reliable"] == true)
        };
        assert!(!reliable("c") && reliable("rust"));
        let failure = reliability::require(true, &judged(&outcomes)).unwrap_err();
        assert!(failure.to_string().contains("1 of 2 results"), "{failure}");
    }

    #[test]
    fn the_tables_of_all_variants_fit_a_terminal() {
        let outcomes: Vec<Outcome> = Variant::value_variants()
            .iter()
            .map(|&variant| {
                let mut outcome = Outcome::new(variant);
                for operation in Operation::ALL {
                    outcome.take(operation, Some(1234.5));
                    outcome.take(operation, Some(2345.6));
                    outcome.count(operation, 1234.5);
                }
                outcome
            })
            .collect();
        let text = text(&conditions(), &outcomes);
        assert_fits(&text);
        for outcome in &outcomes {
            let name = outcome.variant.name();
            let header = |line: &str| line.split_whitespace().any(|word| word == name);
            let tables = text
                .lines()
                .filter(|line| line.starts_with(" operation") && header(line));
            assert_eq!(tables.count(), 2, "{name} in {text}");
        }
    }
}

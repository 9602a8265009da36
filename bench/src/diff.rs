//! `dat-bench diff`: what changed between two result files.

pub(crate) mod options;

use std::fmt::Write;

use crate::diff::options::DiffArgs;
use crate::failure::Failure;
use crate::output;
use crate::report::fit::fit;
use crate::results::{Case, ResultFile, Unit};
use crate::stats::shift::shift_interval;

/// Runs the command.
pub(crate) fn run(args: &DiffArgs) -> Result<(), Failure> {
    let before = ResultFile::read(&args.before)?;
    let after = ResultFile::read(&args.after)?;
    if before.command != after.command {
        return Err(Failure::usage(format!(
            "the files have results of different commands, {} and {}: compare two of one command",
            before.command, after.command
        )));
    }
    output::print(text(&before, &after))?;
    after.require_since(&before, &args.fail_if)?;
    let unreliable = [&before, &after].map(|file| file.cases.iter().any(is_unreliable));
    if args.strict && unreliable.contains(&true) {
        return Err(Failure::run(
            "a result is unreliable, and --strict was given; the reasons are above",
        ));
    }
    Ok(())
}

fn is_unreliable(case: &Case) -> bool {
    !case.unreliable.is_empty()
}

/// Returns the text: conditions that differ, then a paragraph per case.
pub(crate) fn text(before: &ResultFile, after: &ResultFile) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let mut differing: Vec<&String> = before
        .conditions
        .keys()
        .chain(after.conditions.keys())
        .filter(|&key| before.conditions.get(key) != after.conditions.get(key))
        .collect();
    differing.sort();
    differing.dedup();
    for key in differing {
        let value = |file: &ResultFile| file.conditions.get(key).map_or("-".into(), String::clone);
        let _ = writeln!(out, " differs: {key}: {} | {}", value(before), value(after));
    }
    for case in &after.cases {
        match before.cases.iter().find(|it| it.name == case.name) {
            Some(earlier) => compared(&mut out, earlier, case),
            None => drop(writeln!(out, "\n {}: only in the second file", case.name)),
        }
    }
    for case in &before.cases {
        if !after.cases.iter().any(|it| it.name == case.name) {
            let _ = writeln!(out, "\n {}: only in the first file", case.name);
        }
    }
    fit(&out)
}

/// Appends the figures of a case in both files.
fn compared(out: &mut String, before: &Case, after: &Case) {
    let _ = writeln!(
        out,
        "\n {}\n {:>14} {:>12} {:>12} {:>9}",
        after.name, "figure", "first", "second", "change"
    );
    for figure in &after.figures {
        let Some(earlier) = before.figure(&figure.name) else {
            continue;
        };
        let name = match figure.unit {
            Unit::None => figure.name.clone(),
            unit => format!("{}[{}]", figure.name, unit.name()),
        };
        let change = match earlier.value {
            0.0 => "-".to_owned(),
            value => format!("{:+.1} %", (figure.value / value - 1.0) * 100.0),
        };
        let _ = writeln!(
            out,
            " {name:>14} {:>12.3} {:>12.3} {change:>9}",
            earlier.value, figure.value
        );
    }
    if let Some(verdict) = verdict(&before.rounds, &after.rounds, after.rounds_unit) {
        let _ = writeln!(out, " {verdict}");
    }
    if after.is_part {
        // The reasons are those of the case before it.
        return;
    }
    for (which, case) in [("first", before), ("second", after)] {
        for reason in &case.unreliable {
            let _ = writeln!(out, " the {which} is UNRELIABLE: {reason}");
        }
    }
}

/// Returns whether the medians of the rounds differ by more than their spread.
fn verdict(before: &[f64], after: &[f64], unit: Unit) -> Option<String> {
    // Of times, more is slower; of bandwidth, more is faster.
    let (what, more, less) = match unit {
        Unit::Mebibytes => ("average", "faster", "slower"),
        _ => ("median", "slower", "faster"),
    };
    if before.is_empty() || after.is_empty() {
        return None;
    }
    let Some(shift) = shift_interval(before, after) else {
        return Some(format!(
            "{what}: {} and {} rounds are too few to tell a difference from noise",
            before.len(),
            after.len()
        ));
    };
    let range = format!(
        "{:+.3} to {:+.3} {}, 95 % confidence",
        shift.low,
        shift.high,
        unit.name()
    );
    Some(match (shift.contains_zero(), shift.low > 0.0) {
        (true, _) => format!("{what}: no difference measurable ({range})"),
        (false, true) => format!("{what}: {more} by {range}"),
        (false, false) => format!("{what}: {less} by {range}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn file(cpu: &str, cases: &[(u32, f64)]) -> ResultFile {
        let results: Vec<Value> = cases
            .iter()
            .map(|&(bytes, typical)| {
                let rounds: Vec<f64> = (0..10).map(|i| typical + f64::from(i) * 0.001).collect();
                json!({"bytes": bytes, "t_typical": typical, "round_medians": rounds})
            })
            .collect();
        let text = json!({"schema": "dat-bench/lat/3", "host": {"cpu": cpu}, "results": results});
        ResultFile::parse(&text.to_string()).unwrap()
    }

    #[test]
    fn a_change_has_its_size_and_confidence_and_conditions_that_differ_are_named() {
        let before = file("AMD", &[(2, 1.0), (4, 1.0), (8, 1.0), (16, 1.0)]);
        let after = file("Intel", &[(2, 1.0), (4, 1.1), (8, 0.9), (32, 1.0)]);
        let text = text(&before, &after);
        for said in [
            "differs: host.cpu: AMD | Intel",
            "median: no difference measurable (-0.0",
            "+10.0 %",
            "median: slower by +0.09",
            "-10.0 %",
            "median: faster by -0.10",
            "16 bytes: only in the first",
            "32 bytes: only in the second",
        ] {
            assert!(text.contains(said), "{said} in\n{text}");
        }
    }

    #[test]
    fn the_text_fits_a_terminal() {
        let long = "a processor with a very long name ".repeat(5);
        let mut after = file(&long, &[(2, 123_456.7)]);
        after.cases[0]
            .unreliable
            .push("it ran 29 % of the time ".repeat(9));
        let text = text(&file("AMD", &[(2, 1.0)]), &after);
        crate::report::fit::assert_fits(&text);
    }

    #[test]
    fn too_few_rounds_are_said_to_be_too_few() {
        assert_eq!(verdict(&[], &[1.0], Unit::Microseconds), None);
        let said = verdict(&[1.0, 2.0], &[3.0, 4.0], Unit::Microseconds).unwrap();
        assert!(said.contains("2 and 2 rounds are too few"), "{said}");
    }

    #[test]
    fn more_bandwidth_is_faster() {
        let before: Vec<f64> = (0..10).map(f64::from).collect();
        let after: Vec<f64> = before.iter().map(|it| it + 50.0).collect();
        let said = verdict(&before, &after, Unit::Mebibytes).unwrap();
        assert!(said.starts_with("average: faster by +4"), "{said}");
        assert!(said.contains(" MiB/s, 95 % confidence"), "{said}");
        let said = verdict(&after, &before, Unit::Mebibytes).unwrap();
        assert!(said.starts_with("average: slower by -5"), "{said}");
    }

    #[test]
    fn an_unreliable_result_is_named_on_its_side() {
        let mut after = file("AMD", &[(2, 1.0)]);
        after.cases[0]
            .unreliable
            .push("it ran 29 % of the time".into());
        let text = text(&file("AMD", &[(2, 1.0)]), &after);
        assert!(
            text.contains("the second is UNRELIABLE: it ran 29 %"),
            "{text}"
        );
    }
}

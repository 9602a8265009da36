//! The plots of result files: which figures are shown over what. `--svg` has those of
//! one run, the page of `report` those of all its files.

mod lines;

use crate::plot::{Axis, Line, Panel, Scale};
use crate::results::ResultFile;

use lines::{Row, curves, pack, percentile_groups, points_over, split};

/// A result file, and its name in plots; the name is empty if there is one file.
pub(crate) struct Source<'a> {
    pub(crate) label: &'a str,
    pub(crate) file: &'a ResultFile,
}

/// The plots of one kind.
pub(crate) struct Section {
    pub(crate) title: &'static str,
    pub(crate) panels: Vec<Panel>,
}

/// A figure over a key, as lines.
struct Over {
    key: &'static str,
    figure: &'static str,
    title: &'static str,
    x: (&'static str, &'static str, Scale),
    y: (&'static str, &'static str, Scale),
}

/// The warning of plots whose device is emulated.
pub(crate) const EMULATED: &str = "EMULATED NIC: times of this host, not of hardware";
const PARTLY_EMULATED: &str =
    "PARTLY EMULATED NIC: times of a host, not of hardware, where the legend says so";

/// Returns the plots of these files.
pub(crate) fn sections(sources: &[Source<'_>]) -> Vec<Section> {
    let rows = |command: &str| -> Vec<Row<'_>> {
        let files = || sources.iter().filter(|it| it.file.command == command);
        // A file needs no name if no other has results of the same command.
        let is_named = files().count() > 1;
        files().flat_map(|it| Row::of(it, is_named)).collect()
    };
    let (open, closed): (Vec<_>, Vec<_>) = rows("lat")
        .into_iter()
        .partition(|row| row.case.key("rate").is_some());
    let sections = [
        section("Latency", closed_loop(&closed), &closed),
        section("Latency over load (open loop)", open_loop(&open), &open),
        section("Bandwidth and message rate", bw(&rows("bw")), &rows("bw")),
        section("Wait policies", wake(&rows("wake")), &rows("wake")),
        section("Processor cost", cost(&rows("cost")), &rows("cost")),
        section("Many endpoints", scale(&rows("scale")), &rows("scale")),
        section(
            "perftest and dat-bench",
            compare(&rows("compare")),
            &rows("compare"),
        ),
    ];
    sections
        .into_iter()
        .filter(|it| !it.panels.is_empty())
        .collect()
}

/// Returns a section; its plots say if the device is emulated.
fn section(title: &'static str, mut panels: Vec<Panel>, rows: &[Row<'_>]) -> Section {
    let warning = match rows.iter().filter(|row| row.emulated).count() {
        0 => "",
        count if count == rows.len() => EMULATED,
        _ => PARTLY_EMULATED,
    };
    for panel in &mut panels {
        panel.warning = warning.to_owned();
    }
    Section { title, panels }
}

const LATENCY: (&str, &str, Scale) = ("latency", "us", Scale::Log);
const RATE: (&str, &str, Scale) = ("rate", "messages/s", Scale::Log);

fn over_size(figure: &'static str, title: &'static str) -> Over {
    let x = ("message size", "bytes", Scale::PowersOfTwo);
    Over {
        key: "size",
        figure,
        title,
        x,
        y: LATENCY,
    }
}

fn over_rate(figure: &'static str, title: &'static str) -> Over {
    Over {
        key: "rate",
        figure,
        title,
        x: RATE,
        y: LATENCY,
    }
}

fn closed_loop(rows: &[Row<'_>]) -> Vec<Panel> {
    let mut panels = over(rows, &over_size("p50", "Median latency over message size"));
    panels.extend(over(
        rows,
        &over_size("p99", "99 % latency over message size"),
    ));
    panels.extend(percentiles("Latency by percentile", rows, &["size"], true));
    panels
}

fn open_loop(rows: &[Row<'_>]) -> Vec<Panel> {
    let mut panels = over(rows, &over_rate("p50", "Median latency over load"));
    panels.extend(over(rows, &over_rate("p99", "99 % latency over load")));
    panels.extend(percentiles(
        "Latency by percentile",
        rows,
        &["size", "rate"],
        true,
    ));
    panels
}

fn bw(rows: &[Row<'_>]) -> Vec<Panel> {
    let average = Over {
        y: ("average bandwidth", "MiB/s", Scale::Log),
        ..over_size("bw_avg", "Bandwidth over message size")
    };
    let rate = Over {
        y: ("message rate", "10^6 messages/s", Scale::Log),
        ..over_size("msg_rate", "Message rate over message size")
    };
    [average, rate]
        .iter()
        .flat_map(|what| over(rows, what))
        .collect()
}

fn wake(rows: &[Row<'_>]) -> Vec<Panel> {
    let (wakes, responses): (Vec<_>, Vec<_>) =
        rows.iter().copied().partition(|row| !row.case.is_part);
    let mut panels = over(
        &wakes,
        &over_rate("p50", "Median wake-up latency over rate"),
    );
    panels.extend(over(
        &wakes,
        &over_rate("p99", "99 % wake-up latency over rate"),
    ));
    panels.extend(over(
        &responses,
        &over_rate("p99", "99 % response time over rate"),
    ));
    let share = Over {
        y: ("CPU time", "% of one CPU", Scale::Linear),
        ..over_rate("cpu-share", "The waiter's CPU time over rate")
    };
    panels.extend(over(&wakes, &share));
    panels.extend(percentiles(
        "Wake-up latency by percentile",
        &wakes,
        &["rate"],
        false,
    ));
    panels.extend(percentiles(
        "Response time by percentile",
        &responses,
        &["rate"],
        false,
    ));
    panels
}

fn cost(rows: &[Row<'_>]) -> Vec<Panel> {
    let mut operations: Vec<String> = Vec::new();
    for key in rows.iter().filter_map(|row| row.case.key("operation")) {
        if !operations.contains(&key.text) {
            operations.push(key.text.clone());
        }
    }
    let place = |row: &Row<'_>| {
        let operation = &row.case.key("operation")?.text;
        operations.iter().position(|it| it == operation)
    };
    let mut panels = Vec::new();
    for (figure, title, quantity, unit) in [
        ("time", "Time per operation", "time per operation", "ns"),
        (
            "instructions",
            "Instructions per operation",
            "instructions per operation",
            "number",
        ),
    ] {
        let lines = points_over(rows, "operation", |row| {
            Some((row.case.figure(figure)?.value, place(row)? as f64))
        });
        let x = Axis::new(quantity, unit, Scale::Linear);
        let y = Axis::new("operation", "", Scale::Names(operations.clone()));
        panels.extend(split(title, &x, &y, lines, false));
    }
    panels
}

fn scale(rows: &[Row<'_>]) -> Vec<Panel> {
    let x = ("endpoints", "number", Scale::Log);
    let mut panels = Vec::new();
    for (figure, title, y) in [
        (
            "time",
            "Time per message",
            ("time per message", "ns", Scale::Linear),
        ),
        (
            "instructions",
            "Instructions per message",
            ("instructions per message", "number", Scale::Linear),
        ),
        (
            "cache-lines",
            "Cache lines per message",
            (
                "cache lines of 64 bytes per message",
                "number",
                Scale::Linear,
            ),
        ),
    ] {
        let mut lines = Vec::new();
        for (interface, before) in [("engine", ""), ("libmlx5", "libmlx5.")] {
            let mut each = points_over(rows, "endpoints", |row| {
                let endpoints = row.case.key("endpoints")?.number?;
                Some((
                    endpoints,
                    row.case.figure(&format!("{before}{figure}"))?.value,
                ))
            });
            each.iter_mut()
                .for_each(|line| line.parts.push(("interface", interface.to_owned())));
            lines.extend(each);
        }
        if lines.iter().any(|line| line.line.points.len() > 1) {
            let (x, y) = (Axis::new(x.0, x.1, x.2.clone()), Axis::new(y.0, y.1, y.2));
            panels.extend(split(title, &x, &y, lines, true));
        }
    }
    let mut lines = Vec::new();
    for kind in ["libmlx5", "engine", "dat"] {
        let mut each = points_over(rows, "endpoints", |row| {
            let endpoints = row.case.key("endpoints")?.number?;
            let bytes = row.case.figure(&format!("memory.{kind}"))?.value;
            (bytes > 0.0).then_some((endpoints, bytes / endpoints))
        });
        each.iter_mut()
            .for_each(|line| line.parts.push(("memory", kind.to_owned())));
        lines.extend(each);
    }
    let x = Axis::new(x.0, x.1, x.2);
    let y = Axis::new("resident memory per endpoint", "bytes", Scale::Log);
    panels.extend(split("Memory", &x, &y, lines, true));
    panels
}

fn compare(rows: &[Row<'_>]) -> Vec<Panel> {
    let lines = curves(rows, |row| {
        let numbered = (1..).map(f64::from).zip(row.case.rounds.iter().copied());
        Line {
            points: numbered.collect(),
            joined: true,
            ..Line::default()
        }
    });
    let x = Axis::new("pair of runs", "number", Scale::Linear);
    let y = Axis::new("t_typical", "us", Scale::Log);
    split("Median of each run", &x, &y, lines, true)
}

/// Returns the plots of a figure over a key; none if the key has one value only.
fn over(rows: &[Row<'_>], what: &Over) -> Vec<Panel> {
    let lines = points_over(rows, what.key, |row| {
        Some((
            row.case.key(what.key)?.number?,
            row.case.figure(what.figure)?.value,
        ))
    });
    let xs = || {
        lines
            .iter()
            .flat_map(|line| &line.line.points)
            .map(|point| point.0)
    };
    if !xs().zip(xs().skip(1)).any(|(one, other)| one != other) {
        return Vec::new();
    }
    let axis =
        |(quantity, unit, scale): &(&str, &str, Scale)| Axis::new(quantity, unit, scale.clone());
    split(what.title, &axis(&what.x), &axis(&what.y), lines, true)
}

/// Returns the percentile plots. The results that have these keys in common are in one
/// plot; `packed`: several such groups may share a plot.
fn percentiles(title: &str, rows: &[Row<'_>], keys: &[&str], packed: bool) -> Vec<Panel> {
    let x = Axis::new("percentile", "%", Scale::Percentile);
    let y = Axis::new(LATENCY.0, LATENCY.1, LATENCY.2);
    let groups = percentile_groups(rows, keys);
    let plots = if packed { pack(groups) } else { groups };
    plots
        .into_iter()
        .flat_map(|lines| split(title, &x, &y, lines, true))
        .collect()
}

#[cfg(test)]
mod tests;

//! The plots of result files: which figures are shown over what. `--svg` has those of
//! one run, the page of `report` those of all its files.

mod lines;
mod time;

use crate::plot::{Axis, Line, Panel, Scale, colour};

pub(crate) use lines::Source;
use lines::{Curve, Row, curves, pack, percentile_groups, points_over, split};

/// The plots of one kind.
pub(crate) struct Section {
    pub(crate) title: &'static str,
    pub(crate) panels: Vec<Panel>,
}

impl Section {
    /// Returns whether the plots are too many to be shown at once: there is one for each case.
    pub(crate) fn is_folded(&self) -> bool {
        const MOST_SHOWN: usize = 8;
        self.title == time::TITLE && self.panels.len() > MOST_SHOWN
    }
}

/// What an axis shows, its unit, and its scale.
type Quantity = (&'static str, &'static str, Scale);

// Axes have the words of the tables.
const TYPICAL: Quantity = ("t_typical", "usec", Scale::Log);
const TAIL: Quantity = ("99%", "usec", Scale::Log);
const LATENCY: Quantity = ("latency", "usec", Scale::Log);
/// Keys of cases, as the x axis.
const SIZE: (&str, Quantity) = ("size", ("#bytes", "", Scale::PowersOfTwo));
const RATE: (&str, Quantity) = ("rate", ("rate", "/s", Scale::Log));
const ENDPOINTS: (&str, Quantity) = ("endpoints", ("endpoints", "number", Scale::Log));

fn axis((quantity, unit, scale): Quantity) -> Axis {
    Axis::new(quantity, unit, scale)
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
        section("Latency", closed_loop, &closed),
        section(time::TITLE, time::panels, &rows("lat")),
        section("Latency over load (open loop)", open_loop, &open),
        section("Bandwidth and message rate", bw, &rows("bw")),
        section("Wait policies", wake, &rows("wake")),
        section("Processor cost", cost, &rows("cost")),
        section("Many endpoints", scale, &rows("scale")),
        section("perftest and dat-bench", compare, &rows("compare")),
    ];
    let has_plots = |it: &Section| !it.panels.is_empty();
    let mut sections: Vec<Section> = sections.into_iter().filter(has_plots).collect();
    colour(sections.iter_mut().flat_map(|it| &mut it.panels));
    sections
}

/// Returns a section; its plots say if the device is emulated.
fn section(title: &'static str, panels: fn(&[Row<'_>]) -> Vec<Panel>, rows: &[Row<'_>]) -> Section {
    let warning = match rows.iter().filter(|row| row.emulated).count() {
        0 => "",
        count if count == rows.len() => EMULATED,
        _ => PARTLY_EMULATED,
    };
    let mut panels = panels(rows);
    for panel in &mut panels {
        panel.warning = warning.to_owned();
    }
    Section { title, panels }
}

fn closed_loop(rows: &[Row<'_>]) -> Vec<Panel> {
    let size = |title, figure, y| over(rows, title, SIZE, figure, y);
    [
        size("Median latency over message size", "p50", TYPICAL),
        size("99 % latency over message size", "p99", TAIL),
        percentiles("Latency by percentile", rows, (&["size"], true), LATENCY),
    ]
    .concat()
}

fn open_loop(rows: &[Row<'_>]) -> Vec<Panel> {
    let load = |title, figure, y| over(rows, title, RATE, figure, y);
    [
        load("Median latency over load", "p50", TYPICAL),
        load("99 % latency over load", "p99", TAIL),
        percentiles(
            "Latency by percentile",
            rows,
            (&["size", "rate"], true),
            LATENCY,
        ),
    ]
    .concat()
}

fn bw(rows: &[Row<'_>]) -> Vec<Panel> {
    let size = |title, figure, y| over(rows, title, SIZE, figure, y);
    let average = ("BW average", "MiB/sec", Scale::Log);
    let rate = ("MsgRate", "Mpps", Scale::Log);
    let plots = [
        size("Bandwidth over message size", "bw_avg", average.clone()),
        size("Message rate over message size", "msg_rate", rate),
    ]
    .concat();
    match plots.is_empty() {
        // Of a single size.
        true => rounds(rows, "Bandwidth of each round", "round", average),
        false => plots,
    }
}

fn wake(rows: &[Row<'_>]) -> Vec<Panel> {
    let (wakes, responses): (Vec<_>, Vec<_>) =
        rows.iter().copied().partition(|row| !row.case.is_part);
    let rate = |rows: &[Row<'_>], title, figure, name| {
        over(rows, title, RATE, figure, (name, "us", Scale::Log))
    };
    let share = ("CPU", "%", Scale::Linear);
    let each = |title, rows: &[Row<'_>], name| {
        percentiles(title, rows, (&["rate"], false), (name, "us", Scale::Log))
    };
    [
        rate(&wakes, "Median wake-up latency over rate", "p50", "50 %"),
        rate(&wakes, "99 % wake-up latency over rate", "p99", "99 %"),
        rate(
            &responses,
            "99 % response time over rate",
            "p99",
            "due 99 %",
        ),
        over(
            &wakes,
            "The waiter's CPU time over rate",
            RATE,
            "cpu-share",
            share,
        ),
        each("Wake-up latency by percentile", &wakes, "latency"),
        each("Response time by percentile", &responses, "due"),
    ]
    .concat()
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
    let plot = |title, figure, x| {
        let lines = points_over(rows, "operation", |row| {
            Some((row.case.figure(figure)?.value, place(row)? as f64))
        });
        let y = Axis::new("operation", "", Scale::Names(operations.clone()));
        split(title, &axis(x), &y, lines, false)
    };
    let time = ("time per operation", "ns", Scale::Linear);
    let instructions = ("instructions per operation", "number", Scale::Linear);
    [
        plot("Time per operation", "time", time),
        plot("Instructions per operation", "instructions", instructions),
    ]
    .concat()
}

fn scale(rows: &[Row<'_>]) -> Vec<Panel> {
    let message = |title, figure: &str, y| {
        let libmlx5 = format!("libmlx5.{figure}");
        let lines = [("engine", figure), ("libmlx5", &libmlx5)]
            .map(|(name, figure)| named(rows, ("interface", name), figure, |value, _| value))
            .concat();
        match lines.iter().any(|curve| curve.line.points.len() > 1) {
            true => split(title, &axis(ENDPOINTS.1), &axis(y), lines, true),
            false => Vec::new(),
        }
    };
    let memory = ["libmlx5", "engine", "dat"].map(|name| {
        let each = |bytes, endpoints| bytes / endpoints;
        named(rows, ("memory", name), &format!("memory.{name}"), each)
    });
    let resident = Axis::new("resident memory per endpoint", "bytes", Scale::Log);
    let time = ("time per message", "ns", Scale::Linear);
    let instructions = ("instructions per message", "number", Scale::Linear);
    let lines = (
        "cache lines of 64 bytes per message",
        "number",
        Scale::Linear,
    );
    [
        message("Time per message", "time", time),
        message("Instructions per message", "instructions", instructions),
        message("Cache lines per message", "cache-lines", lines),
        split(
            "Memory",
            &axis(ENDPOINTS.1),
            &resident,
            memory.concat(),
            true,
        ),
    ]
    .concat()
}

/// Returns the lines of a figure over the number of endpoints, with another part of their name.
fn named(
    rows: &[Row<'_>],
    part: (&'static str, &str),
    figure: &str,
    value: impl Fn(f64, f64) -> f64,
) -> Vec<Curve> {
    let mut curves = points_over(rows, ENDPOINTS.0, |row| {
        let endpoints = row.case.key(ENDPOINTS.0)?.number?;
        let found = row.case.figure(figure)?.value;
        (found > 0.0).then(|| (endpoints, value(found, endpoints)))
    });
    for curve in &mut curves {
        curve.parts.push((part.0, part.1.to_owned()));
    }
    curves
}

fn compare(rows: &[Row<'_>]) -> Vec<Panel> {
    rounds(rows, "Median of each run", "pair of runs", TYPICAL)
}

/// Returns the plots of the figure that each round has.
fn rounds(rows: &[Row<'_>], title: &str, what: &str, y: Quantity) -> Vec<Panel> {
    let lines = curves(rows, |row| {
        let numbered = (1..).map(f64::from).zip(row.case.rounds.iter().copied());
        Line {
            points: numbered.collect(),
            joined: true,
            ..Line::default()
        }
    });
    let x = Axis::new(what, "number", Scale::Linear);
    split(title, &x, &axis(y), lines, true)
}

/// Returns the plots of a figure over a key; none if the key has one value only.
fn over(
    rows: &[Row<'_>],
    title: &str,
    (key, x): (&str, Quantity),
    figure: &str,
    y: Quantity,
) -> Vec<Panel> {
    let lines = points_over(rows, key, |row| {
        Some((row.case.key(key)?.number?, row.case.figure(figure)?.value))
    });
    let points = lines.iter().flat_map(|line| &line.line.points);
    let mut xs: Vec<f64> = points.map(|point| point.0).collect();
    xs.dedup();
    match xs.len() > 1 {
        true => split(title, &axis(x), &axis(y), lines, true),
        false => Vec::new(),
    }
}

/// Returns the percentile plots. The results that have these keys in common are in one
/// plot; `packed`: several such groups may share a plot.
fn percentiles(
    title: &str,
    rows: &[Row<'_>],
    (keys, packed): (&[&str], bool),
    y: Quantity,
) -> Vec<Panel> {
    let x = Axis::new("percentile", "%", Scale::Percentile);
    let y = axis(y);
    let groups = percentile_groups(rows, keys);
    let plots = if packed { pack(groups) } else { groups };
    plots
        .into_iter()
        .flat_map(|lines| split(title, &x, &y, lines, true))
        .collect()
}

#[cfg(test)]
mod tests;

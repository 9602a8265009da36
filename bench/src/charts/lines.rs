//! Lines of plots from cases, their names, and how many share a plot.

use crate::plot::{Axis, Line, MOST_LINES, MOST_STYLES, Panel};
use crate::results::{Case, ResultFile};

/// A result file, and its name in plots; the name is empty if there is one file.
pub(crate) struct Source<'a> {
    pub(crate) label: &'a str,
    pub(crate) file: &'a ResultFile,
}

/// What distinguishes lines of one series, which have one colour.
const VARIANTS: [&str; 5] = ["size", "rate", "time", "endpoints", "device"];

/// A case, with the name of its file.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    file: &'a str,
    pub(super) emulated: bool,
    pub(super) case: &'a Case,
}

/// A line, and what distinguishes it from others: names and values.
#[derive(Clone)]
pub(super) struct Curve {
    pub(super) parts: Vec<(&'static str, String)>,
    pub(super) line: Line,
}

impl Curve {
    /// Returns what distinguishes lines of one series.
    fn variant(&self) -> Vec<&str> {
        let parts = self.parts.iter().filter(|part| VARIANTS.contains(&part.0));
        parts.map(|part| part.1.as_str()).collect()
    }

    /// Returns the series: interface, file, wait policy, whatever it is shown over.
    fn series(&self) -> String {
        let parts = self.parts.iter().filter(|part| !VARIANTS.contains(&part.0));
        let parts: Vec<&str> = parts.map(|part| part.1.as_str()).collect();
        parts.join(", ")
    }
}

impl<'a> Row<'a> {
    /// Returns the cases of a file.
    pub(super) fn of(source: &'a Source<'a>, is_named: bool) -> impl Iterator<Item = Self> {
        source.file.cases.iter().map(move |case| Self {
            file: if is_named { source.label } else { "" },
            emulated: source.file.emulated,
            case,
        })
    }

    /// Returns what distinguishes the case, without a key that is shown on an axis.
    pub(super) fn parts(&self, shown: &str) -> Vec<(&'static str, String)> {
        let mut parts = Vec::new();
        if !self.file.is_empty() {
            parts.push(("file", self.file.to_owned()));
        }
        let keys = self.case.keys.iter().filter(|key| key.name != shown);
        parts.extend(keys.map(|key| (key.name, key.text.clone())));
        if self.emulated {
            parts.push(("device", "emulated NIC".to_owned()));
        }
        parts
    }
}

/// Returns lines through the points of cases that differ in `key` only.
pub(super) fn points_over(
    rows: &[Row<'_>],
    key: &str,
    point: impl Fn(&Row<'_>) -> Option<(f64, f64)>,
) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for row in rows {
        let Some(point) = point(row) else { continue };
        let parts = row.parts(key);
        let at = curves.iter().position(|curve| curve.parts == parts);
        let at = at.unwrap_or_else(|| {
            let line = Line {
                joined: true,
                ..Line::default()
            };
            curves.push(Curve { parts, line });
            curves.len() - 1
        });
        let line = &mut curves[at].line;
        line.points.push(point);
        line.unreliable |= !row.case.unreliable.is_empty();
    }
    for curve in &mut curves {
        curve.line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    curves
}

/// Returns a line for each case.
pub(super) fn curves(rows: &[Row<'_>], line: impl Fn(&Row<'_>) -> Line) -> Vec<Curve> {
    let curve = |row: &Row<'_>| Curve {
        parts: row.parts(""),
        line: Line {
            unreliable: !row.case.unreliable.is_empty(),
            ..line(row)
        },
    };
    rows.iter().map(curve).collect()
}

/// Returns the percentile lines of cases, grouped by these keys.
pub(super) fn percentile_groups(rows: &[Row<'_>], keys: &[&str]) -> Vec<Vec<Curve>> {
    let mut groups: Vec<(Vec<Option<&str>>, Vec<Row<'_>>)> = Vec::new();
    for row in rows.iter().filter(|row| !row.case.histogram.is_empty()) {
        let values = keys
            .iter()
            .map(|key| row.case.key(key).map(|key| key.text.as_str()));
        let values: Vec<_> = values.collect();
        match groups.iter_mut().find(|(group, _)| *group == values) {
            Some((_, of)) => of.push(*row),
            None => groups.push((values, vec![*row])),
        }
    }
    let lines =
        |(_, rows): (_, Vec<Row<'_>>)| curves(&rows, |row| percentiles(&row.case.histogram));
    groups.into_iter().map(lines).collect()
}

/// Returns a distribution on HdrHistogram's axis: (1/(1-p), microseconds). The tail
/// begins where fewer than ten samples are above.
fn percentiles(histogram: &[(u64, u64)]) -> Line {
    const LEAST_ABOVE: u64 = 10;
    /// Distance of points, as a ratio; they are closer than a printer can show.
    const FINE: f64 = 1.01;
    let total: u64 = histogram.iter().map(|&(_, count)| count).sum();
    let mut line = Line {
        joined: true,
        ..Line::default()
    };
    let mut below = 0;
    let mut last = None;
    let mut skipped = None;
    for &(nanoseconds, count) in histogram {
        let y = nanoseconds as f64 / 1e3;
        let first = (last.is_none()).then_some((1.0, y));
        below += count;
        let above = total - below;
        let point = (total as f64 / above.max(1) as f64, y);
        let far = |(x, y): (f64, f64)| point.0 / x > FINE || point.1 / y > FINE;
        let to = if above >= LEAST_ABOVE {
            &mut line.points
        } else {
            &mut line.tail
        };
        to.extend(first);
        if last.is_none_or(far) || above == 0 {
            // The end of a flat part, before a step.
            to.extend(skipped.take().filter(|&before: &(f64, f64)| far(before)));
            to.push(point);
            last = Some(point);
            skipped = None;
        } else {
            skipped = Some(point);
        }
    }
    if line.points.is_empty() {
        // So few samples that no percentile is supported.
        line.points.extend(line.tail.first().copied());
    }
    line
}

/// Joins adjacent groups as long as their lines fit into one plot.
pub(super) fn pack(groups: Vec<Vec<Curve>>) -> Vec<Vec<Curve>> {
    let mut packed: Vec<Vec<Curve>> = Vec::new();
    for group in groups {
        match packed.last_mut() {
            Some(last) if fitting(last.iter().chain(&group)) == last.len() + group.len() => {
                last.extend(group);
            }
            _ => packed.push(group),
        }
    }
    packed
}

/// Returns how many lines fit into one plot: there are as many colours, and as many dashes.
fn fitting<'a>(curves: impl Iterator<Item = &'a Curve>) -> usize {
    let mut variants: Vec<Vec<&str>> = Vec::new();
    let fits = |curve: &&'a Curve| place(&mut variants, curve.variant()) < MOST_STYLES;
    curves.take(MOST_LINES).take_while(fits).count()
}

/// Returns the plots of lines, as many as needed. What lines have in common is in the
/// subtitle, what distinguishes them is in the legend.
pub(super) fn split(
    title: &str,
    x: &Axis,
    y: &Axis,
    curves: Vec<Curve>,
    joined: bool,
) -> Vec<Panel> {
    let mut panels = Vec::new();
    let mut rest = curves;
    while !rest.is_empty() {
        let more = rest.split_off(fitting(rest.iter()));
        let common: Vec<(&str, String)> = match &rest[..] {
            // Its name is what distinguishes it from other plots.
            [only] => {
                let device = only.parts.iter().filter(|part| part.0 == "device");
                device.cloned().collect()
            }
            [first, others @ ..] => {
                let everywhere = |part: &&(&'static str, String)| {
                    others.iter().all(|curve| curve.parts.contains(part))
                };
                first.parts.iter().filter(everywhere).cloned().collect()
            }
            [] => unreachable!("the loop ends before"),
        };
        let text = |parts: &mut dyn Iterator<Item = &(&'static str, String)>| {
            let words: Vec<&str> = parts.map(|(_, value)| value.as_str()).collect();
            words.join(", ")
        };
        let mut variants: Vec<Vec<&str>> = Vec::new();
        let lines = rest.iter().map(|curve| Line {
            series: curve.series(),
            style: place(&mut variants, curve.variant()),
            name: text(&mut curve.parts.iter().filter(|part| !common.contains(part))),
            joined,
            ..curve.line.clone()
        });
        panels.push(Panel {
            title: title.to_owned(),
            subtitle: text(&mut common.iter().filter(|part| part.0 != "device")),
            warning: String::new(),
            x: x.clone(),
            y: y.clone(),
            lines: lines.collect(),
            hovers: Vec::new(),
            events: Vec::new(),
            events_name: String::new(),
        });
        rest = more;
    }
    panels
}

/// Returns the index of a value, which is appended if it is not there.
pub(super) fn place<T: PartialEq>(values: &mut Vec<T>, value: T) -> usize {
    let found = values.iter().position(|it| *it == value);
    found.unwrap_or_else(|| {
        values.push(value);
        values.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentile_line_is_one_over_one_minus_p_and_its_tail_has_few_samples_above() {
        // 1000 samples: 900 of 1 us, 90 of 2 us, 9 of 3 us, 1 of 4 us.
        let line = percentiles(&[(1000, 900), (2000, 90), (3000, 9), (4000, 1)]);
        assert_eq!(line.points, [(1.0, 1.0), (10.0, 1.0), (100.0, 2.0)]);
        assert_eq!(line.tail, [(1000.0, 3.0), (1000.0, 4.0)]);
    }

    #[test]
    fn dense_buckets_are_thinned_out_and_steps_are_kept() {
        let mut buckets: Vec<(u64, u64)> = (0..2000).map(|i| (10_000 + i, 10)).collect();
        buckets.push((1_000_000, 100));
        let line = percentiles(&buckets);
        assert!(line.points.len() < 500, "{}", line.points.len());
        // The last bucket before the step of a millisecond.
        let before = line.points.last().unwrap();
        assert!((before.1 - 11.999).abs() < 0.01, "{before:?}");
        assert_eq!(line.tail.last().unwrap().1, 1000.0);
        let few = percentiles(&[(1000, 3)]);
        assert_eq!(few.points.len(), 1);
    }

    fn curve(parts: &[(&'static str, &str)]) -> Curve {
        Curve {
            parts: parts
                .iter()
                .map(|&(name, value)| (name, value.to_owned()))
                .collect(),
            line: Line::default(),
        }
    }

    #[test]
    fn groups_share_a_plot_while_their_lines_fit() {
        let group = |count: usize| (0..count).map(|_| curve(&[])).collect::<Vec<_>>();
        let sizes: Vec<usize> = pack(vec![group(3), group(3), group(3), group(9)])
            .iter()
            .map(Vec::len)
            .collect();
        assert_eq!(sizes, [6, 3, 9]);
        let axis = Axis::new("x", "us", crate::plot::Scale::Log);
        assert_eq!(split("t", &axis, &axis, group(9), true).len(), 2);
    }

    #[test]
    fn the_legend_has_what_differs_and_the_subtitle_what_does_not() {
        let axis = Axis::new("x", "us", crate::plot::Scale::Log);
        let both = vec![
            curve(&[("file", "a"), ("size", "2 bytes")]),
            curve(&[("file", "b"), ("size", "2 bytes")]),
        ];
        let panel = &split("t", &axis, &axis, both, true)[0];
        assert_eq!(panel.subtitle, "2 bytes");
        assert_eq!([&panel.lines[0].name, &panel.lines[1].name], ["a", "b"]);
        let one = split("t", &axis, &axis, vec![curve(&[("size", "2 bytes")])], true);
        assert_eq!(
            (one[0].subtitle.as_str(), one[0].lines[0].name.as_str()),
            ("", "2 bytes")
        );
    }
}

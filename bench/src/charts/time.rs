//! Latencies over the time of each case.

use super::lines::{Curve, Row, split};
use crate::plot::{Axis, Line, Panel, Scale, Span, number};
use crate::results::Slot;

/// The title of the section, and of each plot.
pub(super) const TITLE: &str = "Latency over time";

/// Returns a plot per case.
pub(super) fn panels(rows: &[Row<'_>]) -> Vec<Panel> {
    let slots = rows.iter().flat_map(|row| &row.case.series);
    let unit = match slots.map(|slot| slot.end).fold(0.0, f64::max) {
        end if end >= 2e6 => ("s", 1e6),
        end if end >= 2e3 => ("ms", 1e3),
        _ => ("usec", 1.0),
    };
    rows.iter().filter_map(|row| panel(row, unit)).collect()
}

fn panel(row: &Row<'_>, (unit, divisor): (&str, f64)) -> Option<Panel> {
    let slots = &row.case.series;
    let mut common = row.parts("");
    common.retain(|part| !part.1.is_empty());
    let curve = |name: &str, stems, value: &dyn Fn(&Slot) -> Option<f64>| {
        let mut points = Vec::new();
        for (at, slot) in slots.iter().enumerate() {
            let y = value(slot).unwrap_or(f64::NAN);
            points.push((slot.begin / divisor, y));
            // Between rounds, there are no messages.
            if slots.get(at + 1).is_some_and(|next| next.begin > slot.end) {
                points.push((slot.end / divisor, y));
                points.push((slot.end / divisor, f64::NAN));
            }
        }
        let mut parts = common.clone();
        // It is a variant of the series: it has its colour.
        parts.retain(|part| part.0 != "time");
        parts.push(("time", name.to_owned()));
        let line = Line {
            points,
            stems,
            unreliable: !row.case.unreliable.is_empty(),
            ..Line::default()
        };
        line.points
            .iter()
            .any(|point| !point.1.is_nan())
            .then_some(Curve { parts, line })
    };
    let curves = [
        curve("t_typical", false, &|slot| Some(slot.typical)),
        curve("99%", false, &|slot| slot.p99),
        curve("t_max", true, &|slot| Some(slot.max)),
    ];
    let curves: Vec<Curve> = curves.into_iter().flatten().collect();
    let x = Axis::new("time since the first message", unit, Scale::Linear);
    let y = Axis::new("latency", "usec", Scale::Log);
    let mut panel = split(TITLE, &x, &y, curves, true).pop()?;
    if let Some(time) = row.case.key("time") {
        panel.subtitle = format!("{}, {}", panel.subtitle, time.text);
    }
    panel.hovers = slots
        .iter()
        .map(|slot| Span {
            from: slot.begin / divisor,
            to: slot.end / divisor,
            text: hover(
                slot,
                &format!("{} {unit}", number(round(slot.begin / divisor))),
            ),
        })
        .collect();
    let events = row.case.disturbances.iter().map(|it| Span {
        from: it.begin / divisor,
        to: it.end / divisor,
        text: it.what.clone(),
    });
    panel.events = events.collect();
    panel.events_name =
        "a round in which, or just before which, something interrupted the thread".to_owned();
    Some(panel)
}

fn round(value: f64) -> f64 {
    // A file may have any numbers.
    let rounded = (value * 1e3).round() / 1e3;
    if rounded.is_finite() { rounded } else { value }
}

/// Returns the values of a slot, in words.
fn hover(slot: &Slot, from: &str) -> String {
    let usec = |value: f64| number(round(value));
    let p99 = slot
        .p99
        .map_or(String::new(), |p99| format!("99% {}, ", usec(p99)));
    let (typical, max) = (usec(slot.typical), usec(slot.max));
    let messages = crate::output::counted(slot.samples, "message");
    format!("from {from}: {messages}, t_typical {typical}, {p99}t_max {max} usec")
}

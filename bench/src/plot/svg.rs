//! A panel as SVG: title, axes, lines, legend; and a page of panels.

use std::fmt::Write;

use super::axis::{Range, Scale};
use super::panel::{Line, Panel};
use super::text::{escape, shorten, width, wrap};

/// Okabe and Ito's colours, which are distinct with red-green blindness too.
pub(crate) const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#5b5b5b", "#8b4513",
];
/// So that lines are distinct without colours.
const DASHES: [&str; 4] = ["", "7 3", "2 2.5", "9 3 2 3"];

/// Width of a panel, in the unit of all lengths here. On a phone it is a little more
/// than the screen is wide, so that text stays legible.
const WIDTH: f64 = 400.0;
const TITLE: f64 = 14.0;
const SMALL: f64 = 11.5;
const LABEL: f64 = 12.0;
const LINE_HEIGHT: f64 = 15.0;
const PLOT_HEIGHT: f64 = 210.0;
/// Height of a row on an axis of names.
const ROW: f64 = 17.0;
const MARGIN: f64 = 6.0;
/// Class and attributes of text.
const PLAIN: (&str, &str) = ("text", "");
const MIDDLE: (&str, &str) = ("text", " text-anchor=\"middle\"");

/// A drawn panel: elements, and its size.
pub(crate) struct Drawn {
    pub(crate) elements: String,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

/// The rectangle of the data.
struct Plot {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

impl Plot {
    fn x(&self, range: &Range<'_>, value: f64) -> f64 {
        self.left + range.place(value) * self.width
    }

    fn y(&self, range: &Range<'_>, value: f64) -> f64 {
        self.top + (1.0 - range.place(value)) * self.height
    }
}

pub(crate) fn draw(panel: &Panel) -> Drawn {
    let mut out = String::new();
    let mut y = MARGIN;
    let all_bad = !panel.lines.is_empty() && panel.lines.iter().all(|line| line.unreliable);
    let bad = if all_bad {
        "All of these results are UNRELIABLE"
    } else {
        ""
    };
    const BOLD: &str = " font-weight=\"bold\"";
    for (text, size, class, weight) in [
        (panel.title.as_str(), TITLE, "text", BOLD),
        (&panel.subtitle, SMALL, "text", ""),
        (&panel.warning, SMALL, "warn", BOLD),
        (bad, SMALL, "warn", BOLD),
    ] {
        for line in wrap(text, size, WIDTH - 2.0 * MARGIN) {
            y += size * 1.2;
            words(&mut out, (MARGIN, y), size, (class, weight), &line);
        }
    }
    y += LINE_HEIGHT + 2.0;
    words(&mut out, (MARGIN, y), LABEL, PLAIN, &panel.y.label);
    let points = || panel.lines.iter().flat_map(Line::all);
    let vertical = Range::new(&panel.y.scale, points().map(|point| point.1), None);
    let labels = vertical.ticks.iter().map(|tick| width(&tick.label, LABEL));
    // Names may take half of the panel.
    let left = (labels.fold(16.0, f64::max) + MARGIN + 6.0).min(WIDTH * 0.5);
    let plot = Plot {
        left,
        top: y + 8.0,
        width: WIDTH - left - 16.0,
        height: match &panel.y.scale {
            Scale::Names(names) => ROW * names.len().max(2) as f64,
            _ => PLOT_HEIGHT,
        },
    };
    let room = Some((plot.width, LABEL));
    let horizontal = Range::new(&panel.x.scale, points().map(|point| point.0), room);
    axes(&mut out, &plot, &horizontal, &vertical);
    let mut y = plot.top + plot.height + LINE_HEIGHT * 2.0 + 1.0;
    let centre = plot.left + plot.width / 2.0;
    let text = shorten(&panel.x.label, LABEL, WIDTH - 2.0 * MARGIN);
    let half = width(&text, LABEL) / 2.0;
    let centre = centre.clamp(half + MARGIN, (WIDTH - MARGIN - half).max(half + MARGIN));
    words(&mut out, (centre, y), LABEL, MIDDLE, &text);
    if panel.lines.iter().all(|line| line.all().next().is_none()) {
        let middle = plot.top + plot.height / 2.0;
        words(
            &mut out,
            (plot.left + 8.0, middle),
            LABEL,
            PLAIN,
            "no results",
        );
    }
    for (index, line) in panel.lines.iter().enumerate() {
        // Lines of percentiles have a point for each bucket.
        let marked = panel.x.scale != Scale::Percentile;
        series(
            &mut out,
            (&plot, &horizontal, &vertical),
            index,
            line,
            marked,
        );
    }
    y += 6.0;
    y = legend(&mut out, y, &panel.lines, all_bad);
    Drawn {
        elements: out,
        width: WIDTH,
        height: y + MARGIN,
    }
}

fn words(out: &mut String, (x, y): (f64, f64), size: f64, (class, more): (&str, &str), text: &str) {
    let fill = if class == "warn" {
        "#a40000"
    } else {
        "#1a1a1a"
    };
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" fill=\"{fill}\"{more} class=\"{class}\">{}</text>",
        escape(text)
    );
}

fn axes(out: &mut String, plot: &Plot, horizontal: &Range<'_>, vertical: &Range<'_>) {
    let Plot {
        left,
        top,
        width: wide,
        height,
    } = *plot;
    let (right, bottom) = (left + wide, top + height);
    for tick in &horizontal.ticks {
        let x = left + tick.at * wide;
        let _ = writeln!(
            out,
            "<path d=\"M{x:.1} {top:.1}V{:.1}\" stroke=\"#ddd\" class=\"grid\"/>",
            bottom + 4.0
        );
        if !tick.label.is_empty() {
            let half = width(&tick.label, LABEL) / 2.0;
            let x = x.min(WIDTH - half - 1.0);
            words(out, (x, bottom + LINE_HEIGHT), LABEL, MIDDLE, &tick.label);
        }
    }
    for tick in &vertical.ticks {
        let y = top + (1.0 - tick.at) * height;
        let _ = writeln!(
            out,
            "<path d=\"M{:.1} {y:.1}H{right:.1}\" stroke=\"#ddd\" class=\"grid\"/>",
            left - 4.0
        );
        let label = shorten(&tick.label, LABEL, left - MARGIN - 4.0);
        let end = ("text", " text-anchor=\"end\"");
        words(out, (left - 6.0, y + LABEL * 0.35), LABEL, end, &label);
    }
    let _ = writeln!(
        out,
        "<path d=\"M{left:.1} {top:.1}V{bottom:.1}H{right:.1}\" fill=\"none\" stroke=\"#666\" class=\"axis\"/>"
    );
}

fn series(
    out: &mut String,
    (plot, horizontal, vertical): (&Plot, &Range<'_>, &Range<'_>),
    index: usize,
    line: &Line,
    marked: bool,
) {
    let path = |points: &mut dyn Iterator<Item = (f64, f64)>| {
        let places =
            points.map(|(x, y)| format!("{:.1},{:.1}", plot.x(horizontal, x), plot.y(vertical, y)));
        places.collect::<Vec<_>>().join(" ")
    };
    let colour = COLOURS[index % COLOURS.len()];
    let _ = writeln!(
        out,
        "<g class=\"s{}\" stroke=\"{colour}\" fill=\"{colour}\"><title>{}</title>",
        index % COLOURS.len(),
        escape(&line.name)
    );
    if line.joined && line.points.len() > 1 {
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke-width=\"1.8\" stroke-linejoin=\"round\"{}/>",
            path(&mut line.points.iter().copied()),
            dashes(index)
        );
    }
    if !line.tail.is_empty() {
        let from = line.points.last().copied();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke-width=\"1\" stroke-opacity=\"0.55\" stroke-dasharray=\"1.5 2.5\"/>",
            path(&mut from.into_iter().chain(line.tail.iter().copied()))
        );
    }
    if marked || line.points.len() == 1 {
        for &(x, y) in &line.points {
            let (x, y) = (plot.x(horizontal, x), plot.y(vertical, y));
            mark(out, index, x, y, line.unreliable);
        }
    }
    out.push_str("</g>\n");
}

fn dashes(index: usize) -> String {
    match DASHES[index % DASHES.len()] {
        "" => String::new(),
        dashes => format!(" stroke-dasharray=\"{dashes}\""),
    }
}

/// Draws a mark; that of an unreliable result is hollow.
fn mark(out: &mut String, index: usize, x: f64, y: f64, hollow: bool) {
    let fill = if hollow { " fill=\"none\"" } else { "" };
    let shape = match index % 4 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\""),
        1 => format!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"5.4\" height=\"5.4\"",
            x - 2.7,
            y - 2.7
        ),
        2 => format!("<path d=\"M{x:.1} {:.1}l3.4 6h-6.8z\"", y - 3.6),
        _ => format!(
            "<path d=\"M{x:.1} {:.1}l3.6 3.6l-3.6 3.6l-3.6-3.6z\"",
            y - 3.6
        ),
    };
    let _ = writeln!(out, "{shape}{fill}/>");
}

/// Draws the legend below the plot, and returns where it ends. If all lines are
/// unreliable, the title says so.
fn legend(out: &mut String, top: f64, lines: &[Line], all_bad: bool) -> f64 {
    const SWATCH: f64 = 26.0;
    const GAP: f64 = 12.0;
    const UNRELIABLE: &str = " (UNRELIABLE)";
    let room = WIDTH - 2.0 * MARGIN;
    let (mut x, mut y) = (MARGIN, top + LINE_HEIGHT);
    for (index, line) in lines.iter().enumerate() {
        // A single line may need no name beside the title.
        if line.name.is_empty() {
            continue;
        }
        let is_bad = line.unreliable && !all_bad;
        let suffix = if is_bad { UNRELIABLE } else { "" };
        let most = room - SWATCH - width(suffix, SMALL);
        let name = shorten(&line.name, SMALL, most) + suffix;
        let wide = SWATCH + width(&name, SMALL);
        if x > MARGIN && x + wide > MARGIN + room {
            (x, y) = (MARGIN, y + LINE_HEIGHT);
        }
        let colour = COLOURS[index % COLOURS.len()];
        let middle = y - SMALL * 0.35;
        let _ = writeln!(
            out,
            "<g class=\"s{}\" stroke=\"{colour}\" fill=\"{colour}\">",
            index % COLOURS.len()
        );
        if line.joined {
            let _ = writeln!(
                out,
                "<path d=\"M{x:.1} {middle:.1}h22\" fill=\"none\" stroke-width=\"1.8\"{}/>",
                dashes(index)
            );
        }
        mark(out, index, x + 11.0, middle, line.unreliable);
        out.push_str("</g>\n");
        let class = if is_bad { "warn" } else { "text" };
        words(out, (x + SWATCH, y), SMALL, (class, ""), &name);
        x += wide + GAP;
    }
    y
}

/// Returns an SVG page of panels.
pub(crate) fn page(title: &str, panels: &[Panel]) -> String {
    const GAP: f64 = 24.0;
    let columns = panels.len().clamp(1, 2);
    let wide = GAP + columns as f64 * (WIDTH + GAP);
    let mut body = String::new();
    let mut y = GAP * 0.5;
    for line in wrap(title, TITLE, wide - 2.0 * GAP) {
        y += TITLE * 1.3;
        words(&mut body, (GAP, y), TITLE, PLAIN, &line);
    }
    y += GAP * 0.5;
    for row in panels.chunks(columns) {
        let drawn: Vec<Drawn> = row.iter().map(draw).collect();
        for (column, panel) in drawn.iter().enumerate() {
            let x = GAP + column as f64 * (WIDTH + GAP);
            let _ = writeln!(
                body,
                "<g transform=\"translate({x:.1} {y:.1})\">\n{}</g>",
                panel.elements
            );
        }
        y += drawn.iter().map(|panel| panel.height).fold(0.0, f64::max) + GAP;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide:.0}\" height=\"{y:.0}\" viewBox=\"0 0 {wide:.0} {y:.0}\" font-family=\"sans-serif\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{body}</svg>\n"
    )
}

#[cfg(test)]
mod tests;

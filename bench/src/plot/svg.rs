//! A panel as SVG: title, axes, lines, legend; and a page of panels.

use std::fmt::Write;

use super::axis::{Range, Scale, number};
use super::panel::{Line, Panel, Span};
use super::text::{escape, shorten, width, wrap};

/// Okabe and Ito's colours, which are distinct with red-green blindness too.
pub(crate) const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#5b5b5b", "#8b4513",
];
/// For the lines of one series.
pub(crate) const DASHES: [&str; 4] = ["", "7 3", "2 2.5", "9 3 2 3"];

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
/// Width of a sample of a line in the legend.
const SWATCH: f64 = 26.0;
/// Height of the bar of an event.
const EVENT: f64 = 5.0;
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
        top: y + if panel.events.is_empty() {
            8.0
        } else {
            9.0 + EVENT
        },
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
    // Stems are behind lines.
    let (stems, others): (Vec<_>, Vec<_>) = panel.lines.iter().partition(|line| line.stems);
    for line in stems.into_iter().chain(others) {
        series(&mut out, (&plot, &horizontal, &vertical), panel, line);
    }
    spans(&mut out, (&plot, &horizontal), &panel.hovers, plot.height);
    spans(&mut out, (&plot, &horizontal), &panel.events, -EVENT);
    y += 6.0;
    y = legend(&mut out, y, &panel.lines, all_bad);
    if !panel.events.is_empty() {
        for (number, line) in wrap(&panel.events_name, SMALL, WIDTH - 2.0 * MARGIN - SWATCH)
            .iter()
            .enumerate()
        {
            y += LINE_HEIGHT;
            if number == 0 {
                let middle = y - SMALL * 0.35 - EVENT / 2.0;
                bar(&mut out, (MARGIN, middle, 22.0, EVENT), "");
            }
            words(&mut out, (MARGIN + SWATCH, y), SMALL, PLAIN, line);
        }
    }
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

/// Draws bars above the plot (a negative height), or invisible ones over its height; their text is
/// shown under the pointer.
fn spans(out: &mut String, (plot, range): (&Plot, &Range<'_>), spans: &[Span], height: f64) {
    for span in spans {
        let place = |value| {
            plot.x(range, value)
                .clamp(plot.left, plot.left + plot.width)
        };
        let (from, to) = (place(span.from), place(span.to));
        let wide = (to - from).max(if height < 0.0 { 2.0 } else { 0.5 });
        match height < 0.0 {
            true => bar(out, (from, plot.top - EVENT - 1.0, wide, EVENT), &span.text),
            // Writing to a String cannot fail.
            false => drop(writeln!(
                out,
                "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"{height:.1}\" fill=\"#000\" fill-opacity=\"0\"><title>{}</title></rect>",
                plot.top,
                escape(&span.text)
            )),
        }
    }
}

/// Draws a bar that marks an event.
fn bar(out: &mut String, (x, y, wide, height): (f64, f64, f64, f64), text: &str) {
    let title = match text {
        "" => String::new(),
        text => format!("<title>{}</title>", escape(text)),
    };
    let _ = writeln!(
        out,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{height:.1}\" fill=\"#a40000\" class=\"warn\">{title}</rect>"
    );
}

/// Returns the points that have a mark: all of them, if they are few; on a percentile axis, the
/// first one after each tick.
fn marked<'a>(panel: &Panel, line: &'a Line) -> impl Iterator<Item = (f64, f64)> + use<'a> {
    /// Marks of more points would hide each other.
    const MOST: usize = 40;
    let by_decade = panel.x.scale == Scale::Percentile;
    let is_marked = !line.stems && (by_decade || line.points.len() <= MOST);
    let mut last = f64::NEG_INFINITY;
    line.points.iter().copied().filter(move |&(x, _)| {
        is_marked && (!by_decade || decade(x) > core::mem::replace(&mut last, decade(x)))
    })
}

fn decade(x: f64) -> f64 {
    (x + 1e-9).log10().floor()
}

fn series(
    out: &mut String,
    (plot, horizontal, vertical): (&Plot, &Range<'_>, &Range<'_>),
    panel: &Panel,
    line: &Line,
) {
    let place = |(x, y)| (plot.x(horizontal, x), plot.y(vertical, y));
    let path = |points: &mut dyn Iterator<Item = (f64, f64)>| {
        let places = points.map(place).map(|(x, y)| format!("{x:.1},{y:.1}"));
        places.collect::<Vec<_>>().join(" ")
    };
    group(out, line);
    let _ = writeln!(out, "<title>{}</title>", escape(&line.name));
    if line.stems {
        let bottom = plot.top + plot.height;
        let stem = |(x, y)| format!("M{x:.1} {bottom:.1}V{y:.1}");
        let points = line.points.iter().filter(|point| !point.1.is_nan());
        let stems: String = points.copied().map(place).map(stem).collect();
        let _ = writeln!(
            out,
            "<path d=\"{stems}\" fill=\"none\" stroke-width=\"1.4\" stroke-opacity=\"0.6\"/>"
        );
    } else if line.joined {
        for part in line.points.split(|point| point.1.is_nan()) {
            if part.len() > 1 {
                let _ = writeln!(
                    out,
                    "<polyline points=\"{}\" fill=\"none\" stroke-width=\"1.8\" stroke-linejoin=\"round\"{}/>",
                    path(&mut part.iter().copied()),
                    dashes(line.style)
                );
            }
        }
    }
    if !line.tail.is_empty() {
        let from = line.points.last().copied();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke-width=\"1\" stroke-opacity=\"0.55\" stroke-dasharray=\"1.5 2.5\"/>",
            path(&mut from.into_iter().chain(line.tail.iter().copied()))
        );
    }
    for (x, y) in marked(panel, line) {
        let x_text = match &panel.x.scale {
            Scale::Percentile => format!("{} %", number(100.0 - 100.0 / x)),
            _ => format!("{} {}", panel.x.label, number(x)),
        };
        let y_text = match &panel.y.scale {
            Scale::Names(names) => names.get(y as usize).cloned().unwrap_or_default(),
            _ => format!("{} {}", panel.y.label, number(y)),
        };
        let name = match line.name.as_str() {
            "" => String::new(),
            name => format!("{name}: "),
        };
        mark(
            out,
            line,
            place((x, y)),
            &format!("{name}{x_text}, {y_text}"),
        );
    }
    out.push_str("</g>\n");
}

/// Begins a group of elements in the colour of a line.
fn group(out: &mut String, line: &Line) {
    let index = line.colour % COLOURS.len();
    let colour = COLOURS[index];
    let _ = writeln!(
        out,
        "<g class=\"s{index}\" stroke=\"{colour}\" fill=\"{colour}\">"
    );
}

fn dashes(index: usize) -> String {
    match DASHES[index % DASHES.len()] {
        "" => String::new(),
        dashes => format!(" stroke-dasharray=\"{dashes}\""),
    }
}

/// Draws the mark of a series; that of an unreliable result is hollow.
fn mark(out: &mut String, line: &Line, (x, y): (f64, f64), text: &str) {
    let hollow = line.unreliable;
    let fill = if hollow {
        " fill=\"none\" pointer-events=\"all\""
    } else {
        ""
    };
    // The first series with a colour that another has gets another mark.
    let (name, shape) = match (line.colour + line.colour / COLOURS.len()) % 4 {
        0 => ("circle", format!("cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"")),
        1 => (
            "rect",
            format!(
                "x=\"{:.1}\" y=\"{:.1}\" width=\"5.4\" height=\"5.4\"",
                x - 2.7,
                y - 2.7
            ),
        ),
        2 => ("path", format!("d=\"M{x:.1} {:.1}l3.4 6h-6.8z\"", y - 3.6)),
        _ => (
            "path",
            format!("d=\"M{x:.1} {:.1}l3.6 3.6l-3.6 3.6l-3.6-3.6z\"", y - 3.6),
        ),
    };
    let _ = match text {
        "" => writeln!(out, "<{name} {shape}{fill}/>"),
        text => writeln!(
            out,
            "<{name} {shape}{fill}><title>{}</title></{name}>",
            escape(text)
        ),
    };
}

/// Draws the legend below the plot, and returns where it ends. If all lines are
/// unreliable, the title says so.
fn legend(out: &mut String, top: f64, lines: &[Line], all_bad: bool) -> f64 {
    const GAP: f64 = 12.0;
    const UNRELIABLE: &str = " (UNRELIABLE)";
    let room = WIDTH - 2.0 * MARGIN;
    let (mut x, mut y) = (MARGIN, top + LINE_HEIGHT);
    for line in lines {
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
        let middle = y - SMALL * 0.35;
        group(out, line);
        if line.stems {
            let _ = writeln!(
                out,
                "<path d=\"M{:.1} {y:.1}v-8m5 8v-11m5 11v-6\" fill=\"none\" stroke-width=\"1.4\" stroke-opacity=\"0.6\"/>",
                x + 6.0
            );
        } else if line.joined {
            let _ = writeln!(
                out,
                "<path d=\"M{x:.1} {middle:.1}h22\" fill=\"none\" stroke-width=\"1.8\"{}/>",
                dashes(line.style)
            );
        }
        if !line.stems {
            mark(out, line, (x + 11.0, middle), "");
        }
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

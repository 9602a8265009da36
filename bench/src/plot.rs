//! Plots of results: panels of lines on logarithmic axes, as SVG.

use plotters::coord::combinators::IntoLogRange;
use plotters::prelude::*;

use crate::failure::Failure;

/// One line of a panel.
pub(crate) struct Line {
    pub(crate) name: String,
    /// (x, y), both positive.
    pub(crate) points: Vec<(f64, f64)>,
}

/// One plot with its axes.
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) lines: Vec<Line>,
}

const PANEL: (u32, u32) = (520, 380);
const COLUMNS: usize = 2;
const TITLE: u32 = 40;

/// Okabe and Ito's colours, which are distinct with red-green blindness too.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

/// Returns an SVG page of panels.
pub(crate) fn page(title: &str, panels: &[Panel]) -> Result<String, Failure> {
    let columns = panels.len().clamp(1, COLUMNS);
    let rows = panels.len().div_ceil(columns).max(1);
    let size = (PANEL.0 * columns as u32, PANEL.1 * rows as u32 + TITLE);
    let mut svg = String::new();
    draw(&mut svg, size, title, panels, (rows, columns))
        .map_err(|error| Failure::run(format!("cannot draw the plot: {error}")))?;
    Ok(svg)
}

fn draw(
    svg: &mut String,
    size: (u32, u32),
    title: &str,
    panels: &[Panel],
    split: (usize, usize),
) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(svg, size).into_drawing_area();
    root.fill(&WHITE)?;
    let page = root.titled(title, ("sans-serif", 14))?;
    for (panel, place) in panels.iter().zip(page.split_evenly(split)) {
        let all = || panel.lines.iter().flat_map(|line| &line.points);
        let (xs, ys) = (
            range(all().map(|point| point.0)),
            range(all().map(|point| point.1)),
        );
        let mut chart = ChartBuilder::on(&place)
            .caption(&panel.title, ("sans-serif", 15))
            .margin(10)
            .x_label_area_size(36)
            .y_label_area_size(58)
            .build_cartesian_2d(xs.log_scale(), ys.log_scale())?;
        chart
            .configure_mesh()
            .x_desc(panel.x)
            .y_desc(panel.y)
            .x_label_formatter(&number)
            .y_label_formatter(&number)
            .light_line_style(WHITE)
            .draw()?;
        for (line, colour) in panel.lines.iter().zip(COLOURS.into_iter().cycle()) {
            chart
                .draw_series(LineSeries::new(
                    line.points.iter().copied(),
                    colour.stroke_width(2),
                ))?
                .label(&line.name)
                .legend(move |(x, y)| {
                    PathElement::new(vec![(x, y), (x + 16, y)], colour.stroke_width(2))
                });
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.2))
            .draw()?;
    }
    root.present()?;
    Ok(())
}

/// Returns the range of an axis: all values, with a margin.
fn range(values: impl Iterator<Item = f64> + Clone) -> core::ops::Range<f64> {
    let least = values.clone().fold(f64::INFINITY, f64::min);
    let most = values.fold(0.0, f64::max);
    if !(least.is_finite() && most > 0.0) {
        return 1.0..10.0;
    }
    let least = least.max(most * 1e-9);
    least * 0.8..most * 1.6
}

/// Returns the label of a tick.
fn number(value: &f64) -> String {
    match *value {
        value if value >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e3 => format!("{}k", value / 1e3),
        value if value >= 1.0 => format!("{value:.0}"),
        value => format!("{value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_titles_axes_names_and_lines() {
        let line = |name: &str, y: f64| Line {
            name: name.into(),
            points: (1..5).map(|x| (f64::from(x), y * f64::from(x))).collect(),
        };
        let panel = |title: &str, lines| Panel {
            title: title.into(),
            x: "across",
            y: "up",
            lines,
        };
        let svg = page(
            "what it is",
            &[
                panel("first", vec![line("one", 1.0), line("two", 2.0)]),
                panel("second", vec![line("three", 1e-3)]),
                panel("empty", vec![]),
            ],
        )
        .unwrap();
        for word in [
            "<svg",
            "what it is",
            "first",
            "second",
            "one",
            "two",
            "three",
            "across",
            "up",
        ] {
            assert!(svg.contains(word), "{word}");
        }
        assert!(svg.matches("<polyline").count() >= 3, "{svg}");
        assert!(!svg.contains("NaN"));
    }
}

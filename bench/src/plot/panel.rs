//! A plot: its axes and lines.

use super::axis::Axis;

/// One line of a panel.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// What the line shows, whatever it is shown over: lines of a page with the same series have
    /// the same colour and marks.
    pub(crate) series: String,
    /// The number of the series on the page; see [`colour`].
    pub(crate) colour: usize,
    /// Tells lines of one series apart in a plot, by their dashes.
    pub(crate) style: usize,
    /// (x, y); on logarithmic axes both are positive. A y that is no number interrupts the line.
    pub(crate) points: Vec<(f64, f64)>,
    /// The continuation of the line where too few samples support it; drawn faintly.
    pub(crate) tail: Vec<(f64, f64)>,
    /// Whether the result behind the line is unreliable.
    pub(crate) unreliable: bool,
    /// Whether the points are joined.
    pub(crate) joined: bool,
    /// Whether each point is the end of a line from the x axis.
    pub(crate) stems: bool,
}

/// A part of the x axis, with a text that appears under the pointer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Span {
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) text: String,
}

impl Line {
    pub(super) fn all(&self) -> impl Iterator<Item = (f64, f64)> + Clone {
        self.points.iter().chain(&self.tail).copied()
    }
}

/// One plot with its axes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Panel {
    pub(crate) title: String,
    /// What is the same for all lines; may be empty.
    pub(crate) subtitle: String,
    /// A warning, such as that the device is emulated; may be empty.
    pub(crate) warning: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) lines: Vec<Line>,
    /// Parts of the x axis whose values are shown under the pointer.
    pub(crate) hovers: Vec<Span>,
    /// Parts of the x axis that are marked above the plot, and what the marks mean.
    pub(crate) events: Vec<Span>,
    pub(crate) events_name: String,
}

/// Gives each series of a page its number.
pub(crate) fn colour<'a>(panels: impl IntoIterator<Item = &'a mut Panel>) {
    let mut known: Vec<String> = Vec::new();
    for line in panels.into_iter().flat_map(|panel| &mut panel.lines) {
        let found = known.iter().position(|it| *it == line.series);
        line.colour = found.unwrap_or_else(|| {
            known.push(line.series.clone());
            known.len() - 1
        });
    }
}

//! A plot: its axes and lines.

use super::axis::Axis;

/// One line of a panel.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// (x, y); on logarithmic axes both are positive.
    pub(crate) points: Vec<(f64, f64)>,
    /// The continuation of the line where too few samples support it; drawn faintly.
    pub(crate) tail: Vec<(f64, f64)>,
    /// Whether the result behind the line is unreliable.
    pub(crate) unreliable: bool,
    /// Whether the points are joined.
    pub(crate) joined: bool,
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
}

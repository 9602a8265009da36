//! Plots as SVG, for `--svg` and for the page of `report`. A module names only those below it in this
//! table.
//!
//! | module | contents |
//! |---|---|
//! | `svg` | a panel as SVG, and a page of panels |
//! | `panel` | a plot: its axes and lines |
//! | `axis` | scales, ranges and ticks |
//! | `text` | widths of text, line breaks |
//!
//! A panel has its title above, its legend below and each axis with its unit, so
//! that no text covers data. Colours are attributes of the elements, which the style
//! sheet of a page may replace (classes `s0` to `s7` for lines, `text`, `grid`,
//! `warn`). A colour and a mark are a series, the same in all panels of a page; dashes tell
//! the lines of one series apart.

mod axis;
mod panel;
mod svg;
mod text;

pub(crate) use axis::{Axis, Scale, number};
pub(crate) use panel::{Line, Panel, Span, colour};
pub(crate) use svg::{COLOURS, DASHES, draw, page};
pub(crate) use text::escape;

/// Most lines of a panel: as many as there are colours.
pub(crate) const MOST_LINES: usize = COLOURS.len();

/// Most lines of a series in a panel: as many as there are dashes.
pub(crate) const MOST_STYLES: usize = DASHES.len();

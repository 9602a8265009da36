//! Output: what all commands have in common. A module names only those below it in this table.
//!
//! | module | contents |
//! |---|---|
//! | `progress` | rows and a progress bar during a run |
//! | `columns` | tables of whole runs |
//! | `files` | the result files; the end of a command |
//! | `csv`, `svg`, `hgrm`, `hlog` | CSV, plots, HdrHistogram's text and log |
//! | `reliability` | whether the results can be relied on; `--strict` |
//! | `distribution` | the measured times of one case |
//! | `series` | the same over the time of the run, and message by message |
//! | `document` | the keys of every JSON file |
//! | `run` | the conditions of runs with two sides |
//! | `conditions` | the conditions of every run |
//! | `fit` | text as wide as the terminal |

pub(crate) mod columns;
mod conditions;
mod csv;
mod distribution;
pub(crate) mod document;
mod files;
pub(crate) mod fit;
mod hgrm;
mod hlog;
mod progress;
pub(crate) mod reliability;
mod run;
mod series;
mod svg;

pub(crate) use conditions::{DeviceFacts, Goal, head, pinned};
pub(crate) use distribution::{Distribution, percentiles};
pub(crate) use files::Files;
pub(crate) use progress::Progress;
pub(crate) use reliability::Reliability;
pub(crate) use run::{Checked, ClockFacts, RunConditions};
pub(crate) use series::{MOST_KEPT, Series};

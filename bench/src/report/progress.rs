//! Output during a run: rows on standard output, and on a terminal a progress
//! bar, which is redrawn between cases only and never during a measurement.

use std::fmt::Display;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::Failure;
use crate::output;

/// The rows of a table that is being measured.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Prints the head of the table.
    pub(crate) fn begin(head: impl Display, cases: usize) -> Result<Self, Failure> {
        output::line(head)?;
        let target = match cases {
            0 | 1 => ProgressDrawTarget::hidden(),
            _ => ProgressDrawTarget::stderr(),
        };
        let bar = ProgressBar::with_draw_target(Some(cases as u64), target);
        bar.set_style(
            ProgressStyle::with_template(" {pos} of {len} cases measured {wide_bar}")
                .expect("the template is a constant"),
        );
        bar.tick();
        Ok(Self(bar))
    }

    /// Prints the rows of one case.
    pub(crate) fn rows(&self, rows: &str) -> Result<(), Failure> {
        self.0.suspend(|| output::line(rows))?;
        self.0.inc(1);
        Ok(())
    }

    /// Removes the bar.
    pub(crate) fn end(self) {
        self.0.finish_and_clear();
    }
}

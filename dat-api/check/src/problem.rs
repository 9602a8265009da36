//! A problem and the next step.

use dat_api::{DatError, DatReturn};
use serde::Serialize;

use crate::remedy;

/// What to do if nothing is known about the cause.
pub(crate) const AGAIN: &str = "run it again with DAT_DBG_TYPE=1, and see the kernel log (dmesg)";

/// Why something cannot be used, and what to do. Both are one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    /// The reason.
    pub(crate) problem: String,
    /// What to do next.
    pub(crate) next: String,
}

impl Problem {
    pub(crate) fn new(problem: impl Into<String>, next: impl Into<String>) -> Self {
        Self {
            problem: one_line(&problem.into()),
            next: one_line(&next.into()),
        }
    }

    /// Returns the problem of a control call.
    pub(crate) fn of_error(error: &DatError) -> Self {
        Self::with_next(error, next_step(error.code()))
    }

    /// Returns the problem of a control call, and this next step unless the error has one.
    pub(crate) fn with_next(error: &DatError, next: impl Into<String>) -> Self {
        let code = error.code();
        // Errors of the engine have the remedy on a second line.
        match error.cause().split_once('\n') {
            Some((cause, remedy)) => Self::new(format!("{code}: {cause}"), remedy),
            None => Self::new(error.to_string(), next),
        }
    }

    /// Returns the problem of a call of the engine, and this next step unless the error has one.
    pub(crate) fn of_engine(error: &dat_engine::ControlError, next: &str) -> Self {
        let text = error.to_string();
        let (cause, remedy) = text.split_once('\n').unwrap_or((&text, next));
        Self::new(cause, remedy)
    }

    /// Returns the problem of a post or of a wait.
    pub(crate) fn of_call(doing: &str, error: &DatError) -> Self {
        Self::new(format!("cannot {doing}: {error}"), next_step(error.code()))
    }
}

/// Returns what to do about an error whose text does not say it.
fn next_step(code: DatReturn) -> &'static str {
    code.kind().and_then(remedy::of).unwrap_or(AGAIN)
}

/// Joins the lines of a text.
fn one_line(text: &str) -> String {
    text.split('\n')
        .map(str::trim)
        .collect::<Vec<_>>()
        .join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use dat_api::{ReturnType, Subtype};

    #[test]
    fn the_second_line_of_a_cause_is_the_next_step() {
        let error = |cause: &'static str| {
            DatError::new(
                ReturnType::InsufficientResources,
                Subtype::ResourceMemory,
                cause,
            )
        };
        let problem = Problem::of_error(&error("cannot lock\nraise the limit"));
        assert!(problem.problem.ends_with("cannot lock"), "{problem:?}");
        assert_eq!(problem.next, "raise the limit");
        let problem = Problem::of_error(&error("cannot lock"));
        assert!(problem.next.contains("ulimit -l"), "{problem:?}");
    }

    #[test]
    fn every_problem_is_one_line() {
        let problem = Problem::new("a\n  b", "c\nd");
        assert_eq!(
            (problem.problem.as_str(), problem.next.as_str()),
            ("a; b", "c; d")
        );
    }
}

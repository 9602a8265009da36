//! A problem and the next step.

use dat_api::{DatError, DatReturn, ReturnType};
use serde::Serialize;

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

    /// Returns the problem of a call of the engine.
    pub(crate) fn of_engine(error: &dat_engine::ControlError) -> Self {
        let text = error.to_string();
        let (cause, remedy) = text.split_once('\n').unwrap_or((&text, ""));
        match remedy {
            "" => Self::new(cause, next_step(DatReturn::SUCCESS)),
            remedy => Self::new(cause, remedy),
        }
    }

    /// Returns the problem of a post or of a wait.
    pub(crate) fn of_call(doing: &str, error: &DatError) -> Self {
        Self::new(format!("cannot {doing}: {error}"), next_step(error.code()))
    }
}

/// Returns what to do about an error whose text does not say it.
fn next_step(code: DatReturn) -> &'static str {
    match code.kind() {
        Some(ReturnType::InvalidParameter) => {
            "correct the variable or the key, or leave it out; see udapl(7) and dat.conf(5)"
        }
        Some(ReturnType::InsufficientResources) => {
            "check the limits of locked memory (`ulimit -l`) and of open files (`ulimit -n`)"
        }
        Some(ReturnType::InvalidAddress) => {
            "check the addresses of the port's network interface (`ip address`) and the keys gid \
             and listen of dat.conf(5)"
        }
        Some(ReturnType::ModelNotSupported) => {
            "the device cannot do this; DAT_PATH=verbs drives any RDMA device that connects"
        }
        Some(ReturnType::ConnQualInUse) => {
            "end the program that listens there (`ss -ltnp`), or choose another number with --port"
        }
        Some(ReturnType::PrivilegesViolation) => "choose a number of 1024 or more with --port",
        _ => "run it again with DAT_DBG_TYPE=1, and see the kernel log (dmesg)",
    }
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
    use dat_api::Subtype;

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

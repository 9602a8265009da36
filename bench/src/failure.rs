//! Errors of the program and their exit statuses.
//!
//! Every message names the cause, and the remedy if there is one.

use std::process::ExitCode;
use std::time::Duration;

use dat_api::DatError;
use dat_engine::{ControlError, ControlErrorKind};

/// An error, by its exit status.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The command line is wrong for this host or device (status 1).
    #[error("{0}")]
    Usage(String),
    /// This host or its network lacks something (status 2).
    #[error("{0}")]
    Environment(String),
    /// The run started and failed (status 3).
    #[error("{0}")]
    Run(String),
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    pub(crate) fn environment(message: impl Into<String>) -> Self {
        Self::Environment(message.into())
    }

    pub(crate) fn run(message: impl Into<String>) -> Self {
        Self::Run(message.into())
    }

    /// Returns the failure for an event that did not arrive in time.
    pub(crate) fn timed_out(what: &str, within: Duration) -> Self {
        Self::run(format!(
            "{what} did not arrive within {} s: is the other side still running, and its address reachable over TCP? (--timeout waits longer)",
            within.as_secs_f64()
        ))
    }

    /// Returns the exit status.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::Usage(_) => 1,
            Self::Environment(_) => 2,
            Self::Run(_) => 3,
        }
    }
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Self {
        match error.kind() {
            // Options select these, so the command line has to change.
            ControlErrorKind::UnknownDevice | ControlErrorKind::Limit => {
                Self::Usage(error.to_string())
            }
            _ => Self::Environment(error.to_string()),
        }
    }
}

impl From<DatError> for Failure {
    fn from(error: DatError) -> Self {
        Self::environment(format!("a DAT call failed: {error}"))
    }
}

impl From<&Failure> for ExitCode {
    fn from(failure: &Failure) -> Self {
        Self::from(failure.status())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_statuses_are_1_usage_2_environment_3_run() {
        assert_eq!(Failure::usage("").status(), 1);
        assert_eq!(Failure::environment("").status(), 2);
        assert_eq!(Failure::run("").status(), 3);
    }
}

//! Why the program ends badly, and the exit status that says so.
//!
//! Scripts read the status, people the message: every message names the
//! cause, and the remedy where there is one.

use std::process::ExitCode;

use dat_engine::{ControlError, ControlErrorKind};

/// What went wrong, sorted by who can mend it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The command line asks for something that does not exist or cannot be (status 1).
    #[error("{0}")]
    Usage(String),
    /// This machine or the way to the other one lacks something (status 2).
    #[error("{0}")]
    Environment(String),
    /// The run began and did not come to a good end (status 3).
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

    /// The exit status scripts rely on.
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
            // Asked for on the command line, and to be changed there.
            ControlErrorKind::UnknownDevice | ControlErrorKind::Limit => {
                Self::Usage(error.to_string())
            }
            _ => Self::Environment(error.to_string()),
        }
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
    fn statuses_are_those_that_scripts_rely_on() {
        assert_eq!(Failure::usage("").status(), 1);
        assert_eq!(Failure::environment("").status(), 2);
        assert_eq!(Failure::run("").status(), 3);
    }
}

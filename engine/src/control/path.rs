//! Which way to a device is asked for.

use crate::environment;
use crate::error::{ControlError, ControlErrorKind};
use std::fmt;

/// The variable that [`PathRequest::from_environment`] reads.
const VARIABLE: &str = "DAT_PATH";

/// How a device is to be driven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathRequest {
    /// Directly where that can be, else through libibverbs.
    #[default]
    Auto,
    /// By writing to its rings.
    Direct,
    /// Through libibverbs.
    Verbs,
}

impl PathRequest {
    /// What the variable `DAT_PATH` asks for: `auto`, `direct` or `verbs`.
    /// `auto` if it is not set or empty, or the process may not be told by its
    /// environment ([`environment::variable`]).
    ///
    /// # Errors
    /// It has another value.
    pub fn from_environment() -> Result<Self, ControlError> {
        match environment::variable(VARIABLE) {
            None => Ok(Self::Auto),
            Some(value) => Self::read(&value.to_string_lossy()),
        }
    }

    fn read(value: &str) -> Result<Self, ControlError> {
        match value {
            "" | "auto" => Ok(Self::Auto),
            "direct" => Ok(Self::Direct),
            "verbs" => Ok(Self::Verbs),
            other => Err(ControlError::new(
                ControlErrorKind::Invalid,
                "choose the path to the device",
                format!("{VARIABLE} is \"{other}\", which means nothing"),
            )
            .with_remedy(format!("set {VARIABLE} to auto, direct or verbs"))),
        }
    }
}

impl fmt::Display for PathRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Direct => "direct",
            Self::Verbs => "verbs",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_understood_and_nothing_is_auto() {
        for request in [PathRequest::Auto, PathRequest::Direct, PathRequest::Verbs] {
            assert_eq!(PathRequest::read(&request.to_string()).unwrap(), request);
        }
        assert_eq!(PathRequest::read("").unwrap(), PathRequest::Auto);
    }

    #[test]
    fn another_value_is_refused_with_those_there_are() {
        let error = PathRequest::read("Verbs").unwrap_err();
        assert_eq!(error.kind(), ControlErrorKind::Invalid);
        assert!(error.to_string().contains("\"Verbs\""), "{error}");
        assert!(error.remedy().contains("auto, direct or verbs"), "{error}");
    }
}

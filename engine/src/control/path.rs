//! The requested data path of a device.

use crate::environment;
use crate::error::{ControlError, ControlErrorKind};
use std::fmt;

/// The variable that [`PathRequest::from_environment`] reads.
const VARIABLE: &str = "DAT_PATH";

/// The requested data path of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathRequest {
    /// Direct where possible, else through libibverbs.
    #[default]
    Auto,
    /// Direct: the engine writes to the device's rings.
    Direct,
    /// Through libibverbs.
    Verbs,
}

impl PathRequest {
    /// The requests in their order, with their names.
    pub const NAMES: [(&str, Self); 3] = [
        ("auto", Self::Auto),
        ("direct", Self::Direct),
        ("verbs", Self::Verbs),
    ];

    /// Returns the path that the variable `DAT_PATH` names: `auto`, `direct` or
    /// `verbs`. `auto` if the variable is not set or empty, or if the process
    /// ignores its environment ([`environment::variable`]).
    ///
    /// # Errors
    /// The variable has another value.
    pub fn from_environment() -> Result<Self, ControlError> {
        match environment::variable(VARIABLE) {
            None => Ok(Self::Auto),
            Some(value) => Self::read(&value.to_string_lossy()),
        }
    }

    fn read(value: &str) -> Result<Self, ControlError> {
        if value.is_empty() {
            return Ok(Self::Auto);
        }
        let named = Self::NAMES.into_iter().find(|(name, _)| *name == value);
        named.map(|(_, path)| path).ok_or_else(|| {
            ControlError::new(
                ControlErrorKind::Invalid,
                "select the data path of the device",
                format!("{VARIABLE} is \"{value}\", which is not a data path"),
            )
            .with_remedy(format!("set {VARIABLE} to auto, direct or verbs"))
        })
    }
}

impl fmt::Display for PathRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAMES[*self as usize].0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_accepted_and_an_empty_value_is_auto() {
        for request in [PathRequest::Auto, PathRequest::Direct, PathRequest::Verbs] {
            assert_eq!(PathRequest::read(&request.to_string()).unwrap(), request);
        }
        assert_eq!(PathRequest::read("").unwrap(), PathRequest::Auto);
    }

    #[test]
    fn another_value_is_refused_with_the_accepted_ones() {
        let error = PathRequest::read("Verbs").unwrap_err();
        assert_eq!(error.kind(), ControlErrorKind::Invalid);
        assert!(error.to_string().contains("\"Verbs\""), "{error}");
        assert!(error.remedy().contains("auto, direct or verbs"), "{error}");
    }
}

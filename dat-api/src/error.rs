//! The error of a control call: the code that C programs see, and the cause in words.

use std::borrow::Cow;
use std::fmt;

use dat_engine::{ControlError, ControlErrorKind};

use crate::status::{DatReturn, ReturnType, Subtype};

/// The error of a control call. Calls that take events return the bare [`DatReturn`], and posts of
/// [`crate::safe`] a [`crate::Refusal`].
#[derive(Clone, Debug)]
pub struct DatError {
    code: DatReturn,
    cause: Cow<'static, str>,
}

/// The result of a control call.
pub type Result<T, E = DatError> = core::result::Result<T, E>;

impl DatError {
    /// Returns an error with its cause: what is wrong, and what the caller can do about it.
    pub fn new(kind: ReturnType, subtype: Subtype, cause: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code: DatReturn::error(kind, subtype),
            cause: cause.into(),
        }
    }

    /// Returns an error with a code that another call has returned, and its cause.
    pub fn explained(code: DatReturn, cause: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            cause: cause.into(),
        }
    }

    /// Returns the code that C programs see.
    #[must_use]
    pub const fn code(&self) -> DatReturn {
        self.code
    }

    /// Returns the cause in words; may be empty.
    #[must_use]
    pub fn cause(&self) -> &str {
        &self.cause
    }
}

impl From<DatReturn> for DatError {
    fn from(code: DatReturn) -> Self {
        Self {
            code,
            cause: Cow::Borrowed(""),
        }
    }
}

impl From<DatError> for DatReturn {
    fn from(error: DatError) -> Self {
        error.code
    }
}

impl From<ControlError> for DatError {
    /// Translates the error of a verbs call into DAT's codes.
    fn from(error: ControlError) -> Self {
        use ControlErrorKind as Cause;
        let (kind, subtype) = match error.kind() {
            Cause::NoDevice | Cause::UnknownDevice => {
                (ReturnType::ProviderNotFound, Subtype::NameNotRegistered)
            }
            Cause::LockedMemory => (ReturnType::InsufficientResources, Subtype::ResourceMemory),
            Cause::OutOfResources => (ReturnType::InsufficientResources, Subtype::ResourceMemory),
            Cause::Permission | Cause::DeviceLost => {
                (ReturnType::InsufficientResources, Subtype::ResourceDevice)
            }
            Cause::Limit | Cause::Invalid => (ReturnType::InvalidParameter, Subtype::NoSubtype),
            Cause::PortDown | Cause::NoGid | Cause::Unreachable => (
                ReturnType::InvalidAddress,
                Subtype::InvalidAddressUnreachable,
            ),
            Cause::Unsupported => (ReturnType::ModelNotSupported, Subtype::NoSubtype),
            Cause::Forked => (ReturnType::InvalidHandle, Subtype::NoSubtype),
            _ => (ReturnType::InternalError, Subtype::NoSubtype),
        };
        Self::new(kind, subtype, error.to_string())
    }
}

impl fmt::Display for DatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cause.is_empty() {
            write!(f, "{}", self.code)
        } else {
            write!(f, "{}: {}", self.code, self.cause)
        }
    }
}

impl std::error::Error for DatError {}

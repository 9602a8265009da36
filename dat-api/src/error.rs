//! Why a call failed: the answer that C sees, and the cause in words.

use std::borrow::Cow;
use std::fmt;

use dat_engine::{ControlError, ControlErrorKind};

use crate::status::{DatReturn, ReturnType, Subtype};

/// A failed control call. Posting and taking events answer with the bare
/// [`DatReturn`].
#[derive(Clone, Debug)]
pub struct DatError {
    code: DatReturn,
    cause: Cow<'static, str>,
}

/// What control calls answer.
pub type Result<T, E = DatError> = core::result::Result<T, E>;

impl DatError {
    /// An answer with its cause: what is wrong, and what to do about it.
    pub fn new(kind: ReturnType, subtype: Subtype, cause: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code: DatReturn::error(kind, subtype),
            cause: cause.into(),
        }
    }

    /// The answer that C sees.
    #[must_use]
    pub const fn code(&self) -> DatReturn {
        self.code
    }

    /// The cause in words; may be empty.
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
    /// What a failed verb means to a DAT consumer.
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

//! The error of a control call: the code that C programs see, and the cause in words.

use std::borrow::Cow;
use std::fmt;

use dat_engine::memory::NoMemory;
use dat_engine::{ControlError, ControlErrorKind};

use crate::refusal::{CnoRefusal, EvdRefusal, Refusal};
use crate::status::{DatReturn, ReturnType, Subtype};

/// The error of a control call. Calls that take events return the bare [`DatReturn`], and posts of
/// [`crate::safe`] a [`crate::Refusal`].
#[derive(Clone, Debug)]
pub struct DatError {
    code: DatReturn,
    cause: Cause,
}

/// A text, or what becomes one when it is displayed.
#[derive(Clone, Debug)]
enum Cause {
    Text(Cow<'static, str>),
    Post(Refusal),
    Evd(EvdRefusal),
}

/// The result of a control call.
pub type Result<T, E = DatError> = core::result::Result<T, E>;

impl DatError {
    /// Returns an error with its cause: what is wrong, and what the caller can do about it.
    pub fn new(kind: ReturnType, subtype: Subtype, cause: impl Into<Cow<'static, str>>) -> Self {
        Self::explained(DatReturn::error(kind, subtype), cause)
    }

    /// Returns an error with a code that another call has returned, and its cause.
    pub fn explained(code: DatReturn, cause: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            cause: Cause::Text(cause.into()),
        }
    }

    /// Returns the error with another code.
    #[must_use]
    pub fn with_code(self, code: DatReturn) -> Self {
        Self { code, ..self }
    }

    /// Returns the code that C programs see.
    #[must_use]
    pub const fn code(&self) -> DatReturn {
        self.code
    }

    /// Returns the cause in words; may be empty.
    #[must_use]
    pub fn cause(&self) -> Cow<'_, str> {
        match &self.cause {
            Cause::Text(text) => Cow::Borrowed(text),
            Cause::Post(refusal) => refusal.to_string().into(),
            Cause::Evd(refusal) => refusal.to_string().into(),
        }
    }
}

impl From<DatReturn> for DatError {
    fn from(code: DatReturn) -> Self {
        Self::explained(code, "")
    }
}

impl From<Refusal> for DatError {
    fn from(refusal: Refusal) -> Self {
        Self {
            code: refusal.code(),
            cause: Cause::Post(refusal),
        }
    }
}

impl From<EvdRefusal> for DatError {
    fn from(refusal: EvdRefusal) -> Self {
        Self {
            code: refusal.code(),
            cause: Cause::Evd(refusal),
        }
    }
}

impl From<CnoRefusal> for DatError {
    fn from(refusal: CnoRefusal) -> Self {
        Self::explained(refusal.code(), refusal.to_string())
    }
}

impl From<DatError> for DatReturn {
    fn from(error: DatError) -> Self {
        error.code
    }
}

impl From<NoMemory> for DatError {
    fn from(error: NoMemory) -> Self {
        Self::new(
            ReturnType::InsufficientResources,
            Subtype::ResourceMemory,
            error.to_string(),
        )
    }
}

impl From<ControlError> for DatError {
    /// Translates the error of a verbs call into DAT's codes.
    fn from(error: ControlError) -> Self {
        use ControlErrorKind as Kind;
        let (kind, subtype) = match error.kind() {
            Kind::NoDevice | Kind::UnknownDevice => {
                (ReturnType::ProviderNotFound, Subtype::NameNotRegistered)
            }
            Kind::LockedMemory => (ReturnType::InsufficientResources, Subtype::ResourceMemory),
            Kind::OutOfResources => (ReturnType::InsufficientResources, Subtype::ResourceMemory),
            Kind::Permission | Kind::DeviceLost => {
                (ReturnType::InsufficientResources, Subtype::ResourceDevice)
            }
            Kind::Limit | Kind::Invalid => (ReturnType::InvalidParameter, Subtype::NoSubtype),
            Kind::PortDown | Kind::NoGid | Kind::Unreachable => (
                ReturnType::InvalidAddress,
                Subtype::InvalidAddressUnreachable,
            ),
            Kind::Unsupported => (ReturnType::ModelNotSupported, Subtype::NoSubtype),
            Kind::Forked => (ReturnType::InvalidHandle, Subtype::NoSubtype),
            _ => (ReturnType::InternalError, Subtype::NoSubtype),
        };
        Self::new(kind, subtype, error.to_string())
    }
}

impl fmt::Display for DatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.cause() {
            "" => write!(f, "{}", self.code),
            cause => write!(f, "{}: {cause}", self.code),
        }
    }
}

impl std::error::Error for DatError {}

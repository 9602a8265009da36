//! The types of a DAT return (`enum dat_return_type`, `dat/dat_error.h`).

/// What went wrong: bits 16 to 29 of a `DAT_RETURN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ReturnType {
    /// `DAT_SUCCESS`
    Success = 0x0,
    /// `DAT_ABORT`
    Abort = 0x1_0000,
    /// `DAT_CONN_QUAL_IN_USE`
    ConnQualInUse = 0x2_0000,
    /// `DAT_INSUFFICIENT_RESOURCES`
    InsufficientResources = 0x3_0000,
    /// `DAT_INTERNAL_ERROR`
    InternalError = 0x4_0000,
    /// `DAT_INVALID_HANDLE`
    InvalidHandle = 0x5_0000,
    /// `DAT_INVALID_PARAMETER`
    InvalidParameter = 0x6_0000,
    /// `DAT_INVALID_STATE`
    InvalidState = 0x7_0000,
    /// `DAT_LENGTH_ERROR`
    LengthError = 0x8_0000,
    /// `DAT_MODEL_NOT_SUPPORTED`
    ModelNotSupported = 0x9_0000,
    /// `DAT_PROVIDER_NOT_FOUND`
    ProviderNotFound = 0xa_0000,
    /// `DAT_PRIVILEGES_VIOLATION`
    PrivilegesViolation = 0xb_0000,
    /// `DAT_PROTECTION_VIOLATION`
    ProtectionViolation = 0xc_0000,
    /// `DAT_QUEUE_EMPTY`
    QueueEmpty = 0xd_0000,
    /// `DAT_QUEUE_FULL`
    QueueFull = 0xe_0000,
    /// `DAT_TIMEOUT_EXPIRED`
    TimeoutExpired = 0xf_0000,
    /// `DAT_PROVIDER_ALREADY_REGISTERED`
    ProviderAlreadyRegistered = 0x10_0000,
    /// `DAT_PROVIDER_IN_USE`
    ProviderInUse = 0x11_0000,
    /// `DAT_INVALID_ADDRESS`
    InvalidAddress = 0x12_0000,
    /// `DAT_INTERRUPTED_CALL`
    InterruptedCall = 0x13_0000,
    /// `DAT_CONN_QUAL_UNAVAILABLE`
    ConnQualUnavailable = 0x14_0000,
    /// `DAT_NOT_IMPLEMENTED`
    NotImplemented = 0xfff_0000,
}

impl ReturnType {
    /// Every value, in the order of the header.
    pub const ALL: [Self; 22] = [
        Self::Success,
        Self::Abort,
        Self::ConnQualInUse,
        Self::InsufficientResources,
        Self::InternalError,
        Self::InvalidHandle,
        Self::InvalidParameter,
        Self::InvalidState,
        Self::LengthError,
        Self::ModelNotSupported,
        Self::ProviderNotFound,
        Self::PrivilegesViolation,
        Self::ProtectionViolation,
        Self::QueueEmpty,
        Self::QueueFull,
        Self::TimeoutExpired,
        Self::ProviderAlreadyRegistered,
        Self::ProviderInUse,
        Self::InvalidAddress,
        Self::InterruptedCall,
        Self::ConnQualUnavailable,
        Self::NotImplemented,
    ];

    /// The enumerator's name in the header, which is what `dat_strerror` answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "DAT_SUCCESS",
            Self::Abort => "DAT_ABORT",
            Self::ConnQualInUse => "DAT_CONN_QUAL_IN_USE",
            Self::InsufficientResources => "DAT_INSUFFICIENT_RESOURCES",
            Self::InternalError => "DAT_INTERNAL_ERROR",
            Self::InvalidHandle => "DAT_INVALID_HANDLE",
            Self::InvalidParameter => "DAT_INVALID_PARAMETER",
            Self::InvalidState => "DAT_INVALID_STATE",
            Self::LengthError => "DAT_LENGTH_ERROR",
            Self::ModelNotSupported => "DAT_MODEL_NOT_SUPPORTED",
            Self::ProviderNotFound => "DAT_PROVIDER_NOT_FOUND",
            Self::PrivilegesViolation => "DAT_PRIVILEGES_VIOLATION",
            Self::ProtectionViolation => "DAT_PROTECTION_VIOLATION",
            Self::QueueEmpty => "DAT_QUEUE_EMPTY",
            Self::QueueFull => "DAT_QUEUE_FULL",
            Self::TimeoutExpired => "DAT_TIMEOUT_EXPIRED",
            Self::ProviderAlreadyRegistered => "DAT_PROVIDER_ALREADY_REGISTERED",
            Self::ProviderInUse => "DAT_PROVIDER_IN_USE",
            Self::InvalidAddress => "DAT_INVALID_ADDRESS",
            Self::InterruptedCall => "DAT_INTERRUPTED_CALL",
            Self::ConnQualUnavailable => "DAT_CONN_QUAL_UNAVAILABLE",
            Self::NotImplemented => "DAT_NOT_IMPLEMENTED",
        }
    }
}

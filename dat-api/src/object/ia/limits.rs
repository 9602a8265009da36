//! Limits of the library itself. An adapter offers the lower of these and the device's
//! ([`super::LimitAttributes`]).

/// The maximum number of segments of one request.
pub const MAX_SEGMENTS: usize = 32;

/// The maximum number of LMRs in a process.
pub(crate) const MAX_LMRS: u32 = (1 << 20) - 1;

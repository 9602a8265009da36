//! Limits of the library itself. An adapter offers the lower of these and the
//! device's ([`super::Offer`]).

/// Most segments of one request that any endpoint takes.
pub const MAX_SEGMENTS: usize = 32;

/// Most LMRs that a process can have at a time.
pub(crate) const MAX_LMRS: u32 = (1 << 20) - 1;

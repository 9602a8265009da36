//! DAT's C calls as measured interfaces: of uDAPL 1.2 and 2.0, with the same source.
#![allow(
    clippy::duplicate_mod,
    reason = "the same source for the types of two versions"
)]

pub(super) mod v1;
pub(super) mod v2;

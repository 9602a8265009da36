//! The reference behaves as its version is known to.

use crate::support::behaviour::{Behaviour, version};
use crate::support::system::System;

/// The behaviour found by experiment must be that of the version in the library's
/// name. A library without a version in its name must behave as the newest. Only
/// the fix for large CQEs may also be in an older one.
#[test]
fn libmlx5_behaves_as_its_version_is_known_to() {
    let system = System::new();
    let found = Behaviour::of_libmlx5(&system);
    let version = version();
    let mut known = Behaviour::of_version(version);
    known.large_cqe_answers |= found.large_cqe_answers;
    assert_eq!(found, known, "libmlx5 of version {version:?}");
}

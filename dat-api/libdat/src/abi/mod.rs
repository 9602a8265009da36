//! The C ABI: types, values and the provider table.
//!
//! `build.rs` generates everything from this version's headers except the
//! special handles below, which are casts in C. Enumerations are plain integers
//! because C code may pass any number. The tests in `tests/abi` compare sizes,
//! offsets and values with what C compilers make of the headers, and both with a
//! table of facts.
//!
//! Decision: `docs/decisions/001-bindings-from-installed-headers.md`
#![allow(missing_docs, reason = "the headers explain each name")]
#![allow(non_camel_case_types, reason = "C names")]
#![allow(
    clippy::missing_safety_doc,
    clippy::undocumented_unsafe_blocks,
    reason = "bindgen writes functions for unions whose members cannot be copied"
)]

use libc::{sockaddr, sockaddr_in6};

include!(concat!(env!("OUT_DIR"), "/abi.rs"));

pub const DAT_HANDLE_NULL: DAT_HANDLE = core::ptr::null_mut();
/// Passed to `dat_ia_open`: the EVD for asynchronous errors exists elsewhere,
/// so none is created.
pub const DAT_EVD_ASYNC_EXISTS: DAT_EVD_HANDLE = core::ptr::without_provenance_mut(1);
/// Returned by `dat_ia_open`: the EVD for asynchronous errors exists, but not
/// under this IA.
pub const DAT_EVD_OUT_OF_SCOPE: DAT_EVD_HANDLE = core::ptr::without_provenance_mut(2);

// SAFETY: a table is only read after it is published, and Rust never follows the
// two pointers in it that are not functions.
unsafe impl Sync for DAT_PROVIDER {}

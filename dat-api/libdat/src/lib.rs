//! uDAPL 1.2 for C programs: `libdat.so.1`.
//!
//! [`abi`] is what C sees, in Rust: the types and values of the headers in
//! `include/dat`. [`exports`] are the 72 calls, each a conversion to and from
//! the objects of `dat_api`, with `face` for what they share.
//!
//! # What is not there yet
//!
//! These calls check their handles and pointers as they will later, and then
//! answer:
//!
//! | calls | answer |
//! | --- | --- |
//! | `dat_rmr_create` (there is no RMR for the other `dat_rmr_*`) | `DAT_MODEL_NOT_SUPPORTED` |
//! | `dat_srq_resize` | `DAT_NOT_IMPLEMENTED` |
//!
//! `dat_lmr_sync_rdma_read` and `dat_lmr_sync_rdma_write` succeed, as they should
//! where caches agree with the device, but do not look at the segments.

pub mod abi;
pub mod exports;
mod face;
mod providers;

pub use face::provider::PROVIDER;

//! Raw bindings to libibverbs, libmlx5 and librdmacm.
//!
//! - [`verbs`]: types and exported functions of libibverbs, listed by name.
//! - [`inline`]: the functions that `verbs.h` defines inline, compiled from the
//!   installed header.
//! - [`event`]: asynchronous events, with the event type as an integer.
//! - [`mlx5dv`]: `mlx5dv.h` with the types of [`verbs`], including its inline
//!   functions.
//! - [`rdmacm`]: types and exported functions of librdmacm.
//!
//! bindgen generates the bindings from the installed headers (`build.rs` lists each
//! item by name), except the structs with unnamed unions in `raw.rs`. The layout
//! test compares these with C.
//!
//! Functions have their C names, errors and thread rules: see the manual pages of
//! the three libraries. All of them are `unsafe`: pointers must be valid as the C
//! function requires.
//!
//! Decision: `docs/decisions/001-bindings-from-installed-headers.md`

#![allow(missing_docs, reason = "C names, documented in the C manual pages")]
#![allow(non_camel_case_types, reason = "C names")]

pub mod event;
pub mod inline;
pub mod mlx5dv;
mod raw;
pub mod rdmacm;
pub mod verbs;
mod wqe;

#[cfg(test)]
mod layout;

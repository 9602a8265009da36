//! Raw bindings to libibverbs, libmlx5 and librdmacm; no opinions.
//!
//! * [`verbs`]: types and exported functions of libibverbs, by name.
//! * [`inline`]: the functions that `verbs.h` defines inline, compiled from
//!   the installed header.
//! * [`event`]: asynchronous events, with the event type as a plain number.
//! * [`mlx5dv`]: `mlx5dv.h` over the types of [`verbs`], its inline functions
//!   included.
//! * [`rdmacm`]: types and exported functions of librdmacm.
//!
//! bindgen generates all of it from the installed headers (`build.rs` lists
//! each item by its name), except the structs with unnamed unions in `raw.rs`.
//! The layout test compares these with C.
//!
//! Functions keep their C names, errors and thread rules: see the manual
//! pages of the three libraries. All of them are `unsafe`: pointers must be
//! what C asks for.

#![allow(missing_docs, reason = "C names; their documentation is C's")]
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

//! The functions that `verbs.h` defines inline, called through C shims that
//! are compiled from the installed header.
//!
//! [`dv_reg_mr`] and [`dv_query_port`] are the macros `ibv_reg_mr` and
//! `ibv_query_port`, which choose between functions.

pub use generated::*;

#[allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::all,
    clippy::ptr_as_ptr,
    reason = "generated from C"
)]
mod generated {
    // Not re-exported by this glob import; the generated items take precedence over
    // it.
    use crate::event::ibv_async_event;
    use crate::raw::*;

    include!(concat!(env!("OUT_DIR"), "/verbs_inline.rs"));
}

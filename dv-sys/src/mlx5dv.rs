//! `infiniband/mlx5dv.h`: the location of the rings of libmlx5's objects, the
//! formats of WQEs and CQEs, and the header's own encoders (through C shims).

pub use crate::wqe::mlx5_wqe_ctrl_seg;
pub use generated::*;

#[allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    clippy::ptr_as_ptr,
    clippy::undocumented_unsafe_blocks,
    reason = "generated from C"
)]
mod generated {
    // Not re-exported by this glob import; the generated items take precedence over
    // it.
    use super::mlx5_wqe_ctrl_seg;
    use crate::raw::*;

    include!(concat!(env!("OUT_DIR"), "/mlx5dv.rs"));
}

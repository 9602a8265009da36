//! `infiniband/mlx5dv.h`: where libmlx5 keeps the rings of its objects, the
//! formats of what lies there, and the header's own encoders (through C
//! shims).

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
    // Private: nothing of it leaves by this glob, and what is generated
    // here takes precedence over it.
    use super::mlx5_wqe_ctrl_seg;
    use crate::raw::*;

    include!(concat!(env!("OUT_DIR"), "/mlx5dv.rs"));
}

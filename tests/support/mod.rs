//! Shared by the whole-system tests.

pub mod behaviour;
pub mod compared_qps;
pub mod cqe_writer;
pub mod device;
pub mod engine_side;
pub mod fixture;
pub mod held;
pub mod iwarp;
pub mod libmlx5;
pub mod operations;
pub mod pair;
pub mod reference_side;
pub mod rings;
pub mod shadow_page;
pub mod side;
#[cfg(target_arch = "x86_64")]
mod single_step;
pub mod store_tracer;
pub mod system;
pub mod traffic;
pub mod work;

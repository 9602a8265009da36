//! Shared by the whole-system tests.

pub mod behaviour;
pub mod device;
pub mod hand;
pub mod iwarp;
pub mod lib_side;
pub mod libmlx5;
pub mod our_side;
pub mod pair;
pub mod rings;
pub mod side;
#[cfg(target_arch = "x86_64")]
mod single_step;
pub mod store_tracer;
pub mod system;
pub mod traffic;
pub mod twins;
pub mod work;
pub mod world;

//! What the whole-system tests share.

#[cfg(target_arch = "x86_64")]
mod single_step;
pub mod store_tracer;

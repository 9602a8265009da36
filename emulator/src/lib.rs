//! An emulated ConnectX for unmodified libibverbs + libmlx5 programs.

pub mod config;
pub mod decode;
pub mod emulator;
pub mod fabric;
pub mod faults;
mod guard;
pub mod hardware;
pub mod limits;
pub mod nic;
pub mod preload;
pub mod runner;
pub mod sysfs;
pub mod trap;
pub mod uar;
pub mod uverbs;

//! An emulated ConnectX for unmodified libibverbs + libmlx5 programs.

pub mod config;
pub mod decode;
pub mod emulator;
pub mod fabric;
pub mod faults;
mod guard;
#[allow(unreachable_pub, reason = "`pub` is for the rest of the emulator")]
mod hardware;
pub mod limits;
pub mod nic;
pub mod preload;
#[allow(unreachable_pub, reason = "`pub` is for the rest of the emulator")]
mod runner;
mod sync;
pub mod sysfs;
#[allow(unreachable_pub, reason = "`pub` is for the rest of the emulator")]
mod trap;
#[allow(unreachable_pub, reason = "`pub` is for the rest of the emulator")]
mod uar;
#[allow(unreachable_pub, reason = "`pub` is for the rest of the emulator")]
mod uverbs;

//! The libc calls through which libibverbs and libmlx5 reach a device.
//!
//! Preloaded (`libmlx5emu.so`) or linked into a test binary (see [`link`]),
//! these definitions come before libc's. What does not concern the emulated
//! device goes on to libc untouched, after one relaxed load or a look at the
//! first bytes of a path.
//!
//! The signal calls are interposed as well, for one signal: see `signals`.
//!
//! Nothing happens before a program looks for a device: no constructor runs,
//! and the NIC's thread starts when a device is opened first.

mod calls;
mod hold;
mod mappings;
pub(crate) mod real;
mod session;
mod signals;

pub use session::{Installed, install};
pub(crate) use signals::SIGNAL_CALLS;

/// Makes the linker take the interposed calls into a program that links this
/// crate as an `rlib`. The program has to be linked with `-rdynamic`, so that
/// libibverbs finds them there.
pub fn link() {
    std::hint::black_box((calls::ALL, SIGNAL_CALLS));
}

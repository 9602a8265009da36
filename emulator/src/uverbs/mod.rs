//! The kernel's side of `/dev/infiniband/uverbs*`, as unmodified libibverbs and
//! libmlx5 see it.
//!
//! ```text
//! preload ──► files      which descriptors are emulated
//!               │
//!             context    one open device file: handles, doorbell pages
//!               │
//!   ioctl ──► attributes ─────────────────────┐
//!     └─ INVOKE_WRITE ─► write_commands ──────┼─► commands/*  ──► backend (the NIC)
//!   write ──► write ────────────┘             ┘
//! ```
//!
//! The commands do not depend on how they were sent: the ioctl interface, and the
//! write interface (plain, or wrapped in an ioctl with `INVOKE_WRITE`), pass the
//! same typed requests to the same functions. The error numbers are those of the
//! kernel's ib_core and mlx5_ib.
//!
//! libibverbs sends commands by `write()` to kernels before Linux 4.20 (`--face write`). On that
//! interface, the kernel side also chooses the doorbell register of each queue pair, as mlx5_ib did.

pub mod abi;
mod attributes;
mod backend;
mod clock;
mod commands;
mod context;
mod emulator_backend;
mod events;
mod files;
mod handles;
mod ioctl;
pub(crate) mod log;
mod pages;
mod registers;
pub(crate) mod user;
mod write;
mod write_commands;
mod write_table;

#[cfg(test)]
mod tests;

pub use backend::Backend;
pub(crate) use commands::device_capabilities;
pub use context::{DeviceConfig, DeviceFile, Mapped, PAGE_SIZE};
pub use emulator_backend::EmulatorBackend;
pub use events::Events;
pub(crate) use files::Entry;
pub use files::{Files, files};

use std::collections::BTreeSet;

use crate::fork::PerProcess;
use crate::preload::real;
use crate::sync::Mutex;

/// Prints a message on standard error, once per process and subject.
pub fn warn(subject: &'static str, message: &str) {
    static SHOWN: PerProcess<Mutex<BTreeSet<&'static str>>> = PerProcess::new();
    let first = SHOWN.get().lock().insert(subject);
    if first {
        show(&format!("mlx5-emu: {message}\n"));
    }
}

/// Writes a text to standard error, at once, so that lines of processes do not mix. Takes
/// no lock, which another thread may have held when this process was forked.
fn show(text: &str) {
    // SAFETY: the bytes of the text. Standard error may be closed, or the disk full.
    unsafe { real::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

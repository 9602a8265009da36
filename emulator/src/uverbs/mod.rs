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
mod names;
mod pages;
mod registers;
mod write;
mod write_commands;
mod write_table;

#[cfg(fuzzing)]
#[path = "tests/fuzzing.rs"]
pub(crate) mod fuzzing;
#[cfg(test)]
mod tests;

pub use backend::Backend;
pub use context::{DeviceConfig, DeviceFile, Mapped, PAGE_SIZE};
pub use emulator_backend::EmulatorBackend;
pub use events::Events;
pub(crate) use files::EmulatedFile;
pub use files::{Files, files};

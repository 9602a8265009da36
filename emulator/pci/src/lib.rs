//! The emulated ConnectX as a PCI device of a virtual machine.
//!
//! A process serves the device to a virtual machine monitor (QEMU from version 10.1) by the
//! vfio-user protocol on a Unix socket. In the guest, Linux's own drivers mlx5_core and mlx5_ib
//! find a ConnectX and use it as one of hardware: the kernel decides how rings, doorbell
//! records, doorbell pages and memory keys are laid out, and its uverbs serve libibverbs.
//!
//! ```text
//!  guest:  program ── libibverbs ── libmlx5 ─── rings, records ──┐ guest memory
//!             │                        │ doorbells                │ (shared with the client)
//!          ib_uverbs, mlx5_ib, mlx5_core ─ commands, EQs ─────────┤
//!  ───────────┼────────────────────────┼─ PCI ────────────────────┼──────────────────────
//!  client: QEMU (vfio-user-pci)     BAR 0, mapped                 │
//!             │ messages               │                          │
//!  here:   device ── mailbox ── commands ─▶ NIC of the emulator ◀─┘ memory
//!                                events ◀──┘        │ packets
//!                                                   ▼ fabric
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`server`] | the socket, and the life of the device |
//! | `device` | configuration space, registers and interrupts, as the client's messages access them |
//! | `mailbox` | the queue of commands in the guest's memory |
//! | `commands` | the firmware's commands, as calls of the emulator's NIC |
//! | `events` | event queues and interrupts |
//! | `keys` | the pages behind memory keys |
//! | `memory` | the guest's memory at contiguous addresses |
//! | `config_space` | the PCI configuration space |
//! | `layout`, `bits` | fields of the firmware's structures |
//!
//! The NIC, its thread, the fabric, faults and traces are those of [`mlx5emu`], which knows
//! nothing of guests: `memory` maps each queue and each region of the guest's pages once more,
//! in the order in which the NIC sees them.
//!
//! Decision: `docs/decisions/087-guest-pages-are-mapped-again.md`

#[allow(unreachable_pub, reason = "`pub` is for the rest of the crate")]
mod bits;
#[allow(unreachable_pub, reason = "`pub` is for the rest of the crate")]
mod commands;
#[allow(unreachable_pub, reason = "`pub` is for the rest of the crate")]
mod config_space;
#[allow(unreachable_pub, reason = "`pub` is for the rest of the crate")]
mod device;
#[allow(unreachable_pub, reason = "`pub` is for the rest of the crate")]
mod events;
#[allow(unreachable_pub, reason = "`pub` is for the rest of the crate")]
mod keys;
#[allow(unreachable_pub, reason = "`pub` is for the rest of the crate")]
mod layout;
#[allow(unreachable_pub, reason = "`pub` is for the rest of the crate")]
mod mailbox;
#[allow(unreachable_pub, reason = "`pub` is for the rest of the crate")]
mod memory;
pub mod server;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

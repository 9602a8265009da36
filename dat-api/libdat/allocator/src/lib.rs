//! The allocator of `libdat.so.1` and `libdat2.so.2`, and of programs that link their crates.
//!
//! A crate of its own: a program has one allocator, and may link both crates.
//!
//! Decision: `docs/decisions/079-refuse-a-call-without-memory.md`

use dat_api::memory::Reserve;

#[global_allocator]
static RESERVE: Reserve = Reserve;

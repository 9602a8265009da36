//! uDAPL 1.2 for C programs: `libdat.so.1`.
//!
//! C programs include `<dat/udat.h>` and link with `-ldat`;
//! `dat-api/install.sh` installs both with a manual in which every call has a
//! page (`man udapl` to begin with, `man dat_evd_wait`). The programs in
//! `examples/c` show how it is used. Rust programs use `dat_api::safe` instead,
//! which needs no C.
//!
//! # How a call runs
//! ```text
//! dat_ep_post_send(ep, …)   exports::ep_post   handle → object, segments as they are
//!         │                                    nothing is converted that need not be
//!         ▼
//! dat_api::object::ep       DAT's rules        state, memory, flags; then the engine
//! ```
//! Control calls go through `face::answer::control`: no panic leaves it, errors
//! become a `DAT_RETURN`, and with `DAT_DBG_TYPE=1` their cause is printed.
//! Posting and taking events do without it: they neither allocate, lock, print
//! nor unwind.
//!
//! A handle is a pointer to a slot whose first word leads to the table
//! [`PROVIDER`], as DAT's own macros (`dat/udat_redirection.h`) want it; a handle
//! that is null, stale or of another kind is refused by looking at the slot.
//!
//! # What is where
//! [`abi`] is what C sees, in Rust: the types and values of the headers in
//! `include/dat`, generated from them. [`exports`] are the 72 calls and one of our own, each a conversion to and from
//! the objects of `dat_api`, with `face` for what they share.

pub mod abi;
pub mod exports;
mod face;
mod providers;

pub use face::provider::PROVIDER;

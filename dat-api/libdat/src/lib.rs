//! `libdat.so.1`: uDAPL 1.2 for C programs.
//!
//! C programs include `<dat/udat.h>` and link with `-ldat`. `dat-api/install.sh`
//! installs the library, the headers and a manual page for every call; `man
//! udapl` is the introduction. The programs in `examples/c` show complete uses.
//! Rust programs use `dat_api::safe` instead and need no C.
//!
//! # How a call runs
//! ```text
//! dat_ep_post_send(ep, …)   exports::post      handle → object; the segment list is
//!         │                                    read in place, nothing is copied first
//!         ▼
//! dat_api::object::ep       DAT's rules        state, memory, flags; then the engine
//! ```
//! **Control calls** run inside `face::frame::control`. It stops panics,
//! converts errors to a `DAT_RETURN`, and prints their cause if `DAT_DBG_TYPE=1`.
//!
//! **Posting and taking events** run without that frame. They neither allocate,
//! lock, print nor unwind. Once such a call is refused, `face::refused` prints the
//! cause, if `DAT_DBG_TYPE=1`.
//!
//! **Handles** are pointers to slots. A slot's first word points to the provider
//! table [`PROVIDER`], as DAT's macros (`dat/udat_redirection.h`) require. A call
//! checks its handle against the slot, and refuses a null, stale or wrong-kind
//! handle with `DAT_INVALID_HANDLE`.
//!
//! **Threads**: a call that sleeps (`dat_evd_wait`, `dat_cno_wait`) is a
//! cancellation point; every other call runs with cancellation disabled.
//!
//! # Modules
//! - [`abi`]: the types and values of the headers in `include/dat`, generated
//!   from them.
//! - [`exports`]: the 72 calls of uDAPL 1.2 and nine extensions. Each converts to
//!   and from the objects of `dat_api`.
//! - `face`: the conversions that those calls share.
//! - `providers`: libraries of other providers, and this library as a provider of
//!   another registry.
//! - `version`: what differs between versions of uDAPL. All other modules are also
//!   compiled for `libdat2`, with its own `abi` and `version`.
//!
//! Decision: `docs/decisions/070-one-source-for-two-abis.md`

/// Returns the name that an exported function has in the library.
macro_rules! symbol {
    ($name:ident) => {
        stringify!($name)
    };
}

pub mod abi;
pub mod exports;
mod face;
mod providers;
mod version;

pub use face::provider::PROVIDER;
// The library's allocator.
use libdat_allocator as _;

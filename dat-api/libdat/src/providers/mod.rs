//! Libraries of other providers: those that dat.conf names, and those that
//! register themselves. Their adapters are opened through this library.
//!
//! ```text
//! dat_ia_openv ─ foreign ── library (dlopen, dat_provider_init) ─┐
//!                    │                                           ▼
//!                    └────────► dynamic: key → table ◄── dat_registry_add_provider
//!                                        │
//! any other call ─ dispatch ─ tables ◄───┘  the first word of a handle
//! ```
//!
//! The module [`guest`] is the reverse: this library as a provider in the
//! registry of another.
//!
//! Decision: `docs/decisions/016-foreign-handles-by-first-word.md`

pub(crate) mod dispatch;
pub(crate) mod dynamic;
pub(crate) mod foreign;
pub(crate) mod guest;
mod key;
mod library;
mod tables;

pub(crate) use key::Key;

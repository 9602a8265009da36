//! The ABI of uDAPL 1.2, from three sides that must agree: what C compilers make
//! of the headers, what Rust makes of `dat::abi`, and a table of facts about the
//! ABI (`facts/`), which was derived from neither.

mod calls;
mod compiler;
mod exports;
pub(crate) mod facts;
mod headers;
mod here;
mod layout;
mod listed;
mod names;
mod signatures;
mod slots;
mod status;
mod version;

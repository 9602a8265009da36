//! uDAPL 1.2 as C sees it: types, values, the provider table.
//!
//! Names and spelling are those of the headers in `include/dat`, which explain
//! each; here stands only what Rust needs to know besides. Enumerations are
//! plain integers: a value that comes from C may be any number. The tests in
//! `tests/abi` hold sizes, offsets and values to what C compilers make of the
//! headers, and both to a table of facts.
#![allow(missing_docs, reason = "the headers explain each name")]
#![allow(non_camel_case_types, reason = "C names")]

mod attributes;
mod calls;
mod counters;
mod errors;
mod events;
mod flags;
mod masks;
mod memory;
mod params;
mod provider;
mod registry;
mod types;

pub use attributes::*;
pub use calls::*;
pub use counters::*;
pub use errors::*;
pub use events::*;
pub use flags::*;
pub use masks::*;
pub use memory::*;
pub use params::*;
pub use provider::*;
pub use registry::*;
pub use types::*;

//! The ABI of uDAPL 2.0, from three sides that must agree: what C compilers make of the
//! headers, what Rust makes of `dat2::abi`, and a table of facts about the ABI
//! (`facts/`), which was derived from neither. The tests are those of `libdat`.

mod calls;
#[path = "../../../libdat/tests/abi/compiler.rs"]
mod compiler;
#[path = "../../../libdat/tests/abi/exports.rs"]
mod exports;
#[path = "../../../libdat/tests/abi/facts.rs"]
pub(crate) mod facts;
#[path = "../../../libdat/tests/abi/headers.rs"]
mod headers;
#[path = "../../../libdat/tests/abi/here.rs"]
mod here;
#[path = "../../../libdat/tests/abi/layout.rs"]
mod layout;
#[path = "../../../libdat/tests/abi/listed.rs"]
mod listed;
#[path = "../../../libdat/tests/abi/names.rs"]
mod names;
#[path = "../../../libdat/tests/abi/signatures.rs"]
mod signatures;
mod version;

//! uDAPL 1.2 (DAT, the Direct Access Transport API) in safe Rust.
//!
//! What stands here today is the vocabulary of answers, [`DatReturn`]; the
//! objects (interface adapter, endpoint, event dispatcher, …) are built on
//! `dat-engine` and follow.
#![forbid(unsafe_code)]

pub mod status;

pub use status::{DatReturn, ReturnType, Subtype};

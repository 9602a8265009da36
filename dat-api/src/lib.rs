//! uDAPL 1.2 (DAT, the Direct Access Transport API) in Rust, on `dat-engine`.
//!
//! | module | what |
//! | --- | --- |
//! | [`safe`] | the objects as safe Rust types: begin here |
//! | [`object`] | the objects as DAT has them, named by handles: what [`safe`] and the C faces stand on |
//! | [`registry`] | which names of adapters there are: devices, and dat.conf |
//! | [`options`] | what the environment and dat.conf say about how an adapter works |
//! | [`types`] | plain values: flags, states, events, attributes |
//! | [`status`] | `DAT_RETURN`: what calls answer |
//! | [`handle`] | how objects are named and found |
//! | [`state`] | the states of endpoints, as tables |
//!
//! The C faces are packages of their own that convert and call here; nothing
//! in this crate has a layout that C knows.
//!
//! [`object`] is for faces. Who posts through it promises that no other call
//! on the same endpoint or queue runs meanwhile, by whatever name: the types
//! of [`safe`] keep that promise among themselves, so do not free, connect or
//! reset by handle what one of them owns.
//!
//! # Adapters and their names
//! An RDMA device needs no configuration: its adapter is called `DEVICE`, or
//! `DEVICE-PORT` for another port than the first. dat.conf can give further
//! names: see [`registry`]. What an adapter can do is told by
//! [`object::ia::Ia::query`]; [`object::ia::attributes`] says of each value
//! where it comes from.
//!
//! # Threads
//! An open adapter has one thread for the device's asynchronous events, and
//! all adapters of a process share one for connections; a CNO that has had an
//! agent has one that calls it. They start when an
//! adapter is opened (the agent is set) and end when it, or the last one, is
//! closed (the CNO is freed); they block
//! all signals and keep off isolated CPUs. No data passes through them.
//!
//! # Errors
//! Control calls answer with a [`DatError`]: the `DAT_RETURN`, and the cause in
//! words. Calls that post, or take events, answer with the bare [`DatReturn`].
//!
//! # Forks
//! Adapters belong to the process that opened them. In a child after fork
//! calls on them are refused with `DAT_INVALID_HANDLE`; it may open its own.

#![deny(unsafe_code)]

mod error;
// Finding an object behind a number that came from C needs raw memory.
#[allow(unsafe_code)]
pub mod handle;
pub mod object;
pub mod options;
pub mod registry;
pub mod state;
// Memory that the device uses, and posting to it: the reasons stand there.
#[allow(unsafe_code)]
pub mod safe;
pub mod status;
pub mod types;

pub use error::{DatError, Result};
pub use handle::{Handle, Kind};
pub use status::{DatReturn, ReturnType, Subtype};

//! uDAPL 1.2 (DAT, the Direct Access Transport API) in Rust, on `dat-engine`:
//! messages between programs, and reading and writing the memory of a peer, over
//! RDMA hardware, without the kernel on the way.
//!
//! # A first program
//! The client of a ping-pong. It needs a peer that answers; the folder
//! `examples` of the repository has both sides of this and of more, and
//! `mlx5-emu run` a device where there is none.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use dat_api::safe::{Adapter, EndpointOptions};
//! use dat_api::types::{
//!     CompletionFlags, ConnectionKind, DtoStatus, EvdFlags, EventData, MemPrivileges,
//! };
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // A port of an RDMA device, and memory that it may use: the answer at 0,
//!     // the question a cache line further.
//!     let adapter = Adapter::open("mlx5_0")?;
//!     let zone = adapter.zone()?;
//!     let memory = zone.memory(128, MemPrivileges::LOCAL_READ | MemPrivileges::LOCAL_WRITE)?;
//!
//!     // What happens comes as events. The receive is posted before the peer can
//!     // send anything.
//!     let events = adapter.dispatcher(16, EvdFlags::DTO | EvdFlags::CONNECTION)?;
//!     let mut endpoint = zone.endpoint(&EndpointOptions::new(&events))?;
//!     endpoint.post_recv(&[memory.segment(0..64)], 1, CompletionFlags::empty())?;
//!
//!     let server = "192.0.2.1:0".parse()?;
//!     endpoint.connect(server, 18515, Some(Duration::from_secs(5)), &[])?;
//!     match events.wait(None)?.data {
//!         EventData::Connection { kind: ConnectionKind::Established, .. } => {}
//!         other => return Err(format!("no connection: {other:?}").into()),
//!     }
//!
//!     memory.write(64, b"a question of less than 64 bytes");
//!     endpoint.post_send(&[memory.segment(64..96)], 2, CompletionFlags::empty())?;
//!     // Two completions: the send's, after which its memory is ours again, and
//!     // the receive's.
//!     for _ in 0..2 {
//!         match events.wait(None)?.data {
//!             EventData::Dto { status: DtoStatus::Success, cookie, length, .. } => {
//!                 println!("request {cookie} is done, {length} bytes");
//!             }
//!             other => return Err(format!("failed: {other:?}").into()),
//!         }
//!     }
//!     Ok(()) // what was made is freed in the right order
//! }
//! ```
//!
//! # What is where
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
//! | [`warnings`] | warnings of the library's threads, as lines of text |
//!
//! The C faces are packages of their own that convert and call here; nothing
//! in this crate has a layout that C knows.
//!
//! # Safety
//! No safe function of this crate can cause undefined behaviour, on any thread,
//! with any handle. [`object`] is for faces: its calls that post, and those that
//! touch what a post touches (reset, modify, disconnect, free, bind, resize, an
//! abrupt close), are `unsafe`, since posting takes no lock. The types of
//! [`safe`] keep that contract by borrowing; an endpoint that one of them owns
//! must not be posted to, reset or freed by its handle.
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
pub mod warnings;

pub use dat_engine::environment;
pub use dat_engine::sync;
pub use dat_engine::thread::CancellationHeld;
pub use error::{DatError, Result};
pub use handle::{Handle, Kind};
pub use status::{DatReturn, ReturnType, Subtype};

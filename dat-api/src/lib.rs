//! uDAPL 1.2 (DAT, the Direct Access Transport API) in Rust, on `dat-engine`: messages between
//! programs, and RDMA reads and writes of a peer's memory, by RDMA hardware and without system
//! calls per message.
//!
//! # A first program
//! The client of a ping-pong. It needs a server that replies; the folder `examples` of the
//! repository has both sides of this and of other programs, and `mlx5-emu run` provides an emulated
//! device on a host without RDMA hardware.
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
//!     // A port of an RDMA device, and memory that it may use: the reply at offset 0,
//!     // the request 64 bytes further, in another cache line.
//!     let adapter = Adapter::open("mlx5_0")?;
//!     let zone = adapter.zone()?;
//!     let memory = zone.memory(128, MemPrivileges::LOCAL_READ | MemPrivileges::LOCAL_WRITE)?;
//!
//!     // Events report what happens. The receive is posted before the peer can
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
//!     memory.write(64, b"a request of less than 64 bytes.");
//!     endpoint.post_send(&[memory.segment(64..96)], 2, CompletionFlags::empty())?;
//!     // Two completions: of the send, after which the program may reuse its memory,
//!     // and of the receive.
//!     for _ in 0..2 {
//!         match events.wait(None)?.data {
//!             EventData::Dto { status: DtoStatus::Success, cookie, length, .. } => {
//!                 println!("request {cookie} is done, {length} bytes");
//!             }
//!             other => return Err(format!("failed: {other:?}").into()),
//!         }
//!     }
//!     Ok(()) // dropping frees all objects, in the right order
//! }
//! ```
//!
//! # Layers
//! A program uses [`safe`]: types such as [`safe::Endpoint`] that own DAT objects. They stand on
//! [`object`], the DAT objects that C programs use, named by [handles](handle). The objects
//! stand on `dat-engine`, which writes the work queues of the device.
//!
//! | module | content |
//! | --- | --- |
//! | [`safe`] | the objects as safe Rust types: begin here |
//! | [`object`] | the objects with DAT's own rules, named by handles; [`safe`] and the C interfaces use it |
//! | [`registry`] | the names of adapters: devices, and entries of dat.conf |
//! | [`options`] | options of an adapter, from the environment and dat.conf |
//! | [`types`] | plain values: flags, states, events, attributes |
//! | [`status`] | `DAT_RETURN`, the result of a call |
//! | [`handle`] | how objects are named and found |
//! | [`state`] | the state machine of endpoints, as tables |
//! | [`warnings`] | warnings of the library's threads, as lines of text |
//!
//! The C interfaces are packages of their own that convert values and call this crate; no type here
//! has the layout of a C struct.
//!
//! # Lifetimes
//! An object of [`safe`] is freed when its last owner is dropped, and it owns the objects that it
//! uses. A program may thus drop them in any order. Memory stays mapped as long as the device may
//! write to it. An object of [`object`] is freed by its handle; a call on the handle afterwards
//! gets `DAT_INVALID_HANDLE`.
//!
//! # Safety
//! No safe function of this crate can cause undefined behaviour, on any thread, with any handle. Of
//! the calls of [`object`], those that post are `unsafe`, because posting takes no lock, and so are
//! those that change what a post uses (reset, modify, disconnect, free, bind, resize, an abrupt
//! close). The types of [`safe`] ensure by borrowing that these calls do not run at the same time.
//! An endpoint that such a type owns must not be posted to, reset or freed by its handle.
//!
//! # Adapters and their names
//! An RDMA device needs no configuration: its adapter is called `DEVICE`, or `DEVICE-PORT` for
//! another port than the first. dat.conf can define further names: see [`registry`].
//! [`safe::Adapter::query`] returns what an adapter supports; [`object::ia::attributes`] says where
//! each value comes from.
//!
//! # Threads
//! The library has threads of its own, which block all signals and carry no data. Three kinds of
//! them live long, and do not run on isolated CPUs:
//!
//! - one for each open adapter, which takes the device's asynchronous events;
//! - one for all adapters of a process that use the same connection manager, which ends with the
//!   last of them;
//! - one for each CNO that has had an agent, which calls agents until the CNO is freed.
//!
//! Others end by themselves: one that polls while graceful disconnects wait for their last request,
//! and, on iWARP, one for each call of the kernel that may block (connecting, destroying).
//!
//! Posting and taking events do not allocate, except that an endpoint of [`safe`] keeps each
//! [`Memory`](safe::Memory) that it is given first.
//!
//! # Units
//! Lengths are in bytes, and depths in requests or receives. Timeouts of [`safe`] are
//! [`Duration`](std::time::Duration)s, where `None` waits for ever; those of [`object`] are
//! microseconds.
//!
//! # Errors
//! Control calls return a [`DatError`]: the `DAT_RETURN`, and the cause in words. Posts and binds of
//! [`safe`] return a [`Refusal`], which takes no memory: it has the code and the values that were
//! wrong, and becomes a sentence when it is displayed. Calls that take events return the bare
//! [`DatReturn`], as do the posts of [`object`].
//!
//! ```
//! use dat_api::ReturnType;
//! use dat_api::safe::Adapter;
//!
//! let error = Adapter::open("no_such_device").expect_err("there is no such device");
//! assert_eq!(error.code().kind(), Some(ReturnType::ProviderNotFound));
//! println!("{}", error.cause()); // which devices there are, and what dat.conf says
//! ```
//!
//! If the process has no memory left, what Rust's allocator does happens: the process ends, as in any
//! Rust program. Memory of the kernel or the device that is missing, and large arrays, are errors. The C
//! libraries refuse the call instead ([`memory`]).
//!
//! # Forks
//! Adapters belong to the process that opened them. In a child after fork, calls on them fail with
//! `DAT_INVALID_HANDLE`; the child may open adapters of its own.

#![deny(unsafe_code)]

mod error;
// Converting a number from a C program to an object takes a raw pointer.
#[allow(unsafe_code)]
pub mod handle;
pub mod object;
pub mod options;
#[allow(unsafe_code)]
mod per_process;
mod refusal;
pub mod registry;
pub mod state;
// Memory that the device writes, and posts that use it.
#[allow(unsafe_code)]
pub mod safe;
pub mod status;
pub mod types;
pub mod warnings;

pub use dat_engine::environment;
pub use dat_engine::memory;
pub use dat_engine::sync;
pub use dat_engine::thread::CancellationDisabled;
pub use error::{DatError, Result};
pub use handle::{Handle, Kind};
pub use refusal::{CnoRefusal, EvdRefusal, Refusal, Unusable};
pub use status::{DatReturn, OwnCodes, ReturnCodes, ReturnType, Subtype};

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
//!     let zone = adapter.create_zone()?;
//!     let memory = zone.allocate(128, MemPrivileges::LOCAL_READ | MemPrivileges::LOCAL_WRITE)?;
//!
//!     // Events report what happens. The receive is posted before the peer can
//!     // send anything.
//!     let events = adapter.create_dispatcher(16, EvdFlags::DTO | EvdFlags::CONNECTION)?;
//!     let mut endpoint = zone.create_endpoint(&EndpointOptions::new(&events))?;
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
//! | module | content |
//! | --- | --- |
//! | [`safe`] | the DAT objects, as types such as [`safe::Endpoint`]: begin here |
//! | [`types`] | plain values: flags, states, events, attributes |
//! | [`status`] | `DAT_RETURN`, the result of a call |
//! | [`registry`] | the names of adapters: devices, and entries of dat.conf |
//!
//! The C interfaces are packages of their own that convert values and call this crate; no type here
//! has the layout of a C struct. What is only for them is public, but hidden from these pages, and
//! may change in any version.
//!
//! # Lifetimes
//! An object is freed when its last owner is dropped, and it owns the objects that it uses. A
//! program may thus drop them in any order. Memory stays mapped as long as the device may write to
//! it.
//!
//! # Safety
//! No safe function of this crate can cause undefined behaviour, on any thread, with any handle.
//! Posting takes no lock: the types of [`safe`] ensure by borrowing that posts to an endpoint, and
//! calls that change what a post uses, do not run at the same time.
//!
//! # Adapters and their names
//! An RDMA device needs no configuration: its adapter is called `DEVICE`, or `DEVICE-PORT` for
//! another port than the first. dat.conf can define further names: see [`registry`].
//! [`safe::Adapter::query`] returns what an adapter supports. Environment variables and instance
//! data of dat.conf change how it works (`DAT_PATH`, `DAT_WAIT`): the manual page udapl(7) has all.
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
//! [`Memory`](safe::Memory) that it is given first, and a stream what wakes its task.
//!
//! # Units
//! Lengths are in bytes, and depths in requests or receives. Timeouts are
//! [`Duration`](std::time::Duration)s, where `None` waits for ever.
//!
//! # Errors
//! Control calls return a [`DatError`]: the `DAT_RETURN`, and the cause in words. Posts and binds of
//! [`safe`] return a [`Refusal`], which takes no memory: it has the code and the values that were
//! wrong, and becomes a sentence when it is displayed. Calls that take events return the bare
//! [`DatReturn`].
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
//! libraries refuse the call instead.
//!
//! # Forks
//! Adapters belong to the process that opened them. In a child after fork, calls on them fail with
//! `DAT_INVALID_HANDLE`; the child may open adapters of its own.

#![deny(unsafe_code)]

mod error;
// Converting a number from a C program to an object takes a raw pointer.
#[allow(unsafe_code)]
#[doc(hidden)]
pub mod handle;
#[doc(hidden)]
pub mod object;
#[doc(hidden)]
pub mod options;
#[allow(unsafe_code)]
mod per_process;
mod refusal;
pub mod registry;
#[doc(hidden)]
pub mod state;
// Memory that the device writes, and posts that use it.
#[allow(unsafe_code)]
pub mod safe;
pub mod status;
pub mod types;
#[doc(hidden)]
pub mod warnings;

pub use error::{DatError, Result};
pub use handle::Handle;
pub use refusal::{CnoRefusal, Refusal, Unusable};
pub use status::{DatReturn, ReturnType, Subtype};

// For the C interfaces.
#[doc(hidden)]
pub use dat_engine::{environment, memory, sync, thread::CancellationDisabled};
#[doc(hidden)]
pub use handle::Kind;
#[doc(hidden)]
pub use refusal::EvdRefusal;
#[doc(hidden)]
pub use status::{OwnCodes, ReturnCodes};

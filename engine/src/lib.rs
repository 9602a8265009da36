//! A kernel-bypass RDMA engine.
//!
//! On mlx5 devices (ConnectX) the engine writes the work queues of the device and reads
//! its completion queues itself, without a call into a library or the kernel. It drives
//! every other RDMA device through libibverbs. Both *data paths* have the same types and
//! the same results; [`DeviceInfo::path`] reports which one a device is on.
//!
//! The vocabulary is that of libibverbs. An [`Endpoint`] is a reliable-connected queue
//! pair (QP).
//!
//! # Layers
//!
//! | layer | content |
//! | --- | --- |
//! | [`control`] | devices, protection domains, memory regions and windows, state changes of queue pairs. Calls libibverbs, or librdmacm on iWARP. Never used per message |
//! | [`endpoint`], [`queue`], [`shared_queue`] | what an application posts to and polls: [`Endpoint`], [`CompletionQueue`], [`SharedReceiveQueue`] |
//! | [`request`], [`completion`] | plain values: what is posted, what is returned |
//! | `path` (private) | the two data paths, and the enum that selects one |
//! | [`mlx5_rings`] (crate) | the direct path's rings: the bytes of WQEs and CQEs, doorbells, barriers |
//! | [`wait`] | sleeping until a completion arrives: poll, spin, arm, sleep |
//! | [`cm`] | the connection manager: exchanges addresses and private data over `rdma_cm` or TCP |
//! | [`memory`] | what a C interface does when memory runs out |
//! | [`sync`], [`thread`], [`environment`], [`descriptors`] | locks, threads, environment variables and file descriptors as this library uses them |
//!
//! Data flows from [`Endpoint::post_send`] through `path` into the ring of the queue
//! pair, and from the ring of the completion queue through [`CompletionQueue::poll`] to a
//! [`Completion`].
//!
//! # From a device to a message
//!
//! 1. [`devices`] lists the devices; [`Device::open`] opens one.
//! 2. [`Device::alloc_pd`] allocates a [`ProtectionDomain`], which registers memory.
//! 3. [`Device::create_cq`] creates a [`CompletionQueue`].
//! 4. [`ProtectionDomain::create_endpoint`] creates an [`Endpoint`] that reports to the
//!    queue.
//! 5. The application sends [`Endpoint::local_address`] to the peer, by [`cm`] or by other
//!    means.
//! 6. [`Endpoint::connect`] moves the queue pair to RTS with the peer's address.
//! 7. [`Endpoint::post_recv`] and [`Endpoint::post_send`] post requests.
//! 8. [`CompletionQueue::poll`] returns one [`Completion`] per receive and per signalled
//!    send.
//!
//! # Lifetimes
//!
//! Every object keeps the objects that it needs alive: an endpoint keeps its completion
//! queues, its shared receive queue, its protection domain and its device. They can be
//! dropped in any order.
//!
//! The memory of requests is not kept alive, because a request is a plain value. The
//! caller of a post promises that the memory stays valid, and is not used otherwise, until
//! the request completes; posts are `unsafe` for this reason. A request that cannot
//! complete any more, because its endpoint was dropped or reset, has ended once the
//! completion queue has been polled after that.
//!
//! The number of a queue pair on the direct path is released after its completion queues
//! have removed its stale CQEs. Polling does this whenever it finds no CQE.
//! A completion queue that is not polled does it in [`CompletionQueue::process_commands`].
//!
//! # Threads
//!
//! Endpoints and queues are `Send`. Posting takes `&mut Endpoint` and polling
//! `&mut CompletionQueue`, so one thread at a time does each; the two threads may differ,
//! and share atomics only. Calls that other threads may make meanwhile are on the handles:
//!
//! - [`EndpointHandle`] moves a queue pair through its states;
//! - [`CompletionQueueHandle`] and [`SharedReceiveQueueHandle`] are for creating endpoints.
//!
//! Endpoints that share a doorbell register take a lock for it, unless
//! [`EndpointOptions::thread_mode`] promises that one thread posts at a time.
//! The environment variable `MLX5_SINGLE_THREADED=1` promises it for the whole process, as it
//! does to libmlx5.
//! The verbs path takes a lock per poll, and libibverbs takes its own.
//!
//! Posting and polling do not allocate; creating does.
//!
//! # Errors
//!
//! - [`ControlError`]: an operation of the control path failed. The message names the
//!   operation, the cause, and the remedy if one is known.
//! - [`PostError`]: a request was not posted. [`ListError`] also reports how many requests
//!   of the list were posted.
//! - [`Status`] of a [`Completion`]: a posted request failed. [`Status::hint`] names the
//!   likely cause. The queue pair is then in the error state, and every other request
//!   completes with [`Status::WrFlush`].
//!
//! # Units
//!
//! Lengths are in bytes. Depths are numbers of requests or completions, not of WQEBBs.
//! Immediate data and keys are in host byte order. Queue pair, CQ and SRQ numbers have 24
//! bits. Times are [`Duration`](core::time::Duration)s, or nanoseconds of
//! `CLOCK_MONOTONIC` where a name ends in `nanos`.
//!
//! # Example
//!
//! Two endpoints of one process, connected to each other; one message.
//! `engine/examples/pingpong.rs` is the same with timing. Without a NIC, run it on the emulated
//! one: `mlx5-emu run -- PROGRAM`.
//!
//! ```no_run
//! use dat_engine::{
//!     Access, ConnectOptions, CqOptions, Device, EndpointOptions, RecvRequest, SendFlags,
//!     SendOp, SendRequest, Status,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! const PORT: u8 = 1;
//! let device = Device::open("mlx5_0")?;
//! let domain = device.alloc_pd()?;
//! let mut cq = device.create_cq(&CqOptions {
//!     depth: 512, // all requests that may be outstanding on both endpoints
//!     ..CqOptions::default()
//! })?;
//!
//! // Declared before the endpoints, so dropped after them.
//! let sent = domain.allocate(4096, Access::default())?;
//! let received = domain.allocate(4096, Access::default())?;
//! let mut sender = domain.create_endpoint(&EndpointOptions::new(&cq, &cq))?;
//! let mut receiver = domain.create_endpoint(&EndpointOptions::new(&cq, &cq))?;
//!
//! let options = ConnectOptions::default();
//! let (from, to) = (sender.local_address(PORT)?, receiver.local_address(PORT)?);
//! sender.connect(&to, &options)?;
//! receiver.connect(&from, &options)?;
//!
//! // The receive is posted before the peer sends.
//! let request = RecvRequest {
//!     wr_id: 1,
//!     segments: &[received.segment(0, 4096).ok_or("outside the buffer")?],
//! };
//! // SAFETY: the buffer outlives the endpoint, and is not used before the completion.
//! unsafe { receiver.post_recv(&request) }?;
//!
//! let request = SendRequest {
//!     wr_id: 2,
//!     op: SendOp::Send,
//!     flags: SendFlags::SIGNALED,
//!     segments: &[sent.segment(0, 64).ok_or("outside the buffer")?],
//! };
//! // SAFETY: as above.
//! unsafe { sender.post_send(&request) }?;
//!
//! // Two completions: the send and the receive, in either order.
//! for _ in 0..2 {
//!     let completion = loop {
//!         if let Some(completion) = cq.poll() {
//!             break completion;
//!         }
//!         std::hint::spin_loop();
//!     };
//!     if completion.status != Status::Success {
//!         return Err(completion.to_string().into());
//!     }
//!     println!("request {}: {} bytes", completion.wr_id, completion.byte_len);
//! }
//! # Ok(())
//! # }
//! ```

pub mod cm;
pub mod completion;
pub mod control;
pub mod descriptors;
pub mod endpoint;
pub mod environment;
pub mod error;
#[cfg(test)]
mod golden;
pub mod memory;
#[allow(
    unreachable_pub,
    reason = "`pub` items are for the engine's other modules"
)]
mod path;
pub mod queue;
pub mod request;
pub mod shared_queue;
pub mod sync;
// The rings' own fixtures for plain memory.
#[cfg(test)]
#[allow(
    dead_code,
    reason = "some fixtures are used by the rings' own tests only"
)]
mod testing;
pub mod thread;
pub mod wait;

pub use completion::{Completion, CompletionFlags, CompletionOp, Status};
pub use control::{
    Access, AsyncEvent, AsyncEventKind, AsyncSource, CompletionChannel, ConnectOptions, CqeSize,
    DataInOrder, DataPath, Device, DeviceClock, DeviceInfo, EndpointAddress, Greeting, Guid,
    IwarpRoute, Limits, LinkLayer, ManagedRoute, MemoryRegion, MemoryWindow, Mtu, NumaNode,
    PartitionKey, PathRequest, PortInfo, PortState, ProtectionDomain, RegisteredBuffer, Route,
    Transport, TransportOptions, WindowTarget, devices, devices_with,
};
pub use endpoint::{Endpoint, EndpointHandle, EndpointOptions, InlineShape, ThreadMode};
pub use error::{ControlError, ControlErrorKind};
pub use mlx5_rings::layout;
pub use mlx5_rings::mmio::{
    MessageValue, load_message, read_message, store_message, write_message,
};
pub use mlx5_rings::wire::LONGEST_WINDOW;
pub use path::PollerCounters;
pub use queue::{Arm, Arrival, CompletionQueue, CompletionQueueHandle, CqOptions, CqeKind, CqeRef};
pub use request::{
    AtomicOp, BindRequest, ListError, Message, PostError, RecvRequest, Segment, SendFlags, SendOp,
    SendRequest,
};
pub use shared_queue::{SharedReceiveQueue, SharedReceiveQueueHandle, SrqOptions};

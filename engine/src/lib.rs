//! A kernel-bypass RDMA engine: mlx5 rings driven directly, verbs for control
//! and for devices whose rings it does not know.
//!
//! The rings themselves, and how they work, are in the crate [`mlx5_rings`].

pub mod cm;
pub mod completion;
pub mod control;
pub mod descriptors;
pub mod endpoint;
pub mod environment;
pub mod error;
#[cfg(test)]
mod golden;
#[allow(unreachable_pub, reason = "`pub` is for the rest of the engine")]
mod path;
pub mod queue;
pub mod request;
pub mod shared_queue;
pub mod sync;
// The plain memory of the rings' own tests.
#[cfg(test)]
#[path = "../ring/src/testing.rs"]
#[allow(dead_code, reason = "some of it is for the rings' own tests only")]
mod testing;
pub mod thread;
pub mod wait;

pub use completion::{Completion, CompletionFlags, CompletionOp, Status};
pub use control::{
    Access, AsyncEvent, AsyncEventKind, AsyncSource, CompletionChannel, ConnectOptions, CqeSize,
    DataPath, Device, DeviceInfo, EndpointAddress, Greeting, IwarpRoute, Limits, LinkLayer,
    ManagedRoute, MemoryRegion, MemoryWindow, PathRequest, PortInfo, PortState, ProtectionDomain,
    RegisteredBuffer, Route, Transport, WindowTarget, devices, devices_with,
};
pub use endpoint::{Endpoint, EndpointHandle, EndpointOptions, InlineShape, Posters};
pub use error::{ControlError, ControlErrorKind};
pub use mlx5_rings::layout;
pub use mlx5_rings::mmio::{read_message, write_message};
pub use mlx5_rings::wire::LONGEST_WINDOW;
pub use path::{PollerCounters, fast};
pub use queue::{Arrival, CompletionQueue, CompletionQueueHandle, CqOptions, CqeKind, CqeRef};
pub use request::{
    BindRequest, ListError, PostError, RecvRequest, Segment, SendFlags, SendOp, SendRequest,
};
pub use shared_queue::{SharedReceiveQueue, SharedReceiveQueueHandle, SrqOptions};

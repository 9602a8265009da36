//! A kernel-bypass RDMA engine: mlx5 rings driven directly, verbs for control.

pub mod completion;
pub mod mmio;
pub mod path;
pub mod request;
pub mod ring;
pub mod wire;

pub use completion::{Completion, CompletionFlags, CompletionOp, Status};
pub use request::{ListError, PostError, RecvRequest, Segment, SendFlags, SendOp, SendRequest};

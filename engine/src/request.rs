//! Requests: receives, sends, binds of memory windows; and why a post fails.
//!
//! All are plain values that need to live only during the call that posts them. The
//! memory of their segments must live until the request completes.
//!
//! Decision: `docs/decisions/011-cold-calls-get-copies.md`

pub use mlx5_rings::request::{
    AtomicOp, ListError, Message, PostError, RecvRequest, Segment, SendFlags, SendOp, SendRequest,
};

use crate::control::WindowTarget;

/// A request of the send queue that binds or unbinds a memory window.
#[derive(Clone, Copy)]
pub struct BindRequest<'a> {
    /// Returned in the completion.
    pub wr_id: u64,
    /// `SIGNALED` and `FENCE`; other flags are ignored.
    pub flags: SendFlags,
    /// The memory that the window opens from then on; `None` unbinds the window.
    pub target: Option<WindowTarget<'a>>,
}

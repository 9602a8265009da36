//! What an application asks for: receive and send requests, binds of memory
//! windows, and how a post fails.
//!
//! Plain values. They live only for the duration of the call that posts them;
//! the memory that their segments name must live until the request completes.

pub use mlx5_rings::request::{
    ListError, PostError, RecvRequest, Segment, SendFlags, SendOp, SendRequest,
};

use crate::control::WindowTarget;

/// A request for the send queue that changes a memory window.
#[derive(Clone, Copy)]
pub struct BindRequest<'a> {
    /// Comes back in the completion.
    pub cookie: u64,
    /// `SIGNALED` and `FENCE`; others mean nothing here.
    pub flags: SendFlags,
    /// What the window opens from then on; nothing, if `None`.
    pub target: Option<WindowTarget<'a>>,
}

//! The causes of refused posts, in words.
//!
//! Calls that post return a bare code, and neither allocate nor print. After a post has been
//! refused, and only if a program or a C interface has asked for causes with [`forward_to`], the
//! library examines the arguments and the queue again and says why.
//!
//! Decision: `docs/decisions/063-cause-after-the-refusal.md`

use std::sync::OnceLock;

use crate::error::DatError;
use crate::handle::Handle;
use crate::status::DatReturn;

/// A refused post.
#[derive(Debug)]
pub struct Refusal<'a> {
    /// The name of the call in C, such as `dat_ep_post_send`.
    pub call: &'static str,
    /// What the handle names: `ep` or `srq`.
    pub object: &'static str,
    /// The handle of the object that was posted to.
    pub handle: Handle,
    /// The code that the call returns, and the cause.
    pub error: &'a DatError,
}

static RECEIVER: OnceLock<fn(&Refusal<'_>)> = OnceLock::new();

/// From now on, calls `receive` for each refused post, on the posting thread, before the post
/// returns. `receive` must not panic, nor post to the same object. Returns `false` if another
/// function was set before.
pub fn forward_to(receive: fn(&Refusal<'_>)) -> bool {
    RECEIVER.set(receive).is_ok()
}

/// Reports a refused post. `cause` is called only if causes were asked for.
#[cold]
pub(crate) fn report(
    (call, object): (&'static str, &'static str),
    handle: Handle,
    code: DatReturn,
    cause: impl FnOnce() -> String,
) {
    if let Some(receive) = RECEIVER.get() {
        receive(&Refusal {
            call,
            object,
            handle,
            error: &DatError::explained(code, cause()),
        });
    }
}

//! Endpoints on completion queues that ignore overruns ([`CqRecord::Lazy`]).
//!
//! The device does not notice if such a queue overruns, so the credits of the endpoints must
//! keep it from overrunning. A request has at most one CQE, which it also has if it is
//! unsignalled and flushed; a bind and a marker are one request each. Rings hold more
//! requests than they were created for, since libmlx5 rounds up.
//!
//! Decision: `docs/decisions/073-lazy-consumer-record.md`

use super::EndpointOptions;
use crate::error::{ControlError, ControlErrorKind};
use crate::path;
use crate::queue::{CompletionQueueHandle, CqRecord};

/// Refuses an endpoint that can by itself have more completions outstanding than its
/// completion queues hold. The caller adds up several endpoints.
pub(super) fn require_room(options: &EndpointOptions<'_>) -> Result<(), ControlError> {
    let receives = match options.srq {
        Some(srq) => srq.verbs.capacity(),
        None => options.recv_depth,
    };
    let (send_cq, recv_cq) = (options.send_cq, options.recv_cq);
    if send_cq.cqn() == recv_cq.cqn() {
        return require(send_cq, options.send_depth.saturating_add(receives));
    }
    require(send_cq, options.send_depth)?;
    require(recv_cq, receives)
}

fn require(cq: &CompletionQueueHandle, completions: u32) -> Result<(), ControlError> {
    let capacity = cq.capacity();
    if is_lazy(cq) && completions > capacity {
        return Err(ControlError::new(
            ControlErrorKind::Invalid,
            "create an endpoint",
            format!(
                "it can have {completions} completions outstanding, and its completion queue, \
                 which ignores overruns, holds {capacity}"
            ),
        )
        .with_remedy("create a deeper completion queue, or one whose record is eager"));
    }
    Ok(())
}

/// The most requests and receives that may be outstanding.
#[derive(Clone, Copy)]
pub(super) struct Most {
    sends: u32,
    receives: u32,
}

impl Most {
    /// Returns the depths that were asked for, where a completion queue ignores overruns.
    pub(super) fn of(options: &EndpointOptions<'_>) -> Option<Self> {
        let lazy = is_lazy(options.send_cq) || is_lazy(options.recv_cq);
        lazy.then_some(Self {
            sends: options.send_depth,
            receives: options.recv_depth,
        })
    }

    /// Limits an endpoint to the numbers, or to these if they are less.
    pub(super) fn limit(self, path: &mut path::QueuePair, sends: u32, receives: u32) {
        path.limit(self.sends.min(sends), self.receives.min(receives));
    }
}

fn is_lazy(cq: &CompletionQueueHandle) -> bool {
    cq.record() == CqRecord::Lazy
}

//! Failures: the asynchronous event for the program, and the sentence with the cause,
//! which `mlx5-emu run --explain` prints.

use super::core::Core;
use super::memory::Fault;
use super::qp::Qp;
use crate::spec::{AsyncEvent, AsyncObject, ContextId};

/// A QP that is moved to error at the end of the round.
#[derive(Debug)]
pub(super) struct FailingQp {
    pub(super) qpn: u32,
    pub(super) cause: String,
}

/// Returns the cause of a failure of a QP whose `memory` cannot be read.
#[cold]
pub(super) fn unreadable(memory: &str, fault: Fault) -> String {
    format!("its {memory} cannot be read: {fault}; the program has unmapped or freed it")
}

impl AsyncEvent {
    /// Returns libibverbs' name of an event that reports a failure: a queue, port or
    /// device that has stopped working.
    pub(super) fn failure(self) -> Option<&'static str> {
        Some(match self {
            Self::CqErr => "IBV_EVENT_CQ_ERR",
            Self::QpFatal => "IBV_EVENT_QP_FATAL",
            Self::QpReqErr => "IBV_EVENT_QP_REQ_ERR",
            Self::QpAccessErr => "IBV_EVENT_QP_ACCESS_ERR",
            Self::DeviceFatal => "IBV_EVENT_DEVICE_FATAL",
            Self::PortErr => "IBV_EVENT_PORT_ERR",
            Self::SrqErr => "IBV_EVENT_SRQ_ERR",
            Self::CommEst
            | Self::SqDrained
            | Self::PortActive
            | Self::SrqLimitReached
            | Self::QpLastWqeReached
            | Self::GidChange => return None,
        })
    }
}

impl Core {
    /// Raises an event that reports no failure.
    pub(super) fn raise(&self, context: ContextId, event: AsyncEvent, object: AsyncObject) {
        debug_assert!(event.failure().is_none(), "{event:?} needs a cause");
        self.events.asynchronous(context, event, object);
    }

    /// Raises an event that reports a failure, and explains it. The cause is a sentence
    /// that names the object.
    #[cold]
    pub(super) fn raise_failure(
        &mut self,
        context: ContextId,
        event: AsyncEvent,
        object: AsyncObject,
        cause: &str,
    ) {
        self.explain_failure(event, cause);
        self.events.asynchronous(context, event, object);
    }

    /// Explains an event that reports a failure, for an event that goes to many contexts.
    pub(super) fn explain_failure(&mut self, event: AsyncEvent, cause: &str) {
        let name = event.failure().unwrap_or("event");
        let text = format!("{name}: {cause}");
        if let Some(trace) = &mut self.trace {
            trace.note(&text);
        }
        self.events.explain(&text);
    }
}

impl Qp {
    /// Raises an event that reports a failure of this QP.
    pub(super) fn raise_failure(&self, core: &mut Core, event: AsyncEvent, cause: &str) {
        let cause = format!("queue pair {:#x}: {cause}", self.qpn.0);
        let object = AsyncObject::Qp(self.spec.user_handle);
        core.raise_failure(self.spec.context, event, object, &cause);
    }

    /// Fails this QP at the end of the round.
    pub(super) fn fail_later(&self, core: &mut Core, cause: String) {
        core.failing.push(FailingQp {
            qpn: self.qpn.0,
            cause,
        });
    }
}

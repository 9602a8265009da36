//! Asynchronous events of a device: errors, limits, port changes.

use super::context::Context;
use super::cq::CqShared;
use super::device::Device;
use super::id::ObjectId;
use crate::error::{ControlError, clear_errno, last_errno};
use core::mem::MaybeUninit;
use dv_sys::event::{self, ibv_async_event};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// An asynchronous event of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// The kind of the event.
    pub kind: AsyncEventKind,
    /// The object of the event.
    pub source: AsyncSource,
}

/// The object of an [`AsyncEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncSource {
    /// A QP, by its id and its QP number.
    Qp(ObjectId, u32),
    /// A CQ.
    Cq(ObjectId),
    /// An SRQ.
    Srq(ObjectId),
    /// A port, by its number.
    Port(u8),
    /// The whole device, or an object that the engine did not create.
    Device,
}

/// The kind of an [`AsyncEvent`] (`enum ibv_event_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEventKind {
    /// A CQ overran or failed: its QPs do not work any more.
    CqError,
    /// A QP failed.
    QpFatal,
    /// A QP refused a request of its peer.
    QpRequestError,
    /// A QP refused an access of its peer.
    QpAccessError,
    /// The peer's first message arrived before RTS.
    Established,
    /// The send queue has drained.
    SendDrained,
    /// The last receive that a QP in ERR took from its SRQ has completed.
    LastReceive,
    /// An SRQ failed.
    SrqError,
    /// An SRQ has fewer receives left than its limit.
    SrqLimit,
    /// The device failed: nothing works any more.
    DeviceFatal,
    /// A port became active.
    PortActive,
    /// A port is not active any more.
    PortError,
    /// Addresses of a port changed (LID, GID, P_Key, subnet manager).
    PortAddress,
    /// Another event, by its number.
    Other(u32),
}

impl Device {
    /// Returns the descriptor that is readable when there are events.
    #[must_use]
    pub fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open until the context is closed, which the borrow prevents.
        unsafe { BorrowedFd::borrow_raw(self.context.async_fd()) }
    }

    /// Returns the events that are there now. Never blocks: wait on
    /// [`Device::async_fd`]. Each event is acknowledged when it is returned.
    #[must_use]
    pub fn async_events(&self) -> AsyncEvents {
        AsyncEvents {
            context: Arc::clone(&self.context),
        }
    }
}

/// An iterator over the present events of a device.
pub struct AsyncEvents {
    context: Arc<Context>,
}

impl Iterator for AsyncEvents {
    type Item = Result<AsyncEvent, ControlError>;

    fn next(&mut self) -> Option<Self::Item> {
        const OPERATION: &str = "read the device's events";
        if let Err(error) = self.context.require_here(OPERATION) {
            return Some(Err(error));
        }
        loop {
            let mut raw = MaybeUninit::<ibv_async_event>::uninit();
            clear_errno();
            // SAFETY: the context is open, and `raw` writable.
            let failed =
                unsafe { event::ibv_get_async_event(self.context.as_ptr(), raw.as_mut_ptr()) } != 0;
            if failed {
                match last_errno() {
                    libc::EAGAIN => return None,
                    libc::EINTR => continue,
                    errno => return Some(Err(ControlError::verbs(OPERATION, errno))),
                }
            }
            // SAFETY: the successful call has filled it in. Its objects live until
            // the acknowledgement, for which destroying an object waits.
            let event = unsafe {
                let event = describe(raw.assume_init_ref());
                event::ibv_ack_async_event(raw.as_mut_ptr());
                event
            };
            if matches!(event.source, AsyncSource::Port(_)) {
                self.context.forget_ports();
            }
            tracing::debug!(?event, "asynchronous event");
            return Some(Ok(event));
        }
    }
}

/// Converts an event.
///
/// # Safety
/// The event was read, and not yet acknowledged.
unsafe fn describe(raw: &ibv_async_event) -> AsyncEvent {
    let kind = kind_of(raw.event_type);
    let element = raw.element;
    // SAFETY: the type selects the valid member of the union, and the caller
    // promises that the object is alive. Its context is what the `create` functions
    // of this module set.
    let source = unsafe {
        match raw.event_type {
            event::IBV_EVENT_QP_FATAL
            | event::IBV_EVENT_QP_REQ_ERR
            | event::IBV_EVENT_QP_ACCESS_ERR
            | event::IBV_EVENT_COMM_EST
            | event::IBV_EVENT_SQ_DRAINED
            | event::IBV_EVENT_PATH_MIG
            | event::IBV_EVENT_PATH_MIG_ERR
            | event::IBV_EVENT_QP_LAST_WQE_REACHED => {
                ObjectId::from_context((*element.qp).qp_context)
                    .map(|id| AsyncSource::Qp(id, (*element.qp).qp_num))
            }
            event::IBV_EVENT_CQ_ERR => {
                let shared: *const CqShared = (*element.cq).cq_context.cast_const().cast();
                shared.as_ref().map(|shared| AsyncSource::Cq(shared.id))
            }
            event::IBV_EVENT_SRQ_ERR | event::IBV_EVENT_SRQ_LIMIT_REACHED => {
                ObjectId::from_context((*element.srq).srq_context).map(AsyncSource::Srq)
            }
            event::IBV_EVENT_PORT_ACTIVE
            | event::IBV_EVENT_PORT_ERR
            | event::IBV_EVENT_LID_CHANGE
            | event::IBV_EVENT_PKEY_CHANGE
            | event::IBV_EVENT_SM_CHANGE
            | event::IBV_EVENT_CLIENT_REREGISTER
            | event::IBV_EVENT_GID_CHANGE => {
                u8::try_from(element.port_num).ok().map(AsyncSource::Port)
            }
            _ => None,
        }
    };
    AsyncEvent {
        kind,
        source: source.unwrap_or(AsyncSource::Device),
    }
}

fn kind_of(event_type: event::ibv_event_type) -> AsyncEventKind {
    use AsyncEventKind as Kind;
    match event_type {
        event::IBV_EVENT_CQ_ERR => Kind::CqError,
        event::IBV_EVENT_QP_FATAL => Kind::QpFatal,
        event::IBV_EVENT_QP_REQ_ERR => Kind::QpRequestError,
        event::IBV_EVENT_QP_ACCESS_ERR => Kind::QpAccessError,
        event::IBV_EVENT_COMM_EST => Kind::Established,
        event::IBV_EVENT_SQ_DRAINED => Kind::SendDrained,
        event::IBV_EVENT_QP_LAST_WQE_REACHED => Kind::LastReceive,
        event::IBV_EVENT_SRQ_ERR => Kind::SrqError,
        event::IBV_EVENT_SRQ_LIMIT_REACHED => Kind::SrqLimit,
        event::IBV_EVENT_DEVICE_FATAL => Kind::DeviceFatal,
        event::IBV_EVENT_PORT_ACTIVE => Kind::PortActive,
        event::IBV_EVENT_PORT_ERR => Kind::PortError,
        event::IBV_EVENT_LID_CHANGE
        | event::IBV_EVENT_PKEY_CHANGE
        | event::IBV_EVENT_SM_CHANGE
        | event::IBV_EVENT_CLIENT_REREGISTER
        | event::IBV_EVENT_GID_CHANGE => Kind::PortAddress,
        other => Kind::Other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dv_sys::event::ibv_async_event_element;

    #[test]
    fn port_and_device_events_name_their_source() {
        let read = |event_type| {
            let element = ibv_async_event_element { port_num: 2 };
            // SAFETY: none of the types below names an object.
            unsafe {
                describe(&ibv_async_event {
                    element,
                    event_type,
                })
            }
        };
        let port = read(event::IBV_EVENT_PORT_ERR);
        assert_eq!(
            (port.kind, port.source),
            (AsyncEventKind::PortError, AsyncSource::Port(2))
        );
        let device = read(event::IBV_EVENT_DEVICE_FATAL);
        assert_eq!(device.source, AsyncSource::Device);
    }

    #[test]
    fn an_event_that_the_header_does_not_know_is_passed_on() {
        let element = ibv_async_event_element { port_num: 0 };
        // SAFETY: an unknown type names no object.
        let event = unsafe {
            describe(&ibv_async_event {
                element,
                event_type: 999,
            })
        };
        assert_eq!(
            (event.kind, event.source),
            (AsyncEventKind::Other(999), AsyncSource::Device)
        );
    }
}

//! Passing the device's asynchronous events to the objects of an IA.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use dat_engine::control::ObjectId;
use dat_engine::sync::Mutex;
use dat_engine::{AsyncEvent, AsyncEventKind, AsyncSource};

use super::Ia;
use crate::handle::Handle;
use crate::types::{AsyncKind, AsyncReason};

/// The owners of an IA's verbs objects, by ids that are never reused.
#[derive(Default)]
pub(super) struct Watch(Mutex<HashMap<ObjectId, Handle>>);

impl Watch {
    pub(super) fn insert(&self, id: ObjectId, owner: Handle) {
        self.0.lock().insert(id, owner);
    }

    pub(super) fn remove(&self, id: ObjectId) {
        self.0.lock().remove(&id);
    }

    fn get(&self, id: ObjectId) -> Option<Handle> {
        self.0.lock().get(&id).copied()
    }
}

/// Returns how an object's event is reported: the DAT event and its reason.
fn meaning(kind: AsyncEventKind) -> Option<(AsyncKind, AsyncReason)> {
    use AsyncEventKind as Device;
    match kind {
        Device::QpFatal | Device::QpRequestError | Device::QpAccessError => {
            Some((AsyncKind::EpBroken, AsyncReason::Failed))
        }
        // A CQ fails when it overflows, and its EVD is lost in any case.
        Device::CqError => Some((AsyncKind::EvdOverflow, AsyncReason::Failed)),
        // DAT has no number for it; the handle and the reason identify it.
        Device::SrqError => Some((AsyncKind::ProviderInternalError, AsyncReason::Failed)),
        _ => None,
    }
}

impl Ia {
    /// Handles an event of the device.
    pub(super) fn device_event(&self, event: AsyncEvent) {
        let id = match event.source {
            AsyncSource::Qp(id, _) | AsyncSource::Cq(id) | AsyncSource::Srq(id) => id,
            AsyncSource::Port(port) => {
                tracing::warn!(device = self.device.info().name, port, kind = ?event.kind, "port event");
                return;
            }
            AsyncSource::Device => {
                tracing::warn!(device = self.device.info().name, kind = ?event.kind, "device event");
                if event.kind == AsyncEventKind::DeviceFatal {
                    self.device_lost();
                }
                return;
            }
        };
        // Not watched: the object has been freed meanwhile.
        let Some(owner) = self.watch.get(id) else {
            return;
        };
        // The object handles the event before the consumer gets it, and may query the object.
        (owner.upcalls().device_event)(owner, event.kind);
        let meaning = match event.kind {
            // As other libraries of uDAPL 2.0 do: the endpoint takes no more receives of its SRQ.
            AsyncEventKind::LastReceive if self.provider.dapl_version_major >= 2 => {
                Some((AsyncKind::EpBroken, AsyncReason::Failed))
            }
            kind => meaning(kind),
        };
        if let Some((kind, reason)) = meaning {
            self.report(kind, owner, reason);
        }
    }

    /// Reports, once, that the device is gone or that its events cannot be read any more.
    pub(super) fn device_lost(&self) {
        if self.lost.swap(true, Ordering::Relaxed) {
            return;
        }
        self.report(AsyncKind::IaCatastrophic, self.handle, AsyncReason::Failed);
    }
}

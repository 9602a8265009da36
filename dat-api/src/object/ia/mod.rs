//! Interface adapters: an open port of a device, and everything made of it.

mod attributes;
mod children;

use core::net::SocketAddr;
use std::sync::Arc;

use dat_engine::control::ObjectId;
use dat_engine::{AsyncEventKind, Device};

use crate::error::Result;
use crate::handle::{Handle, Kind, Object, Reservation};
use crate::types::{AsyncKind, AsyncReason};

use self::children::Children;

pub use attributes::{
    EpCreator, IaAttributes, IaInfo, IovOwnership, NamedAttribute, ProviderAttributes, PzSupport,
};

/// What to open.
#[derive(Clone, Copy, Debug)]
pub struct OpenRequest<'a> {
    /// `DEVICE`, `DEVICE-PORT`, or an entry of dat.conf.
    pub name: &'a str,
    /// Events that a new asynchronous EVD holds at least.
    pub async_qlen: i32,
    /// Where asynchronous events go.
    pub async_evd: AsyncEvd,
    /// Whether calls on one object may come from several threads at a time.
    pub threadsafe: bool,
    /// DAT version that the caller wants: 1.
    pub major: u32,
    /// DAT version that the caller wants: 2.
    pub minor: u32,
}

/// Where the asynchronous events of an IA go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvd {
    /// To an EVD that is made for it.
    New,
    /// To this EVD, of this or another open IA of the same device.
    Existing(Handle),
    /// To the EVD of another open IA of the same device
    /// (`DAT_EVD_ASYNC_EXISTS`); logged if there is none.
    Elsewhere,
}

/// A hook for the events of an object; called on the IA's own thread, without
/// a lock, and possibly after the object is gone: it pins the handle.
pub(crate) type Hook = fn(Handle, AsyncEventKind);

/// An open interface adapter.
pub struct Ia {
    handle: Handle,
    device: Device,
    port: u8,
    gid_index: Option<u8>,
    threadsafe: bool,
    children: Children,
}

impl Ia {
    /// Opens an adapter. Also answers the new asynchronous EVD, if one was made.
    ///
    /// # Errors
    /// See section 5 table of errors in the crate's documentation.
    pub fn open(request: &OpenRequest<'_>) -> Result<(Arc<Self>, Option<Handle>)> {
        let _ = request;
        unimplemented!()
    }

    /// Closes an adapter.
    ///
    /// # Errors
    /// The handle names none. Graceful: objects made of it are left.
    pub fn close(handle: Handle, graceful: bool) -> Result<()> {
        let _ = (handle, graceful);
        unimplemented!()
    }

    /// Its name.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// The EVD that its asynchronous events go to, if that is known and lives.
    #[must_use]
    pub fn async_evd(&self) -> Option<Handle> {
        unimplemented!()
    }

    /// Everything that can be asked of it.
    #[must_use]
    pub fn query(&self) -> IaInfo {
        unimplemented!()
    }

    /// How its EVDs wait, unless they are made otherwise.
    #[must_use]
    pub fn wait_policy(&self) -> dat_engine::wait::WaitPolicy {
        unimplemented!()
    }

    /// Its device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The number of its port.
    #[must_use]
    pub fn port(&self) -> u8 {
        self.port
    }

    /// The GID that its connections are to use, if the configuration says.
    #[must_use]
    pub fn gid_index(&self) -> Option<u8> {
        self.gid_index
    }

    /// Whether several threads may call on one object at a time.
    #[must_use]
    pub fn is_threadsafe(&self) -> bool {
        self.threadsafe
    }

    /// Its address, which peers connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        unimplemented!()
    }

    /// Where that address lies as a `sockaddr`, for as long as the IA lives.
    #[must_use]
    pub fn local_address(&self) -> usize {
        unimplemented!()
    }

    /// Publishes an object made of this IA, to be ended with `abort` when the
    /// IA is closed abruptly. `abort` gets a handle that may be stale by then,
    /// ends the object whoever uses it, and does not return before it is gone.
    ///
    /// # Errors
    /// The IA is being closed; the object has not been published then.
    pub(crate) fn publish<T: Object>(
        &self,
        place: Reservation,
        object: &Arc<T>,
        abort: fn(Handle),
    ) -> Result<Handle> {
        self.children.publish(place, object, abort)
    }

    /// Publishes an object that does not keep the IA from being closed
    /// gracefully: a connection request, or what the provider made itself.
    ///
    /// # Errors
    /// As [`Ia::publish`].
    pub(crate) fn publish_own<T: Object>(
        &self,
        place: Reservation,
        object: &Arc<T>,
        abort: fn(Handle),
    ) -> Result<Handle> {
        self.children.publish_own(place, object, abort)
    }

    /// The object is being freed. Call it before the handle is retired.
    pub(crate) fn unregister(&self, handle: Handle) {
        self.children.remove(handle);
    }

    /// The device's events of a QP: its errors are reported as
    /// [`AsyncKind::EpBroken`] of `ep`, and every event is passed to the hook.
    pub(crate) fn watch_qp(&self, qp: ObjectId, ep: Handle, hook: Hook) {
        let _ = (qp, ep, hook);
        unimplemented!()
    }

    /// The device's events of an SRQ: its error is reported, its limit event
    /// only passed to the hook, as every event.
    pub(crate) fn watch_srq(&self, srq: ObjectId, handle: Handle, hook: Hook) {
        let _ = (srq, handle, hook);
        unimplemented!()
    }

    /// The device's events of a CQ: its error is reported as
    /// [`AsyncKind::EvdOverflow`] of `evd`, and passed to the hook.
    pub(crate) fn watch_cq(&self, cq: ObjectId, evd: Handle, hook: Hook) {
        let _ = (cq, evd, hook);
        unimplemented!()
    }

    /// The verbs object is going away.
    pub(crate) fn unwatch(&self, id: ObjectId) {
        let _ = id;
        unimplemented!()
    }

    /// Posts an asynchronous event, from any thread. If the asynchronous EVD
    /// has no room, or there is none, the event is logged.
    pub(crate) fn report(&self, kind: AsyncKind, handle: Handle, reason: AsyncReason) {
        let _ = (kind, handle, reason);
        unimplemented!()
    }
}

impl Object for Ia {
    const KIND: Kind = Kind::Ia;
}

impl core::fmt::Debug for Ia {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Ia")
            .field("handle", &self.handle)
            .field("device", &self.device)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

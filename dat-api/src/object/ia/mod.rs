//! Interface adapters: an open port of a device, and the objects created on it.
//!
//! | file | content |
//! | --- | --- |
//! | `open.rs`, `close.rs` | opening and closing: the part of `object/adapter.rs` that uses no EVD |
//! | `children.rs` | the objects of an IA, for closing it |
//! | `attributes.rs`, `describe.rs`, `limits.rs` | its attributes |
//! | `rules.rs` | what options, device and connection manager decide for its objects |
//! | `transport.rs` | the options of its connections |
//! | `service_points.rs` | its service points by qualifier |
//! | `reports.rs` | where asynchronous events go |
//! | `watch.rs` | passing the device's events to objects |
//! | `service.rs` | the thread that takes the device's events |
//! | `cm.rs` | the connection managers of the process, and which one is used |

pub mod attributes;
mod children;
#[allow(unsafe_code)]
mod close;
mod cm;
mod describe;
mod limits;
mod open;
mod reports;
mod rules;
mod service;
mod service_points;
mod transport;
mod watch;

use core::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dat_engine::Device;
use dat_engine::cm::{DeviceWatch, Local, Manager};
use dat_engine::control::ObjectId;

use crate::error::{DatError, Result};
use crate::handle::{self, Handle, Object, Reservation, Upcalls};
use crate::object::counters::Counters;
use crate::object::of_another_ia;
use crate::object::peer::PeerAddress;
use crate::status::{ReturnType, Subtype};
use crate::types::{AsyncKind, AsyncReason};
use dat_engine::sync::Mutex;

use self::children::Children;
use self::cm::SharedManager;
use self::reports::Reports;
use self::service::Service;
use self::service_points::ServicePoints;
use self::watch::Watch;

pub use attributes::{
    EpCreator, IaAttributes, IaInfo, IovOwnership, NamedAttribute, ProviderAttributes, PzSupport,
};
pub(super) use close::in_use;
pub(crate) use limits::MAX_LMRS;
pub use limits::MAX_SEGMENTS;
#[cfg(test)]
pub(crate) use limits::small_adapter;
pub use open::{AsyncEvd, OpenRequest};
pub(crate) use reports::AsyncStream;
pub(crate) use rules::EMPTY;
pub use rules::{Conformance, Rules};

/// An open interface adapter.
pub struct Ia {
    handle: Handle,
    /// The process that opened it: see [`Ia::require_here`].
    process: u32,
    device: Device,
    rules: Rules,
    provider: ProviderAttributes,
    /// The device and port of its listeners and connections.
    local: Local,
    local_address: PeerAddress,
    cm: Arc<SharedManager>,
    children: Children,
    service_points: ServicePoints,
    reports: Reports,
    watch: Watch,
    service: Mutex<Option<Service>>,
    device_watch: Mutex<Option<DeviceWatch>>,
    /// Whether the loss of the device was reported.
    lost: AtomicBool,
}

impl Ia {
    /// The functions that objects in lower modules call.
    pub(super) const UPCALLS: Upcalls = Upcalls {
        counters: |ia| Some(handle::pin::<Self>(ia)?.counters()),
        ..Upcalls::NONE
    };

    /// Returns its handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns the EVD that its asynchronous events go to, if it is known and live.
    #[must_use]
    pub fn async_evd(&self) -> Option<Handle> {
        self.reports.evd()
    }

    /// Returns its attributes and those of the library.
    #[must_use]
    pub fn query(&self) -> IaInfo {
        IaInfo {
            async_evd: self.async_evd(),
            ia: self.rules.limits.clone(),
            provider: self.provider.clone(),
        }
    }

    /// Refuses a call that needs shared receive queues on a device without them.
    ///
    /// # Errors
    /// `DAT_MODEL_NOT_SUPPORTED`.
    pub fn require_srqs(&self) -> Result<()> {
        if self.rules.limits.max_srqs > 0 {
            return Ok(());
        }
        Err(DatError::new(
            ReturnType::ModelNotSupported,
            Subtype::NoSubtype,
            format!(
                "{} has no shared receive queues (max_srq = 0): create endpoints with receive queues of their \
                 own",
                self.device.info().name
            ),
        ))
    }

    /// Returns the rules for its objects, which do not change while it is open.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns its device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns its address, which peers connect to. The port is 0: qualifiers take its place.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.rules.limits.ia_address
    }

    /// Returns the address of that address as a `sockaddr`, which lives as long as the IA.
    #[must_use]
    pub fn local_address(&self) -> usize {
        self.local_address.address()
    }

    /// Returns the connection manager, which all IAs of a process with the same kind share.
    pub(crate) fn cm(&self) -> &Manager {
        self.cm.manager()
    }

    /// Checks that requests and events of connections may go to the EVD: it belongs to this IA, or
    /// to another open of the same adapter, unless that is against the rules.
    ///
    /// # Errors
    /// The cause.
    pub(crate) fn check_connection_evd(
        &self,
        evd_ia: &Self,
        rules: &Conformance,
    ) -> core::result::Result<(), String> {
        if core::ptr::eq(self, evd_ia) {
            return Ok(());
        }
        let adapter = |ia: &Self| (ia.device().info().name.clone(), ia.rules.connect.port);
        let (own, other) = (adapter(self), adapter(evd_ia));
        if own != other {
            return Err(format!(
                "the EVD belongs to another adapter, {} port {}: expected one of {} port {}",
                other.0, other.1, own.0, own.1
            ));
        }
        match rules.takes_evds_of_other_opens {
            true => Ok(()),
            false => Err(of_another_ia("EVD", evd_ia, self)),
        }
    }

    /// Returns the device and port of its listeners and connections.
    pub(crate) fn local(&self) -> &Local {
        &self.local
    }

    /// Publishes an object of this IA. An abrupt close of the IA calls the object's `abort`.
    ///
    /// # Errors
    /// The IA is being closed; the object has not been published.
    pub(crate) fn publish<T: Object>(&self, place: Reservation, object: &Arc<T>) -> Result<Handle> {
        self.children.publish(place, object, true)
    }

    /// Publishes an object that does not keep the IA from being closed gracefully: a connection
    /// request, or one that the provider created.
    ///
    /// # Errors
    /// As [`Ia::publish`].
    pub(crate) fn publish_own<T: Object>(
        &self,
        place: Reservation,
        object: &Arc<T>,
    ) -> Result<Handle> {
        self.children.publish(place, object, false)
    }

    /// Gives an object of the provider to the consumer: from now on it keeps the IA from being
    /// closed gracefully.
    pub(crate) fn adopt(&self, handle: Handle) {
        self.children.set_owner(handle, true);
    }

    /// Stops an object of the consumer from keeping the IA open.
    pub(crate) fn disown(&self, handle: Handle) {
        self.children.set_owner(handle, false);
    }

    /// Returns where its asynchronous events go.
    pub(super) fn reports(&self) -> &Reports {
        &self.reports
    }

    pub(crate) fn service_points(&self) -> &ServicePoints {
        &self.service_points
    }

    /// Removes an object that is being freed. Must be called before the handle is retired.
    pub(crate) fn unregister(&self, handle: Handle) {
        self.children.remove(handle);
    }

    /// Copies payload that the device has left in CQEs to the consumer's memory.
    pub(crate) fn copy_payloads(&self) {
        for evd in self.children.evds() {
            (evd.upcalls().copy_payloads)(evd);
        }
    }

    /// Warns of each endpoint whose requests wait and of which none has completed since the last
    /// call. The IA's thread calls this every 10 s, if warnings are printed and RNR retries have no
    /// bound.
    pub fn warn_of_stalled_requests(&self) {
        for ep in self.children.endpoints() {
            (ep.upcalls().check_progress)(ep);
        }
    }

    /// Returns the name that it was opened by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.rules.limits.adapter_name
    }

    /// Returns the sum of the counters of all objects that it has and had.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.children.counters()
    }

    /// Passes the device's events of a verbs object to `owner`, and then reports errors among them
    /// as asynchronous events: of a QP as [`AsyncKind::EpBroken`], of an SRQ as
    /// [`AsyncKind::ProviderInternalError`], of a CQ as [`AsyncKind::EvdOverflow`].
    pub(crate) fn watch(&self, id: ObjectId, owner: Handle) {
        self.watch.insert(id, owner);
    }

    /// Stops watching a verbs object that is about to be destroyed.
    pub(crate) fn unwatch(&self, id: ObjectId) {
        self.watch.remove(id);
    }

    /// Posts an asynchronous event, from any thread. If the asynchronous EVD is full, or there is
    /// none, the event is logged.
    pub(crate) fn report(&self, kind: AsyncKind, handle: Handle, reason: AsyncReason) {
        reports::report(self, kind, handle, reason);
    }

    /// Refuses calls in a process that did not open the IA: its threads and connections are the
    /// parent's.
    pub(super) fn require_here(&self) -> Result<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(DatError::new(
            ReturnType::InvalidHandle,
            Subtype::InvalidHandleIa,
            format!(
                "the IA was opened by process {}, of which this is a fork; open one in this process",
                self.process
            ),
        ))
    }
}

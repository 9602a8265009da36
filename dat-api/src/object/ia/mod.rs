//! Interface adapters: an open port of a device, and everything made of it.
//!
//! | file | what |
//! | --- | --- |
//! | `open.rs`, `close.rs` | making and ending one: the part of `object/adapter.rs` that knows no EVD |
//! | `children.rs` | the objects made of an IA, for closing it |
//! | `attributes.rs`, `describe.rs`, `offer.rs`, `limits.rs` | what it can do |
//! | `doors.rs` | its service points by qualifier |
//! | `reports.rs` | where asynchronous events go |
//! | `watch.rs` | what the device's events mean to the objects |
//! | `service.rs` | the thread that takes the device's events |
//! | `cm.rs` | the connection managers of the process, and which one to use |

pub mod attributes;
mod children;
#[allow(unsafe_code)]
mod close;
mod cm;
mod describe;
mod doors;
mod limits;
mod offer;
mod open;
mod reports;
mod service;
mod watch;

use core::fmt;
use core::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dat_engine::Device;
use dat_engine::cm::{DeviceWatch, Local, Manager};
use dat_engine::control::ObjectId;
use dat_engine::wait::WaitPolicy;

use crate::error::{DatError, Result};
use crate::handle::{self, Handle, Object, Reservation, Upcalls};
use crate::object::counters::Counters;
use crate::object::peer::PeerAddress;
use crate::options::Options;
use crate::status::{ReturnType, Subtype};
use crate::types::{AsyncKind, AsyncReason};
use dat_engine::sync::Mutex;

use self::children::Children;
use self::cm::SharedManager;
use self::doors::Doors;
use self::reports::Reports;
use self::service::Service;
use self::watch::Watch;

pub use attributes::{
    EpCreator, IaAttributes, IaInfo, IovOwnership, NamedAttribute, ProviderAttributes, PzSupport,
};
pub(super) use close::in_use;
pub(crate) use limits::MAX_LMRS;
pub use limits::MAX_SEGMENTS;
pub use offer::Offer;
#[cfg(test)]
pub(crate) use offer::small_adapter;
pub use open::{AsyncEvd, OpenRequest};
pub(crate) use reports::AsyncStream;

/// An open interface adapter.
pub struct Ia {
    handle: Handle,
    /// The process that opened it: see [`Ia::require_here`].
    process: u32,
    /// As it was opened by.
    name: String,
    device: Device,
    port: u8,
    options: Options,
    threadsafe: bool,
    /// What its listeners and connections are of.
    local: Local,
    address: SocketAddr,
    local_address: PeerAddress,
    attributes: (IaAttributes, ProviderAttributes),
    cm: Arc<SharedManager>,
    children: Children,
    doors: Doors,
    reports: Reports,
    watch: Watch,
    service: Mutex<Option<Service>>,
    device_watch: Mutex<Option<DeviceWatch>>,
    /// Whether it was reported that the device is gone.
    lost: AtomicBool,
}

impl Ia {
    /// What objects below it call.
    pub(super) const UPCALLS: Upcalls = Upcalls {
        counters: |ia| Some(handle::pin::<Self>(ia)?.counters()),
        ..Upcalls::NONE
    };

    /// Its name.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// The EVD that its asynchronous events go to, if that is known and lives.
    #[must_use]
    pub fn async_evd(&self) -> Option<Handle> {
        self.reports.evd()
    }

    /// Everything that can be asked of it.
    #[must_use]
    pub fn query(&self) -> IaInfo {
        let (ia, provider) = self.attributes.clone();
        IaInfo {
            async_evd: self.async_evd(),
            ia,
            provider,
        }
    }

    /// What it can do. Does not change while it is open.
    #[must_use]
    pub fn attributes(&self) -> &IaAttributes {
        &self.attributes.0
    }

    /// Refuses a call that needs shared receive queues where there are none.
    ///
    /// # Errors
    /// `DAT_MODEL_NOT_SUPPORTED`.
    pub fn require_srqs(&self) -> Result<()> {
        if self.device.limits().srqs > 0 {
            return Ok(());
        }
        Err(DatError::new(
            ReturnType::ModelNotSupported,
            Subtype::NoSubtype,
            format!(
                "{} has no shared receive queues (max_srq = 0); give endpoints receives of their \
                 own",
                self.device.info().name
            ),
        ))
    }

    /// How its threads wait for events, unless an EVD has a policy of its own.
    #[must_use]
    pub fn wait_policy(&self) -> WaitPolicy {
        self.options.wait
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
        self.options.gid
    }

    /// Whether several threads may call on one object at a time.
    #[must_use]
    pub fn is_threadsafe(&self) -> bool {
        self.threadsafe
    }

    /// Its address, which peers connect to. The port is 0: qualifiers say it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where that address lies as a `sockaddr`, for as long as the IA lives.
    #[must_use]
    pub fn local_address(&self) -> usize {
        self.local_address.address()
    }

    /// The connection manager; all IAs of a process that use its kind share one.
    pub(crate) fn cm(&self) -> &Manager {
        self.cm.manager()
    }

    /// Most bytes of private data that its requests and answers carry.
    pub(crate) fn max_private_data(&self) -> usize {
        self.cm().max_private_data(self.device.info().transport)
    }

    /// What its listeners and connections are of.
    pub(crate) fn local(&self) -> &Local {
        &self.local
    }

    /// Publishes an object made of this IA, to be ended with its `abort` when the
    /// IA is closed abruptly.
    ///
    /// # Errors
    /// The IA is being closed; the object has not been published then.
    pub(crate) fn publish<T: Object>(&self, place: Reservation, object: &Arc<T>) -> Result<Handle> {
        self.children.publish(place, object)
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
    ) -> Result<Handle> {
        self.children.publish_own(place, object)
    }

    /// An object that the provider made is the consumer's now: it keeps the IA
    /// from being closed gracefully.
    pub(crate) fn adopt(&self, handle: Handle) {
        self.children.set_owner(handle, true);
    }

    /// An object of the consumer keeps the IA from being closed no more.
    pub(crate) fn disown(&self, handle: Handle) {
        self.children.set_owner(handle, false);
    }

    /// Where its asynchronous events go.
    pub(super) fn reports(&self) -> &Reports {
        &self.reports
    }

    /// Its service points.
    pub(crate) fn doors(&self) -> &Doors {
        &self.doors
    }

    /// The object is being freed. Call it before the handle is retired.
    pub(crate) fn unregister(&self, handle: Handle) {
        self.children.remove(handle);
    }

    /// What the device has done with the consumer's memory is done there when
    /// this returns, not only in completions that nobody has looked at.
    pub(crate) fn bring_payloads(&self) {
        for evd in self.children.evds() {
            (evd.upcalls().bring_payloads)(evd);
        }
    }

    /// As it was opened by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The sum of the counters of all objects that it has and had.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.children.counters()
    }

    /// Passes the device's events of a verbs object to `owner`, and then reports
    /// errors among them as its own: of a QP as [`AsyncKind::EpBroken`], of an SRQ as
    /// [`AsyncKind::ProviderInternalError`], of a CQ as [`AsyncKind::EvdOverflow`].
    pub(crate) fn watch(&self, id: ObjectId, owner: Handle) {
        self.watch.insert(id, owner);
    }

    /// The verbs object is going away.
    pub(crate) fn unwatch(&self, id: ObjectId) {
        self.watch.remove(id);
    }

    /// Posts an asynchronous event, from any thread. If the asynchronous EVD
    /// has no room, or there is none, the event is logged.
    pub(crate) fn report(&self, kind: AsyncKind, handle: Handle, reason: AsyncReason) {
        reports::report(self, kind, handle, reason);
    }

    /// Refuses calls in a process that did not open the IA: the threads and
    /// the connections are the parent's.
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

impl fmt::Debug for Ia {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ia")
            .field("handle", &self.handle)
            .field("name", &self.name)
            .field("device", &self.device)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

/// The handle names no IA.
pub(super) fn stale() -> DatError {
    DatError::new(
        ReturnType::InvalidHandle,
        Subtype::InvalidHandleIa,
        "the handle names no open IA",
    )
}

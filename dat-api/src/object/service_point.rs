//! What public and reserved service points have in common: connection requests arrive, and each
//! becomes an event.
//!
//! Requests come from the connection manager, or from another service point of the same IA that
//! hands one off. Both take the lock of the service point, and closing waits for them: a request
//! that races with the close is either announced completely or refused.
//!
//! Decision: `docs/decisions/041-service-points-accept-under-a-lock.md`

use std::sync::Arc;

use dat_engine::cm::{CmError, ListenSink, Listener, Request};
use dat_engine::memory::{self, NoMemory};

use super::cr::{Cr, RequestEndpoint};
use super::ep::{Ep, manager_error};
use super::evd::{Claim, Evd, StreamGuard, StreamKind};
use super::ia::Ia;
use super::usage::Use;
use crate::error::{DatError, Result};
use crate::handle::Handle;
use crate::status::{ReturnType, Subtype};
use crate::types::EventData;
use dat_engine::sync::Mutex;

/// Where the endpoint of a request comes from.
pub(super) enum EndpointSource {
    /// The consumer names one when it accepts.
    Consumer,
    /// The provider creates one for each request.
    Provider,
    /// The service point takes one request, for this endpoint.
    Reserved(Use<Ep>),
    /// The service point takes one request, and the provider creates its endpoint.
    Once,
}

impl EndpointSource {
    fn is_for_one(&self) -> bool {
        matches!(self, Self::Reserved(_) | Self::Once)
    }
}

pub(crate) struct ServicePoint {
    point: Handle,
    ia: Arc<Ia>,
    /// `None` once it is closed.
    open: Mutex<Option<Listening>>,
}

struct Listening {
    source: EndpointSource,
    stream: StreamGuard,
    /// The qualifier that it listens on; 0 until that is known.
    qualifier: u64,
    /// `None` until it listens.
    listener: Option<Listener>,
}

impl ListenSink for ServicePoint {
    fn request(&self, request: Request) {
        let mut place = Some(request);
        if memory::is_short() {
            tracing::warn!("a connection request was refused: {NoMemory}");
            return;
        }
        if let Err(error) = self.accept_request(&mut place) {
            tracing::debug!("a connection request was refused: {error}");
        }
        // Dropping a request rejects it, but not as the peer's consumer.
        drop(place);
    }
}

impl ServicePoint {
    /// Listens on a qualifier, or on one that is not in use on this host, for the service point
    /// with this handle. Also returns the qualifier.
    pub(super) fn open(
        point: Handle,
        ia: &Arc<Ia>,
        qualifier: Option<u64>,
        evd: &Arc<Evd>,
        source: EndpointSource,
    ) -> Result<(Arc<Self>, u64)> {
        if qualifier == Some(0) {
            return Err(DatError::new(
                ReturnType::InvalidParameter,
                Subtype::InvalidArg2,
                "connection qualifier 0 is reserved: use 1 or more",
            ));
        }
        ia.check_connection_evd(evd.ia(), &ia.rules().conformance)
            .map_err(|cause| {
                DatError::new(
                    ReturnType::InvalidHandle,
                    Subtype::InvalidHandleEvdCr,
                    cause,
                )
            })?;
        let point = Arc::new(Self {
            point,
            ia: Arc::clone(ia),
            open: Mutex::new(Some(Listening {
                source,
                stream: evd.attach(StreamKind::Cr)?,
                qualifier: qualifier.unwrap_or(0),
                listener: None,
            })),
        });
        let (manager, local) = (ia.cm(), ia.local());
        let listening = match qualifier {
            Some(qualifier) => manager
                .listen(local, qualifier, point.clone())
                .map(|listener| (listener, qualifier))
                .map_err(|error| {
                    let error = manager_error(&error);
                    let cause = format!("connection qualifier {qualifier}: {}", error.cause());
                    DatError::explained(error.code(), cause)
                }),
            None => manager
                .listen_any(local, point.clone())
                .map_err(|error| match error {
                    CmError::InUse => DatError::new(
                        ReturnType::ConnQualUnavailable,
                        Subtype::NoSubtype,
                        "no free connection qualifier is left on this host: free unused service points",
                    ),
                    error => manager_error(&error),
                }),
        };
        let (listener, qualifier) = listening?;
        ia.service_points().insert(qualifier, &point);
        // The one request of a reserved point may have come already.
        let mut late = Some(listener);
        if let Some(open) = &mut *point.open.lock() {
            open.qualifier = qualifier;
            open.listener = late.take();
        }
        drop(late);
        Ok((point, qualifier))
    }

    /// Announces a request and removes it from `place`. A request that is refused stays there,
    /// unless its IA is being closed.
    pub(super) fn accept_request(&self, place: &mut Option<Request>) -> Result<()> {
        let mut open = self.open.lock();
        let listening = open.as_ref().ok_or_else(no_listener)?;
        let room = listening.stream.evd().claim().ok_or_else(full)?;
        match &listening.source {
            EndpointSource::Consumer => self.announce(room, place, None)?,
            EndpointSource::Provider | EndpointSource::Once => {
                let request = place.as_ref().ok_or_else(no_listener)?;
                let ep = Ep::create_tentative(&self.ia, request)?.handle();
                self.announce(room, place, Some(RequestEndpoint::Created(ep)))
                    // SAFETY: no event has named the endpoint yet.
                    .inspect_err(|_| unsafe { Ep::abort(ep) })?;
            }
            EndpointSource::Reserved(ep) => ep.arc().request_arrived(place, |place| {
                let request_ep = RequestEndpoint::Reserved(ep.handle());
                self.announce(room, place, Some(request_ep))
            })?,
        }
        let spent = if listening.source.is_for_one() {
            self.ia.disown(self.point);
            open.take()
        } else {
            None
        };
        drop(open);
        // Stops listening.
        drop(spent);
        Ok(())
    }

    /// Creates the connection request and posts its event. Room for the event was reserved before,
    /// so the post cannot fail after the request is created.
    fn announce(
        &self,
        room: Claim<'_>,
        place: &mut Option<Request>,
        request_ep: Option<RequestEndpoint>,
    ) -> Result<()> {
        let qualifier = place.as_ref().ok_or_else(no_listener)?.qualifier();
        let cr = Cr::create(&self.ia, place, request_ep)?;
        room.fill(EventData::ConnectionRequest {
            sp: self.point,
            local_address: self.ia.local_address(),
            qualifier,
            cr: cr.handle(),
        });
        Ok(())
    }

    /// Closes the service point, and waits for a request that is just arriving. Returns the
    /// reserved endpoint, if its request has not come.
    pub(super) fn close(&self) -> Option<Use<Ep>> {
        let Listening {
            source,
            stream,
            listener,
            ..
        } = self.open.lock().take()?;
        // Without the lock: dropping it waits for the connection manager, which may wait for the
        // lock.
        drop(listener);
        drop(stream);
        match source {
            EndpointSource::Reserved(ep) => Some(ep),
            _ => None,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.open.lock().is_none()
    }
}

impl Cr {
    /// Hands the request to the service point of the same IA that listens on another qualifier,
    /// where it arrives as if it had been for that one. An endpoint of the request is treated as in
    /// [`Cr::reject`].
    ///
    /// # Errors
    /// `INVALID_HANDLE`; `INVALID_PARAMETER` if no service point listens there;
    /// `INSUFFICIENT_RESOURCES` if it has no room for a request, or no endpoint can be created for
    /// it. The request can still be answered then.
    pub fn hand_off(handle: Handle, qualifier: u64) -> Result<()> {
        Self::pass_on(handle, |ia, place| {
            let found = ia.service_points().find(qualifier);
            let point = found.and_then(|found| found.downcast::<ServicePoint>().ok());
            let point = point.ok_or_else(no_listener)?;
            let request = place.as_mut().ok_or_else(no_listener)?;
            let before = request.qualifier();
            request.hand_off(qualifier);
            point.accept_request(place).inspect_err(|_| {
                if let Some(request) = place {
                    request.hand_off(before);
                }
            })
        })
    }
}

/// The error if the EVD has no room: its length is the backlog.
fn full() -> DatError {
    DatError::new(
        ReturnType::InsufficientResources,
        Subtype::ResourceMemory,
        "the EVD of the service point is full: dequeue requests faster, or create it longer",
    )
}

/// The error if no service point listens.
fn no_listener() -> DatError {
    DatError::new(
        ReturnType::InvalidParameter,
        Subtype::InvalidArg2,
        "no service point of this IA listens on the qualifier: expected that of another PSP or RSP \
         of the IA",
    )
}

//! Service points and connection requests.

use core::mem;
use std::sync::Arc;

use super::{Adapter, Endpoint, EndpointOptions, EventDispatcher, GivenBack, ProtectionZone};
use crate::error::{DatError, Result};
use crate::handle::{self, Handle};
use crate::object::cr::Cr;
use crate::object::ep::{Ep, EpChange, EpFields};
use crate::object::psp::{EpCreator, Psp};
use crate::object::rsp::Rsp;
use crate::status::{ReturnType, Subtype};
use crate::types::{Event, EventData};

/// A service point: it listens for connection requests on a qualifier. Dropping it stops listening;
/// requests that have arrived can still be answered.
#[derive(Debug)]
pub struct ServicePoint {
    psp: Arc<Psp>,
    _events: EventDispatcher,
}

impl Adapter {
    /// Listens on a qualifier; requests are reported to `events`.
    ///
    /// # Errors
    /// `DAT_CONN_QUAL_IN_USE`; a dispatcher created without [`EvdFlags::CR`](crate::types::EvdFlags::CR).
    pub fn listen(&self, qualifier: u64, events: &EventDispatcher) -> Result<ServicePoint> {
        let psp = Psp::create(self.ia(), qualifier, &events.evd()?, EpCreator::Consumer)?;
        Ok(ServicePoint {
            psp,
            _events: events.clone(),
        })
    }

    /// Listens on a free qualifier, which [`ServicePoint::qualifier`] returns.
    ///
    /// # Errors
    /// None is free; a dispatcher created without [`EvdFlags::CR`](crate::types::EvdFlags::CR).
    pub fn listen_any(&self, events: &EventDispatcher) -> Result<ServicePoint> {
        let psp = Psp::create_any(self.ia(), &events.evd()?, EpCreator::Consumer)?;
        Ok(ServicePoint {
            psp,
            _events: events.clone(),
        })
    }
}

/// A service point for one request and one endpoint. Dropping it stops listening; a request that
/// has arrived can still be answered.
#[derive(Debug)]
pub struct ReservedServicePoint {
    rsp: Arc<Rsp>,
    _events: EventDispatcher,
}

impl Adapter {
    /// As [`Adapter::listen`], but creates an endpoint for each request, for
    /// [`ConnectionRequest::accept_with`].
    ///
    /// # Errors
    /// As [`Adapter::listen`].
    pub fn listen_with_endpoints(
        &self,
        qualifier: u64,
        events: &EventDispatcher,
    ) -> Result<ServicePoint> {
        let psp = Psp::create(self.ia(), qualifier, &events.evd()?, EpCreator::Provider)?;
        Ok(ServicePoint {
            psp,
            _events: events.clone(),
        })
    }

    /// Listens for one request on a qualifier, which only this endpoint can accept, by
    /// [`ConnectionRequest::accept_reserved`]. The endpoint cannot be used for anything else
    /// meanwhile.
    ///
    /// # Errors
    /// The endpoint is connected, connecting or reserved already, or as [`Adapter::listen`].
    pub fn reserve(
        &self,
        qualifier: u64,
        endpoint: &mut Endpoint,
        events: &EventDispatcher,
    ) -> Result<ReservedServicePoint> {
        self.wait_for_one(qualifier, Some(endpoint.ep()), events)
    }

    /// Listens for one request on a qualifier, and creates an endpoint for it, for
    /// [`ConnectionRequest::accept_with`].
    ///
    /// # Errors
    /// As [`Adapter::listen`].
    pub fn listen_once(
        &self,
        qualifier: u64,
        events: &EventDispatcher,
    ) -> Result<ReservedServicePoint> {
        self.wait_for_one(qualifier, None, events)
    }

    fn wait_for_one(
        &self,
        qualifier: u64,
        ep: Option<&Arc<Ep>>,
        events: &EventDispatcher,
    ) -> Result<ReservedServicePoint> {
        let rsp = Rsp::create(self.ia(), qualifier, ep, &events.evd()?)?;
        Ok(ReservedServicePoint {
            rsp,
            _events: events.clone(),
        })
    }
}

impl ReservedServicePoint {
    /// Returns its DAT handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.rsp.handle()
    }

    /// Returns the qualifier that it listens on.
    #[must_use]
    pub fn qualifier(&self) -> u64 {
        self.rsp.query().qualifier
    }
}

impl Drop for ReservedServicePoint {
    fn drop(&mut self) {
        // Fails only if the adapter was closed, which has freed it.
        let _ = Rsp::free(self.rsp.handle());
    }
}

impl ServicePoint {
    /// Returns its DAT handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.psp.handle()
    }

    /// Returns the qualifier that it listens on.
    #[must_use]
    pub fn qualifier(&self) -> u64 {
        self.psp.query().qualifier
    }
}

impl Drop for ServicePoint {
    fn drop(&mut self) {
        // Fails only if the adapter was closed, which has freed it.
        let _ = Psp::free(self.psp.handle());
    }
}

/// A connection request of a peer. Dropping it unanswered rejects it.
#[derive(Debug)]
#[must_use = "a request that is dropped is rejected"]
pub struct ConnectionRequest {
    handle: Handle,
}

impl ConnectionRequest {
    /// Returns the request that an event carries, if it carries one.
    #[must_use]
    pub fn from_event(event: &Event) -> Option<Self> {
        match event.data {
            EventData::ConnectionRequest { cr, .. } => Some(Self { handle: cr }),
            _ => None,
        }
    }

    /// Returns the private data of the peer; empty if the request is gone.
    #[must_use]
    pub fn private_data(&self) -> Vec<u8> {
        handle::pin::<Cr>(self.handle).map_or_else(Vec::new, |cr| cr.private_data().to_vec())
    }

    /// Connects it with an unconnected endpoint, and sends private data to the peer. An event of
    /// the endpoint reports the result.
    ///
    /// # Errors
    /// The endpoint cannot be used for it, the private data are too long, or the request was
    /// answered through a copy of the event. The error has the request, which can still be
    /// answered.
    pub fn accept(
        self,
        endpoint: &mut Endpoint,
        private_data: &[u8],
    ) -> Result<(), GivenBack<Self>> {
        self.answer(|cr| Cr::accept(cr, Some(endpoint.handle()), private_data))
    }

    /// Connects it with the endpoint that was reserved for it.
    ///
    /// # Errors
    /// No endpoint was reserved, or it is gone; otherwise as [`Self::accept`].
    pub fn accept_reserved(self, private_data: &[u8]) -> Result<(), GivenBack<Self>> {
        self.answer(|cr| Cr::accept(cr, None, private_data))
    }

    /// Connects it with the endpoint that was created for it, which gets this zone and these
    /// dispatchers, and attributes if there are some.
    ///
    /// # Errors
    /// No endpoint was created for the request, or it was answered before; the options name a
    /// shared queue, which such an endpoint cannot use; otherwise as
    /// [`ProtectionZone::create_endpoint`] and [`Self::accept`].
    pub fn accept_with(
        self,
        zone: &ProtectionZone,
        options: &EndpointOptions<'_>,
        private_data: &[u8],
    ) -> Result<Endpoint, GivenBack<Self>> {
        self.answer(|cr| accept_with(cr, zone, options, private_data))
    }

    /// Hands it to the service point of the same adapter that listens on another qualifier, where
    /// it arrives as a new request.
    ///
    /// # Errors
    /// No service point listens there, or it has no room. The error has the request, which can
    /// still be answered here.
    pub fn hand_off(self, qualifier: u64) -> Result<(), GivenBack<Self>> {
        self.answer(|cr| Cr::hand_off(cr, qualifier))
    }

    /// Rejects it.
    pub fn reject(self) {}

    /// Answers it by this call. If the call fails, the request is in the error.
    fn answer<T>(self, call: impl FnOnce(Handle) -> Result<T>) -> Result<T, GivenBack<Self>> {
        match call(self.handle) {
            Ok(answered) => {
                mem::forget(self);
                Ok(answered)
            }
            Err(error) => Err(GivenBack { error, value: self }),
        }
    }
}

impl Drop for ConnectionRequest {
    fn drop(&mut self) {
        // Fails only if it was answered through a copy of the event, or the adapter was closed.
        let _ = Cr::reject(self.handle, &[]);
    }
}

/// [`ConnectionRequest::accept_with`], for the request of this handle.
fn accept_with(
    cr: Handle,
    zone: &ProtectionZone,
    options: &EndpointOptions<'_>,
    private_data: &[u8],
) -> Result<Endpoint> {
    let bad = |cause| DatError::new(ReturnType::InvalidHandle, Subtype::InvalidHandleCr, cause);
    let request = handle::pin::<Cr>(cr).ok_or_else(|| bad("the request has been answered"))?;
    let request_ep = request.query().local_ep.and_then(handle::pin::<Ep>);
    drop(request);
    let ep = request_ep
            .ok_or_else(|| bad("no endpoint was created for the request: listen with listen_with_endpoints or listen_once"))?
            .to_arc();
    if options.shared.is_some() {
        return Err(DatError::new(
            ReturnType::ModelNotSupported,
            Subtype::NoSubtype,
            "an endpoint that is created for a request cannot use a shared queue",
        ));
    }
    let handle = |events: Option<&EventDispatcher>| events.map(EventDispatcher::handle);
    let mut fields =
        EpFields::PZ | EpFields::RECV_EVD | EpFields::REQUEST_EVD | EpFields::CONNECT_EVD;
    if options.attributes.is_some() {
        fields |= EpFields::ATTRIBUTES;
    }
    let change = EpChange {
        pz: Some(zone.pz().handle()),
        recv_evd: handle(options.recv),
        request_evd: handle(options.request),
        connect_evd: handle(options.connect),
        attributes: options.attributes.unwrap_or(ep.query().attributes),
    };
    // An event can be copied, and its request answered on two threads.
    let taken = ep
        .take_for_posting()
        .ok_or_else(|| bad("another call is answering the request"))?;
    // SAFETY: only the `Endpoint` below posts, and there is one, because the endpoint was
    // taken.
    unsafe { ep.modify(fields, &change) }?;
    Cr::accept(cr, None, private_data)?;
    taken.keep();
    Ok(Endpoint::for_request(ep, zone, options))
}

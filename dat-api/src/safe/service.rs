//! Service points and connection requests.

use std::sync::Arc;

use super::{Adapter, Endpoint, EventDispatcher};
use crate::error::Result;
use crate::handle::{self, Handle};
use crate::object::cr::Cr;
use crate::object::psp::{EpCreator, Psp};
use crate::types::{Event, EventData};

/// Where peers ask for connections. Dropped, it listens no more; requests that
/// have arrived can still be answered.
#[derive(Debug)]
pub struct ServicePoint {
    psp: Arc<Psp>,
    _events: EventDispatcher,
}

impl Adapter {
    /// Listens on a qualifier; requests are reported to `events`.
    ///
    /// # Errors
    /// `DAT_CONN_QUAL_IN_USE`; a dispatcher not made for connection requests.
    pub fn listen(&self, qualifier: u64, events: &EventDispatcher) -> Result<ServicePoint> {
        let psp = Psp::create(self.ia(), qualifier, &events.evd()?, EpCreator::Consumer)?;
        Ok(ServicePoint {
            psp,
            _events: events.clone(),
        })
    }

    /// Listens on a qualifier that is free: see [`ServicePoint::qualifier`].
    ///
    /// # Errors
    /// None is free; a dispatcher not made for connection requests.
    pub fn listen_anywhere(&self, events: &EventDispatcher) -> Result<ServicePoint> {
        let psp = Psp::create_any(self.ia(), &events.evd()?, EpCreator::Consumer)?;
        Ok(ServicePoint {
            psp,
            _events: events.clone(),
        })
    }
}

impl ServicePoint {
    /// Its name among DAT objects.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.psp.handle()
    }

    /// What it listens on.
    #[must_use]
    pub fn qualifier(&self) -> u64 {
        self.psp.query().qualifier
    }
}

impl Drop for ServicePoint {
    fn drop(&mut self) {
        // Fails only if the adapter was closed, which ended it as well.
        let _ = Psp::free(self.psp.handle());
    }
}

/// A peer that wants to connect. Dropped unanswered, it is rejected.
#[derive(Debug)]
pub struct ConnectionRequest {
    handle: Option<Handle>,
}

impl ConnectionRequest {
    /// The request that an event tells of, if it tells of one.
    #[must_use]
    pub fn from_event(event: &Event) -> Option<Self> {
        match event.data {
            EventData::ConnectionRequest { cr, .. } => Some(Self { handle: Some(cr) }),
            _ => None,
        }
    }

    /// What the peer sent along; empty if the request is gone.
    #[must_use]
    pub fn private_data(&self) -> Vec<u8> {
        let request = self.handle.and_then(handle::pin::<Cr>);
        request.map_or_else(Vec::new, |cr| cr.private_data().to_vec())
    }

    /// Connects it with an endpoint that is not connected, and sends private
    /// data along. An event of the endpoint tells how it went.
    ///
    /// # Errors
    /// The endpoint cannot be used for it, the private data are too long, or
    /// the request was answered before. It can be answered again then.
    pub fn accept(&mut self, endpoint: &mut Endpoint, private_data: &[u8]) -> Result<()> {
        if let Some(cr) = self.handle {
            Cr::accept(cr, Some(endpoint.handle()), private_data)?;
            self.handle = None;
        }
        Ok(())
    }

    /// Refuses it.
    pub fn reject(self) {}
}

impl Drop for ConnectionRequest {
    fn drop(&mut self) {
        if let Some(cr) = self.handle.take() {
            // Fails only if it was answered through another event's copy, or
            // the adapter was closed.
            let _ = Cr::reject(cr);
        }
    }
}

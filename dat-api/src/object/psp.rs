//! Public service points: where connection requests arrive.

use std::sync::Arc;

use dat_engine::cm::{CmError, ListenSink, Listener, Request};

use super::cr::Cr;
use super::ep::{Ep, manager_error};
use super::evd::{Evd, StreamGuard, StreamKind};
use super::exhausted;
use super::ia::Ia;
use crate::error::{DatError, Result};
use crate::handle::{self, Handle, Kind, Object, Reservation};
use crate::status::{ReturnType, Subtype};
use crate::types::EventData;

/// A public service point.
pub struct Psp {
    handle: Handle,
    qualifier: u64,
    creator: EpCreator,
    ia: Arc<Ia>,
    // Dropped in this order: no request comes when the EVD is left.
    listener: std::sync::Mutex<Option<Listener>>,
    stream: StreamGuard,
}

/// Who makes the endpoint of a request: `DAT_PSP_FLAGS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EpCreator {
    /// The consumer, who names one to accept.
    Consumer = 0,
    /// The provider: each request brings one.
    Provider = 1,
}

/// What `dat_psp_query` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PspInfo {
    /// The IA it belongs to.
    pub ia: Handle,
    /// What it listens on.
    pub qualifier: u64,
    /// Where requests are reported.
    pub evd: Handle,
    /// Who makes the endpoints.
    pub creator: EpCreator,
}

/// Makes requests of what the connection manager brings.
struct Door {
    psp: Handle,
    ia: Arc<Ia>,
    evd: Arc<Evd>,
    creator: EpCreator,
}

impl ListenSink for Door {
    fn request(&self, request: Request) {
        if let Err(error) = self.announce(request) {
            // Dropped with the error: refused as by nobody.
            tracing::debug!("a connection request is refused: {error}");
        }
    }
}

impl Door {
    fn announce(&self, request: Request) -> Result<()> {
        let qualifier = request.qualifier();
        let brought = match self.creator {
            EpCreator::Consumer => None,
            EpCreator::Provider => {
                let theirs = request.parameters();
                let reads = (theirs.reads_asked, theirs.reads_served);
                Some(Ep::create_tentative(&self.ia, reads)?)
            }
        };
        let cr = Cr::create(&self.ia, request, brought.as_ref())?;
        let posted = self.evd.post(EventData::ConnectionRequest {
            sp: self.psp,
            local_address: self.ia.local_address(),
            qualifier,
            cr: cr.handle(),
        });
        if posted.is_err() {
            // The EVD's room is the backlog.
            Cr::abort(cr.handle());
            return Err(DatError::new(
                ReturnType::QueueFull,
                Subtype::NoSubtype,
                "the EVD of the service point is full",
            ));
        }
        Ok(())
    }
}

fn stale() -> DatError {
    DatError::new(
        ReturnType::InvalidHandle,
        Subtype::InvalidHandlePsp,
        "the handle names no public service point; it may have been freed",
    )
}

impl Psp {
    /// Listens for requests for a qualifier; each becomes an event. There is
    /// room for as many as the EVD holds; further ones are refused.
    ///
    /// # Errors
    /// Section 3DAT, `dat_psp_create`.
    pub fn create(
        ia: &Arc<Ia>,
        qualifier: u64,
        evd: &Arc<Evd>,
        creator: EpCreator,
    ) -> Result<Arc<Self>> {
        if qualifier == 0 {
            return Err(DatError::new(
                ReturnType::InvalidParameter,
                Subtype::InvalidArg2,
                "0 is no qualifier",
            ));
        }
        Self::open(ia, Some(qualifier), evd, creator)
    }

    /// As [`Psp::create`], on a qualifier that nobody on this host uses.
    ///
    /// # Errors
    /// Section 3DAT, `dat_psp_create_any`.
    pub fn create_any(ia: &Arc<Ia>, evd: &Arc<Evd>, creator: EpCreator) -> Result<Arc<Self>> {
        Self::open(ia, None, evd, creator)
    }

    fn open(
        ia: &Arc<Ia>,
        qualifier: Option<u64>,
        evd: &Arc<Evd>,
        creator: EpCreator,
    ) -> Result<Arc<Self>> {
        if !Arc::ptr_eq(evd.ia(), ia) {
            return Err(DatError::new(
                ReturnType::InvalidHandle,
                Subtype::InvalidHandleEvdCr,
                "the EVD belongs to another IA",
            ));
        }
        let stream = evd.attach(StreamKind::Cr)?;
        let place = Reservation::new().ok_or_else(exhausted)?;
        let door = Arc::new(Door {
            psp: place.handle(),
            ia: Arc::clone(ia),
            evd: Arc::clone(evd),
            creator,
        });
        let (listener, qualifier) = match qualifier {
            Some(qualifier) => {
                let listener = ia
                    .cm()
                    .listen(ia.local(), qualifier, door)
                    .map_err(|error| manager_error(&error))?;
                (listener, qualifier)
            }
            None => ia
                .cm()
                .listen_any(ia.local(), door)
                .map_err(|error| match error {
                    CmError::InUse => DatError::new(
                        ReturnType::ConnQualUnavailable,
                        Subtype::NoSubtype,
                        "no qualifier is left on this host",
                    ),
                    error => manager_error(&error),
                })?,
        };
        let psp = Arc::new(Self {
            handle: place.handle(),
            qualifier,
            creator,
            ia: Arc::clone(ia),
            listener: std::sync::Mutex::new(Some(listener)),
            stream,
        });
        ia.publish(place, &psp, Self::abort)?;
        Ok(psp)
    }

    /// Its name.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Everything about it.
    #[must_use]
    pub fn query(&self) -> PspInfo {
        PspInfo {
            ia: self.ia.handle(),
            qualifier: self.qualifier,
            evd: self.stream.evd().handle(),
            creator: self.creator,
        }
    }

    /// Listens no more. Requests that were reported stay good.
    ///
    /// # Errors
    /// `INVALID_HANDLE`.
    pub fn free(handle: Handle) -> Result<()> {
        let psp = handle::pin::<Self>(handle).ok_or_else(stale)?;
        psp.shut();
        drop(psp);
        handle::retire::<Self>(handle, |_| ()).ok_or_else(stale)?;
        Ok(())
    }

    /// Its IA is closed abruptly.
    pub(crate) fn abort(handle: Handle) {
        if let Some(psp) = handle::pin::<Self>(handle) {
            psp.shut();
        }
        drop(handle::retire::<Self>(handle, |_| ()));
    }

    /// Waits for a request that is just arriving.
    fn shut(&self) {
        let listener = self
            .listener
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take();
        drop(listener);
        self.ia.unregister(self.handle);
    }
}

impl Object for Psp {
    const KIND: Kind = Kind::Psp;
}

impl core::fmt::Debug for Psp {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Psp")
            .field("handle", &self.handle)
            .field("qualifier", &self.qualifier)
            .finish_non_exhaustive()
    }
}

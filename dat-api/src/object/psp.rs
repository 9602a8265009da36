//! Public service points: where connection requests arrive.
//!
//! Decision: `docs/decisions/041-service-points-accept-under-a-lock.md`

use std::sync::Arc;

use super::evd::Evd;
use super::exhausted;
use super::ia::Ia;
use super::service_point::{EndpointSource, ServicePoint};
use crate::error::Result;
use crate::handle::{self, Handle, Reservation, Upcalls};
use crate::object::stale;

/// A public service point.
pub struct Psp {
    handle: Handle,
    qualifier: u64,
    creator: EpCreator,
    ia: Arc<Ia>,
    evd: Handle,
    point: Arc<ServicePoint>,
}

/// Which side creates the endpoint of a request: `DAT_PSP_FLAGS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EpCreator {
    /// The consumer, which names an endpoint when it accepts.
    Consumer = 0,
    /// The provider: each request comes with an endpoint.
    Provider = 1,
}

/// The result of `dat_psp_query`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PspInfo {
    /// The IA it belongs to.
    pub ia: Handle,
    /// The qualifier that it listens on.
    pub qualifier: u64,
    /// The EVD for connection requests.
    pub evd: Handle,
    /// Which side creates the endpoints.
    pub creator: EpCreator,
}

impl Psp {
    /// The functions that objects in lower modules call.
    pub(super) const UPCALLS: Upcalls = Upcalls {
        abort: Self::abort,
        ..Upcalls::NONE
    };

    /// Listens for requests for a qualifier; each becomes an event. The EVD's length is the
    /// backlog: requests beyond it are refused.
    ///
    /// # Errors
    /// Section 3DAT, `dat_psp_create`.
    pub fn create(
        ia: &Arc<Ia>,
        qualifier: u64,
        evd: &Arc<Evd>,
        creator: EpCreator,
    ) -> Result<Arc<Self>> {
        Self::open(ia, Some(qualifier), evd, creator)
    }

    /// As [`Psp::create`], on a qualifier that is not in use on this host.
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
        let place = Reservation::new().ok_or_else(exhausted)?;
        let source = match creator {
            EpCreator::Consumer => EndpointSource::Consumer,
            EpCreator::Provider => EndpointSource::Provider,
        };
        let (point, qualifier) = ServicePoint::open(place.handle(), ia, qualifier, evd, source)?;
        let psp = Arc::new(Self {
            handle: place.handle(),
            qualifier,
            creator,
            ia: Arc::clone(ia),
            evd: evd.handle(),
            point,
        });
        ia.publish(place, &psp).inspect_err(|_| psp.close())?;
        Ok(psp)
    }

    /// Returns its handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns its parameters.
    #[must_use]
    pub fn query(&self) -> PspInfo {
        PspInfo {
            ia: self.ia.handle(),
            qualifier: self.qualifier,
            evd: self.evd,
            creator: self.creator,
        }
    }

    /// Stops listening. Requests that were reported remain valid.
    ///
    /// # Errors
    /// `INVALID_HANDLE`.
    pub fn free(handle: Handle) -> Result<()> {
        let psp = handle::pin::<Self>(handle).ok_or_else(stale::<Self>)?;
        psp.close();
        drop(psp);
        handle::retire::<Self>(handle, |_| ()).ok_or_else(stale::<Self>)?;
        Ok(())
    }

    /// Frees it because its IA is closed abruptly.
    pub(crate) fn abort(handle: Handle) {
        if let Some(psp) = handle::pin::<Self>(handle) {
            psp.close();
        }
        drop(handle::retire::<Self>(handle, |_| ()));
    }

    /// Stops listening, and waits for a request that is just arriving.
    fn close(&self) {
        // A public service point has no reserved endpoint.
        let _ = self.point.close();
        self.ia.unregister(self.handle);
    }
}

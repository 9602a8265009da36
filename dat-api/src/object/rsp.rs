//! Reserved service points: each accepts one connection request, for one endpoint.
//!
//! The request uses the service point up: it stops listening, uses neither EVD nor endpoint, and
//! does not keep the IA from being closed. Its handle stays valid until it is freed, as in other
//! providers, so the consumer need not know whether the request has come.
//!
//! Decision: `docs/decisions/041-service-points-accept-under-a-lock.md`

use std::sync::Arc;

use super::ep::Ep;
use super::evd::Evd;
use super::ia::Ia;
use super::service_point::{EndpointSource, ServicePoint};
use super::{exhausted, of_another_ia};
use crate::error::{DatError, Result};
use crate::handle::{self, Handle, Reservation, Upcalls};
use crate::object::stale;
use crate::status::{ReturnType, Subtype};

/// A reserved service point.
pub struct Rsp {
    info: RspInfo,
    ia: Arc<Ia>,
    handle: Handle,
    point: Arc<ServicePoint>,
}

/// The result of `dat_rsp_query`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RspInfo {
    /// The IA it belongs to.
    pub ia: Handle,
    /// The qualifier that it listens on.
    pub qualifier: u64,
    /// The EVD for the connection request.
    pub evd: Handle,
    /// The reserved endpoint; `None` if the provider creates one for the request.
    pub ep: Option<Handle>,
}

impl Rsp {
    /// The functions that objects in lower modules call.
    pub(super) const UPCALLS: Upcalls = Upcalls {
        abort: Self::abort,
        ..Upcalls::NONE
    };

    /// Listens for one request for a qualifier, which only `ep` can accept: `ep` is reserved until
    /// the service point is freed, or the request is rejected. Without `ep` the provider creates an
    /// endpoint, as with [`super::psp::EpCreator::Provider`].
    ///
    /// # Errors
    /// Section 3DAT, `dat_rsp_create`.
    pub fn create(
        ia: &Arc<Ia>,
        qualifier: u64,
        ep: Option<&Arc<Ep>>,
        evd: &Arc<Evd>,
    ) -> Result<Arc<Self>> {
        let place = Reservation::new().ok_or_else(exhausted)?;
        let source = match ep {
            Some(ep) if !Arc::ptr_eq(ep.ia(), ia) => {
                return Err(DatError::new(
                    ReturnType::InvalidHandle,
                    Subtype::InvalidHandleEp,
                    of_another_ia("endpoint", ep.ia(), ia),
                ));
            }
            Some(ep) => EndpointSource::Reserved(ep.reserve()?),
            None => EndpointSource::Once,
        };
        let opened = ServicePoint::open(place.handle(), ia, Some(qualifier), evd, source);
        let (point, qualifier) = opened.inspect_err(|_| {
            if let Some(ep) = ep {
                ep.release();
            }
        })?;
        let rsp = Arc::new(Self {
            info: RspInfo {
                ia: ia.handle(),
                qualifier,
                evd: evd.handle(),
                ep: ep.map(|ep| ep.handle()),
            },
            ia: Arc::clone(ia),
            handle: place.handle(),
            point,
        });
        ia.publish(place, &rsp).inspect_err(|_| rsp.close())?;
        if rsp.point.is_closed() {
            // The request has already come.
            ia.disown(rsp.handle);
        }
        Ok(rsp)
    }

    /// Returns its handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns its parameters.
    #[must_use]
    pub fn query(&self) -> RspInfo {
        self.info
    }

    /// Stops listening; if the request has not come, the endpoint is unconnected again. A request
    /// that was reported remains valid.
    ///
    /// # Errors
    /// `INVALID_HANDLE`.
    pub fn free(handle: Handle) -> Result<()> {
        let rsp = handle::pin::<Self>(handle).ok_or_else(stale::<Self>)?;
        rsp.close();
        drop(rsp);
        handle::retire::<Self>(handle, |_| ()).ok_or_else(stale::<Self>)?;
        Ok(())
    }

    /// Frees it because its IA is closed abruptly.
    pub(crate) fn abort(handle: Handle) {
        if let Some(rsp) = handle::pin::<Self>(handle) {
            rsp.close();
        }
        drop(handle::retire::<Self>(handle, |_| ()));
    }

    fn close(&self) {
        if let Some(ep) = self.point.close() {
            ep.release();
        }
        self.ia.unregister(self.handle);
    }
}

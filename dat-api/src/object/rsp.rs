//! Reserved service points: where one connection request arrives, for one
//! endpoint.
//!
//! The request uses the service point up: it listens no more, uses neither EVD
//! nor endpoint, and does not keep the IA from being closed. Its name stays
//! good until it is freed, as existing providers have it: so whoever frees it
//! need not know whether the request has come.

use std::sync::Arc;

use super::door::{Door, Host};
use super::ep::Ep;
use super::evd::Evd;
use super::exhausted;
use super::ia::Ia;
use crate::error::{DatError, Result};
use crate::handle::{self, Handle, Reservation, Upcalls};
use crate::status::{ReturnType, Subtype};

/// A reserved service point.
pub struct Rsp {
    info: RspInfo,
    ia: Arc<Ia>,
    handle: Handle,
    door: Arc<Door>,
}

/// What `dat_rsp_query` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RspInfo {
    /// The IA it belongs to.
    pub ia: Handle,
    /// What it listens on.
    pub qualifier: u64,
    /// Where the request is reported.
    pub evd: Handle,
    /// The endpoint that is reserved; none if the request brings one.
    pub ep: Option<Handle>,
}

fn stale() -> DatError {
    DatError::new(
        ReturnType::InvalidHandle,
        Subtype::InvalidHandleRsp,
        "the handle names no reserved service point; it may have been freed",
    )
}

impl Rsp {
    /// What objects below it call.
    pub(super) const UPCALLS: Upcalls = Upcalls {
        abort: Self::abort,
        ..Upcalls::NONE
    };

    /// Listens for one request for a qualifier, which only `ep` can accept:
    /// it is reserved until the service point is freed, or the request that
    /// came is rejected. Without `ep` the request brings an endpoint, as with
    /// [`super::psp::EpCreator::Provider`].
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
        let host = match ep {
            Some(ep) if !Arc::ptr_eq(ep.ia(), ia) => {
                return Err(DatError::new(
                    ReturnType::InvalidHandle,
                    Subtype::InvalidHandleEp,
                    "the endpoint belongs to another IA",
                ));
            }
            Some(ep) => Host::Reserved(ep.reserve()?),
            None => Host::Once,
        };
        let opened = Door::open(place.handle(), ia, Some(qualifier), evd, host);
        let (door, qualifier) = opened.inspect_err(|_| {
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
            door,
        });
        ia.publish(place, &rsp).inspect_err(|_| rsp.shut())?;
        if rsp.door.is_shut() {
            // The request was faster.
            ia.disown(rsp.handle);
        }
        Ok(rsp)
    }

    /// Its name.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Everything about it.
    #[must_use]
    pub fn query(&self) -> RspInfo {
        self.info
    }

    /// Listens no more; the endpoint, if its request has not come, is
    /// unconnected again. A request that was reported stays good.
    ///
    /// # Errors
    /// `INVALID_HANDLE`.
    pub fn free(handle: Handle) -> Result<()> {
        let rsp = handle::pin::<Self>(handle).ok_or_else(stale)?;
        rsp.shut();
        drop(rsp);
        handle::retire::<Self>(handle, |_| ()).ok_or_else(stale)?;
        Ok(())
    }

    /// Its IA is closed abruptly.
    pub(crate) fn abort(handle: Handle) {
        if let Some(rsp) = handle::pin::<Self>(handle) {
            rsp.shut();
        }
        drop(handle::retire::<Self>(handle, |_| ()));
    }

    fn shut(&self) {
        if let Some(ep) = self.door.shut() {
            ep.release();
        }
        self.ia.unregister(self.handle);
    }
}

impl core::fmt::Debug for Rsp {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Rsp")
            .field("handle", &self.handle)
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

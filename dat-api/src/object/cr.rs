//! Connection requests: to be accepted or rejected, once.

use std::sync::{Arc, Mutex, PoisonError};

use dat_engine::cm::Request;

use super::ep::{self, Ep};
use super::exhausted;
use super::ia::Ia;
use super::peer::PeerAddress;
use crate::error::{DatError, Result};
use crate::handle::{self, Handle, Kind, Object, Reservation};
use crate::state::Call;
use crate::status::{ReturnType, Subtype};
use crate::types::PrivateData;

/// A connection request.
pub struct Cr {
    handle: Handle,
    ia: Arc<Ia>,
    remote: PeerAddress,
    remote_port: u64,
    private_data: Box<[u8]>,
    /// The endpoint that came with it.
    brought: Option<Handle>,
    /// What is to be answered; none once it was.
    request: Mutex<Option<Request>>,
}

/// What `dat_cr_query` answers. The addresses are good until the request is
/// accepted or rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrInfo {
    /// Where the requester's `sockaddr` lies.
    pub remote_address: usize,
    /// The requester's port.
    pub remote_port: u64,
    /// What the requester sent along.
    pub private_data: PrivateData,
    /// The endpoint that came with the request.
    pub local_ep: Option<Handle>,
}

fn stale() -> DatError {
    DatError::new(
        ReturnType::InvalidHandle,
        Subtype::InvalidHandleCr,
        "the handle names no connection request; it may have been answered",
    )
}

impl Cr {
    /// A request that has come in, and the endpoint made for it.
    pub(crate) fn create(
        ia: &Arc<Ia>,
        request: Request,
        brought: Option<&Arc<Ep>>,
    ) -> Result<Arc<Self>> {
        let made = Self::publish(ia, request, brought.map(|ep| ep.handle()));
        if let (Err(_), Some(ep)) = (&made, brought) {
            Ep::abort(ep.handle());
        }
        made
    }

    fn publish(ia: &Arc<Ia>, request: Request, brought: Option<Handle>) -> Result<Arc<Self>> {
        let place = Reservation::new().ok_or_else(exhausted)?;
        let cr = Arc::new(Self {
            handle: place.handle(),
            ia: Arc::clone(ia),
            remote: PeerAddress::new(request.peer()),
            remote_port: request.remote_port(),
            private_data: request.private_data().into(),
            brought,
            request: Mutex::new(Some(request)),
        });
        ia.publish_own(place, &cr, Self::abort)?;
        Ok(cr)
    }

    /// Its name.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// What the requester sent along.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Everything about it.
    #[must_use]
    pub fn query(&self) -> CrInfo {
        CrInfo {
            remote_address: self.remote.address(),
            remote_port: self.remote_port,
            private_data: match &*self.private_data {
                [] => PrivateData::default(),
                data => PrivateData {
                    address: data.as_ptr().expose_provenance(),
                    len: u32::try_from(data.len()).unwrap_or(u32::MAX),
                },
            },
            local_ep: self.brought,
        }
    }

    /// Accepts with an endpoint, or with the one that the request brought; the
    /// request is gone if this succeeds, and unchanged if not. If the requester
    /// has given up meanwhile, an event tells.
    ///
    /// # Errors
    /// Section 3DAT, `dat_cr_accept`.
    pub fn accept(handle: Handle, ep: Option<Handle>, private_data: &[u8]) -> Result<()> {
        let cr = handle::pin::<Self>(handle).ok_or_else(stale)?;
        let bad = |cause| DatError::new(ReturnType::InvalidHandle, Subtype::InvalidHandleEp, cause);
        let (ep, call) = match (ep, cr.brought) {
            (Some(_), Some(_)) => {
                return Err(bad("the request brought an endpoint of its own"));
            }
            (None, None) => return Err(bad("no endpoint to accept with")),
            (Some(ep), None) => (ep, Call::AcceptNamed),
            (None, Some(ep)) => (ep, Call::AcceptBrought),
        };
        let ep = ep::find(ep)?;
        if !Arc::ptr_eq(ep.ia(), &cr.ia) {
            return Err(bad("the endpoint belongs to another IA"));
        }
        ep.accept(&mut cr.request(), call, private_data)?;
        cr.ia.unregister(handle);
        drop(cr);
        drop(handle::retire::<Self>(handle, |_| ()));
        Ok(())
    }

    /// Rejects: the requester is told so. An endpoint that the request brought
    /// is gone too.
    ///
    /// # Errors
    /// `INVALID_HANDLE`.
    pub fn reject(handle: Handle) -> Result<()> {
        let cr = handle::pin::<Self>(handle).ok_or_else(stale)?;
        let request = cr.request().take().ok_or_else(stale)?;
        request.reject();
        cr.end();
        drop(cr);
        drop(handle::retire::<Self>(handle, |_| ()));
        Ok(())
    }

    /// Its IA is closed abruptly, or it could not be reported: the requester is
    /// refused as by nobody.
    pub(crate) fn abort(handle: Handle) {
        if let Some(cr) = handle::pin::<Self>(handle) {
            let request = cr.request().take();
            drop(request);
            cr.end();
        }
        drop(handle::retire::<Self>(handle, |_| ()));
    }

    fn end(&self) {
        if let Some(ep) = self.brought {
            Ep::abort(ep);
        }
        self.ia.unregister(self.handle);
    }

    fn request(&self) -> std::sync::MutexGuard<'_, Option<Request>> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Object for Cr {
    const KIND: Kind = Kind::Cr;
}

impl core::fmt::Debug for Cr {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Cr")
            .field("handle", &self.handle)
            .field("remote_port", &self.remote_port)
            .finish_non_exhaustive()
    }
}

//! Connection requests: each is accepted or rejected once.

use std::sync::Arc;

use dat_engine::cm::Request;
use dat_engine::memory;

use super::ep::{self, Ep};
use super::ia::Ia;
use super::peer::PeerAddress;
use super::{exhausted, of_another_ia};
use crate::error::{DatError, Result};
use crate::handle::{self, Handle, Reservation, Upcalls};
use crate::object::stale;
use crate::state::Call;
use crate::status::{ReturnType, Subtype};
use crate::types::PrivateData;
use dat_engine::sync::Mutex;

/// A connection request.
pub struct Cr {
    handle: Handle,
    ia: Arc<Ia>,
    remote: PeerAddress,
    remote_port: u64,
    private_data: Box<[u8]>,
    /// The endpoint that belongs to it.
    request_ep: Option<RequestEndpoint>,
    /// The manager's request; `None` once it is answered.
    request: Mutex<Option<Request>>,
}

/// The endpoint that belongs to a request: no other can accept it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestEndpoint {
    /// Created for the request, and freed with it unless it is accepted.
    Created(Handle),
    /// The consumer's, reserved by a reserved service point.
    Reserved(Handle),
}

impl RequestEndpoint {
    fn handle(self) -> Handle {
        match self {
            Self::Created(ep) | Self::Reserved(ep) => ep,
        }
    }
}

/// The result of `dat_cr_query`. The addresses are valid until the request is accepted or rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrInfo {
    /// The address of the requester's `sockaddr`.
    pub remote_address: usize,
    /// The requester's port.
    pub remote_port: u64,
    /// The private data of the requester.
    pub private_data: PrivateData,
    /// The endpoint that belongs to the request.
    pub local_ep: Option<Handle>,
}

impl Cr {
    /// The functions that objects in lower modules call.
    pub(super) const UPCALLS: Upcalls = Upcalls {
        abort: Self::abort,
        ..Upcalls::NONE
    };

    /// Creates a connection request of the one in `from`, and removes that, unless this fails.
    pub(crate) fn create(
        ia: &Arc<Ia>,
        from: &mut Option<Request>,
        request_ep: Option<RequestEndpoint>,
    ) -> Result<Arc<Self>> {
        let place = Reservation::new().ok_or_else(exhausted)?;
        let request = from.as_ref().ok_or_else(stale::<Self>)?;
        let cr = Arc::new(Self {
            handle: place.handle(),
            ia: Arc::clone(ia),
            remote: PeerAddress::new(request.peer()),
            remote_port: request.remote_port(),
            private_data: request.private_data().into(),
            request_ep,
            request: Mutex::new(None),
        });
        memory::commit()?;
        ia.publish_own(place, &cr)?;
        *cr.request.lock() = from.take();
        Ok(cr)
    }

    /// Returns its handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns the private data of the requester.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Returns its parameters.
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
            local_ep: self.request_ep.map(RequestEndpoint::handle),
        }
    }

    /// Accepts with an endpoint, or with the endpoint that belongs to the request. The request is
    /// gone if this succeeds, and unchanged if not. If the requester has given up meanwhile, an
    /// event says so.
    ///
    /// # Errors
    /// Section 3DAT, `dat_cr_accept`.
    pub fn accept(handle: Handle, ep: Option<Handle>, private_data: &[u8]) -> Result<()> {
        let cr = handle::pin::<Self>(handle).ok_or_else(stale::<Self>)?;
        let bad = |cause: String| {
            DatError::new(ReturnType::InvalidHandle, Subtype::InvalidHandleEp, cause)
        };
        let (ep, call) = match (ep, cr.request_ep) {
            (Some(_), Some(_)) => {
                return Err(bad(
                    "an endpoint was created or reserved for the request: expected \
                                DAT_HANDLE_NULL"
                        .into(),
                ));
            }
            (None, None) => {
                return Err(bad(
                    "no endpoint was created for the request: expected the handle of \
                                an unconnected EP, got DAT_HANDLE_NULL"
                        .into(),
                ));
            }
            (Some(ep), None) => (ep, Call::AcceptNamed),
            (None, Some(request_ep)) => (request_ep.handle(), Call::AcceptProvided),
        };
        let ep = ep::find(ep)?;
        if !Arc::ptr_eq(ep.ia(), &cr.ia) {
            return Err(bad(of_another_ia("endpoint", ep.ia(), &cr.ia)));
        }
        ep.accept(&mut cr.request.lock(), call, private_data)?;
        if let Some(RequestEndpoint::Created(ep)) = cr.request_ep {
            cr.ia.adopt(ep);
        }
        cr.ia.unregister(handle);
        drop(cr);
        drop(handle::retire::<Self>(handle, |_| ()));
        Ok(())
    }

    /// Rejects: the requester gets an event with the private data. An endpoint that was created for
    /// the request is freed; one that was reserved for it is unconnected again.
    ///
    /// # Errors
    /// - `INVALID_HANDLE`.
    /// - `INVALID_PARAMETER`, argument 2: more private data than the connection manager carries.
    pub fn reject(handle: Handle, private_data: &[u8]) -> Result<()> {
        let cr = handle::pin::<Self>(handle).ok_or_else(stale::<Self>)?;
        let most = cr.ia.rules().max_private_data;
        if private_data.len() > most {
            return Err(DatError::new(
                ReturnType::InvalidParameter,
                Subtype::InvalidArg2,
                format!(
                    "{} bytes of private data: expected at most {most}, the provider attribute \
                     max_private_data_size",
                    private_data.len()
                ),
            ));
        }
        let request = cr.request.lock().take().ok_or_else(stale::<Self>)?;
        // The length fits: nothing else is refused.
        let rejected = request.reject(private_data);
        debug_assert!(rejected.is_ok());
        cr.end();
        drop(cr);
        drop(handle::retire::<Self>(handle, |_| ()));
        Ok(())
    }

    /// Calls `pass`, which takes the request out of its place; then frees the connection request,
    /// and treats its endpoint as [`Cr::reject`] does.
    ///
    /// # Errors
    /// `INVALID_HANDLE`; those of `pass`. The request can still be answered then.
    pub(super) fn pass_on(
        handle: Handle,
        pass: impl FnOnce(&Ia, &mut Option<Request>) -> Result<()>,
    ) -> Result<()> {
        let cr = handle::pin::<Self>(handle).ok_or_else(stale::<Self>)?;
        let mut place = cr.request.lock();
        if place.is_none() {
            return Err(stale::<Self>());
        }
        pass(&cr.ia, &mut place)?;
        drop(place);
        cr.end();
        drop(cr);
        drop(handle::retire::<Self>(handle, |_| ()));
        Ok(())
    }

    /// Frees it because its IA is closed abruptly: the requester is rejected, but not as by the
    /// peer's consumer.
    pub(crate) fn abort(handle: Handle) {
        if let Some(cr) = handle::pin::<Self>(handle) {
            let request = cr.request.lock().take();
            drop(request);
            cr.end();
        }
        drop(handle::retire::<Self>(handle, |_| ()));
    }

    fn end(&self) {
        match self.request_ep {
            // SAFETY: callers that post to this endpoint promise that the request is not rejected
            // meanwhile; the types of `safe` post only after accepting.
            Some(RequestEndpoint::Created(ep)) => unsafe { Ep::abort(ep) },
            Some(RequestEndpoint::Reserved(ep)) => {
                if let Ok(ep) = ep::find(ep) {
                    ep.request_rejected();
                }
            }
            None => {}
        }
        self.ia.unregister(self.handle);
    }
}

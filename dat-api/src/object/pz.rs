//! Protection zones: memory and endpoints of one zone may be used together.

use std::borrow::Cow;
use std::sync::Arc;

use dat_engine::ProtectionDomain;

use crate::error::{DatError, Result};
use crate::handle::{self, Handle, Reservation, Upcalls};
use crate::object::ia::Ia;
use crate::object::stale;
use crate::object::usage::{Counted, Usage};
use crate::status::{ReturnType, Subtype};

/// A protection zone of one IA: a protection domain of its device.
pub struct Pz {
    handle: Handle,
    ia: Arc<Ia>,
    domain: ProtectionDomain,
    usage: Usage,
}

impl Pz {
    /// The functions that objects in lower modules call.
    pub(super) const UPCALLS: Upcalls = Upcalls {
        abort: Self::abort,
        ..Upcalls::NONE
    };

    /// Creates a zone.
    ///
    /// # Errors
    /// The device has no more domains, or the IA is being closed.
    pub fn create(ia: &Arc<Ia>) -> Result<Arc<Self>> {
        let domain = ia.device().alloc_pd()?;
        let place = Reservation::new().ok_or_else(crate::object::exhausted)?;
        let pz = Arc::new(Self {
            handle: place.handle(),
            ia: Arc::clone(ia),
            domain,
            usage: Usage::default(),
        });
        ia.publish(place, &pz)?;
        Ok(pz)
    }

    /// Returns its handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns the IA that it belongs to.
    #[must_use]
    pub fn ia(&self) -> &Arc<Ia> {
        &self.ia
    }

    /// Returns the protection domain of its queues and memory.
    #[must_use]
    pub fn domain(&self) -> &ProtectionDomain {
        &self.domain
    }

    /// Frees a zone.
    ///
    /// # Errors
    /// The handle names no zone, or an object still uses it.
    pub fn free(handle: Handle) -> Result<()> {
        let pz = handle::pin::<Self>(handle).ok_or_else(stale::<Self>)?;
        if !pz.usage.close() {
            return Err(DatError::new(
                ReturnType::InvalidState,
                Subtype::InvalidStatePzInUse,
                format!(
                    "{} endpoints, shared receive queues or memory regions use the zone: free them first",
                    pz.usage.count()
                ),
            ));
        }
        pz.ia.unregister(handle);
        drop(pz);
        handle::retire::<Self>(handle, |_| ()).ok_or_else(stale::<Self>)?;
        Ok(())
    }

    /// Frees it because its IA is closed abruptly.
    fn abort(handle: Handle) {
        if let Some(pz) = handle::retire::<Self>(handle, |_| ()) {
            pz.usage.close_anyway();
        }
    }
}

impl Counted for Pz {
    fn usage(&self) -> &Usage {
        &self.usage
    }
}

/// The error for a handle that names no zone, or one that cannot be used here.
pub(crate) fn unusable(cause: impl Into<Cow<'static, str>>) -> DatError {
    DatError::new(ReturnType::InvalidHandle, Subtype::InvalidHandlePz, cause)
}

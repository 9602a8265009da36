//! Closing an IA.

use super::{Ia, reports};
use crate::error::{DatError, Result};
use crate::handle;
use crate::object::stale;
use crate::status::{ReturnType, Subtype};

impl Ia {
    /// Closes the adapter: gracefully only if the consumer has freed every object of it, otherwise
    /// with all remaining objects.
    ///
    /// # Errors
    /// As [`Ia::close`].
    ///
    /// # Safety
    /// As for [`Ia::close`].
    pub(in crate::object) unsafe fn end(&self, graceful: bool) -> Result<()> {
        let left = self.children.close(graceful).map_err(|refusal| {
            refusal.map_or_else(stale::<Ia>, |left| {
                in_use(format!(
                    "{left}: free these first, or close with DAT_CLOSE_ABRUPT_FLAG"
                ))
            })
        })?;
        // No objects are added any more; once the calls that have found the IA have returned,
        // nothing refers to it.
        handle::retire::<Self>(self.handle, |_| ());
        // Its own EVD comes last, because events are reported to it until then.
        let own = self.reports.own();
        for child in left.into_iter().filter(|child| Some(child.handle) != own) {
            tracing::debug!(kind = ?child.kind, handle = ?child.handle, "ends with its IA");
            // SAFETY: no post runs at the same time, unless posts take the lock.
            unsafe { (child.upcalls.abort)(child.handle) };
        }
        self.dismantle();
        Ok(())
    }

    /// Ends the threads, and frees the IA's own EVD.
    pub(in crate::object) fn dismantle(&self) {
        reports::delist(self);
        let service = self.service.lock().take();
        if let Some(service) = service {
            service.stop();
        }
        let watch = self.device_watch.lock().take();
        drop(watch);
        if let Some(evd) = self.reports.clear() {
            // SAFETY: nothing is posted to an EVD.
            unsafe { (evd.upcalls().abort)(evd) };
        }
    }
}

pub(in crate::object) fn in_use(cause: impl Into<String>) -> DatError {
    DatError::new(
        ReturnType::InvalidState,
        Subtype::InvalidStateIaInUse,
        cause.into(),
    )
}

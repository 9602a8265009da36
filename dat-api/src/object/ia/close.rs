//! Closing an IA.

use super::{Ia, reports, stale};
use crate::error::{DatError, Result};
use crate::handle::{self, Handle};
use crate::object::evd::Evd;
use crate::status::{ReturnType, Subtype};

impl Ia {
    /// Closes an adapter. Gracefully only if the consumer has freed all that
    /// he made of it. Abruptly with all that is left: the objects are gone
    /// when this returns, and who waits on an EVD gets `DAT_ABORT`.
    ///
    /// Waits for calls on the IA and its objects that are under way, none of
    /// which waits for events.
    ///
    /// # Errors
    /// - `DAT_INVALID_HANDLE_IA`: the handle names no open IA, another thread
    ///   closes it already, or this process is a fork of the one that opened it.
    /// - `DAT_INVALID_STATE_IA_IN_USE`: graceful, and objects are left. The
    ///   cause says how many of what kind; nothing has happened.
    ///
    /// # Safety
    /// Abruptly: no post and no bind to an endpoint or a shared queue of the IA
    /// runs at the same time, unless the IA is threadsafe. Gracefully there are
    /// none to post to.
    pub unsafe fn close(handle: Handle, graceful: bool) -> Result<()> {
        let ia = handle::pin::<Self>(handle).ok_or_else(stale)?.to_arc();
        ia.require_here()?;
        if graceful && ia.reports.own_is_shared() {
            return Err(in_use(
                "another IA sends its asynchronous events to the EVD of this one",
            ));
        }
        let left = ia
            .children
            .close(graceful)
            .map_err(|refusal| refusal.map_or_else(stale, in_use))?;
        // Nothing is made of it any more; once the calls that have found it
        // are done, nobody knows it.
        handle::retire::<Self>(handle, |_| ());
        // Its own EVD comes last: what happens until then is reported to it.
        let own = ia.reports.own();
        for child in left.into_iter().filter(|child| Some(child.handle) != own) {
            tracing::debug!(kind = ?child.kind, handle = ?child.handle, "ends with its IA");
            // SAFETY: passed on to the caller.
            unsafe { (child.upcalls.abort)(child.handle) };
        }
        ia.dismantle();
        Ok(())
    }

    /// Ends what runs by itself, and the IA's own EVD.
    pub(super) fn dismantle(&self) {
        reports::delist(self);
        let service = self.service.lock().take();
        if let Some(service) = service {
            service.stop();
        }
        let watch = self.device_watch.lock().take();
        drop(watch);
        if let Some(evd) = self.reports.clear() {
            Evd::abort(evd);
        }
    }
}

fn in_use(cause: impl Into<String>) -> DatError {
    DatError::new(
        ReturnType::InvalidState,
        Subtype::InvalidStateIaInUse,
        cause.into(),
    )
}

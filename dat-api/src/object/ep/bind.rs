//! Posting binds of windows.
//!
//! A bind is always signalled on the ring, so that a failed one can be reported; the completion of
//! a successful bind posted SUPPRESS is dropped.

use core::sync::atomic::Ordering;

use dat_engine::{BindRequest, Endpoint, MemoryWindow, PostError, SendFlags, WindowTarget};

use super::Ep;
use super::poster::Poster;
use crate::object::wr_data::{SUPPRESSED, UNSIGNALLED};
use crate::refusal::Refusal;
use crate::state::Call;
use crate::types::CompletionFlags;

/// A bind or unbind to be posted.
pub(crate) struct Bind<'a> {
    pub(crate) window: &'a mut MemoryWindow,
    /// The work-request data, from [`crate::object::wr_data::of_bind`].
    pub(crate) wr_data: u32,
    pub(crate) target: Option<WindowTarget<'a>>,
    pub(crate) cookie: u64,
    pub(crate) flags: CompletionFlags,
    /// The handle of the RMR's zone.
    pub(crate) zone: usize,
}

impl Ep {
    /// Checks whether a bind of an RMR of this zone may be posted with these flags, as far as the
    /// RMR does not matter.
    ///
    /// # Errors
    /// What is wrong.
    ///
    /// # Safety
    /// As for [`crate::object::rmr::Rmr::bind`].
    pub(crate) unsafe fn check_bind(
        &self,
        zone: usize,
        flags: CompletionFlags,
    ) -> Result<(), Refusal> {
        let state = self.state();
        if !Call::PostRequest.legal().has(state) {
            return Err(Refusal::State {
                state,
                what: "binds",
            });
        }
        // SAFETY: the caller of the bind has promised that no other call on the endpoint runs,
        // unless posts take the lock.
        let entered = unsafe { self.posting.lock() };
        let poster = entered.poster;
        let allowed = poster.rdma_flags;
        if !allowed.contains(flags) {
            return Err(Refusal::Flags { flags, allowed });
        }
        poster.check_zone(zone)?;
        match self.requests.load(Ordering::Relaxed) {
            _ if poster.binds => Ok(()),
            0 => Err(Refusal::NoRequestEvd),
            evd => Err(Refusal::NoBinds { evd }),
        }
    }

    /// Posts a bind. Returns the key by which peers name the memory.
    ///
    /// # Errors
    /// As [`crate::object::rmr::Rmr::bind`]; with the engine's error if trying again may help.
    ///
    /// # Safety
    /// As for [`dat_engine::Endpoint::post_bind`], and for [`crate::object::rmr::Rmr::bind`].
    pub(crate) unsafe fn post_bind(
        &self,
        bind: Bind<'_>,
    ) -> Result<u32, (Refusal, Option<PostError>)> {
        let mut wr_data = bind.wr_data;
        let has = |flag| bind.flags.contains(flag);
        if has(CompletionFlags::SUPPRESS) {
            wr_data |= SUPPRESSED;
        } else if has(CompletionFlags::UNSIGNALLED) {
            wr_data |= UNSIGNALLED;
        }
        let mut how = SendFlags::SIGNALED;
        how.set(SendFlags::FENCE, has(CompletionFlags::BARRIER_FENCE));
        if wr_data != bind.wr_data {
            self.inspect_completions();
        }
        let request = BindRequest {
            wr_id: bind.cookie,
            flags: how,
            target: bind.target,
        };
        // SAFETY: as in `check_bind`.
        let entered = unsafe { self.posting.lock() };
        let poster = entered.poster;
        let qp = poster.check_zone(bind.zone).map_err(|why| (why, None))?;
        // SAFETY: the region stays registered while the window is bound to it.
        match unsafe { qp.post_bind(bind.window, &request, wr_data) } {
            Ok(context) => {
                poster.unsignalled = 0;
                Ok(context)
            }
            Err(error) => Err((poster.request_refusal(error, "binds"), Some(error))),
        }
    }
}

impl Poster {
    /// Returns the queue pair for a bind of an RMR of this zone.
    ///
    /// # Errors
    /// The endpoint has another zone, or none.
    fn check_zone(&mut self, rmr: usize) -> Result<&mut Endpoint, Refusal> {
        let ep = self.zone;
        match &mut self.qp {
            Some(_) if ep != rmr => Err(Refusal::BindZones { rmr, ep }),
            Some(qp) => Ok(qp),
            None => Err(Refusal::NoZone),
        }
    }
}

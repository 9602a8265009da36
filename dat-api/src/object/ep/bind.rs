//! Binding RMRs through an endpoint.
//!
//! A bind is always signalled on the ring, so that a failed one can be reported; the completion of
//! a successful bind posted SUPPRESS is dropped.

use core::sync::atomic::Ordering;

use dat_engine::{BindRequest, MemoryWindow, PostError, SendFlags, WindowTarget};

use super::{Ep, state_of};
use crate::object::post::{bad_flags, no_zone, protection, refusal};
use crate::object::wr_data;
use crate::state::{Call, wrong_state};
use crate::status::{DatReturn, ReturnType, Subtype};
use crate::types::CompletionFlags;

/// A bind or unbind to be posted.
pub(crate) struct Bind<'a> {
    pub(crate) window: &'a mut MemoryWindow,
    /// The work-request data, from [`wr_data::of_bind`].
    pub(crate) wr_data: u32,
    pub(crate) target: Option<WindowTarget<'a>>,
    pub(crate) cookie: u64,
    pub(crate) flags: CompletionFlags,
    /// The number of the RMR's zone.
    pub(crate) zone: u32,
}

/// A posted bind.
pub(crate) struct Bound {
    /// The key by which peers name the memory.
    pub(crate) context: u32,
}

impl Ep {
    /// Checks whether a bind of an RMR of this zone may be posted with these flags, as far as the
    /// RMR does not matter.
    ///
    /// # Errors
    /// The code for what is wrong.
    ///
    /// # Safety
    /// As for [`crate::object::rmr::Rmr::bind`].
    pub(crate) unsafe fn check_bind(
        &self,
        zone: u32,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let state = state_of(self.state.load(Ordering::Acquire));
        if !Call::PostRequest.legal().has(state) {
            return Err(wrong_state(state));
        }
        // SAFETY: the caller of the bind has promised that no other call on the endpoint runs,
        // unless posts take the lock.
        let entered = unsafe { self.posting.lock() };
        let poster = entered.poster;
        if !poster.rdma_flags.contains(flags) {
            return Err(bad_flags());
        }
        if poster.qp.is_none() {
            return Err(no_zone());
        }
        if poster.zone != zone {
            return Err(protection());
        }
        if !poster.binds {
            return Err(DatReturn::error(
                ReturnType::InvalidHandle,
                Subtype::InvalidHandleEvdRequest,
            ));
        }
        Ok(())
    }

    /// Posts a bind.
    ///
    /// # Errors
    /// As [`crate::object::rmr::Rmr::bind`]; with the engine's error if trying again may help.
    ///
    /// # Safety
    /// As for [`dat_engine::Endpoint::post_bind`], and for [`crate::object::rmr::Rmr::bind`].
    pub(crate) unsafe fn post_bind(
        &self,
        bind: Bind<'_>,
    ) -> Result<Bound, (DatReturn, Option<PostError>)> {
        let mut wr_data = bind.wr_data;
        let has = |flag| bind.flags.contains(flag);
        if has(CompletionFlags::SUPPRESS) {
            wr_data |= wr_data::SUPPRESSED;
        } else if has(CompletionFlags::UNSIGNALLED) {
            wr_data |= wr_data::UNSIGNALLED;
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
        if poster.zone != bind.zone {
            return Err((protection(), None));
        }
        let Some(qp) = &mut poster.qp else {
            return Err((no_zone(), None));
        };
        // SAFETY: the caller's promise.
        match unsafe { qp.post_bind(bind.window, &request, wr_data) } {
            Ok(context) => {
                poster.unsignalled = 0;
                Ok(Bound { context })
            }
            Err(error) => Err((refusal(error), Some(error))),
        }
    }
}

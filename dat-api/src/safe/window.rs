//! Remote memory regions.

use std::sync::Arc;

use super::memory::Region;
use super::{Endpoint, ProtectionZone, RemoteSegment, Segment};
use crate::error::Result;
use crate::handle::Handle;
use crate::object::rmr::{Rmr, RmrInfo};
use crate::refusal::Refusal;
use crate::types::{CompletionFlags, LmrSegment, MemPrivileges};

/// A window of this side's memory that peers may use: bound, rebound and unbound through an
/// endpoint's request queue. Dropping it ends the access of peers.
#[derive(Debug)]
pub struct Window {
    rmr: Arc<Rmr>,
    /// The memory that it is bound to now and was bound to before: the device processes a bind
    /// later than it is posted.
    bound: [Option<Arc<Region>>; 2],
    // Dropped after the window is freed.
    _zone: ProtectionZone,
}

impl ProtectionZone {
    /// Creates an unbound window.
    ///
    /// # Errors
    /// As [`Rmr::create`].
    pub fn create_window(&self) -> Result<Window> {
        Ok(Window {
            rmr: Rmr::create(self.pz())?,
            bound: [None, None],
            _zone: self.clone(),
        })
    }
}

impl Window {
    /// Returns its DAT handle, as in [`crate::types::EventData::RmrBind`].
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.rmr.handle()
    }

    /// Returns what it is bound to.
    #[must_use]
    pub fn query(&self) -> RmrInfo {
        self.rmr.query()
    }

    fn keep(&mut self, region: Option<Arc<Region>>) {
        self.bound = [region, self.bound[0].take()];
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // Fails only if the adapter was closed, which has freed it.
        let _ = Rmr::free(self.rmr.handle());
    }
}

impl core::fmt::Debug for Region {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Region").finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Binds a window to a piece of memory, and returns how peers name it. Valid once the bind is
    /// complete, which is before any later post of this endpoint starts; a message posted next may
    /// therefore carry it to the peer.
    ///
    /// # Errors
    /// As [`Rmr::bind`].
    pub fn bind(
        &mut self,
        window: &mut Window,
        segment: Segment<'_>,
        privileges: MemPrivileges,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<RemoteSegment, Refusal> {
        let piece = segment.lmr();
        let rmr = &window.rmr;
        // SAFETY: only this value posts to the endpoint, and it is borrowed mutably.
        let context = unsafe { rmr.bind(self.ep(), piece, privileges, cookie, flags) }?;
        window.keep((piece.length != 0).then(|| Arc::clone(segment.region())));
        Ok(RemoteSegment {
            context,
            address: piece.address,
            length: piece.length,
        })
    }

    /// Unbinds a window; it can be bound again.
    ///
    /// # Errors
    /// As [`Rmr::bind`].
    pub fn unbind(
        &mut self,
        window: &mut Window,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), Refusal> {
        let none = MemPrivileges::empty();
        let (rmr, nothing) = (&window.rmr, LmrSegment::default());
        // SAFETY: as in `bind`.
        unsafe { rmr.bind(self.ep(), nothing, none, cookie, flags) }?;
        window.keep(None);
        Ok(())
    }
}

//! Remote memory regions.

use std::sync::Arc;

use super::memory::Region;
use super::{Endpoint, ProtectionZone, RemoteSegment, Segment};
use crate::error::Result;
use crate::handle::Handle;
use crate::object::rmr::{Rmr, RmrInfo};
use crate::status::DatReturn;
use crate::types::{CompletionFlags, LmrSegment, MemPrivileges};

/// A part of this side's memory that peers may use: opened, moved and closed
/// through an endpoint's request queue. Closed when it is dropped.
#[derive(Debug)]
pub struct Window {
    rmr: Arc<Rmr>,
    /// What it is bound to, and was before: the device learns of a bind a
    /// little later.
    bound: [Option<Arc<Region>>; 2],
    // After the window is gone.
    _zone: ProtectionZone,
}

impl ProtectionZone {
    /// Makes a window, which opens nothing.
    ///
    /// # Errors
    /// As [`Rmr::create`].
    pub fn window(&self) -> Result<Window> {
        Ok(Window {
            rmr: Rmr::create(self.pz())?,
            bound: [None, None],
            _zone: self.clone(),
        })
    }
}

impl Window {
    /// Its name, as [`crate::types::EventData::RmrBind`] has it.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.rmr.handle()
    }

    /// What it is bound to.
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
        // Fails only if the adapter was closed, which ended it as well.
        let _ = Rmr::free(self.rmr.handle());
    }
}

impl core::fmt::Debug for Region {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Region").finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Opens a piece of memory to peers: answers how they name it. Good once
    /// the bind is done, which is before anything that is posted here later
    /// starts: a message may tell the peer.
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
    ) -> Result<RemoteSegment, DatReturn> {
        let piece = segment.lmr();
        let rmr = &window.rmr;
        // SAFETY: only this value posts to the endpoint, and it is borrowed.
        let context = unsafe { rmr.bind(self.ep(), piece, privileges, cookie, flags) }?;
        window.keep((piece.length != 0).then(|| Arc::clone(segment.region())));
        Ok(RemoteSegment {
            context,
            address: piece.address,
            length: piece.length,
        })
    }

    /// Closes a window; it can be bound again.
    ///
    /// # Errors
    /// As [`Rmr::bind`].
    pub fn unbind(
        &mut self,
        window: &mut Window,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let none = MemPrivileges::empty();
        let (rmr, nothing) = (&window.rmr, LmrSegment::default());
        // SAFETY: as in `bind`.
        unsafe { rmr.bind(self.ep(), nothing, none, cookie, flags) }?;
        window.keep(None);
        Ok(())
    }
}

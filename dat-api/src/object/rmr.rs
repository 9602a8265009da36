//! Remote memory regions: parts of LMRs that peers may use, opened and closed
//! through an endpoint's request queue. Each is a memory window of the device.
//!
//! # What an RMR is bound to
//! That of the last bind that was posted: it keeps the LMR from being freed at
//! once, and lets go of the one before. A bind that fails, or is flushed, binds
//! nothing: the RMR counts as unbound then, though the device may still know
//! it by an older bind. Freeing an LMR asks the device, too, so an LMR whose
//! windows it has not closed yet is not freed behind its back.
//!
//! # Threads
//! The consumer serialises calls on one RMR, but a completion that failed comes
//! on whatever thread looks at the EVD. So there is a lock, which is hardly
//! ever waited for; with it held only the lock of posts of the endpoint and the
//! registration of the LMR are taken, and nothing is called back.

use core::fmt;
use std::sync::Arc;

use dat_engine::sync::Mutex;
use dat_engine::{Access, Completion, MemoryWindow, WindowTarget};

use super::ep::{Bind, Bound, Ep};
use super::lmr::{self, Lmr};
use super::post::protection;
use super::pz::{self, Pz};
use super::usage::Use;
use super::wr_data;
use crate::error::{DatError, Result};
use crate::handle::{self, Handle, Reservation, Upcalls};
use crate::object::exhausted;
use crate::status::{DatReturn, ReturnType, Subtype};
use crate::types::{CompletionFlags, LmrSegment, MemPrivileges};

/// A remote memory region.
pub struct Rmr {
    handle: Handle,
    pz: Arc<Pz>,
    inner: Mutex<Inner>,
}

struct Inner {
    /// Until it is freed, whoever still knows the object.
    window: Option<MemoryWindow>,
    bound: Option<Binding>,
    /// Binds posted so far.
    binds: u32,
    /// Until it is freed.
    _pz: Option<Use<Pz>>,
}

struct Binding {
    _lmr: Use<Lmr>,
    segment: LmrSegment,
    privileges: MemPrivileges,
    context: u32,
}

/// What [`Rmr::query`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RmrInfo {
    /// Its IA.
    pub ia: Handle,
    /// Its zone.
    pub pz: Handle,
    /// What it is bound to; `None` if it is not.
    pub bound: Option<RmrBinding>,
}

/// What an RMR opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RmrBinding {
    /// The memory.
    pub segment: LmrSegment,
    /// What peers may do; as it was asked for.
    pub privileges: MemPrivileges,
    /// What peers name it by.
    pub context: u32,
}

impl Rmr {
    /// What objects below it call.
    pub(super) const UPCALLS: Upcalls = Upcalls {
        abort: Self::abort,
        bind_failed,
        ..Upcalls::NONE
    };

    /// Makes an RMR, which is bound to nothing.
    ///
    /// # Errors
    /// - `DAT_INVALID_HANDLE_PZ`: the zone is being freed.
    /// - `DAT_MODEL_NOT_SUPPORTED`: the device has no windows (`max_rmrs` is 0).
    /// - `DAT_INSUFFICIENT_RESOURCES`: no more windows, or handles.
    pub fn create(pz: &Arc<Pz>) -> Result<Arc<Self>> {
        let used = Use::of(pz).ok_or_else(|| pz::stale("the zone is being freed"))?;
        let place = Reservation::new().ok_or_else(exhausted)?;
        let window = pz.domain().alloc_window()?;
        let rmr = Arc::new(Self {
            handle: place.handle(),
            pz: Arc::clone(pz),
            inner: Mutex::new(Inner {
                window: Some(window),
                bound: None,
                binds: 0,
                _pz: Some(used),
            }),
        });
        pz.ia().publish(place, &rmr)?;
        Ok(rmr)
    }

    /// Its name.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Its zone.
    #[must_use]
    pub fn pz(&self) -> &Arc<Pz> {
        &self.pz
    }

    /// What it is, and is bound to.
    #[must_use]
    pub fn query(&self) -> RmrInfo {
        RmrInfo {
            ia: self.pz.ia().handle(),
            pz: self.pz.handle(),
            bound: self.inner.lock().bound.as_ref().map(|bound| RmrBinding {
                segment: bound.segment,
                privileges: bound.privileges,
                context: bound.context,
            }),
        }
    }

    /// Posts a bind to a piece of an LMR, or with a segment of no bytes an
    /// unbind, whose other fields mean nothing. Answers the new context, by
    /// which peers name the memory once the bind is done; an older one is good
    /// until then. What is posted to the endpoint later starts only then.
    ///
    /// # Errors
    /// Section 3DAT, `dat_rmr_bind`:
    /// - `DAT_INVALID_STATE`: the endpoint is neither connected nor disconnected.
    /// - `DAT_INVALID_PARAMETER`: a completion flag that is not for binds, or
    ///   not for this endpoint.
    /// - `DAT_INVALID_PARAMETER`, argument 2: no LMR has the context, or the
    ///   segment is not all inside, or longer than 2 GiB.
    /// - `DAT_PROTECTION_VIOLATION`: RMR, LMR and endpoint are not of one zone.
    /// - `DAT_PRIVILEGES_VIOLATION`: remote read of an LMR without local read,
    ///   or remote write of one without local write.
    /// - `DAT_INVALID_HANDLE_EVD_REQUEST`: the request EVD carries no bind
    ///   completions.
    /// - `DAT_INSUFFICIENT_RESOURCES`: the request queue is full.
    /// - `DAT_MODEL_NOT_SUPPORTED`: the LMR is of memory that cannot be written,
    ///   or the endpoint too deep to have room for binds.
    ///
    /// # Safety
    /// No post, no other bind, and no call that ends or changes the endpoint runs
    /// on it at the same time, unless its IA is threadsafe.
    pub unsafe fn bind(
        &self,
        ep: &Ep,
        segment: LmrSegment,
        privileges: MemPrivileges,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<u32, DatReturn> {
        // SAFETY: passed on to the caller.
        let bind = || unsafe { self.try_bind(ep, segment, privileges, cookie, flags) };
        let mut refused = match bind() {
            Ok(context) => return Ok(context),
            Err(refused) => refused,
        };
        // Nothing is locked here: making room looks at completions.
        // SAFETY: passed on to the caller.
        let make_room = |error| unsafe { ep.make_request_room(error) };
        if refused.1.is_some_and(make_room) {
            match bind() {
                Ok(context) => return Ok(context),
                Err(again) => refused = again,
            }
        }
        if let Some(error) = refused.1 {
            ep.refuse(error);
        }
        Err(refused.0)
    }

    /// # Safety
    /// As for [`Self::bind`].
    unsafe fn try_bind(
        &self,
        ep: &Ep,
        segment: LmrSegment,
        privileges: MemPrivileges,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<u32, (DatReturn, Option<dat_engine::PostError>)> {
        let plain = |answer| (answer, None);
        // SAFETY: passed on to the caller.
        unsafe { ep.admits_bind(self.pz.id(), flags) }.map_err(plain)?;
        let lmr = match segment.length {
            0 => None,
            _ => Some(self.target(&segment, privileges).map_err(plain)?),
        };
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let Some(window) = &mut inner.window else {
            return Err(plain(stale().code()));
        };
        let note = wr_data::of_bind(self.handle, inner.binds);
        let zone = self.pz.id();
        let Bound { context } = match &lmr {
            None => {
                let unbind = Bind {
                    window,
                    note,
                    target: None,
                    cookie,
                    flags,
                    zone,
                };
                // SAFETY: it names no region; the rest is passed on to the caller.
                unsafe { ep.post_bind(unbind) }?
            }
            Some(lmr) => {
                let posted = lmr.with_region(|region| {
                    let bind = Bind {
                        window,
                        note,
                        target: Some(WindowTarget {
                            region,
                            addr: segment.address,
                            length: segment.length,
                            access: access_of(privileges),
                        }),
                        cookie,
                        flags,
                        zone,
                    };
                    // SAFETY: the region is registered as long as the binding
                    // uses the LMR, until another bind is posted; the rest is
                    // passed on to the caller.
                    unsafe { ep.post_bind(bind) }
                });
                // Ended between the check and now: the IA is being closed.
                posted.unwrap_or_else(|| Err(plain(no_such_lmr())))?
            }
        };
        inner.binds = inner.binds.wrapping_add(1);
        inner.bound = lmr.map(|lmr| Binding {
            _lmr: lmr,
            segment,
            privileges,
            context,
        });
        Ok(context)
    }

    /// The LMR that a segment is of, if it may be bound so.
    fn target(
        &self,
        segment: &LmrSegment,
        privileges: MemPrivileges,
    ) -> Result<Use<Lmr>, DatReturn> {
        let found = lmr::find(segment.context).ok_or_else(no_such_lmr)?;
        let lmr = Use::of(&found).ok_or_else(no_such_lmr)?;
        let info = lmr.query();
        let offset = segment.address.wrapping_sub(info.registered_address);
        let inside = offset <= info.registered_size
            && segment.length <= info.registered_size - offset
            && segment.length <= dat_engine::LONGEST_WINDOW;
        if !inside {
            return Err(no_such_lmr());
        }
        if lmr.pz().id() != self.pz.id() {
            return Err(protection());
        }
        for (remote, local) in [
            (MemPrivileges::REMOTE_READ, MemPrivileges::LOCAL_READ),
            (MemPrivileges::REMOTE_WRITE, MemPrivileges::LOCAL_WRITE),
        ] {
            if privileges.contains(remote) && !info.privileges.contains(local) {
                return Err(DatReturn::error(
                    ReturnType::PrivilegesViolation,
                    Subtype::NoSubtype,
                ));
            }
        }
        if !lmr.is_bindable() {
            return Err(DatReturn::error(
                ReturnType::ModelNotSupported,
                Subtype::NoSubtype,
            ));
        }
        Ok(lmr)
    }

    /// Frees an RMR, bound or not: peers have no access by it any more when
    /// this returns.
    ///
    /// # Errors
    /// The handle names none.
    pub fn free(handle: Handle) -> Result<()> {
        let rmr = handle::pin::<Self>(handle).ok_or_else(stale)?;
        rmr.pz.ia().unregister(handle);
        drop(rmr);
        let rmr = handle::retire::<Self>(handle, |_| ()).ok_or_else(stale)?;
        rmr.end();
        Ok(())
    }

    /// Its IA is closed abruptly.
    fn abort(handle: Handle) {
        if let Some(rmr) = handle::retire::<Self>(handle, |_| ()) {
            rmr.end();
        }
    }

    /// Ends the window, whoever still knows the object; then LMR and zone are
    /// let go.
    fn end(&self) {
        let mut inner = self.inner.lock();
        inner.window = None;
        inner.bound = None;
        inner._pz = None;
    }
}

/// A bind failed, or was flushed: if it was the last one, nothing is bound.
fn bind_failed(completion: &Completion) {
    let Some(handle) = wr_data::bound_rmr(completion) else {
        return;
    };
    let Some(rmr) = handle::pin::<Rmr>(handle) else {
        return;
    };
    let mut inner = rmr.inner.lock();
    let last = inner.binds.wrapping_sub(1);
    if wr_data::is_of_bind(completion, handle, last) {
        inner.bound = None;
    }
}

/// What the window must allow.
fn access_of(privileges: MemPrivileges) -> Access {
    let mut access = Access::empty();
    let asks = |privilege| privileges.contains(privilege);
    access.set(Access::REMOTE_READ, asks(MemPrivileges::REMOTE_READ));
    access.set(Access::REMOTE_WRITE, asks(MemPrivileges::REMOTE_WRITE));
    access
}

#[cold]
fn no_such_lmr() -> DatReturn {
    DatReturn::error(ReturnType::InvalidParameter, Subtype::InvalidArg2)
}

fn stale() -> DatError {
    DatError::new(
        ReturnType::InvalidHandle,
        Subtype::InvalidHandleRmr,
        "the handle names no RMR",
    )
}

impl fmt::Debug for Rmr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rmr")
            .field("handle", &self.handle)
            .field("bound", &self.query().bound)
            .finish_non_exhaustive()
    }
}

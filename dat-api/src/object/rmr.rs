//! Remote memory regions: parts of LMRs that peers may use, bound and unbound through an endpoint's
//! request queue. Each is a memory window of the device.
//!
//! # What an RMR is bound to
//! To the LMR of the last bind that was posted: the bind keeps that LMR from being freed, and
//! releases the previous one. A bind that fails, or is flushed, binds nothing: the RMR then counts
//! as unbound, though the device may still have an older bind. Freeing an LMR also
//! deregisters it in the device, which refuses while a window is bound.
//!
//! # Threads
//! The consumer serialises calls on one RMR, but a failed completion is handled on whatever thread
//! polls the EVD. So there is a lock, which is rarely contended. While it is held, only the
//! endpoint's lock of posts and the registration of the LMR are locked, and no upcall is made.
//!
//! Decision: `docs/decisions/032-rmr-is-a-type-1-window.md`

use std::sync::Arc;

use dat_engine::sync::Mutex;
use dat_engine::{Access, Completion, MemoryWindow, PostError, WindowTarget};

use super::ep::{Bind, Ep};
use super::lmr::{self, Lmr};
use super::pz::{self, Pz};
use super::usage::Use;
use super::wr_data;
use crate::error::{DatError, Result};
use crate::handle::{self, Handle, Reservation, Upcalls};
use crate::object::exhausted;
use crate::object::stale;
use crate::refusal::{Refusal, Unusable};
use crate::types::{CompletionFlags, LmrSegment, MemPrivileges};

/// A remote memory region.
pub struct Rmr {
    handle: Handle,
    pz: Arc<Pz>,
    inner: Mutex<Inner>,
}

struct Inner {
    /// `None` once it is freed, even if references to the object remain.
    window: Option<MemoryWindow>,
    bound: Option<Binding>,
    /// The number of binds posted so far.
    binds: u32,
    /// The last bind failed, so the device may have the window still bound as before it.
    failed: bool,
    /// `None` once it is freed.
    _pz: Option<Use<Pz>>,
}

struct Binding {
    _lmr: Use<Lmr>,
    segment: LmrSegment,
    privileges: MemPrivileges,
    context: u32,
}

/// The result of [`Rmr::query`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RmrInfo {
    /// Its IA.
    pub ia: Handle,
    /// Its zone.
    pub pz: Handle,
    /// What it is bound to; `None` if it is unbound.
    pub bound: Option<RmrBinding>,
}

/// The memory that an RMR is bound to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RmrBinding {
    /// The memory.
    pub segment: LmrSegment,
    /// The requested privileges of peers.
    pub privileges: MemPrivileges,
    /// The context for peers.
    pub context: u32,
}

impl Rmr {
    /// The functions that objects in lower modules call.
    pub(super) const UPCALLS: Upcalls = Upcalls {
        abort: Self::abort,
        bind_failed,
        ..Upcalls::NONE
    };

    /// Creates an unbound RMR.
    ///
    /// # Errors
    /// - `DAT_INVALID_HANDLE_PZ`: the zone is being freed.
    /// - `DAT_MODEL_NOT_SUPPORTED`: the device has no windows (`max_rmrs` is 0).
    /// - `DAT_INSUFFICIENT_RESOURCES`: no more windows, or handles.
    pub fn create(pz: &Arc<Pz>) -> Result<Arc<Self>> {
        let used = Use::of(pz).ok_or_else(|| pz::unusable("the zone is being freed"))?;
        let place = Reservation::new().ok_or_else(exhausted)?;
        let window = pz.domain().alloc_window()?;
        let rmr = Arc::new(Self {
            handle: place.handle(),
            pz: Arc::clone(pz),
            inner: Mutex::new(Inner {
                window: Some(window),
                bound: None,
                binds: 0,
                failed: false,
                _pz: Some(used),
            }),
        });
        pz.ia().publish(place, &rmr)?;
        Ok(rmr)
    }

    /// Returns its handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns its zone.
    #[must_use]
    pub fn pz(&self) -> &Arc<Pz> {
        &self.pz
    }

    /// Returns its parameters, and what it is bound to.
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

    /// Posts a bind to a piece of an LMR, or, with a segment of length 0, an unbind, which ignores
    /// the other fields. Returns the new context, by which peers name the memory once the bind is
    /// complete; an older one is valid until then. Later requests on the endpoint start only after
    /// the bind.
    ///
    /// # Errors
    /// Section 3DAT, `dat_rmr_bind`:
    /// - `DAT_INVALID_STATE`: the endpoint is neither connected nor disconnected.
    /// - `DAT_INVALID_PARAMETER`: a completion flag that is not for binds, or not for this
    ///   endpoint.
    /// - `DAT_INVALID_PARAMETER`, argument 2: no LMR has the context, or the segment is not all
    ///   inside, or longer than 2 GiB.
    /// - `DAT_PROTECTION_VIOLATION`: RMR, LMR and endpoint are not of one zone.
    /// - `DAT_PRIVILEGES_VIOLATION`: remote write of an LMR without local write; on a strict IA also
    ///   remote read of one without local read.
    /// - `DAT_INVALID_HANDLE_EVD_REQUEST`: the request EVD carries no bind completions.
    /// - `DAT_INSUFFICIENT_RESOURCES`: the request queue is full.
    /// - `DAT_MODEL_NOT_SUPPORTED`: the LMR is of read-only memory, or the endpoint's ring has no
    ///   room for binds.
    ///
    /// # Safety
    /// No post, no other bind, and no call that frees or changes the endpoint runs on it at the
    /// same time, unless its IA is threadsafe.
    pub unsafe fn bind(
        &self,
        ep: &Ep,
        segment: LmrSegment,
        privileges: MemPrivileges,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<u32, Refusal> {
        // SAFETY: posts and binds to the endpoint take turns.
        let bind = || unsafe { self.try_bind(ep, segment, privileges, cookie, flags) };
        let mut refused = match bind() {
            Ok(context) => return Ok(context),
            Err(refused) => refused,
        };
        // Nothing is locked here: making room polls completions.
        // SAFETY: no post runs at the same time, unless posts take the lock.
        let make_room = |error| unsafe { ep.make_request_room(error) };
        if refused.1.is_some_and(make_room) {
            match bind() {
                Ok(context) => return Ok(context),
                Err(again) => refused = again,
            }
        }
        if let Some(error) = refused.1 {
            ep.count_refused(error);
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
    ) -> Result<u32, (Refusal, Option<PostError>)> {
        let plain = |refusal| (refusal, None);
        let zone = self.pz.handle().bits();
        // SAFETY: posts and binds to the endpoint take turns.
        unsafe { ep.check_bind(zone, flags) }.map_err(plain)?;
        let lmr = match segment.length {
            0 => None,
            _ => Some(self.target(&segment, privileges).map_err(plain)?),
        };
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let Some(window) = &mut inner.window else {
            return Err(plain(Refusal::RmrFreed));
        };
        if inner.failed {
            // Peers may still have the access of an earlier bind, and libibverbs needs that bind's
            // region for an unbind. Freeing the window ends the access without a region.
            let fresh = self.pz.domain().alloc_window();
            *window = fresh.map_err(|error| {
                let code = DatError::from(error).code();
                plain(Refusal::NoWindow { code })
            })?;
            inner.failed = false;
        }
        let wr_data = wr_data::of_bind(self.handle, inner.binds);
        let mut post = |target: Option<WindowTarget<'_>>| {
            let bind = Bind {
                window,
                wr_data,
                target,
                cookie,
                flags,
                zone,
            };
            // SAFETY: the region, if any, is registered as long as the binding uses the LMR, until
            // another bind is posted; the rest is the caller's promise.
            unsafe { ep.post_bind(bind) }
        };
        let posted = match &lmr {
            None => Some(post(None)),
            Some(lmr) => lmr.with_region(|region| {
                post(Some(WindowTarget {
                    region,
                    addr: segment.address,
                    length: segment.length,
                    access: access_of(privileges),
                }))
            }),
        };
        // Deregistered after the check: the IA is being closed.
        let context = posted.unwrap_or_else(|| Err(plain(no_lmr(segment.context))))?;
        inner.binds = inner.binds.wrapping_add(1);
        inner.bound = lmr.map(|lmr| Binding {
            _lmr: lmr,
            segment,
            privileges,
            context,
        });
        Ok(context)
    }

    /// Returns the LMR of a segment, if it may be bound with these privileges.
    fn target(&self, segment: &LmrSegment, privileges: MemPrivileges) -> Result<Use<Lmr>, Refusal> {
        let &LmrSegment {
            context,
            address,
            length,
        } = segment;
        if length > dat_engine::LONGEST_WINDOW {
            return Err(Refusal::LongTarget { length });
        }
        let found = lmr::find(context).ok_or_else(|| no_lmr(context))?;
        let lmr = Use::of(&found).ok_or_else(|| no_lmr(context))?;
        let info = lmr.query();
        let (first, bytes) = (info.registered_address, info.registered_size);
        let offset = address.wrapping_sub(first);
        if offset > bytes || length > bytes - offset {
            let why = Unusable::Outside {
                context,
                address,
                length,
                first,
                bytes,
            };
            return Err(Refusal::BadTarget { why });
        }
        let refuse = |why| Err(Refusal::Target { why });
        if info.pz != self.pz.handle() {
            return refuse(Unusable::Zone {
                context,
                lmr: info.pz.bits(),
                needed: self.pz.handle().bits(),
            });
        }
        let (has, mut need) = (lmr.granted(), MemPrivileges::empty());
        for (remote, local) in [
            (MemPrivileges::REMOTE_READ, MemPrivileges::LOCAL_READ),
            (MemPrivileges::REMOTE_WRITE, MemPrivileges::LOCAL_WRITE),
        ] {
            need.set(local, privileges.contains(remote));
        }
        if !has.contains(need) {
            return refuse(Unusable::Privileges { context, has, need });
        }
        if !lmr.is_bindable() {
            return Err(Refusal::ReadOnly { context });
        }
        Ok(lmr)
    }

    /// Frees an RMR, bound or not: when this returns, peers have no access through it.
    ///
    /// # Errors
    /// The handle names no RMR.
    pub fn free(handle: Handle) -> Result<()> {
        let rmr = handle::pin::<Self>(handle).ok_or_else(stale::<Self>)?;
        rmr.pz.ia().unregister(handle);
        drop(rmr);
        let rmr = handle::retire::<Self>(handle, |_| ()).ok_or_else(stale::<Self>)?;
        rmr.end();
        Ok(())
    }

    /// Frees it because its IA is closed abruptly.
    fn abort(handle: Handle) {
        if let Some(rmr) = handle::retire::<Self>(handle, |_| ()) {
            rmr.end();
        }
    }

    /// Frees the window, even if references to the object remain; then releases LMR and zone.
    fn end(&self) {
        let mut inner = self.inner.lock();
        inner.window = None;
        inner.bound = None;
        inner._pz = None;
    }
}

/// Handles a bind that failed or was flushed: if it was the last one posted, the RMR is unbound.
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
        inner.failed = true;
    }
}

/// Returns the access that the window must allow. No window allows atomic operations.
fn access_of(privileges: MemPrivileges) -> Access {
    let mut access = Access::empty();
    let asks = |privilege| privileges.contains(privilege);
    access.set(Access::REMOTE_READ, asks(MemPrivileges::REMOTE_READ));
    access.set(Access::REMOTE_WRITE, asks(MemPrivileges::REMOTE_WRITE));
    access
}

#[cold]
fn no_lmr(context: u32) -> Refusal {
    Refusal::BadTarget {
        why: Unusable::NoLmr { context },
    }
}

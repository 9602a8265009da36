//! A doorbell register that only one QP uses.
//!
//! libmlx5 shares doorbell registers between QPs, behind a lock of its own. A
//! thread domain gets one alone; a QP is created in it through a parent domain.
//!
//! Decision: `docs/decisions/003-blueflame-exclusive-register.md`

use super::domain::{ProtectionDomain, RawDomain};
use crate::error::ControlError;
use core::ptr::NonNull;
use dv_sys::inline;
use dv_sys::verbs::{self, ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr};
use std::sync::Arc;

/// A thread domain inside a parent domain.
pub(super) struct ExclusiveRegister {
    // Dropped in this order: a thread domain in use cannot be deallocated.
    parent: ParentDomain,
    _thread: ThreadDomain,
}

impl ExclusiveRegister {
    pub(super) fn allocate(domain: &ProtectionDomain) -> Result<Self, ControlError> {
        const OPERATION: &str = "allocate a doorbell register of its own";
        let mut attr = ibv_td_init_attr { comp_mask: 0 };
        // SAFETY: the context is open, and the attributes alive for the call.
        let thread = unsafe { inline::ibv_alloc_td(domain.raw.context.as_ptr(), &raw mut attr) };
        let thread = NonNull::new(thread).ok_or_else(|| ControlError::last(OPERATION))?;
        let thread = ThreadDomain {
            raw: thread,
            domain: Arc::clone(&domain.raw),
        };

        // SAFETY: pointers and function pointers in options, for which zero is valid.
        let mut attr: ibv_parent_domain_init_attr = unsafe { core::mem::zeroed() };
        attr.pd = domain.raw.as_ptr();
        attr.td = thread.raw.as_ptr();
        // SAFETY: both domains are alive, and the attributes for the call.
        let parent =
            unsafe { inline::ibv_alloc_parent_domain(domain.raw.context.as_ptr(), &raw mut attr) };
        let parent = NonNull::new(parent).ok_or_else(|| ControlError::last(OPERATION))?;
        let parent = ParentDomain {
            raw: parent,
            domain: Arc::clone(&domain.raw),
        };
        Ok(Self {
            parent,
            _thread: thread,
        })
    }

    /// Returns the parent domain, in which the QP is created.
    pub(super) fn parent(&self) -> *mut ibv_pd {
        self.parent.raw.as_ptr()
    }
}

struct ThreadDomain {
    raw: NonNull<ibv_td>,
    domain: Arc<RawDomain>,
}

impl Drop for ThreadDomain {
    fn drop(&mut self) {
        if !self.domain.context.here() {
            return;
        }
        // SAFETY: allocated above; the parent domain that used it was deallocated.
        let errno = unsafe { inline::ibv_dealloc_td(self.raw.as_ptr()) };
        if errno != 0 {
            tracing::error!(errno, "ibv_dealloc_td failed");
        }
    }
}

struct ParentDomain {
    raw: NonNull<ibv_pd>,
    domain: Arc<RawDomain>,
}

impl Drop for ParentDomain {
    fn drop(&mut self) {
        if !self.domain.context.here() {
            return;
        }
        // SAFETY: allocated above; the QP in it was destroyed.
        let errno = unsafe { verbs::ibv_dealloc_pd(self.raw.as_ptr()) };
        if errno != 0 {
            tracing::error!(errno, "ibv_dealloc_pd of a parent domain failed");
        }
    }
}

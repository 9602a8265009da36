//! Memory windows: keys that a QP binds to part of a memory region and invalidates
//! without a kernel command (IBA 10.6.7).
//!
//! A window is bound, unbound and invalidated by UMR WQEs, and invalidated by a
//! peer's SEND with invalidate. Type 1 belongs to its protection domain only; type
//! 2 (2B of the architecture) also belongs to the QP that bound it, and must be
//! free to be bound.
//!
//! The device finds a window by the index in its key, and takes the low byte of the
//! new key from the WQE, since only the driver library knows which one the program
//! expects. All rules of the architecture are checked at the bind, while a
//! ConnectX checks some of them at the first access; programs that violate them
//! fail earlier here.
//!
//! Windows and regions share the table of memory keys. Access through a window is checked against the
//! rights of the window and against what the region allows locally. A WQE that follows a change of a
//! key without the small fence is reported as a violation, although keys change in order here.

use super::adapter::Nic;
use super::core::Core;
use super::mr::{Mkey, MkeyError, MkeyTable, Region};
use crate::decode::umr::{Klm, MkeyAccess, MkeyMask, NO_QP, Umr, UmrFlags};
use crate::refusal::{OrRefuse, refuse_if};
use crate::spec::{Access, MwKeys, MwSpec, PdId, Result, WindowType};

/// The user of a remote key: a QP and its protection domain.
#[derive(Clone, Copy, Debug)]
pub(super) struct User {
    pub(super) pd: PdId,
    pub(super) qpn: u32,
    /// Whether it is the queue of a guest's driver, which changes keys of all domains.
    pub(super) changes_any_key: bool,
}

/// A memory window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) spec: MwSpec,
    pub(super) key: u32,
    /// The QP that owns the window, while a type 2 window is bound.
    qpn: Option<u32>,
    /// `None` while it is free.
    binding: Option<Binding>,
}

/// The memory that a window gives access to.
#[derive(Clone, Copy, Debug)]
struct Binding {
    /// Key of the region.
    region: u32,
    /// Start of the window in the region.
    base: u64,
    /// The address that peers use for the start.
    start: u64,
    length: u64,
    access: Access,
}

impl Window {
    fn is_owned_by(&self, user: User) -> bool {
        self.spec.pd == user.pd && self.qpn.is_none_or(|qpn| qpn == user.qpn)
    }

    /// Returns the region's key and the address in it, if the window permits the
    /// access `needs` to `length` bytes at `address`.
    fn open(
        &self,
        user: User,
        address: u64,
        length: u64,
        needs: Access,
    ) -> core::result::Result<(u32, u64), MkeyError> {
        let binding = self.binding.as_ref().ok_or(MkeyError::Key)?;
        if !self.is_owned_by(user) {
            return Err(MkeyError::Domain);
        }
        if !binding.access.contains(needs) {
            return Err(MkeyError::Rights);
        }
        let offset = address.wrapping_sub(binding.start);
        if offset > binding.length || length > binding.length - offset {
            return Err(MkeyError::Bounds);
        }
        Ok((binding.region, binding.base.wrapping_add(offset)))
    }

    /// Returns the index of the region's key.
    fn region(&self) -> Option<u32> {
        self.binding.map(|binding| binding.region >> 8)
    }
}

impl MkeyTable {
    /// Translates an address with a key from a peer: a region's or a window's.
    /// Otherwise the same as [`MkeyTable::translate`].
    #[inline]
    pub(super) fn translate_remote(
        &self,
        key: u32,
        user: User,
        address: u64,
        length: u64,
        needs: Access,
    ) -> core::result::Result<u64, MkeyError> {
        let (region, host) = self.permit_remote(key, user, address, length, needs)?;
        Ok(self.begin_use(region, host, length))
    }

    /// The same as [`MkeyTable::permit`], with a key from a peer.
    #[inline]
    pub(super) fn permit_remote(
        &self,
        key: u32,
        user: User,
        address: u64,
        length: u64,
        needs: Access,
    ) -> core::result::Result<(&Region, u64), MkeyError> {
        let Some(window) = self.window(key >> 8) else {
            return self.permit(key, user.pd, address, length, needs);
        };
        if window.key != key {
            return Err(MkeyError::Key);
        }
        let (region, address) = window.open(user, address, length, needs)?;
        // The window grants the remote access, the region must permit the local one.
        let local = if needs == Access::REMOTE_READ {
            Access::empty()
        } else {
            Access::LOCAL_WRITE
        };
        self.permit(region, user.pd, address, length, local)
    }

    /// Executes a UMR WQE of a QP on the key in its control segment.
    ///
    /// # Errors
    /// Returns the reason why it is not permitted.
    pub(super) fn change_key(
        &mut self,
        user: User,
        key: u32,
        umr: &Umr,
    ) -> core::result::Result<(), &'static str> {
        let index = key >> 8;
        let mut window = *self.window(index).ok_or("the key is not a window's key")?;
        let before = window.region();
        if window.spec.pd != user.pd {
            return Err("the window is in another protection domain");
        }
        if umr.flags.contains(UmrFlags::CHECK_FREE) && window.binding.is_some() {
            return Err("the window is bound already");
        }
        if umr.flags.contains(UmrFlags::CHECK_QPN) && window.qpn != Some(user.qpn) {
            return Err("the window does not belong to this QP");
        }
        if umr.mask.contains(MkeyMask::KEY) {
            window.key = index << 8 | u32::from(umr.variant);
        }
        if umr.mask.contains(MkeyMask::QPN) {
            window.qpn = (umr.qpn != NO_QP).then_some(umr.qpn);
        }
        if !umr.mask.contains(MkeyMask::FREE) {
            return Err("the UMR neither binds nor frees the window");
        }
        window.binding = if umr.free {
            None
        } else {
            let is_owned = window.qpn == Some(user.qpn);
            match window.spec.kind {
                WindowType::One if window.qpn.is_some() => {
                    return Err("a window of type 1 belongs to no QP");
                }
                WindowType::Two if !is_owned => {
                    return Err("a window of type 2 belongs to the QP that binds it");
                }
                WindowType::One | WindowType::Two => {}
            }
            Some(self.binding(user, umr)?)
        };
        let after = window.region();
        if let Some(Mkey::Window(changed)) = self.get_mut(index) {
            *changed = window;
        }
        self.count_window(before, after);
        Ok(())
    }

    fn binding(&self, user: User, umr: &Umr) -> core::result::Result<Binding, &'static str> {
        let whole = MkeyMask::LENGTH
            | MkeyMask::START
            | MkeyMask::REMOTE_READ
            | MkeyMask::REMOTE_WRITE
            | MkeyMask::ATOMIC;
        if !umr.mask.contains(whole) {
            return Err("the bind does not set length, start and access");
        }
        let klm = umr
            .klm
            .filter(|_| umr.flags.contains(UmrFlags::INLINE) && umr.octowords > 0);
        let Some(Klm {
            length,
            key,
            address,
        }) = klm
        else {
            return Err("the bind has no translation entry");
        };
        let mut access = Access::empty();
        for (bit, right) in [
            (MkeyAccess::REMOTE_READ, Access::REMOTE_READ),
            (MkeyAccess::REMOTE_WRITE, Access::REMOTE_WRITE),
            (MkeyAccess::ATOMIC, Access::REMOTE_ATOMIC),
        ] {
            access.set(right, umr.access.contains(bit));
        }
        let changes = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        let mut needs = Access::MW_BIND;
        needs.set(Access::LOCAL_WRITE, changes);
        if umr.length == 0 || umr.length > u64::from(length) || umr.offset != 0 {
            return Err("the translation entry does not cover the window");
        }
        if umr.start.checked_add(umr.length).is_none() {
            return Err("the window's addresses wrap around");
        }
        self.permit(key, user.pd, address, umr.length, needs)
            .map_err(|denied| match denied {
                MkeyError::Key => "the region does not exist",
                MkeyError::Domain => "the region is in another protection domain",
                MkeyError::Bounds => "the window is not inside the region",
                MkeyError::Rights => "the region was registered without the required access flags",
            })?;
        Ok(Binding {
            region: key,
            base: address,
            start: umr.start,
            length: umr.length,
            access,
        })
    }

    /// Invalidates the window that a peer's SEND names.
    ///
    /// # Errors
    /// Returns an error unless it is a bound window of type 2 of this QP.
    pub(super) fn invalidate(
        &mut self,
        key: u32,
        user: User,
    ) -> core::result::Result<(), MkeyError> {
        let found = self.window(key >> 8).filter(|window| window.key == key);
        let mut window = *found.ok_or(MkeyError::Key)?;
        if window.spec.kind == WindowType::One || window.binding.is_none() {
            return Err(MkeyError::Rights);
        }
        if !window.is_owned_by(user) {
            return Err(MkeyError::Domain);
        }
        let before = window.region();
        window.binding = None;
        window.qpn = None;
        if let Some(Mkey::Window(changed)) = self.get_mut(key >> 8) {
            *changed = window;
        }
        self.count_window(before, None);
        Ok(())
    }

    fn window(&self, index: u32) -> Option<&Window> {
        match self.get(index) {
            Some(Mkey::Window(window)) => Some(window),
            _ => None,
        }
    }

    /// Updates the number of bound windows of the regions before and after a change.
    fn count_window(&mut self, before: Option<u32>, after: Option<u32>) {
        if let Some(Mkey::Region(region)) = after.and_then(|index| self.get_mut(index)) {
            region.windows += 1;
        }
        if let Some(Mkey::Region(region)) = before.and_then(|index| self.get_mut(index)) {
            region.windows -= 1;
        }
    }
}

impl Core {
    /// Executes [`MkeyTable::change_key`], and writes an error to the trace. Returns
    /// whether it was permitted.
    pub(super) fn change_key(&mut self, user: User, key: u32, umr: &Umr, entries: &[u8]) -> bool {
        if self.mkeys.is_guest_region(key >> 8) {
            return self.change_guest_key(user, key, umr, entries);
        }
        let done = self.mkeys.change_key(user, key, umr);
        if let Err(text) = done {
            self.note(|| format!("QP {:#x}, window {key:#010x}: {text}", user.qpn));
        }
        done.is_ok()
    }
}

impl Nic {
    /// Allocates a free memory window.
    ///
    /// # Errors
    /// `EINVAL` for an unknown protection domain, `ENOMEM` if there are too many
    /// keys.
    pub(crate) fn alloc_mw(&mut self, spec: &MwSpec) -> Result<MwKeys> {
        self.add_window(spec, None)
    }

    /// The same as `alloc_mw`, for a guest, which chooses the low byte of the key.
    ///
    /// # Errors
    /// `EINVAL` for an unknown protection domain, `ENOMEM` above the limits.
    pub fn create_window(&mut self, spec: &MwSpec, variant: u8) -> Result<MwKeys> {
        self.add_window(spec, Some(variant))
    }

    fn add_window(&mut self, spec: &MwSpec, variant: Option<u8>) -> Result<MwKeys> {
        let pd = self.core.pds.get(spec.pd.0);
        let pd = pd.or_refuse(libc::EINVAL, "the protection domain does not exist")?;
        refuse_if(
            pd.context != spec.context,
            libc::EINVAL,
            "the protection domain belongs to another context",
        )?;
        self.core.check_memory()?;
        let window = |key| Window {
            spec: *spec,
            key,
            qpn: None,
            binding: None,
        };
        let inserted = self.core.mkeys.insert_window(variant, window);
        let (handle, rkey) = inserted.or_refuse(
            libc::ENOMEM,
            "the process has as many memory windows as max_mw allows",
        )?;
        if let Some(pd) = self.core.pds.get_mut(spec.pd.0) {
            pd.users += 1;
        }
        Ok(MwKeys { handle, rkey })
    }

    /// Frees a memory window, bound or not.
    ///
    /// # Errors
    /// `EINVAL` if the context has no such window.
    pub fn dealloc_mw(&mut self, context: crate::spec::ContextId, handle: u32) -> Result<()> {
        let mkeys = &mut self.core.mkeys;
        let owned = mkeys.window(handle).copied();
        let window = owned.filter(|window| window.spec.context == context);
        let window = window.or_refuse(libc::EINVAL, "the memory window does not exist")?;
        mkeys.count_window(window.region(), None);
        mkeys.remove(handle);
        if let Some(pd) = self.core.pds.get_mut(window.spec.pd.0) {
            pd.users -= 1;
        }
        Ok(())
    }
}

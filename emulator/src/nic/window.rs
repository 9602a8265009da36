//! Memory windows: keys that a queue pair binds to a part of a region, and
//! that are taken back without a command (IBA 10.6.7).
//!
//! A window is bound, unbound and invalidated by UMR WQEs, and invalidated by
//! a peer's SEND with invalidate. Type 1 belongs to its protection domain
//! only; type 2 (2B of the architecture) belongs to the queue pair that bound
//! it as well, and must be free to be bound.
//!
//! The device looks windows up by the index in their key, and takes the low
//! byte from the WQE: the driver library alone knows which one the program
//! counts. What the architecture asks at a bind is checked at the bind, where
//! a ConnectX checks some of it at the first access: a program that gets it
//! wrong is told sooner.

use super::adapter::Nic;
use super::core::Core;
use super::mr::{Denied, Mkey, Mrs};
use super::spec::{Access, Errno, MwKeys, MwSpec, PdId, Result, WindowType};
use crate::decode::umr::{Klm, MkeyAccess, MkeyMask, NO_QP, Umr, UmrFlags};

/// Who uses a remote key: a queue pair and its protection domain.
#[derive(Clone, Copy, Debug)]
pub(super) struct User {
    pub(super) pd: PdId,
    pub(super) qpn: u32,
}

/// A memory window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) spec: MwSpec,
    pub(super) key: u32,
    /// The queue pair it belongs to, once type 2 is bound.
    qpn: Option<u32>,
    /// `None` while it is free.
    binding: Option<Binding>,
}

/// What a window opens.
#[derive(Clone, Copy, Debug)]
struct Binding {
    /// Key of the region.
    region: u32,
    /// Where in it the window begins.
    base: u64,
    /// The address that peers use for that.
    start: u64,
    length: u64,
    access: Access,
}

impl Window {
    fn is_owned_by(&self, user: User) -> bool {
        self.spec.pd == user.pd && self.qpn.is_none_or(|qpn| qpn == user.qpn)
    }

    /// The region's key and the address in it, where the window opens
    /// `length` bytes at `address` to that user with all of `needs`.
    fn open(
        &self,
        user: User,
        address: u64,
        length: u64,
        needs: Access,
    ) -> core::result::Result<(u32, u64), Denied> {
        let binding = self.binding.as_ref().ok_or(Denied::Key)?;
        if !self.is_owned_by(user) {
            return Err(Denied::Domain);
        }
        if !binding.access.contains(needs) {
            return Err(Denied::Rights);
        }
        let offset = address.wrapping_sub(binding.start);
        if offset > binding.length || length > binding.length - offset {
            return Err(Denied::Bounds);
        }
        Ok((binding.region, binding.base.wrapping_add(offset)))
    }

    /// The index of the region's key.
    fn region(&self) -> Option<u32> {
        self.binding.map(|binding| binding.region >> 8)
    }
}

impl Mrs {
    /// As [`Mrs::translate`], for a key that came from a peer: a region's or
    /// a window's.
    #[inline]
    pub(super) fn translate_remote(
        &self,
        key: u32,
        user: User,
        address: u64,
        length: u64,
        needs: Access,
    ) -> core::result::Result<u64, Denied> {
        let Some(window) = self.window(key >> 8) else {
            return self.translate(key, user.pd, address, length, needs);
        };
        if window.key != key {
            return Err(Denied::Key);
        }
        let (region, address) = window.open(user, address, length, needs)?;
        // The window gives the remote rights, the region what they stand on.
        let local = if needs == Access::REMOTE_READ {
            Access::empty()
        } else {
            Access::LOCAL_WRITE
        };
        self.translate(region, user.pd, address, length, local)
    }

    /// Executes a UMR WQE of a queue pair on the key that its control segment
    /// names.
    ///
    /// # Errors
    /// Says what forbids it.
    pub(super) fn change_key(
        &mut self,
        user: User,
        key: u32,
        umr: &Umr,
    ) -> core::result::Result<(), &'static str> {
        let index = key >> 8;
        let mut window = *self.window(index).ok_or("its key is not a window's")?;
        let before = window.region();
        if window.spec.pd != user.pd {
            return Err("the window is in another protection domain");
        }
        if umr.flags.contains(UmrFlags::CHECK_FREE) && window.binding.is_some() {
            return Err("the window is bound already");
        }
        if umr.flags.contains(UmrFlags::CHECK_QPN) && window.qpn != Some(user.qpn) {
            return Err("the window does not belong to this queue pair");
        }
        if umr.mask.contains(MkeyMask::KEY) {
            window.key = index << 8 | u32::from(umr.variant);
        }
        if umr.mask.contains(MkeyMask::QPN) {
            window.qpn = (umr.qpn != NO_QP).then_some(umr.qpn);
        }
        if !umr.mask.contains(MkeyMask::FREE) {
            return Err("it neither binds nor frees the window");
        }
        window.binding = if umr.free {
            None
        } else {
            let is_owned = window.qpn == Some(user.qpn);
            match window.spec.kind {
                WindowType::One if window.qpn.is_some() => {
                    return Err("a window of type 1 belongs to no queue pair");
                }
                WindowType::Two if !is_owned => {
                    return Err("a window of type 2 belongs to the queue pair that binds it");
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
            return Err("it binds without saying to what");
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
            return Err("it binds without a translation");
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
            return Err("its translation does not cover the window");
        }
        if umr.start.checked_add(umr.length).is_none() {
            return Err("its addresses wrap around");
        }
        self.translate(key, user.pd, address, umr.length, needs)
            .map_err(|denied| match denied {
                Denied::Key => "there is no such region",
                Denied::Domain => "the region is in another protection domain",
                Denied::Bounds => "it is not inside the region",
                Denied::Rights => "the region was registered without the right to that",
            })?;
        Ok(Binding {
            region: key,
            base: address,
            start: umr.start,
            length: umr.length,
            access,
        })
    }

    /// Frees the window that a peer's SEND names.
    ///
    /// # Errors
    /// It is not a bound window of type 2 of this queue pair.
    pub(super) fn invalidate(&mut self, key: u32, user: User) -> core::result::Result<(), Denied> {
        let found = self.window(key >> 8).filter(|window| window.key == key);
        let mut window = *found.ok_or(Denied::Key)?;
        if window.spec.kind == WindowType::One || window.binding.is_none() {
            return Err(Denied::Rights);
        }
        if !window.is_owned_by(user) {
            return Err(Denied::Domain);
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

    /// Keeps the regions' counts of windows bound to them.
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
    /// As [`Mrs::change_key`]; tells the trace what forbade it.
    pub(super) fn change_key(&mut self, user: User, key: u32, umr: &Umr) -> bool {
        let done = self.mrs.change_key(user, key, umr);
        if let Err(text) = done {
            self.note(|| format!("QP {:#x}, window {key:#010x}: {text}", user.qpn));
        }
        done.is_ok()
    }
}

impl Nic {
    /// Allocates a memory window, free.
    ///
    /// # Errors
    /// `EINVAL` for an unknown domain, `ENOMEM` when there are too many keys.
    pub(crate) fn alloc_mw(&mut self, spec: &MwSpec) -> Result<MwKeys> {
        let invalid = Errno(libc::EINVAL);
        let pd = self.core.pds.get(spec.pd.0).ok_or(invalid)?;
        if pd.context != spec.context {
            return Err(invalid);
        }
        self.core.room()?;
        let window = |key| Window {
            spec: *spec,
            key,
            qpn: None,
            binding: None,
        };
        let inserted = self.core.mrs.insert_window(window);
        let (handle, rkey) = inserted.ok_or(Errno(libc::ENOMEM))?;
        if let Some(pd) = self.core.pds.get_mut(spec.pd.0) {
            pd.users += 1;
        }
        Ok(MwKeys { handle, rkey })
    }

    /// Frees a memory window, bound or not.
    ///
    /// # Errors
    /// `EINVAL` when the context has no such window.
    pub(crate) fn dealloc_mw(
        &mut self,
        context: super::spec::ContextId,
        handle: u32,
    ) -> Result<()> {
        let mrs = &mut self.core.mrs;
        let owned = mrs.window(handle).copied();
        let window = owned.filter(|window| window.spec.context == context);
        let window = window.ok_or(Errno(libc::EINVAL))?;
        mrs.count_window(window.region(), None);
        mrs.remove(handle);
        if let Some(pd) = self.core.pds.get_mut(window.spec.pd.0) {
            pd.users -= 1;
        }
        Ok(())
    }
}

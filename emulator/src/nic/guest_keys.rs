//! Memory keys of a guest's driver, which it creates free, and gives memory, rights and a
//! protection domain by UMR WQEs.
//!
//! The NIC does not know the guest's pages: a [`Translator`] keeps the lists that UMRs change,
//! and returns where the memory is in this process.

use super::adapter::Nic;
use super::core::Core;
use super::mr::{Mkey, MkeyTable, Region};
use super::window::User;
use crate::decode::umr::{MkeyAccess, MkeyMask, Umr, UmrFlags};
use crate::refusal::{OrRefuse, refuse_if};
use crate::spec::{Access, MrKeys, MrSpec, PdId, Qpn, Result};

/// The key of a region that is free: no key is 0.
const FREE: u32 = 0;

/// Keeps the translation of guests' keys.
pub trait Translator: Send {
    /// Changes the entries of the key with this index as a UMR says. `entries` are those that
    /// the WQE contains or points to. If the WQE changes the range or the pages of the key,
    /// returns its memory in this process, where `hca_va` is the address that users name.
    ///
    /// # Errors
    /// Returns why the change is not possible.
    fn change(
        &mut self,
        index: u32,
        umr: &Umr,
        entries: &[u8],
    ) -> core::result::Result<Option<Memory>, &'static str>;
}

/// The memory of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Its address in this process.
    pub start: u64,
    /// Length in bytes.
    pub length: u64,
    /// The address by which users name it.
    pub hca_va: u64,
}

/// The rights in a key, with the bits of a UMR that change them and set them.
const RIGHTS: [(MkeyMask, MkeyAccess, Access); 4] = [
    (
        MkeyMask::LOCAL_WRITE,
        MkeyAccess::LOCAL_WRITE,
        Access::LOCAL_WRITE,
    ),
    (
        MkeyMask::REMOTE_READ,
        MkeyAccess::REMOTE_READ,
        Access::REMOTE_READ,
    ),
    (
        MkeyMask::REMOTE_WRITE,
        MkeyAccess::REMOTE_WRITE,
        Access::REMOTE_WRITE,
    ),
    (MkeyMask::ATOMIC, MkeyAccess::ATOMIC, Access::REMOTE_ATOMIC),
];

impl MkeyTable {
    /// Returns whether a key is one of a guest's driver, which UMRs change.
    pub(super) fn is_guest_region(&self, index: u32) -> bool {
        matches!(self.get(index), Some(Mkey::Region(region)) if region.is_guest())
    }

    /// Executes a UMR on a guest's key. Returns its domain before.
    fn change_guest_key(
        &mut self,
        user: User,
        key: u32,
        umr: &Umr,
        entries: &[u8],
        translator: &mut dyn Translator,
    ) -> core::result::Result<PdId, &'static str> {
        let index = key >> 8;
        let Some(Mkey::Region(region)) = self.get_mut(index) else {
            return Err("there is no such key");
        };
        let before = region.spec.pd;
        if !user.changes_any_key && before != user.pd {
            return Err("the key is in another protection domain");
        }
        // What libmlx5 posts to invalidate a key is for windows, which belong to a QP.
        if umr.flags.contains(UmrFlags::CHECK_QPN) {
            return Err("the key belongs to no QP");
        }
        let is_free = region.key == FREE;
        if umr.flags.contains(UmrFlags::CHECK_FREE) && !is_free
            || umr.flags.contains(UmrFlags::CHECK_IN_USE) && is_free
        {
            return Err("the key is free, or in use, against what the UMR expects");
        }
        // One that gets a new low byte is named by that.
        if !is_free && !umr.mask.contains(MkeyMask::KEY) && region.key != key {
            return Err("the key in use has another low byte");
        }
        if region.windows > 0 {
            return Err("a memory window is bound to the region");
        }
        if let Some(memory) = translator.change(index, umr, entries)? {
            region.spec.start = memory.start;
            region.spec.length = memory.length;
            region.spec.hca_va = memory.hca_va;
        }
        for (mask, bit, right) in RIGHTS {
            if umr.mask.contains(mask) {
                region.spec.access.set(right, umr.access.contains(bit));
            }
        }
        // Only the driver's own queue moves a key to another domain.
        if umr.mask.contains(MkeyMask::DOMAIN) && user.changes_any_key {
            region.spec.pd = PdId(umr.pd);
        }
        if umr.mask.contains(MkeyMask::FREE) && umr.free {
            region.key = FREE;
        } else if umr.mask.intersects(MkeyMask::FREE | MkeyMask::KEY) {
            let is_new = umr.mask.contains(MkeyMask::KEY);
            let variant = if is_new {
                u32::from(umr.variant)
            } else {
                key & 0xff
            };
            region.key = index << 8 | variant;
        }
        Ok(before)
    }
}

impl Core {
    /// Executes a UMR on a guest's key. Returns whether it was permitted.
    pub(super) fn change_guest_key(
        &mut self,
        user: User,
        key: u32,
        umr: &Umr,
        entries: &[u8],
    ) -> bool {
        let Some(mut translator) = self.translator.take() else {
            return false;
        };
        // The key's memory may be elsewhere afterwards.
        self.place_rest();
        let moves = umr.mask.contains(MkeyMask::DOMAIN) && user.changes_any_key;
        let done = if moves && self.pds.get(umr.pd).is_none() {
            Err("the new protection domain does not exist")
        } else {
            self.mkeys
                .change_guest_key(user, key, umr, entries, &mut *translator)
        };
        self.translator = Some(translator);
        match done {
            Ok(before) => self.move_user(key >> 8, before),
            Err(text) => self.note(|| format!("QP {:#x}, key {key:#010x}: {text}", user.qpn)),
        }
        done.is_ok()
    }

    /// Counts a key for its domain, no longer for the one before.
    fn move_user(&mut self, index: u32, before: PdId) {
        let Some(Mkey::Region(region)) = self.mkeys.get(index) else {
            return;
        };
        for (pd, by) in [(region.spec.pd, 1), (before, -1)] {
            if let Some(pd) = self.pds.get_mut(pd.0) {
                pd.users = pd.users.saturating_add_signed(by);
            }
        }
    }
}

impl Nic {
    /// Creates a key for memory that is not this process's own, but that of a guest: nothing
    /// is pinned, and what is not mapped is found at the access. The guest chooses the low
    /// byte of the key, and whether it is free at first.
    ///
    /// # Errors
    /// `EINVAL` for invalid access flags, an unknown protection domain, or a range that wraps
    /// around; `ENOMEM` above the limits.
    pub fn create_key(&mut self, spec: &MrSpec, variant: u8, is_free: bool) -> Result<MrKeys> {
        self.check_mr(spec)?;
        self.core.check_memory()?;
        let keys = self.add_region(spec, Some(variant), 0, None)?;
        if is_free && let Some(Mkey::Region(region)) = self.core.mkeys.get_mut(keys.handle) {
            region.key = FREE;
        }
        Ok(keys)
    }

    /// Sets what keeps the translation of guests' keys.
    pub fn set_translator(&mut self, translator: Box<dyn Translator>) {
        self.core.translator = Some(translator);
    }

    /// Makes a queue pair the one by which a guest's driver changes keys of all domains; the
    /// data of its requests is in keys of `pd`.
    ///
    /// # Errors
    /// `EINVAL` if there is no such queue pair or domain.
    pub fn change_keys_by(&mut self, qpn: Qpn, pd: PdId) -> Result<()> {
        let qp = self.qps.get_mut(qpn.0);
        let qp = qp.or_refuse(libc::EINVAL, "the queue pair does not exist")?;
        let known = self.core.pds.get(pd.0).map(|pd| pd.context);
        refuse_if(
            known != Some(qp.spec.context),
            libc::EINVAL,
            "the protection domain belongs to another context",
        )?;
        for (pd, by) in [(pd, 1), (qp.spec.pd, -1)] {
            if let Some(pd) = self.core.pds.get_mut(pd.0) {
                pd.users = pd.users.saturating_add_signed(by);
            }
        }
        qp.spec.pd = pd;
        qp.changes_any_key = true;
        Ok(())
    }
}

impl Region {
    /// Returns whether its memory is a guest's.
    fn is_guest(&self) -> bool {
        self.registration.is_none()
    }
}

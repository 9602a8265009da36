//! Memory keys, and memory regions.

use std::cell::RefCell;

use super::adapter::Nic;
use super::core::Core;
use super::number::Table;
use super::pin;
use super::window::Window;
use crate::limits::MAX_MR;
use crate::refusal::{OrRefuse, refuse, refuse_if};
use crate::residency::{self, Registration};
use crate::spec::{Access, ContextId, MrKeys, MrSpec, PdId, Result};

/// Keys are `index << 8 | variant`. The first index is so high that keys with a
/// special meaning (0, the list terminator 0x100, and those that the kernel
/// reserves next to it) are not used.
const FIRST_INDEX: u32 = 0x10;

/// A memory region.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) spec: MrSpec,
    pub(super) key: u32,
    /// Size in bytes of the pages that it pins.
    pinned: u64,
    /// Shows whether its pages are still at their addresses; `None` if they cannot leave
    /// them without being inaccessible.
    pub(super) registration: Option<Registration>,
    /// Number of windows bound to it.
    pub(super) windows: u32,
}

/// The object behind a memory key.
#[derive(Debug)]
pub(super) enum Mkey {
    Region(Region),
    Window(Window),
}

impl Mkey {
    fn context(&self) -> ContextId {
        match self {
            Self::Region(region) => region.spec.context,
            Self::Window(window) => window.spec.context,
        }
    }
}

/// All memory keys, by index.
#[derive(Debug)]
pub(super) struct MkeyTable {
    table: Table<Mkey>,
    /// The numbers of regions and windows, with their limits.
    regions: Count,
    windows: Count,
    /// The low byte of the last key of each index.
    variants: Vec<u8>,
    locked: pin::LockedMemory,
    /// Reports of uses of memory that is gone.
    stale_uses: RefCell<Vec<String>>,
}

/// A number of objects and its limit.
#[derive(Debug)]
struct Count {
    count: u32,
    max: u32,
}

impl Count {
    fn new(max: u32) -> Self {
        Self { count: 0, max }
    }
}

/// Reasons why a key does not permit an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MkeyError {
    /// No region has this key.
    Key,
    /// The region belongs to another protection domain.
    Domain,
    /// The range is not inside the region.
    Bounds,
    /// The region or window does not have the required access flags.
    Rights,
}

impl MkeyError {
    /// Returns the reason in words.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Key => "no memory region and no bound window has this key",
            Self::Domain => "the key is of another protection domain or another queue pair",
            Self::Bounds => "the range is not inside the memory region or window",
            Self::Rights => "the access flags of the memory region or window do not permit it",
        }
    }
}

impl MkeyTable {
    /// Returns an empty table with limits for regions and windows.
    pub(super) fn new(regions: u32, windows: u32) -> Self {
        Self {
            table: Table::new(FIRST_INDEX, MAX_MR),
            regions: Count::new(regions),
            windows: Count::new(windows),
            variants: Vec::new(),
            locked: pin::LockedMemory::default(),
            stale_uses: RefCell::default(),
        }
    }

    /// Returns the host address of `length` bytes at `address` for a use of them, if `key`
    /// belongs to `pd` and permits the access `needs`. Reports a use of memory that is
    /// gone.
    #[inline]
    pub(super) fn translate(
        &self,
        key: u32,
        pd: PdId,
        address: u64,
        length: u64,
        needs: Access,
    ) -> core::result::Result<u64, MkeyError> {
        let (region, host) = self.permit(key, pd, address, length, needs)?;
        Ok(self.begin_use(region, host, length))
    }

    /// Begins a use of `length` bytes of a region. Returns the address to use.
    #[inline]
    pub(super) fn begin_use(&self, region: &Region, host: u64, length: u64) -> u64 {
        if residency::is_complete() {
            return host;
        }
        let Some(registration) = &region.registration else {
            return host;
        };
        let (to_use, report) = registration.find_use(host, length);
        if let Some(report) = report {
            let key = region.key;
            self.stale_uses.borrow_mut().push(format!(
                "the device uses {length} bytes at {host:#x} by key {key:#x}, but {report}"
            ));
        }
        to_use
    }

    /// Returns the region of `key` and the host address of `length` bytes at `address`, if
    /// the key belongs to `pd` and permits the access `needs`.
    #[inline]
    pub(super) fn permit(
        &self,
        key: u32,
        pd: PdId,
        address: u64,
        length: u64,
        needs: Access,
    ) -> core::result::Result<(&Region, u64), MkeyError> {
        let mr = match self.table.get(key >> 8) {
            Some(Mkey::Region(region)) if region.key == key => region,
            _ => return Err(MkeyError::Key),
        };
        if mr.spec.pd != pd {
            return Err(MkeyError::Domain);
        }
        if !mr.spec.access.contains(needs) {
            return Err(MkeyError::Rights);
        }
        let offset = address.wrapping_sub(mr.spec.hca_va);
        if offset > mr.spec.length || length > mr.spec.length - offset {
            return Err(MkeyError::Bounds);
        }
        Ok((mr, mr.spec.start + offset))
    }

    /// Returns the number of regions and windows.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the regions by the indices of their keys.
    pub(super) fn regions(&self) -> impl Iterator<Item = (u32, &MrSpec)> {
        self.table.iter().filter_map(|(index, mkey)| match mkey {
            Mkey::Region(region) => Some((index, &region.spec)),
            Mkey::Window(_) => None,
        })
    }

    pub(super) fn remove_all_of(&mut self, context: ContextId) {
        let owned = self
            .table
            .iter()
            .filter(|(_, mkey)| mkey.context() == context);
        let indices: Vec<_> = owned.map(|(index, _)| index).collect();
        for index in indices {
            self.remove(index);
        }
    }

    pub(super) fn get(&self, index: u32) -> Option<&Mkey> {
        self.table.get(index)
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Mkey> {
        self.table.get_mut(index)
    }

    pub(super) fn remove(&mut self, index: u32) {
        match self.table.remove(index) {
            Some(Mkey::Region(region)) => {
                self.regions.count -= 1;
                self.locked.release(region.pinned);
            }
            // Binds have changed the variant; the next key must differ again.
            Some(Mkey::Window(window)) => {
                self.windows.count -= 1;
                self.variants[(index - FIRST_INDEX) as usize] = window.key as u8;
            }
            None => {}
        }
    }

    /// Adds the region that `make` creates for its key. Returns index and key.
    fn insert_region(
        &mut self,
        variant: Option<u8>,
        make: impl FnOnce(u32) -> Region,
    ) -> Option<(u32, u32)> {
        if self.regions.count == self.regions.max {
            return None;
        }
        let keys = self.insert_with(variant, |key| Mkey::Region(make(key)))?;
        self.regions.count += 1;
        Some(keys)
    }

    /// Adds the window that `make` creates for its key. Returns index and key.
    pub(super) fn insert_window(
        &mut self,
        variant: Option<u8>,
        make: impl FnOnce(u32) -> Window,
    ) -> Option<(u32, u32)> {
        if self.windows.count == self.windows.max {
            return None;
        }
        let keys = self.insert_with(variant, |key| Mkey::Window(make(key)))?;
        self.windows.count += 1;
        Some(keys)
    }

    /// Adds a key, whose low byte is `variant`, or else another one than before.
    fn insert_with(
        &mut self,
        variant: Option<u8>,
        make: impl FnOnce(u32) -> Mkey,
    ) -> Option<(u32, u32)> {
        let variants = &mut self.variants;
        let index = self.table.insert_with(|index| {
            let slot = (index - FIRST_INDEX) as usize;
            if variants.len() <= slot {
                variants.resize(slot + 1, 0);
            }
            variants[slot] = variant.unwrap_or(variants[slot].wrapping_add(1));
            make(index << 8 | u32::from(variants[slot]))
        })?;
        let variant = self.variants[(index - FIRST_INDEX) as usize];
        Some((index, index << 8 | u32::from(variant)))
    }
}

impl Core {
    /// Reports the uses of memory that is gone.
    #[inline]
    pub(super) fn report_stale_uses(&mut self) {
        if !self.mkeys.stale_uses.get_mut().is_empty() {
            for text in self.mkeys.stale_uses.take() {
                self.note(|| text.clone());
                self.events.warn(&text);
                self.violations.record(text);
            }
        }
    }
}

const UNKNOWN: &str = "the memory region does not exist";
const WINDOWS: &str = "a memory window is bound to the region";

impl Nic {
    /// Registers memory.
    ///
    /// # Errors
    /// The kernel's: `EINVAL` for invalid access flags, an unknown protection
    /// domain, or a range that is empty or wraps around; `EFAULT` if part of the
    /// range is not mapped; `ENOMEM` above the limits.
    pub(crate) fn reg_mr(&mut self, spec: &MrSpec) -> Result<MrKeys> {
        self.check_mr(spec)?;
        self.core.check_memory()?;
        let (pinned, registration) = self.pin(spec)?;
        let added = self.add_region(spec, None, pinned, Some(registration));
        if added.is_err() {
            self.core.mkeys.locked.release(pinned);
        }
        added
    }

    pub(super) fn add_region(
        &mut self,
        spec: &MrSpec,
        variant: Option<u8>,
        pinned: u64,
        registration: Option<Registration>,
    ) -> Result<MrKeys> {
        let region = |key| Region {
            spec: *spec,
            key,
            pinned,
            registration,
            windows: 0,
        };
        let added = self.core.mkeys.insert_region(variant, region);
        let (handle, key) = added.or_refuse(
            libc::ENOMEM,
            "the process has as many memory regions as max_mr allows",
        )?;
        if let Some(pd) = self.core.pds.get_mut(spec.pd.0) {
            pd.users += 1;
        }
        Ok(MrKeys {
            handle,
            lkey: key,
            rkey: key,
        })
    }

    /// Changes a registration to `spec`; its keys stay the same. With `moved`, its
    /// pages are pinned again.
    ///
    /// # Errors
    /// The same as for [`Nic::reg_mr`], with nothing changed. Also `EINVAL` if the
    /// context has no such region, `EBUSY` while a window is bound to it.
    pub(crate) fn rereg_mr(&mut self, handle: u32, spec: &MrSpec, moved: bool) -> Result<()> {
        self.check_mr(spec)?;
        let before = match self.core.mkeys.get(handle) {
            Some(Mkey::Region(region)) if region.spec.context == spec.context => region,
            _ => return Err(refuse(libc::EINVAL, UNKNOWN)),
        };
        refuse_if(before.windows > 0, libc::EBUSY, WINDOWS)?;
        let (pd_before, pinned_before) = (before.spec.pd, before.pinned);
        let pins = if moved {
            self.core.check_memory()?;
            Some(self.pin(spec)?)
        } else {
            None
        };
        for (pd, by) in [(spec.pd, 1), (pd_before, -1)] {
            if let Some(pd) = self.core.pds.get_mut(pd.0) {
                pd.users = pd.users.saturating_add_signed(by);
            }
        }
        if let Some(Mkey::Region(region)) = self.core.mkeys.get_mut(handle) {
            region.spec = *spec;
            if let Some(pins) = pins {
                (region.pinned, region.registration) = (pins.0, Some(pins.1));
                self.core.mkeys.locked.release(pinned_before);
            }
        }
        Ok(())
    }

    /// Checks the attributes of a region.
    pub(super) fn check_mr(&self, spec: &MrSpec) -> Result<()> {
        let pd = self.core.pds.get(spec.pd.0);
        refuse_if(
            pd.is_none_or(|pd| pd.context != spec.context),
            libc::EINVAL,
            "the protection domain belongs to another context",
        )?;
        refuse_if(
            !valid_access(spec.access),
            libc::EINVAL,
            "remote write and remote atomic access need IBV_ACCESS_LOCAL_WRITE too",
        )?;
        refuse_if(
            spec.hca_va.checked_add(spec.length).is_none(),
            libc::EINVAL,
            "the region's addresses would not end before the end of the address space",
        )
    }

    /// Sets whether later registrations count against the memlock limit of the
    /// process; initially [`super::NicOptions::enforce_memlock`].
    pub fn enforce_memlock(&mut self, enforced: bool) {
        self.core.options.enforce_memlock = enforced;
    }

    /// Pins the pages of a region. Returns the number of bytes that count, and what shows
    /// whether the pages are still there.
    fn pin(&mut self, spec: &MrSpec) -> Result<(u64, Registration)> {
        let (first, bytes) = pin::page_range(spec.start, spec.length)?;
        let locked = &mut self.core.mkeys.locked;
        let enforced = self.core.options.enforce_memlock;
        let pinned = if enforced { bytes } else { 0 };
        if enforced {
            locked.lock(pinned, pin::lock_limit())?;
        }
        // `ib_access_writable`, after `valid_access`.
        let writable = spec
            .access
            .intersects(Access::LOCAL_WRITE | Access::MW_BIND);
        pin::fault_in(first, bytes, writable).inspect_err(|_| locked.release(pinned))?;
        let pins = self.core.nasty.pins_pages();
        Ok((pinned, Registration::new(first, bytes, pins)))
    }

    /// Deregisters a region: its keys become invalid.
    ///
    /// # Errors
    /// `EINVAL` if the context has no such region, `EBUSY` while a window is bound
    /// to it.
    pub fn dereg_mr(&mut self, context: ContextId, handle: u32) -> Result<()> {
        let mkeys = &mut self.core.mkeys;
        let region = match mkeys.table.get(handle) {
            Some(Mkey::Region(region)) if region.spec.context == context => region,
            _ => return Err(refuse(libc::EINVAL, UNKNOWN)),
        };
        refuse_if(region.windows > 0, libc::EBUSY, WINDOWS)?;
        let pd = region.spec.pd;
        mkeys.remove(handle);
        if let Some(pd) = self.core.pds.get_mut(pd.0) {
            pd.users -= 1;
        }
        Ok(())
    }
}

/// Returns whether access flags are valid by the kernel's rule
/// (`ib_check_mr_access`): remote writes require local write.
fn valid_access(access: Access) -> bool {
    let remote_change = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    !remote_change || access.contains(Access::LOCAL_WRITE)
}

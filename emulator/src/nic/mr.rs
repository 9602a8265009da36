//! Memory keys, and the regions behind them.

use super::adapter::Nic;
use super::number::Table;
use super::pin;
use super::spec::{Access, ContextId, Errno, MrKeys, MrSpec, PdId, Result};
use super::window::Window;
use crate::limits::MAX_MR;

/// Keys are `index << 8 | variant`. Indices start so high that the keys with
/// a meaning of their own (0, the list terminator 0x100 and what the kernel
/// reserves next to it) are never given.
const FIRST_INDEX: u32 = 0x10;

/// A registered range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    spec: MrSpec,
    key: u32,
    /// Bytes of the pages it pins.
    pinned: u64,
    /// Windows bound to it.
    pub(super) windows: u32,
}

/// What a key opens.
#[derive(Clone, Copy, Debug)]
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
pub(super) struct Mrs {
    table: Table<Mkey>,
    /// How many keys are of regions and of windows, and how many may be.
    regions: Count,
    windows: Count,
    /// The low byte of the latest key of each index.
    variants: Vec<u8>,
    locked: pin::Locked,
}

/// How many there are of something.
#[derive(Debug)]
struct Count {
    now: u32,
    most: u32,
}

impl Count {
    fn new(most: u32) -> Self {
        Self { now: 0, most }
    }
}

/// Why a key does not open a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// No region has this key.
    Key,
    /// The region is in another protection domain.
    Domain,
    /// The range is not inside the region.
    Bounds,
    /// The region or window was not made for that.
    Rights,
}

impl Mrs {
    /// Keys, up to these numbers of regions and windows.
    pub(super) fn new(regions: u32, windows: u32) -> Self {
        Self {
            table: Table::new(FIRST_INDEX, MAX_MR),
            regions: Count::new(regions),
            windows: Count::new(windows),
            variants: Vec::new(),
            locked: pin::Locked::default(),
        }
    }

    /// The host address of `length` bytes at `address`, if `key` opens them
    /// to `pd` with all of `needs`.
    #[inline]
    pub(super) fn translate(
        &self,
        key: u32,
        pd: PdId,
        address: u64,
        length: u64,
        needs: Access,
    ) -> core::result::Result<u64, Denied> {
        let mr = match self.table.get(key >> 8) {
            Some(Mkey::Region(region)) if region.key == key => region,
            _ => return Err(Denied::Key),
        };
        if mr.spec.pd != pd {
            return Err(Denied::Domain);
        }
        if !mr.spec.access.contains(needs) {
            return Err(Denied::Rights);
        }
        let offset = address.wrapping_sub(mr.spec.hca_va);
        if offset > mr.spec.length || length > mr.spec.length - offset {
            return Err(Denied::Bounds);
        }
        Ok(mr.spec.start + offset)
    }

    /// Regions and windows.
    pub(super) fn len(&self) -> usize {
        self.table.len()
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
                self.regions.now -= 1;
                self.locked.release(region.pinned);
            }
            // Binds have moved its variant: the next key is another one again.
            Some(Mkey::Window(window)) => {
                self.windows.now -= 1;
                self.variants[(index - FIRST_INDEX) as usize] = window.key as u8;
            }
            None => {}
        }
    }

    /// Adds the region that `make` builds for its key; answers index and key.
    fn insert_region(&mut self, make: impl FnOnce(u32) -> Region) -> Option<(u32, u32)> {
        if self.regions.now == self.regions.most {
            return None;
        }
        let keys = self.insert_with(|key| Mkey::Region(make(key)))?;
        self.regions.now += 1;
        Some(keys)
    }

    /// Adds the window that `make` builds for its key; answers index and key.
    pub(super) fn insert_window(&mut self, make: impl FnOnce(u32) -> Window) -> Option<(u32, u32)> {
        if self.windows.now == self.windows.most {
            return None;
        }
        let keys = self.insert_with(|key| Mkey::Window(make(key)))?;
        self.windows.now += 1;
        Some(keys)
    }

    fn insert_with(&mut self, make: impl FnOnce(u32) -> Mkey) -> Option<(u32, u32)> {
        let variants = &mut self.variants;
        let index = self.table.insert_with(|index| {
            let slot = (index - FIRST_INDEX) as usize;
            if variants.len() <= slot {
                variants.resize(slot + 1, 0);
            }
            variants[slot] = variants[slot].wrapping_add(1);
            make(index << 8 | u32::from(variants[slot]))
        })?;
        let variant = self.variants[(index - FIRST_INDEX) as usize];
        Some((index, index << 8 | u32::from(variant)))
    }
}

impl Nic {
    /// Registers memory.
    ///
    /// # Errors
    /// As the kernel: `EINVAL` for rights that make no sense, an unknown
    /// domain or a range that wraps around or is empty; `EFAULT` when part of
    /// the range is not mapped; `ENOMEM` above the limits.
    pub(crate) fn reg_mr(&mut self, spec: &MrSpec) -> Result<MrKeys> {
        self.check_mr(spec)?;
        self.core.room()?;
        let pinned = self.pin(spec)?;
        let mrs = &mut self.core.mrs;
        let region = |key| Region {
            spec: *spec,
            key,
            pinned,
            windows: 0,
        };
        let Some((handle, key)) = mrs.insert_region(region) else {
            mrs.locked.release(pinned);
            return Err(Errno(libc::ENOMEM));
        };
        if let Some(pd) = self.core.pds.get_mut(spec.pd.0) {
            pd.users += 1;
        }
        Ok(MrKeys {
            handle,
            lkey: key,
            rkey: key,
        })
    }

    /// Changes a registration to what `spec` says; its keys stay. With
    /// `moved`, its pages are pinned anew.
    ///
    /// # Errors
    /// As [`Nic::reg_mr`]; then nothing has changed. `EINVAL` as well when the
    /// context has no such region, `EBUSY` while a window is bound to it.
    pub(crate) fn rereg_mr(&mut self, handle: u32, spec: &MrSpec, moved: bool) -> Result<()> {
        let invalid = Errno(libc::EINVAL);
        self.check_mr(spec)?;
        let before = match self.core.mrs.get(handle) {
            Some(Mkey::Region(region)) if region.spec.context == spec.context => *region,
            _ => return Err(invalid),
        };
        if before.windows > 0 {
            return Err(Errno(libc::EBUSY));
        }
        let pinned = if moved {
            self.core.room()?;
            self.pin(spec)?
        } else {
            before.pinned
        };
        if moved {
            self.core.mrs.locked.release(before.pinned);
        }
        for (pd, by) in [(spec.pd, 1), (before.spec.pd, -1)] {
            if let Some(pd) = self.core.pds.get_mut(pd.0) {
                pd.users = pd.users.saturating_add_signed(by);
            }
        }
        if let Some(Mkey::Region(region)) = self.core.mrs.get_mut(handle) {
            (region.spec, region.pinned) = (*spec, pinned);
        }
        Ok(())
    }

    /// Whether a region can be as asked for.
    fn check_mr(&self, spec: &MrSpec) -> Result<()> {
        let pd = self.core.pds.get(spec.pd.0);
        let fits = pd.is_some_and(|pd| pd.context == spec.context)
            && rights_make_sense(spec.access)
            && spec.hca_va.checked_add(spec.length).is_some();
        fits.then_some(()).ok_or(Errno(libc::EINVAL))
    }

    /// Whether what is registered from now on counts against the limit of the
    /// process, as [`super::NicOptions::enforce_memlock`] says at first.
    pub fn enforce_memlock(&mut self, enforced: bool) {
        self.core.options.enforce_memlock = enforced;
    }

    /// Pins the pages of a region; answers how many bytes count.
    fn pin(&mut self, spec: &MrSpec) -> Result<u64> {
        let (first, bytes) = pin::page_range(spec.start, spec.length)?;
        let locked = &mut self.core.mrs.locked;
        let enforced = self.core.options.enforce_memlock;
        let pinned = if enforced { bytes } else { 0 };
        if enforced {
            locked.take(pinned, pin::lock_limit())?;
        }
        let writable = spec.access.contains(Access::LOCAL_WRITE);
        pin::probe(first, bytes, writable).inspect_err(|_| locked.release(pinned))?;
        Ok(pinned)
    }

    /// Ends a registration: its keys open nothing any more.
    ///
    /// # Errors
    /// `EINVAL` when the context has no such region, `EBUSY` while a window
    /// is bound to it.
    pub(crate) fn dereg_mr(&mut self, context: ContextId, handle: u32) -> Result<()> {
        let mrs = &mut self.core.mrs;
        let region = match mrs.table.get(handle) {
            Some(Mkey::Region(region)) if region.spec.context == context => *region,
            _ => return Err(Errno(libc::EINVAL)),
        };
        if region.windows > 0 {
            return Err(Errno(libc::EBUSY));
        }
        mrs.remove(handle);
        if let Some(pd) = self.core.pds.get_mut(region.spec.pd.0) {
            pd.users -= 1;
        }
        Ok(())
    }
}

/// The kernel's rule (`ib_check_mr_access`): who lets others write must be
/// able to write.
fn rights_make_sense(access: Access) -> bool {
    let remote_change = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    !remote_change || access.contains(Access::LOCAL_WRITE)
}

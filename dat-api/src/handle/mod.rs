//! Handles: how C programs name objects, and how the library finds them.
//!
//! A handle is the address of a slot. The slot records whether it holds an object, and of which
//! kind. A handle that is null, garbage, stale or of another kind is thus refused after a few
//! instructions and one load, without touching freed memory.
//!
//! A call uses the object in one of three ways:
//!
//! | function | cost | use |
//! | --- | --- | --- |
//! | [`pin`] | two atomic additions | control calls; any number at a time; freeing waits for them |
//! | [`own`] | one atomic exchange | waiting for events and dequeuing them: one call at a time, others get [`NotOwned::Busy`] |
//! | [`unpinned`] | nothing | posting; the caller promises not to free the object meanwhile |
//!
//! Freeing retires the handle: new calls no longer find the object, `retire` waits for the calls
//! that have pinned the object, wakes the call that owns it, and releases the slot. The slot is
//! reused only after many others.
//!
//! Decisions:
//! - `docs/decisions/015-handle-is-a-slot.md`
//! - `docs/decisions/019-unlocked-state-is-unsafe.md`

mod arena;
mod completion_hooks;
mod fork;
mod kind;
mod slot;
mod upcalls;

use core::ffi::c_void;
use core::fmt;
use core::marker::PhantomData;
use core::num::NonZeroUsize;
use core::ops::Deref;
use core::sync::atomic::Ordering;
use std::sync::Arc;

use dat_engine::sync::Backoff;

use self::arena::Arena;
use self::slot::{DYING, FORKED, FREE, OWNED, live};

pub(crate) use completion_hooks::CompletionHooks;
pub(crate) use fork::forks;
pub use kind::Kind;
pub(crate) use slot::{Slot, SlotCounters};
pub use upcalls::Upcalls;
pub(crate) use upcalls::{Delivery, EvdChange};

static ARENA: Arena = Arena::new();

/// An object that handles can name.
///
/// # Safety
/// No other type has the same [`Self::KIND`]: a handle of a kind is converted to this type
/// unchecked. A test may define a second type of a kind if nothing looks for objects of that kind
/// by the real type.
pub unsafe trait Object: Send + Sync + 'static {
    /// The kind of the object.
    const KIND: Kind;

    /// The functions that objects in lower modules call.
    const UPCALLS: &'static Upcalls = &Upcalls::NONE;
}

/// The name of an object, valid until the object is freed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Handle(NonZeroUsize);

impl Handle {
    /// A handle that no object ever has: slots are aligned.
    pub(crate) const NEVER: Self = Self(NonZeroUsize::MIN);

    /// Converts a value from a C program, which may be anything; returns `None` for 0.
    #[inline(always)]
    #[must_use]
    pub const fn from_bits(bits: usize) -> Option<Self> {
        match NonZeroUsize::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// Returns the value that C programs see: an address.
    #[inline(always)]
    #[must_use]
    pub const fn bits(self) -> usize {
        self.0.get()
    }

    /// Returns the handle as a pointer.
    #[inline(always)]
    #[must_use]
    pub fn pointer(self) -> *const c_void {
        core::ptr::with_exposed_provenance(self.bits())
    }

    #[inline(always)]
    pub(crate) fn of(slot: &'static Slot) -> Self {
        match Self::from_bits(core::ptr::from_ref(slot).addr()) {
            Some(handle) => handle,
            None => unreachable!("a reference is not null"),
        }
    }

    /// Returns whether the value is the address of a slot, whatever the slot holds: whether this
    /// library made the handle, live or stale.
    #[must_use]
    pub fn is_ours(self) -> bool {
        self.slot().is_some()
    }

    /// Returns the slot that the value points to, if any, whatever the slot holds.
    #[inline(always)]
    #[must_use]
    pub(crate) fn slot(self) -> Option<&'static Slot> {
        arena::find(self.pointer())
    }

    /// Returns the handle with these bits, and its slot.
    ///
    /// # Safety
    /// The bits are those of a handle that has named an object: the library has stored them itself.
    #[inline(always)]
    pub(crate) unsafe fn known(bits: usize) -> (Self, &'static Slot) {
        // SAFETY: the bits are those of a handle that has named an object.
        unsafe {
            let handle = Self(NonZeroUsize::new_unchecked(bits));
            (handle, arena::known(handle.pointer()))
        }
    }

    /// Returns the number of the slot, 20 bits, for work-request data without room for a handle; 0
    /// if there is no slot.
    pub(crate) fn number(self) -> u32 {
        self.slot().map_or(0, arena::number)
    }

    /// Returns the handle of the slot with this number.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        arena::numbered(number).map(Self::of)
    }

    /// Returns the kind of the object; `None` if the handle is stale.
    #[must_use]
    pub fn kind(self) -> Option<Kind> {
        let tag = self.slot()?.tag.load(Ordering::Acquire);
        Kind::ALL.into_iter().find(|&kind| live(kind) == tag)
    }

    /// Returns whether the object belongs to the process that this one was forked from.
    #[must_use]
    pub fn is_of_parent_process(self) -> bool {
        self.slot()
            .is_some_and(|slot| slot.tag.load(Ordering::Acquire) == FORKED)
    }

    /// Sets the first word of what the handle points to, for the C interface that created the
    /// object.
    ///
    /// # Safety
    /// `table` points to a function table with the layout of DAT's headers for as long as the
    /// handle is used: C programs call through it.
    pub unsafe fn set_table(self, table: *const c_void) {
        if let Some(slot) = self.slot() {
            slot.table.store(table.cast_mut(), Ordering::Release);
        }
    }

    /// Returns the consumer's context of a live object.
    #[must_use]
    pub fn context(self) -> Option<u64> {
        self.kind()?;
        Some(self.slot()?.context.load(Ordering::Relaxed))
    }

    /// Sets the consumer's context; returns `false` if there is no such object.
    #[must_use]
    pub fn set_context(self, context: u64) -> bool {
        match (self.kind(), self.slot()) {
            (Some(_), Some(slot)) => {
                slot.context.store(context, Ordering::Relaxed);
                true
            }
            _ => false,
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({:#x}", self.bits())?;
        match self.kind() {
            Some(kind) => write!(f, " {kind:?})"),
            None => f.write_str(" stale)"),
        }
    }
}

/// A handle whose object is still being created, so that the object can store its own handle.
/// Dropping it releases the slot.
#[derive(Debug)]
pub(crate) struct Reservation {
    slot: Option<&'static Slot>,
}

impl Reservation {
    /// Takes a slot; returns `None` when there are no more.
    #[must_use]
    pub(crate) fn new() -> Option<Self> {
        let slot = ARENA.take()?;
        debug_assert_eq!(slot.tag.load(Ordering::Relaxed), FREE);
        Some(Self { slot: Some(slot) })
    }

    /// Returns the handle that the object will have.
    #[must_use]
    pub(crate) fn handle(&self) -> Handle {
        match self.slot {
            Some(slot) => Handle::of(slot),
            None => unreachable!("the slot leaves with the reservation"),
        }
    }

    /// Makes the handle name this object, which no other handle names.
    pub(crate) fn publish<T: Object>(mut self, object: Arc<T>) -> Handle {
        let handle = self.handle();
        if let Some(slot) = self.slot.take() {
            slot.object
                .store(Arc::into_raw(object).cast_mut().cast(), Ordering::Release);
            let upcalls = core::ptr::from_ref(T::UPCALLS).cast_mut();
            slot.upcalls.store(upcalls, Ordering::Release);
            // Release: a thread that reads the tag also sees the object.
            slot.tag.store(live(T::KIND), Ordering::Release);
        }
        handle
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            clear(slot);
            ARENA.release(slot);
        }
    }
}

fn clear(slot: &Slot) {
    slot.context.store(0, Ordering::Relaxed);
    slot.counters.clear();
    slot.set_srq(None);
    slot.tag.store(FREE, Ordering::Release);
}

/// Returns the object in a slot that holds a `T`.
///
/// # Safety
/// The slot's tag was `live(T::KIND)`, and the object is kept alive by a pin, by the owner flag, or
/// by the caller's promise.
#[inline(always)]
unsafe fn object<T: Object>(slot: &'static Slot) -> &'static T {
    let object = slot.object.load(Ordering::Acquire).cast::<T>();
    // SAFETY: the pointer came from an `Arc<T>`, so it is not null; a kind has one type.
    unsafe {
        core::hint::assert_unchecked(!object.is_null());
        &*object
    }
}

/// An object in use: freeing waits until this is dropped.
pub struct Pinned<T: Object> {
    slot: &'static Slot,
    of: PhantomData<&'static T>,
}

impl<T: Object> Pinned<T> {
    /// Returns the object, to be kept for longer than the call.
    #[must_use]
    pub fn to_arc(&self) -> Arc<T> {
        let raw = self.slot.object.load(Ordering::Acquire).cast::<T>();
        // SAFETY: the slot holds one count of the Arc, and `retire` waits for this pin before it
        // takes that count; this adds another.
        unsafe {
            Arc::increment_strong_count(raw);
            Arc::from_raw(raw)
        }
    }

    /// Returns the handle of the object.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle::of(self.slot)
    }
}

impl<T: Object> Deref for Pinned<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `pin` read the tag after it had counted itself, and `retire` waits for the count.
        unsafe { object(self.slot) }
    }
}

impl<T: Object> Drop for Pinned<T> {
    fn drop(&mut self) {
        self.slot.pins.fetch_sub(1, Ordering::Release);
    }
}

/// Finds an object for a control call. Returns `None` if the handle names no live object of this
/// kind.
#[inline]
#[must_use]
pub fn pin<T: Object>(handle: Handle) -> Option<Pinned<T>> {
    let slot = handle.slot()?;
    // The pin is counted before the tag is read; `retire` changes the tag before it reads the
    // count.
    slot.pins.fetch_add(1, Ordering::SeqCst);
    if slot.tag.load(Ordering::SeqCst) == live(T::KIND) {
        Some(Pinned {
            slot,
            of: PhantomData,
        })
    } else {
        slot.pins.fetch_sub(1, Ordering::Release);
        None
    }
}

/// Finds an object without keeping it from being freed.
///
/// # Safety
/// The object is not freed while the reference is used.
#[inline(always)]
#[must_use]
pub unsafe fn unpinned<T: Object>(handle: Handle) -> Option<&'static T> {
    // SAFETY: the object is not freed while the reference is used.
    unsafe { unpinned_at(handle.pointer()) }
}

/// As [`unpinned`], for a handle as C passes it: any pointer.
///
/// # Safety
/// As for [`unpinned`].
#[inline(always)]
#[must_use]
pub unsafe fn unpinned_at<T: Object>(pointer: *const c_void) -> Option<&'static T> {
    let slot = arena::find(pointer)?;
    if slot.tag.load(Ordering::Acquire) == live(T::KIND) {
        // SAFETY: the tag was just read; the rest is the caller's promise.
        Some(unsafe { object(slot) })
    } else {
        None
    }
}

/// Why an object could not be owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOwned {
    /// The handle names no live object of this kind.
    Stale,
    /// Another call owns it.
    Busy,
}

/// An object that one call owns: no other call gets it from [`own`] meanwhile.
pub struct Owned<T: Object> {
    slot: &'static Slot,
    of: PhantomData<&'static T>,
}

/// Takes an object for this call alone.
///
/// # Errors
/// [`NotOwned`]; the function never waits.
#[inline(always)]
pub fn own<T: Object>(handle: Handle) -> Result<Owned<T>, NotOwned> {
    own_at(handle.pointer()).ok_or_else(|| not_owned::<T>(handle))
}

/// As [`own`], for a handle as C passes it: any pointer. It does not say why it failed.
#[inline(always)]
pub fn own_at<T: Object>(pointer: *const c_void) -> Option<Owned<T>> {
    let slot = arena::find(pointer)?;
    // The owner flag is taken first, because the tag must be read while the flag is held. If the
    // slot turns out to hold another kind, or nothing, the flag is dropped again; a call that found
    // it taken meanwhile retries.
    if slot.owner.fetch_or(OWNED, Ordering::SeqCst) & OWNED != 0 {
        return None;
    }
    let owned = Owned {
        slot,
        of: PhantomData,
    };
    (slot.tag.load(Ordering::SeqCst) == live(T::KIND)).then_some(owned)
}

/// Returns why an object could not be owned.
#[cold]
#[inline(never)]
fn not_owned<T: Object>(handle: Handle) -> NotOwned {
    if handle.kind() == Some(T::KIND) {
        NotOwned::Busy
    } else {
        NotOwned::Stale
    }
}

impl<T: Object> Owned<T> {
    /// Returns the handle of the object.
    #[inline(always)]
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle::of(self.slot)
    }

    /// Returns whether the object is being freed: its owner must let go soon.
    #[inline(always)]
    #[must_use]
    pub fn is_being_freed(&self) -> bool {
        self.slot.tag.load(Ordering::Relaxed) == DYING
    }
}

impl<T: Object> Deref for Owned<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        let object = self.slot.object.load(Ordering::Acquire).cast::<T>();
        // SAFETY: as in `object`: the tag was read while the owner flag was held, and `retire`
        // waits for the flag.
        unsafe { &*object }
    }
}

impl<T: Object> Drop for Owned<T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.slot.owner.store(0, Ordering::Release);
    }
}

/// Ends a handle. New calls do not find the object; the function waits for calls that use it, and
/// calls `wake_owner` repeatedly while one owns the object, to make that call return. Returns
/// `None` if the handle names no live object of this kind, or if another thread is freeing it.
///
/// The caller must neither pin nor own the object.
pub(crate) fn retire<T: Object>(handle: Handle, mut wake_owner: impl FnMut(&T)) -> Option<Arc<T>> {
    let slot = handle.slot()?;
    slot.tag
        .compare_exchange(live(T::KIND), DYING, Ordering::SeqCst, Ordering::Relaxed)
        .ok()?;
    // SAFETY: the tag was live until now, and only this call removes the object.
    let inside = unsafe { object::<T>(slot) };
    let mut backoff = Backoff::new();
    while slot.owner.fetch_or(OWNED, Ordering::SeqCst) & OWNED != 0 {
        wake_owner(inside);
        backoff.wait();
    }
    let mut backoff = Backoff::new();
    while slot.pins.load(Ordering::SeqCst) != 0 {
        backoff.wait();
    }
    let raw = slot
        .object
        .swap(core::ptr::null_mut(), Ordering::AcqRel)
        .cast::<T>();
    clear(slot);
    slot.owner.store(0, Ordering::Release);
    ARENA.release(slot);
    // SAFETY: the pointer is from `Arc::into_raw` in `publish`, and was taken out once.
    Some(unsafe { Arc::from_raw(raw) })
}

/// Gives an object a handle, for tests of C interfaces with types of their own. Returns `None` when
/// there are no more handles.
///
/// # Safety
/// No other handle names the object.
#[must_use]
pub unsafe fn publish_for_test<T: Object>(object: Arc<T>) -> Option<Handle> {
    Some(Reservation::new()?.publish(object))
}

/// Ends a handle from [`publish_for_test`].
///
/// # Safety
/// The handle came from [`publish_for_test`], and the caller neither pins nor owns the object.
pub unsafe fn retire_for_test<T: Object>(handle: Handle) -> Option<Arc<T>> {
    retire(handle, |_| ())
}

#[cfg(test)]
pub(crate) mod tests;

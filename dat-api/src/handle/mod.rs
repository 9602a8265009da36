//! Handles: how C programs name objects, and how the library finds them.
//!
//! A handle is the address of a slot. The slot tells whether it holds an
//! object, and of what kind; so a handle that is null, garbage, stale or of
//! another kind is refused after a few instructions and one load, and no freed
//! memory is touched.
//!
//! A call uses the object in one of three ways:
//!
//! | way | costs | for |
//! | --- | --- | --- |
//! | [`pin`] | two atomic additions | control calls; many at a time; freeing waits for them |
//! | [`own`] | one atomic exchange | waiting for events and taking them: one at a time, the others are told it is busy |
//! | [`peek`] | nothing | posting, whose caller has promised not to free the object meanwhile |
//!
//! Freeing retires the handle: no new call finds the object, those that pinned it
//! are waited for, a waiter is told to leave, and then the slot rests for a
//! long time before it serves again.

mod arena;
mod fork;
mod kind;
mod needs;
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
use self::slot::{DYING, FREE, HELD, live};

pub use kind::Kind;
pub(crate) use needs::Needs;
pub(crate) use slot::{Meters, Slot};
pub use upcalls::Upcalls;
pub(crate) use upcalls::{EvdChange, Verdict};

static ARENA: Arena = Arena::new();

/// An object that handles can name.
///
/// # Safety
/// No other type has the same [`Self::KIND`]: a handle of a kind leads to an
/// object of its one type, unchecked. A test may break this with a type of its
/// own as long as nothing looks for objects of that kind by the real type.
pub unsafe trait Object: Send + Sync + 'static {
    /// Its kind.
    const KIND: Kind;

    /// What objects below it call.
    const UPCALLS: &'static Upcalls = &Upcalls::NONE;
}

/// The name of an object, good until the object is freed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Handle(NonZeroUsize);

impl Handle {
    /// A value that came from outside, which may be anything but null.
    #[inline(always)]
    #[must_use]
    pub const fn from_bits(bits: usize) -> Option<Self> {
        match NonZeroUsize::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// The value as C sees it: an address.
    #[inline(always)]
    #[must_use]
    pub const fn bits(self) -> usize {
        self.0.get()
    }

    /// The same as a pointer.
    #[inline(always)]
    #[must_use]
    pub fn pointer(self) -> *const c_void {
        core::ptr::with_exposed_provenance(self.bits())
    }

    /// The handle of a slot.
    #[inline(always)]
    pub(crate) fn of(slot: &'static Slot) -> Self {
        match Self::from_bits(core::ptr::from_ref(slot).addr()) {
            Some(handle) => handle,
            None => unreachable!("a reference is not null"),
        }
    }

    /// Whether the value is the address of a slot, whatever that holds: such a
    /// handle is ours, live or stale.
    #[must_use]
    pub fn is_ours(self) -> bool {
        self.slot().is_some()
    }

    /// The slot, if the value points to one; whatever it holds.
    #[inline(always)]
    #[must_use]
    pub(crate) fn slot(self) -> Option<&'static Slot> {
        arena::find(self.pointer())
    }

    /// The handle that these bits are, and its slot.
    ///
    /// # Safety
    /// They are those of a handle that was an object's at some time: one that
    /// the library itself has written down.
    #[inline(always)]
    pub(crate) unsafe fn known(bits: usize) -> (Self, &'static Slot) {
        // SAFETY: the caller's promise.
        unsafe {
            let handle = Self(NonZeroUsize::new_unchecked(bits));
            (handle, arena::known(handle.pointer()))
        }
    }

    /// The number of its slot, 20 bits, for notes that have no room for a
    /// handle; 0 if it has none.
    pub(crate) fn number(self) -> u32 {
        self.slot().map_or(0, arena::number)
    }

    /// The handle whose slot has this number.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        arena::numbered(number).map(Self::of)
    }

    /// The kind of the object, if it lives.
    #[must_use]
    pub fn kind(self) -> Option<Kind> {
        let tag = self.slot()?.tag.load(Ordering::Acquire);
        Kind::ALL.into_iter().find(|&kind| live(kind) == tag)
    }

    /// Sets the first word of what the handle points to: for the C face that
    /// the object was made through.
    ///
    /// # Safety
    /// `table` stays a table of functions as DAT's headers have it: programs in
    /// C call through it.
    pub unsafe fn set_table(self, table: *const c_void) {
        if let Some(slot) = self.slot() {
            slot.table.store(table.cast_mut(), Ordering::Release);
        }
    }

    /// The consumer's context of a live object.
    #[must_use]
    pub fn context(self) -> Option<u64> {
        self.kind()?;
        Some(self.slot()?.context.load(Ordering::Relaxed))
    }

    /// Sets the consumer's context; `false` if there is no such object.
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

/// A handle whose object is still being made: the object may know its own
/// name. Dropped unused, the slot goes back.
#[derive(Debug)]
pub(crate) struct Reservation {
    slot: Option<&'static Slot>,
}

impl Reservation {
    /// Takes a slot; nothing when there are no more.
    #[must_use]
    pub(crate) fn new() -> Option<Self> {
        let slot = ARENA.take()?;
        debug_assert_eq!(slot.tag.load(Ordering::Relaxed), FREE);
        Some(Self { slot: Some(slot) })
    }

    /// The name that the object will have.
    #[must_use]
    pub(crate) fn handle(&self) -> Handle {
        match self.slot {
            Some(slot) => Handle::of(slot),
            None => unreachable!("the slot leaves with the reservation"),
        }
    }

    /// Lets the handle name this object, which no other handle names.
    pub(crate) fn publish<T: Object>(mut self, object: Arc<T>) -> Handle {
        let handle = self.handle();
        if let Some(slot) = self.slot.take() {
            slot.object
                .store(Arc::into_raw(object).cast_mut().cast(), Ordering::Release);
            let upcalls = core::ptr::from_ref(T::UPCALLS).cast_mut();
            slot.upcalls.store(upcalls, Ordering::Release);
            // The object is seen by whoever sees the tag.
            slot.tag.store(live(T::KIND), Ordering::Release);
        }
        handle
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            clear(slot);
            ARENA.give_back(slot);
        }
    }
}

fn clear(slot: &Slot) {
    slot.context.store(0, Ordering::Relaxed);
    slot.meters.clear();
    slot.set_srq(None);
    slot.tag.store(FREE, Ordering::Release);
}

/// The object in a slot that is known to hold a `T`.
///
/// # Safety
/// The slot's tag was `live(T::KIND)`, and something keeps the object: a pin,
/// the gate, or the caller's promise.
#[inline(always)]
unsafe fn object<T: Object>(slot: &'static Slot) -> &'static T {
    let object = slot.object.load(Ordering::Acquire).cast::<T>();
    // SAFETY: the pointer came from an `Arc<T>`, so it is not null: kinds and
    // types go together.
    unsafe {
        core::hint::assert_unchecked(!object.is_null());
        &*object
    }
}

/// An object in use: it is not freed before this is dropped.
pub struct Pinned<T: Object> {
    slot: &'static Slot,
    of: PhantomData<&'static T>,
}

impl<T: Object> Pinned<T> {
    /// The object for longer than the call.
    #[must_use]
    pub fn to_arc(&self) -> Arc<T> {
        let raw = self.slot.object.load(Ordering::Acquire).cast::<T>();
        // SAFETY: the slot holds one count of the Arc, which the pin keeps
        // it from giving up; this adds another.
        unsafe {
            Arc::increment_strong_count(raw);
            Arc::from_raw(raw)
        }
    }

    /// Its name.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle::of(self.slot)
    }
}

impl<T: Object> Deref for Pinned<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `pin` saw the tag after it had counted itself, and `retire`
        // waits for the count.
        unsafe { object(self.slot) }
    }
}

impl<T: Object> Drop for Pinned<T> {
    fn drop(&mut self) {
        self.slot.pins.fetch_sub(1, Ordering::Release);
    }
}

/// Finds an object for a control call. Nothing if the handle names no live
/// object of this kind.
#[inline]
#[must_use]
pub fn pin<T: Object>(handle: Handle) -> Option<Pinned<T>> {
    let slot = handle.slot()?;
    // Counted first, then looked: against the order in `retire`.
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
/// Nobody frees the object while the reference is used.
#[inline(always)]
#[must_use]
pub unsafe fn peek<T: Object>(handle: Handle) -> Option<&'static T> {
    // SAFETY: passed on to the caller.
    unsafe { peek_at(handle.pointer()) }
}

/// [`peek`] of a handle as C passes it: a pointer to anything or nothing.
///
/// # Safety
/// As there.
#[inline(always)]
#[must_use]
pub unsafe fn peek_at<T: Object>(pointer: *const c_void) -> Option<&'static T> {
    let slot = arena::find(pointer)?;
    if slot.tag.load(Ordering::Acquire) == live(T::KIND) {
        // SAFETY: the tag was just read; the caller promises the rest.
        Some(unsafe { object(slot) })
    } else {
        None
    }
}

/// Why an object cannot be had alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOwned {
    /// The handle names no live object of this kind.
    Stale,
    /// Another call has it.
    Busy,
}

/// An object that this call has for itself, among all that ask by [`own`].
pub struct Owned<T: Object> {
    slot: &'static Slot,
    of: PhantomData<&'static T>,
}

/// Takes an object for this call alone.
///
/// # Errors
/// [`NotOwned`]; it never waits.
#[inline(always)]
pub fn own<T: Object>(handle: Handle) -> Result<Owned<T>, NotOwned> {
    own_at(handle.pointer()).ok_or_else(|| not_owned::<T>(handle))
}

/// [`own`] of a handle as C passes it, a pointer to anything or nothing; without
/// a word about why not.
#[inline(always)]
pub fn own_at<T: Object>(pointer: *const c_void) -> Option<Owned<T>> {
    let slot = arena::find(pointer)?;
    // First the gate, then the look, which is needed with the gate held. Where
    // it is a slot of another kind, or of none, that keeps nobody from anything:
    // who meets it there comes again.
    if slot.gate.fetch_or(HELD, Ordering::SeqCst) & HELD != 0 {
        return None;
    }
    let owned = Owned {
        slot,
        of: PhantomData,
    };
    (slot.tag.load(Ordering::SeqCst) == live(T::KIND)).then_some(owned)
}

/// Why an object could not be owned.
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
    /// Its name.
    #[inline(always)]
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle::of(self.slot)
    }

    /// Whether the object is being freed: its owner must let go soon.
    #[inline(always)]
    #[must_use]
    pub fn is_dying(&self) -> bool {
        self.slot.tag.load(Ordering::Relaxed) == DYING
    }
}

impl<T: Object> Deref for Owned<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the tag was seen with the gate held, and `retire` waits for
        // the gate.
        unsafe { object(self.slot) }
    }
}

impl<T: Object> Drop for Owned<T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.slot.gate.store(0, Ordering::Release);
    }
}

/// Ends a handle. No call finds the object from now on; those that use it are
/// waited for, and `hurry` is called again and again while one owns it, to
/// make it leave. Nothing if the handle names no live object of this kind,
/// or another thread is freeing it already.
///
/// The caller must neither pin nor own the object.
pub(crate) fn retire<T: Object>(handle: Handle, mut hurry: impl FnMut(&T)) -> Option<Arc<T>> {
    let slot = handle.slot()?;
    slot.tag
        .compare_exchange(live(T::KIND), DYING, Ordering::SeqCst, Ordering::Relaxed)
        .ok()?;
    // SAFETY: the tag was live until now, and only we take the object out.
    let inside = unsafe { object::<T>(slot) };
    let mut backoff = Backoff::new();
    while slot.gate.fetch_or(HELD, Ordering::SeqCst) & HELD != 0 {
        hurry(inside);
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
    slot.gate.store(0, Ordering::Release);
    ARENA.give_back(slot);
    // SAFETY: from `Arc::into_raw` in `publish`, taken out once.
    Some(unsafe { Arc::from_raw(raw) })
}

/// Gives an object a handle: for tests of faces, with types of their own. `None`
/// when there are no more handles.
///
/// # Safety
/// No other handle names the object.
#[must_use]
pub unsafe fn publish_for_test<T: Object>(object: Arc<T>) -> Option<Handle> {
    Some(Reservation::new()?.publish(object))
}

/// Ends a handle that [`publish_for_test`] gave.
///
/// # Safety
/// The handle came from there, and the caller neither pins nor owns the object.
pub unsafe fn retire_for_test<T: Object>(handle: Handle) -> Option<Arc<T>> {
    retire(handle, |_| ())
}

#[cfg(test)]
mod tests;

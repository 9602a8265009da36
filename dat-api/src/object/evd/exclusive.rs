//! The part of an EVD that only its owner touches.

use core::cell::UnsafeCell;

use super::Evd;
use super::consumer::Consumer;
use crate::handle::Owned;

/// The consuming half of an EVD, for the call that owns the EVD by [`crate::handle::own`].
pub(super) struct Exclusive(UnsafeCell<Consumer>);

// SAFETY: the content is reached only through `open`, by one thread at a time, and `Consumer` is
// `Send`.
unsafe impl Sync for Exclusive {}

const _: () = {
    const fn crosses_threads<T: Send>() {}
    crosses_threads::<Consumer>();
};

impl Exclusive {
    pub(super) fn new(consumer: Consumer) -> Self {
        Self(UnsafeCell::new(consumer))
    }
}

/// Returns the two halves of an owned EVD: the shared one, and the owner's.
#[inline(always)]
pub(super) fn open(owned: &mut Owned<Evd>) -> (&Evd, &mut Consumer) {
    let evd: &Evd = owned;
    // SAFETY: an EVD is published under one handle only (`create.rs`), a handle has one `Owned` at
    // a time, and that one is borrowed mutably here. No other function opens the cell.
    (evd, unsafe { &mut *evd.consumer.0.get() })
}

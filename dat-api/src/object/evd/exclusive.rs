//! What only the owner of an EVD touches.

use core::cell::UnsafeCell;

use super::Evd;
use super::consumer::Consumer;
use crate::handle::Owned;

/// The consuming half of an EVD, for whoever has the EVD by
/// [`crate::handle::own`].
pub(super) struct Exclusive(UnsafeCell<Consumer>);

// SAFETY: the inside is reached by `open` alone, one thread at a time, and a
// `Consumer` may go from thread to thread.
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

/// The two halves of an EVD: what all share, and what its owner has alone.
#[inline(always)]
pub(super) fn open(owned: &mut Owned<Evd>) -> (&Evd, &mut Consumer) {
    let evd: &Evd = owned;
    // SAFETY: an EVD is published under one handle only (`create.rs`), a handle
    // has one `Owned` at a time, and that one is borrowed mutably here. Nobody
    // else opens the cell.
    (evd, unsafe { &mut *evd.consumer.0.get() })
}

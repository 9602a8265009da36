//! EVDs: the tables of states, streams, flags, order and failures, row by row.

mod resize;

use std::mem;
use std::ptr;
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use dat::abi::*;
use dat::exports::*;

use crate::support::{Bed, blank, dequeue, ok};

/// For waits that something else is to end.
const LONG: DAT_TIMEOUT = 20_000_000;

/// The handle of an EVD as threads pass it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Evd(DAT_EVD_HANDLE);

// SAFETY: a handle is a number.
unsafe impl Send for Evd {}
// SAFETY: the same.
unsafe impl Sync for Evd {}

impl Evd {
    fn new(bed: &Bed, qlen: DAT_COUNT, flags: DAT_EVD_FLAGS) -> Self {
        Self(bed.evd(qlen, flags))
    }

    /// For closures, which would take the address out of it.
    fn handle(self) -> DAT_HANDLE {
        self.0
    }

    fn try_post(self, number: usize) -> DAT_RETURN {
        let mut event = blank();
        event.event_number = DAT_SOFTWARE_EVENT;
        event.event_data.software_event_data = DAT_SOFTWARE_EVENT_DATA {
            pointer: ptr::without_provenance_mut(number),
        };
        // SAFETY: a live event.
        unsafe { dat_evd_post_se(self.0, &raw const event) }
    }

    #[track_caller]
    fn post(self, number: usize) {
        ok(self.try_post(number));
    }

    /// The software events that are there.
    fn drain(self) -> Vec<usize> {
        std::iter::from_fn(|| dequeue(self.0).ok())
            .map(|event| number(&event))
            .collect()
    }

    fn query(self) -> DAT_EVD_PARAM {
        // SAFETY: integers and pointers: zeros are good.
        let mut param: DAT_EVD_PARAM = unsafe { mem::zeroed() };
        // SAFETY: the result is writable.
        ok(unsafe { dat_evd_query(self.0, DAT_EVD_FIELD_ALL, &raw mut param) });
        param
    }

    #[track_caller]
    fn calls(self, call: unsafe extern "C" fn(DAT_EVD_HANDLE) -> DAT_RETURN) {
        // SAFETY: any value may be given.
        ok(unsafe { call(self.0) });
    }
}

/// The number that a software event carries.
#[track_caller]
fn number(event: &DAT_EVENT) -> usize {
    assert_eq!(event.event_number, DAT_SOFTWARE_EVENT);
    // SAFETY: the number tells which member holds.
    unsafe { event.event_data.software_event_data }
        .pointer
        .addr()
}

/// A wait in a thread of its own, which sleeps when this answers.
fn waits<'s>(
    scope: &'s Scope<'s, '_>,
    evd: Evd,
    threshold: DAT_COUNT,
) -> ScopedJoinHandle<'s, DAT_RETURN> {
    let waiter = scope.spawn(move || crate::support::wait(evd.handle(), LONG, threshold).0);
    // It is the waiter's as soon as nobody else may look.
    while matches!(dequeue(evd.0), Err(answer) if answer & 0x3fff_0000 != DAT_INVALID_STATE) {
        thread::yield_now();
    }
    thread::sleep(Duration::from_millis(5));
    waiter
}

/// The waiter has not returned, and does not in a while.
#[track_caller]
fn stays<T>(waiter: &ScopedJoinHandle<'_, T>) {
    thread::sleep(Duration::from_millis(10));
    assert!(!waiter.is_finished(), "the wait has ended");
}

/// What a thread answers, who must end.
#[track_caller]
fn joined<T>(waiter: ScopedJoinHandle<'_, T>) -> T {
    waiter.join().expect("no panic")
}

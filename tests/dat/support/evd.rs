//! EVDs that threads share, and waits on them.

use std::mem;
use std::ptr;
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use dat::abi::*;
use dat::exports::*;

use super::{Dto, Fixture, Waiter, blank, dequeue, dto, fails, fails_with, ok, words};

/// Timeout of waits that another event ends. No test waits that long.
pub const LONG: DAT_TIMEOUT = 60_000_000;

/// Limit for the end of such a wait, also on a busy machine.
pub const SOON: Duration = Duration::from_secs(30);

/// An EVD that threads share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evd(pub DAT_EVD_HANDLE);

// SAFETY: a handle is a number.
unsafe impl Send for Evd {}
// SAFETY: the same.
unsafe impl Sync for Evd {}

/// The results of a wait.
pub struct Waited {
    pub answer: DAT_RETURN,
    pub event: DAT_EVENT,
    pub nmore: DAT_COUNT,
    pub took: Duration,
}

// SAFETY: numbers, and addresses that are only compared.
unsafe impl Send for Waited {}

impl Waited {
    /// Returns the completion and `nmore`.
    #[track_caller]
    pub fn dto(&self) -> (Dto, DAT_COUNT) {
        ok(self.answer);
        (dto(&self.event), self.nmore)
    }

    /// Returns the tag of the completion, and `nmore`.
    #[track_caller]
    pub fn tag(&self) -> (u64, DAT_COUNT) {
        let (dto, nmore) = self.dto();
        assert_eq!(dto.status, DAT_DTO_SUCCESS);
        (dto.cookie, nmore)
    }

    /// Returns the number of the software event, and `nmore`.
    #[track_caller]
    pub fn number(&self) -> (usize, DAT_COUNT) {
        ok(self.answer);
        (number(&self.event), self.nmore)
    }

    /// Returns `nmore` of a wait that timed out.
    #[track_caller]
    pub fn expired(&self) -> DAT_COUNT {
        fails(self.answer, DAT_TIMEOUT_EXPIRED);
        self.nmore
    }

    #[track_caller]
    pub fn refused(&self, kind: DAT_RETURN, subtype: DAT_RETURN_SUBTYPE) {
        fails_with(self.answer, kind, subtype);
    }

    /// Checks that the wait ended long before its timeout.
    #[track_caller]
    pub fn soon(self) -> Self {
        assert!(self.took < SOON, "it waited {:?}", self.took);
        self
    }
}

impl Evd {
    pub fn new(fixture: &Fixture, qlen: DAT_COUNT, flags: DAT_EVD_FLAGS) -> Self {
        Self(fixture.evd(qlen, flags))
    }

    /// Returns the handle. Closures that used the field would capture the
    /// pointer, which is not `Send`.
    pub fn handle(self) -> DAT_HANDLE {
        self.0
    }

    #[track_caller]
    pub fn calls(self, call: unsafe extern "C" fn(DAT_EVD_HANDLE) -> DAT_RETURN) {
        // SAFETY: the call validates its handles.
        ok(unsafe { call(self.0) });
    }

    /// Creates an EVD for software events.
    pub fn software(fixture: &Fixture, qlen: DAT_COUNT) -> Self {
        Self(fixture.evd(qlen, DAT_EVD_SOFTWARE_FLAG))
    }

    pub fn wait(self, timeout: DAT_TIMEOUT, threshold: DAT_COUNT) -> Waited {
        let (mut event, mut nmore) = (blank(), -77);
        let begin = Instant::now();
        // SAFETY: both results are writable.
        let answer =
            unsafe { dat_evd_wait(self.0, timeout, threshold, &raw mut event, &raw mut nmore) };
        Waited {
            answer,
            event,
            nmore,
            took: begin.elapsed(),
        }
    }

    /// Returns whether a thread waits on the EVD. Takes no event: the call passes
    /// an invalid threshold, which is refused with another code while a thread
    /// owns the EVD.
    pub fn is_waited(self) -> bool {
        let probe = self.wait(0, DAT_COUNT::MAX);
        if probe.answer & DAT_TYPE_MASK == DAT_INVALID_STATE {
            probe.refused(DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_WAITER);
            return true;
        }
        fails(probe.answer, DAT_INVALID_PARAMETER);
        false
    }

    #[track_caller]
    pub fn until_waited(self) {
        let begin = Instant::now();
        while !self.is_waited() {
            assert!(begin.elapsed() < SOON, "no thread waits");
            thread::yield_now();
        }
    }

    /// Waits on another thread; returns once that thread waits.
    #[track_caller]
    pub fn in_thread<'s>(
        self,
        scope: &'s Scope<'s, '_>,
        timeout: DAT_TIMEOUT,
        threshold: DAT_COUNT,
    ) -> Waiter<'s, Waited> {
        let waiter = Waiter::spawn(scope, move || self.wait(timeout, threshold));
        self.until_waited();
        waiter
    }

    /// Like [`Self::in_thread`], without a timeout: a wait with one polls once a second.
    /// Returns once the thread sleeps.
    pub fn asleep<'s>(self, scope: &'s Scope<'s, '_>, threshold: DAT_COUNT) -> Waiter<'s, Waited> {
        let wait = move || self.wait(DAT_TIMEOUT_INFINITE, threshold);
        let waiter = Waiter::spawn(scope, wait);
        waiter.until_asleep();
        waiter
    }

    /// Posts a software event.
    pub fn try_post(self, number: usize) -> DAT_RETURN {
        let mut event = blank();
        event.event_number = DAT_SOFTWARE_EVENT;
        event.event_data.software_event_data = DAT_SOFTWARE_EVENT_DATA {
            pointer: ptr::without_provenance_mut(number),
        };
        // SAFETY: a live event.
        unsafe { dat_evd_post_se(self.0, &raw const event) }
    }

    #[track_caller]
    pub fn post(self, number: usize) {
        ok(self.try_post(number));
    }

    /// Takes the next software event, which must be there.
    #[track_caller]
    pub fn take_number(self) -> usize {
        match dequeue(self.0) {
            Ok(event) => number(&event),
            Err(answer) => panic!("no event: {}", words(answer)),
        }
    }

    /// Takes all software events.
    pub fn drain(self) -> Vec<usize> {
        std::iter::from_fn(|| dequeue(self.0).ok())
            .map(|event| number(&event))
            .collect()
    }

    #[track_caller]
    pub fn set_unwaitable(self) {
        // SAFETY: the call validates its handles.
        ok(unsafe { dat_evd_set_unwaitable(self.0) });
    }

    #[track_caller]
    pub fn clear_unwaitable(self) {
        // SAFETY: the call validates its handles.
        ok(unsafe { dat_evd_clear_unwaitable(self.0) });
    }

    #[track_caller]
    pub fn free(self) {
        // SAFETY: the call validates its handles.
        ok(unsafe { dat_evd_free(self.0) });
    }

    pub fn query(self) -> DAT_EVD_PARAM {
        // SAFETY: integers and pointers, for which zero is valid.
        let mut param: DAT_EVD_PARAM = unsafe { mem::zeroed() };
        // SAFETY: the result is writable.
        ok(unsafe { dat_evd_query(self.0, DAT_EVD_FIELD_ALL, &raw mut param) });
        param
    }
}

/// Returns the number that a software event carries.
#[track_caller]
pub fn number(event: &DAT_EVENT) -> usize {
    assert_eq!(event.event_number, DAT_SOFTWARE_EVENT);
    // SAFETY: the event number selects this member.
    unsafe { event.event_data.software_event_data }
        .pointer
        .addr()
}

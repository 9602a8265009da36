//! `dat_evd_wait`: the statements W01 to W22 of its page.
//!
//! | file | statements |
//! | --- | --- |
//! | `taking` | W01 W13 W15 W20: what a wait takes, and what it leaves |
//! | `connection` | W02 W03 W04 W05: requests and private data |
//! | `owner` | W06 W07: one waiter |
//! | `clock` | W08 W09 W14: time |
//! | `threshold` | W10 W11 W12: how many events |
//! | `notify` | W21: which events |
//! | `ending` | W16 W17 W18: waits that end otherwise |
//! | `signals` | W14 W19 |
//! | `threads` | W22 W06: many threads |
//! | `letters` | W10 W15: no wake-up is lost to calls that move completions |

mod clock;
mod connection;
mod ending;
mod letters;
mod notify;
mod owner;
mod signals;
mod taking;
mod threads;
mod threshold;

use std::ops::Range;
use std::ptr;
use std::sync::mpsc;
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use dat::abi::*;
use dat::exports::*;

use crate::support::{Bed, Dto, Memory, Pair, Shape, blank, cookie, dto, fails, fails_with, ok};

/// For waits that something else is to end: none of these tests waits so long.
const LONG: DAT_TIMEOUT = 20_000_000;

/// How soon such a wait has to end, on however busy a machine.
const SOON: Duration = Duration::from_secs(8);

const MESSAGE: usize = 8;

/// An EVD as threads share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Evd(DAT_EVD_HANDLE);

// SAFETY: a handle is a number.
unsafe impl Send for Evd {}
// SAFETY: the same.
unsafe impl Sync for Evd {}

/// What a wait answered.
struct Waited {
    answer: DAT_RETURN,
    event: DAT_EVENT,
    nmore: DAT_COUNT,
    took: Duration,
}

// SAFETY: numbers, and addresses that are only compared.
unsafe impl Send for Waited {}

impl Waited {
    /// The completion, and `nmore`.
    #[track_caller]
    fn dto(&self) -> (Dto, DAT_COUNT) {
        ok(self.answer);
        (dto(&self.event), self.nmore)
    }

    /// The tag of the completion, and `nmore`.
    #[track_caller]
    fn tag(&self) -> (u64, DAT_COUNT) {
        let (dto, nmore) = self.dto();
        assert_eq!(dto.status, DAT_DTO_SUCCESS);
        (dto.cookie, nmore)
    }

    /// The number of the software event, and `nmore`.
    #[track_caller]
    fn number(&self) -> (usize, DAT_COUNT) {
        ok(self.answer);
        (number(&self.event), self.nmore)
    }

    /// `nmore` of a time-out.
    #[track_caller]
    fn expired(&self) -> DAT_COUNT {
        fails(self.answer, DAT_TIMEOUT_EXPIRED);
        self.nmore
    }

    #[track_caller]
    fn refused(&self, kind: DAT_RETURN, subtype: DAT_RETURN_SUBTYPE) {
        fails_with(self.answer, kind, subtype);
    }

    /// It came to its end long before its time was over.
    #[track_caller]
    fn soon(self) -> Self {
        assert!(self.took < SOON, "it waited {:?}", self.took);
        self
    }
}

impl Evd {
    /// For software events.
    fn software(bed: &Bed, qlen: DAT_COUNT) -> Self {
        Self(bed.evd(qlen, DAT_EVD_SOFTWARE_FLAG))
    }

    fn wait(self, timeout: DAT_TIMEOUT, threshold: DAT_COUNT) -> Waited {
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

    /// Whether a thread waits on it. Takes nothing: the threshold is refused
    /// unless somebody else has the EVD.
    fn is_waited(self) -> bool {
        let probe = self.wait(0, DAT_COUNT::MAX);
        if probe.answer & DAT_TYPE_MASK == DAT_INVALID_STATE {
            probe.refused(DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_WAITER);
            return true;
        }
        fails(probe.answer, DAT_INVALID_PARAMETER);
        false
    }

    #[track_caller]
    fn until_waited(self) {
        let begin = Instant::now();
        while !self.is_waited() {
            assert!(begin.elapsed() < SOON, "nobody waits");
            thread::yield_now();
        }
    }

    /// Waits in a thread of its own; answers when that blocks.
    #[track_caller]
    fn in_thread<'s>(
        self,
        scope: &'s Scope<'s, '_>,
        timeout: DAT_TIMEOUT,
        threshold: DAT_COUNT,
    ) -> ScopedJoinHandle<'s, Waited> {
        let waiter = scope.spawn(move || self.wait(timeout, threshold));
        self.until_waited();
        waiter
    }

    /// The same, and answers when the thread sleeps: no wait of the tests
    /// spins that long.
    #[track_caller]
    fn asleep<'s>(
        self,
        scope: &'s Scope<'s, '_>,
        threshold: DAT_COUNT,
    ) -> ScopedJoinHandle<'s, Waited> {
        let waiter = self.in_thread(scope, LONG, threshold);
        thread::sleep(Duration::from_millis(5));
        waiter
    }

    /// Posts a software event.
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

    /// Takes the next software event, which must be there.
    #[track_caller]
    fn take_number(self) -> usize {
        match crate::support::dequeue(self.0) {
            Ok(event) => number(&event),
            Err(answer) => panic!("no event: {}", crate::support::words(answer)),
        }
    }

    #[track_caller]
    fn set_unwaitable(self) {
        // SAFETY: any value may be given.
        ok(unsafe { dat_evd_set_unwaitable(self.0) });
    }

    #[track_caller]
    fn clear_unwaitable(self) {
        // SAFETY: any value may be given.
        ok(unsafe { dat_evd_clear_unwaitable(self.0) });
    }

    #[track_caller]
    fn free(self) {
        // SAFETY: any value may be given.
        ok(unsafe { dat_evd_free(self.0) });
    }

    fn query(self) -> DAT_EVD_PARAM {
        // SAFETY: integers and pointers: zeros are good.
        let mut param: DAT_EVD_PARAM = unsafe { std::mem::zeroed() };
        // SAFETY: the result is writable.
        ok(unsafe { dat_evd_query(self.0, DAT_EVD_FIELD_ALL, &raw mut param) });
        param
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

/// The waiter has not returned, and does not in a while.
#[track_caller]
fn stays<T>(waiter: &ScopedJoinHandle<'_, T>, evd: Evd) {
    thread::sleep(Duration::from_millis(15));
    assert!(!waiter.is_finished(), "the wait has ended");
    assert!(evd.is_waited());
}

/// What a thread answered, who must end.
#[track_caller]
fn joined<T>(waiter: ScopedJoinHandle<'_, T>) -> T {
    waiter.join().expect("no panic")
}

/// A connected pair of which the active end sends, and memory for it.
struct Talk<'b> {
    bed: &'b Bed,
    pair: Pair,
    memory: Memory,
}

// SAFETY: handles are numbers, and the memory is not touched by the tests
// while it is shared.
unsafe impl Sync for Talk<'_> {}

impl<'b> Talk<'b> {
    fn new(bed: &'b Bed, shape: &Shape) -> Self {
        Self::of(bed, Pair::new(bed, shape))
    }

    fn of(bed: &'b Bed, pair: Pair) -> Self {
        let memory = bed.memory(4096);
        Self { bed, pair, memory }
    }

    /// The EVD of the receives.
    fn recv(&self) -> Evd {
        Evd(self.pair.passive.recv)
    }

    /// The EVD of the sends.
    fn request(&self) -> Evd {
        Evd(self.pair.active.request)
    }

    /// Posts receives.
    #[track_caller]
    fn listen(&self, tags: Range<u64>) {
        for tag in tags {
            self.listen_with(tag, DAT_COMPLETION_DEFAULT_FLAG);
        }
    }

    #[track_caller]
    fn listen_with(&self, tag: u64, flags: DAT_COMPLETION_FLAGS) {
        let mut iov = [self.memory.segment(1024, 64)];
        // SAFETY: one segment, whose memory the tests keep.
        ok(unsafe {
            dat_ep_post_recv(
                self.pair.passive.ep,
                1,
                iov.as_mut_ptr(),
                cookie(tag),
                flags,
            )
        });
    }

    /// Sends a message, and lets the device work.
    #[track_caller]
    fn send(&self, tag: u64, flags: DAT_COMPLETION_FLAGS) {
        ok(self
            .pair
            .active
            .post_send(&[self.memory.segment(0, MESSAGE)], tag, flags));
        self.bed.run();
    }

    /// A message arrives; its send is done with.
    #[track_caller]
    fn say(&self) {
        self.say_with(DAT_COMPLETION_DEFAULT_FLAG);
    }

    #[track_caller]
    fn say_with(&self, flags: DAT_COMPLETION_FLAGS) {
        self.send(u64::MAX, flags);
        assert_eq!(self.pair.active.requested().status, DAT_DTO_SUCCESS);
    }
}

/// Tells a thread its own name, for signals.
fn own_thread(to: &mpsc::Sender<libc::pthread_t>) {
    // SAFETY: always safe.
    to.send(unsafe { libc::pthread_self() })
        .expect("somebody listens");
}

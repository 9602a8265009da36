//! Notification objects: `dat_cno_create`, `dat_cno_free`, `dat_cno_wait`,
//! `dat_cno_modify_agent`, `dat_cno_query`, and the calls of an EVD that concern
//! its CNO. Each test carries the number of its statement:
//!
//! | number | statement | file |
//! | --- | --- | --- |
//! | N01 | no EVDs, no waiters and no triggers at first; the agent as given | `calls` |
//! | N02 | query tells the IA and the agent; the EVD's tells the CNO | `calls` |
//! | N03 | freed only while no EVD feeds it and no thread waits on it | `calls` |
//! | N04 | what is wrong with a call is told by type and subtype | `calls` |
//! | N05 | a wait ends with the EVD that has triggered | `waiting` |
//! | N06 | a trigger without a waiter is remembered, once for an EVD | `waiting` |
//! | N07 | the time is up: `DAT_QUEUE_EMPTY` and no EVD | `waiting` |
//! | N08 | a signal: `DAT_INTERRUPTED_CALL` and no EVD | `waiting` |
//! | N09 | a disabled EVD does not trigger; enabled, it does, also for what came | `feeding` |
//! | N10 | an EVD that a thread waits on does not trigger (also W07) | `feeding` |
//! | N11 | modify_cno moves the triggers of an EVD, or ends them | `feeding` |
//! | N12 | quiet completions do not trigger, solicited and failed ones do | `feeding` |
//! | N13 | every kind of event triggers | `feeding` |
//! | N14 | several threads: each trigger is for one of them, none is lost | `threads` |
//! | N15 | the agent is called once, with its data and the EVD | `agent` |
//! | N16 | modify_agent arms again, changes and takes away | `agent` |
//! | N17 | the agent and the waiters are both told | `agent` |
//! | N18 | IA closed: waiters and agents are released with no EVD | `ending` |
//! | N19 | the last EVD freed: likewise | `ending` |
//! | N20 | EVDs freed, moved, switched and waited on beside waiters: no hang | `threads` |
//! | N21 | a child of a fork hangs in none of the calls | `ending` |

mod agent;
mod calls;
mod ending;
mod feeding;
mod threads;
mod waiting;

use std::ptr;
use std::sync::mpsc;
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use dat::abi::*;
use dat::exports::*;

use crate::support::{Bed, Evd, LONG, SOON, fails, ok};

/// Microseconds of a wait that what is to come ends.
pub(crate) const SECOND: DAT_TIMEOUT = 1_000_000;

/// No agent.
const NOBODY: DAT_OS_WAIT_PROXY_AGENT = DAT_OS_WAIT_PROXY_AGENT {
    instance_data: ptr::null_mut(),
    proxy_agent_func: None,
};

/// A CNO as threads share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cno(DAT_CNO_HANDLE);

// SAFETY: a handle is a number.
unsafe impl Send for Cno {}
// SAFETY: the same.
unsafe impl Sync for Cno {}

impl Cno {
    /// One without an agent.
    pub(crate) fn new(bed: &Bed) -> Self {
        Self::with_agent(bed, NOBODY)
    }

    fn with_agent(bed: &Bed, agent: DAT_OS_WAIT_PROXY_AGENT) -> Self {
        let mut cno = ptr::null_mut();
        // SAFETY: a live adapter, and a place for the result.
        ok(unsafe { dat_cno_create(bed.ia, agent, &raw mut cno) });
        assert!(!cno.is_null());
        Self(cno)
    }

    /// `dat_cno_wait`: the EVD, or what else it answered; then there is none.
    #[track_caller]
    pub(crate) fn wait(self, timeout: DAT_TIMEOUT) -> Result<DAT_EVD_HANDLE, DAT_RETURN> {
        let mut evd = ptr::without_provenance_mut(77);
        // SAFETY: the result is writable.
        match unsafe { dat_cno_wait(self.0, timeout, &raw mut evd) } {
            DAT_SUCCESS => Ok(evd),
            answer => {
                assert!(evd.is_null(), "an EVD in spite of {answer:#x}");
                Err(answer)
            }
        }
    }

    /// Nothing has triggered it.
    #[track_caller]
    pub(crate) fn finds_nothing(self) {
        for timeout in [0, 1000] {
            match self.wait(timeout) {
                Ok(evd) => panic!("triggered by {evd:?}"),
                Err(answer) => fails(answer, DAT_QUEUE_EMPTY),
            }
        }
    }

    /// The EVD triggers it from now on.
    #[track_caller]
    pub(crate) fn feed(self, evd: DAT_EVD_HANDLE) {
        // SAFETY: any value may be given.
        ok(unsafe { dat_evd_modify_cno(evd, self.0) });
    }

    /// An EVD for software events that feeds it.
    fn software(self, bed: &Bed, qlen: DAT_COUNT) -> Evd {
        let mut evd = ptr::null_mut();
        let flags = DAT_EVD_SOFTWARE_FLAG;
        // SAFETY: live objects, and a place for the result.
        ok(unsafe { dat_evd_create(bed.ia, qlen, self.0, flags, &raw mut evd) });
        Evd(evd)
    }

    fn free(self) -> DAT_RETURN {
        // SAFETY: any value may be given.
        unsafe { dat_cno_free(self.0) }
    }

    fn set_agent(self, agent: DAT_OS_WAIT_PROXY_AGENT) -> DAT_RETURN {
        // SAFETY: a function that lives as long as the program.
        unsafe { dat_cno_modify_agent(self.0, agent) }
    }

    /// Waits in a thread of its own, which sleeps when this answers; or spins, if
    /// it is to.
    fn asleep<'s>(
        self,
        scope: &'s Scope<'s, '_>,
    ) -> ScopedJoinHandle<'s, (Result<Evd, DAT_RETURN>, Duration)> {
        let (tell, told) = mpsc::channel();
        let waiter = scope.spawn(move || {
            // SAFETY: always safe.
            tell.send(unsafe { libc::gettid() }).expect("heard");
            let begin = Instant::now();
            let waited = self.wait(LONG).map(Evd);
            (waited, begin.elapsed())
        });
        let thread = told.recv().expect("a thread");
        let begin = Instant::now();
        while !sleeps(thread) && begin.elapsed() < Duration::from_millis(500) {
            thread::sleep(Duration::from_micros(500));
        }
        waiter
    }
}

/// Whether a thread of this process sleeps.
fn sleeps(thread: libc::pid_t) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    // Its name, which is in brackets, may be anything.
    let stat = stat.unwrap_or_default();
    stat.rsplit(") ")
        .next()
        .is_some_and(|rest| rest.starts_with('S'))
}

/// What a waiter answers, who is to end soon.
#[track_caller]
fn joined(
    waiter: ScopedJoinHandle<'_, (Result<Evd, DAT_RETURN>, Duration)>,
) -> Result<Evd, DAT_RETURN> {
    let (waited, took) = waiter.join().expect("no panic");
    assert!(took < SOON, "it waited {took:?}");
    waited
}

/// The waiter has not returned, and does not in a while.
#[track_caller]
fn stays<T>(waiter: &ScopedJoinHandle<'_, T>) {
    thread::sleep(Duration::from_millis(15));
    assert!(!waiter.is_finished(), "the wait has ended");
}

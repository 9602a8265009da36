//! Notification objects: `dat_cno_create`, `dat_cno_free`, `dat_cno_wait`,
//! `dat_cno_modify_agent`, `dat_cno_query`, and the calls of an EVD that concern
//! its CNO. Tests that leave events in an EVD are strict: without `DAT_STRICT=1` a
//! wait returns such an EVD again (`tests/dat/habits/cno.rs`). Each test carries the
//! number of its statement:
//!
//! | number | statement | file |
//! | --- | --- | --- |
//! | N01 | initially no EVDs, waiters or triggers; the agent as given | `calls` |
//! | N02 | query returns the IA and the agent; the EVD's returns the CNO | `calls` |
//! | N03 | freed only while no EVD is bound to it and no thread waits on it | `calls` |
//! | N04 | errors are reported by type and subtype | `calls` |
//! | N05 | a wait ends with the EVD that has triggered | `waiting` |
//! | N06 | a trigger without a waiter is remembered, once for an EVD | `waiting` |
//! | N07 | timeout: `DAT_QUEUE_EMPTY` and no EVD | `waiting` |
//! | N08 | a signal: `DAT_INTERRUPTED_CALL` and no EVD | `waiting` |
//! | N09 | a disabled EVD does not trigger; once enabled it does, also for earlier events | `binding` |
//! | N10 | an EVD that a thread waits on does not trigger (also W07) | `binding` |
//! | N11 | modify_cno moves the triggers of an EVD, or ends them | `binding` |
//! | N12 | unsignalled completions do not trigger, solicited and failed ones do | `binding` |
//! | N13 | every kind of event triggers | `binding` |
//! | N14 | several threads: each trigger wakes one of them, none is lost | `threads` |
//! | N15 | the agent is called once, with its data and the EVD | `agent` |
//! | N16 | modify_agent arms again, changes and takes away | `agent` |
//! | N17 | a trigger reaches the agent and a waiter | `agent` |
//! | N18 | IA closed: waiters and agents are released with no EVD | `ending` |
//! | N19 | the last EVD freed: likewise | `ending` |
//! | N20 | EVDs freed, moved, switched and waited on during waits: no hang | `threads` |
//! | N21 | a child of a fork hangs in none of the calls | `ending` |
//! | N22 | the descriptor is readable from a trigger until it is armed | `descriptor` |

mod agent;
mod binding;
mod calls;
mod descriptor;
mod ending;
mod threads;
mod waiting;

use std::ptr;
use std::thread::Scope;

use dat::abi::*;
use dat::exports::*;

use crate::support::{Evd, Fixture, LONG, SOON, Waiter, fails, joined, ok, stays};

/// A timeout of one second, for waits that an event ends.
pub(crate) const SECOND: DAT_TIMEOUT = 1_000_000;

/// No agent.
const NO_AGENT: DAT_OS_WAIT_PROXY_AGENT = DAT_OS_WAIT_PROXY_AGENT {
    instance_data: ptr::null_mut(),
    proxy_agent_func: None,
};

/// The result of a wait: the EVD, or the return code of a failure.
type Waited = Result<Evd, DAT_RETURN>;

/// A CNO that threads share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cno(DAT_CNO_HANDLE);

// SAFETY: a handle is a number.
unsafe impl Send for Cno {}
// SAFETY: the same.
unsafe impl Sync for Cno {}

impl Cno {
    /// Creates a CNO without an agent.
    pub(crate) fn new(fixture: &Fixture) -> Self {
        Self::with_agent(fixture, NO_AGENT)
    }

    fn with_agent(fixture: &Fixture, agent: DAT_OS_WAIT_PROXY_AGENT) -> Self {
        let mut cno = ptr::null_mut();
        // SAFETY: a live adapter, and a place for the result.
        ok(unsafe { dat_cno_create(fixture.ia, agent, &raw mut cno) });
        assert!(!cno.is_null());
        Self(cno)
    }

    /// Calls `dat_cno_wait`. Returns the EVD, or the return code of a failure,
    /// which has no EVD.
    #[track_caller]
    pub(crate) fn wait(self, timeout: DAT_TIMEOUT) -> Result<DAT_EVD_HANDLE, DAT_RETURN> {
        let mut evd = ptr::without_provenance_mut(77);
        // SAFETY: the result is writable.
        match unsafe { dat_cno_wait(self.0, timeout, &raw mut evd) } {
            DAT_SUCCESS => Ok(evd),
            answer => {
                assert!(evd.is_null(), "an EVD together with the error {answer:#x}");
                Err(answer)
            }
        }
    }

    /// Checks that nothing has triggered the CNO.
    #[track_caller]
    pub(crate) fn finds_nothing(self) {
        for timeout in [0, 1000] {
            match self.wait(timeout) {
                Ok(evd) => panic!("triggered by {evd:?}"),
                Err(answer) => fails(answer, DAT_QUEUE_EMPTY),
            }
        }
    }

    /// Makes the EVD trigger this CNO.
    #[track_caller]
    pub(crate) fn bind(self, evd: DAT_EVD_HANDLE) {
        // SAFETY: the call validates its handles.
        ok(unsafe { dat_evd_modify_cno(evd, self.0) });
    }

    /// Creates an EVD for software events that triggers this CNO.
    pub(crate) fn software(self, fixture: &Fixture, qlen: DAT_COUNT) -> Evd {
        let mut evd = ptr::null_mut();
        let flags = DAT_EVD_SOFTWARE_FLAG;
        // SAFETY: live objects, and a place for the result.
        ok(unsafe { dat_evd_create(fixture.ia, qlen, self.0, flags, &raw mut evd) });
        Evd(evd)
    }

    /// Returns the handle.
    pub(crate) fn handle(self) -> DAT_CNO_HANDLE {
        self.0
    }

    fn free(self) -> DAT_RETURN {
        // SAFETY: the call validates its handles.
        unsafe { dat_cno_free(self.0) }
    }

    pub(crate) fn set_agent(self, agent: DAT_OS_WAIT_PROXY_AGENT) -> DAT_RETURN {
        // SAFETY: a function that lives as long as the program.
        unsafe { dat_cno_modify_agent(self.0, agent) }
    }

    /// Waits on another thread without a timeout. Returns once that thread sleeps.
    pub(crate) fn asleep<'s>(self, scope: &'s Scope<'s, '_>) -> Waiter<'s, Waited> {
        let waiter = Waiter::spawn(scope, move || self.wait(DAT_TIMEOUT_INFINITE).map(Evd));
        waiter.until_asleep();
        waiter
    }
}

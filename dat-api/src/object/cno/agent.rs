//! The agent of a CNO: a function that a trigger calls once.
//!
//! An agent of a C program may end the thread that calls it (pthread_exit(3), or pthread_cancel(3)
//! from another thread). The thread of the CNO may end so ([`CallingThread`]); if an agent has been
//! set by then, the thread is replaced.

use core::fmt;
use core::panic::AssertUnwindSafe;
use core::sync::atomic::Ordering;
use std::panic::catch_unwind;
use std::sync::Arc;

use dat_engine::thread::{CallingThread, Calls};
use dat_engine::wait::{Deadline, Source as _, WaitPolicy};

use super::Cno;
use super::protocol::{Finder, HasAgent as _, WaitEnd, Wake as _};
use super::wait::{WaitPolls, Waiter};
use crate::error::{DatError, Result};
use crate::handle::Handle;
use crate::status::{ReturnType, Subtype};

/// The function that is called when an EVD triggers the CNO. Its argument is the EVD; or `None`
/// when the IA is closed abruptly, or when the last EVD of the CNO is freed.
///
/// It is called on a thread of the library, which blocks all signals, with no lock held. It may
/// make any call, including freeing the CNO.
#[derive(Clone)]
pub struct Agent {
    call: Arc<dyn Fn(Option<Handle>) + Send + Sync>,
    /// See [`Self::words`].
    words: [usize; 2],
}

impl Agent {
    /// Returns an agent, with two words by which the C interface identifies it. A panic of `call`
    /// is logged and goes no further.
    pub fn new(words: [usize; 2], call: impl Fn(Option<Handle>) + Send + Sync + 'static) -> Self {
        Self::unguarded(words, move |evd| {
            // The panic hook has printed its message to standard error.
            if catch_unwind(AssertUnwindSafe(|| call(evd))).is_err() {
                tracing::error!(?evd, "the agent of a CNO panicked");
            }
        })
    }

    /// Returns an agent that does not panic, and that may end the thread it is called on. For that
    /// reason `call` holds nothing that must be dropped.
    pub fn unguarded(
        words: [usize; 2],
        call: impl Fn(Option<Handle>) + Send + Sync + 'static,
    ) -> Self {
        Self {
            call: Arc::new(call),
            words,
        }
    }

    /// Returns the words that it was created with; they mean nothing here.
    #[must_use]
    pub fn words(&self) -> [usize; 2] {
        self.words
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent")
            .field("words", &self.words)
            .finish_non_exhaustive()
    }
}

/// The thread that calls agents. It sleeps in any wait policy, and polls EVDs only while there is
/// an agent to call.
pub(super) struct Runner {
    waiter: Arc<Waiter>,
    thread: CallingThread,
}

impl Runner {
    fn start(cno: &Arc<Cno>) -> Result<Self> {
        let waiter = Waiter::new()?;
        let caller = Caller {
            cno: Arc::clone(cno),
            waiter: Arc::clone(&waiter),
            next: None,
            is_last: false,
            has_failed: false,
        };
        let thread = CallingThread::start(c"dat-cno", caller);
        let thread = thread.map_err(|error| {
            DatError::new(
                ReturnType::InsufficientResources,
                Subtype::NoSubtype,
                format!("the thread that calls the agent of a CNO cannot be started: {error}"),
            )
        })?;
        Ok(Self { waiter, thread })
    }

    pub(super) fn waiter(&self) -> &Arc<Waiter> {
        &self.waiter
    }

    /// Waits for the end of the thread, unless it is the calling thread.
    pub(super) fn join(self) {
        self.thread.join();
    }
}

impl Cno {
    /// Sets the agent, or none. The next trigger calls it, once; events that have triggered before,
    /// and that no agent was called for, call it at once. The previous agent may still be running.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES`: the thread to call it on cannot be started.
    pub fn set_agent(self: &Arc<Self>, agent: Option<Agent>) -> Result<()> {
        let mut state = self.state.lock();
        let rest = &mut state.rest;
        if agent.is_some() && rest.runner.is_none() && !self.is_over.load(Ordering::SeqCst) {
            rest.runner = Some(Runner::start(self)?);
        }
        let before = core::mem::replace(&mut rest.agent, agent);
        rest.agent_is_released = false;
        let caller = rest.agent_waiter();
        // If the agent's thread has armed the EVDs, and has no agent to call any more, another
        // waiter has to arm them.
        let poller = state.poller();
        drop(state);
        let all = caller.iter().chain(&poller);
        all.for_each(|waiter| waiter.wake());
        drop(before);
        Ok(())
    }
}

/// The state of the thread.
struct Caller {
    cno: Arc<Cno>,
    waiter: Arc<Waiter>,
    /// The agent that is called next, or now.
    next: Option<(Agent, Option<Handle>)>,
    /// The CNO is being freed: the next call is the last.
    is_last: bool,
    /// The thread cannot wait, and no other thread could.
    has_failed: bool,
}

impl Calls for Caller {
    /// Waits for a trigger and an agent.
    fn prepare(&mut self) -> bool {
        self.next = None;
        while !self.is_last {
            // If the CNO is freed before this thread begins, its agent is still called with `None`.
            self.is_last = self.cno.is_over.load(Ordering::SeqCst);
            let mut polls = WaitPolls::new(&*self.cno, Finder::Agent);
            if !polls.ready() {
                let (policy, mut never) = (WaitPolicy::Block, Deadline::NEVER);
                let counts = &self.cno.counts;
                if let Err(error) = self.waiter.wait(&mut polls, policy, &mut never, counts) {
                    let cno = self.cno.handle;
                    tracing::error!(?cno, "the thread of a CNO cannot wait: {error}");
                    self.has_failed = true;
                    return false;
                }
            }
            let evd = match polls.wait_end {
                Some(WaitEnd::Triggered(evd)) => Some(evd),
                _ => None,
            };
            let mut state = self.cno.state.lock();
            state.rest.agent_is_released = false;
            self.next = state.rest.agent.take().map(|agent| (agent, evd));
            if let (None, Some(evd)) = (&self.next, evd) {
                // The agent was removed meanwhile: the trigger stays for the next one.
                state.for_agent.push(evd, true);
            }
            // This thread stops polling, so another waiter has to.
            let poller = state.poller();
            drop(state);
            poller.iter().for_each(|waiter| waiter.wake());
            if self.next.is_some() {
                return true;
            }
        }
        false
    }

    fn call(&self) {
        if let Some((agent, evd)) = &self.next {
            (agent.call)(*evd);
        }
    }
}

impl Drop for Caller {
    /// The thread ends. If its CNO is not being freed, an agent has ended the thread, and an agent
    /// that was set since then needs another one.
    fn drop(&mut self) {
        let mut state = self.cno.state.lock();
        let rest = &mut state.rest;
        let is_own = |runner: &mut Runner| Arc::ptr_eq(&runner.waiter, &self.waiter);
        let Some(ended) = rest.runner.take_if(is_own) else {
            return;
        };
        let is_wanted = rest.agent.is_some() && !self.has_failed;
        if is_wanted && !self.cno.is_over.load(Ordering::SeqCst) {
            match Runner::start(&self.cno) {
                Ok(runner) => rest.runner = Some(runner),
                Err(error) => tracing::error!(cno = ?self.cno.handle, "{error}"),
            }
        }
        drop(state);
        drop(ended);
    }
}

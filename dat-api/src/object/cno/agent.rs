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

use dat_engine::ControlError;
use dat_engine::thread::{CallingThread, Calls, SignalsBlocked, leave_pinned_cpus};
use dat_engine::wait::{ChannelFds, Deadline, Source, WaitPolicy};

use super::protocol::{Finder, State as _};
use super::wait::{Poller, Waiter};
use super::{Cno, State};
use crate::error::{DatError, Result};
use crate::handle::Handle;
use crate::object::evd::PollMode;
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
            has_begun: false,
            is_last: false,
            has_failed: false,
        };
        let blocked = SignalsBlocked::new();
        let thread = CallingThread::start(c"dat-cno", caller);
        drop(blocked);
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
        if agent.is_some() && state.runner.is_none() && !self.is_over.load(Ordering::SeqCst) {
            state.runner = Some(Runner::start(self)?);
        }
        let before = core::mem::replace(&mut state.agent, agent);
        state.agent_is_released = false;
        let caller = state.agent_waiter();
        // If the agent's thread has armed the EVDs, and has no agent to call any more, another
        // waiter has to arm them.
        let poller = state.poller();
        drop(state);
        for waiter in caller.iter().chain(&poller) {
            waiter.wake();
        }
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
    has_begun: bool,
    /// The CNO is being freed: the next call is the last.
    is_last: bool,
    /// The thread cannot wait, and no other thread could.
    has_failed: bool,
}

impl Calls for Caller {
    /// Waits for a trigger and an agent.
    fn prepare(&mut self) -> bool {
        self.next = None;
        if !self.has_begun {
            self.has_begun = true;
            leave_pinned_cpus();
        }
        while !self.is_last {
            // If the CNO is freed before this thread begins, its agent is still called with `None`.
            self.is_last = self.cno.is_over.load(Ordering::SeqCst);
            let mut calling = Calling {
                poller: Poller::new(&*self.cno, Finder::Agent),
                next_call: None,
            };
            if !calling.ready() {
                let (policy, mut never) = (WaitPolicy::Block, Deadline::NEVER);
                let counts = &self.cno.counts;
                if let Err(error) = self.waiter.wait(&mut calling, policy, &mut never, counts) {
                    let cno = self.cno.handle;
                    tracing::error!(?cno, "the thread of a CNO cannot wait: {error}");
                    self.has_failed = true;
                    return false;
                }
            }
            if calling.next_call.is_some() {
                self.next = calling.next_call;
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
        let is_own = |runner: &Runner| Arc::ptr_eq(&runner.waiter, &self.waiter);
        if !state.runner.as_ref().is_some_and(is_own) {
            return;
        }
        let ended = state.runner.take();
        let is_wanted = state.agent.is_some() && !self.has_failed;
        if is_wanted && !self.cno.is_over.load(Ordering::SeqCst) {
            match Runner::start(&self.cno) {
                Ok(runner) => state.runner = Some(runner),
                Err(error) => tracing::error!(cno = ?self.cno.handle, "{error}"),
            }
        }
        drop(state);
        drop(ended);
    }
}

/// A wait for a trigger to call the agent with.
struct Calling<'a> {
    poller: Poller<&'a Cno>,
    /// The agent to call, and its argument.
    next_call: Option<(Agent, Option<Handle>)>,
}

impl Calling<'_> {
    fn has_agent(&self) -> bool {
        self.poller.cno.state.lock().agent.is_some()
    }

    /// Takes the agent of the CNO to call it. Returns `false` if it was removed meanwhile.
    fn take_agent(&mut self, state: &mut State, evd: Option<Handle>) -> bool {
        state.agent_is_released = false;
        self.next_call = state.agent.take().map(|agent| (agent, evd));
        self.next_call.is_some()
    }

    /// Takes the first trigger whose EVD still holds events.
    fn take(&mut self) -> bool {
        let cno = self.poller.cno;
        loop {
            let first = cno.state.lock().table.for_agent.first();
            let Some(evd) = first else {
                return false;
            };
            let holds = self.poller.holds(evd).any;
            let mut state = cno.state.lock();
            if holds && state.agent.is_none() {
                // The trigger stays for the next agent.
                return false;
            }
            if !state.table.for_agent.remove(evd) || !holds {
                continue;
            }
            self.take_agent(&mut state, Some(evd));
            // This thread stops polling, so another waiter has to.
            let poller = state.poller();
            drop(state);
            if let Some(poller) = poller {
                poller.wake();
            }
            return true;
        }
    }
}

impl Source for Calling<'_> {
    fn ready(&mut self) -> bool {
        let cno = self.poller.cno;
        let mut state = cno.state.lock();
        if cno.is_over.load(Ordering::SeqCst) {
            self.take_agent(&mut state, None);
            return true;
        }
        if state.agent_is_released && self.take_agent(&mut state, None) {
            return true;
        }
        let has_agent = state.agent.is_some();
        drop(state);
        if !has_agent {
            return false;
        }
        if self.take() {
            return true;
        }
        self.poller.poll_each(PollMode::IfFree);
        self.take()
    }

    fn arm(&mut self) {
        if self.has_agent() {
            self.poller.poll_each(PollMode::Arm);
        }
    }

    fn take_events(&mut self) -> Result<u32, ControlError> {
        Ok(match self.has_agent() {
            true => self.poller.take_events(),
            false => 0,
        })
    }

    /// `None` without an agent: the device's events are then not for this thread.
    fn channel(&self) -> Option<ChannelFds<'_>> {
        match self.has_agent() {
            true => self.poller.channel(),
            false => None,
        }
    }

    fn spin_counts(&self) -> bool {
        false
    }
}

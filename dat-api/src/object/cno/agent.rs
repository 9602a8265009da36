//! The agent of a CNO: a function that a trigger calls, once.
//!
//! An agent of a C program may end the thread that calls it (pthread_exit(3), or
//! pthread_cancel(3) from another thread). The thread of the CNO is one that may
//! end so ([`CallingThread`]); if an agent is set by then, the thread is replaced.

use core::fmt;
use core::panic::AssertUnwindSafe;
use core::sync::atomic::Ordering;
use std::os::fd::BorrowedFd;
use std::panic::catch_unwind;
use std::sync::Arc;

use dat_engine::ControlError;
use dat_engine::thread::{CallingThread, Calls, SignalsBlocked, leave_pinned_cpus};
use dat_engine::wait::{Deadline, Source, WaitPolicy};

use super::protocol::{Finder, State as _};
use super::wait::{Seat, Watch};
use super::{Cno, State};
use crate::error::{DatError, Result};
use crate::handle::Handle;
use crate::object::evd::Task;
use crate::status::{ReturnType, Subtype};

/// What is called when an EVD triggers the CNO: with the EVD; or with none when
/// the IA is closed abruptly, or the last EVD of the CNO is freed.
///
/// It is called on a thread of the library, which blocks all signals, with no
/// lock held: any call may be made from there, freeing the CNO included.
#[derive(Clone)]
pub struct Agent {
    call: Arc<dyn Fn(Option<Handle>) + Send + Sync>,
    /// See [`Self::words`].
    words: [usize; 2],
}

impl Agent {
    /// An agent, and what the face that made it knows it by. A panic of the agent
    /// is reported and goes no further.
    pub fn new(words: [usize; 2], call: impl Fn(Option<Handle>) + Send + Sync + 'static) -> Self {
        Self::unguarded(words, move |evd| {
            // Its words have gone to the standard error output.
            if catch_unwind(AssertUnwindSafe(|| call(evd))).is_err() {
                tracing::error!(?evd, "the agent of a CNO panicked");
            }
        })
    }

    /// An agent that does not panic, and may end the thread that it is called on.
    /// For that `call` holds nothing that is to be dropped.
    pub fn unguarded(
        words: [usize; 2],
        call: impl Fn(Option<Handle>) + Send + Sync + 'static,
    ) -> Self {
        Self {
            call: Arc::new(call),
            words,
        }
    }

    /// What it was made with: of no meaning here.
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

/// The thread that calls agents. It sleeps, whatever the wait policy, and looks
/// at EVDs only while there is an agent to be called.
pub(super) struct Runner {
    seat: Arc<Seat>,
    thread: CallingThread,
}

impl Runner {
    fn start(cno: &Arc<Cno>) -> Result<Self> {
        let seat = Seat::new()?;
        let caller = Caller {
            cno: Arc::clone(cno),
            seat: Arc::clone(&seat),
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
                format!("no thread to call the agent of a CNO on: {error}"),
            )
        })?;
        Ok(Self { seat, thread })
    }

    pub(super) fn seat(&self) -> &Arc<Seat> {
        &self.seat
    }

    /// Waits for its end, unless this is it.
    pub(super) fn join(self) {
        self.thread.join();
    }
}

impl Cno {
    /// Sets the agent, or none. It is called once, by the next trigger; or at
    /// once, if EVDs hold events that have triggered and no agent was told of.
    /// One that was called already may still be running.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES`: there is no thread to call it on.
    pub fn set_agent(self: &Arc<Self>, agent: Option<Agent>) -> Result<()> {
        let mut state = self.state.lock();
        if agent.is_some() && state.runner.is_none() && !self.is_over.load(Ordering::SeqCst) {
            state.runner = Some(Runner::start(self)?);
        }
        let before = core::mem::replace(&mut state.agent, agent);
        state.agent_is_released = false;
        let caller = state.caller();
        // Who has asked for events may have been the thread that has no agent
        // to call any more.
        let looker = state.looker();
        drop(state);
        for seat in caller.iter().chain(&looker) {
            seat.wake();
        }
        drop(before);
        Ok(())
    }
}

/// What the thread does, and has.
struct Caller {
    cno: Arc<Cno>,
    seat: Arc<Seat>,
    /// What is called next, or just now.
    next: Option<(Agent, Option<Handle>)>,
    has_begun: bool,
    /// The CNO is going: the next call is the last.
    is_last: bool,
    /// It cannot wait: no other thread could.
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
            // Also if it is over before this thread has begun, its agent is released.
            self.is_last = self.cno.is_over.load(Ordering::SeqCst);
            let mut calling = Calling {
                watch: Watch::new(&*self.cno, Finder::Agent),
                told: None,
            };
            if !calling.ready() {
                let (policy, mut never) = (WaitPolicy::Block, Deadline::NEVER);
                let counts = &self.cno.counts;
                if let Err(error) = self.seat.wait(&mut calling, policy, &mut never, counts) {
                    let cno = self.cno.handle;
                    tracing::error!(?cno, "the thread of a CNO cannot wait: {error}");
                    self.has_failed = true;
                    return false;
                }
            }
            if calling.told.is_some() {
                self.next = calling.told;
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
    /// The thread is ending. If its CNO is not, an agent has ended it, and one
    /// that was set since needs another thread.
    fn drop(&mut self) {
        let mut state = self.cno.state.lock();
        let is_own = |runner: &Runner| Arc::ptr_eq(&runner.seat, &self.seat);
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

/// Waiting for a trigger to call the agent with.
struct Calling<'a> {
    watch: Watch<&'a Cno>,
    /// Who is to be called, with what.
    told: Option<(Agent, Option<Handle>)>,
}

impl Calling<'_> {
    fn has_agent(&self) -> bool {
        self.watch.cno.state.lock().agent.is_some()
    }

    /// The agent is to be called, and is the CNO's no more. If it has just been
    /// taken away, nobody is.
    fn take_agent(&mut self, state: &mut State, evd: Option<Handle>) -> bool {
        state.agent_is_released = false;
        self.told = state.agent.take().map(|agent| (agent, evd));
        self.told.is_some()
    }

    /// Takes the first trigger that is still good.
    fn take(&mut self) -> bool {
        let cno = self.watch.cno;
        loop {
            let first = cno.state.lock().table.for_agent.first();
            let Some(evd) = first else {
                return false;
            };
            let holds = self.watch.holds(evd);
            let mut state = cno.state.lock();
            if holds && state.agent.is_none() {
                // For the next one.
                return false;
            }
            if !state.table.for_agent.remove(evd) || !holds {
                continue;
            }
            self.take_agent(&mut state, Some(evd));
            // This thread looks no more: another is to.
            let looker = state.looker();
            drop(state);
            if let Some(looker) = looker {
                looker.wake();
            }
            return true;
        }
    }
}

impl Source for Calling<'_> {
    fn ready(&mut self) -> bool {
        let cno = self.watch.cno;
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
        self.watch.look_at_all(Task::Glance);
        self.take()
    }

    fn arm(&mut self) {
        if self.has_agent() {
            self.watch.look_at_all(Task::Arm);
        }
    }

    fn take_events(&mut self) -> Result<u32, ControlError> {
        Ok(match self.has_agent() {
            true => self.watch.take_events(),
            false => 0,
        })
    }

    /// None where there is nobody to be called: then the events are not for this
    /// thread.
    fn channel(&self) -> Option<BorrowedFd<'_>> {
        match self.has_agent() {
            true => self.watch.channel(),
            false => None,
        }
    }

    fn spin_counts(&self) -> bool {
        false
    }
}

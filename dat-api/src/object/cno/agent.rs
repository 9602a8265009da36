//! The agent of a CNO: a function that a trigger calls, once.

use core::fmt;
use core::panic::AssertUnwindSafe;
use core::sync::atomic::Ordering;
use std::os::fd::BorrowedFd;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use dat_engine::ControlError;
use dat_engine::thread::{SignalsBlocked, leave_pinned_cpus};
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
    /// An agent, and what the face that made it knows it by.
    pub fn new(words: [usize; 2], call: impl Fn(Option<Handle>) + Send + Sync + 'static) -> Self {
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
    thread: JoinHandle<()>,
}

impl Runner {
    fn start(cno: &Arc<Cno>) -> Result<Self> {
        let seat = Seat::new()?;
        let (own, sitting) = (Arc::clone(cno), Arc::clone(&seat));
        let blocked = SignalsBlocked::new();
        let thread = thread::Builder::new()
            .name("dat-cno".to_owned())
            .spawn(move || run(&own, &sitting));
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
        if self.thread.thread().id() != thread::current().id() && self.thread.join().is_err() {
            tracing::error!("the thread of a CNO panicked");
        }
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
        let mut state = self.lock();
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

fn run(cno: &Cno, seat: &Seat) {
    leave_pinned_cpus();
    loop {
        // Also if it is over before this thread has begun, its agent is released.
        let is_last = cno.is_over.load(Ordering::SeqCst);
        let mut calling = Calling {
            watch: Watch::new(cno, Finder::Agent),
            told: None,
        };
        if !calling.ready() {
            let mut never = Deadline::NEVER;
            if let Err(error) = seat.wait(&mut calling, WaitPolicy::Block, &mut never, &cno.counts)
            {
                tracing::error!(cno = ?cno.handle, "the thread of a CNO cannot wait: {error}");
                return;
            }
        }
        if let Some((agent, evd)) = calling.told {
            // Its words have gone to the standard error output.
            if catch_unwind(AssertUnwindSafe(|| (agent.call)(evd))).is_err() {
                tracing::error!(cno = ?cno.handle, "the agent of a CNO panicked");
            }
        }
        if is_last {
            return;
        }
    }
}

/// Waiting for a trigger to call the agent with.
struct Calling<'a> {
    watch: Watch<'a>,
    /// Who is to be called, with what.
    told: Option<(Agent, Option<Handle>)>,
}

impl Calling<'_> {
    fn has_agent(&self) -> bool {
        self.watch.cno.lock().agent.is_some()
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
            let first = cno.lock().table.for_agent.first();
            let Some(evd) = first else {
                return false;
            };
            let holds = self.watch.holds(evd);
            let mut state = cno.lock();
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
        let mut state = cno.lock();
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

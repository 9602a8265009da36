//! The agent of a CNO: a function that a trigger calls once.
//!
//! An agent of a C program may end the thread that calls it (pthread_exit(3), or pthread_cancel(3)
//! from another thread). The thread of the CNO may end so ([`Thread::calling`]); if an agent has been
//! set by then, the thread is replaced.

use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::sync::Arc;

use dat_engine::memory;
use dat_engine::thread::{Calls, Thread};
use dat_engine::wait::{Blocker, Deadline, SpinBudget, WaitCounters, WaitPolicy, wait};

use super::protocol::{AGENT, Poller, Table};
use super::{Cno, new_waiter};
use crate::error::{DatError, Result};
use crate::handle::Handle;
use crate::refusal::CnoRefusal;
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

/// The thread that calls agents, and what it sleeps on. It sleeps in any wait policy, and polls EVDs
/// only while there is an agent to call.
pub(super) type Runner = (Arc<Blocker>, Thread);

impl Cno {
    /// Sets the agent, or none. The next trigger calls it, once; events that have triggered before,
    /// and that no agent was called for, call it at once. The previous agent may still be running.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES`: the thread to call it on cannot be started. `INVALID_HANDLE`: the
    /// CNO is being freed, and calls none.
    pub fn set_agent(self: &Arc<Self>, mut agent: Option<Agent>) -> Result<()> {
        self.update(|table| -> Result<()> {
            if table.is_over {
                return match agent {
                    Some(_) => Err(CnoRefusal::Freed.into()),
                    None => Ok(()),
                };
            }
            if agent.is_some() {
                // It stays for the next agent if this one is refused.
                if table.runner.is_none() {
                    table.runner = Some(self.start_runner(&new_waiter()?.0)?);
                }
                table.queues[AGENT].waiters.reserve(1);
            }
            memory::commit()?;
            table.release(&[AGENT]);
            if agent.is_some()
                && let Some((blocker, _)) = &table.runner
            {
                table.queues[AGENT].waiters.push(Arc::clone(blocker));
            }
            // If the agent's thread has armed the EVDs, and has no agent to call any more, another
            // waiter has to arm them.
            table.wake_poller();
            core::mem::swap(&mut table.agent, &mut agent);
            Ok(())
        })?;
        self.agent_set.notify_all();
        Ok(())
    }

    fn start_runner(self: &Arc<Self>, blocker: &Arc<Blocker>) -> Result<Runner> {
        let caller = Caller {
            cno: Arc::clone(self),
            blocker: Arc::clone(blocker),
            next: None,
        };
        let thread = Thread::calling(c"dat-cno", caller).map_err(|error| {
            DatError::new(
                ReturnType::InsufficientResources,
                Subtype::NoSubtype,
                format!("the thread that calls the agent of a CNO cannot be started: {error}"),
            )
        })?;
        Ok((Arc::clone(blocker), thread))
    }
}

impl Table {
    /// Takes the agent after a wait of its thread, which has found `evd` or was released.
    fn take_agent(&mut self, evd: Option<Handle>) -> Option<(Agent, Option<Handle>)> {
        // This thread stops polling, so another waiter has to.
        self.wake_poller();
        let queue = &mut self.queues[AGENT];
        // An agent that is released is not in the queue; one that was set since then is.
        let is_over = evd.is_some() || queue.waiters.is_empty();
        let agent = self.agent.take_if(|_| is_over);
        if agent.is_some() {
            queue.waiters.clear();
        } else if let Some(evd) = evd {
            // The agent was removed meanwhile: the trigger stays for the next one.
            queue.push(evd, true);
        }
        Some((agent?, evd))
    }
}

/// The state of the thread.
struct Caller {
    cno: Arc<Cno>,
    blocker: Arc<Blocker>,
    /// The agent that is called next, or now.
    next: Option<(Agent, Option<Handle>)>,
}

impl Calls for Caller {
    /// Waits for an agent and a trigger.
    fn prepare(&mut self) -> bool {
        self.next = None;
        let (cno, blocker) = (&self.cno, &self.blocker);
        while self.next.is_none() {
            let mut table = cno.table.lock();
            while table.agent.is_none() {
                if table.is_over {
                    return false;
                }
                table = cno.agent_set.wait(table);
            }
            drop(table);
            let poller = &mut Poller::new(cno, AGENT, Some(blocker));
            let (policy, deadline) = (WaitPolicy::Block, &mut { Deadline::NEVER });
            let (budget, counters) = (&mut SpinBudget::default(), &mut WaitCounters::default());
            let waited = wait(poller, blocker, budget, policy, deadline, counters);
            cno.counts.add(counters);
            if let Err(error) = waited {
                let cno = cno.handle;
                tracing::error!(?cno, "the thread of a CNO cannot wait: {error}");
                return false;
            }
            let evd = poller.end.and_then(|end| end.ok().flatten());
            self.next = cno.update(|table| table.take_agent(evd));
        }
        true
    }

    fn call(&self) {
        if let Some((agent, evd)) = &self.next {
            (agent.call)(*evd);
        }
    }
}

impl Drop for Caller {
    /// The thread ends. If an agent has ended it, and the CNO is not being freed, an agent that was
    /// set since then needs another thread.
    fn drop(&mut self) {
        self.cno.update(|table| {
            // If the CNO is being freed, that call joins the thread.
            if !table.is_over {
                let is_wanted = table.agent.is_some() && self.next.is_some();
                let runner = is_wanted.then(|| self.cno.start_runner(&self.blocker));
                table.runner = runner.transpose().unwrap_or_else(|error| {
                    tracing::error!(cno = ?self.cno.handle, "{error}");
                    None
                });
            }
        });
    }
}

//! Notification objects: one place to wait for the events of several EVDs.
//!
//! | file | content |
//! | --- | --- |
//! | `wait.rs` | `dat_cno_wait`: a wait as on an EVD, on all EVDs at once |
//! | `binding.rs` | the EVDs that trigger it |
//! | `agent.rs` | the agent, and the thread that calls it |
//! | `protocol.rs` | which waiter gets a trigger, and which thread is woken |
//! | `pending.rs` | the pending triggers |
//!
//! # Which waiter gets a trigger
//! An EVD triggers when an event arrives that notifies; see `evd/owner.rs`. One waiter gets
//! the trigger, and the agent gets it once too. Without a waiter the trigger stays pending, once
//! for each EVD, and the next waiter gets it if the EVD still holds events; likewise for the agent.
//! Unless the IA is strict, a wait that begins also returns an EVD that was returned before and
//! still holds events that notify, and an EVD with several such events goes to as many waiters.
//!
//! # Which thread polls
//! Every waiter polls the EVDs and arms their completion queues itself; there is no thread between
//! the device and a waiter. Several waiters poll side by side. A waiter that returns may have
//! consumed the device event that all were waiting for, so it wakes another waiter, which arms the
//! queues again.
//!
//! Decisions: `docs/decisions/027-cno-waiters-poll.md`,
//! `docs/decisions/062-cno-wait-returns-leftovers.md`

mod agent;
mod binding;
mod pending;
mod protocol;
mod sync;
mod wait;

use core::ops::DerefMut;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::Arc;

use dat_engine::ControlError;
use dat_engine::sync::Mutex;
use dat_engine::wait::{Blocker, ChannelSet};

use self::agent::Runner;
use self::protocol::{CnoState, HasAgent, Table, Wake};
use self::wait::Waiter;
use super::counters::{Counters, WaitCounts};
use super::exhausted;
use super::ia::Ia;
use super::usage::{Counted, Usage};
use crate::error::{DatError, Result};
use crate::handle::{self, Handle, Reservation, Upcalls};
use crate::object::stale;
use crate::status::{ReturnType, Subtype};

pub use self::agent::Agent;
pub use self::wait::{Waiting, begin, wait};

/// A notification object.
pub struct Cno {
    handle: Handle,
    ia: Arc<Ia>,
    /// The completion channels of the EVDs.
    channels: ChannelSet,
    state: Mutex<Table<Handle, Waiter, Rest>>,
    /// The number of pending triggers for waiters, read without the lock.
    triggered: AtomicUsize,
    /// Changes with [`protocol::Table::evds`].
    edition: AtomicU32,
    /// How often all waiters were released because the last EVD was freed.
    releases: AtomicU32,
    /// The CNO is being freed.
    is_over: AtomicBool,
    /// EVDs bound to it, and threads that wait.
    usage: Usage,
    counts: WaitCounts,
}

/// What a CNO has under its lock beside its EVDs, pending triggers and waiters.
#[derive(Default)]
struct Rest {
    /// Waiters that no thread uses.
    idle: Vec<Arc<Waiter>>,
    agent: Option<Agent>,
    /// The last EVD was freed: the agent is to be called with `None`.
    agent_is_released: bool,
    /// The thread that calls the agent; it exists from the first agent on.
    runner: Option<Runner>,
}

impl HasAgent<Waiter> for Rest {
    fn agent_waiter(&self) -> Option<Arc<Waiter>> {
        self.agent.as_ref()?;
        Some(Arc::clone(self.runner.as_ref()?.waiter()))
    }
}

impl CnoState for Cno {
    type Evd = Handle;
    type Waiter = Waiter;
    type Rest = Rest;

    fn lock(&self) -> impl DerefMut<Target = Table<Handle, Waiter, Rest>> {
        self.state.lock()
    }

    fn triggered(&self) -> &AtomicUsize {
        &self.triggered
    }
}

impl Wake for Waiter {
    fn wake(&self) {
        self.blocker.wake();
    }
}

impl Counted for Cno {
    fn usage(&self) -> &Usage {
        &self.usage
    }
}

/// The result of `dat_cno_query`.
#[derive(Clone, Debug)]
pub struct CnoInfo {
    /// The IA it belongs to.
    pub ia: Handle,
    /// The agent that the next trigger calls, if there is one.
    pub agent: Option<Agent>,
}

impl Cno {
    /// The functions that objects in lower modules call.
    pub(super) const UPCALLS: Upcalls = Upcalls {
        abort: Self::abort,
        counters: |cno| Some(Counters::of_waits(handle::pin::<Self>(cno)?.counters())),
        evd_changed: binding::evd_changed,
        ..Upcalls::NONE
    };

    /// Creates a CNO without EVDs.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES`: no descriptors, or no thread for the agent; `INVALID_HANDLE`: the
    /// IA is being closed.
    pub fn create(ia: &Arc<Ia>, agent: Option<Agent>) -> Result<Arc<Self>> {
        let channels = ChannelSet::new().map_err(|error| no_descriptors(&error))?;
        let first = Waiter::new()?;
        let place = Reservation::new().ok_or_else(exhausted)?;
        let cno = Arc::new(Self {
            handle: place.handle(),
            ia: Arc::clone(ia),
            channels,
            state: Mutex::new(Table::new(Rest {
                idle: vec![first],
                ..Rest::default()
            })),
            triggered: AtomicUsize::new(0),
            edition: AtomicU32::new(0),
            releases: AtomicU32::new(0),
            is_over: AtomicBool::new(false),
            usage: Usage::default(),
            counts: WaitCounts::default(),
        });
        if agent.is_some() {
            cno.set_agent(agent)?;
        }
        match ia.publish(place, &cno) {
            Ok(_) => Ok(cno),
            Err(error) => {
                cno.state.lock().rest.agent = None;
                cno.dismantle(None);
                Err(error)
            }
        }
    }

    /// Returns its handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns the IA that it was created on.
    #[must_use]
    pub fn ia(&self) -> &Arc<Ia> {
        &self.ia
    }

    /// Returns its parameters.
    #[must_use]
    pub fn query(&self) -> CnoInfo {
        CnoInfo {
            ia: self.ia.handle(),
            agent: self.state.lock().rest.agent.clone(),
        }
    }

    /// Frees a CNO. Its agent is not called any more; the call waits for a running agent, unless it
    /// is made by that agent.
    ///
    /// # Errors
    /// `INVALID_HANDLE`; `INVALID_STATE` while EVDs are bound to it or threads wait on it.
    pub fn free(handle: Handle) -> Result<()> {
        let cno = handle::pin::<Self>(handle)
            .ok_or_else(stale::<Self>)?
            .to_arc();
        if !cno.usage.close() {
            return Err(DatError::new(
                ReturnType::InvalidState,
                Subtype::InvalidStateCnoInUse,
                "EVDs are bound to the CNO or threads wait on it: free the EVDs or bind them to another \
                 CNO, and wake the threads",
            ));
        }
        cno.state.lock().rest.agent = None;
        cno.ia.unregister(handle);
        cno.dismantle(Some(handle));
        Ok(())
    }

    /// Frees it because its IA is being closed: waits return, and the agent is called, without an
    /// EVD.
    pub(crate) fn abort(handle: Handle) {
        if let Some(cno) = handle::pin::<Self>(handle).map(|cno| cno.to_arc()) {
            cno.usage.close_anyway();
            cno.dismantle(Some(handle));
        }
    }

    /// Ends the waits on it, and the thread of the agent.
    fn dismantle(&self, handle: Option<Handle>) {
        self.is_over.store(true, Ordering::SeqCst);
        let mut state = self.state.lock();
        let runner = state.rest.runner.take();
        let waiters = state.waiters.clone();
        drop(state);
        let all = waiters.iter().chain(runner.as_ref().map(Runner::waiter));
        all.for_each(|waiter| waiter.wake());
        if let Some(handle) = handle {
            handle::retire::<Self>(handle, |_| ());
        }
        if let Some(runner) = runner {
            runner.join();
        }
    }
}

impl Waiter {
    /// Returns a new waiter.
    fn new() -> Result<Arc<Self>> {
        let blocker = Blocker::new().map_err(|error| no_descriptors(&error))?;
        Ok(Arc::new(Self::at(blocker)))
    }
}

fn no_descriptors(error: &ControlError) -> DatError {
    DatError::new(
        ReturnType::InsufficientResources,
        Subtype::ResourceMemory,
        format!("the wake-up descriptors of a CNO cannot be created: {error}"),
    )
}

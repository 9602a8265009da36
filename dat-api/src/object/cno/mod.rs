//! Notification objects: one place to wait for the events of several EVDs.
//!
//! | file | what |
//! | --- | --- |
//! | `wait.rs` | `dat_cno_wait`: a wait as on an EVD, on all EVDs at once |
//! | `binding.rs` | the EVDs that feed it |
//! | `agent.rs` | the agent, and the thread that calls it |
//! | `protocol.rs` | who is told of a trigger, and who is woken |
//! | `line.rs` | EVDs that have triggered, in order |
//!
//! # Who is told
//! An EVD triggers when something comes that notifies; see `evd/feed.rs`. A
//! trigger is for one waiter, and once for the agent. Without a waiter it is
//! remembered, once for each EVD, and told to the next one if the EVD still
//! holds events then; for the agent likewise.
//!
//! # Who looks
//! Whoever waits looks at the EVDs himself, and asks the device for their events:
//! no thread stands between the device and a waiter. Several look beside each
//! other. One that leaves may have taken the event of the device that all were
//! waiting for, so he wakes another, who asks anew.

mod agent;
mod binding;
mod line;
mod protocol;
mod sync;
mod wait;

use core::fmt;
use core::ops::DerefMut;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::Arc;

use dat_engine::ControlError;
use dat_engine::sync::Mutex;
use dat_engine::wait::{Blocker, ChannelSet};

use self::agent::Runner;
use self::protocol::{Bell, Hub, Table};
use self::wait::Seat;
use super::counters::{Counters, WaitCounts};
use super::exhausted;
use super::ia::Ia;
use super::usage::{Counted, Usage};
use crate::error::{DatError, Result};
use crate::handle::{self, Handle, Reservation, Upcalls};
use crate::status::{ReturnType, Subtype};

pub use self::agent::Agent;
pub use self::wait::{Waiting, begin, wait};

/// A notification object.
pub struct Cno {
    handle: Handle,
    ia: Arc<Ia>,
    /// The channels of the EVDs.
    channels: ChannelSet,
    state: Mutex<State>,
    /// How many triggers wait for a waiter: looked at without the lock.
    triggered: AtomicUsize,
    /// Changes with [`State::evds`].
    edition: AtomicU32,
    /// How often everybody was sent away: all its EVDs were freed.
    releases: AtomicU32,
    /// It is going.
    is_over: AtomicBool,
    /// EVDs that feed it, and threads that wait.
    usage: Usage,
    counts: WaitCounts,
}

#[derive(Default)]
struct State {
    /// What feeds it, what has triggered, and who waits.
    table: Table<Handle, Seat>,
    /// Places to wait that nobody uses.
    idle: Vec<Arc<Seat>>,
    agent: Option<Agent>,
    /// The last EVD was freed: the agent is to be called with none.
    agent_is_released: bool,
    /// What calls the agent: there since the first was set.
    runner: Option<Runner>,
}

impl protocol::State for State {
    type Evd = Handle;
    type Seat = Seat;

    fn table(&mut self) -> &mut Table<Handle, Seat> {
        &mut self.table
    }

    fn caller(&self) -> Option<Arc<Seat>> {
        self.agent.as_ref()?;
        Some(Arc::clone(self.runner.as_ref()?.seat()))
    }
}

impl Hub for Cno {
    type State = State;

    fn lock(&self) -> impl DerefMut<Target = State> {
        self.state.lock()
    }

    fn triggered(&self) -> &AtomicUsize {
        &self.triggered
    }
}

impl Bell for Seat {
    fn ring(&self) {
        self.wake();
    }
}

impl Counted for Cno {
    fn usage(&self) -> &Usage {
        &self.usage
    }
}

/// What `dat_cno_query` answers.
#[derive(Clone, Debug)]
pub struct CnoInfo {
    /// The IA it belongs to.
    pub ia: Handle,
    /// The agent that the next trigger calls, if there is one.
    pub agent: Option<Agent>,
}

impl Cno {
    /// What objects below it call.
    pub(super) const UPCALLS: Upcalls = Upcalls {
        abort: Self::abort,
        counters: |cno| Some(Counters::of_waits(handle::pin::<Self>(cno)?.counters())),
        evd_changed: binding::evd_changed,
        ..Upcalls::NONE
    };

    /// Makes one that no EVD feeds.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES`: no descriptors, or no thread for the agent;
    /// `INVALID_HANDLE`: the IA is being closed.
    pub fn create(ia: &Arc<Ia>, agent: Option<Agent>) -> Result<Arc<Self>> {
        let channels = ChannelSet::new().map_err(|error| no_descriptors(&error))?;
        let first = Seat::new()?;
        let place = Reservation::new().ok_or_else(exhausted)?;
        let cno = Arc::new(Self {
            handle: place.handle(),
            ia: Arc::clone(ia),
            channels,
            state: Mutex::new(State {
                idle: vec![first],
                ..State::default()
            }),
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
                cno.state.lock().agent = None;
                cno.dismantle(None);
                Err(error)
            }
        }
    }

    /// Its name.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// The IA that it was made of.
    #[must_use]
    pub fn ia(&self) -> &Arc<Ia> {
        &self.ia
    }

    /// What it is and how it is set.
    #[must_use]
    pub fn query(&self) -> CnoInfo {
        CnoInfo {
            ia: self.ia.handle(),
            agent: self.state.lock().agent.clone(),
        }
    }

    /// Frees it. An agent is not called any more; a call that is under way is
    /// waited for, unless this is it.
    ///
    /// # Errors
    /// `INVALID_HANDLE`; `INVALID_STATE` while EVDs feed it or threads wait on it.
    pub fn free(handle: Handle) -> Result<()> {
        let cno = handle::pin::<Self>(handle).ok_or_else(stale)?.to_arc();
        if !cno.usage.close() {
            return Err(DatError::new(
                ReturnType::InvalidState,
                Subtype::InvalidStateCnoInUse,
                "EVDs feed the CNO or threads wait on it: free the EVDs or give them another \
                 CNO, and wake the threads",
            ));
        }
        cno.state.lock().agent = None;
        cno.ia.unregister(handle);
        cno.dismantle(Some(handle));
        Ok(())
    }

    /// Its IA is being closed: waiters and the agent are released, with no EVD.
    pub(crate) fn abort(handle: Handle) {
        if let Some(cno) = handle::pin::<Self>(handle).map(|cno| cno.to_arc()) {
            cno.usage.close_anyway();
            cno.dismantle(Some(handle));
        }
    }

    /// Ends what waits on it, and the thread of the agent.
    fn dismantle(&self, handle: Option<Handle>) {
        self.is_over.store(true, Ordering::SeqCst);
        let mut state = self.state.lock();
        let runner = state.runner.take();
        let seats = state.table.seats.clone();
        drop(state);
        for seat in seats.iter().chain(runner.as_ref().map(Runner::seat)) {
            seat.wake();
        }
        if let Some(handle) = handle {
            handle::retire::<Self>(handle, |_| ());
        }
        if let Some(runner) = runner {
            runner.join();
        }
    }
}

impl fmt::Debug for Cno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cno")
            .field("handle", &self.handle)
            .finish_non_exhaustive()
    }
}

impl Seat {
    /// A place to wait.
    fn new() -> Result<Arc<Self>> {
        let blocker = Blocker::new().map_err(|error| no_descriptors(&error))?;
        Ok(Arc::new(Self::at(blocker)))
    }
}

fn no_descriptors(error: &ControlError) -> DatError {
    DatError::new(
        ReturnType::InsufficientResources,
        Subtype::ResourceMemory,
        format!("a CNO needs descriptors to be woken by: {error}"),
    )
}

/// The handle names no CNO.
fn stale() -> DatError {
    DatError::new(
        ReturnType::InvalidHandle,
        Subtype::InvalidHandleCno,
        "the handle names no CNO; it may have been freed",
    )
}

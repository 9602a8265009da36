//! Notification objects: one place to wait for the events of several EVDs.
//!
//! | file | content |
//! | --- | --- |
//! | `wait.rs` | `dat_cno_wait`: a wait as on an EVD, on all EVDs at once |
//! | `agent.rs` | the agent, and the thread that calls it |
//! | `descriptor.rs` | the file descriptor, which a program polls together with others |
//! | `protocol.rs` | the pending triggers, which waiter gets one, and which thread is woken |
//!
//! # Which waiter gets a trigger
//! An EVD triggers when an event arrives that notifies; see `evd/owner.rs`. One waiter gets
//! the trigger, and the agent and the descriptor get it once too; a wait that begins takes the
//! descriptor's with its own. Without a waiter the trigger stays pending, once for each EVD, and the
//! next waiter gets it if the EVD still holds events; likewise for the agent.
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
//! `docs/decisions/062-cno-wait-returns-leftovers.md`, `docs/decisions/080-cno-descriptor.md`

mod agent;
mod descriptor;
mod protocol;
mod wait;

use core::sync::atomic::{AtomicU32, Ordering};
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use dat_engine::sync::{Condvar, Mutex};
use dat_engine::wait::{Blocker, ChannelFds, ChannelSet, Source, SpinBudget};
use dat_engine::{ControlError, memory};

use self::agent::Runner;
use self::descriptor::Descriptor;
use self::protocol::{ALL, Table, WAITERS};
use super::counters::{Counters, WaitCounts};
use super::evd::{Evd, PollMode, PollResult};
use super::ia::Ia;
use super::{exhausted, of_another_ia, stale};
use crate::error::{DatError, Result};
use crate::handle::{self, EvdChange, Handle, Reservation, Upcalls};
use crate::refusal::CnoRefusal;
use crate::status::{ReturnType, Subtype};

pub use self::agent::Agent;
pub use self::wait::{Waiting, begin, wait};

/// A notification object. An EVD keeps the handle of its CNO, and a CNO the handles of its EVDs; it
/// cannot be freed while it has some, or threads wait.
pub struct Cno {
    handle: Handle,
    ia: Arc<Ia>,
    /// A wait that begins also returns EVDs that were returned before.
    returns_leftovers: bool,
    /// The completion channels of the EVDs.
    channels: ChannelSet,
    descriptor: OnceLock<Descriptor>,
    table: Mutex<Table>,
    /// How often the table was changed; read without the lock.
    changes: AtomicU32,
    /// Notified when an agent was set, or the CNO is being freed.
    agent_set: Condvar,
    counts: WaitCounts,
}

/// What a thread sleeps on, and the spin budget that the waits there have learned.
type Waiter = (Arc<Blocker>, SpinBudget);

impl Cno {
    /// The functions that objects in lower modules call.
    pub(super) const UPCALLS: Upcalls = Upcalls {
        abort: Self::abort,
        counters: |cno| Some(Counters::of_waits(handle::pin::<Self>(cno)?.counters())),
        evd_changed: Self::evd_changed,
        ..Upcalls::NONE
    };

    /// Creates a CNO without EVDs.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES`: no descriptors, or no thread for the agent; `INVALID_HANDLE`: the
    /// IA is being closed.
    pub fn create(ia: &Arc<Ia>, agent: Option<Agent>) -> Result<Arc<Self>> {
        let channels = ChannelSet::new().map_err(|error| no_descriptors(&error))?;
        let mut table = Table::default();
        table.idle.push(new_waiter()?);
        let place = Reservation::new().ok_or_else(exhausted)?;
        let cno = Arc::new(Self {
            handle: place.handle(),
            ia: Arc::clone(ia),
            returns_leftovers: ia.rules().conformance.returns_leftovers,
            channels,
            descriptor: OnceLock::new(),
            table: Mutex::new(table),
            changes: AtomicU32::new(0),
            agent_set: Condvar::new(),
            counts: WaitCounts::default(),
        });
        ia.publish(place, &cno)?;
        cno.set_agent(agent).inspect_err(|_| _ = cno.end(true))?;
        Ok(cno)
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

    /// Returns the agent that the next trigger calls, if there is one.
    #[must_use]
    pub fn agent(&self) -> Option<Agent> {
        self.table.lock().agent.clone()
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
        if !cno.end(false) {
            return Err(DatError::new(
                ReturnType::InvalidState,
                Subtype::InvalidStateCnoInUse,
                "EVDs are bound to the CNO or threads wait on it: free the EVDs or bind them to another \
                 CNO, and wake the threads",
            ));
        }
        Ok(())
    }

    /// Frees it because its IA is being closed: waits return, and the agent is called, without an
    /// EVD.
    pub(crate) fn abort(handle: Handle) {
        if let Some(cno) = handle::pin::<Self>(handle).map(|cno| cno.to_arc()) {
            cno.end(true);
        }
    }

    /// Ends the waits on it, its handle, and the thread of the agent. Returns `false` if it is in
    /// use, and the end is not abrupt.
    fn end(&self, is_abrupt: bool) -> bool {
        let ended = self.update(|table| {
            let is_unused = table.evds.is_empty() && table.queues[WAITERS].waiters.is_empty();
            if !is_abrupt && (table.is_over || !is_unused) {
                return None;
            }
            table.is_over = true;
            table.release(&ALL);
            let agent = table.agent.take_if(|_| !is_abrupt);
            Some((table.runner.take(), agent))
        });
        let Some((runner, _agent)) = ended else {
            return false;
        };
        self.agent_set.notify_all();
        self.ia.unregister(self.handle);
        handle::retire::<Self>(self.handle, |_| ());
        if let Some((_, thread)) = runner {
            thread.join();
        }
        true
    }

    /// Handles a change of an EVD that is bound to the CNO.
    fn evd_changed(cno: Handle, evd: Handle, change: EvdChange<'_>) -> Result<()> {
        // A CNO with EVDs is not freed, unless its IA is closed abruptly.
        let Some(cno) = handle::pin::<Self>(cno) else {
            return Ok(());
        };
        match change {
            EvdChange::Triggered => cno.update(|table| table.record(evd, &[], &ALL)),
            EvdChange::Look => cno.update(Table::wake_poller),
            EvdChange::Channel(channel) => return cno.watch(channel, evd),
            EvdChange::Unbound(channel, is_freed) => cno.detach(evd, channel, is_freed),
        }
        Ok(())
    }

    /// Binds an EVD. `channel` is its completion channel, if it has one already.
    fn attach(&self, evd: Handle, channel: Option<ChannelFds<'_>>) -> Result<()> {
        self.update(|table| {
            if table.is_over {
                return Err(refused(
                    "the CNO is being freed: bind the EVD to another, or to none",
                ));
            }
            table.evds.reserve(1);
            memory::commit()?;
            if let Some(channel) = channel {
                self.watch(channel, evd)?;
            }
            table.evds.push(evd);
            Ok(())
        })
    }

    /// Adds the completion channel that the EVD has now.
    fn watch(&self, channel: ChannelFds<'_>, evd: Handle) -> Result<()> {
        self.channels
            .add(channel, evd.bits() as u64)
            .map_err(|error| no_descriptors(&error))
    }

    /// Unbinds an EVD. If the last one is freed, waits return without an EVD.
    fn detach(&self, evd: Handle, channel: Option<ChannelFds<'_>>, is_freed: bool) {
        if let Some(channel) = channel {
            self.channels.remove(channel);
        }
        self.update(|table| {
            table.evds.retain(|&other| other != evd);
            for queue in &mut table.queues {
                queue.serve(evd, 0);
            }
            if is_freed && table.evds.is_empty() {
                table.release(&ALL);
            }
        });
    }
}

impl Evd {
    /// Binds the EVD to this CNO, or to none. Events that are there trigger the CNO.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE_CNO` if the CNO belongs to another IA, or is being freed; resources. The
    /// EVD then stays bound to its previous CNO.
    pub fn set_cno(&self, cno: Option<&Arc<Cno>>) -> Result<()> {
        if let Some(cno) = cno
            && !Arc::ptr_eq(cno.ia(), self.ia())
        {
            return Err(refused(of_another_ia("CNO", cno.ia(), self.ia())));
        }
        self.bind_cno(cno.map(|cno| cno.handle), false, |channel| match cno {
            Some(cno) => cno.attach(self.handle(), channel),
            None => Ok(memory::commit()?),
        })
    }
}

fn refused(cause: impl Into<Cow<'static, str>>) -> DatError {
    DatError::new(ReturnType::InvalidHandle, Subtype::InvalidHandleCno, cause)
}

fn new_waiter() -> Result<Waiter> {
    let blocker = Blocker::new().map_err(|error| no_descriptors(&error))?;
    Ok((Arc::new(blocker), SpinBudget::default()))
}

fn no_descriptors(error: &ControlError) -> DatError {
    DatError::new(
        ReturnType::InsufficientResources,
        Subtype::ResourceMemory,
        format!("the wake-up descriptors of a CNO cannot be created: {error}"),
    )
}

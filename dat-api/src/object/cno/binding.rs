//! The EVDs that trigger a CNO. An EVD keeps the handle of its CNO, and a CNO the handles of its
//! EVDs; each EVD counts as a user of the CNO, which therefore cannot be freed before.

use core::sync::atomic::Ordering;
use std::borrow::Cow;
use std::sync::Arc;

use dat_engine::wait::ChannelFds;

use super::protocol::{self, Finder, HasAgent as _, Wake as _};
use super::{Cno, no_descriptors};
use crate::error::{DatError, Result};
use crate::handle::{self, EvdChange, Handle};
use crate::object::evd::Evd;
use crate::object::of_another_ia;
use crate::status::{ReturnType, Subtype};

/// Handles a change of an EVD that is bound to the CNO.
pub(super) fn evd_changed(cno: Handle, evd: Handle, change: EvdChange<'_>) -> Result<()> {
    // A CNO with EVDs is not freed, unless its IA is closed abruptly.
    let Some(cno) = handle::pin::<Cno>(cno) else {
        return Ok(());
    };
    match change {
        EvdChange::Triggered => protocol::record_trigger(&*cno, evd, Finder::NotPolled),
        EvdChange::Look => protocol::wake_poller(&*cno),
        EvdChange::Channel(channel) => return cno.watch(channel, evd),
        EvdChange::Freed(channel) => cno.detach(evd, channel, true),
    }
    Ok(())
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
        let binding = self.cno_binding();
        let (old, new) = (binding.cno(), cno.map(|cno| cno.handle()));
        if new.is_some() && new == old {
            return Ok(());
        }
        if let Some(cno) = cno {
            cno.attach(self.handle(), binding.channel())?;
        }
        binding.set(new);
        if let Some(old) = old.and_then(handle::pin::<Cno>) {
            old.detach(self.handle(), binding.channel(), false);
        }
        drop(binding);
        self.wake_cno_poller();
        Ok(())
    }
}

fn refused(cause: impl Into<Cow<'static, str>>) -> DatError {
    DatError::new(ReturnType::InvalidHandle, Subtype::InvalidHandleCno, cause)
}

impl Cno {
    /// Binds an EVD. `channel` is its completion channel, if it has one already.
    fn attach(&self, evd: Handle, channel: Option<ChannelFds<'_>>) -> Result<()> {
        if !self.usage.enter() {
            return Err(refused(
                "the CNO is being freed: bind the EVD to another, or to none",
            ));
        }
        if let Some(channel) = channel {
            self.watch(channel, evd)
                .inspect_err(|_| self.usage.leave())?;
        }
        let mut state = self.state.lock();
        state.evds.push(evd);
        self.edition.fetch_add(1, Ordering::SeqCst);
        Ok(())
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
        let mut table = self.state.lock();
        table.evds.retain(|&other| other != evd);
        table.for_agent.remove(evd);
        table.for_waiters.remove(evd);
        let waiting = table.for_waiters.len();
        self.triggered.store(waiting, Ordering::SeqCst);
        self.edition.fetch_add(1, Ordering::SeqCst);
        if is_freed && table.evds.is_empty() {
            self.releases.fetch_add(1, Ordering::SeqCst);
            table.rest.agent_is_released = table.rest.agent.is_some();
            let (caller, waiters) = (table.rest.agent_waiter(), table.waiters.clone());
            drop(table);
            let all = waiters.iter().chain(&caller);
            all.for_each(|waiter| waiter.wake());
        }
        self.usage.leave();
    }
}

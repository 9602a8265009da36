//! Attaching endpoints to an EVD. How much room there is for their completions is in
//! `capacity.rs`.

use std::sync::Arc;

use dat_engine::CompletionQueueHandle;

use super::Evd;
use super::ledger::DtoRole;
use super::posted::Letter;
use super::streams::{StreamKind, check_flag};
use crate::error::Result;
use crate::object::usage::Use;
use crate::types::CompletionFlags;

/// A DTO stream of an endpoint, attached to an EVD while this lives. The
/// endpoint (or the queue pair of it) must go first.
pub(crate) struct DtoStream {
    evd: Use<Evd>,
    role: DtoRole,
    flags: CompletionFlags,
    queue: usize,
    cq: Option<CompletionQueueHandle>,
    /// It is [`Self::park`]ed: whether its room may be lent.
    parked: Option<bool>,
}

impl DtoStream {
    /// The EVD.
    pub(crate) fn evd(&self) -> &Arc<Evd> {
        self.evd.arc()
    }

    /// Its endpoint, of which nothing is outstanding, is made anew: what comes
    /// in its place ([`Evd::attach_dto`]) need not suit its flags, and may
    /// have its room. It comes back by [`Self::unpark`], or is dropped.
    pub(crate) fn park(&mut self) {
        if self.parked.is_some() {
            return;
        }
        let mut ledger = self.evd.ledger();
        ledger.streams.detach_dto(self.role.is_request());
        let attribute = ledger.streams.attribute();
        self.evd.switches.set_attribute(attribute);
        drop(ledger);
        // What was left behind in its room is gone, unless the owner is away.
        self.parked = Some(self.evd.drain_behind_owner(|| false));
    }

    /// The opposite of [`Self::park`].
    ///
    /// # Errors
    /// `INVALID_PARAMETER`: streams whose flags do not match have come meanwhile.
    pub(crate) fn unpark(&mut self) -> Result<()> {
        if self.parked.is_none() {
            return Ok(());
        }
        let mut ledger = self.evd.ledger();
        let is_request = self.role.is_request();
        ledger.streams.attach_dto(is_request, self.flags)?;
        self.parked = None;
        let attribute = ledger.streams.attribute();
        self.evd.switches.set_attribute(attribute);
        Ok(())
    }

    /// What it lends of the room of a queue of this EVD.
    fn lends(&self, evd: &Arc<Evd>, queue: usize) -> u32 {
        let lends = self.parked == Some(true)
            && self.queue == queue
            && Arc::ptr_eq(self.evd.arc(), evd)
            && self.role.srq().is_none();
        if lends { self.role.depth() } else { 0 }
    }

    /// The completion queue that the endpoint is to report to.
    pub(crate) fn cq(&self) -> &CompletionQueueHandle {
        match &self.cq {
            Some(cq) => cq,
            None => unreachable!("tests without a device make no endpoints"),
        }
    }
}

#[cfg(test)]
impl DtoStream {
    pub(super) fn queue(&self) -> usize {
        self.queue
    }

    pub(super) fn depth(&self) -> u32 {
        self.role.depth()
    }
}

impl Evd {
    /// Attaches the completions of an endpoint, which is configured by `flags`
    /// (its recv or its request completion flags). There is room for all of
    /// them from now on. An endpoint that is made anew has its streams `before`
    /// parked: this one may take their place. To be called, and the stream dropped, outside of locks
    /// that completion hooks of endpoints take: they may be called meanwhile.
    ///
    /// # Errors
    /// `INVALID_HANDLE` with the subtype of the role if the EVD is not made for
    /// completions or is being freed; `INVALID_PARAMETER` if the flags do not
    /// match those of the other streams on it; resources.
    pub(crate) fn attach_dto(
        self: &Arc<Self>,
        role: DtoRole,
        flags: CompletionFlags,
        before: &[&DtoStream],
    ) -> Result<DtoStream> {
        check_flag(self, StreamKind::Dto, role.subtype())?;
        let evd = self.enter(role.subtype())?;
        // Held while a queue is made: two endpoints do not make two.
        let mut ledger = self.ledger();
        let mut streams = ledger.streams.clone();
        streams.attach_dto(role.is_request(), flags)?;
        ledger.settle(|letter| self.posted.is_done(letter));
        let lent = |queue| before.iter().map(|stream| stream.lends(self, queue)).sum();
        let (queue, depth) = match ledger.find(role, lent) {
            Some(found) => found,
            None => (
                self.make_room(&mut ledger, role.depth(), lent)?,
                role.depth(),
            ),
        };
        let lent: u32 = (0..ledger.queues.len()).map(lent).sum();
        self.grow(&mut ledger, depth, lent)?;
        ledger.streams = streams;
        ledger.enter(role, queue, depth);
        self.switches.set_attribute(ledger.streams.attribute());
        Ok(DtoStream {
            evd,
            role,
            flags,
            queue,
            parked: None,
            cq: ledger.queues[queue].queue.clone(),
        })
    }
}

impl Drop for DtoStream {
    fn drop(&mut self) {
        let mut ledger = self.evd.ledger();
        if self.parked.is_none() {
            ledger.streams.detach_dto(self.role.is_request());
            let attribute = ledger.streams.attribute();
            self.evd.switches.set_attribute(attribute);
        }
        let depth = ledger.leave(self.role);
        let letter = self.evd.posted.send([Letter::Sweep]);
        if depth > 0 {
            ledger.queues[self.queue].leaving.push((letter, depth));
        }
        drop(ledger);
        self.evd.attend();
    }
}

impl core::fmt::Debug for DtoStream {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DtoStream")
            .field("evd", &self.evd.handle())
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

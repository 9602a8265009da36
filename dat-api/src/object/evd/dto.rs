//! Attaching the DTO streams of endpoints to an EVD. `capacity.rs` reserves room for their
//! completions.

use std::sync::Arc;

use dat_engine::CompletionQueueHandle;

use super::Evd;
use super::attachments::DtoRole;
use super::posted::Command;
use super::streams::{DtoConfig, StreamKind, check_flag};
use crate::error::Result;
use crate::object::usage::Use;

/// A DTO stream of an endpoint, attached to an EVD until this is dropped. The endpoint, or its
/// queue pair, must be dropped first.
pub(crate) struct DtoStream {
    evd: Use<Evd>,
    role: DtoRole,
    config: DtoConfig,
    queue: usize,
    cq: Option<CompletionQueueHandle>,
    /// Set while the stream is suspended ([`Self::suspend`]): whether its room may be lent.
    suspended: Option<bool>,
}

impl DtoStream {
    /// Returns the EVD.
    pub(crate) fn evd(&self) -> &Arc<Evd> {
        self.evd.arc()
    }

    /// Suspends the stream, because its endpoint is being recreated and has nothing outstanding.
    /// The stream that replaces it ([`Evd::attach_dto`]) need not have the same flags, and may use
    /// its room. [`Self::resume`] resumes the stream; otherwise it is dropped.
    pub(crate) fn suspend(&mut self) {
        if self.suspended.is_some() {
            return;
        }
        let mut attachments = self.evd.attachments();
        attachments.streams.detach_dto(self.config);
        let attribute = attachments.streams.attribute();
        self.evd.state.set_attribute(attribute);
        drop(attachments);
        // The room can be lent once the owner has discarded the leftover completions in it.
        self.suspended = Some(self.evd.drain_behind_owner(|| false));
    }

    /// Resumes a suspended stream.
    ///
    /// # Errors
    /// `INVALID_PARAMETER`: streams whose flags do not match were attached meanwhile.
    pub(crate) fn resume(&mut self) -> Result<()> {
        if self.suspended.is_none() {
            return Ok(());
        }
        let mut attachments = self.evd.attachments();
        let is_request = self.role.is_request();
        attachments.streams.attach_dto(is_request, self.config)?;
        self.suspended = None;
        let attribute = attachments.streams.attribute();
        self.evd.state.set_attribute(attribute);
        Ok(())
    }

    /// Returns how much room of a queue of this EVD the suspended stream lends.
    fn lends(&self, evd: &Arc<Evd>, queue: usize) -> u32 {
        let lends = self.suspended == Some(true)
            && self.queue == queue
            && Arc::ptr_eq(self.evd.arc(), evd)
            && self.role.srq().is_none();
        if lends { self.role.depth() } else { 0 }
    }

    /// Returns the completion queue that the endpoint reports to.
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
    /// Attaches the completions of an endpoint, and reserves room for all of them. When an endpoint
    /// is recreated, its previous streams `before` are suspended, and this stream may use their
    /// room. The caller of this function, and of the stream's drop, must hold no lock that the
    /// endpoints' upcalls take, because they may be called meanwhile.
    ///
    /// # Errors
    /// `INVALID_HANDLE` with the subtype of the role if the EVD was not created for completions or
    /// is being freed; `INVALID_PARAMETER` if the flags do not match those of its other streams;
    /// resources.
    pub(crate) fn attach_dto(
        self: &Arc<Self>,
        role: DtoRole,
        config: impl Into<DtoConfig>,
        before: &[&DtoStream],
    ) -> Result<DtoStream> {
        let config = config.into();
        check_flag(self, StreamKind::Dto, role.subtype())?;
        let evd = self.enter(role.subtype())?;
        // Locked while a queue is created, so that two endpoints do not create two.
        let mut attachments = self.attachments();
        let mut streams = attachments.streams.clone();
        streams.attach_dto(role.is_request(), config)?;
        attachments.release_detached(|command| self.posted.is_done(command));
        let lent = |queue| before.iter().map(|stream| stream.lends(self, queue)).sum();
        let (queue, depth) = match attachments.find(role, lent) {
            Some(found) => found,
            None => (
                self.make_room(&mut attachments, role.depth(), lent)?,
                role.depth(),
            ),
        };
        let lent: u32 = (0..attachments.queues.len()).map(lent).sum();
        self.grow(&mut attachments, depth, lent)?;
        attachments.streams = streams;
        attachments.enter(role, queue, depth);
        self.state.set_attribute(attachments.streams.attribute());
        Ok(DtoStream {
            evd,
            role,
            config,
            queue,
            suspended: None,
            cq: attachments.queues[queue].queue.clone(),
        })
    }
}

impl Drop for DtoStream {
    fn drop(&mut self) {
        let mut attachments = self.evd.attachments();
        if self.suspended.is_none() {
            attachments.streams.detach_dto(self.config);
            let attribute = attachments.streams.attribute();
            self.evd.state.set_attribute(attribute);
        }
        let depth = attachments.leave(self.role);
        let command = self.evd.posted.send([Command::Sweep]);
        if depth > 0 {
            attachments.queues[self.queue]
                .leaving
                .push((command, depth));
        }
        drop(attachments);
        self.evd.process_commands();
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

//! How many events an EVD holds, and how many completions its completion queues hold.
//!
//! - The *length* of an EVD is the length that the consumer requested, or the depths of all
//!   attached streams together if that is more. The *depth* of a stream is the most completions
//!   that it can have outstanding; endpoints of one SRQ count once, with the SRQ's depth.
//! - A completion queue reserves room for the depth of each of its streams, so it cannot overflow.
//!   The first stream creates the queue, with the requested length, and with at least
//!   [`FIRST_QUEUE`] entries unless the device can resize the queue later.
//! - If no queue has room for a stream, a queue is resized, or another one is created.
//! - The room of a stream that is detached is released when its last completions have left the
//!   queue: when the owner has processed the command sent at that time.
//! - `dat_evd_resize` changes only the length: how many events may be posted, and the room for
//!   staged events.
//!
//! Decision: `docs/decisions/023-one-cq-per-evd.md`

use core::sync::atomic::Ordering;
use std::sync::Arc;

use dat_engine::CompletionQueueHandle;

use super::Queue;
use super::pending::{OwnerCommand, room, with_room};
use super::state::Evd;
use super::streams::{Attachments, CqCapacity, DtoConfig, DtoRole, StreamKind};
use crate::error::{DatError, Result};
use crate::handle::Handle;
use crate::object::usage::Use;
use crate::status::{ReturnType, Subtype};

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
        let evd = self.used(role.subtype())?;
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
        attachments.insert(role, queue, depth);
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
        let command = self.evd.posted.send([OwnerCommand::Sweep]);
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

/// Checks that an EVD may carry a stream of this kind; `subtype` names the role in the error.
pub(super) fn check_flag(evd: &Evd, kind: StreamKind, subtype: Subtype) -> Result<()> {
    if evd.flags().contains(kind.flag()) {
        return Ok(());
    }
    Err(DatError::new(
        ReturnType::InvalidHandle,
        subtype,
        format!(
            "EVD {:#x} has the flags {:#x}, without that for {kind:?} events, {:#x}: create it with \
             that flag",
            evd.handle().bits(),
            evd.flags().bits(),
            kind.flag().bits()
        ),
    ))
}

/// A stream other than DTO, attached to an EVD until this is dropped.
#[derive(Debug)]
pub(crate) struct StreamGuard {
    evd: Use<Evd>,
    kind: StreamKind,
    /// It is attached, not suspended ([`Self::suspend`]).
    attached: bool,
}

impl StreamGuard {
    pub(crate) fn evd(&self) -> &Arc<Evd> {
        self.evd.arc()
    }

    /// Suspends the stream: other streams need not match it until [`Self::resume`] resumes it. The
    /// EVD is kept.
    pub(crate) fn suspend(&mut self) {
        if core::mem::take(&mut self.attached) {
            self.evd.attachments().streams.detach(self.kind);
        }
    }

    /// Resumes a suspended stream.
    ///
    /// # Errors
    /// `INVALID_PARAMETER`: streams that cannot share an EVD with it were attached meanwhile.
    pub(crate) fn resume(&mut self) -> Result<()> {
        if !self.attached {
            self.evd.attachments().streams.attach(self.kind)?;
            self.attached = true;
        }
        Ok(())
    }
}

impl Evd {
    /// Attaches a stream of connection requests, connection events or asynchronous events; the EVD
    /// cannot be freed while it is attached.
    ///
    /// # Errors
    /// `INVALID_HANDLE` with the subtype of the role if the EVD lacks the flag or is being freed;
    /// `INVALID_PARAMETER` if the DTO streams on it exclude other streams.
    pub(crate) fn attach(self: &Arc<Self>, kind: StreamKind) -> Result<StreamGuard> {
        check_flag(self, kind, kind.subtype())?;
        let evd = self.used(kind.subtype())?;
        self.attachments().streams.attach(kind)?;
        Ok(StreamGuard {
            evd,
            kind,
            attached: true,
        })
    }

    /// Keeps the EVD from being freed.
    pub(super) fn used(self: &Arc<Self>, subtype: Subtype) -> Result<Use<Self>> {
        Use::of(self).ok_or_else(|| {
            DatError::new(
                ReturnType::InvalidHandle,
                subtype,
                "the EVD is being freed: use another",
            )
        })
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.suspend();
    }
}

impl Evd {
    /// Makes room for a stream of `depth` that fits in no queue: resizes a queue, or creates
    /// another. Returns the index of the queue. `lent` is the room of each queue that the stream
    /// may use besides, because a suspended stream lends it.
    pub(super) fn make_room(
        self: &Arc<Self>,
        attachments: &mut Attachments,
        depth: u32,
        lent: impl Fn(usize) -> u32,
    ) -> Result<usize> {
        let mut queues = 0..attachments.queues.len();
        if let Some(index) = queues.find(|&index| {
            self.widen_queue(
                &mut attachments.queues[index],
                depth.saturating_sub(lent(index)),
            )
        }) {
            return Ok(index);
        }
        self.add_queue(attachments, depth)?;
        Ok(attachments.queues.len() - 1)
    }

    /// Resizes a completion queue so that it has room for `more` completions than are reserved now.
    /// Returns `false` if the device cannot.
    fn widen_queue(&self, cq: &mut CqCapacity, more: u32) -> bool {
        let least = cq.used.saturating_add(more);
        let most = self.context.max_queue_length();
        let Some(queue) = cq.queue.as_ref().filter(|_| least <= most) else {
            return false;
        };
        // Twice as long, so that attaching does not resize the queue for each endpoint.
        let wanted = least.max(cq.capacity.saturating_mul(2)).min(most);
        let resized = queue.resize(wanted).or_else(|_| queue.resize(least));
        cq.capacity = queue.capacity();
        if let Err(error) = &resized {
            tracing::debug!(
                "an EVD creates another completion queue, because its first cannot be resized: {error}"
            );
        }
        resized.is_ok()
    }

    /// Creates a completion queue with room for `depth`, and for as many completions as the EVD can
    /// have outstanding already, so that the number of queues stays small.
    fn add_queue(self: &Arc<Self>, attachments: &mut Attachments, depth: u32) -> Result<()> {
        let most = self.context.max_queue_length();
        if depth > most {
            return Err(DatError::new(
                ReturnType::InsufficientResources,
                Subtype::ResourceMemory,
                format!(
                    "the stream can have {depth} completions outstanding, a completion queue holds at most \
                     {most}: create the endpoint or SRQ with less"
                ),
            ));
        }
        let least = depth
            .max(attachments.asked)
            .max(attachments.depth())
            .min(most);
        let wanted = match attachments.queues.is_empty() {
            true => least.max(self.context.first_queue()).min(most),
            false => least,
        };
        let made = self.make_queue(attachments, wanted).or_else(|error| {
            if wanted == least {
                return Err(error);
            }
            // For example if little memory may be locked.
            tracing::warn!(
                "an EVD gets a completion queue of {least} entries instead of {wanted}: {error}"
            );
            self.make_queue(attachments, least)
        });
        let (queue, handle) = made?;
        attachments.queues.push(CqCapacity {
            queue: handle,
            capacity: queue.capacity(),
            used: 0,
            leaving: Vec::new(),
        });
        self.posted.send([OwnerCommand::Attach(queue)]);
        // A waiting thread has to arm this queue too.
        self.blocker.wake();
        self.wake_cno_poller();
        Ok(())
    }

    fn make_queue(
        &self,
        attachments: &mut Attachments,
        depth: u32,
    ) -> Result<(Queue, Option<CompletionQueueHandle>)> {
        #[cfg(test)]
        if let super::state::EvdContext::Test(ia) = &self.context {
            return Ok((ia.make_queue(depth), None));
        }
        let channel = match &attachments.channel {
            Some(channel) => channel.clone(),
            None => {
                let channel = self.context.create_channel()?;
                self.announce_channel(channel.fds())?;
                attachments.channel.insert(channel).clone()
            }
        };
        let cq = self.context.create_cq(depth, &channel, self.handle)?;
        let handle = cq.handle().clone();
        #[cfg_attr(
            not(test),
            expect(clippy::useless_conversion, reason = "unit tests have a fake queue")
        )]
        let queue = Queue::from(cq);
        Ok((queue, Some(handle)))
    }

    /// Reserves room for `more` receives of an SRQ that reports to this EVD. Returns `false`, and
    /// changes nothing, if the completion queue has no room: the SRQ's endpoints cannot move to
    /// another queue.
    pub(crate) fn widen_shared(&self, srq: Handle, more: u32) -> bool {
        let mut attachments = self.attachments();
        let attachments = &mut *attachments;
        let Some(at) = attachments
            .shared
            .iter()
            .position(|shared| shared.srq == srq)
        else {
            return true;
        };
        let cq = &mut attachments.queues[attachments.shared[at].queue];
        let has_room = cq.capacity.saturating_sub(cq.used) >= more;
        if !has_room && !self.widen_queue(cq, more) {
            return false;
        }
        if self.grow(attachments, more, 0).is_err() {
            return false;
        }
        attachments.queues[attachments.shared[at].queue].used += more;
        attachments.shared[at].depth += more;
        true
    }

    /// Reverses [`Self::widen_shared`].
    pub(crate) fn narrow_shared(&self, srq: Handle, less: u32) {
        let mut attachments = self.attachments();
        let attachments = &mut *attachments;
        if let Some(shared) = attachments
            .shared
            .iter_mut()
            .find(|shared| shared.srq == srq)
        {
            shared.depth -= less;
            attachments.queues[shared.queue].used -= less;
        }
    }

    /// Makes room for `more` outstanding completions, less the `lent` ones that a suspended stream
    /// has reserved.
    pub(super) fn grow(&self, attachments: &mut Attachments, more: u32, lent: u32) -> Result<()> {
        let depth = attachments
            .depth()
            .saturating_sub(lent)
            .saturating_add(more);
        self.set_length(attachments, self.queue_length().max(depth))
    }

    /// Sets how many posted and staged events the EVD holds. Changes nothing on an error.
    pub(super) fn set_length(&self, attachments: &mut Attachments, length: u32) -> Result<()> {
        let room = room(length, attachments.held(length));
        if room > attachments.room {
            let staged = with_room(room).ok_or_else(no_memory)?;
            if !self.posted.set_limit(length) {
                return Err(no_memory());
            }
            self.posted.send([OwnerCommand::Room(staged)]);
            attachments.room = room;
        } else if !self.posted.set_limit(length) {
            return Err(no_memory());
        }
        self.queue_length.store(length, Ordering::Release);
        Ok(())
    }

    /// Lowers the length of the EVD to `length`. Returns `false`, and changes nothing, if the EVD
    /// holds more events than that (`completions` and posted events), or if `length` is above the
    /// present length.
    pub(super) fn lower_length(&self, length: u32, completions: u32) -> bool {
        let is_lower = self.posted.lower_limit(length, completions);
        if is_lower {
            self.queue_length.store(length, Ordering::Release);
        }
        is_lower
    }
}

/// The error if there is no memory for the events.
pub(super) fn no_memory() -> DatError {
    DatError::new(
        ReturnType::InsufficientResources,
        Subtype::ResourceMemory,
        "not enough memory for this many events: create the EVD shorter",
    )
}

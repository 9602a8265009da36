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

use super::attachments::{Attachments, CqCapacity};
use super::create::no_memory;
use super::posted::{Command, with_room};
use super::{Evd, Queue};
use crate::error::{DatError, Result};
use crate::handle::Handle;
use crate::status::{ReturnType, Subtype};

/// The least entries of the first completion queue of an EVD on a device that cannot resize queues:
/// room for 16 endpoints with default attributes, each of which can have 128 receives, 127 requests
/// and the marker of a disconnect outstanding. With one queue, events come in the order of arrival.
///
/// libmlx5 rounds this up to a ring of 8192 entries, 512 KiB.
pub(super) const FIRST_QUEUE: u32 = 4096;

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
        self.posted.send([Command::Attach(queue)]);
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
        if let super::context::EvdContext::Test(ia) = &self.context {
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
        let room = super::staging::room(length, attachments.held(length));
        if room > attachments.room {
            let staged = with_room(room).ok_or_else(no_memory)?;
            if !self.posted.set_limit(length) {
                return Err(no_memory());
            }
            self.posted.send([Command::Room(staged)]);
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

//! The posting side of a queue pair; the posts themselves are in `post.rs`.

use core::fmt;
use std::sync::Arc;

use super::chain::Bounds;
use super::cq::Completions;
use super::device::{Device, QueueCalls};
use super::flush::End;
use super::receives::RecvShadow;
use super::record::{Receives, Record};
use super::sends::SendShadow;
use super::shared::SharedReceivesHandle;
use super::tag::{Name, Series, Side};
use super::watch::Watch;
use crate::control::{QpGrant, forks};
use mlx5_rings::Credits;

/// The parts of a queue pair.
pub struct QueuePairParts<D: Device> {
    /// The device's queue pair.
    pub queue: D::Queue,
    /// The granted depths and sizes.
    pub grant: QpGrant,
    /// The shared receive queue that its receives come from, if any.
    pub shared: Option<SharedReceivesHandle<D>>,
    /// The completion queue of its sends.
    pub send: Completions<D>,
    /// The completion queue of its receives.
    pub recv: Completions<D>,
    /// The context of its completions.
    pub context: u64,
}

/// The posting side of a queue pair.
pub struct QueuePair<D: Device> {
    pub(super) record: Arc<Record<D>>,
    pub(super) sends: Credits,
    pub(super) receives: Credits,
    /// The limits of receives in its own queue.
    pub(super) recv_bounds: Bounds,
    pub(super) send_bounds: Bounds,
    send_name: Name,
    recv_name: Name,
    /// The tags of its work requests, by the names.
    pub(super) send_tags: Series,
    pub(super) recv_tags: Series,
    /// Whether memory windows may be bound.
    pub(super) windows: bool,
    grant: QpGrant,
    shared: Option<SharedReceivesHandle<D>>,
    send: Completions<D>,
    recv: Completions<D>,
    pub(super) forks: u32,
}

impl<D: Device> fmt::Debug for QueuePair<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("qpn", &self.qpn())
            .finish_non_exhaustive()
    }
}

impl<D: Device> QueuePair<D> {
    /// Creates a queue pair in RESET, attached to its completion queues. `None` if
    /// these have too many already.
    pub fn new(parts: QueuePairParts<D>) -> Option<Self> {
        let QueuePairParts {
            queue,
            grant,
            shared,
            send,
            recv,
            context,
        } = parts;
        let record = record(queue, context, &grant, shared.as_ref());
        let send_name = send.attach(&record)?;
        let recv_name = if recv.is(&send) {
            send_name
        } else {
            let Some(name) = recv.attach(&record) else {
                send.detach(send_name, &record);
                return None;
            };
            name
        };
        Some(Self {
            sends: Credits::new(record.sends.capacity(), 0),
            receives: recv_credits(&record),
            recv_bounds: Bounds {
                segments: grant.recv_segments,
                read_segments: 0,
                inline_bytes: 0,
                atomics: false,
            },
            send_bounds: Bounds {
                segments: grant.send_segments,
                read_segments: grant.read_segments,
                inline_bytes: grant.inline_bytes,
                atomics: grant.atomics,
            },
            record,
            send_name,
            recv_name,
            send_tags: Series::new(Side::Send, send_name),
            recv_tags: Series::new(Side::Recv, recv_name),
            windows: grant.windows,
            grant,
            shared,
            send,
            recv,
            forks: forks(),
        })
    }

    /// Returns the queue pair's number.
    pub fn qpn(&self) -> u32 {
        self.record.qpn
    }

    /// Allows receives to be posted. The queue pair has reached INIT.
    pub fn open_receives(&mut self) {
        if let Receives::Own = self.record.receives {
            self.receives.open(self.record.own.slots.retired());
        }
    }

    /// Allows sends to be posted. The queue pair has reached RTS.
    pub fn open_sends(&mut self) {
        self.sends.open(self.record.sends.slots.retired());
    }

    /// Returns whether its receives come from a shared receive queue.
    pub fn has_shared_receives(&self) -> bool {
        self.shared.is_some()
    }

    /// Prepares for a move to RESET. The queue pair may hold shared receives that
    /// only completions name. In ERR they are flushed, and released here, before a
    /// library discards them.
    pub fn before_reset(&mut self) {
        if self.shared.is_some() && self.forks == forks() {
            self.record.queue.flush();
            self.recv.forget(self.recv_name, &self.record);
        }
    }

    /// Resets the shadows after the queue pair was moved to RESET. Everything
    /// posted is discarded, completions that were not polled are not reported, and
    /// nothing can be posted until the queues are opened again.
    pub fn reset(&mut self) {
        let queue = self.record.queue.clone();
        let next = record(
            queue,
            self.record.context,
            &self.grant,
            self.shared.as_ref(),
        );
        let one = self.recv.is(&self.send);
        self.send_name = self.send.renew(self.send_name, &self.record, &next);
        self.recv_name = match one {
            true => self.send_name,
            false => self.recv.renew(self.recv_name, &self.record, &next),
        };
        self.send_tags = Series::new(Side::Send, self.send_name);
        self.recv_tags = Series::new(Side::Recv, self.recv_name);
        self.sends = Credits::new(next.sends.capacity(), 0);
        self.receives = recv_credits(&next);
        self.record = next;
    }

    /// Limits the outstanding sends and receives until [`Self::reset`]. No more
    /// than that may be outstanding now.
    pub fn limit(&mut self, sends: u32, receives: u32) {
        let sends = self.record.sends.capacity().min(sends);
        self.sends.set_capacity(sends);
        let receives = self.record.own.capacity().min(receives);
        self.receives.set_capacity(receives);
    }

    /// Returns the most sends that may be outstanding.
    pub fn send_capacity(&self) -> u32 {
        self.sends.capacity()
    }

    /// Returns the most receives of its own queue that may be outstanding.
    pub fn recv_capacity(&self) -> u32 {
        self.receives.capacity()
    }

    /// Returns whether every posted send was retired by a completion.
    pub fn sends_idle(&self) -> bool {
        self.record.sends.slots.outstanding() == 0
    }

    /// Returns the number of receives in its own queue that were posted and not
    /// retired.
    pub fn recvs_outstanding(&self) -> u32 {
        self.watch().recvs_outstanding()
    }

    /// Returns where a queue reports its completions.
    fn end(&self, side: Side) -> End<D> {
        let (completions, name) = match side {
            Side::Send => (&self.send, self.send_name),
            _ => (&self.recv, self.recv_name),
        };
        End {
            completions: completions.clone(),
            name,
            side,
        }
    }

    /// Flushes the requests that were just posted to a failing queue pair.
    #[cold]
    #[inline(never)]
    pub(super) fn flush_late(&self, side: Side) {
        self.record.queue.flush();
        if self.record.quirks.any() {
            self.end(side).flush(&self.record);
        }
    }

    /// Returns the same state for other threads, until the next [`Self::reset`].
    pub fn watch(&self) -> Watch<D> {
        let ends = || [self.end(Side::Send), self.end(Side::Recv)];
        Watch {
            record: Arc::clone(&self.record),
            ends: self.record.quirks.any().then(ends),
        }
    }
}

impl<D: Device> Drop for QueuePair<D> {
    /// Detaches the queue pair. It must be in RESET, so that it completes nothing
    /// more; or in ERR and about to be destroyed, if it has its own receive queue.
    fn drop(&mut self) {
        self.send.detach(self.send_name, &self.record);
        if !self.recv.is(&self.send) {
            self.recv.detach(self.recv_name, &self.record);
        }
    }
}

/// Creates the record of a queue pair to which nothing is posted.
fn record<D: Device>(
    queue: D::Queue,
    context: u64,
    grant: &QpGrant,
    shared: Option<&SharedReceivesHandle<D>>,
) -> Arc<Record<D>> {
    let receives = match (shared, grant.receives) {
        (Some(shared), _) => Receives::Shared(Arc::clone(&shared.0)),
        (None, 0) => Receives::None,
        (None, _) => Receives::Own,
    };
    let own = match receives {
        Receives::Own => grant.receives,
        Receives::Shared(_) | Receives::None => 0,
    };
    Arc::new(Record::new(
        queue,
        context,
        SendShadow::new(grant.sends),
        receives,
        RecvShadow::new(own),
    ))
}

/// Returns closed credits. Without a receive queue of its own there is never room.
fn recv_credits<D: Device>(record: &Record<D>) -> Credits {
    Credits::new(record.own.capacity(), 0)
}

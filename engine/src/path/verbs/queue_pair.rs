//! The posting side of a queue pair; the posts themselves are in `post.rs`.

use std::sync::Arc;

use super::cq::{Completions, End};
use super::device::{Device, QueueCalls};
use super::record::{Record, Watch};
use super::shared::SharedReceivesHandle;
use super::table::Side;
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
    /// Where its send and its receive queue report.
    ends: [End<D>; 2],
    pub(super) grant: QpGrant,
    pub(super) forks: u32,
}

impl<D: Device> QueuePair<D> {
    /// Creates a queue pair in RESET, attached to its completion queues. `None` if
    /// these have too many already.
    pub fn new(parts: QueuePairParts<D>) -> Option<Self> {
        let QueuePairParts {
            grant, send, recv, ..
        } = parts;
        let shared = parts.shared.map(|shared| shared.0);
        let record = Record::new(parts.queue, parts.context, &grant, shared);
        let send_name = send.attach(&record)?;
        let recv_name = if recv.is(&send) {
            Some(send_name)
        } else {
            recv.attach(&record)
        };
        let Some(recv_name) = recv_name else {
            send.renew(send_name, &record, None);
            return None;
        };
        let end = |completions, name, side| End {
            completions,
            name,
            side,
        };
        Some(Self {
            sends: Credits::new(record.sends.capacity(), 0),
            receives: Credits::new(record.receives.capacity(), 0),
            ends: [
                end(send, send_name, Side::Send),
                end(recv, recv_name, Side::Recv),
            ],
            record,
            grant,
            forks: forks(),
        })
    }

    /// Allows receives to be posted. The queue pair has reached INIT.
    pub fn open_receives(&mut self) {
        if self.record.receives.capacity() > 0 {
            self.receives.open(self.record.receives.retired());
        }
    }

    /// Allows sends to be posted. The queue pair has reached RTS.
    pub fn open_sends(&mut self) {
        self.sends.open(self.record.sends.retired());
    }

    /// Returns whether its receives come from a shared receive queue.
    pub fn has_shared_receives(&self) -> bool {
        self.record.shared.is_some()
    }

    /// Prepares for a move to RESET. The queue pair may hold shared receives that
    /// only completions name. In ERR they are flushed, and released here, before a
    /// library discards them.
    pub fn before_reset(&mut self) {
        if self.has_shared_receives() && self.forks == forks() {
            self.record.queue.flush();
            let end = self.end(Side::Recv);
            end.completions.forget(end.name, &self.record);
        }
    }

    /// Resets the shadows after the queue pair was moved to RESET. Everything
    /// posted is discarded, completions that were not polled are not reported, and
    /// nothing can be posted until the queues are opened again.
    pub fn reset(&mut self) {
        let Record {
            queue,
            context,
            shared,
            ..
        } = &*self.record;
        let next = Record::new(queue.clone(), *context, &self.grant, shared.clone());
        self.renew(Some(&next));
        self.sends = Credits::new(next.sends.capacity(), 0);
        self.receives = Credits::new(next.receives.capacity(), 0);
        self.record = next;
    }

    /// Takes its completions out of its completion queues, and replaces its record there, or
    /// removes it.
    fn renew(&mut self, next: Option<&Arc<Record<D>>>) {
        let [send, recv] = &mut self.ends;
        send.name = send.completions.renew(send.name, &self.record, next);
        recv.name = match recv.completions.is(&send.completions) {
            true => send.name,
            false => recv.completions.renew(recv.name, &self.record, next),
        };
    }

    /// Limits the outstanding sends and receives until [`Self::reset`]. No more
    /// than that may be outstanding now.
    pub fn limit(&mut self, sends: u32, receives: u32) {
        let sends = self.record.sends.capacity().min(sends);
        self.sends.set_capacity(sends);
        let receives = self.record.receives.capacity().min(receives);
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
        self.record.sends.outstanding() == 0
    }

    /// Returns the number of receives in its own queue that were posted and not
    /// retired.
    pub fn recvs_outstanding(&self) -> u32 {
        self.record.receives.outstanding()
    }

    pub(super) fn credits(&mut self, side: Side) -> &mut Credits {
        match side {
            Side::Send => &mut self.sends,
            Side::Recv | Side::Shared => &mut self.receives,
        }
    }

    /// Returns where a queue reports its completions.
    pub(super) fn end(&self, side: Side) -> &End<D> {
        &self.ends[usize::from(side != Side::Send)]
    }

    /// Flushes the requests that were just posted to a failing queue pair.
    #[cold]
    pub(super) fn flush_late(&self, side: Side) {
        self.record.queue.flush();
        if self.record.quirks.any() {
            self.end(side).flush(&self.record);
        }
    }

    /// Returns the same state for other threads, until the next [`Self::reset`].
    pub fn watch(&self) -> Watch<D> {
        Watch {
            record: Arc::clone(&self.record),
            ends: self.record.quirks.any().then(|| self.ends.clone()),
        }
    }
}

impl<D: Device> Drop for QueuePair<D> {
    /// Detaches the queue pair. It must be in RESET, so that it completes nothing
    /// more; or in ERR and about to be destroyed, if it has its own receive queue.
    fn drop(&mut self) {
        self.renew(None);
    }
}

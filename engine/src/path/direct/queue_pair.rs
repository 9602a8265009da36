//! The posting side of a queue pair.

use core::sync::atomic::{Ordering, fence};
use std::sync::Arc;

use super::record::{Receives, Record};
use super::{CqCommandQueue, Owner, SharedReceivesHandle, Watch};
use mlx5_rings::layout::{LayoutError, RecvLayout, SendLayout};
use mlx5_rings::receive::{RecvConsumer, RecvProducer};
use mlx5_rings::send::{DoorbellPolicy, SendConsumer, SendProducer};

/// The parts of a queue pair.
#[derive(Clone)]
pub struct QueuePairParts {
    /// Its send queue.
    pub send: SendLayout,
    /// How its send queue writes doorbells.
    pub doorbell: DoorbellPolicy,
    /// Its own receive queue, if it has one.
    pub recv: Option<RecvLayout>,
    /// The shared receive queue that its receives come from, if any.
    pub shared: Option<SharedReceivesHandle>,
    /// The command queue of the completion queue of its sends.
    pub send_commands: Arc<CqCommandQueue>,
    /// The command queue of the completion queue of its receives.
    pub recv_commands: Arc<CqCommandQueue>,
    /// The context of its completions.
    pub context: u64,
    /// The owner of the rings' memory and of the QP number.
    pub owner: Owner,
}

// SAFETY: the layouts are addresses of DMA memory, which any thread may use.
unsafe impl Send for QueuePairParts {}

/// The posting side of a queue pair.
pub struct QueuePair {
    /// The ring of sends. The memory of a request is left alone until it completes, or until the
    /// queue pair was reset or dropped and its completion queue was polled after that.
    pub(crate) sends: SendProducer,
    /// The ring of receives, likewise. Never opened if the queue pair has no receive queue of its
    /// own: it takes none then.
    pub(crate) receives: RecvProducer,
    record: Arc<Record>,
    parts: QueuePairParts,
}

impl core::fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("QueuePair")
            .field("qpn", &self.qpn())
            .finish_non_exhaustive()
    }
}

impl QueuePair {
    /// Creates a queue pair in RESET, attached to its completion queues.
    ///
    /// # Errors
    /// A layout is inconsistent.
    ///
    /// # Safety
    /// The memory of the layouts is valid as long as `parts.owner` lives, and
    /// nothing else posts to the queues or polls their completions. The QP number
    /// is not reused while `parts.owner` lives.
    pub unsafe fn new(parts: QueuePairParts) -> Result<Self, LayoutError> {
        // SAFETY: the layout's memory is valid as long as the owner lives.
        let (sends, receives, record) = unsafe { rings(&parts) }?;
        let queue_pair = Self {
            sends,
            receives,
            record,
            parts,
        };
        queue_pair.attach();
        Ok(queue_pair)
    }

    fn attach(&self) {
        if let Some(shared) = &self.parts.shared {
            shared.0.add_poller(&self.parts.recv_commands);
        }
        self.parts.send_commands.attach(&self.record);
        if !self.has_one_cq() {
            self.parts.recv_commands.attach(&self.record);
        }
    }

    fn detach(&self) {
        self.record.retire();
        self.parts.send_commands.detach(&self.record);
        if !self.has_one_cq() {
            self.parts.recv_commands.detach(&self.record);
        }
        // Orders the stores to the record and to its places before any later store to the
        // rings: see `was_live_until_now`.
        fence(Ordering::SeqCst);
    }

    fn has_one_cq(&self) -> bool {
        Arc::ptr_eq(&self.parts.send_commands, &self.parts.recv_commands)
    }

    fn has_own_receives(&self) -> bool {
        matches!(self.record.receives, Receives::Own(_))
    }

    #[cfg(test)]
    pub(super) fn retire_without_command(&self) {
        self.record.retire();
    }

    /// Returns the queue pair's number.
    pub fn qpn(&self) -> u32 {
        self.parts.send.qpn
    }

    /// Allows receives to be posted. The queue pair has reached INIT.
    pub fn open_receives(&mut self) {
        if self.has_own_receives() {
            self.receives.open();
        }
    }

    /// Allows sends to be posted. The queue pair has reached RTS.
    pub fn open_sends(&mut self) {
        self.sends.open();
    }

    /// Resets the rings after the queue pair was moved to RESET. Everything posted
    /// is discarded, completions that were not polled are not reported, and nothing
    /// can be posted until the queues are opened again.
    pub fn reset(&mut self) {
        // SAFETY: the promises made to `new` hold for the same parts.
        let Ok((sends, receives, record)) = (unsafe { rings(&self.parts) }) else {
            unreachable!("`new` has accepted the same layouts");
        };
        self.detach();
        self.sends = sends;
        self.receives = receives;
        self.record = record;
        self.attach();
    }

    /// Limits the outstanding sends and receives until [`Self::reset`], but not
    /// below the number that is outstanding.
    pub fn limit(&mut self, sends: u32, receives: u32) {
        self.sends.limit(sends);
        if self.has_own_receives() {
            self.receives.limit(receives);
        }
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
        self.sends.is_idle()
    }

    /// Returns the number of receives in its own queue that were posted and not
    /// retired.
    pub fn recvs_outstanding(&self) -> u32 {
        if self.has_own_receives() {
            self.receives.outstanding()
        } else {
            0
        }
    }

    /// Returns the same state for other threads, until the next [`Self::reset`].
    pub fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.record))
    }
}

impl Drop for QueuePair {
    /// Detaches the queue pair. It must be in RESET, so that the device writes no
    /// more CQEs.
    fn drop(&mut self) {
        self.detach();
    }
}

/// Creates new rings over the same memory, and a record for them.
///
/// # Safety
/// As for [`QueuePair::new`].
unsafe fn rings(
    parts: &QueuePairParts,
) -> Result<(SendProducer, RecvProducer, Arc<Record>), LayoutError> {
    // SAFETY: the layout's memory is valid as long as the owner lives; the record keeps the owner.
    let sends = unsafe { SendConsumer::new(&parts.send) }?;
    let receives = match (&parts.shared, &parts.recv) {
        (Some(shared), _) => Receives::Shared(Arc::clone(&shared.0)),
        // SAFETY: as above.
        (None, Some(layout)) => Receives::Own(unsafe { RecvConsumer::new(layout) }?),
        (None, None) => Receives::None,
    };
    let owner = Arc::clone(&parts.owner);
    let record = Arc::new(Record::new(
        parts.send.qpn,
        parts.context,
        receives,
        sends,
        owner,
    ));
    // SAFETY: the consumer is in the record, which does not move and is not dropped
    // before the queue pair that will hold both.
    let sends = unsafe { SendProducer::new(&parts.send, parts.doorbell, &record.sends) };
    let receives = match (&record.receives, &parts.recv) {
        // SAFETY: as above.
        (Receives::Own(own), Some(layout)) => unsafe { RecvProducer::new(layout, own) },
        // SAFETY: `has_own_receives` is checked before the producer is opened and
        // before its outstanding receives are counted; a post publishes only what
        // it has written, which is nothing.
        _ => unsafe { RecvProducer::none() },
    };
    Ok((sends, receives, record))
}

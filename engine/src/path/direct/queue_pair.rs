//! A queue pair, for the one who posts to it.

use std::sync::Arc;

use super::record::{Receives, Record};
use super::{Mailbox, Owner, SharedReceivesHandle, Watch};
use crate::request::{ListError, PostError, RecvRequest, SendFlags, SendRequest};
use mlx5_rings::PostReceives;
use mlx5_rings::layout::{LayoutError, RecvLayout, SendLayout};
use mlx5_rings::receive::{RecvConsumer, RecvProducer};
use mlx5_rings::send::{DoorbellPolicy, SendConsumer, SendProducer};
use mlx5_rings::wire::WindowChange;

/// What a queue pair is made of.
#[derive(Clone)]
pub struct QueuePairParts {
    /// Its send queue.
    pub send: SendLayout,
    /// How it may ring.
    pub doorbell: DoorbellPolicy,
    /// Its own receive queue, if it has one.
    pub recv: Option<RecvLayout>,
    /// The shared receive queue, if it takes from one.
    pub shared: Option<SharedReceivesHandle>,
    /// The completion queue of its sends.
    pub send_mailbox: Arc<Mailbox>,
    /// The completion queue of its receives.
    pub recv_mailbox: Arc<Mailbox>,
    /// What its completions carry as theirs.
    pub context: u64,
    /// What the memory and the number belong to.
    pub owner: Owner,
}

// SAFETY: the layouts are addresses of DMA memory, bound to no thread.
unsafe impl Send for QueuePairParts {}

/// The posting side of a queue pair.
pub struct QueuePair {
    sends: SendProducer,
    /// Closed for ever if it has no queue of its own.
    receives: RecvProducer,
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
    /// A queue pair in RESET, attached to its completion queues.
    ///
    /// # Errors
    /// If a layout contradicts itself.
    ///
    /// # Safety
    /// The memory of the layouts is valid as long as `parts.owner` lives, and
    /// nobody else posts to the queues or polls their completions. The queue
    /// pair's number does not come back while `parts.owner` lives.
    pub unsafe fn new(parts: QueuePairParts) -> Result<Self, LayoutError> {
        // SAFETY: passed on to the caller.
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
            shared.0.add_poller(&self.parts.recv_mailbox);
        }
        self.parts.send_mailbox.attach(&self.record);
        if !self.has_one_mailbox() {
            self.parts.recv_mailbox.attach(&self.record);
        }
    }

    fn detach(&self) {
        self.record.retire();
        self.parts.send_mailbox.detach(&self.record);
        if !self.has_one_mailbox() {
            self.parts.recv_mailbox.detach(&self.record);
        }
    }

    fn has_one_mailbox(&self) -> bool {
        Arc::ptr_eq(&self.parts.send_mailbox, &self.parts.recv_mailbox)
    }

    fn has_own_receives(&self) -> bool {
        matches!(self.record.receives, Receives::Own(_))
    }

    #[cfg(test)]
    pub(super) fn retire_without_letter(&self) {
        self.record.retire();
    }

    /// The queue pair's number.
    pub fn qpn(&self) -> u32 {
        self.parts.send.qpn
    }

    /// The queue pair has reached INIT: receives may be posted.
    pub fn open_receives(&mut self) {
        if self.has_own_receives() {
            self.receives.open();
        }
    }

    /// The queue pair has reached RTS: sends may be posted.
    pub fn open_sends(&mut self) {
        self.sends.open();
    }

    /// The queue pair is in RESET again: everything posted is forgotten, its
    /// completions that were not polled will not be seen, and nothing may be
    /// posted until it is opened again.
    pub fn reset(&mut self) {
        // SAFETY: the promises given to `new` hold for the same parts.
        let Ok((sends, receives, record)) = (unsafe { rings(&self.parts) }) else {
            unreachable!("the same layouts were good before");
        };
        self.detach();
        self.sends = sends;
        self.receives = receives;
        self.record = record;
        self.attach();
    }

    /// Takes no more than so many at a time, or as many as are outstanding, until
    /// [`Self::reset`].
    pub fn limit(&mut self, sends: u32, receives: u32) {
        self.sends.limit(sends);
        if self.has_own_receives() {
            self.receives.limit(receives);
        }
    }

    /// The most sends that may be outstanding.
    pub fn send_capacity(&self) -> u32 {
        self.sends.capacity()
    }

    /// The most receives of its own queue that may be outstanding.
    pub fn recv_capacity(&self) -> u32 {
        self.receives.capacity()
    }

    /// Whether every send that was posted has been retired by a completion.
    pub fn sends_idle(&self) -> bool {
        self.sends.is_idle()
    }

    /// Receives of its own queue that were posted and not retired.
    pub fn recvs_outstanding(&self) -> u32 {
        if self.has_own_receives() {
            self.receives.outstanding()
        } else {
            0
        }
    }

    /// The same for other threads, until the next [`Self::reset`].
    pub fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.record))
    }

    /// Posts one receive.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then. `NotReady` also if the receives
    /// of this queue pair come from a shared queue.
    ///
    /// # Safety
    /// The memory of the segments is writable and left alone until the receive
    /// completes, or until the queue pair is reset or gone and its completion
    /// queue has been polled after that.
    #[inline]
    pub unsafe fn post_recv(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        // SAFETY: passed on to the caller.
        unsafe { self.receives.post(request) }
    }

    /// [`Self::post_recv`] as far as it goes without a call out of line. Returns
    /// whether the receive is posted.
    ///
    /// # Safety
    /// As for [`Self::post_recv`].
    #[inline(always)]
    pub unsafe fn try_post_recv(&mut self, request: &RecvRequest<'_>) -> bool {
        // SAFETY: passed on to the caller.
        unsafe { self.receives.try_post(request) }
    }

    /// [`Self::post_send_noted`] as far as it goes without a call out of line.
    /// Returns whether the request is posted.
    ///
    /// # Safety
    /// As for [`Self::post_send_noted`].
    #[inline(always)]
    pub unsafe fn try_post_send(&mut self, request: &SendRequest<'_>, note: u32) -> bool {
        // SAFETY: passed on to the caller.
        unsafe { self.sends.try_post(request, note) }
    }

    /// Posts several receives with one doorbell.
    ///
    /// # Errors
    /// [`ListError`]; the receives before the bad one are posted.
    ///
    /// # Safety
    /// As for [`Self::post_recv`], for every request.
    #[inline]
    pub unsafe fn post_recv_list(&mut self, requests: &[RecvRequest<'_>]) -> Result<(), ListError> {
        // SAFETY: passed on to the caller.
        unsafe { self.receives.post_list(requests) }
    }

    /// Posts one request.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// Inline: the memory of the segments is readable now. Otherwise it is left
    /// alone (for a read: writable and unused) until the request completes, or
    /// until the queue pair is reset or gone and its completion queue has been
    /// polled after that.
    #[cfg(test)]
    #[inline]
    pub unsafe fn post_send(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        // SAFETY: passed on to the caller.
        unsafe { self.sends.post(request) }
    }

    /// [`Self::post_send`] of a request whose completion carries `note`.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn post_send_noted(
        &mut self,
        request: &SendRequest<'_>,
        note: u32,
    ) -> Result<(), PostError> {
        // SAFETY: passed on to the caller.
        unsafe { self.sends.post_noted(request, note) }
    }

    /// Posts the change of a window.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// As for [`SendProducer::post_change`].
    pub unsafe fn post_change(
        &mut self,
        cookie: u64,
        change: &WindowChange,
        flags: SendFlags,
        note: u32,
    ) -> Result<(), PostError> {
        // SAFETY: passed on to the caller.
        unsafe { self.sends.post_change(cookie, change, flags, note) }
    }

    /// Posts several requests with one doorbell.
    ///
    /// # Errors
    /// [`ListError`]; the requests before the bad one are posted.
    ///
    /// # Safety
    /// As for [`Self::post_send`], for every request.
    #[inline]
    pub unsafe fn post_send_list(&mut self, requests: &[SendRequest<'_>]) -> Result<(), ListError> {
        // SAFETY: passed on to the caller.
        unsafe { self.sends.post_list(requests) }
    }
}

impl Drop for QueuePair {
    /// The queue pair must be in RESET, so that the device writes no more.
    fn drop(&mut self) {
        self.detach();
    }
}

/// Fresh rings over the same memory, and a record for them.
///
/// # Safety
/// As for [`QueuePair::new`].
unsafe fn rings(
    parts: &QueuePairParts,
) -> Result<(SendProducer, RecvProducer, Arc<Record>), LayoutError> {
    // SAFETY: passed on to the caller; the record keeps the owner.
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
    // SAFETY: the consumer is in the record, which neither moves nor goes
    // before the queue pair that will hold both.
    let sends = unsafe { SendProducer::new(&parts.send, parts.doorbell, &record.sends) };
    let receives = match (&record.receives, &parts.recv) {
        // SAFETY: as above.
        (Receives::Own(own), Some(layout)) => unsafe { RecvProducer::new(layout, own) },
        // SAFETY: `has_own_receives` comes before opening it and before asking what is
        // outstanding; posts publish only what they have written, which is nothing.
        _ => unsafe { RecvProducer::none() },
    };
    Ok((sends, receives, record))
}

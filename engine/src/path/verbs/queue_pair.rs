//! A queue pair, for the one who posts to it.

use core::fmt;
use std::sync::Arc;

use dv_sys::verbs::{ibv_recv_wr, ibv_send_wr};

use super::chain::{Bounds, CHUNK, link, op_of, recv_work, send_work};
use super::cq::Completions;
use super::device::{Device, QueueCalls, Refused};
use super::receives::RecvShadow;
use super::record::{Receives, Record};
use super::sends::{SendShadow, Sent};
use super::shared::SharedReceivesHandle;
use super::slots::Slots;
use super::tag::{Name, Side, Tag};
use super::watch::Watch;
use crate::control::{QpGrant, forks};
use crate::request::{ListError, PostError, RecvRequest, SendRequest};
use crate::ring::Credits;

/// What a queue pair is made of.
pub struct QueuePairParts<D: Device> {
    /// The device's.
    pub queue: D::Queue,
    /// What it has room for.
    pub grant: QpGrant,
    /// The shared receive queue, if it takes from one.
    pub shared: Option<SharedReceivesHandle<D>>,
    /// The completion queue of its sends.
    pub send: Completions<D>,
    /// The completion queue of its receives.
    pub recv: Completions<D>,
    /// What its completions carry as theirs.
    pub context: u64,
}

/// The posting side of a queue pair.
pub struct QueuePair<D: Device> {
    record: Arc<Record<D>>,
    sends: Credits,
    receives: Credits,
    /// Of its own receives.
    recv_bounds: Bounds,
    send_bounds: Bounds,
    send_name: Name,
    recv_name: Name,
    grant: QpGrant,
    shared: Option<SharedReceivesHandle<D>>,
    send: Completions<D>,
    recv: Completions<D>,
    forks: u32,
}

impl<D: Device> fmt::Debug for QueuePair<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("qpn", &self.qpn())
            .finish_non_exhaustive()
    }
}

impl<D: Device> QueuePair<D> {
    /// A queue pair in RESET, attached to its completion queues. `None` if
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
                inline_bytes: 0,
            },
            send_bounds: Bounds {
                segments: grant.send_segments,
                inline_bytes: grant.inline_bytes,
            },
            record,
            send_name,
            recv_name,
            grant,
            shared,
            send,
            recv,
            forks: forks(),
        })
    }

    /// The queue pair's number.
    pub fn qpn(&self) -> u32 {
        self.record.qpn
    }

    /// The queue pair has reached INIT: receives may be posted.
    pub fn open_receives(&mut self) {
        if let Receives::Own(shadow) = &self.record.receives {
            self.receives.open(shadow.slots.retired());
        }
    }

    /// The queue pair has reached RTS: sends may be posted.
    pub fn open_sends(&mut self) {
        self.sends.open(self.record.sends.slots.retired());
    }

    /// Whether its receives come from a shared queue.
    pub fn has_shared_receives(&self) -> bool {
        self.shared.is_some()
    }

    /// The queue pair will be put to RESET. It may hold shared receives that
    /// only completions name; in ERR they are flushed, and given back here,
    /// before a library throws them away.
    pub fn before_reset(&mut self) {
        if self.shared.is_some() && self.forks == forks() {
            self.record.queue.flush();
            self.recv.forget(self.recv_name, &self.record);
        }
    }

    /// The queue pair is in RESET again: everything posted is forgotten, its
    /// completions that were not polled will not be seen, and nothing may be
    /// posted until it is opened again.
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
        self.sends = Credits::new(next.sends.capacity(), 0);
        self.receives = recv_credits(&next);
        self.record = next;
    }

    /// Takes no more than so many at a time, until [`Self::reset`]. No more
    /// must be outstanding.
    pub fn limit(&mut self, sends: u32, receives: u32) {
        let sends = self.record.sends.capacity().min(sends);
        self.sends.set_capacity(sends);
        if let Receives::Own(shadow) = &self.record.receives {
            self.receives.set_capacity(shadow.capacity().min(receives));
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
        self.record.sends.slots.outstanding() == 0
    }

    /// Receives of its own queue that were posted and not retired.
    pub fn recvs_outstanding(&self) -> u32 {
        self.watch().recvs_outstanding()
    }

    /// The same for other threads, until the next [`Self::reset`].
    pub fn watch(&self) -> Watch<D> {
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
    /// completes, or until the queue pair is reset or gone.
    #[inline(never)]
    pub unsafe fn post_recv(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        // SAFETY: passed on to the caller.
        unsafe { self.post_recvs::<1>(core::slice::from_ref(request)) }
            .map_err(|refused| refused.error)
    }

    /// Posts several receives.
    ///
    /// # Errors
    /// [`ListError`]; the receives before the bad one are posted.
    ///
    /// # Safety
    /// As for [`Self::post_recv`], for every request.
    #[inline(never)]
    pub unsafe fn post_recv_list(&mut self, requests: &[RecvRequest<'_>]) -> Result<(), ListError> {
        in_chunks(requests, |chunk| {
            // SAFETY: passed on to the caller.
            unsafe { self.post_recvs::<CHUNK>(chunk) }
        })
    }

    /// Posts one request.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// Inline: the memory of the segments is readable now. Otherwise it is left
    /// alone (for a read: writable and unused) until the request completes, or
    /// until the queue pair is reset or gone.
    pub unsafe fn post_send(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        // SAFETY: passed on to the caller.
        unsafe { self.post_send_noted(request, 0) }
    }

    /// [`Self::post_send`] of a request whose completion carries `note`.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    #[inline(never)]
    pub unsafe fn post_send_noted(
        &mut self,
        request: &SendRequest<'_>,
        note: u32,
    ) -> Result<(), PostError> {
        // SAFETY: passed on to the caller.
        unsafe { self.post_sends::<1>(core::slice::from_ref(request), note) }
            .map_err(|refused| refused.error)
    }

    /// Posts several requests.
    ///
    /// # Errors
    /// [`ListError`]; the requests before the bad one are posted.
    ///
    /// # Safety
    /// As for [`Self::post_send`], for every request.
    #[inline(never)]
    pub unsafe fn post_send_list(&mut self, requests: &[SendRequest<'_>]) -> Result<(), ListError> {
        in_chunks(requests, |chunk| {
            // SAFETY: passed on to the caller.
            unsafe { self.post_sends::<CHUNK>(chunk, 0) }
        })
    }

    /// Posts up to `N` requests.
    #[inline]
    unsafe fn post_sends<const N: usize>(
        &mut self,
        requests: &[SendRequest<'_>],
        note: u32,
    ) -> Result<(), Refused> {
        // SAFETY: integers, pointers and unions of them, for which zero is valid.
        let mut chain: [ibv_send_wr; N] = unsafe { core::mem::zeroed() };
        let before = self.sends;
        let mut filled = 0;
        let mut end = Ok(());
        for (request, work) in requests.iter().zip(&mut chain) {
            match self.note_send(request, note) {
                Ok(tag) => *work = send_work(request, tag),
                Err(error) => {
                    end = Err(Refused {
                        taken: filled,
                        error,
                    });
                    break;
                }
            }
            filled += 1;
        }
        if filled == 0 {
            return end;
        }
        let chain = link(&mut chain[..filled]);
        let slots = &self.record.sends.slots;
        slots.set_posted(self.sends.posted());
        // SAFETY: the memory of the segments is the caller's promise.
        let answer = unsafe { self.record.queue.post_send(chain) };
        withdraw(&mut self.sends, before, slots, answer).and(end)
    }

    /// Posts up to `N` receives.
    #[inline]
    unsafe fn post_recvs<const N: usize>(
        &mut self,
        requests: &[RecvRequest<'_>],
    ) -> Result<(), Refused> {
        let Receives::Own(shadow) = &self.record.receives else {
            return Err(Refused {
                taken: 0,
                error: PostError::NotReady,
            });
        };
        let mut chain: [ibv_recv_wr; N] = core::array::from_fn(|_| recv_work(&[], 0));
        let before = self.receives;
        let mut filled = 0;
        let mut end = Ok(());
        for (request, work) in requests.iter().zip(&mut chain) {
            let room = admit(&mut self.receives, &shadow.slots, self.forks);
            if let Err(error) = room.and_then(|()| self.recv_bounds.check_recv(request.segments)) {
                end = Err(Refused {
                    taken: filled,
                    error,
                });
                break;
            }
            let tag = Tag {
                side: Side::Recv,
                name: self.recv_name,
                slot: self.receives.posted(),
            };
            shadow.note(tag.slot, request.cookie);
            self.receives.take(1);
            *work = recv_work(request.segments, tag.to_bits());
            filled += 1;
        }
        if filled == 0 {
            return end;
        }
        let chain = link(&mut chain[..filled]);
        shadow.slots.set_posted(self.receives.posted());
        // SAFETY: the memory of the segments is the caller's promise.
        let answer = unsafe { self.record.queue.post_recv(chain) };
        let answer = withdraw(&mut self.receives, before, &shadow.slots, answer);
        self.record.flush_late();
        answer.and(end)
    }

    /// Admits a request to the send queue. Answers its tag.
    #[inline]
    fn note_send(&mut self, request: &SendRequest<'_>, note: u32) -> Result<u64, PostError> {
        let shadow = &self.record.sends;
        admit(&mut self.sends, &shadow.slots, self.forks)?;
        let length = self.send_bounds.check_send(request)?;
        let slot = self.sends.posted();
        shadow.note(
            slot,
            Sent {
                cookie: request.cookie,
                note,
                op: op_of(request.op),
                length,
            },
        );
        self.sends.take(1);
        let tag = Tag {
            side: Side::Send,
            name: self.send_name,
            slot,
        };
        Ok(tag.to_bits())
    }
}

impl<D: Device> Drop for QueuePair<D> {
    /// The queue pair must be in RESET, so that it completes nothing more; or in
    /// ERR and about to be destroyed, if its receives are its own.
    fn drop(&mut self) {
        self.send.detach(self.send_name, &self.record);
        if !self.recv.is(&self.send) {
            self.recv.detach(self.recv_name, &self.record);
        }
    }
}

/// Whether there is room for one more request.
#[inline]
fn admit(credits: &mut Credits, slots: &Slots, made_at: u32) -> Result<(), PostError> {
    if made_at != forks() {
        return Err(PostError::NotReady);
    }
    if !credits.exhausted() {
        return Ok(());
    }
    if !credits.is_open() {
        return Err(PostError::NotReady);
    }
    match credits.refresh(slots.retired()) {
        true => Ok(()),
        false => Err(PostError::QueueFull),
    }
}

/// Takes back what the device has not taken of what is counted since `before`.
#[inline]
fn withdraw(
    credits: &mut Credits,
    before: Credits,
    slots: &Slots,
    answer: Result<(), Refused>,
) -> Result<(), Refused> {
    let Err(Refused { taken, mut error }) = answer else {
        return Ok(());
    };
    *credits = before;
    credits.take(taken as u32);
    slots.set_posted(credits.posted());
    if slots.outstanding() == 0 {
        // So libmlx5 says that it takes no sends in ERR unless it took some before.
        error = PostError::NotReady;
    }
    Err(Refused { taken, error })
}

/// Posts a list chunk by chunk.
#[inline]
fn in_chunks<T>(
    requests: &[T],
    mut post: impl FnMut(&[T]) -> Result<(), Refused>,
) -> Result<(), ListError> {
    let mut posted = 0;
    for chunk in requests.chunks(CHUNK) {
        if let Err(Refused { taken, error }) = post(chunk) {
            let posted = posted + taken;
            return Err(ListError { posted, error });
        }
        posted += chunk.len();
    }
    Ok(())
}

/// A record of a queue pair on which nothing is posted.
fn record<D: Device>(
    queue: D::Queue,
    context: u64,
    grant: &QpGrant,
    shared: Option<&SharedReceivesHandle<D>>,
) -> Arc<Record<D>> {
    let receives = match (shared, grant.receives) {
        (Some(shared), _) => Receives::Shared(Arc::clone(&shared.0)),
        (None, 0) => Receives::None,
        (None, capacity) => Receives::Own(RecvShadow::new(capacity)),
    };
    let sends = SendShadow::new(grant.sends);
    Arc::new(Record::new(queue, context, sends, receives))
}

/// Closed. Without a queue of its own there is never room.
fn recv_credits<D: Device>(record: &Record<D>) -> Credits {
    match &record.receives {
        Receives::Own(shadow) => Credits::new(shadow.capacity(), 0),
        Receives::Shared(_) | Receives::None => Credits::new(0, 0),
    }
}

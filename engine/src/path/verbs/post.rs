//! Posting to a queue pair: a request is checked, recorded in the shadow of its
//! queue, counted, and passed to libibverbs. What libibverbs refuses is removed
//! from the shadow.

use core::slice;

use dv_sys::verbs::{ibv_recv_wr, ibv_send_wr};

use super::chain::{CHUNK, link, op_of, recv_work, send_work};
use super::device::{Device, QueueCalls, Refused};
use super::queue_pair::QueuePair;
use super::quirks::ROOM;
use super::sends::Sent;
use super::slots::Slots;
use super::tag::Side;
use crate::control::forks;
use crate::request::{ListError, PostError, RecvRequest, SendFlags, SendOp, SendRequest};
use mlx5_rings::Credits;

impl<D: Device> QueuePair<D> {
    /// Posts one receive.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then. `NotReady` also if the queue pair
    /// takes its receives from a shared receive queue.
    ///
    /// # Safety
    /// The memory of the segments is writable, and not used otherwise until the
    /// receive completes, or until the queue pair is reset or dropped.
    #[inline(never)]
    pub unsafe fn post_recv(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        // SAFETY: required of the caller.
        unsafe {
            self.check_recv_request(request)?;
            self.post_checked_recv(request)
        }
    }

    /// Posts several receives.
    ///
    /// # Errors
    /// [`ListError`]; the receives before the invalid one are posted.
    ///
    /// # Safety
    /// As for [`Self::post_recv`], for every request.
    #[inline(never)]
    pub unsafe fn post_recv_list(&mut self, requests: &[RecvRequest<'_>]) -> Result<(), ListError> {
        in_chunks(requests, |chunk| {
            // SAFETY: required of the caller.
            unsafe { self.post_recvs(chunk) }
        })
    }

    /// Posts one request.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// With inline data, the memory of the segments is readable during the call.
    /// Otherwise it is not written (for a read: writable and not used) until the
    /// request completes, or until the queue pair is reset or dropped.
    #[cfg(test)]
    pub unsafe fn post_send(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        // SAFETY: required of the caller.
        unsafe { self.post_send_with_data(request, 0) }
    }

    /// Posts one request, whose completion carries `wr_data`.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// As for [`Self::post_send_list`] with one request.
    #[inline(never)]
    pub unsafe fn post_send_with_data(
        &mut self,
        request: &SendRequest<'_>,
        wr_data: u32,
    ) -> Result<(), PostError> {
        // SAFETY: required of the caller.
        unsafe {
            let length = self.check_send_request(request)?;
            self.post_checked_send(request, wr_data, length)
        }
    }

    /// Posts several requests.
    ///
    /// # Errors
    /// [`ListError`]; the requests before the invalid one are posted.
    ///
    /// # Safety
    /// The memory of the segments of every request is readable during the call if
    /// it is inline. Otherwise it is not written (for a read: writable and not
    /// used) until the request completes, or until the queue pair is reset or
    /// dropped.
    #[inline(never)]
    pub unsafe fn post_send_list(&mut self, requests: &[SendRequest<'_>]) -> Result<(), ListError> {
        in_chunks(requests, |chunk| {
            // SAFETY: required of the caller.
            unsafe { self.post_sends(chunk, |_| 0) }
        })
    }

    /// Posts a receive that was checked, and for which there is room.
    #[inline(always)]
    unsafe fn post_checked_recv(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        // Loaded once: the stores below do not change it, which LLVM cannot know.
        let record = &*self.record;
        let slot = self.receives.posted();
        let end = self.receives.take(1);
        record.own.record(slot, request.wr_id);
        record.own.slots.set_posted(end);
        if record.quirks.any() && record.is_failing() {
            self.flush_late(Side::Recv);
            return Ok(());
        }
        let segments = record.quirks.receive(request.segments);
        let mut work = recv_work(segments, self.recv_tags.tag(slot));
        // SAFETY: the caller promises the memory of the segments.
        if let Err(refused) = unsafe { record.queue.post_recv(link(slice::from_mut(&mut work))) } {
            return Err(withdraw(&mut self.receives, 1, &record.own.slots, refused).error);
        }
        if record.is_failing() {
            self.flush_late(Side::Recv);
        }
        Ok(())
    }

    /// Posts a request that was checked, and for which there is room.
    #[inline(always)]
    unsafe fn post_checked_send(
        &mut self,
        request: &SendRequest<'_>,
        wr_data: u32,
        length: u32,
    ) -> Result<(), PostError> {
        let record = &*self.record;
        let slot = self.sends.posted();
        let end = self.sends.take(1);
        record.sends.record(slot, sent_as(request, wr_data, length));
        record.sends.slots.set_posted(end);
        let mut work = send_work(request, self.send_tags.tag(slot));
        let mut room = ROOM;
        record.quirks.send(&mut work, request.segments, &mut room);
        if record.quirks.any() && record.is_failing() {
            self.flush_late(Side::Send);
            return Ok(());
        }
        // SAFETY: the caller promises the memory of the segments.
        if let Err(refused) = unsafe { record.queue.post_send(link(slice::from_mut(&mut work))) } {
            return Err(withdraw(&mut self.sends, 1, &record.sends.slots, refused).error);
        }
        if record.quirks.any() && record.is_failing() {
            self.flush_late(Side::Send);
        }
        Ok(())
    }

    /// Posts up to [`CHUNK`] requests. `wr_data` returns that of a request of this length.
    pub(super) unsafe fn post_sends(
        &mut self,
        requests: &[SendRequest<'_>],
        wr_data: fn(u32) -> u32,
    ) -> Result<(), Refused> {
        // SAFETY: integers, pointers and unions of them, for which zero is valid.
        let mut chain: [ibv_send_wr; CHUNK] = unsafe { core::mem::zeroed() };
        let quirks = self.record.quirks;
        let (filled, end) = fill(requests, &mut chain, |request| {
            let tag = self.record_send(request, wr_data)?;
            Ok(send_work(request, tag))
        });
        if filled == 0 {
            return end;
        }
        let mut rooms = [ROOM; CHUNK];
        let works = requests.iter().zip(&mut chain[..filled]);
        for ((request, work), room) in works.zip(&mut rooms) {
            quirks.send(work, request.segments, room);
        }
        let chain = link(&mut chain[..filled]);
        let slots = &self.record.sends.slots;
        let posted = self.sends.posted();
        slots.set_posted(posted);
        if quirks.any() && self.record.is_failing() {
            self.flush_late(Side::Send);
            return end;
        }
        // SAFETY: the caller promises the memory of the segments.
        let answer = unsafe { self.record.queue.post_send(chain) }
            .map_err(|refused| withdraw(&mut self.sends, filled, slots, refused));
        if quirks.any() && self.record.is_failing() {
            self.flush_late(Side::Send);
        }
        answer.and(end)
    }

    /// Posts up to [`CHUNK`] receives.
    pub(super) unsafe fn post_recvs(
        &mut self,
        requests: &[RecvRequest<'_>],
    ) -> Result<(), Refused> {
        let mut chain: [ibv_recv_wr; CHUNK] = core::array::from_fn(|_| recv_work(&[], 0));
        let quirks = self.record.quirks;
        let (filled, end) = fill(requests, &mut chain, |request| {
            let tag = self.record_recv(request)?;
            Ok(recv_work(quirks.receive(request.segments), tag))
        });
        if filled == 0 {
            return end;
        }
        let chain = link(&mut chain[..filled]);
        let slots = &self.record.own.slots;
        let posted = self.receives.posted();
        slots.set_posted(posted);
        if quirks.any() && self.record.is_failing() {
            self.flush_late(Side::Recv);
            return end;
        }
        // SAFETY: the caller promises the memory of the segments.
        let answer = unsafe { self.record.queue.post_recv(chain) }
            .map_err(|refused| withdraw(&mut self.receives, filled, slots, refused));
        if self.record.is_failing() {
            self.flush_late(Side::Recv);
        }
        answer.and(end)
    }

    /// Checks that a request may be posted. Returns its length in bytes.
    #[inline]
    fn check_send_request(&mut self, request: &SendRequest<'_>) -> Result<u32, PostError> {
        check_room(&mut self.sends, &self.record.sends.slots, self.forks)?;
        self.send_bounds.check_send(request)
    }

    /// Checks that a receive may be posted. There is never room without a receive
    /// queue of its own.
    #[inline]
    fn check_recv_request(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        check_room(&mut self.receives, &self.record.own.slots, self.forks)?;
        self.recv_bounds.check_recv(request.segments)
    }

    /// Records and counts a request that was checked. Returns its tag.
    fn record_send(
        &mut self,
        request: &SendRequest<'_>,
        wr_data: fn(u32) -> u32,
    ) -> Result<u64, PostError> {
        let length = self.check_send_request(request)?;
        let slot = self.sends.posted();
        let sent = sent_as(request, wr_data(length), length);
        self.record.sends.record(slot, sent);
        self.sends.take(1);
        Ok(self.send_tags.tag(slot))
    }

    /// Records and counts a receive that was checked. Returns its tag.
    fn record_recv(&mut self, request: &RecvRequest<'_>) -> Result<u64, PostError> {
        self.check_recv_request(request)?;
        let slot = self.receives.posted();
        self.record.own.record(slot, request.wr_id);
        self.receives.take(1);
        Ok(self.recv_tags.tag(slot))
    }
}

/// Checks that one more request may be posted.
#[inline]
pub(super) fn check_room(
    credits: &mut Credits,
    slots: &Slots,
    made_at: u32,
) -> Result<(), PostError> {
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

/// Returns what the completion of a request must report.
#[inline(always)]
fn sent_as(request: &SendRequest<'_>, wr_data: u32, length: u32) -> Sent {
    Sent {
        wr_id: request.wr_id,
        wr_data,
        op: op_of(request.op),
        length,
        signalled: request.flags.contains(SendFlags::SIGNALED) || request.op == SendOp::Nop,
    }
}

/// Makes work requests of the first requests, until one is refused. Returns how
/// many were made, and the error of the next.
fn fill<R, W>(
    requests: &[R],
    chain: &mut [W],
    mut make: impl FnMut(&R) -> Result<W, PostError>,
) -> (usize, Result<(), Refused>) {
    let mut filled = 0;
    for (request, work) in requests.iter().zip(chain) {
        match make(request) {
            Ok(made) => *work = made,
            Err(error) => {
                let taken = filled;
                return (filled, Err(Refused { taken, error }));
            }
        }
        filled += 1;
    }
    (filled, Ok(()))
}

/// Removes those of the last `recorded` requests from the shadow that the device has
/// not taken.
#[cold]
#[inline(never)]
pub(super) fn withdraw(
    credits: &mut Credits,
    recorded: usize,
    slots: &Slots,
    refused: Refused,
) -> Refused {
    let Refused { taken, mut error } = refused;
    credits.give_back(recorded.saturating_sub(taken) as u32);
    slots.set_posted(credits.posted());
    if slots.outstanding() == 0 {
        // libmlx5 returns this error for sends in ERR, unless it has taken some
        // before.
        error = PostError::NotReady;
    }
    Refused { taken, error }
}

/// Posts a list in chunks of [`CHUNK`].
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

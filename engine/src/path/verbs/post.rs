//! Posting to a queue pair: a request is checked, recorded in the shadow of its
//! queue, counted, and passed to libibverbs. What libibverbs refuses is removed
//! from the shadow.

use core::slice;

use dv_sys::verbs::{ibv_recv_wr, ibv_send_wr};

use super::chain::{
    CHUNK, NO_SEND, check_recv, check_send, link_recvs, link_sends, recv_work, send_work,
};
use super::device::{Device, QueueCalls, Refused};
use super::queue_pair::QueuePair;
use super::quirks::{ROOM, Room};
use super::shadow::Request;
use super::shared::SharedReceives;
use super::table::{Side, Tag};
use crate::control::forks;
use crate::request::{ListError, Message, PostError, RecvRequest, SendFlags, SendOp, SendRequest};

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
        // SAFETY: the segments' memory stays until the requests complete.
        unsafe { self.post_recv_inlined(request) }
    }

    /// Posts as [`Self::post_recv`] does, compiled into the caller.
    ///
    /// # Errors
    /// As for [`Self::post_recv`].
    ///
    /// # Safety
    /// As for [`Self::post_recv`].
    #[inline(always)]
    pub unsafe fn post_recv_inlined(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        let mut work = [recv_work(&[], 0)];
        self.fill_recv(&mut work[0], request)?;
        // SAFETY: the segments' memory stays until the requests complete.
        unsafe { self.pass_on_recvs(&mut work) }.map_err(|refused| refused.error)
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
            // SAFETY: the segments' memory stays until the requests complete.
            unsafe { self.post_recvs(chunk, |it| *it) }
        })
    }

    /// Posts receives of a list; `message` returns a message of it, and `None` ends the list.
    /// Returns how many are posted.
    ///
    /// # Safety
    /// As for [`Self::post_recv`], for every message.
    #[inline(never)]
    pub unsafe fn try_post_recv_messages<T>(
        &mut self,
        list: &[T],
        message: impl Fn(&T) -> Option<Message>,
    ) -> usize {
        post_messages(list, message, |chunk| {
            // SAFETY: the segments' memory stays until the requests complete.
            unsafe { self.post_recvs(chunk, receive) }
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
        // SAFETY: the segments' memory stays until the requests complete.
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
        // SAFETY: the segments' memory stays until the requests complete.
        unsafe { self.post_send_inlined(request, wr_data) }
    }

    /// Posts as [`Self::post_send_with_data`] does, compiled into the caller.
    ///
    /// # Errors
    /// As for [`Self::post_send_list`] with one request.
    ///
    /// # Safety
    /// As for [`Self::post_send_list`] with one request.
    #[inline(always)]
    pub unsafe fn post_send_inlined(
        &mut self,
        request: &SendRequest<'_>,
        wr_data: u32,
    ) -> Result<(), PostError> {
        let (mut work, mut room) = ([NO_SEND], ROOM);
        self.fill_send(&mut work[0], request, |_| wr_data, &mut room)?;
        // SAFETY: the segments' memory stays until the requests complete.
        unsafe { self.pass_on_sends(&mut work) }.map_err(|refused| refused.error)
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
            // SAFETY: the segments' memory stays until the requests complete.
            unsafe { self.post_sends(chunk, |it| *it, |_| 0) }
        })
    }

    /// Posts signalled sends of a list, those of up to `inline` bytes inline. The `wr_data` of
    /// each is its length. Otherwise as [`Self::try_post_recv_messages`].
    ///
    /// # Safety
    /// As for [`Self::post_send_list`], for every message.
    #[inline(never)]
    pub unsafe fn try_post_send_messages<T>(
        &mut self,
        list: &[T],
        message: impl Fn(&T) -> Option<Message>,
        inline: u32,
    ) -> usize {
        post_messages(list, message, |chunk| {
            let view = |message| send(message, inline);
            // SAFETY: the segments' memory stays until the requests complete.
            unsafe { self.post_sends(chunk, view, |length| length) }
        })
    }

    /// Posts up to [`CHUNK`] requests, of which `view` returns one. `wr_data` returns that of a
    /// request of this length.
    unsafe fn post_sends<'a, R>(
        &mut self,
        requests: &'a [R],
        view: impl Fn(&'a R) -> SendRequest<'a>,
        wr_data: impl Fn(u32) -> u32,
    ) -> Result<(), Refused> {
        let (mut chain, mut rooms) = ([NO_SEND; CHUNK], [ROOM; CHUNK]);
        let places = chain.iter_mut().zip(&mut rooms);
        let (filled, end) = fill(requests, places, |request, (work, room)| {
            self.fill_send(work, &view(request), &wr_data, room)
        });
        // SAFETY: the caller promises the memory of the segments.
        unsafe { self.pass_on_sends(&mut chain[..filled]) }.and(end)
    }

    /// Posts up to [`CHUNK`] receives, of which `view` returns one.
    unsafe fn post_recvs<'a, R>(
        &mut self,
        requests: &'a [R],
        view: impl Fn(&'a R) -> RecvRequest<'a>,
    ) -> Result<(), Refused> {
        let mut chain: [ibv_recv_wr; CHUNK] = core::array::from_fn(|_| recv_work(&[], 0));
        let (filled, end) = fill(requests, &mut chain, |request, work| {
            self.fill_recv(work, &view(request))
        });
        // SAFETY: the caller promises the memory of the segments.
        unsafe { self.pass_on_recvs(&mut chain[..filled]) }.and(end)
    }

    /// Checks, records and counts a request. Fills in its work request, which may point into `room`
    /// then.
    #[inline(always)]
    fn fill_send(
        &mut self,
        work: &mut ibv_send_wr,
        request: &SendRequest<'_>,
        wr_data: impl Fn(u32) -> u32,
        room: &mut Room,
    ) -> Result<(), PostError> {
        self.check_room(Side::Send)?;
        let length = check_send(request, &self.grant)?;
        let recorded = Request {
            wr_id: request.wr_id,
            wr_data: wr_data(length),
            op: request.op.into(),
            length,
            signalled: request.flags.contains(SendFlags::SIGNALED) || request.op == SendOp::Nop,
        };
        *work = send_work(request, self.record(Side::Send, recorded));
        self.record.quirks.send(work, request.segments, room);
        Ok(())
    }

    /// Checks, records and counts a receive. Fills in its work request.
    #[inline(always)]
    fn fill_recv(
        &mut self,
        work: &mut ibv_recv_wr,
        request: &RecvRequest<'_>,
    ) -> Result<(), PostError> {
        self.check_room(Side::Recv)?;
        check_recv(request.segments, self.grant.recv_segments)?;
        let tag = self.record(Side::Recv, Request::receive(request.wr_id));
        *work = recv_work(self.record.quirks.receive(request.segments), tag);
        Ok(())
    }

    /// Passes recorded requests to libibverbs.
    #[inline(always)]
    unsafe fn pass_on_sends(&mut self, works: &mut [ibv_send_wr]) -> Result<(), Refused> {
        let chain = link_sends(works);
        // SAFETY: the caller promises the memory of the segments.
        self.pass_on(Side::Send, chain.count, |queue| unsafe {
            queue.post_send(chain)
        })
    }

    /// Passes recorded receives to libibverbs.
    #[inline(always)]
    unsafe fn pass_on_recvs(&mut self, works: &mut [ibv_recv_wr]) -> Result<(), Refused> {
        let chain = link_recvs(works);
        // SAFETY: the caller promises the memory of the segments.
        self.pass_on(Side::Recv, chain.count, |queue| unsafe {
            queue.post_recv(chain)
        })
    }

    /// Checks that one more request may be posted. There is never room without a receive queue
    /// of its own.
    #[inline(always)]
    pub(super) fn check_room(&mut self, side: Side) -> Result<(), PostError> {
        let credits = match side {
            Side::Send => &mut self.sends,
            Side::Recv | Side::Shared => &mut self.receives,
        };
        if self.forks != forks() {
            return Err(PostError::NotReady);
        }
        match !credits.exhausted() || credits.refresh(self.record.shadow(side).retired()) {
            true => Ok(()),
            false if credits.is_open() => Err(PostError::QueueFull),
            false => Err(PostError::NotReady),
        }
    }

    /// Records and counts a request that was checked. Returns its tag.
    #[inline(always)]
    pub(super) fn record(&mut self, side: Side, request: Request) -> u64 {
        let slot = self.credits(side).posted();
        self.record.shadow(side).record(slot, request);
        self.credits(side).take(1);
        let name = self.end(side).name;
        Tag { side, name, slot }.to_bits()
    }

    /// Passes the last `recorded` requests to libibverbs by `post`, and removes those that it
    /// refuses from the shadow.
    #[inline(always)]
    pub(super) fn pass_on(
        &mut self,
        side: Side,
        recorded: usize,
        post: impl FnOnce(&D::Queue) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        if recorded == 0 {
            return Ok(());
        }
        let posted = self.credits(side).posted();
        self.record.shadow(side).set_posted(posted);
        let has_quirks = self.record.quirks.any();
        if has_quirks && self.record.is_failing() {
            self.flush_late(side);
            return Ok(());
        }
        let answer = post(&self.record.queue);
        let answer = answer.map_err(|refused| self.withdraw(side, recorded, refused));
        if (has_quirks || side == Side::Recv) && self.record.is_failing() {
            self.flush_late(side);
        }
        answer
    }

    /// Removes those of the last `recorded` requests from the shadow that the device has
    /// not taken.
    #[cold]
    fn withdraw(&mut self, side: Side, recorded: usize, refused: Refused) -> Refused {
        let Refused { taken, mut error } = refused;
        let credits = self.credits(side);
        credits.give_back(recorded.saturating_sub(taken) as u32);
        let posted = credits.posted();
        let shadow = self.record.shadow(side);
        shadow.set_posted(posted);
        if shadow.outstanding() == 0 {
            // libmlx5 returns this error for sends in ERR, unless it has taken some
            // before.
            error = PostError::NotReady;
        }
        Refused { taken, error }
    }
}

impl<D: Device> SharedReceives<D> {
    /// As [`QueuePair::try_post_recv_messages`].
    ///
    /// # Safety
    /// As for [`Self::post`], for every message.
    #[inline(never)]
    pub unsafe fn try_post_messages<T>(
        &mut self,
        list: &[T],
        message: impl Fn(&T) -> Option<Message>,
    ) -> usize {
        post_messages(list, message, |chunk| {
            // SAFETY: the segments' memory stays until the requests complete.
            unsafe { self.post_chunk::<CHUNK, _>(chunk, receive) }
        })
    }
}

fn receive(message: &Message) -> RecvRequest<'_> {
    RecvRequest {
        wr_id: message.wr_id,
        segments: slice::from_ref(&message.segment),
    }
}

fn send(message: &Message, inline: u32) -> SendRequest<'_> {
    SendRequest {
        wr_id: message.wr_id,
        op: SendOp::Send,
        flags: match message.segment.length <= inline {
            true => SendFlags::SIGNALED | SendFlags::INLINE,
            false => SendFlags::SIGNALED,
        },
        segments: slice::from_ref(&message.segment),
    }
}

/// Calls `make` for the first requests and their places, until one is refused. Returns how many
/// were made, and the error of the next.
#[inline(always)]
pub(super) fn fill<'a, R, P>(
    requests: &'a [R],
    places: impl IntoIterator<Item = P>,
    mut make: impl FnMut(&'a R, P) -> Result<(), PostError>,
) -> (usize, Result<(), Refused>) {
    for (taken, (request, place)) in requests.iter().zip(places).enumerate() {
        if let Err(error) = make(request, place) {
            return (taken, Err(Refused { taken, error }));
        }
    }
    (requests.len(), Ok(()))
}

/// Posts a list in chunks of [`CHUNK`].
pub(super) fn in_chunks<T>(
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

/// Posts messages of a list as [`in_chunks`] does, until `message` returns `None` or one is
/// refused. Returns how many are posted.
fn post_messages<T>(
    list: &[T],
    message: impl Fn(&T) -> Option<Message>,
    mut post: impl FnMut(&[Message]) -> Result<(), Refused>,
) -> usize {
    let mut posted = 0;
    for chunk in list.chunks(CHUNK) {
        let mut made = [Message::default(); CHUNK];
        let messages = chunk.iter().map_while(&message);
        let count = made
            .iter_mut()
            .zip(messages)
            .map(|(place, it)| *place = it)
            .count();
        let taken = post(&made[..count]).map_or_else(|refused| refused.taken, |()| count);
        posted += taken;
        if taken < chunk.len() {
            break;
        }
    }
    posted
}

//! Posting to a queue pair: a request is checked, recorded in the shadow of its
//! queue, counted, and passed to libibverbs. What libibverbs refuses is removed
//! from the shadow.

use core::slice;

use dv_sys::verbs::{ibv_recv_wr, ibv_send_wr};

use super::chain::{
    CHUNK, check_recv, check_send, link_recvs, link_sends, op_of, recv_work, send_work,
};
use super::device::{Device, QueueCalls, Refused};
use super::queue_pair::QueuePair;
use super::quirks::ROOM;
use super::shadow::Request;
use super::shared::SharedReceives;
use super::table::Side;
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
        // SAFETY: required of the caller.
        let posted = unsafe { self.post_recvs::<1, _>(slice::from_ref(request), |it| *it) };
        posted.map_err(|refused| refused.error)
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
            unsafe { self.post_recvs::<CHUNK, _>(chunk, |it| *it) }
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
            // SAFETY: required of the caller.
            unsafe { self.post_recvs::<CHUNK, _>(chunk, receive) }
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
        let requests = slice::from_ref(request);
        // SAFETY: required of the caller.
        unsafe { self.post_sends::<1, _>(requests, |it| *it, |_| wr_data) }
            .map_err(|refused| refused.error)
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
            unsafe { self.post_sends::<CHUNK, _>(chunk, |it| *it, |_| 0) }
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
            // SAFETY: required of the caller.
            unsafe { self.post_sends::<CHUNK, _>(chunk, view, |length| length) }
        })
    }

    /// Posts up to `N` requests, of which `view` returns one. `wr_data` returns that of a
    /// request of this length.
    unsafe fn post_sends<'a, const N: usize, R>(
        &mut self,
        requests: &'a [R],
        view: impl Fn(&'a R) -> SendRequest<'a>,
        wr_data: impl Fn(u32) -> u32,
    ) -> Result<(), Refused> {
        // SAFETY: integers, pointers and unions of them, for which zero is valid.
        let mut chain: [ibv_send_wr; N] = unsafe { core::mem::zeroed() };
        let mut rooms = [ROOM; N];
        let places = chain.iter_mut().zip(&mut rooms);
        let (filled, end) = fill(requests, places, |request, (work, room)| {
            let request = view(request);
            self.check_room(Side::Send)?;
            let length = check_send(&request, &self.grant)?;
            let recorded = Request {
                wr_id: request.wr_id,
                wr_data: wr_data(length),
                op: op_of(request.op),
                length,
                signalled: request.flags.contains(SendFlags::SIGNALED) || request.op == SendOp::Nop,
            };
            *work = send_work(&request, self.record(Side::Send, recorded));
            self.record.quirks.send(work, request.segments, room);
            Ok(())
        });
        let chain = link_sends(&mut chain[..filled]);
        // SAFETY: the caller promises the memory of the segments.
        self.pass_on(Side::Send, filled, |queue| unsafe {
            queue.post_send(chain)
        })
        .and(end)
    }

    /// Posts up to `N` receives, of which `view` returns one.
    unsafe fn post_recvs<'a, const N: usize, R>(
        &mut self,
        requests: &'a [R],
        view: impl Fn(&'a R) -> RecvRequest<'a>,
    ) -> Result<(), Refused> {
        let mut chain: [ibv_recv_wr; N] = core::array::from_fn(|_| recv_work(&[], 0));
        let (filled, end) = fill(requests, &mut chain, |request, work| {
            let request = view(request);
            self.check_room(Side::Recv)?;
            check_recv(request.segments, self.grant.recv_segments)?;
            let tag = self.record(Side::Recv, Request::receive(request.wr_id));
            *work = recv_work(self.record.quirks.receive(request.segments), tag);
            Ok(())
        });
        let chain = link_recvs(&mut chain[..filled]);
        // SAFETY: the caller promises the memory of the segments.
        self.pass_on(Side::Recv, filled, |queue| unsafe {
            queue.post_recv(chain)
        })
        .and(end)
    }

    /// Checks that one more request may be posted. There is never room without a receive queue
    /// of its own.
    pub(super) fn check_room(&mut self, side: Side) -> Result<(), PostError> {
        let credits = match side {
            Side::Send => &mut self.sends,
            Side::Recv | Side::Shared => &mut self.receives,
        };
        if self.forks != forks() || !credits.is_open() {
            return Err(PostError::NotReady);
        }
        let has_room = !credits.exhausted() || credits.refresh(self.record.shadow(side).retired());
        has_room.then_some(()).ok_or(PostError::QueueFull)
    }

    /// Records and counts a request that was checked. Returns its tag.
    pub(super) fn record(&mut self, side: Side, request: Request) -> u64 {
        let slot = self.credits(side).posted();
        self.record.shadow(side).record(slot, request);
        self.credits(side).take(1);
        self.end(side).tag(slot)
    }

    /// Passes the last `recorded` requests to libibverbs by `post`, and removes those that it
    /// refuses from the shadow.
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
            // SAFETY: required of the caller.
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

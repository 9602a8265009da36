//! Posting: from DAT's segments to the engine's requests.
//!
//! Most posts have one segment and no flags, and nothing wrong: those take a
//! short way of their own. All others, and those that it turns out not to be so
//! simple with, take the long one, which checks everything and says what is wrong.
//!
//! # Completion flags
//! | flag | on the ring |
//! | --- | --- |
//! | none | signalled |
//! | SUPPRESS | not signalled; every so often signalled after all, so that the ring does not fill, and that completion makes no event |
//! | UNSIGNALLED | signalled; a note says that the event wakes nobody |
//! | BARRIER_FENCE | fence |
//! | SOLICITED_WAIT | solicited |

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;
use std::sync::MutexGuard;

use dat_engine::{Endpoint, PostError, RecvRequest, Segment, SendFlags, SendOp, SendRequest};

use super::control::Control;
use super::gate::Entered;
use super::{Ep, MAX_SEGMENTS};
use crate::object::lmr::{self, Recent};
use crate::state::{Call, wrong_state};
use crate::status::{DatReturn, ReturnType, Subtype};
use crate::types::{CompletionFlags, EpState, LmrSegment, MemPrivileges, RmrSegment};

/// In a note: posted UNSIGNALLED.
pub(super) const QUIET: u32 = 1 << 31;
/// A note: the completion of a suppressed request, which makes no event.
pub(super) const SWALLOW: u32 = u32::MAX;
/// The bytes in a note. No message is as long as the bit says.
pub(super) const LENGTH: u32 = QUIET - 1;

/// Longest segment that the device takes.
pub(crate) const LONGEST: u64 = (1 << 31) - 1;

/// Where a completed request is posted: flags of the post that mean nothing
/// there.
const ON_SEND: CompletionFlags = CompletionFlags::SUPPRESS
    .union(CompletionFlags::SOLICITED_WAIT)
    .union(CompletionFlags::UNSIGNALLED)
    .union(CompletionFlags::BARRIER_FENCE);
const ON_RDMA: CompletionFlags = ON_SEND.difference(CompletionFlags::SOLICITED_WAIT);

/// States in which requests are taken.
const POSTABLE: crate::state::States = Call::PostRequest.legal();

/// The posting half of an endpoint.
#[derive(Default)]
pub(super) struct Poster {
    /// None while there is no protection zone.
    pub(super) qp: Option<Endpoint>,
    /// Whose memory may be named.
    pub(super) zone: u32,
    pub(super) max_recv_iov: u32,
    pub(super) max_request_iov: u32,
    pub(super) max_read_iov: u32,
    pub(super) max_write_iov: u32,
    pub(super) max_message: u64,
    pub(super) max_rdma: u64,
    /// Bytes that may be copied into a request.
    pub(super) inline: u64,
    /// What a request, and a receive, may be posted with.
    pub(super) send_flags: CompletionFlags,
    pub(super) rdma_flags: CompletionFlags,
    pub(super) recv_flags: CompletionFlags,
    /// Requests posted since the last signalled one.
    pub(super) unsignalled: u32,
    /// How many may be.
    pub(super) most_unsignalled: u32,
    /// Receives come from an SRQ.
    pub(super) shared: bool,
    /// Bytes of the longest usual post, one segment without flags: 0 where
    /// posts must be looked at more closely.
    usual: Usual,
    recent: RecentlyUsed,
}

/// The LMRs that were used last, by what was done with them.
#[derive(Clone, Copy, Default)]
struct RecentlyUsed {
    read: Recent,
    write: Recent,
}

#[derive(Clone, Copy, Default)]
struct Usual {
    recv: u64,
    send: u64,
    read: u64,
    write: u64,
}

impl Poster {
    /// What the attributes allow.
    pub(super) fn configure(&mut self, attributes: &crate::types::EpAttributes) {
        // The zone may be another.
        self.recent = RecentlyUsed::default();
        let unsigned = |count: i32| u32::try_from(count).unwrap_or(0);
        self.max_recv_iov = unsigned(attributes.max_recv_iov);
        self.max_request_iov = unsigned(attributes.max_request_iov);
        self.max_read_iov = unsigned(attributes.max_rdma_read_iov);
        self.max_write_iov = unsigned(attributes.max_rdma_write_iov);
        // No message is as long as what a note can tell.
        self.max_message = attributes.max_message_size.min(LENGTH.into());
        self.max_rdma = attributes.max_rdma_size.min(LENGTH.into());
        // UNSIGNALLED is for those who are configured so.
        let quiet = |attribute: CompletionFlags| attribute & CompletionFlags::UNSIGNALLED;
        let requests = quiet(attributes.request_completion_flags);
        self.send_flags = (ON_SEND - CompletionFlags::UNSIGNALLED) | requests;
        self.rdma_flags = (ON_RDMA - CompletionFlags::UNSIGNALLED) | requests;
        self.recv_flags = quiet(attributes.recv_completion_flags);
        let usual = |segments: u32, bytes: u64| if segments > 0 { bytes } else { 0 };
        self.usual = Usual {
            recv: if self.shared || !self.recv_flags.is_empty() {
                0
            } else {
                usual(self.max_recv_iov, LONGEST)
            },
            send: usual(self.max_request_iov, self.max_message),
            read: usual(self.max_read_iov, self.max_rdma),
            write: usual(self.max_write_iov, self.max_rdma),
        };
        // A quarter of the queue comes back at a time.
        self.most_unsignalled = (unsigned(attributes.max_request_dtos) / 4).min(32);
        self.unsignalled = 0;
    }
}

/// The poster, for one call at a time.
pub(super) struct PosterCell(UnsafeCell<Poster>);

// SAFETY: the poster is reached by `Ep::hold` under the control's lock and
// the gate, and by posts inside the gate; who posts to an endpoint without one
// has promised that no other call on it runs meanwhile.
unsafe impl Sync for PosterCell {}

impl PosterCell {
    pub(super) fn new(poster: Poster) -> Self {
        Self(UnsafeCell::new(poster))
    }
}

/// The endpoint, for a call of the consumer that does not post: all of it.
pub(super) struct Held<'a> {
    pub(super) poster: &'a mut Poster,
    _gate: Entered<'a>,
    pub(super) control: MutexGuard<'a, Control>,
}

/// Which kind of request, for what differs between them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Request<'a> {
    Send,
    Read(&'a RmrSegment),
    Write(&'a RmrSegment),
}

/// The engine's segment of a post that has one, of a length that fits.
///
/// # Errors
/// What is wrong with it.
#[inline(always)]
pub(crate) fn single(
    segment: LmrSegment,
    recent: &mut Recent,
    zone: u32,
    need: MemPrivileges,
) -> Result<Segment, DatReturn> {
    let LmrSegment {
        context,
        address,
        length,
    } = segment;
    Ok(Segment {
        addr: address,
        length: length as u32,
        lkey: recent.lookup(context, address, length, zone, need)?,
    })
}

/// The engine's segments of a post. Those of length 0 are left out, and their
/// other fields not looked at.
///
/// # Errors
/// What is wrong with a segment.
#[inline(always)]
pub(crate) fn gather(
    places: &mut [MaybeUninit<Segment>; MAX_SEGMENTS],
    count: usize,
    segment: impl Fn(usize) -> LmrSegment,
    zone: u32,
    need: MemPrivileges,
) -> Result<(&[Segment], u64), DatReturn> {
    let mut used = 0;
    let mut total = 0u64;
    for at in 0..count {
        let LmrSegment {
            context,
            address,
            length,
        } = segment(at);
        if length == 0 {
            continue;
        }
        let key = lmr::lookup(context, address, length, zone, need)?;
        if length > LONGEST {
            return Err(too_long());
        }
        // `count` is at most the number of places: the caller has compared.
        let Some(place) = places.get_mut(used) else {
            return Err(too_many());
        };
        place.write(Segment {
            addr: address,
            length: length as u32,
            lkey: key,
        });
        used += 1;
        total += length;
    }
    // SAFETY: the first `used` have been written.
    Ok((unsafe { places[..used].assume_init_ref() }, total))
}

#[cold]
fn too_long() -> DatReturn {
    DatReturn::error(ReturnType::InvalidParameter, Subtype::InvalidArg3)
}

#[cold]
pub(crate) fn too_many() -> DatReturn {
    DatReturn::error(ReturnType::InvalidParameter, Subtype::InvalidArg2)
}

#[cold]
fn bad_flags() -> DatReturn {
    DatReturn::error(ReturnType::InvalidParameter, Subtype::NoSubtype)
}

#[cold]
fn length_error() -> DatReturn {
    DatReturn::error(ReturnType::LengthError, Subtype::NoSubtype)
}

/// The queue is full.
#[cold]
pub(crate) fn full() -> DatReturn {
    DatReturn::error(ReturnType::InsufficientResources, Subtype::ResourceMemory)
}

/// No protection zone has been set.
#[cold]
fn no_zone() -> DatReturn {
    DatReturn::error(ReturnType::InvalidState, Subtype::InvalidStateEpPz)
}

/// What a refusal of the engine is to the consumer, once it has been tried to
/// help.
#[cold]
pub(crate) fn refusal(error: PostError) -> DatReturn {
    match error {
        PostError::QueueFull => full(),
        PostError::TooManySegments => too_many(),
        PostError::InlineTooLong | PostError::MessageTooLong => too_long(),
        PostError::NotReady => {
            DatReturn::error(ReturnType::InvalidState, Subtype::InvalidStateEpNotready)
        }
    }
}

impl Ep {
    /// The control and the poster.
    pub(super) fn hold(&self) -> Held<'_> {
        let control = self.control();
        let gate = self.gate.enter();
        Held {
            // SAFETY: other such calls wait for the control's lock, posts for
            // the gate, or their callers have promised not to post now.
            poster: unsafe { &mut *self.poster.0.get() },
            _gate: gate,
            control,
        }
    }

    /// Posts a receive of `count` segments; `segment(i)` is the i-th.
    ///
    /// # Errors
    /// Section 3DAT, `dat_ep_post_recv`: `INVALID_STATE` on an SRQ or without a
    /// protection zone, `INVALID_PARAMETER`, `PROTECTION_VIOLATION`,
    /// `PRIVILEGES_VIOLATION`, `INSUFFICIENT_RESOURCES`.
    ///
    /// # Safety
    /// No other call on this endpoint runs at the same time, unless its IA is
    /// threadsafe. The memory of the segments is left alone until the receive
    /// completes, or the endpoint is reset or freed.
    #[inline(always)]
    pub unsafe fn post_recv_with(
        &self,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        if count == 1 && flags.is_empty() {
            let _gate = self.gate.enter();
            // SAFETY: inside the gate, or the caller's promise.
            let poster = unsafe { &mut *self.poster.0.get() };
            let one = segment(0);
            if one.length.wrapping_sub(1) < poster.usual.recv
                && let Some(qp) = &mut poster.qp
            {
                let recent = &mut poster.recent.write;
                let need = MemPrivileges::LOCAL_WRITE;
                let segments = [single(one, recent, poster.zone, need)?];
                let request = RecvRequest {
                    cookie,
                    segments: &segments,
                };
                // SAFETY: passed on to the caller.
                if unsafe { qp.post_recv(&request) }.is_ok() {
                    let number = self.posted.load(Ordering::Relaxed);
                    self.posted.store(number.wrapping_add(1), Ordering::Relaxed);
                    return Ok(());
                }
            }
        }
        // SAFETY: passed on to the caller.
        unsafe { self.post_recv_any(count, segment, cookie, flags) }
    }

    /// Any receive.
    #[inline(never)]
    unsafe fn post_recv_any(
        &self,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let gate = self.gate.enter();
        // SAFETY: inside the gate, or the caller's promise.
        let poster = unsafe { &mut *self.poster.0.get() };
        // Also more than there are places for.
        if count > poster.max_recv_iov as usize || poster.shared {
            return Err(poster.no_recv());
        }
        let mut places = [const { MaybeUninit::uninit() }; MAX_SEGMENTS];
        let (segments, _) = gather(
            &mut places,
            count,
            segment,
            poster.zone,
            MemPrivileges::LOCAL_WRITE,
        )?;
        let Some(qp) = &mut poster.qp else {
            return Err(no_zone());
        };
        let number = self.posted.load(Ordering::Relaxed);
        if !(flags.is_empty() && poster.recv_flags.is_empty()) {
            self.note_recv(poster.recv_flags, number, flags)?;
        }
        let request = RecvRequest { cookie, segments };
        // SAFETY: passed on to the caller.
        if let Err(error) = unsafe { qp.post_recv(&request) } {
            drop(gate);
            // SAFETY: passed on to the caller.
            unsafe { self.post_recv_again(&request, error) }?;
        }
        self.posted.store(number.wrapping_add(1), Ordering::Relaxed);
        Ok(())
    }

    #[cold]
    fn note_recv(
        &self,
        allowed: CompletionFlags,
        number: u32,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        if !allowed.contains(flags) {
            return Err(bad_flags());
        }
        self.quiet.posting(number, !flags.is_empty());
        Ok(())
    }

    /// The engine has refused a receive: makes what room there is, and tries
    /// once more.
    #[cold]
    #[inline(never)]
    unsafe fn post_recv_again(
        &self,
        request: &RecvRequest<'_>,
        error: PostError,
    ) -> Result<(), DatReturn> {
        if error == PostError::QueueFull {
            self.take_unwanted();
        }
        let _gate = self.gate.enter();
        // SAFETY: as in `post_recv_with`.
        let poster = unsafe { &mut *self.poster.0.get() };
        let qp = poster.qp.as_mut().ok_or_else(no_zone)?;
        if error == PostError::NotReady {
            qp.open_receives();
        }
        // SAFETY: passed on to the caller.
        unsafe { qp.post_recv(request) }.map_err(refusal)
    }

    /// Posts a send of `count` segments; `segment(i)` is the i-th.
    ///
    /// # Errors
    /// Section 3DAT, `dat_ep_post_send`: `INVALID_STATE`, `INVALID_PARAMETER`,
    /// `PROTECTION_VIOLATION`, `PRIVILEGES_VIOLATION`,
    /// `INSUFFICIENT_RESOURCES`.
    ///
    /// # Safety
    /// As for [`Self::post_recv_with`]; and memory that an LMR with local read
    /// covers is mapped.
    #[inline(always)]
    pub unsafe fn post_send_with(
        &self,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        // SAFETY: passed on to the caller.
        unsafe { self.post_request(Request::Send, count, segment, cookie, flags) }
    }

    /// Posts an RDMA read from `remote` into `count` segments.
    ///
    /// # Errors
    /// As for [`Self::post_send_with`]; `LENGTH_ERROR` if the sizes differ;
    /// `INSUFFICIENT_RESOURCES` also if no reads were agreed on.
    ///
    /// # Safety
    /// As for [`Self::post_recv_with`].
    #[inline(always)]
    pub unsafe fn post_rdma_read_with(
        &self,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        remote: &RmrSegment,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        // SAFETY: passed on to the caller.
        unsafe { self.post_request(Request::Read(remote), count, segment, cookie, flags) }
    }

    /// Posts an RDMA write of `count` segments to `remote`.
    ///
    /// # Errors
    /// As for [`Self::post_send_with`]; `LENGTH_ERROR` if the sizes differ.
    ///
    /// # Safety
    /// As for [`Self::post_send_with`].
    #[inline(always)]
    pub unsafe fn post_rdma_write_with(
        &self,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        remote: &RmrSegment,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        // SAFETY: passed on to the caller.
        unsafe { self.post_request(Request::Write(remote), count, segment, cookie, flags) }
    }

    #[inline(always)]
    unsafe fn post_request(
        &self,
        kind: Request<'_>,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        if count == 1 && flags.is_empty() && self.is_connected() {
            let _gate = self.gate.enter();
            // SAFETY: inside the gate, or the caller's promise.
            let poster = unsafe { &mut *self.poster.0.get() };
            let (most, recent, need) = match kind {
                Request::Send => (
                    poster.usual.send,
                    &mut poster.recent.read,
                    MemPrivileges::LOCAL_READ,
                ),
                Request::Read(_) => (
                    poster.usual.read,
                    &mut poster.recent.write,
                    MemPrivileges::LOCAL_WRITE,
                ),
                Request::Write(_) => (
                    poster.usual.write,
                    &mut poster.recent.read,
                    MemPrivileges::LOCAL_READ,
                ),
            };
            let one = segment(0);
            if one.length.wrapping_sub(1) < most
                && let Some(op) = self.usual_op(kind, one.length)
                && let Some(qp) = &mut poster.qp
            {
                let segments = [single(one, recent, poster.zone, need)?];
                poster.unsignalled = 0;
                let mut how = SendFlags::SIGNALED;
                if one.length <= poster.inline && !matches!(kind, Request::Read(_)) {
                    how |= SendFlags::INLINE;
                }
                let request = SendRequest {
                    cookie,
                    op,
                    flags: how,
                    segments: &segments,
                };
                // SAFETY: passed on to the caller.
                if unsafe { qp.post_send_noted(&request, one.length as u32) }.is_ok() {
                    return Ok(());
                }
            }
        }
        // SAFETY: passed on to the caller.
        unsafe { self.post_any(kind, count, segment, cookie, flags) }
    }

    #[inline(always)]
    fn is_connected(&self) -> bool {
        self.state.load(Ordering::Acquire) == EpState::Connected as u32
    }

    /// The operation, if nothing is wrong with it.
    #[inline(always)]
    fn usual_op(&self, kind: Request<'_>, length: u64) -> Option<SendOp> {
        match kind {
            Request::Send => Some(SendOp::Send),
            Request::Read(remote) => (remote.length == length
                && self.reads_issued.load(Ordering::Relaxed) != 0)
                .then_some(SendOp::Read {
                    remote_addr: remote.address,
                    rkey: remote.context,
                }),
            Request::Write(remote) => (remote.length == length).then_some(SendOp::Write {
                remote_addr: remote.address,
                rkey: remote.context,
            }),
        }
    }

    /// Any request.
    #[inline(never)]
    unsafe fn post_any(
        &self,
        kind: Request<'_>,
        count: usize,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let gate = self.gate.enter();
        let state = self.state.load(Ordering::Acquire);
        // SAFETY: inside the gate, or the caller's promise.
        let poster = unsafe { &mut *self.poster.0.get() };
        let (most_segments, allowed, need, most_bytes) = match kind {
            Request::Send => (
                poster.max_request_iov,
                poster.send_flags,
                MemPrivileges::LOCAL_READ,
                poster.max_message,
            ),
            Request::Read(_) => (
                poster.max_read_iov,
                poster.rdma_flags,
                MemPrivileges::LOCAL_WRITE,
                poster.max_rdma,
            ),
            Request::Write(_) => (
                poster.max_write_iov,
                poster.rdma_flags,
                MemPrivileges::LOCAL_READ,
                poster.max_rdma,
            ),
        };
        if state != EpState::Connected as u32 && !POSTABLE.has(super::state_of(state)) {
            return Err(wrong_state(super::state_of(state)));
        }
        if !allowed.contains(flags) {
            return Err(bad_flags());
        }
        if count > most_segments as usize {
            return Err(too_many());
        }
        let mut places = [const { MaybeUninit::uninit() }; MAX_SEGMENTS];
        let (segments, total) = gather(&mut places, count, segment, poster.zone, need)?;
        let op = match kind {
            Request::Send => SendOp::Send,
            Request::Read(remote) => {
                if remote.length != total {
                    return Err(length_error());
                }
                // The device would wait for ever.
                if self.reads_issued.load(Ordering::Relaxed) == 0
                    && state == EpState::Connected as u32
                {
                    return Err(full());
                }
                SendOp::Read {
                    remote_addr: remote.address,
                    rkey: remote.context,
                }
            }
            Request::Write(remote) => {
                if remote.length != total {
                    return Err(length_error());
                }
                SendOp::Write {
                    remote_addr: remote.address,
                    rkey: remote.context,
                }
            }
        };
        if total > most_bytes {
            return Err(if kind == Request::Send {
                too_long()
            } else {
                length_error()
            });
        }
        let mut how = SendFlags::SIGNALED;
        let mut note = total as u32;
        if total <= poster.inline && !matches!(kind, Request::Read(_)) {
            how |= SendFlags::INLINE;
        }
        if !flags.is_empty() {
            (how, note) = self.unusual(poster, flags, how, note);
        } else {
            poster.unsignalled = 0;
        }
        let Some(qp) = &mut poster.qp else {
            return Err(no_zone());
        };
        let request = SendRequest {
            cookie,
            op,
            flags: how,
            segments,
        };
        // SAFETY: passed on to the caller.
        if let Err(error) = unsafe { qp.post_send_noted(&request, note) } {
            drop(gate);
            // SAFETY: passed on to the caller.
            return unsafe { self.post_again(&request, note, error) };
        }
        Ok(())
    }

    /// A request with completion flags.
    #[cold]
    #[inline(never)]
    fn unusual(
        &self,
        poster: &mut Poster,
        flags: CompletionFlags,
        mut how: SendFlags,
        mut note: u32,
    ) -> (SendFlags, u32) {
        how.set(
            SendFlags::SOLICITED,
            flags.contains(CompletionFlags::SOLICITED_WAIT),
        );
        how.set(
            SendFlags::FENCE,
            flags.contains(CompletionFlags::BARRIER_FENCE),
        );
        if flags.contains(CompletionFlags::SUPPRESS) {
            poster.unsignalled += 1;
            if poster.unsignalled <= poster.most_unsignalled {
                how -= SendFlags::SIGNALED;
                return (how, note);
            }
            note = SWALLOW;
        } else if flags.contains(CompletionFlags::UNSIGNALLED) {
            note |= QUIET;
        }
        poster.unsignalled = 0;
        if note & QUIET != 0 {
            self.want_completions();
        }
        (how, note)
    }

    /// The engine has refused a request: makes what room there is, and tries
    /// once more.
    #[cold]
    #[inline(never)]
    unsafe fn post_again(
        &self,
        request: &SendRequest<'_>,
        note: u32,
        error: PostError,
    ) -> Result<(), DatReturn> {
        if error == PostError::QueueFull {
            self.take_suppressed();
        }
        let _gate = self.gate.enter();
        // SAFETY: as in `post_request`.
        let poster = unsafe { &mut *self.poster.0.get() };
        let qp = poster.qp.as_mut().ok_or_else(no_zone)?;
        if error == PostError::NotReady {
            qp.open_sends();
        }
        // SAFETY: passed on to the caller.
        unsafe { qp.post_send_noted(request, note) }.map_err(refusal)
    }

    /// [`Self::post_recv_with`] of an array.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn post_recv(
        &self,
        segments: &[LmrSegment],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        // SAFETY: passed on to the caller.
        unsafe { self.post_recv_with(segments.len(), |at| segments[at], cookie, flags) }
    }

    /// [`Self::post_send_with`] of an array.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn post_send(
        &self,
        segments: &[LmrSegment],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        // SAFETY: passed on to the caller.
        unsafe { self.post_send_with(segments.len(), |at| segments[at], cookie, flags) }
    }

    /// [`Self::post_rdma_read_with`] of an array.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn post_rdma_read(
        &self,
        segments: &[LmrSegment],
        cookie: u64,
        remote: &RmrSegment,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        // SAFETY: passed on to the caller.
        unsafe {
            self.post_rdma_read_with(segments.len(), |at| segments[at], cookie, remote, flags)
        }
    }

    /// [`Self::post_rdma_write_with`] of an array.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn post_rdma_write(
        &self,
        segments: &[LmrSegment],
        cookie: u64,
        remote: &RmrSegment,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        // SAFETY: passed on to the caller.
        unsafe {
            self.post_rdma_write_with(segments.len(), |at| segments[at], cookie, remote, flags)
        }
    }
}

impl Poster {
    /// Why there is no receive.
    #[cold]
    fn no_recv(&self) -> DatReturn {
        if self.shared {
            DatReturn::error(ReturnType::InvalidState, Subtype::InvalidStateSrqInUse)
        } else if self.qp.is_none() {
            no_zone()
        } else {
            too_many()
        }
    }
}

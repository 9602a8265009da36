//! The posting half of an endpoint, and receives of its own queue. The algorithm is in
//! [`crate::object::post`].

use dat_engine::sync::MutexGuard;
use dat_engine::{Endpoint, Message, PostError, RecvRequest};

use super::kind::Request;
use super::{Control, Ep};
use crate::handle::Handle;
use crate::object::counters::Refused;
use crate::object::ia::Ia;
use crate::object::lmr::LmrCache;
use crate::object::post::list::{ListError, Listed};
use crate::object::post::recv::{RecvPoster, RecvQueue, post_fast, post_recv_list, post_slow};
use crate::object::post::{Entered, Longest, PostGuard, Posting, count_of};
use crate::object::wr_data::LENGTH;
use crate::refusal::Refusal;
use crate::state::{Call, States};
use crate::status::{DatReturn, OwnCodes, ReturnCodes};
use crate::types::{CompletionFlags, EpAttributes, EpState, LmrSegment};

/// The states in which requests are accepted.
const POSTABLE: States = Call::PostRequest.legal();

/// All flags that a send, or an RDMA request, can be posted with.
const ON_SEND: CompletionFlags = CompletionFlags::SUPPRESS
    .union(CompletionFlags::SOLICITED_WAIT)
    .union(CompletionFlags::UNSIGNALLED)
    .union(CompletionFlags::BARRIER_FENCE);
const ON_RDMA: CompletionFlags = ON_SEND.difference(CompletionFlags::SOLICITED_WAIT);

/// Converts an attribute that is not negative, or open.
pub(super) fn unsigned(count: i32) -> u32 {
    u32::try_from(count).unwrap_or(0)
}

/// The posting half of an endpoint.
#[derive(Default)]
pub(crate) struct Poster {
    /// `None` while there is no protection zone. Changed by [`Poster::serve`].
    pub(super) qp: Option<Endpoint>,
    /// The handle of the zone that segments must be in, or 0.
    pub(super) zone: usize,
    /// Its request EVD carries completions of binds.
    pub(super) binds: bool,
    /// How many requests, and receives, can be outstanding.
    max_requests: u32,
    pub(super) max_receives: u32,
    pub(super) max_recv_iov: u32,
    pub(super) max_request_iov: u32,
    pub(super) max_read_iov: u32,
    pub(super) max_write_iov: u32,
    pub(super) max_message: u64,
    /// The maximum of an RDMA transfer, in bytes: of the device, or of the endpoint's attributes if
    /// the IA is strict or receives come from an SRQ.
    pub(super) max_rdma: u64,
    /// The length of the remote segment is checked: the IA is strict.
    pub(super) checks_remote: bool,
    /// The maximum of inline data, in bytes.
    pub(super) inline: u64,
    /// The flags that this endpoint accepts, by kind of post.
    pub(super) send_flags: CompletionFlags,
    pub(super) rdma_flags: CompletionFlags,
    pub(super) recv_flags: CompletionFlags,
    /// Requests posted since the last signalled one.
    pub(super) unsignalled: u32,
    /// The maximum of `unsignalled`.
    pub(super) most_unsignalled: u32,
    /// The SRQ that receives come from.
    pub(super) srq: Option<Handle>,
    pub(super) limits: PostLimits,
    /// The same; none unless the queue pair is on the direct path.
    pub(super) direct_limits: PostLimits,
    pub(super) lmr_caches: LmrCaches,
}

/// The LMR caches, by the access that is needed.
#[derive(Clone, Copy, Default)]
pub(super) struct LmrCaches {
    pub(super) read: LmrCache,
    pub(super) write: LmrCache,
}

/// The longest segment that the fast path and lists take, by kind of post. None: they post nothing
/// of the kind, as without a queue pair.
#[derive(Clone, Copy, Default)]
pub(super) struct PostLimits {
    recv: Longest,
    pub(super) send: Longest,
    read: Longest,
    write: Longest,
    write_immed: Longest,
    atomic: Longest,
}

impl PostLimits {
    #[inline(always)]
    pub(super) fn of(&self, request: Request) -> Longest {
        match request {
            Request::Send => self.send,
            Request::Read(_) => self.read,
            Request::Write(_) => self.write,
            Request::WriteImmed(..) => self.write_immed,
            Request::Atomic(..) => self.atomic,
        }
    }
}

impl Poster {
    /// Replaces the queue pair; only the slow path is used until [`Self::configure`]. Returns the
    /// previous one.
    pub(super) fn serve(&mut self, qp: Option<Endpoint>) -> Option<Endpoint> {
        (self.limits, self.direct_limits) = Default::default();
        core::mem::replace(&mut self.qp, qp)
    }

    /// Returns whether receives may be posted UNSIGNALLED, so that a bit says of each whether it
    /// is. They are posted on the slow path.
    #[inline(always)]
    pub(super) fn marks_unsignalled_receives(&self) -> bool {
        !self.recv_flags.is_empty()
    }

    /// Returns the queue pair of the fast path.
    ///
    /// # Safety
    /// A limit is not `NONE`.
    #[inline(always)]
    pub(super) unsafe fn served_qp(&mut self) -> &mut Endpoint {
        // SAFETY: `configure` sets a limit only with a queue pair, and `serve` clears the limits.
        unsafe { self.qp.as_mut().unwrap_unchecked() }
    }

    /// Sets limits and flags from the attributes. On a strict IA the slow path posts all RDMA, because
    /// it checks more.
    pub(super) fn configure(&mut self, attributes: &EpAttributes, ia: &Ia) {
        // The zone may have changed.
        self.lmr_caches = LmrCaches::default();
        self.max_recv_iov = unsigned(attributes.max_recv_iov);
        self.max_request_iov = unsigned(attributes.max_request_iov);
        self.max_read_iov = unsigned(attributes.max_rdma_read_iov);
        self.max_write_iov = unsigned(attributes.max_rdma_write_iov);
        // A message must not be longer than the work-request data can record.
        self.max_message = attributes.max_message_size.min(LENGTH.into());
        let (limits, on_srq) = (&ia.rules().limits, self.srq.is_some());
        self.checks_remote = ia.rules().conformance.bounded_by_remote;
        let max_rdma = match ia.rules().of_endpoint(on_srq).bounded_by_endpoint {
            true => attributes.max_rdma_size,
            false => limits.max_rdma_size,
        };
        self.max_rdma = max_rdma.min(LENGTH.into());
        // UNSIGNALLED is accepted only if the attribute has it.
        let unsignalled = |attribute: CompletionFlags| attribute & CompletionFlags::UNSIGNALLED;
        let requests = unsignalled(attributes.request_completion_flags);
        self.send_flags = (ON_SEND - CompletionFlags::UNSIGNALLED) | requests;
        self.rdma_flags = (ON_RDMA - CompletionFlags::UNSIGNALLED) | requests;
        self.recv_flags = unsignalled(attributes.recv_completion_flags);
        let longest = |segments: u32, bytes: u64| match segments {
            0 => Longest::NONE,
            _ => Longest::new(bytes),
        };
        let longest_rdma = |segments| match self.checks_remote {
            true => Longest::NONE,
            false => longest(segments, self.max_rdma),
        };
        let none_unless = |has, longest| if has { longest } else { Longest::NONE };
        let recv = match on_srq || self.marks_unsignalled_receives() {
            true => Longest::NONE,
            false => longest(self.max_recv_iov, u64::MAX),
        };
        let send = longest(self.max_request_iov, self.max_message);
        let write = longest_rdma(self.max_write_iov);
        if let Some(qp) = &self.qp {
            self.limits = PostLimits {
                recv,
                send,
                read: longest_rdma(self.max_read_iov),
                write,
                write_immed: none_unless(limits.immediate_data, write),
                atomic: none_unless(limits.atomics && !self.checks_remote, Longest::ANY),
            };
            if qp.is_direct() {
                self.direct_limits = self.limits;
            }
        }
        // A quarter of the queue is released at a time.
        self.max_requests = unsigned(attributes.max_request_dtos);
        self.max_receives = unsigned(attributes.max_recv_dtos);
        self.most_unsignalled = (self.max_requests / 4).min(32);
        self.unsignalled = 0;
    }

    /// Checks a request except for its segments.
    ///
    /// # Errors
    /// The state, the flags or the number of segments is not accepted.
    #[inline(always)]
    pub(super) fn check_post(
        &self,
        kind: Request,
        count: u32,
        flags: CompletionFlags,
        state: u32,
    ) -> Result<(), Refusal> {
        let (most, attribute, allowed) = match kind {
            Request::Send => (self.max_request_iov, "max_request_iov", self.send_flags),
            Request::Read(_) => (self.max_read_iov, "max_rdma_read_iov", self.rdma_flags),
            Request::Write(_) => (self.max_write_iov, "max_rdma_write_iov", self.rdma_flags),
            // It takes a receive of the peer, as a send does.
            Request::WriteImmed(..) => (self.max_write_iov, "max_rdma_write_iov", self.send_flags),
            Request::Atomic(..) => (1, "number of segments", self.rdma_flags),
        };
        if state != EpState::Connected as u32 && !POSTABLE.has(super::state_of(state)) {
            return Err(Refusal::State {
                state: super::state_of(state),
                what: "requests",
            });
        }
        if !allowed.contains(flags) {
            return Err(Refusal::Flags { flags, allowed });
        }
        if count > most {
            return Err(Refusal::TooManySegments {
                count,
                most,
                attribute,
                owner: "endpoint",
            });
        }
        Ok(())
    }

    /// Returns the LMR cache for such a request.
    #[inline(always)]
    pub(super) fn lmr_cache_for(&mut self, kind: Request) -> &mut LmrCache {
        match kind.fills_segments() {
            false => &mut self.lmr_caches.read,
            true => &mut self.lmr_caches.write,
        }
    }

    /// Returns why the engine refuses a request, or a bind, as far as room matters.
    #[cold]
    pub(super) fn request_refusal(&self, error: PostError, what: &'static str) -> Refusal {
        match error {
            PostError::QueueFull => Refusal::RequestsFull {
                depth: self.max_requests,
            },
            PostError::NotReady => Refusal::NotReady { what },
            PostError::NoWindows => Refusal::NoRoomForBinds,
            error => Refusal::Engine { error },
        }
    }
}

/// The control and the poster of an endpoint, for a call of the consumer that does not post.
pub(super) struct Locked<'a> {
    pub(super) poster: &'a mut Poster,
    _guard: PostGuard<'a>,
    pub(super) control: MutexGuard<'a, Control>,
}

impl Ep {
    /// Locks the control and takes the poster.
    ///
    /// # Safety
    /// No post and no bind to this endpoint runs while they are locked, unless its IA is threadsafe.
    pub(super) unsafe fn lock(&self) -> Locked<'_> {
        let control = self.control();
        // SAFETY: other such calls wait for the control's lock. Posts wait for the lock of posts,
        // or there are none, as the caller promises.
        let Entered { poster, guard } = unsafe { self.posting.lock() };
        Locked {
            poster,
            _guard: guard,
            control,
        }
    }
}

impl Ep {
    /// Posts a receive of `count` segments; `segment(i)` is the i-th, and `i` is below `count`. As
    /// the last statement of a function, the call compiles to a jump.
    ///
    /// Returns the code of section 3DAT, `dat_ep_post_recv`, as `C` converts it: `INVALID_STATE` on
    /// an SRQ or without a protection zone, `INVALID_PARAMETER`, `PROTECTION_VIOLATION`,
    /// `PRIVILEGES_VIOLATION`, `INSUFFICIENT_RESOURCES`.
    ///
    /// # Safety
    /// No other post, no bind and no call that is `unsafe` for this reason runs on this endpoint at
    /// the same time, unless its IA is threadsafe; and the request that it was created for is not
    /// rejected meanwhile. The memory of the segments is left alone until the receive completes, or
    /// the endpoint is reset or freed.
    #[inline(always)]
    pub unsafe fn post_recv_with<C: ReturnCodes>(
        &self,
        count: u32,
        segment: impl Fn(usize) -> LmrSegment,
        cookie: u64,
        flags: CompletionFlags,
    ) -> DatReturn {
        // SAFETY: posts take turns, and the segments' memory stays until they complete.
        unsafe {
            // One segment and no flags, by one comparison.
            match (count ^ 1) | flags.bits() == 0 {
                true => post_fast::<false, C, _>(self, segment, cookie),
                false => post_slow::<C, _>(self, segment, cookie, count, flags),
            }
        }
    }

    /// Posts a list of receives without flags; `listed` returns what one of them consists of.
    ///
    /// # Errors
    /// A receive was refused, with the code of [`Self::post_recv_with`].
    ///
    /// # Safety
    /// As for [`Self::post_recv_with`], for every receive.
    #[inline(always)]
    pub(crate) unsafe fn post_recv_list<T>(
        &self,
        receives: &[T],
        listed: impl Fn(&T) -> Listed,
    ) -> Result<(), ListError> {
        // SAFETY: posts take turns, and the segments' memory stays until they complete.
        unsafe { post_recv_list(self, receives, listed) }
    }

    /// As [`Self::post_recv_with`], for an array.
    ///
    /// # Errors
    /// As for [`Self::post_recv_with`].
    ///
    /// # Safety
    /// As for [`Self::post_recv_with`].
    #[inline]
    pub unsafe fn post_recv(
        &self,
        segments: &[LmrSegment],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        // SAFETY: posts take turns, and the segments' memory stays until they complete.
        unsafe {
            self.post_recv_with::<OwnCodes>(count_of(segments), |at| segments[at], cookie, flags)
        }
        .into_result()
    }
}

impl RecvQueue for Ep {
    type Poster = Poster;
    const CALL: &'static str = "dat_ep_post_recv";

    fn handle(&self) -> Handle {
        self.handle
    }

    fn refused(&self) -> &Refused {
        &self.refused
    }

    #[inline(always)]
    fn posting(&self) -> &Posting<Poster> {
        &self.posting
    }

    #[inline(always)]
    fn check_post(
        &self,
        poster: &Poster,
        count: u32,
        flags: CompletionFlags,
    ) -> Result<(), Refusal> {
        if let Some(srq) = poster.srq {
            return Err(Refusal::SharedReceives { srq: srq.bits() });
        }
        // Before the segments: without a zone they would all fail with a protection violation.
        if poster.qp.is_none() {
            return Err(Refusal::NoZone);
        }
        // This also refuses more segments than there are places for.
        if count > poster.max_recv_iov {
            return Err(Refusal::TooManySegments {
                count,
                most: poster.max_recv_iov,
                attribute: "max_recv_iov",
                owner: "endpoint",
            });
        }
        let allowed = poster.recv_flags;
        if !allowed.contains(flags) {
            return Err(Refusal::Flags { flags, allowed });
        }
        if poster.marks_unsignalled_receives() {
            self.unsignalled.posting(!flags.is_empty());
        }
        Ok(())
    }

    /// Does nothing unless receives are configured UNSIGNALLED, so that each has a bit in `unsignalled`.
    #[inline(always)]
    fn count_posted(&self, poster: &Poster) {
        if poster.marks_unsignalled_receives() {
            self.unsignalled.posted();
        }
    }

    #[cold]
    unsafe fn make_room(&self, error: PostError) -> bool {
        match error {
            PostError::QueueFull => {
                self.poll_unreported();
                true
            }
            PostError::NotReady => {
                // SAFETY: no post runs at the same time, unless posts take the lock.
                let entered = unsafe { self.posting.lock() };
                let qp = entered.poster.qp.as_mut();
                qp.is_some_and(|qp| qp.open_receives())
            }
            _ => false,
        }
    }

    #[cold]
    fn refusal(&self, poster: &Poster, error: PostError) -> Refusal {
        match error {
            PostError::QueueFull => Refusal::ReceivesFull {
                depth: poster.max_receives,
            },
            PostError::NotReady => Refusal::NotReady { what: "receives" },
            error => Refusal::Engine { error },
        }
    }
}

impl RecvPoster for Poster {
    #[inline(always)]
    fn longest(&self) -> Longest {
        self.limits.recv
    }

    #[inline(always)]
    fn longest_direct(&self) -> Longest {
        self.direct_limits.recv
    }

    #[inline(always)]
    fn zone(&self) -> usize {
        self.zone
    }

    #[inline(always)]
    fn lmr_cache(&mut self) -> &mut LmrCache {
        &mut self.lmr_caches.write
    }

    #[inline(always)]
    unsafe fn try_post<const BY_VERBS: bool>(&mut self, request: &RecvRequest<'_>) -> bool {
        // SAFETY: posts take turns, and the segments' memory stays until they complete. The limit
        // is not `NONE`.
        unsafe {
            let qp = self.served_qp();
            match BY_VERBS {
                false => qp.try_post_recv(request),
                true => qp.try_post_recv_by_verbs(request),
            }
        }
    }

    #[inline(always)]
    unsafe fn try_post_list<T>(
        &mut self,
        list: &[T],
        message: impl Fn(&T) -> Option<Message> + Copy,
    ) -> usize {
        // SAFETY: as in `try_post`.
        unsafe { self.served_qp().try_post_recvs(list, message) }
    }

    #[inline(always)]
    unsafe fn post(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        let qp = self.qp.as_mut().ok_or(PostError::NotReady)?;
        // SAFETY: the segments' memory stays until the requests complete.
        unsafe { qp.post_recv(request) }
    }
}

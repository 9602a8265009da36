//! The data that the posts of an endpoint use. The algorithm is in [`crate::object::post`].

use dat_engine::sync::MutexGuard;
use dat_engine::{Endpoint, PostError};

use super::{Control, Ep};

use super::request::Request;
use crate::handle::Handle;
use crate::object::ia::Ia;
use crate::object::lmr::LmrCache;
use crate::object::post::{Entered, Longest, PostGuard};
use crate::object::wr_data::LENGTH;
use crate::refusal::Refusal;
use crate::types::{CompletionFlags, EpAttributes};

/// All flags that a send, or an RDMA request, can be posted with.
const ON_SEND: CompletionFlags = CompletionFlags::SUPPRESS
    .union(CompletionFlags::SOLICITED_WAIT)
    .union(CompletionFlags::UNSIGNALLED)
    .union(CompletionFlags::BARRIER_FENCE);
const ON_RDMA: CompletionFlags = ON_SEND.difference(CompletionFlags::SOLICITED_WAIT);

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
    pub(super) fast: FastLimits,
    pub(super) lmr_caches: LmrCaches,
}

/// The LMR caches, by the access that is needed.
#[derive(Clone, Copy, Default)]
pub(super) struct LmrCaches {
    pub(super) read: LmrCache,
    pub(super) write: LmrCache,
}

/// The longest segment that the fast path posts, by kind of post. None: all posts of the kind take
/// the slow path, as without a queue pair on the direct path.
#[derive(Clone, Copy, Default)]
pub(super) struct FastLimits {
    pub(super) recv: Longest,
    send: Longest,
    read: Longest,
    write: Longest,
    write_immed: Longest,
    atomic: Longest,
    /// Of a message in a list, on either path.
    pub(super) recv_list: Longest,
    /// As above.
    pub(super) send_list: Longest,
}

impl FastLimits {
    /// Returns the limit of a request.
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
        self.fast = FastLimits::default();
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
    /// A limit of [`Self::fast`] is not `NONE`.
    #[inline(always)]
    pub(super) unsafe fn fast_qp(&mut self) -> &mut Endpoint {
        // SAFETY: `configure` sets a limit only with a queue pair, and `serve` clears the limits.
        unsafe { self.qp.as_mut().unwrap_unchecked() }
    }

    /// Sets limits and flags from the attributes. On a strict IA the slow path posts all RDMA, because
    /// it checks more.
    pub(super) fn configure(&mut self, attributes: &EpAttributes, ia: &Ia) {
        // The zone may have changed.
        self.lmr_caches = LmrCaches::default();
        let unsigned = |count: i32| u32::try_from(count).unwrap_or(0);
        self.max_recv_iov = unsigned(attributes.max_recv_iov);
        self.max_request_iov = unsigned(attributes.max_request_iov);
        self.max_read_iov = unsigned(attributes.max_rdma_read_iov);
        self.max_write_iov = unsigned(attributes.max_rdma_write_iov);
        // A message must not be longer than the work-request data can record.
        self.max_message = attributes.max_message_size.min(LENGTH.into());
        self.checks_remote = ia.is_strict();
        let max_rdma = match self.checks_remote || self.srq.is_some() {
            true => attributes.max_rdma_size,
            false => ia.attributes().max_rdma_size,
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
        let recv = match self.srq.is_some() || self.marks_unsignalled_receives() {
            true => Longest::NONE,
            false => longest(self.max_recv_iov, u64::MAX),
        };
        let send = longest(self.max_request_iov, self.max_message);
        let write = longest_rdma(self.max_write_iov);
        let lists = FastLimits {
            recv_list: recv,
            send_list: send,
            ..FastLimits::default()
        };
        self.fast = match &self.qp {
            None => FastLimits::default(),
            Some(qp) if !qp.is_direct() => lists,
            Some(_) => FastLimits {
                recv,
                send,
                read: longest_rdma(self.max_read_iov),
                write,
                write_immed: none_unless(ia.attributes().immediate_data, write),
                atomic: none_unless(ia.attributes().atomics && !self.checks_remote, Longest::ANY),
                ..lists
            },
        };
        // A quarter of the queue is released at a time.
        self.max_requests = unsigned(attributes.max_request_dtos);
        self.max_receives = unsigned(attributes.max_recv_dtos);
        self.most_unsignalled = (self.max_requests / 4).min(32);
        self.unsignalled = 0;
    }
}

impl Poster {
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
pub(super) struct Held<'a> {
    pub(super) poster: &'a mut Poster,
    _guard: PostGuard<'a>,
    pub(super) control: MutexGuard<'a, Control>,
}

impl Ep {
    /// Locks the control and takes the poster.
    ///
    /// # Safety
    /// No post and no bind to this endpoint runs while they are held, unless its IA is threadsafe.
    pub(super) unsafe fn hold(&self) -> Held<'_> {
        let control = self.control();
        // SAFETY: other such calls wait for the control's lock. Posts wait for the lock of posts,
        // or there are none, as the caller promises.
        let Entered { poster, guard } = unsafe { self.posting.lock() };
        Held {
            poster,
            _guard: guard,
            control,
        }
    }
}

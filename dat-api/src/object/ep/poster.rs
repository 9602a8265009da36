//! What the posts of an endpoint use. How they go is in [`crate::object::post`].

use std::sync::MutexGuard;

use dat_engine::Endpoint;

use super::Ep;
use super::control::Control;
use crate::object::lmr::Recent;
use crate::object::post::{Entered, LONGEST, Path, SpinGuard};
use crate::object::wr_data::LENGTH;
use crate::types::CompletionFlags;

/// What a send, and an RDMA request, may be posted with at most.
const ON_SEND: CompletionFlags = CompletionFlags::SUPPRESS
    .union(CompletionFlags::SOLICITED_WAIT)
    .union(CompletionFlags::UNSIGNALLED)
    .union(CompletionFlags::BARRIER_FENCE);
const ON_RDMA: CompletionFlags = ON_SEND.difference(CompletionFlags::SOLICITED_WAIT);

/// The posting half of an endpoint.
#[derive(Default)]
pub(crate) struct Poster {
    /// None while there is no protection zone. Changed by [`Poster::serve`].
    pub(super) qp: Option<Endpoint>,
    /// Whose memory may be named.
    pub(super) zone: u32,
    /// Its request EVD carries completions of binds.
    pub(super) binds: bool,
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
    pub(super) fast: FastLimits,
    pub(super) recent: RecentlyUsed,
}

/// The LMRs that were used last, by what was done with them.
#[derive(Clone, Copy, Default)]
pub(super) struct RecentlyUsed {
    pub(super) read: Recent,
    pub(super) write: Recent,
}

/// Bytes of the longest segment that the fast path posts, by kind of post; 0
/// where every post of the kind takes the slow path, as all do unless there is a
/// queue pair on the path that the fast path is compiled for.
#[derive(Clone, Copy, Default)]
pub(super) struct FastLimits {
    pub(super) recv: u64,
    pub(super) send: u64,
    pub(super) read: u64,
    pub(super) write: u64,
}

impl Poster {
    /// Serves this queue pair from now on, by the slow path alone until
    /// [`Self::configure`]. Returns the one before.
    pub(super) fn serve(&mut self, qp: Option<Endpoint>) -> Option<Endpoint> {
        self.fast = FastLimits::default();
        core::mem::replace(&mut self.qp, qp)
    }

    /// The queue pair of the fast path.
    ///
    /// # Safety
    /// A limit of [`Self::fast`] is not 0.
    #[inline(always)]
    pub(super) unsafe fn fast_qp(&mut self) -> &mut Endpoint {
        // SAFETY: `configure` has seen a queue pair, and `serve` ends that.
        unsafe { self.qp.as_mut().unwrap_unchecked() }
    }

    /// What the attributes allow, where the fast path is that of `path`.
    pub(super) fn configure(&mut self, attributes: &crate::types::EpAttributes, path: Path) {
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
        let longest = |segments: u32, bytes: u64| if segments > 0 { bytes } else { 0 };
        self.fast = FastLimits {
            recv: if self.shared || !self.recv_flags.is_empty() {
                0
            } else {
                longest(self.max_recv_iov, LONGEST)
            },
            send: longest(self.max_request_iov, self.max_message),
            read: longest(self.max_read_iov, self.max_rdma),
            write: longest(self.max_write_iov, self.max_rdma),
        };
        if !self.qp.as_ref().is_some_and(|qp| path.is_path_of(qp)) {
            self.fast = FastLimits::default();
        }
        // A quarter of the queue comes back at a time.
        self.most_unsignalled = (unsigned(attributes.max_request_dtos) / 4).min(32);
        self.unsignalled = 0;
    }
}

/// The endpoint, for a call of the consumer that does not post: all of it.
pub(super) struct Held<'a> {
    pub(super) poster: &'a mut Poster,
    _guard: Option<SpinGuard<'a>>,
    pub(super) control: MutexGuard<'a, Control>,
}

impl Ep {
    /// The control and the poster.
    ///
    /// # Safety
    /// No post and no bind to this endpoint runs while they are held, unless its
    /// IA is threadsafe.
    pub(super) unsafe fn hold(&self) -> Held<'_> {
        let control = self.control();
        // SAFETY: other such calls wait for the control's lock, posts for theirs,
        // or there are none, as the caller promises.
        let Entered { poster, guard } = unsafe { self.posting.lock() };
        Held {
            poster,
            _guard: guard,
            control,
        }
    }
}

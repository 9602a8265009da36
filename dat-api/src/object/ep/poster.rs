//! Posting: from DAT's segments to the engine's requests.
//!
//! Most posts have one segment and no flags, and nothing wrong: those take a
//! short way of their own, compiled once for each path (`way.rs`). All others,
//! and those that it turns out not to be so simple with, take the long one,
//! which checks everything and says what is wrong.
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
use std::sync::MutexGuard;

use dat_engine::Endpoint;
use dat_engine::route::Route;

use super::Ep;
use super::control::Control;
use super::gate::Entered;
use super::segments::LONGEST;
use super::way::Way;
use crate::object::lmr::Recent;
use crate::types::CompletionFlags;

/// In a note: posted UNSIGNALLED.
pub(super) const QUIET: u32 = 1 << 31;
/// A note: the completion of a suppressed request, which makes no event.
pub(super) const SWALLOW: u32 = u32::MAX;
/// The bytes in a note. No message is as long as the bit says.
pub(super) const LENGTH: u32 = QUIET - 1;

/// What a send, and an RDMA request, may be posted with at most.
const ON_SEND: CompletionFlags = CompletionFlags::SUPPRESS
    .union(CompletionFlags::SOLICITED_WAIT)
    .union(CompletionFlags::UNSIGNALLED)
    .union(CompletionFlags::BARRIER_FENCE);
const ON_RDMA: CompletionFlags = ON_SEND.difference(CompletionFlags::SOLICITED_WAIT);

/// The posting half of an endpoint.
#[derive(Default)]
pub(super) struct Poster {
    /// None while there is no protection zone. Changed by [`Poster::serve`].
    pub(super) qp: Option<Endpoint>,
    /// It is there, and on the path that usual posts take.
    suits: bool,
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
    usual: Usual,
    pub(super) recent: RecentlyUsed,
}

/// The LMRs that were used last, by what was done with them.
#[derive(Clone, Copy, Default)]
pub(super) struct RecentlyUsed {
    pub(super) read: Recent,
    pub(super) write: Recent,
}

/// Bytes of the longest usual post, one segment without flags, which the device
/// takes: 0 where posts must be looked at more closely, and all of them 0 unless
/// there is a queue pair, on the path that usual posts take.
#[derive(Clone, Copy, Default)]
pub(super) struct Usual {
    pub(super) recv: u64,
    pub(super) send: u64,
    pub(super) read: u64,
    pub(super) write: u64,
}

/// Whether a post has one segment and no flags: by one comparison.
#[inline(always)]
#[must_use]
pub fn is_usual(count: usize, flags: CompletionFlags) -> bool {
    (count ^ 1) | flags.bits() as usize == 0
}

impl Poster {
    /// Serves this queue pair from now on; answers the one before. To be
    /// configured next.
    pub(super) fn serve(&mut self, qp: Option<Endpoint>, way: Way) -> Option<Endpoint> {
        self.usual = Usual::default();
        self.suits = qp.as_ref().is_some_and(|qp| way.suits(qp));
        core::mem::replace(&mut self.qp, qp)
    }

    /// The longest usual post of a kind.
    #[inline(always)]
    pub(super) fn usual(&self, which: impl FnOnce(&Usual) -> u64) -> u64 {
        which(&self.usual)
    }

    /// The queue pair of a usual post.
    ///
    /// # Safety
    /// The post is within what [`Self::usual`] answers, and `R` is the path that
    /// usual posts take.
    #[inline(always)]
    pub(super) unsafe fn usual_queue<R: Route>(&mut self) -> Option<R::Posts<'_>> {
        let qp = self.qp.as_mut();
        // SAFETY: nothing is usual otherwise: `serve` and `configure`.
        unsafe { core::hint::assert_unchecked(qp.as_ref().is_some_and(|qp| R::has(qp))) };
        qp.and_then(Endpoint::on::<R>)
    }

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
        if !self.suits {
            self.usual = Usual::default();
        }
        // A quarter of the queue comes back at a time.
        self.most_unsignalled = (unsigned(attributes.max_request_dtos) / 4).min(32);
        self.unsignalled = 0;
    }
}

/// The poster, for one call at a time.
pub(super) struct PosterCell(pub(super) UnsafeCell<Poster>);

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

impl Ep {
    /// The control and the poster.
    ///
    /// # Safety
    /// No post and no bind to this endpoint runs while they are held, unless its
    /// IA is threadsafe.
    pub(super) unsafe fn hold(&self) -> Held<'_> {
        let control = self.control();
        let gate = self.gate.enter();
        Held {
            // SAFETY: other such calls wait for the control's lock, posts for
            // the gate, or there are none, as the caller promises.
            poster: unsafe { &mut *self.poster.0.get() },
            _gate: gate,
            control,
        }
    }
}

//! Posts that are compiled for one path.
//!
//! A post that serves both paths saves the registers that either needs. Who
//! knows the path beforehand, and posts often enough to care, has it compiled
//! once for each ([`crate::Endpoint::on`]).

use super::{direct, verbs};
use crate::endpoint::Endpoint;
use crate::request::{RecvRequest, SendRequest};

/// A path.
pub trait Route: Sealed {
    /// An endpoint that is on it.
    type Posts<'a>: Posts;

    /// Whether the endpoint is on it.
    fn has(endpoint: &Endpoint) -> bool;

    /// Nothing if the endpoint is on another.
    fn find(endpoint: &mut Endpoint) -> Option<Self::Posts<'_>>;
}

/// No other type is a [`Route`].
pub trait Sealed {}

/// The posts of an [`Endpoint`], compiled into the caller.
pub trait Posts {
    /// [`Endpoint::post_recv`], if nothing keeps it from being posted at once.
    /// Answers whether it is posted; if not, that has to tell why, if there
    /// still is a reason.
    ///
    /// # Safety
    /// As there.
    unsafe fn post_recv(self, request: &RecvRequest<'_>) -> bool;

    /// The same of [`Endpoint::post_send_noted`].
    ///
    /// # Safety
    /// As there.
    unsafe fn post_send(self, request: &SendRequest<'_>, note: u32) -> bool;
}

/// The direct path.
#[derive(Debug)]
pub enum Direct {}

/// The verbs path.
#[derive(Debug)]
pub enum Verbs {}

impl Sealed for Direct {}
impl Sealed for Verbs {}

/// An endpoint on the direct path.
#[derive(Debug)]
pub struct OnDirect<'a>(&'a mut direct::QueuePair);

/// An endpoint on the verbs path.
#[derive(Debug)]
pub struct OnVerbs<'a>(&'a mut verbs::QueuePair);

impl Route for Direct {
    type Posts<'a> = OnDirect<'a>;

    #[inline(always)]
    fn has(endpoint: &Endpoint) -> bool {
        matches!(endpoint.path(), super::QueuePair::Direct(_))
    }

    #[inline(always)]
    fn find(endpoint: &mut Endpoint) -> Option<OnDirect<'_>> {
        match endpoint.queue_pair() {
            super::QueuePair::Direct(path) => Some(OnDirect(path)),
            super::QueuePair::Verbs(_) => None,
        }
    }
}

impl Route for Verbs {
    type Posts<'a> = OnVerbs<'a>;

    #[inline(always)]
    fn has(endpoint: &Endpoint) -> bool {
        matches!(endpoint.path(), super::QueuePair::Verbs(_))
    }

    #[inline(always)]
    fn find(endpoint: &mut Endpoint) -> Option<OnVerbs<'_>> {
        match endpoint.queue_pair() {
            super::QueuePair::Direct(_) => None,
            super::QueuePair::Verbs(path) => Some(OnVerbs(path)),
        }
    }
}

impl Posts for OnDirect<'_> {
    #[inline(always)]
    unsafe fn post_recv(self, request: &RecvRequest<'_>) -> bool {
        // SAFETY: passed on to the caller.
        unsafe { self.0.post_plain_recv(request) }
    }

    #[inline(always)]
    unsafe fn post_send(self, request: &SendRequest<'_>, note: u32) -> bool {
        // SAFETY: passed on to the caller.
        unsafe { self.0.post_plain_send(request, note) }
    }
}

impl Posts for OnVerbs<'_> {
    #[inline(always)]
    unsafe fn post_recv(self, request: &RecvRequest<'_>) -> bool {
        // SAFETY: passed on to the caller. What libibverbs refuses it refuses
        // again when it is asked why.
        matches!(unsafe { self.0.post_usual_recv(request) }, Ok(true))
    }

    #[inline(always)]
    unsafe fn post_send(self, request: &SendRequest<'_>, note: u32) -> bool {
        // SAFETY: as above.
        matches!(unsafe { self.0.post_usual_send(request, note) }, Ok(true))
    }
}

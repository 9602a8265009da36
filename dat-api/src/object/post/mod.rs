//! Posting to queues: what endpoints and shared receive queues have in common.
//!
//! A post has two paths:
//!
//! 1. The **fast path** posts what most programs post: one segment, no completion flags, in the LMR
//!    that the queue used last, on a queue with room. It is compiled once for each kind of post, and
//!    reports no errors. Calls enter it for the direct path, and it goes on to itself for the verbs
//!    path, so that nothing of that one is in the way of the other.
//! 2. The **slow path** posts everything else, and everything that the fast path could not post. It
//!    checks every argument, makes room in a full queue and tries once more, and reports errors. It
//!    is marked cold so that the fast path jumps to it; a program may still use it for every
//!    message.
//!
//! [`recv`] has both paths for receives; those for requests are in `ep/post.rs`.
//!
//! Decisions:
//! - `docs/decisions/020-two-post-paths.md`
//! - `docs/decisions/021-full-queue-makes-room.md`

use crate::object::ia::MAX_SEGMENTS;

pub(crate) mod list;
#[allow(unsafe_code)]
mod posting;
#[allow(unsafe_code)]
pub(crate) mod recv;
#[allow(unsafe_code)]
mod segments;

pub(crate) use posting::{Entered, PostGuard, Posting};
pub(crate) use segments::{Longest, first_bytes, gather};

/// Converts immediate data between DAT and the engine, in both directions. The engine sends them in
/// network byte order; other uDAPL libraries send them in that of the host, and so must this one.
#[inline(always)]
pub(crate) fn immediate_order(immediate: u32) -> u32 {
    immediate.to_be()
}

/// Returns the number of segments of a list as posts take it; more than [`MAX_SEGMENTS`] become
/// `MAX_SEGMENTS + 1`.
#[inline(always)]
pub(crate) fn count_of<T>(segments: &[T]) -> u32 {
    match segments.len() {
        // A case of its own, so that a post of one segment tests nothing else.
        1 => 1,
        count => count.min(MAX_SEGMENTS + 1) as u32,
    }
}

//! Posts that are compiled for one data path.
//!
//! [`Endpoint::post_recv`] serves both data paths, so it saves the registers that
//! either path needs. A caller that knows the path at compile time, and posts
//! often, is generic over [`FastPath`] instead.
//!
//! Each function posts if the queue has room and the request takes no slow path.
//! Otherwise nothing is posted; the caller then uses the function for both paths,
//! which reports the reason.
//!
//! The caller checks once which path a queue is on ([`FastPath::is_path_of`]) and
//! promises it in each post: checking costs up to five of a post's eighty
//! instructions.
//!
//! Decision: `docs/decisions/020-two-post-paths.md`

use core::hint::unreachable_unchecked;

use super::{QueuePair, SharedReceives};
use crate::endpoint::Endpoint;
use crate::request::{Message, RecvRequest, SendRequest};
use crate::shared_queue::SharedReceiveQueue;

/// A data path that is known at compile time: [`Direct`] or [`Verbs`].
pub trait FastPath: Sealed {
    /// Returns whether an endpoint is on this path. Its path never changes.
    fn is_path_of(endpoint: &Endpoint) -> bool;

    /// Posts as [`Endpoint::post_recv`] does. Returns whether it is posted.
    ///
    /// # Safety
    /// As for [`Endpoint::post_recv`]; and the endpoint is on this path.
    unsafe fn try_post_recv(endpoint: &mut Endpoint, request: &RecvRequest<'_>) -> bool;

    /// Posts as [`Endpoint::post_send_with_data`] does. Returns whether it is posted.
    ///
    /// # Safety
    /// As for [`Endpoint::post_send_with_data`]; and the endpoint is on this path.
    unsafe fn try_post_send(
        endpoint: &mut Endpoint,
        request: &SendRequest<'_>,
        wr_data: u32,
    ) -> bool;

    /// Posts receives of a list, with as few doorbells as the path allows. `message` returns
    /// a message of the list, and `None` ends the list. Returns how many are posted.
    ///
    /// # Safety
    /// As for [`Endpoint::post_recv`], for every message; and the endpoint is on this path.
    unsafe fn try_post_recvs<T>(
        endpoint: &mut Endpoint,
        list: &[T],
        message: impl Fn(&T) -> Option<Message>,
    ) -> usize;

    /// Posts signalled sends of a list, those of up to `inline` bytes inline, otherwise as
    /// [`Self::try_post_recvs`]. The `wr_data` of each is its length.
    ///
    /// # Safety
    /// As for [`Endpoint::post_send_with_data`], for every message; and the endpoint is on
    /// this path.
    unsafe fn try_post_sends<T>(
        endpoint: &mut Endpoint,
        list: &[T],
        message: impl Fn(&T) -> Option<Message>,
        inline: u32,
    ) -> usize;

    /// Returns whether a shared receive queue is on this path. Its path never
    /// changes.
    fn is_path_of_shared(queue: &SharedReceiveQueue) -> bool;

    /// Posts as [`SharedReceiveQueue::post`] does. Returns whether it is posted.
    ///
    /// # Safety
    /// As for [`SharedReceiveQueue::post`]; and the queue is on this path.
    unsafe fn try_post_shared(queue: &mut SharedReceiveQueue, request: &RecvRequest<'_>) -> bool;

    /// Posts receives of a list as [`Self::try_post_recvs`] does.
    ///
    /// # Safety
    /// As for [`SharedReceiveQueue::post`], for every message; and the queue is on this path.
    unsafe fn try_post_shared_list<T>(
        queue: &mut SharedReceiveQueue,
        list: &[T],
        message: impl Fn(&T) -> Option<Message>,
    ) -> usize;
}

/// Restricts [`FastPath`] to the types of this module.
pub trait Sealed {}

/// The direct path.
#[derive(Debug)]
pub enum Direct {}

/// The verbs path.
#[derive(Debug)]
pub enum Verbs {}

/// Implements [`FastPath`] with the methods of one path's queues.
macro_rules! fast_path {
    ($path:ident) => {
        impl Sealed for $path {}

        impl FastPath for $path {
            #[inline(always)]
            fn is_path_of(endpoint: &Endpoint) -> bool {
                matches!(endpoint.path(), QueuePair::$path(_))
            }

            #[inline(always)]
            unsafe fn try_post_recv(endpoint: &mut Endpoint, request: &RecvRequest<'_>) -> bool {
                // SAFETY: required of the caller.
                unsafe {
                    match endpoint.path_mut() {
                        QueuePair::$path(queue_pair) => queue_pair.try_post_recv(request),
                        _ => unreachable_unchecked(),
                    }
                }
            }

            #[inline(always)]
            unsafe fn try_post_send(
                endpoint: &mut Endpoint,
                request: &SendRequest<'_>,
                wr_data: u32,
            ) -> bool {
                // SAFETY: required of the caller.
                unsafe {
                    match endpoint.path_mut() {
                        QueuePair::$path(queue_pair) => queue_pair.try_post_send(request, wr_data),
                        _ => unreachable_unchecked(),
                    }
                }
            }

            #[inline(always)]
            unsafe fn try_post_recvs<T>(
                endpoint: &mut Endpoint,
                list: &[T],
                message: impl Fn(&T) -> Option<Message>,
            ) -> usize {
                // SAFETY: required of the caller.
                unsafe {
                    match endpoint.path_mut() {
                        QueuePair::$path(path) => path.try_post_recv_messages(list, message),
                        _ => unreachable_unchecked(),
                    }
                }
            }

            #[inline(always)]
            unsafe fn try_post_sends<T>(
                endpoint: &mut Endpoint,
                list: &[T],
                message: impl Fn(&T) -> Option<Message>,
                inline: u32,
            ) -> usize {
                // SAFETY: required of the caller.
                unsafe {
                    match endpoint.path_mut() {
                        QueuePair::$path(path) => {
                            path.try_post_send_messages(list, message, inline)
                        }
                        _ => unreachable_unchecked(),
                    }
                }
            }

            #[inline(always)]
            fn is_path_of_shared(queue: &SharedReceiveQueue) -> bool {
                matches!(queue.path(), SharedReceives::$path(_))
            }

            #[inline(always)]
            unsafe fn try_post_shared(
                queue: &mut SharedReceiveQueue,
                request: &RecvRequest<'_>,
            ) -> bool {
                // SAFETY: required of the caller.
                unsafe {
                    match queue.path_mut() {
                        SharedReceives::$path(receives) => receives.try_post(request),
                        _ => unreachable_unchecked(),
                    }
                }
            }

            #[inline(always)]
            unsafe fn try_post_shared_list<T>(
                queue: &mut SharedReceiveQueue,
                list: &[T],
                message: impl Fn(&T) -> Option<Message>,
            ) -> usize {
                // SAFETY: required of the caller.
                unsafe {
                    match queue.path_mut() {
                        SharedReceives::$path(path) => path.try_post_messages(list, message),
                        _ => unreachable_unchecked(),
                    }
                }
            }
        }
    };
}

fast_path!(Direct);
fast_path!(Verbs);

//! Fast and slow path of receives, for an endpoint's own queue and for a shared one.

use core::mem::MaybeUninit;

use dat_engine::{Message, PostError, RecvRequest};

use super::list::{ListError, Listed, in_cached_lmr, post_list};
use super::{Entered, Longest, Posting, gather};
use crate::handle::Handle;
use crate::object::counters::Refused;
use crate::object::ia::MAX_SEGMENTS;
use crate::object::lmr::LmrCache;
use crate::refusal::Refusal;
use crate::status::{DatReturn, OwnCodes, ReturnCodes};
use crate::types::{CompletionFlags, LmrSegment, MemPrivileges};

/// A queue that receives are posted to.
pub(crate) trait RecvQueue {
    type Poster: RecvPoster;
    /// The name of the call in C.
    const CALL: &'static str;

    fn handle(&self) -> Handle;

    /// Returns the count of its posts that found it full.
    fn refused(&self) -> &Refused;

    fn posting(&self) -> &Posting<Self::Poster>;

    /// Checks a receive except for its segments, and stores its flags.
    ///
    /// # Errors
    /// What is wrong with it.
    fn check_post(
        &self,
        poster: &Self::Poster,
        count: u32,
        flags: CompletionFlags,
    ) -> Result<(), Refusal>;

    /// Counts a receive that the slow path has posted. The caller still has the poster. The fast
    /// path counts nothing: where receives are counted, [`RecvPoster::longest`] is 0.
    fn count_posted(&self, poster: &Self::Poster);

    /// Makes room after the engine has refused a receive. Returns whether to try again.
    ///
    /// # Safety
    /// As for [`post_fast`].
    unsafe fn make_room(&self, error: PostError) -> bool;

    /// Returns why the engine refuses a receive.
    fn refusal(&self, poster: &Self::Poster, error: PostError) -> Refusal;
}

/// The posting half of a queue of receives.
pub(crate) trait RecvPoster {
    /// Returns the longest segment that the fast path and lists take; none without a queue, or if
    /// its receives need [`RecvQueue::count_posted`].
    fn longest(&self) -> Longest;

    /// As [`Self::longest`]; none unless the queue is on the direct path.
    fn longest_direct(&self) -> Longest;

    /// Returns the handle of the zone that segments must be in.
    fn zone(&self) -> usize;

    fn lmr_cache(&mut self) -> &mut LmrCache;

    /// Posts a receive if the queue is on this data path and has room. Returns whether it is posted.
    ///
    /// # Safety
    /// As for [`dat_engine::Endpoint::post_recv`]. The request is within [`Self::longest`], and by
    /// the direct path within [`Self::longest_direct`].
    unsafe fn try_post<const BY_VERBS: bool>(&mut self, request: &RecvRequest<'_>) -> bool;

    /// As [`dat_engine::Endpoint::try_post_recvs`], for either kind of queue.
    ///
    /// # Safety
    /// As for [`dat_engine::Endpoint::post_recv`], for every message; [`Self::longest`] is not 0.
    unsafe fn try_post_list<T>(
        &mut self,
        list: &[T],
        message: impl Fn(&T) -> Option<Message> + Copy,
    ) -> usize;

    /// Posts on whichever path the queue is.
    ///
    /// # Errors
    /// The engine's.
    ///
    /// # Safety
    /// As for [`dat_engine::Endpoint::post_recv`].
    unsafe fn post(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError>;
}

/// The fast path, of one data path: one segment, no flags; `segment(0)` is the segment. As the last
/// statement of a function, the call compiles to a jump; `C` converts the code of a refusal.
/// `extern "C"` functions do not unwind, so that the C interface's functions can jump to it.
///
/// # Safety
/// No other post runs on this queue at the same time, and nothing else uses the poster, unless
/// posts take its lock. The memory of the segments is left alone until the receive completes, or
/// the queue is reset or gone.
#[inline(never)]
#[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
pub(crate) unsafe extern "C" fn post_fast<const BY_VERBS: bool, C: ReturnCodes, Q: RecvQueue>(
    queue: &Q,
    segment: impl Fn(usize) -> LmrSegment,
    cookie: u64,
) -> DatReturn {
    // SAFETY: no post runs at the same time, unless posts take the lock.
    if let Some(entered) = unsafe { queue.posting().try_enter() } {
        let poster = entered.poster;
        let one = segment(0);
        let longest = match BY_VERBS {
            false => poster.longest_direct(),
            true => poster.longest(),
        };
        if longest.allows(one.length)
            && let Some(segment) = poster.lmr_cache().find(one)
        {
            let request = RecvRequest {
                wr_id: cookie,
                segments: &[segment],
            };
            // SAFETY: posts take turns, and the segments' memory stays until they complete.
            if unsafe { poster.try_post::<BY_VERBS>(&request) } {
                return DatReturn::SUCCESS;
            }
        }
    }
    // SAFETY: posts take turns, and the segments' memory stays until they complete.
    unsafe {
        match BY_VERBS {
            false => post_fast::<true, C, Q>(queue, segment, cookie),
            true => post_slow::<C, Q>(queue, segment, cookie, 1, CompletionFlags::empty()),
        }
    }
}

/// The slow path: any receive of `count` segments; `segment(i)` is the i-th. Its first arguments
/// are those of the fast path, so that they are in the same registers.
///
/// # Safety
/// As for [`post_fast`].
#[cold]
#[inline(never)]
#[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
pub(crate) unsafe extern "C" fn post_slow<C: ReturnCodes, Q: RecvQueue>(
    queue: &Q,
    segment: impl Fn(usize) -> LmrSegment,
    cookie: u64,
    count: u32,
    flags: CompletionFlags,
) -> DatReturn {
    let need = MemPrivileges::LOCAL_WRITE;
    let mut places = [const { MaybeUninit::uninit() }; MAX_SEGMENTS];
    let mut is_second_try = false;
    // A refusal leaves the loop, so that successful posts do not test for it again.
    let refusal = loop {
        // SAFETY: no post runs at the same time, unless posts take the lock.
        let Entered { poster, guard } = unsafe { queue.posting().lock() };
        if let Err(refusal) = queue.check_post(poster, count, flags) {
            break refusal;
        }
        let zone = poster.zone();
        let segments = match gather(&mut places, count, &segment, poster.lmr_cache(), zone, need) {
            Ok((segments, _)) => segments,
            Err(refusal) => break refusal,
        };
        let request = RecvRequest {
            wr_id: cookie,
            segments,
        };
        // SAFETY: posts take turns, and the segments' memory stays until they complete.
        let Err(error) = (unsafe { poster.post(&request) }) else {
            queue.count_posted(poster);
            return DatReturn::SUCCESS;
        };
        let refusal = queue.refusal(poster, error);
        // Making room takes other locks.
        drop(guard);
        // SAFETY: no post runs at the same time, unless posts take the lock.
        if is_second_try || !unsafe { queue.make_room(error) } {
            queue.refused().note(error);
            break refusal;
        }
        is_second_try = true;
    };
    C::refuse(Q::CALL, queue.handle(), refusal)
}

/// Posts a list of receives without flags; `listed` returns what one of them consists of.
///
/// # Errors
/// A receive was refused.
///
/// # Safety
/// As for [`post_fast`], for every receive.
#[inline(always)]
pub(crate) unsafe fn post_recv_list<Q: RecvQueue, T>(
    queue: &Q,
    receives: &[T],
    listed: impl Fn(&T) -> Listed,
) -> Result<(), ListError> {
    // SAFETY: posts take turns, and the segments' memory stays until they complete.
    let run = |rest: &[T]| unsafe { post_run(queue, rest, &listed) };
    let one = |receive: &T| {
        let (segment, cookie) = listed(receive);
        // SAFETY: posts take turns, and the segments' memory stays until they complete.
        unsafe { post_fast::<false, OwnCodes, Q>(queue, |_| segment, cookie) }
    };
    post_list(receives, run, one)
}

/// Posts receives from the front of a list, as far as they are like those of the fast path. Returns
/// how many.
///
/// # Safety
/// As for [`post_fast`], for every receive.
#[inline(never)]
unsafe fn post_run<Q: RecvQueue, T>(
    queue: &Q,
    receives: &[T],
    listed: &impl Fn(&T) -> Listed,
) -> usize {
    // SAFETY: no post runs at the same time, unless posts take the lock.
    let Some(entered) = (unsafe { queue.posting().try_enter() }) else {
        return 0;
    };
    let poster = entered.poster;
    let longest = poster.longest();
    if longest == Longest::NONE {
        return 0;
    }
    let cache = *poster.lmr_cache();
    // Copied for the call of the verbs path, so that it stays in registers on the direct path.
    let message = move |receive: &T| in_cached_lmr(listed(receive), longest, &cache);
    // SAFETY: posts take turns, and the segments' memory stays until they complete; the limit is
    // not `NONE`.
    unsafe { poster.try_post_list(receives, message) }
}

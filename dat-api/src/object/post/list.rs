//! Lists of requests of one segment each, without flags. What is like the requests of the fast path
//! is posted with as few doorbells as the data path allows; any other request is posted by itself.

use dat_engine::Message;

use crate::object::lmr::LmrCache;
use crate::object::post::Longest;
use crate::refusal::{Refusal, checked};
use crate::status::DatReturn;
use crate::types::LmrSegment;

/// The segment and the cookie of a request.
pub(crate) type Listed = (LmrSegment, u64);

/// A list was posted in part: `posted` requests of it, in their order. The next one was refused, and
/// the others were not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListError {
    /// How many requests are posted.
    pub posted: usize,
    /// Why the next one is not.
    pub refusal: Refusal,
}

impl core::fmt::Display for ListError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { posted, refusal } = self;
        write!(f, "request {posted} of the list was not posted: {refusal}")
    }
}

impl core::error::Error for ListError {}

/// Posts a list. `run` posts requests from its front on the fast path and returns how many; `one`
/// posts a request on any path.
///
/// # Errors
/// `one` has refused a request.
#[inline(always)]
pub(crate) fn post_list<T>(
    list: &[T],
    run: impl Fn(&[T]) -> usize,
    one: impl Fn(&T) -> DatReturn,
) -> Result<(), ListError> {
    let mut posted = 0;
    loop {
        posted += run(&list[posted..]);
        let Some(next) = list.get(posted) else {
            return Ok(());
        };
        if let Err(refusal) = checked(one(next)) {
            return Err(ListError { posted, refusal });
        }
        posted += 1;
        if posted == list.len() {
            return Ok(());
        }
    }
}

/// Converts a request for the engine if the fast path takes it: of a length that `longest` allows, in
/// the cached LMR.
#[inline(always)]
pub(crate) fn in_cached_lmr(
    (segment, wr_id): Listed,
    longest: Longest,
    cache: &LmrCache,
) -> Option<Message> {
    if !longest.allows(segment.length) {
        return None;
    }
    let segment = cache.find(segment)?;
    Some(Message { segment, wr_id })
}

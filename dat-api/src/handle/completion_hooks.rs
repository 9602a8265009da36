//! What the library has to do with each completion of an endpoint before it becomes an event. It is
//! one word, which is found from a completion without touching the endpoint (`cqe_flags`).
//!
//! Decision: `docs/decisions/028-watermarks-as-async-errors.md`

/// Every completion is passed to the endpoint (`completed` of [`super::Upcalls`]).
const INSPECT: u32 = 1 << 31;

/// One word; 0, the value of most endpoints, means nothing has to be done.
///
/// The bits below the highest are the lowest high watermark of the endpoint, or 0 without one. A
/// watermark of 0, which allows the endpoint to hold nothing, is expressed by the highest bit:
/// every completion is passed to the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompletionHooks(pub(crate) u32);

impl CompletionHooks {
    /// Returns the word of an endpoint. `inspects_each`: every completion is passed to the
    /// endpoint. `mark`: its lowest high watermark, if it has one.
    pub(crate) fn new(inspects_each: bool, mark: Option<u32>) -> Self {
        let word = mark.map_or(0, |mark| mark.min(INSPECT - 1));
        Self(if inspects_each || mark == Some(0) {
            word | INSPECT
        } else {
            word
        })
    }

    /// Returns the word with every completion passed to the endpoint.
    pub(crate) fn with_inspection(self) -> Self {
        Self(self.0 | INSPECT)
    }

    /// Returns the word with another watermark.
    pub(crate) fn with_watermark(self, mark: Option<u32>) -> Self {
        // An endpoint that inspects its completions keeps doing so until it is recreated.
        Self::new(self.inspects_each(), mark)
    }

    /// Returns whether nothing has to be done.
    #[inline(always)]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether every completion is passed to the endpoint.
    #[inline(always)]
    pub(crate) fn inspects_each(self) -> bool {
        self.0 & INSPECT != 0
    }

    /// Returns how many completed receives behind a receive reach the watermark: with fewer, the
    /// receive can be handed out without calling the endpoint. Returns `None` if the endpoint is
    /// called in any case. Must not be called if [`Self::is_empty`].
    #[inline(always)]
    pub(crate) fn watermark_behind(self) -> Option<u32> {
        (!self.inspects_each()).then_some(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_skips_the_endpoint_while_below_its_watermark() {
        for (row, hooks, behind, allowed) in [
            (
                "the only receive",
                CompletionHooks::new(false, Some(1)),
                0,
                true,
            ),
            (
                "one more than the watermark allows",
                CompletionHooks::new(false, Some(1)),
                1,
                false,
            ),
            (
                "as many as the watermark allows",
                CompletionHooks::new(false, Some(4)),
                3,
                true,
            ),
            (
                "one too many behind",
                CompletionHooks::new(false, Some(4)),
                4,
                false,
            ),
            (
                "watermark 0",
                CompletionHooks::new(false, Some(0)),
                0,
                false,
            ),
            (
                "watermark above any count",
                CompletionHooks::new(false, Some(u32::MAX)),
                1 << 30,
                true,
            ),
            (
                "every completion inspected, with a watermark",
                CompletionHooks::new(true, Some(4)),
                0,
                false,
            ),
            (
                "every completion inspected, without a watermark",
                CompletionHooks::new(true, None),
                0,
                false,
            ),
            (
                "inspection added later",
                CompletionHooks::new(false, Some(4)).with_inspection(),
                0,
                false,
            ),
            (
                "watermark raised",
                CompletionHooks::new(false, Some(1)).with_watermark(Some(2)),
                1,
                true,
            ),
        ] {
            let many = hooks.watermark_behind();
            assert_eq!(many.is_some_and(|many| behind < many), allowed, "{row}");
            assert!(!hooks.is_empty(), "{row}");
        }
        assert!(
            CompletionHooks::new(false, Some(4))
                .with_watermark(None)
                .is_empty()
        );
        assert!(
            !CompletionHooks::new(true, Some(4))
                .with_watermark(None)
                .is_empty()
        );
    }
}

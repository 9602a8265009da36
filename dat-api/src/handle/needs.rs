//! What the library has to do with each completion of an endpoint before it becomes an event. It is
//! one word, which is found from a completion without touching the endpoint (`cqe_flags`).
//!
//! Decision: `docs/decisions/028-watermarks-as-async-errors.md`

/// Every completion is passed to the endpoint (`completed` of [`super::Upcalls`]).
const LOOK: u32 = 1 << 31;

/// One word; 0, the value of most endpoints, means nothing has to be done.
///
/// The bits below the highest are the lowest high watermark of the endpoint, or 0 without one. A
/// watermark of 0, which allows the endpoint to hold nothing, is expressed by the highest bit:
/// every completion is passed to the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs(pub(crate) u32);

impl Needs {
    /// Returns the word of an endpoint. `look`: every completion is passed to the endpoint. `mark`:
    /// its lowest high watermark, if it has one.
    pub(crate) fn new(look: bool, mark: Option<u32>) -> Self {
        let word = mark.map_or(0, |mark| mark.min(LOOK - 1));
        Self(if look || mark == Some(0) {
            word | LOOK
        } else {
            word
        })
    }

    /// Returns the word with every completion passed to the endpoint.
    pub(crate) fn with_look(self) -> Self {
        Self(self.0 | LOOK)
    }

    /// Returns the word with another watermark.
    pub(crate) fn with_mark(self, mark: Option<u32>) -> Self {
        // An endpoint that inspects its completions keeps doing so until it is recreated.
        Self::new(self.look(), mark)
    }

    /// Returns whether nothing has to be done.
    #[inline(always)]
    pub(crate) fn are_none(self) -> bool {
        self.0 == 0
    }

    /// Returns whether every completion is passed to the endpoint.
    #[inline(always)]
    pub(crate) fn look(self) -> bool {
        self.0 & LOOK != 0
    }

    /// Returns how many completed receives behind a receive reach the watermark: with fewer, the
    /// receive can be handed out without calling the endpoint. Returns `None` if the endpoint is
    /// called in any case. Must not be called if [`Self::are_none`].
    #[inline(always)]
    pub(crate) fn too_many_behind(self) -> Option<u32> {
        (!self.look()).then_some(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_skips_the_endpoint_while_below_its_watermark() {
        for (row, needs, behind, allowed) in [
            ("the only receive", Needs::new(false, Some(1)), 0, true),
            (
                "one more than the watermark allows",
                Needs::new(false, Some(1)),
                1,
                false,
            ),
            (
                "as many as the watermark allows",
                Needs::new(false, Some(4)),
                3,
                true,
            ),
            ("one too many behind", Needs::new(false, Some(4)), 4, false),
            ("watermark 0", Needs::new(false, Some(0)), 0, false),
            (
                "watermark above any count",
                Needs::new(false, Some(u32::MAX)),
                1 << 30,
                true,
            ),
            (
                "every completion inspected, with a watermark",
                Needs::new(true, Some(4)),
                0,
                false,
            ),
            (
                "every completion inspected, without a watermark",
                Needs::new(true, None),
                0,
                false,
            ),
            (
                "inspection added later",
                Needs::new(false, Some(4)).with_look(),
                0,
                false,
            ),
            (
                "watermark raised",
                Needs::new(false, Some(1)).with_mark(Some(2)),
                1,
                true,
            ),
        ] {
            let many = needs.too_many_behind();
            assert_eq!(many.is_some_and(|many| behind < many), allowed, "{row}");
            assert!(!needs.are_none(), "{row}");
        }
        assert!(Needs::new(false, Some(4)).with_mark(None).are_none());
        assert!(!Needs::new(true, Some(4)).with_mark(None).are_none());
    }
}

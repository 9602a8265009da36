//! What the completions of an endpoint need beyond being handed out: a word
//! that is found from a completion without the endpoint (`cqe_flags`).

/// They are to be looked at one by one (`completed` of [`super::Upcalls`]).
const LOOK: u32 = 1 << 31;

/// One word; 0, as for most endpoints, is nothing.
///
/// The bits below the highest are the lowest high watermark; 0 if there is none,
/// or none that lets an endpoint hold anything, for then every one is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs(pub(crate) u32);

impl Needs {
    /// Those of an endpoint whose completions are looked at one by one, or not,
    /// and whose lowest high watermark is `mark`, if it has one.
    pub(crate) fn new(look: bool, mark: Option<u32>) -> Self {
        let word = mark.map_or(0, |mark| mark.min(LOOK - 1));
        Self(if look || mark == Some(0) {
            word | LOOK
        } else {
            word
        })
    }

    /// The same, with every completion looked at.
    pub(crate) fn with_look(self) -> Self {
        Self(self.0 | LOOK)
    }

    /// The same with another mark.
    pub(crate) fn with_mark(self, mark: Option<u32>) -> Self {
        // Whoever is looked at stays so until the endpoint is made anew.
        Self::new(self.look(), mark)
    }

    /// Nothing.
    #[inline(always)]
    pub(crate) fn are_none(self) -> bool {
        self.0 == 0
    }

    /// Completions are to be looked at one by one.
    #[inline(always)]
    pub(crate) fn look(self) -> bool {
        self.0 & LOOK != 0
    }

    /// How many receives the endpoint must not hold besides one that is handed
    /// out without a look at what it does hold; nothing if that has to be looked
    /// at whatever it is. To be asked if there are needs.
    #[inline(always)]
    pub(crate) fn too_many_behind(self) -> Option<u32> {
        (!self.look()).then_some(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_goes_by_if_all_that_may_be_held_is_within_the_marks() {
        for (row, needs, behind, allowed) in [
            ("the only one", Needs::new(false, Some(1)), 0, true),
            ("one more", Needs::new(false, Some(1)), 1, false),
            ("as many as may be", Needs::new(false, Some(4)), 3, true),
            ("one too many", Needs::new(false, Some(4)), 4, false),
            ("none may be held", Needs::new(false, Some(0)), 0, false),
            (
                "no mark is so high",
                Needs::new(false, Some(u32::MAX)),
                1 << 30,
                true,
            ),
            ("looked at anyway", Needs::new(true, Some(4)), 0, false),
            ("and no marks", Needs::new(true, None), 0, false),
            ("later", Needs::new(false, Some(4)).with_look(), 0, false),
            (
                "raised",
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

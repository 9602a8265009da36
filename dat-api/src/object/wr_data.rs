//! The 32 bits that an endpoint posts with each request, and that come back with its completion.
//!
//! | request | bits |
//! | --- | --- |
//! | send, RDMA write and read | the length in bytes; [`UNSIGNALLED`] |
//! | one that produces no event if it succeeds | [`NO_EVENT`] |
//! | bind | 20 bits of the RMR's handle, 10 of the number of its bind; [`SUPPRESSED`] or [`UNSIGNALLED`] |

use dat_engine::{Completion, CompletionOp};

use crate::handle::Handle;

/// It was posted UNSIGNALLED.
pub(super) const UNSIGNALLED: u32 = 1 << 31;
/// A signalled request posted SUPPRESS, whose completion produces no event.
pub(super) const NO_EVENT: u32 = u32::MAX;
/// The bits of the length. A message is never long enough to set [`UNSIGNALLED`].
pub(super) const LENGTH: u32 = UNSIGNALLED - 1;
/// Of a bind: no event if it succeeds.
pub(super) const SUPPRESSED: u32 = 1 << 30;
/// The bits that [`of_bind`] sets.
const BIND: u32 = SUPPRESSED - 1;
/// Of these, the number of the RMR's handle.
const NUMBER: u32 = (1 << 20) - 1;

const _: () = assert!(UNSIGNALLED & (SUPPRESSED | BIND) == 0);

/// Returns the data of the n-th bind of an RMR.
pub(super) fn of_bind(rmr: Handle, bind: u32) -> u32 {
    (bind << NUMBER.count_ones() | rmr.number() & NUMBER) & BIND
}

/// Returns whether a completion is that of the n-th bind of an RMR.
pub(super) fn is_of_bind(completion: &Completion, rmr: Handle, bind: u32) -> bool {
    completion.op == CompletionOp::Bind && completion.imm & BIND == of_bind(rmr, bind)
}

/// Returns the RMR of a bind's completion; `None` for any other.
pub(super) fn bound_rmr(completion: &Completion) -> Option<Handle> {
    (completion.op == CompletionOp::Bind)
        .then(|| Handle::from_number(completion.imm & NUMBER))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::Reservation;

    #[test]
    fn a_bind_is_identified_by_its_rmr_and_number() {
        let place = Reservation::new().expect("a slot");
        let rmr = place.handle();
        for flag in [0, UNSIGNALLED, SUPPRESSED] {
            let completion = Completion {
                op: CompletionOp::Bind,
                imm: of_bind(rmr, 5) | flag,
                ..Completion::default()
            };
            assert_eq!(bound_rmr(&completion), Some(rmr), "{flag:#x}");
            assert!(is_of_bind(&completion, rmr, 5), "{flag:#x}");
            assert!(!is_of_bind(&completion, rmr, 6), "{flag:#x}");
            let send = Completion {
                op: CompletionOp::Send,
                ..completion
            };
            assert_eq!(bound_rmr(&send), None, "{flag:#x}");
            assert!(!is_of_bind(&send, rmr, 5), "{flag:#x}");
        }
    }
}

//! `dat_ep_post_recv`: the statements R01 to R15 of its page.
//!
//! | file | statements |
//! | --- | --- |
//! | `filling` | R01 R02 R03 R07: the data, and where they are written |
//! | `notice` | R04 R05: which EVD reports, and what wakes a waiter |
//! | `calling` | R06 R14 R15: the call itself |
//! | `states` | R08: every state of the endpoint |
//! | `limits` | R09: as many as requested |
//! | `refusals` | R10 R11 R12 R13: segments and handles |

mod calling;
mod filling;
mod limits;
mod notice;
mod refusals;
mod states;

use dat::abi::*;
use dat::exports::*;

use crate::support::{Dto, End, Fixture, cookie, ok};

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;

/// Calls `dat_ep_post_recv`.
fn post(
    ep: DAT_EP_HANDLE,
    count: DAT_COUNT,
    iov: *mut DAT_LMR_TRIPLET,
    tag: u64,
    flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN {
    // SAFETY: the arrays have as many elements as the library may read, and the
    // tests keep the memory.
    unsafe { dat_ep_post_recv(ep, count, iov, cookie(tag), flags) }
}

/// Sends a message to an endpoint that has a buffer for it, and returns the
/// buffer's completion.
#[track_caller]
fn message(fixture: &Fixture, from: &End, to: &End, iov: &[DAT_LMR_TRIPLET]) -> Dto {
    ok(from.post_send(iov, 0x5e4d, DEFAULT));
    fixture.run();
    assert_eq!(from.requested().status, DAT_DTO_SUCCESS);
    to.received()
}

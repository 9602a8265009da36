//! EVDs: which test covers each row of the tables of states, streams, flags,
//! order and failures.
//!
//! W numbers refer to `evd_wait`, E to `ep_create_with_srq`, R of `ep_post_recv`,
//! L of `srq_set_lw`, N of `cno`; the others are of this module, by file.
//! `attaching` is `dat-api/src/object/evd/tests/attaching.rs`.
//!
//! | row of the states | test |
//! | --- | --- |
//! | enabled and waitable at first, also the adapter's own | `states` V01 |
//! | two independent flags, each call twice | `states` V02 |
//! | disabled, enabled: the CNO | N09, N11 |
//! | disabled, enabled: direct waiters | W07 |
//! | unwaitable: waits are refused, all else works | `states` V03, W16 |
//! | unwaitable: a blocked waiter returns, one on the CNO stays | W16, `states` V04 |
//! | configuration follows the endpoints | `states` V05, W12 |
//! | waited on: no other call takes events | W06 |
//! | waited on: the CNO is not triggered | W07, N10 |
//! | overflow is reported on the asynchronous EVD | W01 |
//! | a full EVD refuses software events without further report | `states` V03 |
//! | dead, once the device has failed a queue of it | `streams::evd_x13_a_failed_queue…` |
//!
//! | row of sharing | test |
//! | --- | --- |
//! | the flag of every stream | `sharing` S01; binds: `memory::rmr::bind::rmr_bind_needs_a_request_evd_for_it` |
//! | the merging matrix | `sharing` S02 |
//! | the same completion flags | E12, `attaching` |
//! | with other streams, threshold (or default) only | `sharing` S03, E12, `attaching` |
//! | UNSIGNALLED with its like only | E12, `attaching` |
//! | SOLICITED_WAIT with its like only | E12, `attaching` |
//! | SRQ endpoints with EVD_THRESHOLD | E12 |
//!
//! | flag | as attribute | on posts | on binds | effect |
//! | --- | --- | --- | --- | --- |
//! | DEFAULT | `flags` F01 | `flags` F02 | B | W21 |
//! | SUPPRESS | `flags` F01 | `flags` F02 | B | W21, N12; failures: `flags` F03 |
//! | SOLICITED_WAIT | `flags` F01 | `flags` F02 | B | W21, N12; threshold: W12 |
//! | UNSIGNALLED | `flags` F01 | `flags` F02 | B, `…_unsignalled_where_…` | W21, N12; threshold: W12 |
//! | BARRIER_FENCE | `flags` F01 | `flags` F02 | B | `flags` F04 |
//! | EVD_THRESHOLD | `flags` F01 | `flags` F02 | B | W10, W12 |
//! | buffers of an SRQ | – | – | – | E13 |
//!
//! B is `memory::rmr::bind::rmr_bind_completes_as_its_flags_say`. The default
//! attributes: E07.
//!
//! | event | test |
//! | --- | --- |
//! | X01 request completed | W01, E03 |
//! | X02 receive completed, of its own queue and of an SRQ | W01, E03, E01 |
//! | X03 bind completed | `memory::rmr` |
//! | X04 connection request | W01, W02 |
//! | X05 established, both sides | W01, W03 |
//! | X06 peer rejected | W02, `bad_input::leaving` |
//! | X07 refused otherwise | E14, `connections::moves`, `device connecting::service_points_are_exclusive…`, `connections::reserved::a_full_evd…` |
//! | X08 unreachable | `connections::moves` |
//! | X09 timed out | E14, `bad_input::leaving` |
//! | X10 accept completion error | R08, `bad_input::leaving` |
//! | X11 disconnected, both sides | W01, R08 |
//! | X12 broken | `ep_post_recv::filling`, E04, E09, `memory::statuses`, `connections::watermark` |
//! | X13 an EVD overflowed | W01; a queue of the device: `streams`; the asynchronous EVD itself: `streams` |
//! | X14 the adapter failed, each opening of it | `streams` |
//! | X15 an endpoint failed | `streams` |
//! | X16 asynchronous operation timed out | never: every operation here ends with its own event |
//! | X17 internal error: SRQs, watermarks | `streams`, L, `connections::watermark` (the soft mark) |
//! | X18 software event | W01, W20 |
//! | null EVDs get nothing | E02 |
//! | what connection events name, and that they carry no data | each, by `support::expect` |
//! | reasons of asynchronous errors, by the kind of the object | `libdat` `face::event`: `the_kind_of_the_object_selects…`; brought about: `streams`, L |
//!
//! | row of order | test |
//! | --- | --- |
//! | O01 first in, first out in one stream | W15 |
//! | O02 none between streams | the library guarantees more: O09, O10 |
//! | O03 each event once, to one thread | W22, N14 |
//! | O04 completions before the disconnection | `order` |
//! | O05 after one failure all fail | `order` |
//! | O06 receives in the order of their posts | W15, R; with an SRQ E01 |
//! | O07 a bind is a fence | `memory::rmr::order` |
//! | O08 a marker comes last | `order` |
//! | O09 in order of arrival from one completion queue | `arrival` |
//! | O10 by time stamp from several | `arrival`; ties, errors: `dat-api/src/object/evd/tests/merging.rs` |
//!
//! | call | failures |
//! | --- | --- |
//! | `dat_evd_create`, `_query`, `_enable`, `_disable`, `_set_unwaitable`, `_clear_unwaitable`, `_post_se`, `_dequeue` | `failures` T01, T03; of a CNO: N04 |
//! | `dat_evd_wait` | `failures` T01; W06, W11, W12, W16, W17, W18 |
//! | `dat_evd_modify_cno`, `dat_cno_*` | N04 |
//! | `dat_evd_resize` | `resize` Z03, Z04 |
//! | `dat_evd_free` | `failures` T01, T02 |

pub(crate) mod arrival;
mod failures;
mod flags;
mod order;
mod resize;
mod sharing;
mod states;
mod streams;

use std::thread::Scope;

use dat::abi::*;

use crate::support::{Evd, LONG, Waiter, joined, number, stays};

/// Waits on another thread, and returns once that thread sleeps.
fn waits<'s>(scope: &'s Scope<'s, '_>, evd: Evd, threshold: DAT_COUNT) -> Waiter<'s, DAT_RETURN> {
    let wait = move || evd.wait(DAT_TIMEOUT_INFINITE, threshold).answer;
    let waiter = Waiter::spawn(scope, wait);
    waiter.until_asleep();
    waiter
}

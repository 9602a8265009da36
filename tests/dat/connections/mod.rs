//! Connections and endpoints: every state transition, the calls that each state
//! refuses, the changes that each state allows, service points and requests, and
//! the failures of the calls.
//!
//! The tables say which test covers each row. Modules without a crate are in this
//! folder or beside it, `device` is `dat-api/tests/device`, `face` is
//! `dat-api/libdat/tests/face`, `state` is the table itself in
//! `dat-api/src/state/tests.rs`.
//!
//! # Transitions
//! | from | trigger | to | test |
//! | --- | --- | --- | --- |
//! | – | `dat_ep_create` | Unconnected | `staging`, by every test |
//! | – | `dat_ep_create_with_srq` | Unconnected | `ep_create_with_srq::receiving` e01 |
//! | – | request at a point that creates endpoints | Tentative | `provider` |
//! | Unconnected | `dat_rsp_create` | Reserved | `reserved` |
//! | Reserved | `dat_rsp_free` | Unconnected | `reserved::freed_before_a_request…`, the race in `racing` |
//! | Reserved | request | Passive | `reserved` |
//! | Unconnected | `dat_ep_connect` | Active | `staging`, `states` |
//! | Unconnected | `dat_ep_dup_connect` | Active | `dup_connect` |
//! | Active | accepted | Connected | `evd_wait::connection` w03, with private data |
//! | Active | rejected by the peer | Disconnected | `bad_input::leaving::in_active_connection_pending…` |
//! | Active | refused otherwise | Disconnected | `moves::active_refused_otherwise…`, `ep_create_with_srq::lifecycle` e14, `reserved` |
//! | Active | no route to the host | Disconnected | `moves::active_without_a_route…`; further cases: `engine/tests/cm` |
//! | Active | timeout | Disconnected | `bad_input::leaving`, `dup_connect`, hosts that answer nothing: `timeouts` |
//! | Active | `dat_ep_disconnect`, both flags | Disconnected | `moves` |
//! | Unconnected | `dat_cr_accept` | Completion Pending | `staging` (`states::refused_in_completion_pending`) |
//! | Passive, Tentative | `dat_cr_accept` with a null endpoint | Completion Pending | `moves::completion_pending_follows…`, `moves::passive…`, `provider` |
//! | Passive | `dat_cr_reject` | Unconnected | `reserved::rejected…`; `dat_cr_handoff`: `handoff::each_point…` |
//! | Tentative | `dat_cr_reject` | gone | `provider::an_accepted_endpoint…`; `dat_cr_handoff`: `handoff::each_point…` |
//! | Completion Pending | requester is ready | Connected | `evd_wait::connection` w03 |
//! | Completion Pending | requester is gone | Disconnected | `bad_input::leaving`, `ep_post_recv::states` r08, `handoff` |
//! | Completion Pending | requester stops responding | Disconnected | `killed::accepted_a_requester_that_stops_responding` |
//! | Completion Pending | `dat_ep_disconnect`, both flags | Disconnected | `moves::completion_pending…` |
//! | Connected | graceful disconnect | Disconnect Pending | `staging`, `device` `disconnecting`; binds: `moves::connected_a_graceful…` |
//! | Connected | abrupt disconnect | Disconnected | `moves`, `device` `disconnecting` |
//! | Connected | the peer disconnects, or is killed | Disconnected | `moves::connected…`, `killed` |
//! | Connected | failed transfer, bad remote access | Disconnected | `device` `disconnecting` r07 and the one after the next |
//! | Connected | hard watermark | Disconnected | `watermark` |
//! | Disconnect Pending | done | Disconnected | `device` `disconnecting`, `ep_post_recv::states` r08 |
//! | Disconnect Pending | abrupt, graceful disconnect | Disconnected, the same | `moves` |
//! | Disconnected | `dat_ep_disconnect` | the same, no event | `moves` |
//! | Disconnected | `dat_ep_reset` | Unconnected | `moves`; private data end: `evd_wait::connection` w04 |
//! | Unconnected | `dat_ep_reset` | the same, receives stay | `moves::unconnected…` |
//! | six states | `dat_ep_free` | gone | `moves::it_is_freed…`; effect on the peer: `bad_input::leaving` |
//!
//! # By state
//! | what | test |
//! | --- | --- |
//! | calls refused, with the state as subtype | `states::refused_in_…`, all nine |
//! | `dat_ep_post_recv` in every state | `ep_post_recv::states` r08 |
//! | never on a shared queue | `ep_create_with_srq::receiving` e06 |
//! | `dat_ep_get_status`, `dat_ep_query`, `dat_ep_recv_query`, `dat_ep_set_watermark` in every state | `states` |
//! | addresses of `dat_ep_query` | `states` (`fields_in`), `states::the_active_side…` |
//! | groups of `dat_ep_modify` in each state | `modify` |
//! | bad values of `dat_ep_modify` | `values`, `modify`, `device` `attributes`, `face` `roles` |
//!
//! # Private data
//! | what | test |
//! | --- | --- |
//! | whole, and to one side only | `evd_wait::connection` w03, w05 |
//! | too long | `evd_wait::connection` w05, `bad_input::private_data`, `dup_connect` |
//! | null, negative | `evd_wait::connection` w05, `face` `arguments` |
//! | the caller may overwrite the bytes on return | `evd_wait::connection` w05, the last |
//! | how long it stays valid | `evd_wait::connection` w02, w04 |
//!
//! # Failures
//! | call | test |
//! | --- | --- |
//! | no resources for any of these | `resources`, with cleanup after a partial failure |
//! | `dat_psp_create`, `dat_psp_create_any` | `provider`, `bad_input::arguments`, `face` `arguments` and `roles` |
//! | `dat_rsp_create` | `reserved::an_illegal_call…`, `face` `arguments` and `roles` |
//! | queries and frees of points | `face` `queries` and `handles`; a request meanwhile: `racing` |
//! | `dat_cr_query`, `dat_cr_accept`, `dat_cr_reject` | `provider::an_endpoint_needs…`, `device` `connecting`, `evd_wait::connection` w02, `face` |
//! | `dat_cr_handoff` | `handoff::an_illegal_handoff…` |
//! | `dat_ep_create` | `device` `attributes`, `face` `roles` and `arguments`, `bad_input::arguments` |
//! | `dat_ep_create_with_srq` | `ep_create_with_srq` e07, e09, e10, e12 |
//! | `dat_ep_connect` | `bad_input::arguments`, `device` `connecting`, `face` `arguments` |
//! | `dat_ep_dup_connect` | `dup_connect::an_illegal_call…` |
//! | `dat_ep_disconnect` | `states`, `bad_input::arguments` |
//! | `dat_ep_get_status`, `dat_ep_query`, `dat_ep_reset`, `dat_ep_free` | `states`, `moves`, `face` `handles` and `queries` |
//! | `dat_ep_recv_query` | `ep_recv_query` q04, q07 |
//! | `dat_ep_set_watermark` | `watermark::attributes…`, `face` `handles` |
//!
//! `killed` kills the peer's process in each of these states. `storm` has many
//! connections at a time, also to processes that are killed.

mod dup_connect;
mod handoff;
mod killed;
mod modify;
mod moves;
mod provider;
mod racing;
mod reserved;
pub mod staging;
mod states;
mod storm;
mod timeouts;
mod values;
mod watermark;

use dat::abi::*;
use dat::exports::*;

use crate::support::{End, Fixture, Shape, ep_info, established, ok};

/// Creates an endpoint with every capability.
fn end(fixture: &Fixture) -> End {
    End::new(fixture, &Shape::default())
}

/// Sends one message from one end to the other.
#[track_caller]
fn exchange(fixture: &Fixture, from: &End, to: &End) {
    let memory = fixture.memory(128);
    ok(to.post_recv(&[memory.segment(64, 8)], 1));
    ok(from.post_send(&[memory.segment(0, 8)], 2, DAT_COMPLETION_DEFAULT_FLAG));
    fixture.run();
    assert_eq!(to.received().status, DAT_DTO_SUCCESS);
    assert_eq!(from.requested().status, DAT_DTO_SUCCESS);
}

/// Sets a zone and EVDs for an endpoint that a request has brought.
#[track_caller]
fn set_parts(fixture: &Fixture, ep: DAT_EP_HANDLE) -> End {
    let mut end = End::without_ep(fixture, &Shape::default());
    end.ep = ep;
    let mut change = ep_info(ep);
    change.pz_handle = fixture.pz;
    change.recv_evd_handle = end.recv;
    change.request_evd_handle = end.request;
    change.connect_evd_handle = end.connect;
    let fields = DAT_EP_FIELD_PZ_HANDLE
        | DAT_EP_FIELD_RECV_EVD_HANDLE
        | DAT_EP_FIELD_REQUEST_EVD_HANDLE
        | DAT_EP_FIELD_CONNECT_EVD_HANDLE;
    // SAFETY: live handles; the values are local.
    ok(unsafe { dat_ep_modify(ep, fields, &raw const change) });
    end
}

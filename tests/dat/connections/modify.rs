//! Section 4.2: what `dat_ep_modify` may change in which state.

use dat::abi::*;
use dat::exports::*;

use super::staging::{EndpointInState, STATES, subtype_of};
use crate::support::{End, Fixture, Pair, Shape, device, ep_info, fails_with, ok, state_of};

const UNCONNECTED: DAT_EP_STATE = DAT_EP_STATE_UNCONNECTED;
const RESERVED: DAT_EP_STATE = DAT_EP_STATE_RESERVED;
const PASSIVE: DAT_EP_STATE = DAT_EP_STATE_PASSIVE_CONNECTION_PENDING;
const TENTATIVE: DAT_EP_STATE = DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING;

/// Fields, and the states in which they may change.
const GROUPS: [(&str, &[DAT_EP_PARAM_MASK], &[DAT_EP_STATE]); 4] = [
    (
        "never",
        &[
            DAT_EP_FIELD_IA_HANDLE,
            DAT_EP_FIELD_EP_STATE,
            DAT_EP_FIELD_LOCAL_IA_ADDRESS_PTR,
            DAT_EP_FIELD_LOCAL_PORT_QUAL,
            DAT_EP_FIELD_REMOTE_IA_ADDRESS_PTR,
            DAT_EP_FIELD_REMOTE_PORT_QUAL,
            DAT_EP_FIELD_SRQ_HANDLE,
            DAT_EP_FIELD_EP_ATTR_SRQ_SOFT_HW,
        ],
        &[],
    ),
    ("zone", &[DAT_EP_FIELD_PZ_HANDLE], &[UNCONNECTED, TENTATIVE]),
    (
        "EVDs and attributes",
        &[
            DAT_EP_FIELD_RECV_EVD_HANDLE,
            DAT_EP_FIELD_REQUEST_EVD_HANDLE,
            DAT_EP_FIELD_CONNECT_EVD_HANDLE,
            DAT_EP_FIELD_EP_ATTR_SERVICE_TYPE,
            DAT_EP_FIELD_EP_ATTR_MAX_MESSAGE_SIZE,
            DAT_EP_FIELD_EP_ATTR_MAX_RDMA_SIZE,
            DAT_EP_FIELD_EP_ATTR_QOS,
            DAT_EP_FIELD_EP_ATTR_RECV_COMPLETION_FLAGS,
            DAT_EP_FIELD_EP_ATTR_REQUEST_COMPLETION_FLAGS,
            DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS,
            DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS,
            DAT_EP_FIELD_EP_ATTR_MAX_RECV_IOV,
            DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_IOV,
            DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IN,
            DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_OUT,
            DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IOV,
            DAT_EP_FIELD_EP_ATTR_MAX_RDMA_WRITE_IOV,
        ],
        &[UNCONNECTED, RESERVED, PASSIVE, TENTATIVE],
    ),
    (
        "of transport and provider",
        &[
            DAT_EP_FIELD_EP_ATTR_NUM_TRANSPORT_ATTR,
            DAT_EP_FIELD_EP_ATTR_TRANSPORT_SPECIFIC_ATTR,
            DAT_EP_FIELD_EP_ATTR_NUM_PROVIDER_ATTR,
            DAT_EP_FIELD_EP_ATTR_PROVIDER_SPECIFIC_ATTR,
        ],
        &[UNCONNECTED],
    ),
];

fn modify(ep: DAT_EP_HANDLE, field: DAT_EP_PARAM_MASK, to: &DAT_EP_PARAM) -> DAT_RETURN {
    // SAFETY: a live endpoint; the values are local.
    unsafe { dat_ep_modify(ep, field, std::ptr::from_ref(to)) }
}

fn each_group_in(state: DAT_EP_STATE) {
    let fixture = Fixture::new();
    let staged = EndpointInState::new(&fixture, state);
    let ep = staged.end.ep;
    let now = ep_info(ep);
    for (group, fields, legal) in GROUPS {
        for &field in fields {
            println!("state {state}: {group}, field {field:#x}");
            let answer = modify(ep, field, &now);
            if legal.is_empty() {
                fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
            } else if legal.contains(&state) {
                ok(answer);
            } else {
                fails_with(answer, DAT_INVALID_STATE, subtype_of(state));
            }
            assert_eq!(state_of(ep), state);
        }
    }
    if [UNCONNECTED, RESERVED, PASSIVE].contains(&state) {
        fits_afterwards(&fixture, &staged);
    }
}

/// A change that has succeeded is not undone by a refused one.
fn fits_afterwards(fixture: &Fixture, staged: &EndpointInState) {
    let ep = staged.end.ep;
    let mut to = ep_info(ep);
    to.ep_attr.max_recv_dtos = 5;
    to.connect_evd_handle = fixture.evd(4, DAT_EVD_CONNECTION_FLAG);
    let fields = DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS | DAT_EP_FIELD_CONNECT_EVD_HANDLE;
    ok(modify(ep, fields, &to));
    let mut bad = to;
    bad.ep_attr.max_recv_dtos = 0;
    fails_with(
        modify(ep, fields, &bad),
        DAT_INVALID_PARAMETER,
        DAT_INVALID_ARG3,
    );
    let info = ep_info(ep);
    assert_eq!(info.ep_attr.max_recv_dtos, 5);
    assert_eq!(info.connect_evd_handle, to.connect_evd_handle);
}

#[test]
fn each_group_in_each_state() {
    for state in STATES {
        each_group_in(state);
    }
}

/// A separate test: the fixture for this state needs the socket connection
/// manager.
#[test]
fn each_group_in_completion_pending() {
    each_group_in(DAT_EP_STATE_COMPLETION_PENDING);
}

/// Receives that were posted before a change of zone belong to the old zone: the
/// device refuses them, or the call refuses the change.
#[test]
fn a_zone_does_not_change_under_receives() {
    let fixture = Fixture::new();
    let staged = EndpointInState::new(&fixture, UNCONNECTED);
    let memory = fixture.memory(64);
    ok(staged.end.post_recv(&[memory.segment(0, 8)], 1));
    let mut to = ep_info(staged.end.ep);
    to.pz_handle = fixture.pz();
    fails_with(
        modify(staged.end.ep, DAT_EP_FIELD_PZ_HANDLE, &to),
        DAT_INVALID_STATE,
        DAT_INVALID_STATE_EP_UNCONNECTED,
    );
    assert_eq!(ep_info(staged.end.ep).pz_handle, fixture.pz);
    device::run();
}

/// Creates an endpoint with one EVD for everything but connections, and
/// unsignalled completions.
fn unsignalled(fixture: &Fixture) -> (End, DAT_EVD_HANDLE) {
    let mixed = fixture.evd(64, DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG);
    let shape = Shape {
        recv_flags: DAT_COMPLETION_UNSIGNALLED_FLAG,
        request_flags: DAT_COMPLETION_UNSIGNALLED_FLAG,
        ..Shape::default()
    };
    let mut end = End::without_ep(fixture, &shape);
    let attributes = shape.attributes();
    // SAFETY: live handles; the result is writable.
    unsafe {
        ok(dat_evd_free(end.recv));
        ok(dat_evd_free(end.request));
        (end.recv, end.request) = (mixed, mixed);
        ok(dat_ep_create(
            fixture.ia,
            fixture.pz,
            mixed,
            mixed,
            end.connect,
            &raw const attributes,
            &raw mut end.ep,
        ));
    }
    (end, mixed)
}

const FLAGS: DAT_EP_PARAM_MASK =
    DAT_EP_FIELD_EP_ATTR_RECV_COMPLETION_FLAGS | DAT_EP_FIELD_EP_ATTR_REQUEST_COMPLETION_FLAGS;

/// A change that is legal as a whole succeeds, although no order of its parts
/// would be legal: flags that suit an EVD for connections are set and cleared
/// together with that EVD.
#[test]
fn a_change_is_checked_as_a_whole() {
    let fixture = Fixture::new();
    let (end, mixed) = unsignalled(&fixture);
    let whole = FLAGS | DAT_EP_FIELD_CONNECT_EVD_HANDLE;
    let before = ep_info(end.ep);
    let to = |evd, flags| {
        let mut change = before;
        change.connect_evd_handle = evd;
        change.ep_attr.recv_completion_flags = flags;
        change.ep_attr.request_completion_flags = flags;
        change
    };
    let (threshold, unsignalled) = (
        to(mixed, DAT_COMPLETION_EVD_THRESHOLD_FLAG),
        to(end.connect, DAT_COMPLETION_UNSIGNALLED_FLAG),
    );
    let bad = |answer| fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    bad(modify(end.ep, DAT_EP_FIELD_CONNECT_EVD_HANDLE, &threshold));
    assert_eq!(ep_info(end.ep).connect_evd_handle, end.connect);
    ok(modify(end.ep, whole, &threshold));
    assert_eq!(ep_info(end.ep).connect_evd_handle, mixed);
    bad(modify(end.ep, FLAGS, &unsignalled));
    assert_eq!(
        ep_info(end.ep).ep_attr.recv_completion_flags,
        DAT_COMPLETION_EVD_THRESHOLD_FLAG
    );
    ok(modify(end.ep, whole, &unsignalled));
    assert_eq!(ep_info(end.ep).connect_evd_handle, end.connect);
    // The EVD for connections is no longer in use. SAFETY: live handles.
    unsafe {
        ok(dat_ep_free(end.ep));
        ok(dat_evd_free(end.connect));
        ok(dat_evd_free(mixed));
    }
}

/// A change that fails while the queue pair is created again has changed nothing:
/// zone, EVDs, flags and depths are as before, and the endpoint works.
#[test]
fn a_change_that_fails_late_changes_nothing() {
    let fixture = Fixture::strict();
    let (end, mixed) = unsignalled(&fixture);
    // Its streams have different flags, which is refused on strict adapters.
    let taken = End::new(&fixture, &Shape::default());
    let zone = fixture.pz();
    let before = ep_info(end.ep);
    let mut change = before;
    change.pz_handle = zone;
    change.recv_evd_handle = taken.recv;
    change.connect_evd_handle = DAT_HANDLE_NULL;
    change.ep_attr.max_request_dtos = 100;
    let fields = DAT_EP_FIELD_PZ_HANDLE
        | DAT_EP_FIELD_RECV_EVD_HANDLE
        | DAT_EP_FIELD_CONNECT_EVD_HANDLE
        | DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS;
    let answer = modify(end.ep, fields, &change);
    fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    let after = ep_info(end.ep);
    assert_eq!(
        (
            after.pz_handle,
            after.recv_evd_handle,
            after.connect_evd_handle
        ),
        (fixture.pz, mixed, end.connect)
    );
    assert_eq!(
        after.ep_attr.max_request_dtos,
        before.ep_attr.max_request_dtos
    );
    // SAFETY: a live zone.
    ok(unsafe { dat_pz_free(zone) });
    let (other, _) = unsignalled(&fixture);
    let pair = Pair::connect(&fixture, end, other);
    super::exchange(&fixture, &pair.active, &pair.passive);
}

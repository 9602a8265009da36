//! Calls that are refused in each state of an endpoint, and calls that succeed in
//! all states.

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use super::end;
use super::staging::{EndpointInState, STATES, subtype_of};
use crate::support::{
    Fixture, Pair, ServicePoint, Shape, accept, cookie, ep_info, fails_with, held, here_ip, ip_at,
    ok, on_free_qualifier, state_of,
};

const UNCONNECTED: DAT_EP_STATE = DAT_EP_STATE_UNCONNECTED;
const ACTIVE: DAT_EP_STATE = DAT_EP_STATE_ACTIVE_CONNECTION_PENDING;
const CONNECTED: DAT_EP_STATE = DAT_EP_STATE_CONNECTED;
const PENDING: DAT_EP_STATE = DAT_EP_STATE_DISCONNECT_PENDING;
const DISCONNECTED: DAT_EP_STATE = DAT_EP_STATE_DISCONNECTED;
const COMPLETION: DAT_EP_STATE = DAT_EP_STATE_COMPLETION_PENDING;

type Call<'a> = Box<dyn Fn(DAT_EP_HANDLE) -> DAT_RETURN + 'a>;

/// Every call whose result depends on the state, and the states in which it is
/// legal.
fn calls<'a>(
    fixture: &'a Fixture,
    service_point: &'a ServicePoint,
    model: &'a Pair,
    cr: DAT_CR_HANDLE,
) -> Vec<(&'static str, &'static [DAT_EP_STATE], Call<'a>)> {
    let dup = |ep, of| {
        // SAFETY: live handles, no private data.
        unsafe { dat_ep_dup_connect(ep, of, 1_000_000, 0, ptr::null_mut(), 0) }
    };
    let idle = end(fixture);
    let mut rmr = ptr::null_mut();
    // SAFETY: a live zone; the result is writable.
    ok(unsafe { dat_rmr_create(fixture.pz, &raw mut rmr) });
    vec![
        (
            "dat_ep_connect",
            &[UNCONNECTED],
            Box::new(|ep| service_point.connect(ep, &[])),
        ),
        (
            "dat_ep_dup_connect",
            &[UNCONNECTED],
            Box::new(move |ep| dup(ep, model.active.ep)),
        ),
        (
            "dat_ep_dup_connect, as model",
            &[CONNECTED],
            Box::new(move |ep| dup(idle.ep, ep)),
        ),
        (
            "dat_ep_disconnect, abrupt",
            &[ACTIVE, CONNECTED, PENDING, DISCONNECTED, COMPLETION],
            Box::new(|ep| {
                // SAFETY: a live endpoint.
                unsafe { dat_ep_disconnect(ep, DAT_CLOSE_ABRUPT_FLAG) }
            }),
        ),
        (
            "dat_ep_disconnect, graceful",
            &[ACTIVE, CONNECTED, PENDING, DISCONNECTED, COMPLETION],
            Box::new(|ep| {
                // SAFETY: a live endpoint.
                unsafe { dat_ep_disconnect(ep, DAT_CLOSE_GRACEFUL_FLAG) }
            }),
        ),
        (
            "dat_ep_reset",
            &[UNCONNECTED, DISCONNECTED],
            Box::new(|ep| {
                // SAFETY: a live endpoint.
                unsafe { dat_ep_reset(ep) }
            }),
        ),
        (
            "dat_ep_free",
            &[
                UNCONNECTED,
                ACTIVE,
                CONNECTED,
                PENDING,
                DISCONNECTED,
                COMPLETION,
            ],
            Box::new(|ep| {
                // SAFETY: a live endpoint.
                unsafe { dat_ep_free(ep) }
            }),
        ),
        (
            "dat_ep_post_send",
            &[CONNECTED, DISCONNECTED],
            Box::new(|ep| {
                // SAFETY: a live endpoint, no segments.
                unsafe { dat_ep_post_send(ep, 0, ptr::null_mut(), cookie(1), 0) }
            }),
        ),
        (
            "dat_ep_post_rdma_read",
            &[CONNECTED, DISCONNECTED],
            Box::new(|ep| {
                let remote = nothing();
                // SAFETY: a live endpoint, no segments.
                unsafe {
                    dat_ep_post_rdma_read(ep, 0, ptr::null_mut(), cookie(1), &raw const remote, 0)
                }
            }),
        ),
        (
            "dat_ep_post_rdma_write",
            &[CONNECTED, DISCONNECTED],
            Box::new(|ep| {
                let remote = nothing();
                // SAFETY: a live endpoint, no segments.
                unsafe {
                    dat_ep_post_rdma_write(ep, 0, ptr::null_mut(), cookie(1), &raw const remote, 0)
                }
            }),
        ),
        (
            "dat_rmr_bind",
            &[CONNECTED, DISCONNECTED],
            Box::new(move |ep| {
                // SAFETY: integers, for which zero is valid; this segment
                // unbinds.
                let none: DAT_LMR_TRIPLET = unsafe { std::mem::zeroed() };
                let mut context = 0;
                // SAFETY: live handles; the result is writable.
                unsafe { dat_rmr_bind(rmr, &raw const none, 0, ep, cookie(1), 0, &raw mut context) }
            }),
        ),
        (
            "dat_rsp_create",
            &[UNCONNECTED],
            Box::new(|ep| {
                let mut answer = DAT_SUCCESS;
                let mut rsp = ptr::null_mut();
                on_free_qualifier(|qualifier| {
                    // SAFETY: live handles; the result is writable.
                    answer = unsafe {
                        dat_rsp_create(
                            fixture.ia,
                            qualifier,
                            ep,
                            service_point.requests,
                            &raw mut rsp,
                        )
                    };
                    match answer & 0x3fff_0000 {
                        DAT_CONN_QUAL_IN_USE => answer,
                        _ => DAT_SUCCESS,
                    }
                });
                answer
            }),
        ),
        (
            "dat_cr_accept that names it",
            &[UNCONNECTED],
            Box::new(move |ep| accept(cr, ep)),
        ),
    ]
}

fn nothing() -> DAT_RMR_TRIPLET {
    // SAFETY: integers, for which zero is valid.
    unsafe { std::mem::zeroed() }
}

/// Makes every call that is illegal in a state. It must be refused with the state
/// as its subtype, and leave the endpoint unchanged.
fn refused_in(state: DAT_EP_STATE) {
    for is_strict in [false, true] {
        refused_with(is_strict, state);
    }
}

fn refused_with(is_strict: bool, state: DAT_EP_STATE) {
    let fixture = Fixture::with_strict(is_strict);
    let service_point = ServicePoint::new(&fixture);
    let model = Pair::new(&fixture, &Shape::default());
    let requester = end(&fixture);
    ok(service_point.connect(requester.ep, &[]));
    let cr = service_point.take_request();
    let staged = EndpointInState::new(&fixture, state);
    let ep = staged.end.ep;
    if state == DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING {
        // Missing objects would be reported first.
        super::set_parts(&fixture, ep);
    }
    let mut refused = 0;
    for (row, legal, call) in calls(&fixture, &service_point, &model, cr) {
        if legal.contains(&state) {
            continue;
        }
        println!("state {state}: {row}");
        fails_with(call(ep), DAT_INVALID_STATE, subtype_of(state));
        assert_eq!(state_of(ep), state, "{row}");
        refused += 1;
    }
    assert!(refused > 3, "of thirteen");
    answered_in(&staged, state);
    fields_in(&staged, state, is_strict);
    // The request is still valid.
    let last = end(&fixture);
    ok(accept(cr, last.ep));
}

/// These calls succeed in every state, and `dat_ep_get_status` with any
/// combination of results.
fn answered_in(staged: &EndpointInState, state: DAT_EP_STATE) {
    let ep = staged.end.ep;
    let (mut reported, mut recv_idle, mut request_idle) = (99, 99, 99);
    // SAFETY: the results are writable or null.
    unsafe {
        ok(dat_ep_get_status(
            ep,
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut(),
        ));
        ok(dat_ep_get_status(
            ep,
            &raw mut reported,
            &raw mut recv_idle,
            &raw mut request_idle,
        ));
        ok(dat_ep_set_watermark(
            ep,
            DAT_WATERMARK_INFINITE,
            DAT_WATERMARK_INFINITE,
        ));
    }
    assert_eq!((reported, recv_idle), (state, DAT_TRUE));
    assert_eq!(
        request_idle != DAT_FALSE,
        state != DAT_EP_STATE_DISCONNECT_PENDING
    );
    assert_eq!(held(ep), (0, 0));
}

/// Section 4.1: which addresses `dat_ep_query` returns. Without `DAT_STRICT`, there
/// is always a remote one; see `habits::query`.
fn fields_in(staged: &EndpointInState, state: DAT_EP_STATE, is_strict: bool) {
    let info = ep_info(staged.end.ep);
    assert_eq!(info.ep_state, state);
    assert_eq!(ip_at(info.local_ia_address_ptr), here_ip());
    let has_remote = !matches!(
        state,
        DAT_EP_STATE_UNCONNECTED | DAT_EP_STATE_RESERVED | DAT_EP_STATE_DISCONNECTED
    );
    assert_eq!(
        !info.remote_ia_address_ptr.is_null(),
        has_remote || !is_strict
    );
    if has_remote {
        assert_eq!(ip_at(info.remote_ia_address_ptr), here_ip());
    }
    assert_eq!(info.remote_port_qual != 0, has_remote);
    let has_local = has_remote || info.local_port_qual != 0;
    assert_eq!(info.local_port_qual != 0, has_local);
}

macro_rules! refused {
    ($($test:ident: $state:ident),* $(,)?) => {
        $(#[test]
        fn $test() {
            refused_in($state);
        })*

        #[test]
        fn no_state_is_left_out() {
            let mut tested = [$($state),*];
            let mut all = [&STATES[..], &[DAT_EP_STATE_COMPLETION_PENDING]].concat();
            tested.sort_unstable();
            all.sort_unstable();
            assert_eq!(tested[..], all);
        }
    };
}

refused! {
    refused_in_unconnected: DAT_EP_STATE_UNCONNECTED,
    refused_in_reserved: DAT_EP_STATE_RESERVED,
    refused_in_passive_connection_pending: DAT_EP_STATE_PASSIVE_CONNECTION_PENDING,
    refused_in_active_connection_pending: DAT_EP_STATE_ACTIVE_CONNECTION_PENDING,
    refused_in_tentative_connection_pending: DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING,
    refused_in_connected: DAT_EP_STATE_CONNECTED,
    refused_in_disconnect_pending: DAT_EP_STATE_DISCONNECT_PENDING,
    refused_in_disconnected: DAT_EP_STATE_DISCONNECTED,
    refused_in_completion_pending: DAT_EP_STATE_COMPLETION_PENDING,
}

/// Section 4.1, the active side: its own port is the one that the peer's request
/// reports.
#[test]
fn the_active_side_reports_the_port_that_it_connects_from() {
    let fixture = Fixture::new();
    let service_point = ServicePoint::new(&fixture);
    let (active, passive) = (end(&fixture), end(&fixture));
    ok(service_point.connect(active.ep, &[]));
    let cr = service_point.take_request();
    let request = crate::support::cr_info(cr);
    assert_eq!(ip_at(request.remote_ia_address_ptr), here_ip());
    let port = request.remote_port_qual;
    assert_eq!(ep_info(active.ep).local_port_qual, port);
    ok(accept(cr, passive.ep));
    super::established([&active, &passive]);
    let (here, there) = (ep_info(active.ep), ep_info(passive.ep));
    assert_eq!(
        (here.local_port_qual, here.remote_port_qual),
        (port, service_point.qualifier)
    );
    assert_eq!(
        (there.local_port_qual, there.remote_port_qual),
        (service_point.qualifier, port)
    );
}

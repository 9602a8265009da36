//! Service points that create an endpoint for each request
//! (`DAT_PSP_PROVIDER_FLAG`), and service points on a qualifier that the library
//! chooses.

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use super::{end, established, exchange, set_parts};
use crate::support::{
    End, Fixture, ServicePoint, Shape, abilities, accept, arrival, cr_info, ep_info, expect, fails,
    fails_with, nothing_on, ok, state_of,
};

const TENTATIVE: DAT_EP_STATE = DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING;

#[test]
fn the_library_creates_endpoints_if_asked() {
    let fixture = Fixture::new();
    assert_eq!(abilities(&fixture).1.ep_creator, DAT_PSP_CREATES_EP_IFASKED);
    for (flags, brings) in [
        (DAT_PSP_CONSUMER_FLAG, false),
        (DAT_PSP_PROVIDER_FLAG, true),
    ] {
        let service_point = ServicePoint::of_kind(&fixture, flags);
        // SAFETY: integers and pointers, for which zero is valid.
        let mut info: DAT_PSP_PARAM = unsafe { std::mem::zeroed() };
        // SAFETY: the result is writable.
        ok(unsafe { dat_psp_query(service_point.psp, DAT_PSP_FIELD_ALL, &raw mut info) });
        assert_eq!(
            (
                info.ia_handle,
                info.conn_qual,
                info.evd_handle,
                info.psp_flags
            ),
            (
                fixture.ia,
                service_point.qualifier,
                service_point.requests,
                flags
            )
        );
        let active = end(&fixture);
        ok(service_point.connect(active.ep, &[]));
        let cr = service_point.take_request();
        assert_eq!(!cr_info(cr).local_ep_handle.is_null(), brings);
    }
}

/// The accept fails while the endpoint lacks a zone or an EVD.
#[test]
fn an_endpoint_needs_a_zone_and_an_evd_before_it_is_accepted() {
    let fixture = Fixture::new();
    let service_point = ServicePoint::of_kind(&fixture, DAT_PSP_PROVIDER_FLAG);
    let active = end(&fixture);
    ok(service_point.connect(active.ep, b"hello"));
    let event = arrival(service_point.requests);
    let cr = event.cr_handle;
    let brought = cr_info(cr).local_ep_handle;
    let info = ep_info(brought);
    assert_eq!(info.ep_state, TENTATIVE);
    for handle in [
        info.pz_handle,
        info.recv_evd_handle,
        info.request_evd_handle,
        info.connect_evd_handle,
        info.srq_handle,
    ] {
        assert!(handle.is_null());
    }
    assert_eq!(info.local_port_qual, service_point.qualifier);
    assert_eq!(info.remote_port_qual, cr_info(cr).remote_port_qual);
    // Attributes that fit the requester.
    let shape = Shape::default();
    assert_eq!(
        (
            info.ep_attr.max_rdma_read_in,
            info.ep_attr.max_rdma_read_out
        ),
        (shape.reads, shape.reads)
    );
    let bad = |answer| fails_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
    bad(accept(cr, DAT_HANDLE_NULL));
    let parts = End::without_ep(&fixture, &shape);
    let mut change = info;
    change.pz_handle = fixture.pz;
    change.connect_evd_handle = parts.connect;
    // SAFETY: a live endpoint; the values are local.
    let modify = |fields| ok(unsafe { dat_ep_modify(brought, fields, &raw const change) });
    modify(DAT_EP_FIELD_PZ_HANDLE);
    bad(accept(cr, DAT_HANDLE_NULL));
    modify(DAT_EP_FIELD_CONNECT_EVD_HANDLE);
    let other = end(&fixture);
    bad(accept(cr, other.ep));
    ok(accept(cr, DAT_HANDLE_NULL));
    expect(active.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
    expect(parts.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
    assert_eq!(state_of(brought), DAT_EP_STATE_CONNECTED);
}

/// After an accept the application owns the endpoint and frees it. After a reject
/// it does not exist.
#[test]
fn an_accepted_endpoint_is_the_applications_and_a_rejected_one_is_freed() {
    let mut fixture = Fixture::new();
    let service_point = ServicePoint::of_kind(&fixture, DAT_PSP_PROVIDER_FLAG);
    let actives = [end(&fixture), end(&fixture)];
    ok(service_point.connect(actives[0].ep, &[]));
    let cr = service_point.take_request();
    let passive = set_parts(&fixture, cr_info(cr).local_ep_handle);
    ok(accept(cr, DAT_HANDLE_NULL));
    established([&actives[0], &passive]);
    exchange(&fixture, &actives[0], &passive);

    ok(service_point.connect(actives[1].ep, &[]));
    let cr = service_point.take_request();
    let rejected = set_parts(&fixture, cr_info(cr).local_ep_handle);
    // SAFETY: a live request; then no endpoint any more.
    unsafe {
        ok(dat_cr_reject(cr));
        fails_with(
            dat_ep_reset(rejected.ep),
            DAT_INVALID_HANDLE,
            DAT_INVALID_HANDLE_EP,
        );
    }
    expect(actives[1].connect, DAT_CONNECTION_EVENT_PEER_REJECTED);
    nothing_on(rejected.connect);
    service_point.close();
    // SAFETY: live handles.
    unsafe {
        for end in actives {
            ok(dat_ep_free(end.ep));
        }
        expect(passive.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
        for end in [actives[0], actives[1], rejected] {
            for evd in [end.recv, end.request, end.connect] {
                ok(dat_evd_free(evd));
            }
        }
        // The endpoint keeps the zone and the adapter in use.
        fails_with(
            dat_pz_free(fixture.pz),
            DAT_INVALID_STATE,
            DAT_INVALID_STATE_PZ_IN_USE,
        );
        fails_with(
            fixture.close(DAT_CLOSE_GRACEFUL_FLAG),
            DAT_INVALID_STATE,
            DAT_INVALID_STATE_IA_IN_USE,
        );
        ok(dat_ep_free(passive.ep));
        for evd in [passive.recv, passive.request, passive.connect] {
            ok(dat_evd_free(evd));
        }
        ok(dat_pz_free(fixture.pz));
    }
    ok(fixture.close(DAT_CLOSE_GRACEFUL_FLAG));
}

/// The library chooses an unused and unprivileged qualifier.
#[test]
fn any_qualifier_is_free_and_unprivileged() {
    let fixture = Fixture::new();
    let service_points: Vec<ServicePoint> = (0..20).map(|_| ServicePoint::new(&fixture)).collect();
    let mut qualifiers: Vec<_> = service_points
        .iter()
        .map(|service_point| service_point.qualifier)
        .collect();
    assert!(qualifiers.iter().all(|&qualifier| qualifier >= 1024));
    qualifiers.sort_unstable();
    qualifiers.dedup();
    assert_eq!(qualifiers.len(), service_points.len());
}

/// The rows of `dat_psp_create` and `dat_psp_create_any` in section 8 that need
/// live handles. `bad_input` covers a qualifier in use; libdat's `face` tests
/// cover wrong handles, flags and null results.
#[test]
fn an_evd_without_the_request_stream_is_refused() {
    let fixture = Fixture::new();
    let deaf = fixture.evd(4, DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG);
    let (mut psp, mut any) = (ptr::null_mut(), 0);
    // SAFETY: live handles; results are writable.
    unsafe {
        fails_with(
            dat_psp_create(fixture.ia, 7000, deaf, DAT_PSP_CONSUMER_FLAG, &raw mut psp),
            DAT_INVALID_HANDLE,
            DAT_INVALID_HANDLE_EVD_CR,
        );
        fails_with(
            dat_psp_create_any(
                fixture.ia,
                &raw mut any,
                deaf,
                DAT_PSP_CONSUMER_FLAG,
                &raw mut psp,
            ),
            DAT_INVALID_HANDLE,
            DAT_INVALID_HANDLE_EVD_CR,
        );
        fails_with(
            dat_psp_create(
                fixture.ia,
                0,
                fixture.evd(4, DAT_EVD_CR_FLAG),
                DAT_PSP_CONSUMER_FLAG,
                &raw mut psp,
            ),
            DAT_INVALID_PARAMETER,
            DAT_INVALID_ARG2,
        );
    }
    assert!(psp.is_null());
}

/// The endpoint of an unanswered request is freed with the adapter, whether it is
/// closed gracefully or not.
#[test]
fn an_unanswered_endpoint_is_freed_with_the_adapter() {
    let mut fixture = Fixture::new();
    let service_point = ServicePoint::of_kind(&fixture, DAT_PSP_PROVIDER_FLAG);
    let active = end(&fixture);
    ok(service_point.connect(active.ep, &[]));
    let cr = service_point.take_request();
    let brought = cr_info(cr).local_ep_handle;
    // SAFETY: live handles.
    unsafe {
        ok(dat_ep_free(active.ep));
        for evd in [active.recv, active.request, active.connect] {
            ok(dat_evd_free(evd));
        }
        service_point.close();
        ok(dat_pz_free(fixture.pz));
    }
    ok(fixture.close(DAT_CLOSE_GRACEFUL_FLAG));
    // SAFETY: the call validates its handles.
    unsafe {
        fails(dat_cr_reject(cr), DAT_INVALID_HANDLE);
        fails(dat_ep_reset(brought), DAT_INVALID_HANDLE);
    }
}

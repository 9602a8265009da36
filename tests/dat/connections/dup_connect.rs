//! `dat_ep_dup_connect`: connecting to the peer of another endpoint.

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use super::{end, established, exchange};
use crate::support::{
    End, Fixture, ServicePoint, abilities, accept, c_name, cr_info, ep_info, expect, fails_with,
    ok, state_of,
};

const LONG: DAT_TIMEOUT = 60_000_000;

fn dup_connect(
    ep: DAT_EP_HANDLE,
    model: DAT_EP_HANDLE,
    timeout: DAT_TIMEOUT,
    data: &[u8],
    qos: DAT_QOS,
) -> DAT_RETURN {
    // SAFETY: the data live until the call returns; the call validates its
    // handles.
    unsafe {
        dat_ep_dup_connect(
            ep,
            model,
            timeout,
            data.len() as DAT_COUNT,
            data.as_ptr().cast_mut().cast(),
            qos,
        )
    }
}

/// Connects two endpoints through a service point: the requesting one, the
/// accepting one.
fn connected(fixture: &Fixture, service_point: &ServicePoint) -> [End; 2] {
    let ends = [end(fixture), end(fixture)];
    ok(service_point.connect(ends[0].ep, &[]));
    ok(accept(service_point.take_request(), ends[1].ep));
    established([&ends[0], &ends[1]]);
    ends
}

#[test]
fn it_connects_to_the_peer_of_its_model() {
    let fixture = Fixture::new();
    let service_point = ServicePoint::new(&fixture);
    let [model, _] = connected(&fixture, &service_point);
    let (active, passive) = (end(&fixture), end(&fixture));
    let whole = vec![7; abilities(&fixture).1.max_private_data_size as usize];
    ok(dup_connect(
        active.ep,
        model.ep,
        LONG,
        &whole,
        DAT_QOS_BEST_EFFORT,
    ));
    let cr = service_point.take_request();
    assert_eq!(cr_info(cr).private_data_size as usize, whole.len());
    ok(accept(cr, passive.ep));
    established([&active, &passive]);
    let (mine, models) = (ep_info(active.ep), ep_info(model.ep));
    assert_eq!(mine.remote_port_qual, models.remote_port_qual);
    assert_eq!(mine.remote_port_qual, service_point.qualifier);
    exchange(&fixture, &active, &passive);
    // A duplicated endpoint can be the model of the next.
    let third = end(&fixture);
    ok(dup_connect(
        third.ep,
        active.ep,
        LONG,
        &[],
        DAT_QOS_BEST_EFFORT,
    ));
    // SAFETY: a live request.
    ok(unsafe { dat_cr_reject(service_point.take_request()) });
    expect(third.connect, DAT_CONNECTION_EVENT_PEER_REJECTED);
}

/// The outcomes are those of a connect.
#[test]
fn it_fails_if_no_service_point_listens_or_answers() {
    let fixture = Fixture::new();
    let service_point = ServicePoint::new(&fixture);
    let [model, accepted] = connected(&fixture, &service_point);
    let late = end(&fixture);
    ok(dup_connect(
        late.ep,
        model.ep,
        200_000,
        &[],
        DAT_QOS_BEST_EFFORT,
    ));
    assert_eq!(state_of(late.ep), DAT_EP_STATE_ACTIVE_CONNECTION_PENDING);
    expect(late.connect, DAT_CONNECTION_EVENT_TIMED_OUT);
    service_point.close();
    let refused = end(&fixture);
    ok(dup_connect(
        refused.ep,
        model.ep,
        LONG,
        &[],
        DAT_QOS_BEST_EFFORT,
    ));
    expect(refused.connect, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
    // The peer of the accepting side is a port on which nothing listens.
    let backwards = end(&fixture);
    ok(dup_connect(
        backwards.ep,
        accepted.ep,
        LONG,
        &[],
        DAT_QOS_BEST_EFFORT,
    ));
    expect(backwards.connect, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
}

/// The rows of `dat_ep_dup_connect` in section 9, and section 4.3 on private
/// data. libdat's `face` tests cover sizes and pointers that only C can get
/// wrong.
#[test]
fn an_illegal_call_is_refused_and_leaves_the_endpoint_unconnected() {
    let fixture = Fixture::new();
    let service_point = ServicePoint::new(&fixture);
    let [model, _] = connected(&fixture, &service_point);
    let good = end(&fixture);
    let (mut deaf, mut homeless) = (ptr::null_mut(), ptr::null_mut());
    let shape = crate::support::Shape::default();
    let (attributes, parts) = (shape.attributes(), End::without_ep(&fixture, &shape));
    // SAFETY: live handles; results are writable.
    unsafe {
        for (pz, connect, made) in [
            (fixture.pz, DAT_HANDLE_NULL, &raw mut deaf),
            (DAT_HANDLE_NULL, parts.connect, &raw mut homeless),
        ] {
            ok(dat_ep_create(
                fixture.ia,
                pz,
                parts.recv,
                parts.request,
                connect,
                &raw const attributes,
                made,
            ));
        }
    }
    let idle = end(&fixture);
    let long = vec![1; abilities(&fixture).1.max_private_data_size as usize + 1];
    let none: &[u8] = &[];
    let best = DAT_QOS_BEST_EFFORT;
    for (row, ep, of, timeout, data, qos, kind, subtype) in [
        (
            "no endpoint",
            ptr::null_mut(),
            model.ep,
            LONG,
            none,
            best,
            DAT_INVALID_HANDLE,
            DAT_INVALID_HANDLE_EP,
        ),
        (
            "no model",
            good.ep,
            ptr::null_mut(),
            LONG,
            none,
            best,
            DAT_INVALID_HANDLE,
            DAT_INVALID_HANDLE_EP,
        ),
        (
            "no EVD for connections",
            deaf,
            model.ep,
            LONG,
            none,
            best,
            DAT_INVALID_HANDLE,
            DAT_INVALID_HANDLE_EVD_CONN,
        ),
        (
            "no zone",
            homeless,
            model.ep,
            LONG,
            none,
            best,
            DAT_INVALID_STATE,
            DAT_INVALID_STATE_EP_NOTREADY,
        ),
        (
            "a model that is not connected",
            good.ep,
            idle.ep,
            LONG,
            none,
            best,
            DAT_INVALID_STATE,
            DAT_INVALID_STATE_EP_UNCONNECTED,
        ),
        (
            "itself as model",
            good.ep,
            good.ep,
            LONG,
            none,
            best,
            DAT_INVALID_STATE,
            DAT_INVALID_STATE_EP_UNCONNECTED,
        ),
        (
            "connected already",
            model.ep,
            model.ep,
            LONG,
            none,
            best,
            DAT_INVALID_STATE,
            DAT_INVALID_STATE_EP_CONNECTED,
        ),
        (
            "no time",
            good.ep,
            model.ep,
            0,
            none,
            best,
            DAT_INVALID_PARAMETER,
            DAT_INVALID_ARG3,
        ),
        (
            "too much private data",
            good.ep,
            model.ep,
            LONG,
            &long,
            best,
            DAT_INVALID_PARAMETER,
            DAT_INVALID_ARG4,
        ),
        (
            "a quality of service",
            good.ep,
            model.ep,
            LONG,
            none,
            DAT_QOS_LOW_LATENCY,
            DAT_MODEL_NOT_SUPPORTED,
            DAT_NO_SUBTYPE,
        ),
    ] {
        println!("{row}");
        fails_with(dup_connect(ep, of, timeout, data, qos), kind, subtype);
        assert_eq!(state_of(good.ep), DAT_EP_STATE_UNCONNECTED);
    }
}

/// A model of another open adapter is refused.
#[test]
fn the_model_must_be_of_the_same_adapter() {
    let fixture = Fixture::new();
    let service_point = ServicePoint::new(&fixture);
    let [model, _] = connected(&fixture, &service_point);
    let (mut ia, mut events, mut foreign) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    // SAFETY: every pointer leads to what the call expects.
    unsafe {
        ok(dat_ia_openv(
            c_name().as_ptr().cast_mut(),
            4,
            &raw mut events,
            &raw mut ia,
            1,
            2,
            DAT_FALSE,
        ));
        ok(dat_ep_create(
            ia,
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null(),
            &raw mut foreign,
        ));
    }
    fails_with(
        dup_connect(foreign, model.ep, LONG, &[], DAT_QOS_BEST_EFFORT),
        DAT_INVALID_HANDLE,
        DAT_INVALID_HANDLE_EP,
    );
    // SAFETY: a live handle.
    ok(unsafe { dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG) });
}

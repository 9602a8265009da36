//! Errors of the EVD calls, by type and subtype.

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use super::{Evd, joined, waits};
use crate::support::{End, Fixture, ServicePoint, Shape, abilities, blank, fails_with, ok};

const NO: DAT_HANDLE = DAT_HANDLE_NULL;

#[test]
fn evd_t01_errors_have_type_and_subtype() {
    let fixture = Fixture::new();
    let most = abilities(&fixture).0.max_evd_qlen;
    let software = DAT_EVD_SOFTWARE_FLAG;
    let evd = fixture.evd(4, software);
    let dto_only = fixture.evd(4, DAT_EVD_DTO_FLAG);
    let gone = fixture.evd(4, software);
    Evd(gone).calls(dat_evd_free);
    let (mut made, mut event, mut more) = (ptr::null_mut(), blank(), 0);
    let place = &raw mut made;
    let no_place: *mut DAT_EVD_HANDLE = ptr::null_mut();
    let (no_event, no_count): (*mut DAT_EVENT, *mut DAT_COUNT) = (ptr::null_mut(), ptr::null_mut());
    let (at, count) = (&raw mut event, &raw mut more);
    let mut wrong = blank();
    wrong.event_number = DAT_DTO_COMPLETION_EVENT;
    let mut right = blank();
    right.event_number = DAT_SOFTWARE_EVENT;
    let (handle, parameter) = (DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER);
    let bad = DAT_INVALID_HANDLE_EVD_REQUEST;
    let param: *mut DAT_EVD_PARAM = ptr::null_mut();
    // SAFETY: the calls validate their handles; results are writable or null.
    #[rustfmt::skip]
    let rows = unsafe {
        [
            ("create: no IA", dat_evd_create(evd, 4, NO, software, place), handle, DAT_INVALID_HANDLE_IA),
            ("create: no events", dat_evd_create(fixture.ia, 0, NO, software, place), parameter, DAT_INVALID_ARG2),
            ("create: fewer", dat_evd_create(fixture.ia, -1, NO, software, place), parameter, DAT_INVALID_ARG2),
            ("create: flags", dat_evd_create(fixture.ia, 4, NO, 1 << 30, place), parameter, DAT_INVALID_ARG4),
            ("create: no place", dat_evd_create(fixture.ia, 4, NO, software, no_place), parameter, DAT_INVALID_ARG5),
            ("query: a freed one", dat_evd_query(gone, 0, param), handle, bad),
            ("query: the mask", dat_evd_query(evd, 0x100, param), parameter, DAT_INVALID_ARG2),
            ("query: no place", dat_evd_query(evd, 1, param), parameter, DAT_INVALID_ARG3),
            ("enable", dat_evd_enable(gone), handle, bad),
            ("disable", dat_evd_disable(gone), handle, bad),
            ("set_unwaitable", dat_evd_set_unwaitable(gone), handle, bad),
            ("clear_unwaitable", dat_evd_clear_unwaitable(gone), handle, bad),
            ("post_se: a freed one", dat_evd_post_se(gone, &raw const right), handle, bad),
            ("post_se: no such stream", dat_evd_post_se(dto_only, &raw const right), parameter, DAT_INVALID_ARG1),
            ("post_se: no event", dat_evd_post_se(evd, ptr::null()), parameter, DAT_INVALID_ARG2),
            ("post_se: another event", dat_evd_post_se(evd, &raw const wrong), parameter, DAT_INVALID_ARG2),
            ("dequeue: a freed one", dat_evd_dequeue(gone, at), handle, bad),
            ("dequeue: no place", dat_evd_dequeue(evd, no_event), parameter, DAT_INVALID_ARG2),
            ("wait: a freed one", dat_evd_wait(gone, 0, 1, at, count), handle, bad),
            ("wait: no threshold", dat_evd_wait(evd, 0, 0, at, count), parameter, DAT_INVALID_ARG3),
            ("wait: above the length", dat_evd_wait(evd, 0, 5, at, count), parameter, DAT_INVALID_ARG3),
            ("wait: no place", dat_evd_wait(evd, 0, 1, no_event, count), parameter, DAT_INVALID_ARG4),
            ("wait: no count", dat_evd_wait(evd, 0, 1, at, no_count), parameter, DAT_INVALID_ARG5),
            ("free: a freed one", dat_evd_free(gone), handle, bad),
            ("free: null", dat_evd_free(NO), handle, bad),
        ]
    };
    for (what, answer, kind, subtype) in rows {
        println!("{what}");
        fails_with(answer, kind, subtype);
    }
    if most < DAT_COUNT::MAX {
        // SAFETY: live handles, and a place for the result.
        let answer = unsafe { dat_evd_create(fixture.ia, most + 1, NO, software, place) };
        fails_with(answer, DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_TEVD);
    }
    // The refused calls have left nothing behind.
    assert!(Evd(evd).drain().is_empty());
}

/// An EVD in use by any object cannot be freed.
#[test]
fn evd_t02_an_evd_in_use_is_not_freed() {
    let fixture = Fixture::new();
    let end = End::new(&fixture, &Shape::default());
    let service_point = ServicePoint::new(&fixture);
    let rows = [
        ("recv", end.recv),
        ("request", end.request),
        ("connect", end.connect),
        ("service point", service_point.requests),
        ("IA", fixture.async_evd),
    ];
    for (what, evd) in rows {
        println!("{what}");
        // SAFETY: the call validates its handles.
        let answer = unsafe { dat_evd_free(evd) };
        fails_with(answer, DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_IN_USE);
    }
    // SAFETY: live handles.
    unsafe {
        ok(dat_ep_free(end.ep));
        ok(dat_psp_free(service_point.psp));
        for evd in [end.recv, end.request, end.connect, service_point.requests] {
            ok(dat_evd_free(evd));
        }
    }
}

/// A dequeue never blocks, and is refused while another thread waits.
#[test]
fn evd_t03_dequeue_returns_at_once() {
    let fixture = Fixture::new();
    let evd = Evd::new(&fixture, 4, DAT_EVD_SOFTWARE_FLAG);
    let dequeue = || match crate::support::dequeue(evd.0) {
        Ok(_) => panic!("an event"),
        Err(answer) => answer,
    };
    fails_with(dequeue(), DAT_QUEUE_EMPTY, 0);
    std::thread::scope(|scope| {
        let waiter = waits(scope, evd, 1);
        fails_with(dequeue(), DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_WAITER);
        evd.post(1);
        ok(joined(waiter));
    });
    fails_with(dequeue(), DAT_QUEUE_EMPTY, 0);
}

//! `dat_rmr_bind`: its table of failures, its completions, and the states of the
//! endpoint.

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use super::{DEFAULT, Ends, READ, WRITE};
use crate::support::{
    Bound, End, Fixture, Pair, Shape, Waiter, Window, expect, fails, fails_with, joined, nothing,
    nothing_on, ok, reaches, refused_access, state_of, take_bound,
};

/// 3.1, 3.7: the event, and the flags for it.
#[test]
fn rmr_bind_completes_as_its_flags_say() {
    let ends = Ends::new();
    let window = ends.window();
    let segment = ends.region.segment(0, 64);
    let bind = |flags| window.try_bind(ends.owner.ep, &segment, READ, 21, flags).0;
    for flag in [
        DAT_COMPLETION_UNSIGNALLED_FLAG,
        DAT_COMPLETION_SOLICITED_WAIT_FLAG,
        DAT_COMPLETION_EVD_THRESHOLD_FLAG,
        0x20,
    ] {
        fails(bind(flag), DAT_INVALID_PARAMETER);
        fails(
            bind(flag | DAT_COMPLETION_SUPPRESS_FLAG),
            DAT_INVALID_PARAMETER,
        );
    }
    ok(bind(DAT_COMPLETION_BARRIER_FENCE_FLAG));
    ends.bound(&window, 21);
    // More than the queue holds, if each had to be polled.
    for _ in 0..100 {
        ok(bind(DAT_COMPLETION_SUPPRESS_FLAG));
        ends.fixture.run();
    }
    nothing_on(ends.owner.request);
    ok(bind(DEFAULT));
    ends.bound(&window, 21);
}

/// 3.7 UNSIGNALLED, where the endpoint is configured for it: the event is queued
/// and does not notify.
#[test]
fn rmr_bind_unsignalled_where_the_endpoint_is() {
    let fixture = Fixture::new();
    let shape = Shape {
        request_flags: DAT_COMPLETION_UNSIGNALLED_FLAG,
        ..Shape::default()
    };
    let pair = Pair::for_windows(&fixture, &shape);
    let (memory, window) = (fixture.memory(64), Window::new(fixture.pz));
    let segment = memory.segment(0, 64);
    let bind = |tag, flags| {
        ok(window
            .try_bind(pair.active.ep, &segment, READ, tag, flags)
            .0);
        fixture.run();
    };
    std::thread::scope(|scope| {
        let evd = pair.active;
        let waiter = Waiter::spawn(scope, move || {
            let evd = evd;
            let (answer, event, nmore) = crate::support::wait(evd.request, 60_000_000, 1);
            ok(answer);
            assert_eq!(event.event_number, DAT_RMR_BIND_COMPLETION_EVENT);
            // SAFETY: the event number selects this member; any 64 bits are a
            // cookie.
            let tag = unsafe {
                let data = event.event_data.rmr_completion_event_data;
                data.user_cookie.as_64
            };
            (tag, nmore)
        });
        waiter.until_asleep();
        bind(1, DAT_COMPLETION_UNSIGNALLED_FLAG);
        std::thread::sleep(std::time::Duration::from_millis(60));
        assert!(!waiter.is_finished(), "woken by an unsignalled bind");
        bind(2, DEFAULT);
        assert_eq!(joined(waiter), (1, 1));
    });
    assert_eq!(take_bound(pair.active.request).cookie, 2);
}

/// The table of failures of `dat_rmr_bind`, row by row.
#[test]
fn rmr_bind_row_by_row() {
    let ends = Ends::in_fixture(Fixture::strict());
    let mut window = ends.window();
    let ep = ends.owner.ep;
    let good = ends.region.segment(0, 64);
    let other_zone = ends.fixture.pz();
    let foreign = ends
        .fixture
        .memory_in(other_zone, 64, DAT_MEM_PRIV_ALL_FLAG);
    let foreign_window = Window::new(other_zone);
    let only = |rights| ends.fixture.memory_in(ends.fixture.pz, 64, rights);
    let (unreadable, unwritable) = (
        only(DAT_MEM_PRIV_LOCAL_WRITE_FLAG),
        only(DAT_MEM_PRIV_LOCAL_READ_FLAG),
    );
    let mut freed = ends.fixture.memory(64);
    let stale = freed.segment(0, 8);
    ok(freed.free());
    let bind =
        |segment: &DAT_LMR_TRIPLET, rights| window.try_bind(ep, segment, rights, 1, DEFAULT).0;
    let row = |what: &str, answer: DAT_RETURN, kind, subtype| {
        println!("{what}");
        fails_with(answer, kind, subtype);
    };
    let (ip, none) = (DAT_INVALID_PARAMETER, DAT_NO_SUBTYPE);
    for bad in [ptr::null_mut(), ends.fixture.pz, ep, ends.region.lmr] {
        // SAFETY: the call validates its handles.
        let answer = unsafe {
            let mut context = 0;
            let cookie = crate::support::cookie(1);
            dat_rmr_bind(
                bad,
                &raw const good,
                READ,
                ep,
                cookie,
                DEFAULT,
                &raw mut context,
            )
        };
        row(
            "bad RMR",
            answer,
            DAT_INVALID_HANDLE,
            DAT_INVALID_HANDLE_RMR,
        );
    }
    for bad in [
        ptr::null_mut(),
        ends.fixture.pz,
        window.rmr,
        ends.owner.recv,
    ] {
        let answer = window.try_bind(bad, &good, READ, 1, DEFAULT).0;
        row("bad EP", answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
    }
    for context in [0, u32::MAX, !good.lmr_context] {
        let unknown = DAT_LMR_TRIPLET {
            lmr_context: context,
            ..good
        };
        row(
            "unknown LMR context",
            bind(&unknown, READ),
            ip,
            DAT_INVALID_ARG2,
        );
    }
    row("freed LMR", bind(&stale, READ), ip, DAT_INVALID_ARG2);
    for (offset, length) in [(-1, 8), (0, 4097), (4095, 2), (4096, 1), (8, u64::MAX)] {
        let outside = DAT_LMR_TRIPLET {
            virtual_address: good.virtual_address.wrapping_add_signed(offset),
            segment_length: length,
            ..good
        };
        row(
            "range outside the LMR",
            bind(&outside, READ),
            ip,
            DAT_INVALID_ARG2,
        );
    }
    let protection = DAT_PROTECTION_VIOLATION;
    let answer = bind(&foreign.segment(0, 8), READ);
    row("PZ of the LMR differs", answer, protection, none);
    let answer = foreign_window
        .try_bind(ep, &foreign.segment(0, 8), READ, 1, DEFAULT)
        .0;
    row("PZ of the EP differs", answer, protection, none);
    let answer = foreign_window.try_bind(ep, &good, READ, 1, DEFAULT).0;
    row("PZ of the RMR differs", answer, protection, none);
    let answer = foreign_window.try_bind(ep, &nothing(), 0, 1, DEFAULT).0;
    row("PZ differs, unbind", answer, protection, none);
    let privileges = DAT_PRIVILEGES_VIOLATION;
    let answer = bind(&unreadable.segment(0, 8), READ);
    row("remote read without local read", answer, privileges, none);
    let answer = bind(&unwritable.segment(0, 8), WRITE);
    row("remote write without local write", answer, privileges, none);
    let answer = bind(&unwritable.segment(0, 8), READ | WRITE);
    row("remote write without local write", answer, privileges, none);
    row("unknown privilege", bind(&good, 0x40), ip, DAT_INVALID_ARG3);
    // SAFETY: live handles; null is under test.
    unsafe {
        let mut context = 0;
        let cookie = crate::support::cookie(1);
        let answer = dat_rmr_bind(
            window.rmr,
            ptr::null(),
            READ,
            ep,
            cookie,
            DEFAULT,
            &raw mut context,
        );
        row("no segment", answer, ip, DAT_INVALID_ARG2);
        let answer = dat_rmr_bind(
            window.rmr,
            &raw const good,
            READ,
            ep,
            cookie,
            DEFAULT,
            ptr::null_mut(),
        );
        row("no context", answer, ip, DAT_INVALID_ARG7);
    }
    // Memory with a single privilege can be bound for that privilege. The refused
    // calls have had no effect.
    ok(bind(&unreadable.segment(0, 8), WRITE));
    ends.bound(&window, 1);
    ok(bind(&unwritable.segment(0, 8), READ));
    ends.bound(&window, 1);
    nothing_on(ends.owner.request);
    assert_eq!(state_of(ep), DAT_EP_STATE_CONNECTED);
    ok(window.free());
}

/// The row "queue full": a bind takes a place like any request.
#[test]
fn rmr_bind_takes_a_place_in_the_request_queue() {
    let ends = Ends::new();
    let window = ends.window();
    let segment = ends.region.segment(0, 64);
    let most = Shape::default().requests;
    let all = (0..most).take_while(|_| {
        let answer = window.try_bind(ends.owner.ep, &segment, READ, 9, DEFAULT).0;
        answer == DAT_SUCCESS
    });
    if ends.fixture.is_stepped() {
        assert_eq!(all.count() as DAT_COUNT, most);
        let answer = window.try_bind(ends.owner.ep, &segment, READ, 9, DEFAULT).0;
        fails_with(answer, DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
        fails(
            ends.owner.post_send(&[segment], 9, DEFAULT),
            DAT_INSUFFICIENT_RESOURCES,
        );
    } else {
        all.count();
    }
    for _ in 0..most {
        ends.bound(&window, 9);
    }
    ok(window.try_bind(ends.owner.ep, &segment, READ, 9, DEFAULT).0);
}

/// The row of the EVD: its flags name the streams that it may carry.
#[test]
fn rmr_bind_needs_a_request_evd_for_it() {
    let fixture = Fixture::new();
    let pair = Pair::new(&fixture, &Shape::default());
    let (memory, window) = (fixture.memory(64), Window::new(fixture.pz));
    let segment = memory.segment(0, 64);
    let answer = window
        .try_bind(pair.active.ep, &segment, READ, 1, DEFAULT)
        .0;
    fails_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_REQUEST);
    assert_eq!(state_of(pair.active.ep), DAT_EP_STATE_CONNECTED);
}

/// Section 4: binds are accepted in the same states as other requests.
#[test]
fn rmr_bind_row_by_state() {
    let fixture = Fixture::new();
    let (memory, window) = (fixture.memory(64), Window::new(fixture.pz));
    let segment = memory.segment(0, 64);
    let bind = |end: &End| window.try_bind(end.ep, &segment, READ, 31, DEFAULT).0;
    let alone = End::for_windows(&fixture, &Shape::default());
    fails_with(
        bind(&alone),
        DAT_INVALID_STATE,
        DAT_INVALID_STATE_EP_UNCONNECTED,
    );
    let pair = Pair::for_windows(&fixture, &Shape::default());
    ok(bind(&pair.active));
    fixture.run();
    assert_eq!(take_bound(pair.active.request).status, DAT_DTO_SUCCESS);
    // SAFETY: a live handle.
    ok(unsafe { dat_ep_disconnect(pair.active.ep, DAT_CLOSE_ABRUPT_FLAG) });
    expect(pair.active.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
    reaches(pair.active.ep, DAT_EP_STATE_DISCONNECTED);
    // Flushed at once, and the window is not bound.
    ok(bind(&pair.active));
    fixture.run();
    let flushed = take_bound(pair.active.request);
    assert_eq!((flushed.cookie, flushed.status), (31, DAT_DTO_ERR_FLUSHED));
    assert_eq!(window.info().lmr_triplet.segment_length, 0);
}

/// A bind that is flushed leaves the window as the device had it, and releases its LMR. The next
/// unbind still ends the access of peers.
#[test]
fn rmr_unbind_after_a_flushed_bind_ends_the_binding_before_it() {
    let ends = Ends::new();
    let window = ends.window();
    let opened = ends.bind(&window, 0, 64, WRITE);
    assert_eq!(ends.write(&opened), DAT_DTO_SUCCESS);
    let broken = Pair::for_windows(&ends.fixture, &Shape::default()).active;
    // SAFETY: a live handle.
    ok(unsafe { dat_ep_disconnect(broken.ep, DAT_CLOSE_ABRUPT_FLAG) });
    expect(broken.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
    let mut freed = ends.fixture.memory(64);
    window.bind(broken.ep, &freed.segment(0, 64), WRITE, 21);
    ends.fixture.run();
    assert_eq!(take_bound(broken.request).status, DAT_DTO_ERR_FLUSHED);
    ok(freed.free());
    window.unbind(ends.owner.ep, 22);
    ends.bound(&window, 22);
    refused_access(ends.write(&opened));
}

/// 3.3 row 11: the device finds that a window cannot be bound. Here the window is
/// freed between the post and its execution, which only a stepped device makes
/// certain.
#[test]
fn rmr_bind_that_fails_breaks_the_connection() {
    let ends = Ends::new();
    if !ends.fixture.is_stepped() {
        eprintln!("SKIPPED: the device executes a bind before its window can be freed");
        return;
    }
    let mut window = ends.window();
    let segment = ends.region.segment(0, 64);
    window.bind(ends.owner.ep, &segment, READ, 41);
    ok(ends.owner.post_send(&[segment], 42, DEFAULT));
    let rmr = window.rmr;
    ok(window.free());
    ends.fixture.run();
    let failed = take_bound(ends.owner.request);
    let expected = Bound {
        rmr,
        cookie: 41,
        status: DAT_RMR_OPERATION_FAILED,
    };
    assert_eq!(failed, expected);
    assert_eq!(ends.owner.requested().status, DAT_DTO_ERR_FLUSHED);
    expect(ends.owner.connect, DAT_CONNECTION_EVENT_BROKEN);
    assert_eq!(state_of(ends.owner.ep), DAT_EP_STATE_DISCONNECTED);
}

/// Any endpoint of a window's zone can bind and unbind it.
#[test]
fn rmr_bind_goes_through_any_endpoint_of_the_zone() {
    let ends = Ends::new();
    let window = ends.window();
    let remote = ends.bind(&window, 0, 64, WRITE);
    assert_eq!(ends.write(&remote), DAT_DTO_SUCCESS);
    let other = Pair::for_windows(&ends.fixture, &Shape::default()).active;
    let segment = ends.region.segment(64, 64);
    let moved = window.bind(other.ep, &segment, WRITE, 3);
    ends.fixture.run();
    assert_eq!(take_bound(other.request).status, DAT_DTO_SUCCESS);
    assert_eq!(ends.write(&moved), DAT_DTO_SUCCESS);
    window.unbind(other.ep, 4);
    ends.fixture.run();
    assert_eq!(take_bound(other.request).cookie, 4);
    refused_access(ends.write(&moved));
}

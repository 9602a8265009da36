//! What a wait dequeues, what it fills in, and what it leaves.

use std::mem::MaybeUninit;
use std::ptr;
use std::time::Instant;

use dat::abi::*;
use dat::exports::*;

use super::{Evd, LONG, MessagePair, SOON, joined};
use crate::support::{
    Dto, End, Fixture, Pair, Shape, blank, dequeue, dto, expect, fails, fails_with, nothing_on, ok,
    refused_access, take_dto,
};

/// Waits with an event buffer that is filled with a pattern.
#[track_caller]
fn poisoned(evd: DAT_EVD_HANDLE) -> DAT_EVENT {
    let mut event = MaybeUninit::<DAT_EVENT>::uninit();
    let mut nmore = -77;
    // SAFETY: a local value of integers and pointers, for which any byte is
    // valid.
    unsafe { ptr::write_bytes(event.as_mut_ptr(), 0xa5, 1) };
    // SAFETY: both results are writable.
    ok(unsafe { dat_evd_wait(evd, LONG, 1, event.as_mut_ptr(), &raw mut nmore) });
    // SAFETY: every byte was written above.
    let event = unsafe { event.assume_init() };
    assert_eq!((event.evd_handle, nmore), (evd, 0));
    event
}

#[test]
fn evd_wait_w01_a_wait_takes_the_first_event_only() {
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    messages.post_recvs(1..4);
    for _ in 0..3 {
        messages.deliver();
    }
    assert_eq!(messages.recv().wait(0, 1).tag(), (1, 2));
    assert_eq!(take_dto(messages.recv().0).cookie, 2);
    assert_eq!(messages.recv().wait(LONG, 1).tag(), (3, 0));
    nothing_on(messages.recv().0);
}

#[test]
fn evd_wait_w01_fills_every_field_of_a_receive() {
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    let (active, passive) = (messages.pair.active, messages.pair.passive);
    for (cookie, len) in [(0xfedc_ba98_7654_3210, 24), (0, 0), (u64::MAX, 64)] {
        ok(passive.post_recv(&[messages.memory.segment(1024, 64)], cookie));
        ok(active.post_send(
            &[messages.memory.segment(0, len)],
            1,
            DAT_COMPLETION_DEFAULT_FLAG,
        ));
        fixture.run();
        let received = Dto {
            ep: passive.ep,
            cookie,
            status: DAT_DTO_SUCCESS,
            length: len as u64,
        };
        assert_eq!(dto(&poisoned(passive.recv)), received);
        active.requested();
    }
}

#[test]
fn evd_wait_w01_fills_every_field_of_a_request() {
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    let active = messages.pair.active;
    let whole = DAT_COMPLETION_DEFAULT_FLAG;
    let done = |cookie, length| {
        fixture.run();
        let completed = Dto {
            ep: active.ep,
            cookie,
            status: DAT_DTO_SUCCESS,
            length,
        };
        assert_eq!(dto(&poisoned(active.request)), completed);
    };
    messages.post_recvs(1..3);
    ok(active.post_send(&[messages.memory.segment(0, 24)], 1 << 63, whole));
    done(1 << 63, 24);
    ok(active.post_send(&[], 5, whole));
    done(5, 0);
    let (here, there) = (
        messages.memory.segment(0, 40),
        messages.memory.remote(2048, 40),
    );
    ok(active.post_write(&[here], &there, 6, whole));
    done(6, 40);
    ok(active.post_read(&[here], &there, 7, whole));
    done(7, 40);
}

#[test]
fn evd_wait_w01_a_failed_transfer_is_reported_with_its_status_and_cookie() {
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    let mut nowhere = messages.memory.remote(2048, 8);
    nowhere.rmr_context ^= 0x5500;
    let active = messages.pair.active;
    ok(active.post_write(
        &[messages.memory.segment(0, 8)],
        &nowhere,
        9,
        DAT_COMPLETION_DEFAULT_FLAG,
    ));
    fixture.run();
    let failed = dto(&poisoned(active.request));
    assert_eq!((failed.ep, failed.cookie), (active.ep, 9));
    refused_access(failed.status);
}

#[test]
fn evd_wait_w01_fills_every_field_of_connection_events() {
    let fixture = Fixture::new();
    let (active, passive) = (
        End::new(&fixture, &Shape::default()),
        End::new(&fixture, &Shape::default()),
    );
    let requests = fixture.evd(8, DAT_EVD_CR_FLAG);
    let (mut qualifier, mut psp) = (0, ptr::null_mut());
    let mut address = Pair::address();
    // SAFETY: live handles; results are writable; no private data.
    unsafe {
        ok(dat_psp_create_any(
            fixture.ia,
            &raw mut qualifier,
            requests,
            DAT_PSP_CONSUMER_FLAG,
            &raw mut psp,
        ));
        ok(dat_ep_connect(
            active.ep,
            (&raw mut address).cast(),
            qualifier,
            LONG,
            0,
            ptr::null_mut(),
            DAT_QOS_BEST_EFFORT,
            DAT_CONNECT_DEFAULT_FLAG,
        ));
    }
    let event = poisoned(requests);
    assert_eq!(event.event_number, DAT_CONNECTION_REQUEST_EVENT);
    // SAFETY: the event number selects this member; the address belongs to the
    // open adapter.
    unsafe {
        let arrival = event.event_data.cr_arrival_event_data;
        assert_eq!(arrival.sp_handle.psp_handle, psp);
        assert_eq!(arrival.conn_qual, qualifier);
        let family = libc::c_int::from((*arrival.local_ia_address_ptr).sa_family);
        assert!([libc::AF_INET, libc::AF_INET6].contains(&family));
        let mut kind = 99;
        ok(dat_get_handle_type(arrival.cr_handle, &raw mut kind));
        assert_eq!(kind, DAT_HANDLE_TYPE_CR);
        ok(dat_cr_accept(
            arrival.cr_handle,
            passive.ep,
            0,
            ptr::null_mut(),
        ));
    }
    for end in [active, passive] {
        let event = poisoned(end.connect);
        assert_eq!(event.event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
        // SAFETY: the event number selects this member.
        let data = unsafe { event.event_data.connect_event_data };
        assert_eq!((data.ep_handle, data.private_data_size), (end.ep, 0));
    }
    // SAFETY: a live endpoint.
    ok(unsafe { dat_ep_disconnect(active.ep, DAT_CLOSE_ABRUPT_FLAG) });
    for end in [active, passive] {
        let event = poisoned(end.connect);
        assert_eq!(event.event_number, DAT_CONNECTION_EVENT_DISCONNECTED);
        // SAFETY: as above.
        let data = unsafe { event.event_data.connect_event_data };
        assert_eq!((data.ep_handle, data.private_data_size), (end.ep, 0));
    }
}

#[test]
fn evd_wait_w01_fills_every_field_of_software_events() {
    let fixture = Fixture::new();
    let evd = Evd::software(&fixture, 4);
    for number in [0, 1, usize::MAX] {
        evd.post(number);
        assert_eq!(super::number(&poisoned(evd.0)), number);
    }
}

/// An EVD for one connection event gets two: the second is lost, and the
/// asynchronous EVD reports the overflow.
#[test]
fn evd_wait_w01_fills_every_field_of_asynchronous_events() {
    let fixture = Fixture::new();
    let shape = Shape::default();
    let narrow = fixture.evd(1, DAT_EVD_CONNECTION_FLAG);
    let pairs = [(); 2].map(|()| {
        let mut end = End::without_ep(&fixture, &shape);
        ok(
            // SAFETY: handles that the fixture owns.
            unsafe { dat_evd_free(end.connect) },
        );
        end.connect = narrow;
        let attributes = shape.attributes();
        // SAFETY: live handles; the result is writable.
        ok(unsafe {
            dat_ep_create(
                fixture.ia,
                fixture.pz,
                end.recv,
                end.request,
                end.connect,
                &raw const attributes,
                &raw mut end.ep,
            )
        });
        Pair::connect(&fixture, end, End::new(&fixture, &shape))
    });
    for pair in pairs {
        // SAFETY: a live endpoint.
        ok(unsafe { dat_ep_disconnect(pair.passive.ep, DAT_CLOSE_ABRUPT_FLAG) });
        expect(pair.passive.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
    }
    let event = poisoned(fixture.async_evd);
    assert_eq!(event.event_number, DAT_ASYNC_ERROR_EVD_OVERFLOW);
    // SAFETY: the event number selects this member.
    let data = unsafe { event.event_data.asynch_error_event_data };
    assert_eq!(
        (data.dat_handle, data.reason),
        (narrow, DAT_EVD_OVERFLOW_ERROR as DAT_COUNT)
    );
    expect(narrow, DAT_CONNECTION_EVENT_DISCONNECTED);
    nothing_on(narrow);
    nothing_on(fixture.async_evd);
}

#[test]
fn evd_wait_w01_with_null_results_no_event_is_taken() {
    let fixture = Fixture::new();
    let evd = Evd::software(&fixture, 4);
    evd.post(1);
    let (mut event, mut nmore) = (blank(), 0);
    // SAFETY: results are null or writable.
    unsafe {
        fails_with(
            dat_evd_wait(evd.0, 0, 1, ptr::null_mut(), &raw mut nmore),
            DAT_INVALID_PARAMETER,
            DAT_INVALID_ARG4,
        );
        fails_with(
            dat_evd_wait(evd.0, 0, 1, &raw mut event, ptr::null_mut()),
            DAT_INVALID_PARAMETER,
            DAT_INVALID_ARG5,
        );
    }
    assert_eq!(evd.wait(0, 1).number(), (1, 0));
}

#[test]
fn evd_wait_w13_nmore_is_what_is_left() {
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    messages.post_recvs(0..7);
    for _ in 0..7 {
        messages.deliver();
    }
    // The EVD has polled two of the completions by then; the others are in the
    // device's queue.
    let left = [(0, 1, 6), (1, 4, 5), (2, 5, 4), (3, 1, 3), (4, 3, 2)];
    for (tag, threshold, nmore) in left {
        assert_eq!(messages.recv().wait(LONG, threshold).tag(), (tag, nmore));
    }
    messages.post_recvs(7..8);
    messages.deliver();
    assert_eq!(messages.recv().wait(LONG, 1).tag(), (5, 2));
    assert_eq!([(); 2].map(|()| take_dto(messages.recv().0).cookie), [6, 7]);
    nothing_on(messages.recv().0);
}

#[test]
fn evd_wait_w13_nmore_counts_every_stream() {
    let fixture = Fixture::new();
    let (shape, all) = (
        Shape::default(),
        fixture.evd(64, DAT_EVD_DEFAULT_FLAG | DAT_EVD_SOFTWARE_FLAG),
    );
    let mut end = End::without_ep(&fixture, &shape);
    (end.recv, end.request, end.connect) = (all, all, all);
    let attributes = shape.attributes();
    // SAFETY: live handles; the result is writable.
    ok(unsafe {
        dat_ep_create(
            fixture.ia,
            fixture.pz,
            all,
            all,
            all,
            &raw const attributes,
            &raw mut end.ep,
        )
    });
    let mut messages = MessagePair::of(
        &fixture,
        Pair::connect(&fixture, end, End::new(&fixture, &shape)),
    );
    // A receive, a send, a software event and the end of the connection.
    messages.post_recvs(0..1);
    messages.send(1, DAT_COMPLETION_DEFAULT_FLAG);
    (messages.pair.active, messages.pair.passive) = (messages.pair.passive, messages.pair.active);
    messages.post_recvs(2..3);
    messages.deliver();
    Evd(all).post(3);
    // SAFETY: a live endpoint.
    ok(unsafe { dat_ep_disconnect(end.ep, DAT_CLOSE_ABRUPT_FLAG) });
    expect(
        messages.pair.active.connect,
        DAT_CONNECTION_EVENT_DISCONNECTED,
    );
    let first = Evd(all).wait(LONG, 4);
    assert_eq!(first.tag(), (1, 3));
    let mut rest = [(); 3].map(|()| dequeue(all).map(|event| event.event_number));
    rest.sort_unstable();
    assert_eq!(
        rest,
        [
            Ok(DAT_DTO_COMPLETION_EVENT),
            Ok(DAT_CONNECTION_EVENT_DISCONNECTED),
            Ok(DAT_SOFTWARE_EVENT)
        ]
    );
    nothing_on(all);
}

#[test]
fn evd_wait_w13_nmore_is_at_least_the_threshold_less_one_after_blocking() {
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    for threshold in 1..=4 {
        messages.post_recvs(0..5);
        messages.deliver();
        std::thread::scope(|scope| {
            let waiter = (threshold > 1).then(|| messages.recv().asleep(scope, threshold));
            for _ in 1..5 {
                messages.deliver();
            }
            let waited = match waiter {
                Some(waiter) => joined(waiter).soon(),
                None => messages.recv().wait(LONG, 1),
            };
            let (tag, nmore) = waited.tag();
            assert_eq!(tag, 0);
            assert!((threshold - 1..=4).contains(&nmore), "{nmore} are left");
        });
        let rest = [(); 4].map(|()| take_dto(messages.recv().0).cookie);
        assert_eq!(rest, [1, 2, 3, 4]);
        nothing_on(messages.recv().0);
    }
}

#[test]
fn evd_wait_w15_one_stream_comes_in_order_however_it_is_taken() {
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    let recv = messages.recv();
    let (mut posted, mut next) = (0, 0);
    for round in 0_u64..60 {
        let burst = 1 + round % 5;
        messages.post_recvs(posted..posted + burst);
        for _ in 0..burst {
            messages.deliver();
        }
        posted += burst;
        for taken in 0..burst {
            let tag = match (round + taken) % 4 {
                0 => recv.wait(0, 1).tag().0,
                1 => {
                    // This wait takes no event, but polls all completions.
                    recv.wait(0, 30).expired();
                    take_dto(recv.0).cookie
                }
                2 => recv.wait(LONG, (burst - taken) as DAT_COUNT).tag().0,
                _ => take_dto(recv.0).cookie,
            };
            assert_eq!(tag, next);
            next += 1;
        }
    }
    nothing_on(recv.0);
}

/// Two endpoints report their receives to one EVD: each in its order, and neither
/// delays the other.
#[test]
fn evd_wait_w15_streams_that_share_an_evd_keep_their_orders() {
    let fixture = Fixture::new();
    let shape = Shape::default();
    let shared = fixture.evd(64, DAT_EVD_DTO_FLAG);
    let message_pairs = [(); 2].map(|()| {
        let mut passive = End::without_ep(&fixture, &shape);
        passive.recv = shared;
        let attributes = shape.attributes();
        // SAFETY: live handles; the result is writable.
        ok(unsafe {
            dat_ep_create(
                fixture.ia,
                fixture.pz,
                passive.recv,
                passive.request,
                passive.connect,
                &raw const attributes,
                &raw mut passive.ep,
            )
        });
        MessagePair::of(
            &fixture,
            Pair::connect(&fixture, End::new(&fixture, &shape), passive),
        )
    });
    let mut next = [0, 0];
    for round in 0..20 {
        for (index, messages) in message_pairs.iter().enumerate() {
            let tag = 4 * round;
            messages.post_recvs(tag..tag + 4);
            for _ in 0..4 - 2 * (index & 1) {
                messages.deliver();
            }
        }
        for turn in 0..6 {
            let (dto, nmore) = Evd(shared).wait(LONG, 6 - turn).dto();
            assert_eq!(nmore, 5 - turn);
            let from = usize::from(dto.ep == message_pairs[1].pair.passive.ep);
            assert_eq!(dto.ep, message_pairs[from].pair.passive.ep);
            assert_eq!(dto.cookie, next[from]);
            next[from] += 1;
        }
        // The two that the second endpoint still waits for.
        for _ in 0..2 {
            message_pairs[1].deliver();
            assert_eq!(Evd(shared).wait(LONG, 1).tag(), (next[1], 0));
            next[1] += 1;
        }
    }
}

#[test]
fn evd_wait_w20_timeout_0_returns_at_once() {
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    let recv = messages.recv();
    let begin = Instant::now();
    for _ in 0..20_000 {
        assert_eq!(recv.wait(0, 1).expired(), 0);
    }
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    messages.post_recvs(0..2);
    messages.deliver();
    assert_eq!(recv.wait(0, 2).expired(), 1);
    assert_eq!(recv.wait(0, 1).tag(), (0, 0));
    messages.deliver();
    assert_eq!(recv.wait(0, 1).tag(), (1, 0));
    assert_eq!(recv.wait(0, 1).expired(), 0);
    fails(dequeue(recv.0).err().unwrap_or(0), DAT_QUEUE_EMPTY);
}

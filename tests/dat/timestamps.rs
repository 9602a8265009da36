//! `dat_evd_dequeue_timestamped` and `dat_evd_wait_timestamped`: when completions were
//! written.

use std::time::Duration;

use dat::abi::*;
use dat::exports::*;
use dat_api::ReturnType;
use dat_api::safe::Adapter;
use dat_api::types::EvdFlags;

use crate::support::{
    Evd, Fixture, MessagePair, Shape, blank, device, dto, fails, ok, take, take_dto,
};

/// Whether completions of the device under test have time stamps.
fn has_stamps() -> bool {
    let opened = dat_engine::Device::open(device::name()).expect("the device is there");
    opened.clock().is_ok()
}

/// Calls `dat_evd_dequeue_timestamped`.
fn dequeue(evd: Evd) -> Result<(DAT_EVENT, u64), DAT_RETURN> {
    let (mut event, mut stamp) = (blank(), 7);
    // SAFETY: both results are writable.
    match unsafe { dat_evd_dequeue_timestamped(evd.0, &raw mut event, &raw mut stamp) } {
        DAT_SUCCESS => Ok((event, stamp)),
        answer => Err(answer),
    }
}

/// Takes the next completion, which must come: its cookie and its time.
#[track_caller]
fn next(evd: Evd) -> (u64, u64) {
    let (event, stamp) = device::comes(|| dequeue(evd).ok()).expect("a completion");
    (dto(&event).cookie, stamp)
}

/// Calls `dat_evd_wait_timestamped`: returns the code, the event, its time, and `nmore`.
fn wait(
    evd: Evd,
    timeout: DAT_TIMEOUT,
    threshold: DAT_COUNT,
) -> (DAT_RETURN, DAT_EVENT, u64, DAT_COUNT) {
    let (mut event, mut more, mut stamp) = (blank(), -77, 7);
    // SAFETY: the results are writable.
    let answer = unsafe {
        let (event, more, stamp) = (&raw mut event, &raw mut more, &raw mut stamp);
        dat_evd_wait_timestamped(evd.0, timeout, threshold, event, more, stamp)
    };
    (answer, event, stamp, more)
}

#[test]
fn completions_have_the_time_at_which_they_were_written_or_it_is_refused() {
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    if !has_stamps() {
        return are_refused(&messages);
    }
    let evd = messages.recv();
    fails(dequeue(evd).map(drop).expect_err("empty"), DAT_QUEUE_EMPTY);
    messages.post_recvs(0..7);
    for _ in 0..3 {
        messages.deliver();
        fixture.advance(Duration::from_micros(20));
    }
    let mut times = vec![next(evd)];
    // A plain call takes its event without the time.
    assert_eq!(take_dto(evd.0).cookie, 1);
    times.push(next(evd));
    for _ in 3..7 {
        messages.deliver();
        fixture.advance(Duration::from_micros(20));
    }
    let (answer, event, stamp, more) = wait(evd, 10_000_000, 3);
    ok(answer);
    assert!(more >= 2, "{more}");
    times.push((dto(&event).cookie, stamp));
    times.extend([4, 5, 6].map(|_| next(evd)));
    let cookies: Vec<u64> = times.iter().map(|time| time.0).collect();
    assert_eq!(cookies, [0, 2, 3, 4, 5, 6]);
    assert!(times.iter().all(|time| time.1 > 0), "{times:?}");
    assert!(times.is_sorted_by_key(|time| time.1), "{times:?}");
    if fixture.is_stepped() {
        for pair in times.windows(2) {
            let rounds = pair[1].0 - pair[0].0;
            let passed = pair[1].1 - pair[0].1;
            let wanted = 20_000 * rounds..20_000 * rounds + 1000;
            assert!(wanted.contains(&passed), "{times:?}");
        }
    }
    let (answer, _, stamp, more) = wait(evd, 0, 1);
    fails(answer, DAT_TIMEOUT_EXPIRED);
    assert_eq!((stamp, more), (0, 0));
}

#[test]
fn events_without_a_time_have_the_time_0() {
    let fixture = Fixture::new();
    let evd = Evd::software(&fixture, 4);
    evd.post(3);
    let (event, stamp) = dequeue(evd).expect("an event");
    assert_eq!((event.event_number, stamp), (DAT_SOFTWARE_EVENT, 0));

    let messages = MessagePair::new(&fixture, &Shape::default());
    let evd = messages.recv();
    fails(dequeue(evd).map(drop).expect_err("empty"), DAT_QUEUE_EMPTY);
    messages.post_recvs(0..2);
    // SAFETY: a handle.
    ok(unsafe { dat_ep_disconnect(messages.pair.passive.ep, DAT_CLOSE_ABRUPT_FLAG) });
    fixture.run();
    for tag in 0..2 {
        let (event, stamp) = device::comes(|| dequeue(evd).ok()).expect("a flushed receive");
        let flushed = dto(&event);
        assert_eq!(flushed.status, DAT_DTO_ERR_FLUSHED);
        assert_eq!((flushed.cookie, stamp), (tag, 0));
    }
}

/// On a data path without time stamps: the calls take nothing, and change nothing.
fn are_refused(messages: &MessagePair<'_>) {
    let evd = messages.recv();
    messages.post_recvs(0..1);
    messages.deliver();
    fails(
        dequeue(evd).map(drop).expect_err("refused"),
        DAT_MODEL_NOT_SUPPORTED,
    );
    fails(
        wait(evd, DAT_TIMEOUT_INFINITE, 1).0,
        DAT_MODEL_NOT_SUPPORTED,
    );
    assert_eq!(dto(&take(evd.0, "receive")).cookie, 0);
    let adapter = Adapter::open(device::name()).expect("the device is there");
    let events = adapter
        .create_dispatcher(4, EvdFlags::DTO)
        .expect("a dispatcher");
    let refused = events.dequeue_stamped().expect_err("refused");
    assert!(
        refused.code().is(ReturnType::ModelNotSupported),
        "{refused}"
    );
    assert!(refused.cause().contains("the data path is"), "{refused}");
}

#[test]
fn safe_dispatchers_return_times_too() {
    let _fixture = Fixture::new();
    let adapter = Adapter::open(device::name()).expect("the device is there");
    let events = adapter
        .create_dispatcher(4, EvdFlags::SOFTWARE)
        .expect("a dispatcher");
    assert!(events.dequeue_stamped().expect("a clock").is_none());
    events.post(5).expect("posted");
    events.post(6).expect("posted");
    let waited = events.wait_stamped(2, None).expect("two events");
    assert_eq!((waited.event.more, waited.nanoseconds), (1, None));
    let last = events
        .dequeue_stamped()
        .expect("a clock")
        .expect("an event");
    assert_eq!(last.nanoseconds, None);
    let late = events.wait_stamped(1, Some(Duration::ZERO));
    assert!(late.is_err_and(|error| error.code().is(ReturnType::TimeoutExpired)));
}

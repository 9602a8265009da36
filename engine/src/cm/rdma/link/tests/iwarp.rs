//! iWARP: the kernel connects the queue pairs, and a requester may have to greet.

use super::*;

#[test]
fn the_requester_of_an_iwarp_connection_is_connected_without_establish() {
    let (mut session, sink, now) = requested(None);
    let event = Event::Established(PeerParameters::default());
    assert_eq!(session.handle(event, || now), Continues);
    assert!(matches!(
        sink.take()[..],
        [ConnectionEvent::Accepted { .. }]
    ));
    assert_eq!(
        session.asked(),
        ["resolve address", "resolve route", "connect", "route"]
    );
    assert_eq!(session.handle(Event::Disconnected, || now), Ended);
    assert_eq!(sink.take(), [ConnectionEvent::Disconnected]);
}

/// Returns a passive session that the kernel has connected, and whose requester has
/// to greet.
fn silent(now: Instant) -> (Tried, Arc<Sink>, Arc<Greeting>) {
    let greeting = Arc::new(Greeting::simulated());
    let sink = Arc::new(Sink {
        greeting: Some(Arc::clone(&greeting)),
        ..Sink::default()
    });
    let (mut session, _) = pending();
    session.log.lock().unwrap().greets = true;
    let accepted = session.accept(sink.gate(), now, None);
    assert_eq!(accepted, Continues);
    let event = Event::Established(PeerParameters::default());
    assert_eq!(session.handle(event, || now), Continues);
    assert_eq!(sink.take(), []);
    (session, sink, greeting)
}

#[test]
fn a_requester_that_has_to_greet_is_ready_after_its_greeting() {
    let mut now = Instant::now();
    let (mut session, sink, greeting) = silent(now);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let due = session.due().expect("a look");
        pauses.push((due - now).as_micros());
        now = due;
        assert_eq!(session.expire(now), Continues);
        assert_eq!(sink.take(), []);
    }
    assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1280, 2000, 2000]);
    greeting.arrive();
    let due = session.due().expect("a look");
    assert_eq!(session.expire(due), Continues);
    assert_eq!(sink.take(), [ConnectionEvent::Established]);
    assert_eq!(session.due(), None);
}

#[test]
fn a_requester_that_does_not_greet_in_time_fails() {
    let now = Instant::now();
    let (mut session, sink, _) = silent(now);
    assert_eq!(session.expire(now + TIMEOUT), Ended);
    assert_eq!(sink.take(), [ConnectionEvent::AcceptFailed]);
    let (mut session, sink, _) = silent(now);
    assert_eq!(session.handle(Event::Disconnected, || now), Ended);
    assert_eq!(sink.take(), [ConnectionEvent::AcceptFailed]);
    // Its connection is also ended when this side disconnects.
    let (mut session, sink, _) = silent(now);
    assert_eq!(session.disconnect(Some(now + TIMEOUT)), Continues);
    assert_eq!(session.asked(), ["accept", "disconnect"]);
    assert_eq!(session.handle(Event::Disconnected, || now), Ended);
    assert_eq!(sink.take(), [ConnectionEvent::Disconnected]);
}

#[test]
fn a_greeting_and_a_disconnect_are_both_reported() {
    let now = Instant::now();
    let (mut session, sink, greeting) = silent(now);
    greeting.arrive();
    assert_eq!(session.handle(Event::Disconnected, || now), Ended);
    let expected = [ConnectionEvent::Established, ConnectionEvent::Disconnected];
    assert_eq!(sink.take(), expected);
}

#[test]
fn a_refusal_by_tcp_means_that_there_is_no_listener() {
    for (errno, expected) in [
        (libc::ECONNREFUSED, ConnectionEvent::NonPeerRejected),
        (libc::ECONNRESET, ConnectionEvent::NonPeerRejected),
        (libc::EHOSTUNREACH, ConnectionEvent::Unreachable),
    ] {
        let (mut session, sink, _) = requested(None);
        let event = Event::Unsent(Some(errno));
        assert_eq!(session.handle(event, Instant::now), Ended);
        assert!(session.end(), "the kernel was connecting");
        assert_eq!(sink.take(), [expected]);
    }
}

#[test]
fn a_connection_that_ends_without_an_answer_was_not_refused_by_the_application() {
    for (errno, expected) in [
        (libc::EINVAL, ConnectionEvent::NonPeerRejected),
        (libc::ETIMEDOUT, ConnectionEvent::Unreachable),
    ] {
        let (mut session, sink, now) = requested(None);
        assert_eq!(session.handle(Event::Failed(-errno), || now), Ended);
        assert_eq!(sink.take(), [expected]);
    }
}

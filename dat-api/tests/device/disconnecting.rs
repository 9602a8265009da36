//! The end of connections: gracefully, abruptly, by the peer, by failure.

use std::sync::Arc;
use std::time::Duration;

use dat_api::object::ep::Ep;
use dat_api::object::evd::Evd;
use dat_api::object::pz::Pz;
use dat_api::types::{CompletionFlags, ConnectionKind, DtoStatus, EpState, EventData};
use dat_api::{ReturnType, Subtype};

use crate::fixture::*;

#[test]
fn a_graceful_disconnect_lets_requests_finish_first() {
    let fixture = Fixture::new();
    let pair = fixture.pair();
    let [a, b] = &pair.eps;
    for cookie in 0..8 {
        recv(b, &[fixture.memory.local(cookie as usize * 64, 64)], cookie).expect("room");
    }
    for cookie in 0..8 {
        send(a, &[fixture.memory.local(0x1000, 64)], cookie).expect("room");
    }
    a.disconnect_now(true).expect("connected");
    a.disconnect_now(true).expect("no effect the second time");
    for cookie in 0..8 {
        assert_eq!(success(&pair.evds[0]), (cookie, 64));
        assert_eq!(success(&pair.evds[1]), (cookie, 64));
    }
    for (evd, ep) in pair.evds.iter().zip(&pair.eps) {
        assert_eq!(connection(evd), (ConnectionKind::Disconnected, ep.handle()));
        assert_eq!(ep.state(), EpState::Disconnected);
        nothing(evd);
    }
    a.disconnect_now(true).expect("no effect");
    a.disconnect_now(false).expect("no effect");
    nothing(&pair.evds[0]);
}

#[test]
fn a_graceful_disconnect_waits_for_suppressed_requests_and_a_slow_peer() {
    let fixture = Fixture::new();
    let pair = fixture.pair();
    let [a, b] = &pair.eps;
    // The peer has no receive yet: the send is retried.
    fixture.memory.write(0x1000, b"late but whole");
    send_with(
        a,
        &[fixture.memory.local(0x1000, 100)],
        1,
        CompletionFlags::SUPPRESS,
    )
    .expect("room");
    a.disconnect_now(true).expect("connected");
    assert_eq!(a.state(), EpState::DisconnectPending);
    let wrong = refusal(ReturnType::InvalidState, Subtype::InvalidStateEpDiscpending);
    assert_eq!(send(a, &[], 2), Err(wrong), "no new requests");
    nothing(&pair.evds[0]);
    assert_eq!(b.state(), EpState::Connected);
    recv(b, &[fixture.memory.local(0, 100)], 3).expect("room");
    assert_eq!(success(&pair.evds[1]), (3, 100));
    assert_eq!(fixture.memory.read(0, 14), b"late but whole");
    // The disconnect completes although the EVD of the requests is not polled.
    assert_eq!(connection(&pair.evds[1]).0, ConnectionKind::Disconnected);
    reaches(a, EpState::Disconnected);
    assert_eq!(connection(&pair.evds[0]).0, ConnectionKind::Disconnected);
    nothing(&pair.evds[0]);
}

#[test]
fn an_abrupt_disconnect_does_not_wait() {
    let fixture = Fixture::new();
    let pair = fixture.pair();
    let [a, b] = &pair.eps;
    send(a, &[fixture.memory.local(0, 100)], 1).expect("room");
    recv(a, &[fixture.memory.local(0, 100)], 2).expect("room");
    recv(b, &[], 3).expect("room");
    // The peer's receive is too short: the send fails, or is cut short.
    a.disconnect_now(true).expect("connected");
    a.disconnect_now(false).expect("pending");
    assert_eq!(a.state(), EpState::Disconnected);
    // Failed completions may come before or after the connection event.
    let (mut seen, mut news) = (Vec::new(), Vec::new());
    while seen.len() < 2 || news.is_empty() {
        match next(&pair.evds[0]) {
            dat_api::types::EventData::Dto { cookie, status, .. } => {
                assert_ne!(status, DtoStatus::Success);
                seen.push(cookie);
            }
            dat_api::types::EventData::Connection { kind, .. } => news.push(kind),
            other => panic!("{other:?}"),
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, [1, 2]);
    assert_eq!(news, [ConnectionKind::Disconnected]);
    nothing(&pair.evds[0]);
}

/// Takes the flushed receive and the disconnect event; returns the cookie. Devices other than the
/// emulated one may flush later.
fn flushed_by_the_end(evd: &Evd) -> u64 {
    let disconnected = |event| {
        let EventData::Connection { kind, .. } = event else {
            panic!("not of a connection: {event:?}");
        };
        assert_eq!(kind, ConnectionKind::Disconnected);
    };
    let first = next(evd);
    if is_given() && matches!(first, EventData::Connection { .. }) {
        disconnected(first);
        return flushed(evd);
    }
    let EventData::Dto { cookie, status, .. } = first else {
        panic!("not a completion: {first:?}");
    };
    assert_eq!(status, DtoStatus::Flushed);
    disconnected(next(evd));
    cookie
}

#[test]
fn either_side_can_disconnect_and_both_get_events() {
    let fixture = Fixture::new();
    for graceful in [false, true] {
        for first in [0, 1] {
            let pair = fixture.pair();
            for (ep, cookie) in pair.eps.iter().zip([10, 20]) {
                recv(ep, &[fixture.memory.local(0, 64)], cookie).expect("room");
            }
            pair.eps[first].disconnect_now(graceful).expect("connected");
            for (i, cookie) in [(1 - first, [10, 20][1 - first]), (first, [10, 20][first])] {
                assert_eq!(flushed_by_the_end(&pair.evds[i]), cookie);
                assert_eq!(pair.eps[i].state(), EpState::Disconnected);
            }
        }
    }
}

#[test]
fn r08_posts_after_the_disconnect_are_flushed_at_once() {
    let fixture = Fixture::new();
    let pair = fixture.pair();
    let [a, _] = &pair.eps;
    a.disconnect_now(false).expect("connected");
    assert_eq!(connection(&pair.evds[0]).0, ConnectionKind::Disconnected);
    recv(a, &[fixture.memory.local(0, 8)], 1).expect("legal");
    send(a, &[fixture.memory.local(0, 8)], 2).expect("legal");
    read(
        a,
        &[fixture.memory.local(0, 8)],
        3,
        &fixture.memory.remote(64, 8),
    )
    .expect("legal");
    let mut cookies = [
        flushed(&pair.evds[0]),
        flushed(&pair.evds[0]),
        flushed(&pair.evds[0]),
    ];
    cookies.sort_unstable();
    assert_eq!(cookies, [1, 2, 3]);
    let status = a.status();
    assert!(status.recv_idle && status.request_idle, "{status:?}");
}

/// Checks how an end is notified of a failure at the other end. rdma_cm reports it as a disconnect,
/// and a given device may connect by it.
#[track_caller]
fn is_end_after_failure(kind: ConnectionKind) {
    let is_disconnect = kind == ConnectionKind::Disconnected;
    assert!(
        kind == ConnectionKind::Broken || is_disconnect && (is_given() || is_over_rdma_cm()),
        "{kind:?}"
    );
}

#[test]
fn r07_a_message_that_does_not_fit_breaks_the_connection() {
    let fixture = Fixture::new();
    let pair = fixture.pair();
    let [a, b] = &pair.eps;
    recv(b, &[fixture.memory.local(0, 16)], 1).expect("room");
    recv(b, &[fixture.memory.local(0, 16)], 2).expect("room");
    send(a, &[fixture.memory.local(64, 17)], 3).expect("room");
    let failed = done(&pair.evds[1]);
    assert_eq!((failed.cookie, failed.status), (1, DtoStatus::LocalLength));
    let mut rest = Vec::new();
    let end = loop {
        match next(&pair.evds[1]) {
            dat_api::types::EventData::Connection { kind, .. } => break kind,
            dat_api::types::EventData::Dto { cookie, status, .. } => {
                assert_eq!(status, DtoStatus::Flushed);
                rest.push(cookie);
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(end, ConnectionKind::Broken);
    if rest.is_empty() {
        rest.push(flushed(&pair.evds[1]));
    }
    assert_eq!(rest, [2]);
    let failed = done(&pair.evds[0]);
    assert_eq!(failed.cookie, 3);
    assert_eq!(failed.status, DtoStatus::RemoteResponder);
    is_end_after_failure(connection(&pair.evds[0]).0);
    for ep in &pair.eps {
        assert_eq!(ep.state(), EpState::Disconnected);
        ep.reset_now().expect("disconnected");
    }
    fixture.join(&pair.eps, &pair.evds);
}

#[test]
fn a_refused_remote_access_breaks_both_ends() {
    let fixture = Fixture::new();
    let pair = fixture.pair();
    let [a, _] = &pair.eps;
    // The memory is in another zone than the endpoint that it is reached through.
    let other = Pz::create(&fixture.ia).expect("a zone");
    let foreign = Memory::new(&fixture.ia, &other, 4096, ALL_RIGHTS);
    write(a, &[fixture.memory.local(0, 8)], 1, &foreign.remote(0, 8))
        .expect("posted; the peer refuses it");
    let failed = done(&pair.evds[0]);
    assert_eq!((failed.cookie, failed.status), (1, DtoStatus::RemoteAccess));
    // Each end finds the failure itself, or the other reports it.
    let kinds = [0, 1].map(|i| {
        let (kind, ep) = connection(&pair.evds[i]);
        assert_eq!(ep, pair.eps[i].handle());
        assert_eq!(pair.eps[i].state(), EpState::Disconnected);
        is_end_after_failure(kind);
        kind
    });
    assert!(kinds.contains(&ConnectionKind::Broken), "{kinds:?}");
}

#[test]
fn endpoints_are_freed_in_every_legal_state() {
    let fixture = Fixture::new();
    // Connected: the peer gets an event.
    let pair = fixture.pair();
    recv(&pair.eps[0], &[fixture.memory.local(0, 8)], 1).expect("room");
    let handle = pair.eps[0].handle();
    free_ep(handle).expect("connected");
    assert_eq!(connection(&pair.evds[1]).0, ConnectionKind::Disconnected);
    let gone = refusal(ReturnType::InvalidHandle, Subtype::InvalidHandleEp);
    assert_eq!(free_ep(handle).unwrap_err().code(), gone);
    // Its EVD is unused, and has no events of it.
    nothing(&pair.evds[0]);
    Evd::free(pair.evds[0].handle()).expect("no stream is attached");
    // Disconnected.
    free_ep(pair.eps[1].handle()).expect("disconnected");
    // Disconnecting.
    let pair = fixture.pair();
    send(&pair.eps[0], &[fixture.memory.local(0, 100)], 1).expect("room");
    pair.eps[0].disconnect_now(true).expect("connected");
    // On iWARP the send needs no receive of the peer, so the disconnect may be over already.
    let state = pair.eps[0].state();
    let may_be_over = is_iwarp() && state == EpState::Disconnected;
    assert!(
        may_be_over || state == EpState::DisconnectPending,
        "{state:?}"
    );
    free_ep(pair.eps[0].handle()).expect("disconnecting");
    assert_eq!(connection(&pair.evds[1]).0, ConnectionKind::Disconnected);
    // Connecting.
    let evd = fixture.evd(8);
    let ep = fixture.ep(&evd, &plain());
    let (_, qualifier) = fixture.listen(&evd);
    fixture.connect(&ep, qualifier, b"").expect("connecting");
    let cr = request(&evd);
    free_ep(ep.handle()).expect("connecting");
    dat_api::object::cr::Cr::reject(cr, &[]).expect("a request");
    // Unconnected.
    let idle = fixture.ep(&evd, &plain());
    free_ep(idle.handle()).expect("unconnected");
    nothing(&evd);
}

#[test]
fn an_adapter_closed_abruptly_ends_its_connections() {
    let near = Fixture::new();
    let far = Fixture::new();
    let evds = [near.evd(16), far.evd(16)];
    let eps: [Arc<Ep>; 2] = [near.ep(&evds[0], &plain()), far.ep(&evds[1], &plain())];
    let (_, qualifier) = far.listen(&evds[1]);
    near.connect(&eps[0], qualifier, b"").expect("connecting");
    let cr = request(&evds[1]);
    dat_api::object::cr::Cr::accept(cr, Some(eps[1].handle()), b"").expect("accepting");
    assert_eq!(connection(&evds[1]).0, ConnectionKind::Established);
    assert_eq!(connection(&evds[0]).0, ConnectionKind::Established);
    drop(far);
    assert_eq!(connection(&evds[0]).0, ConnectionKind::Disconnected);
}

#[test]
fn a_graceful_disconnect_completes_while_only_another_evd_is_polled() {
    let fixture = Fixture::new();
    let requests = [fixture.evd(16), fixture.evd(16)];
    let news = [fixture.evd(16), fixture.evd(16)];
    let eps = [0, 1].map(|i| {
        let (dto, conn) = (Some(&requests[i]), Some(&news[i]));
        Ep::create(
            &fixture.ia,
            Some(&fixture.pz),
            dto,
            dto,
            conn,
            Some(&plain()),
        )
        .expect("made")
    });
    fixture.join(&eps, &news);
    recv(&eps[1], &[fixture.memory.local(0, 64)], 1).expect("room");
    send(&eps[0], &[fixture.memory.local(64, 64)], 2).expect("room");
    eps[0].disconnect_now(true).expect("connected");
    // The completions of requests are not polled.
    let event = wait_for(news[0].handle(), Duration::from_secs(10)).expect("in time");
    assert!(matches!(
        event.data,
        dat_api::types::EventData::Connection {
            kind: ConnectionKind::Disconnected,
            ..
        }
    ));
    assert_eq!(success(&requests[0]), (2, 64));
}

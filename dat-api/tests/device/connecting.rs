//! From connect to established, and what can go wrong in between.

use std::time::{Duration, Instant};

use dat_api::handle;
use dat_api::object::cr::Cr;
use dat_api::object::ep::{Connect, Ep, EpChange, EpFields};
use dat_api::object::psp::{EpCreator, Psp};
use dat_api::types::{ConnectionKind, DtoStatus, EpState, EvdFlags, EventData};
use dat_api::{ReturnType, Subtype};

use crate::fixture::*;

/// Returns the bytes of an event's private data.
fn private(event: EventData) -> Vec<u8> {
    let EventData::Connection { private_data, .. } = event else {
        panic!("not of a connection: {event:?}");
    };
    bytes(private_data.address, private_data.len)
}

fn bytes(address: usize, len: u32) -> Vec<u8> {
    if len == 0 {
        return Vec::new();
    }
    // SAFETY: DAT says that they are valid now.
    unsafe { std::slice::from_raw_parts(address as *const u8, len as usize) }.to_vec()
}

/// Returns the maximum length of private data, which is 56 with rdma_cm.
fn most_private_data(fixture: &Fixture) -> usize {
    let most = fixture.ia.query().provider.max_private_data_size;
    assert!(most >= 56, "{most}");
    most as usize
}

#[test]
fn w03_w04_w05_private_data_arrives_whole_and_stays() {
    let fixture = Fixture::new();
    let evds = [fixture.evd(16), fixture.evd(16)];
    let eps = [
        fixture.ep(&evds[0], &plain()),
        fixture.ep(&evds[1], &plain()),
    ];
    let (_, qualifier) = fixture.listen(&evds[1]);
    let most = most_private_data(&fixture);
    let asked: Vec<u8> = (0..most).map(|i| i as u8).collect();
    let answer: Vec<u8> = (0..most).map(|i| (i * 7) as u8).collect();
    fixture
        .connect(&eps[0], qualifier, &asked)
        .expect("the maximum length");
    assert_eq!(eps[0].state(), EpState::ActiveConnectionPending);
    let cr = request(&evds[1]);
    let pinned = handle::pin::<Cr>(cr).expect("a request");
    let info = pinned.query();
    assert_eq!(
        bytes(info.private_data.address, info.private_data.len),
        asked
    );
    assert_eq!(info.local_ep, None);
    assert_ne!(info.remote_port, 0);
    drop(pinned);
    Cr::accept(cr, Some(eps[1].handle()), &answer).expect("the maximum length");
    assert!(handle::pin::<Cr>(cr).is_none(), "w02: the request is gone");
    assert_eq!(
        Cr::reject(cr, &[]).unwrap_err().code().kind(),
        Some(ReturnType::InvalidHandle)
    );
    let established = next(&evds[0]);
    assert_eq!(private(established), answer);
    assert_eq!(private(next(&evds[1])), b"", "w03: passive side");
    for ep in &eps {
        assert_eq!(ep.state(), EpState::Connected);
    }
    // They stay valid through the disconnect, until the reset.
    eps[1].disconnect_now(false).expect("connected");
    assert_eq!(connection(&evds[0]).0, ConnectionKind::Disconnected);
    assert_eq!(private(established), answer);
}

#[test]
fn w05_too_much_private_data_is_refused_on_both_sides() {
    let fixture = Fixture::new();
    let evds = [fixture.evd(16), fixture.evd(16)];
    let eps = [
        fixture.ep(&evds[0], &plain()),
        fixture.ep(&evds[1], &plain()),
    ];
    let (_, qualifier) = fixture.listen(&evds[1]);
    let most = most_private_data(&fixture);
    let long = vec![1u8; most + 1];
    let refused = fixture.connect(&eps[0], qualifier, &long).unwrap_err();
    assert_eq!(
        refused.code(),
        refusal(ReturnType::InvalidParameter, Subtype::InvalidArg5)
    );
    assert_eq!(eps[0].state(), EpState::Unconnected);
    fixture
        .connect(&eps[0], qualifier, &long[..1])
        .expect("short");
    let cr = request(&evds[1]);
    let refused = Cr::accept(cr, Some(eps[1].handle()), &long).unwrap_err();
    assert_eq!(
        refused.code(),
        refusal(ReturnType::InvalidParameter, Subtype::InvalidArg3)
    );
    assert_eq!(eps[1].state(), EpState::Unconnected);
    // Request and endpoint are unchanged.
    Cr::accept(cr, Some(eps[1].handle()), &long[..most]).expect("the maximum length");
    assert_eq!(connection(&evds[1]).0, ConnectionKind::Established);
    assert_eq!(private(next(&evds[0])), &long[..most]);
}

#[test]
fn a_rejected_endpoint_flushes_its_receives_and_can_try_again() {
    let fixture = Fixture::new();
    let evds = [fixture.evd(16), fixture.evd(16)];
    let eps = [
        fixture.ep(&evds[0], &plain()),
        fixture.ep(&evds[1], &plain()),
    ];
    let (psp, qualifier) = fixture.listen(&evds[1]);
    recv(&eps[0], &[fixture.memory.local(0, 64)], 7).expect("r08: before connecting");
    fixture
        .connect(&eps[0], qualifier, b"")
        .expect("connecting");
    recv(&eps[0], &[fixture.memory.local(64, 64)], 8).expect("r08: while connecting");
    Cr::reject(request(&evds[1]), &[]).expect("a request");
    // First the completions of its receives, then the connection event; devices other than the
    // emulated one may flush later.
    let mut events = [next(&evds[0]), next(&evds[0]), next(&evds[0])];
    if is_given() {
        events.sort_by_key(|event| matches!(event, EventData::Connection { .. }));
    }
    for (event, tag) in events.iter().zip([7, 8]) {
        let flushed = matches!(
            *event,
            EventData::Dto { cookie, status: DtoStatus::Flushed, .. } if cookie == tag
        );
        assert!(flushed, "{events:?}");
    }
    assert!(
        matches!(
            events[2],
            EventData::Connection { kind: ConnectionKind::PeerRejected, ep, .. } if ep == eps[0].handle()
        ),
        "{events:?}"
    );
    assert_eq!(eps[0].state(), EpState::Disconnected);
    eps[0].reset_now().expect("disconnected");
    assert_eq!(eps[0].recv_query().allocated, 0, "q08");
    Psp::free(psp).expect("listening");
    fixture.join(&eps, &evds);
}

#[test]
fn connecting_fails_without_a_listener_and_without_an_answer() {
    let fixture = Fixture::new();
    let evd = fixture.evd(16);
    let ep = fixture.ep(&evd, &plain());
    let (psp, qualifier) = fixture.listen(&evd);
    Psp::free(psp).expect("listening");
    fixture.connect(&ep, qualifier, b"").expect("asynchronous");
    assert_eq!(connection(&evd).0, ConnectionKind::NonPeerRejected);
    ep.reset_now().expect("disconnected");
    let (_, qualifier) = fixture.listen(&evd);
    let how = Connect {
        timeout: Some(Duration::from_millis(500)),
        ..fixture.to(qualifier, b"")
    };
    ep.connect(&how).expect("asynchronous");
    let cr = request(&evd);
    assert_eq!(connection(&evd).0, ConnectionKind::TimedOut);
    assert_eq!(ep.state(), EpState::Disconnected);
    // Accepting too late does not hang: an event reports the failure.
    let other = fixture.ep(&evd, &plain());
    Cr::accept(cr, Some(other.handle()), b"").expect("asynchronous");
    assert_eq!(
        connection(&evd),
        (ConnectionKind::AcceptCompletionError, other.handle())
    );
    assert_eq!(other.state(), EpState::Disconnected);
}

/// The kernels of both ends remember the number of a queue pair for a while after its
/// connection: endpoints that had the numbers of those before them would wait for that.
#[test]
fn new_endpoints_need_not_wait_until_the_connections_before_them_are_forgotten() {
    // With numbers that are reused at once, every second connection waits for that.
    const PAIRS: u32 = 400;
    const LIMIT: Duration = Duration::from_secs(30);
    if is_given() {
        return;
    }
    let fixture = Fixture::new();
    let begun = Instant::now();
    for _ in 0..PAIRS {
        let pair = fixture.pair();
        pair.eps[0].disconnect_now(false).expect("connected");
        for (ep, evd) in pair.eps.iter().zip(&pair.evds) {
            assert_eq!(connection(evd).0, ConnectionKind::Disconnected);
            free_ep(ep.handle()).expect("disconnected");
        }
    }
    let took = begun.elapsed();
    assert!(took < LIMIT, "{took:?} for {PAIRS} connections");
}

#[test]
fn accepting_an_abandoned_request_ends_in_an_event() {
    let fixture = Fixture::new();
    let evds = [fixture.evd(16), fixture.evd(16)];
    let eps = [
        fixture.ep(&evds[0], &plain()),
        fixture.ep(&evds[1], &plain()),
    ];
    let (_, qualifier) = fixture.listen(&evds[1]);
    for by_free in [false, true] {
        fixture
            .connect(&eps[0], qualifier, b"")
            .expect("connecting");
        let cr = request(&evds[1]);
        if by_free {
            free_ep(eps[0].handle()).expect("legal while connecting");
        } else {
            eps[0].disconnect_now(true).expect("legal while connecting");
            assert_eq!(connection(&evds[0]).0, ConnectionKind::Disconnected);
            eps[0].reset_now().expect("disconnected");
        }
        Cr::accept(cr, Some(eps[1].handle()), b"").expect("asynchronous");
        assert_eq!(
            connection(&evds[1]).0,
            ConnectionKind::AcceptCompletionError
        );
        eps[1].reset_now().expect("disconnected");
    }
}

#[test]
fn connect_is_refused_without_parts_or_with_bad_arguments() {
    let fixture = Fixture::new();
    let evd = fixture.evd(16);
    let all = Some(&evd);
    let code = |ep: &Ep, how: &Connect<'_>| ep.connect(how).unwrap_err().code();
    let how = fixture.to(1234, b"");

    let without_evd = Ep::create(
        &fixture.ia,
        Some(&fixture.pz),
        all,
        all,
        None,
        Some(&plain()),
    )
    .unwrap();
    assert_eq!(
        code(&without_evd, &how),
        refusal(ReturnType::InvalidHandle, Subtype::InvalidHandleEvdConn)
    );
    let without_zone = Ep::create(&fixture.ia, None, all, all, all, Some(&plain())).unwrap();
    assert_eq!(
        code(&without_zone, &how),
        refusal(ReturnType::InvalidState, Subtype::InvalidStateEpNotready)
    );
    let ep = fixture.ep(&evd, &plain());
    let none = Connect {
        timeout: Some(Duration::ZERO),
        ..how
    };
    assert_eq!(
        code(&ep, &none),
        refusal(ReturnType::InvalidParameter, Subtype::InvalidArg4)
    );
    for odd in [Connect { qos: 1, ..how }, Connect { flags: 1, ..how }] {
        assert_eq!(
            code(&ep, &odd),
            refusal(ReturnType::ModelNotSupported, Subtype::NoSubtype)
        );
    }
    let nowhere = Connect {
        address: "0.0.0.0:0".parse().unwrap(),
        ..how
    };
    assert_eq!(
        ep.connect(&nowhere).unwrap_err().code().kind(),
        Some(ReturnType::InvalidAddress)
    );
    assert_eq!(ep.state(), EpState::Unconnected);
}

#[test]
fn calls_refused_because_of_the_state_name_it() {
    let fixture = Fixture::new();
    let pair = fixture.pair();
    let [ep, _] = &pair.eps;
    let wrong = refusal(ReturnType::InvalidState, Subtype::InvalidStateEpConnected);
    assert_eq!(fixture.connect(ep, 1234, b"").unwrap_err().code(), wrong);
    assert_eq!(ep.reset_now().unwrap_err().code(), wrong);
    let idle = fixture.ep(&pair.evds[0], &plain());
    let wrong = refusal(ReturnType::InvalidState, Subtype::InvalidStateEpUnconnected);
    assert_eq!(idle.disconnect_now(true).unwrap_err().code(), wrong);
    assert_eq!(send(&idle, &[], 1), Err(wrong));
    idle.reset_now().expect("a no-op");
    let (_, qualifier) = fixture.listen(&pair.evds[1]);
    fixture.connect(&idle, qualifier, b"").expect("connecting");
    let cr = request(&pair.evds[1]);
    let wrong = refusal(
        ReturnType::InvalidState,
        Subtype::InvalidStateEpActconnpending,
    );
    assert_eq!(
        Cr::accept(cr, Some(idle.handle()), b"").unwrap_err().code(),
        wrong
    );
    assert_eq!(send(&idle, &[], 1), Err(wrong));
    // The failed accept did not use the request up.
    let fresh = fixture.ep(&pair.evds[1], &plain());
    Cr::accept(cr, Some(fresh.handle()), b"").expect("unconnected");
    assert_eq!(connection(&pair.evds[1]).0, ConnectionKind::Established);
}

#[test]
fn accept_is_refused_for_unsuitable_endpoints() {
    let fixture = Fixture::new();
    let evds = [fixture.evd(16), fixture.evd(16)];
    let ep = fixture.ep(&evds[0], &plain());
    let (_, qualifier) = fixture.listen(&evds[1]);
    fixture.connect(&ep, qualifier, b"").expect("connecting");
    let cr = request(&evds[1]);
    let evd = Some(&evds[1]);
    let without_evd = Ep::create(
        &fixture.ia,
        Some(&fixture.pz),
        evd,
        evd,
        None,
        Some(&plain()),
    )
    .unwrap();
    let without_zone = Ep::create(&fixture.ia, None, evd, evd, evd, Some(&plain())).unwrap();
    let bad = refusal(ReturnType::InvalidHandle, Subtype::InvalidHandleEp);
    for ep in [
        None,
        Some(without_evd.handle()),
        Some(without_zone.handle()),
        Some(cr),
    ] {
        assert_eq!(Cr::accept(cr, ep, b"").unwrap_err().code(), bad);
    }
    let bad = refusal(ReturnType::InvalidHandle, Subtype::InvalidHandleCr);
    assert_eq!(Cr::accept(ep.handle(), None, b"").unwrap_err().code(), bad);
    Cr::reject(cr, &[]).expect("still there");
    assert_eq!(connection(&evds[0]).0, ConnectionKind::PeerRejected);
}

#[test]
fn service_points_are_exclusive_and_their_backlog_is_the_evd() {
    let fixture = Fixture::new();
    let small = fixture.evd_for(2, EvdFlags::CR);
    let (psp, qualifier) = fixture.listen(&small);
    let again = Psp::create(&fixture.ia, qualifier, &small, EpCreator::Consumer).unwrap_err();
    assert_eq!(again.code().kind(), Some(ReturnType::ConnQualInUse));
    let zero = Psp::create(&fixture.ia, 0, &small, EpCreator::Consumer).unwrap_err();
    assert_eq!(
        zero.code(),
        refusal(ReturnType::InvalidParameter, Subtype::InvalidArg2)
    );
    let dto = fixture.evd_for(2, EvdFlags::DTO);
    let wrong = Psp::create_any(&fixture.ia, &dto, EpCreator::Consumer).unwrap_err();
    assert_eq!(
        wrong.code(),
        refusal(ReturnType::InvalidHandle, Subtype::InvalidHandleEvdCr)
    );

    let evd = fixture.evd(64);
    let eps: Vec<_> = (0..3).map(|_| fixture.ep(&evd, &plain())).collect();
    for ep in &eps {
        fixture.connect(ep, qualifier, b"").expect("connecting");
    }
    // Two fit; the third is refused, but not by the consumer.
    let (kind, refused) = connection(&evd);
    assert_eq!(kind, ConnectionKind::NonPeerRejected);
    let crs = [request(&small), request(&small)];
    Psp::free(psp).expect("listening");
    // Delivered requests stay valid.
    for cr in crs {
        let info = handle::pin::<Cr>(cr).expect("a request").query();
        assert_ne!(info.remote_address, 0);
        Cr::reject(cr, &[]).expect("a request");
    }
    let mut events = [connection(&evd), connection(&evd)];
    events.sort_by_key(|(_, ep)| *ep);
    let mut expected: Vec<_> = eps
        .iter()
        .map(|ep| ep.handle())
        .filter(|&ep| ep != refused)
        .collect();
    expected.sort();
    assert_eq!(events.map(|(_, ep)| ep).to_vec(), expected);
    assert!(
        events
            .iter()
            .all(|(kind, _)| *kind == ConnectionKind::PeerRejected)
    );
    assert_eq!(
        Psp::free(psp).unwrap_err().code().kind(),
        Some(ReturnType::InvalidHandle)
    );
}

#[test]
fn the_provider_can_create_the_endpoint_of_a_request() {
    let fixture = Fixture::new();
    let evds = [fixture.evd(16), fixture.evd(16)];
    let psp = Psp::create_any(&fixture.ia, &evds[1], EpCreator::Provider).expect("a service point");
    let ep = fixture.ep(&evds[0], &plain());
    fixture
        .connect(&ep, psp.query().qualifier, b"")
        .expect("connecting");
    let cr = request(&evds[1]);
    let brought = handle::pin::<Cr>(cr)
        .unwrap()
        .query()
        .local_ep
        .expect("an endpoint");
    let theirs = handle::pin::<Ep>(brought).expect("live").to_arc();
    assert_eq!(theirs.state(), EpState::TentativeConnectionPending);
    let refused = free_ep(brought).unwrap_err().code();
    assert_eq!(
        refused,
        refusal(
            ReturnType::InvalidState,
            Subtype::InvalidStateEpTentconnpending
        )
    );
    assert_eq!(
        theirs.query().attributes.max_rdma_read_in,
        4,
        "what fits the requester"
    );
    let change = EpChange {
        pz: Some(fixture.pz.handle()),
        recv_evd: Some(evds[1].handle()),
        request_evd: Some(evds[1].handle()),
        connect_evd: Some(evds[1].handle()),
        attributes: theirs.query().attributes,
    };
    let fields = EpFields::PZ | EpFields::RECV_EVD | EpFields::REQUEST_EVD | EpFields::CONNECT_EVD;
    theirs.modify_now(fields, &change).expect("tentative");
    Cr::accept(cr, None, b"hello").expect("accepting");
    assert_eq!(connection(&evds[1]), (ConnectionKind::Established, brought));
    assert_eq!(private(next(&evds[0])), b"hello");
    recv(&theirs, &[fixture.memory.local(0, 64)], 1).expect("room");
    send(&ep, &[fixture.memory.local(64, 64)], 2).expect("connected");
    assert_eq!(success(&evds[1]), (1, 64));
    assert_eq!(success(&evds[0]), (2, 64));

    // Rejecting the request frees its endpoint.
    let other = fixture.ep(&evds[0], &plain());
    fixture
        .connect(&other, psp.query().qualifier, b"")
        .expect("connecting");
    let cr = request(&evds[1]);
    let brought = handle::pin::<Cr>(cr)
        .unwrap()
        .query()
        .local_ep
        .expect("an endpoint");
    Cr::reject(cr, &[]).expect("a request");
    assert_eq!(
        free_ep(brought).unwrap_err().code().kind(),
        Some(ReturnType::InvalidHandle)
    );
    assert_eq!(connection(&evds[0]).0, ConnectionKind::PeerRejected);
}

#[test]
fn e14_endpoints_can_be_connected_repeatedly() {
    let fixture = Fixture::new();
    let pair = fixture.pair();
    // A kernel whose connection manager is used remembers a queue pair number for seconds.
    let rounds = if is_given() { 4 } else { 20 };
    for round in 0..rounds {
        recv(&pair.eps[1], &[fixture.memory.local(0, 8)], round).expect("room");
        send(&pair.eps[0], &[fixture.memory.local(8, 8)], round).expect("connected");
        assert_eq!(success(&pair.evds[1]), (round, 8));
        assert_eq!(success(&pair.evds[0]), (round, 8));
        let (first, second) = if round % 2 == 0 { (0, 1) } else { (1, 0) };
        pair.eps[first]
            .disconnect_now(round % 4 < 2)
            .expect("connected");
        assert_eq!(
            connection(&pair.evds[second]).0,
            ConnectionKind::Disconnected
        );
        assert_eq!(
            connection(&pair.evds[first]).0,
            ConnectionKind::Disconnected
        );
        for ep in &pair.eps {
            ep.reset_now().expect("disconnected");
            assert_eq!(ep.state(), EpState::Unconnected);
        }
        fixture.join(&pair.eps, &pair.evds);
    }
}

//! Behaviour that iWARP makes difficult. A consumer must not notice it, so most of these tests hold
//! on every device.

use dat_api::ReturnType;
use dat_api::object::cr::Cr;
use dat_api::object::ep::Ep;
use dat_api::object::ia::{AsyncEvd, Ia, OpenRequest};
use dat_api::object::lmr::Lmr;
use dat_api::object::psp::Psp;
use dat_api::types::{
    CompletionFlags, ConnectionKind, DtoStatus, EpAttributes, EpState, EventData, MemPrivileges,
};

use crate::fixture::*;

/// Returns the number of connections in one test: kernels of other transports remember each.
fn rounds() -> u64 {
    if is_iwarp() { 1000 } else { 3 }
}

#[test]
fn the_accepting_side_may_send_first() {
    let fixture = Fixture::new();
    let pair = fixture.pair();
    for round in 0..rounds() {
        if round > 0 {
            recv(&pair.eps[0], &[fixture.memory.local(0, 64)], round).expect("room");
            let (psp, qualifier) = fixture.listen(&pair.evds[1]);
            fixture
                .connect(&pair.eps[0], qualifier, b"")
                .expect("connecting");
            let cr = request(&pair.evds[1]);
            Cr::accept(cr, Some(pair.eps[1].handle()), b"").expect("accepting");
            assert_eq!(connection(&pair.evds[1]).0, ConnectionKind::Established);
            // At once, whatever state the other side is in.
            send(&pair.eps[1], &[fixture.memory.local(64, 64)], round).expect("connected");
            assert_eq!(success(&pair.evds[1]), (round, 64), "round {round}");
            let mut news = 0;
            for _ in 0..2 {
                match next(&pair.evds[0]) {
                    EventData::Connection { kind, .. } => {
                        assert_eq!(kind, ConnectionKind::Established, "round {round}");
                        news += 1;
                    }
                    EventData::Dto { cookie, status, .. } => {
                        assert_eq!((cookie, status), (round, DtoStatus::Success));
                    }
                    other => panic!("round {round}: {other:?}"),
                }
            }
            assert_eq!(news, 1);
            Psp::free(psp).expect("listening");
        }
        pair.eps[(round % 2) as usize]
            .disconnect_now(false)
            .expect("connected");
        for (ep, evd) in pair.eps.iter().zip(&pair.evds) {
            assert_eq!(connection(evd).0, ConnectionKind::Disconnected);
            ep.reset_now().expect("disconnected");
        }
    }
}

/// Takes events until the connection has ended, and all posts have completed. Returns the cookies
/// in order.
fn accounted_for(fixture: &Pair, which: usize, posted: usize) -> Vec<u64> {
    let (mut cookies, mut ended) = (Vec::new(), false);
    while !ended || cookies.len() < posted {
        match next(&fixture.evds[which]) {
            EventData::Connection { kind, .. } => {
                assert!(matches!(
                    kind,
                    ConnectionKind::Disconnected | ConnectionKind::Broken
                ));
                ended = true;
            }
            EventData::Dto { cookie, .. } => cookies.push(cookie),
            other => panic!("{other:?}"),
        }
    }
    nothing(&fixture.evds[which]);
    cookies
}

#[test]
fn every_post_completes_once_when_traffic_is_disconnected() {
    let fixture = Fixture::new();
    for first in 0..6 {
        let pair = fixture.pair();
        for (ep, at) in pair.eps.iter().zip([0, 0x1000]) {
            for cookie in 0..8 {
                recv(ep, &[fixture.memory.local(at, 64)], 100 + cookie).expect("room");
            }
            for cookie in 0..4 {
                let remote = fixture.memory.remote(0x800, 64);
                let here = [fixture.memory.local(at + 0x400, 64)];
                read(ep, &here, 2 * cookie, &remote).expect("room");
                send(ep, &[fixture.memory.local(at, 64)], 2 * cookie + 1).expect("room");
            }
        }
        pair.eps[first % 2]
            .disconnect_now(first >= 3)
            .expect("connected");
        for which in 0..2 {
            let cookies = accounted_for(&pair, which, 16);
            let requests: Vec<u64> = cookies.iter().copied().filter(|one| *one < 100).collect();
            assert_eq!(requests, (0..8).collect::<Vec<u64>>(), "in order");
            let mut receives: Vec<u64> = cookies.into_iter().filter(|one| *one >= 100).collect();
            receives.sort_unstable();
            assert_eq!(receives, (100..108).collect::<Vec<u64>>());
            assert_eq!(pair.eps[which].state(), EpState::Disconnected);
        }
    }
}

#[test]
fn requests_complete_in_the_order_in_which_they_were_posted() {
    let fixture = Fixture::new();
    let pair = fixture.pair();
    let [a, b] = &pair.eps;
    for round in 0..40 {
        for cookie in 0..4 {
            recv(b, &[fixture.memory.local(0, 8)], cookie).expect("room");
        }
        for cookie in 0..4 {
            let remote = fixture.memory.remote(0x800, 4096);
            read(
                a,
                &[fixture.memory.local(0x2000, 4096)],
                2 * cookie,
                &remote,
            )
            .expect("room");
            send(a, &[fixture.memory.local(8, 8)], 2 * cookie + 1).expect("room");
        }
        for cookie in 0..8 {
            let done = done(&pair.evds[0]);
            assert_eq!(
                (done.cookie, done.status),
                (cookie, DtoStatus::Success),
                "{round}"
            );
        }
        for cookie in 0..4 {
            assert_eq!(success(&pair.evds[1]).0, cookie);
        }
    }
}

#[test]
fn an_rdma_read_into_memory_without_remote_write_works() {
    let fixture = Fixture::new();
    let pair = fixture.pair();
    let rights = MemPrivileges::LOCAL_READ | MemPrivileges::LOCAL_WRITE;
    let sink = Memory::new(&fixture.ia, &fixture.pz, 4096, rights);
    // Queries report only the privileges that were asked for.
    let info = sink.lmr.query();
    assert_eq!((info.privileges, info.rmr_context), (rights, 0));
    fixture.memory.write(0x800, b"brought by a read");
    let remote = fixture.memory.remote(0x800, 17);
    read(&pair.eps[0], &[sink.local(5, 17)], 1, &remote).expect("room");
    assert_eq!(success(&pair.evds[0]), (1, 17));
    assert_eq!(sink.read(5, 17), b"brought by a read");
    Lmr::free(sink.lmr.handle()).expect("not bound");
}

fn with_cm(value: &str, then: impl FnOnce(dat_api::Result<()>)) {
    let data = format!("{} 1 cm={value}", name());
    let request = OpenRequest {
        name: "iwarp",
        async_qlen: 8,
        async_evd: AsyncEvd::New,
        threadsafe: false,
        major: 1,
        minor: 2,
        interface: (1, 2),
    };
    device();
    let opened = Ia::open_configured(&request, &data);
    then(opened.map(|(ia, _)| {
        // SAFETY: it has no objects.
        unsafe { Ia::close(ia.handle(), true) }.expect("open");
    }));
}

#[test]
fn sockets_are_refused_where_only_rdma_cm_connects() {
    with_cm("socket", |opened| match (is_iwarp(), opened) {
        (true, Err(error)) => {
            assert_eq!(error.code().kind(), Some(ReturnType::ModelNotSupported));
            let cause = error.cause();
            assert!(
                cause.contains("iWARP") && cause.contains("rdma_cm"),
                "{cause}"
            );
            assert!(!cause.contains("GID"), "{cause}");
        }
        (false, Ok(())) => (),
        (iwarp, opened) => panic!("{iwarp} {opened:?}"),
    });
    with_cm("auto", |opened| {
        opened.expect("auto selects a manager that works")
    });
}

#[test]
fn attributes_match_the_transport() {
    let fixture = Fixture::new();
    let info = fixture.ia.query();
    let cm = |named: &dat_api::object::ia::NamedAttribute| named.name == "cm";
    let by = info
        .provider
        .provider_specific_attributes
        .iter()
        .find(|named| cm(named));
    if is_iwarp() {
        assert_eq!(by.map(|named| &*named.value), Some("rdma_cm"));
        assert_eq!(info.provider.max_private_data_size, 235);
        assert_eq!(info.ia.max_iov_segments_per_rdma_read, 1);
    }
    assert!(!info.provider.rdma_write_for_rdma_read_req);
    // An attribute that the device does not support is neither claimed nor accepted.
    let wait = CompletionFlags::SOLICITED_WAIT;
    let claimed = info.provider.completion_flags_supported.contains(wait);
    assert_eq!(claimed, fixture.ia.device().reports_solicited());
    let (recv, other) = (fixture.evd(16), fixture.evd(16));
    let asked = EpAttributes {
        recv_completion_flags: wait,
        ..plain()
    };
    let (recv, other) = (Some(&recv), Some(&other));
    let made = Ep::create(
        &fixture.ia,
        Some(&fixture.pz),
        recv,
        other,
        other,
        Some(&asked),
    );
    assert_eq!(made.is_ok(), claimed, "{:?}", made.err());
    if let Err(error) = made {
        assert_eq!(error.code().kind(), Some(ReturnType::ModelNotSupported));
    }
    assert!(!info.ia.ia_address.ip().is_unspecified());
}

/// A connection attempt that was given up does not delay later ones.
#[test]
fn an_abandoned_connect_does_not_delay_others() {
    let fixture = Fixture::new();
    let evd = fixture.evd(16);
    let (_, qualifier) = fixture.listen(&evd);
    let ep = fixture.ep(&evd, &plain());
    let begun = std::time::Instant::now();
    fixture.connect(&ep, qualifier, b"").expect("asynchronous");
    let cr = request(&evd);
    ep.disconnect_now(false).expect("pending");
    assert_eq!(connection(&evd).0, ConnectionKind::Disconnected);
    ep.reset_now().expect("disconnected");
    // SAFETY: nothing is posted.
    unsafe { Ep::free(ep.handle()) }.expect("unconnected");
    let other = fixture.pair();
    drop(other);
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    Cr::reject(cr, &[]).expect("a request");
}

//! Shared receive queues, and endpoints on them.

use std::sync::Arc;
use std::time::Duration;

use dat_api::object::ep::Ep;
use dat_api::object::pz::Pz;
use dat_api::object::srq::{Srq, SrqState};
use dat_api::types::{
    AsyncKind, AsyncReason, CompletionFlags, ConnectionKind, EpAttributes, EpState, MemPrivileges,
    SrqAttributes,
};
use dat_api::{DatReturn, ReturnType, Subtype};

use crate::fixture::*;

/// How long to wait for an event that must not come.
const MOMENT: Duration = Duration::from_millis(50);

fn post(srq: &Srq, fixture: &Fixture, cookie: u64) -> Result<(), DatReturn> {
    // SAFETY: one thread posts; the memory is never unmapped.
    unsafe {
        srq.post_recv(
            &[fixture.memory.local(cookie as usize % 64 * 64, 64)],
            cookie,
        )
    }
}

/// Returns an SRQ of 15 with some receives, and a sender connected to a receiver on it.
fn stage(fixture: &Fixture, receives: u64) -> (Arc<Srq>, Pair) {
    let srq = fixture.srq(15);
    for cookie in 0..receives {
        post(&srq, fixture, cookie).expect("room");
    }
    let evds = [fixture.evd(64), fixture.evd(64)];
    let eps = [
        fixture.ep(&evds[0], &plain()),
        fixture.shared_ep(&evds[1], &srq),
    ];
    fixture.join(&eps, &evds);
    (srq, Pair { eps, evds })
}

/// Sends one message from the first to the second, and takes both events.
fn message(fixture: &Fixture, pair: &Pair) -> u64 {
    send(&pair.eps[0], &[fixture.memory.local(0x8000, 8)], 77).expect("room");
    assert_eq!(success(&pair.evds[0]), (77, 8));
    success(&pair.evds[1]).0
}

fn low(srq: &Srq) -> Option<(AsyncKind, dat_api::Handle, AsyncReason)> {
    Some((
        AsyncKind::ProviderInternalError,
        srq.handle(),
        AsyncReason::Watermark,
    ))
}

#[test]
fn e01_e03_e06_endpoints_take_their_receives_from_the_queue() {
    let fixture = Fixture::new();
    let (srq, pair) = stage(&fixture, 5);
    assert_eq!(pair.eps[1].query().srq, Some(srq.handle()));
    for cookie in 0..3 {
        assert_eq!(message(&fixture, &pair), cookie);
    }
    let refused = recv(&pair.eps[1], &[fixture.memory.local(0, 8)], 1).unwrap_err();
    assert_eq!(
        refused,
        refusal(ReturnType::InvalidState, Subtype::InvalidStateSrqInUse),
        "e06"
    );
    assert_eq!(recv(&pair.eps[1], &[], 1), Err(refused), "e06");
    let info = srq.query();
    assert_eq!((info.available, info.outstanding), (2, 2));
    assert_eq!(info.state, SrqState::Operational);
    // e05: the reset keeps the SRQ.
    pair.eps[1].disconnect_now(false).expect("connected");
    assert_eq!(connection(&pair.evds[1]).0, ConnectionKind::Disconnected);
    assert_eq!(connection(&pair.evds[0]).0, ConnectionKind::Disconnected);
    for ep in &pair.eps {
        ep.reset_now().expect("disconnected");
    }
    assert_eq!(pair.eps[1].query().srq, Some(srq.handle()));
    fixture.join(&pair.eps, &pair.evds);
    assert_eq!(message(&fixture, &pair), 3);
    let used = Srq::free(srq.handle()).unwrap_err().code();
    assert_eq!(
        used,
        refusal(ReturnType::InvalidState, Subtype::InvalidStateSrqInUse)
    );
    free_ep(pair.eps[1].handle()).expect("connected");
    Srq::free(srq.handle()).expect("not in use");
    let gone = Srq::free(srq.handle()).unwrap_err().code();
    assert_eq!(
        gone,
        refusal(ReturnType::InvalidHandle, Subtype::InvalidHandleSrq)
    );
}

#[test]
fn e04_the_zones_of_queue_and_endpoint_may_differ() {
    let fixture = Fixture::new();
    let zone = Pz::create(&fixture.ia).expect("a zone");
    let theirs = Memory::new(&fixture.ia, &zone, 4096, ALL_RIGHTS);
    let attributes = SrqAttributes {
        max_recv_dtos: 4,
        max_recv_iov: 1,
        low_watermark: 0,
    };
    let srq = Srq::create(&fixture.ia, &zone, &attributes).expect("made");
    // SAFETY: one thread posts; the memory is never unmapped.
    let post = |segment| unsafe { srq.post_recv(&[segment], 5) };
    assert_eq!(
        post(fixture.memory.local(0, 8)).unwrap_err().kind(),
        Some(ReturnType::ProtectionViolation)
    );
    let readable = Memory::new(&fixture.ia, &zone, 64, MemPrivileges::LOCAL_READ);
    assert_eq!(
        post(readable.local(0, 8)).unwrap_err().kind(),
        Some(ReturnType::PrivilegesViolation)
    );
    post(theirs.local(0, 8)).expect("its own zone");
    let evds = [fixture.evd(16), fixture.evd(16)];
    if !fixture.ia.query().provider.srq_ep_pz_difference_supported {
        assert!(is_given(), "mlx5 devices support it");
        let (pz, evd) = (Some(&fixture.pz), Some(&evds[1]));
        let refused = Ep::create_with_srq(&fixture.ia, pz, evd, evd, evd, &srq, &plain());
        let code = refused.expect_err("another zone").code();
        assert_eq!(
            code,
            refusal(ReturnType::InvalidParameter, Subtype::InvalidArg2)
        );
        return;
    }
    let eps = [
        fixture.ep(&evds[0], &plain()),
        fixture.shared_ep(&evds[1], &srq),
    ];
    fixture.join(&eps, &evds);
    fixture.memory.write(0, b"eight by");
    send(&eps[0], &[fixture.memory.local(0, 8)], 1).expect("room");
    assert_eq!(success(&evds[1]), (5, 8));
    assert_eq!(theirs.read(0, 8), b"eight by");
}

#[test]
fn the_queue_holds_as_many_receives_as_it_reports() {
    let fixture = Fixture::new();
    let srq = fixture.srq(5);
    let real = srq.query().attributes;
    assert!(
        real.max_recv_dtos >= 5 && real.max_recv_iov >= 2,
        "{real:?}"
    );
    for cookie in 0..real.max_recv_dtos as u64 {
        post(&srq, &fixture, cookie).expect("room");
    }
    let full = refusal(ReturnType::InsufficientResources, Subtype::ResourceMemory);
    assert_eq!(post(&srq, &fixture, 99), Err(full));
    assert_eq!(srq.query().outstanding, real.max_recv_dtos as u32);
    let many = vec![fixture.memory.local(0, 1); real.max_recv_iov as usize + 1];
    // SAFETY: as above.
    let refused = unsafe { srq.post_recv(&many, 1) }.unwrap_err();
    assert_eq!(refused.kind(), Some(ReturnType::InvalidParameter));
}

#[test]
fn bad_queue_attributes_are_refused() {
    let fixture = Fixture::new();
    let good = SrqAttributes {
        max_recv_dtos: 4,
        max_recv_iov: 1,
        low_watermark: 0,
    };
    let limits = fixture.ia.query().ia;
    for bad in [
        SrqAttributes {
            max_recv_dtos: 0,
            ..good
        },
        SrqAttributes {
            max_recv_dtos: -1,
            ..good
        },
        SrqAttributes {
            max_recv_iov: 0,
            ..good
        },
        SrqAttributes {
            low_watermark: 1,
            ..good
        },
        SrqAttributes {
            max_recv_dtos: limits.max_recv_per_srq.saturating_add(1),
            ..good
        },
        SrqAttributes {
            max_recv_iov: limits.max_iov_segments_per_dto + 1,
            ..good
        },
    ] {
        let refused = Srq::create(&fixture.ia, &fixture.pz, &bad).unwrap_err();
        assert_eq!(
            refused.code(),
            refusal(ReturnType::InvalidParameter, Subtype::InvalidArg3),
            "{bad:?}"
        );
    }
}

#[test]
fn l01_l02_l03_l04_the_low_watermark_reports_once_per_setting() {
    let fixture = Fixture::new();
    let (srq, pair) = stage(&fixture, 6);
    srq.set_low_watermark(4).expect("below the size");
    assert_eq!(fixture.async_event(MOMENT), None, "6 are not below 4");
    message(&fixture, &pair);
    message(&fixture, &pair);
    assert_eq!(fixture.async_event(MOMENT), None, "nor are 4");
    message(&fixture, &pair);
    assert_eq!(fixture.async_event(TIMEOUT), low(&srq), "l02: 3 are");
    message(&fixture, &pair);
    assert_eq!(fixture.async_event(MOMENT), None, "l03: once");
    // l04: set again, although already below it.
    srq.set_low_watermark(4).expect("again");
    assert_eq!(
        fixture.async_event(TIMEOUT),
        low(&srq),
        "l02: during the call"
    );
    message(&fixture, &pair);
    assert_eq!(fixture.async_event(MOMENT), None, "l03: once");
    assert_eq!(srq.query().attributes.low_watermark, 4);
}

#[test]
fn l04_a_new_watermark_replaces_an_armed_one() {
    let fixture = Fixture::new();
    let (srq, pair) = stage(&fixture, 6);
    srq.set_low_watermark(5).expect("set");
    srq.set_low_watermark(2).expect("replaced before it fired");
    for _ in 0..4 {
        message(&fixture, &pair);
        assert_eq!(fixture.async_event(MOMENT), None);
    }
    message(&fixture, &pair);
    assert_eq!(fixture.async_event(TIMEOUT), low(&srq));
    // Turned off.
    for cookie in 0..5 {
        post(&srq, &fixture, cookie).expect("room");
    }
    srq.set_low_watermark(6).expect("set");
    assert_eq!(fixture.async_event(MOMENT), None, "6 are not below 6");
    srq.set_low_watermark(0).expect("off");
    for _ in 0..6 {
        message(&fixture, &pair);
    }
    assert_eq!(fixture.async_event(MOMENT), None);
}

#[test]
fn l02_the_device_reports_the_watermark_without_polling() {
    let fixture = Fixture::new();
    let (srq, pair) = stage(&fixture, 6);
    srq.set_low_watermark(4).expect("set");
    for cookie in 0..3 {
        send(&pair.eps[0], &[fixture.memory.local(0x8000, 8)], cookie).expect("room");
        success(&pair.evds[0]);
    }
    // Their completions are not polled.
    assert_eq!(fixture.async_event(TIMEOUT), low(&srq));
    for cookie in 0..3 {
        assert_eq!(success(&pair.evds[1]).0, cookie);
    }
    assert_eq!(
        fixture.async_event(MOMENT),
        None,
        "trap 11: found twice, reported once"
    );
}

#[test]
fn l05_a_watermark_above_the_size_is_refused() {
    let fixture = Fixture::new();
    let srq = fixture.srq(7);
    let most = srq.query().attributes.max_recv_dtos;
    for bad in [most + 1, -1, i32::MIN, i32::MAX] {
        let refused = srq.set_low_watermark(bad).unwrap_err();
        assert_eq!(
            refused.code().kind(),
            Some(ReturnType::InvalidParameter),
            "{bad}"
        );
    }
    assert_eq!(fixture.async_event(MOMENT), None);
    srq.set_low_watermark(most).expect("the maximum");
    assert_eq!(
        fixture.async_event(TIMEOUT),
        low(&srq),
        "an empty queue is below"
    );
}

#[test]
fn q02_receives_of_a_shared_queue_count_from_their_completion() {
    let fixture = Fixture::new();
    let (_, pair) = stage(&fixture, 6);
    let [a, b] = &pair.eps;
    assert_eq!(b.recv_query().allocated, 0, "none is taken yet");
    for cookie in 0..3 {
        send(a, &[fixture.memory.local(0x8000, 8)], cookie).expect("room");
        success(&pair.evds[0]);
    }
    let held = b.recv_query();
    assert_eq!((held.allocated, held.span), (3, 3));
    assert!(!b.status().recv_idle);
    for left in [2, 1, 0] {
        success(&pair.evds[1]);
        assert_eq!(b.recv_query().allocated, left);
    }
    assert!(b.status().recv_idle);
}

#[test]
fn e02_completions_without_an_evd_fill_no_queue() {
    let fixture = Fixture::new();
    let srq = fixture.srq(7);
    let evds = [fixture.evd(16), fixture.evd(16)];
    let attributes = EpAttributes {
        max_recv_dtos: -1,
        ..plain()
    };
    let silent = Ep::create_with_srq(
        &fixture.ia,
        Some(&fixture.pz),
        None,
        None,
        Some(&evds[1]),
        &srq,
        &attributes,
    )
    .expect("made");
    let eps = [fixture.ep(&evds[0], &plain()), silent];
    fixture.join(&eps, &evds);
    for round in 0..60u64 {
        post(&srq, &fixture, round).expect("room");
        send(&eps[0], &[fixture.memory.local(0x8000, 8)], round).expect("room");
        assert_eq!(success(&evds[0]), (round, 8));
        recv(&eps[0], &[fixture.memory.local(0, 8)], round).expect("room");
        send(&eps[1], &[fixture.memory.local(0x8000, 8)], round).expect("room");
        assert_eq!(success(&evds[0]), (round, 8));
    }
    nothing(&evds[1]);
    eps[1].disconnect_now(true).expect("connected");
    assert_eq!(connection(&evds[1]).0, ConnectionKind::Disconnected);
    assert_eq!(connection(&evds[0]).0, ConnectionKind::Disconnected);
}

#[test]
fn high_watermarks_report_and_break_the_connection() {
    let fixture = Fixture::new();
    let srq = fixture.srq(15);
    for cookie in 0..10 {
        post(&srq, &fixture, cookie).expect("room");
    }
    let evds = [fixture.evd(64), fixture.evd(64)];
    let attributes = EpAttributes {
        max_recv_dtos: 4,
        srq_soft_hw: 2,
        ..plain()
    };
    let evd = Some(&evds[1]);
    let watched = Ep::create_with_srq(
        &fixture.ia,
        Some(&fixture.pz),
        evd,
        evd,
        evd,
        &srq,
        &attributes,
    )
    .expect("made");
    assert_eq!(watched.query().attributes.max_recv_dtos, 4, "e09");
    let eps = [fixture.ep(&evds[0], &plain()), watched];
    fixture.join(&eps, &evds);
    let hold = |count: u64| {
        for cookie in 0..count {
            send(&eps[0], &[fixture.memory.local(0x8000, 8)], cookie).expect("room");
            success(&evds[0]);
        }
        eps[1].recv_query().allocated
    };
    assert_eq!(hold(2), 2);
    assert_eq!(fixture.async_event(MOMENT), None);
    assert_eq!(hold(1), 3);
    let soft = (
        AsyncKind::ProviderInternalError,
        eps[1].handle(),
        AsyncReason::Watermark,
    );
    assert_eq!(fixture.async_event(TIMEOUT), Some(soft));
    assert_eq!(eps[1].state(), EpState::Connected);
    assert_eq!(hold(1), 4);
    assert_eq!(fixture.async_event(MOMENT), None, "once");
    hold(1);
    assert_eq!(eps[1].state(), EpState::Disconnected, "above the hard one");
    for _ in 0..5 {
        success(&evds[1]);
    }
    assert_eq!(connection(&evds[1]).0, ConnectionKind::Broken);
}

#[test]
fn solicited_sends_complete_on_solicited_wait_endpoints() {
    let fixture = Fixture::new();
    let srq = fixture.srq(7);
    for cookie in 0..4 {
        post(&srq, &fixture, cookie).expect("room");
    }
    let (dto, news) = (
        fixture.evd_for(16, dat_api::types::EvdFlags::DTO),
        fixture.evd(16),
    );
    let requests = fixture.evd(16);
    let attributes = EpAttributes {
        max_recv_dtos: -1,
        recv_completion_flags: CompletionFlags::SOLICITED_WAIT,
        ..plain()
    };
    let asking = Ep::create_with_srq(
        &fixture.ia,
        Some(&fixture.pz),
        Some(&dto),
        Some(&requests),
        Some(&news),
        &srq,
        &attributes,
    )
    .expect("made");
    let evd = fixture.evd(16);
    let eps = [fixture.ep(&evd, &plain()), asking];
    fixture.join(&eps, &[evd.clone(), news]);
    let segment = [fixture.memory.local(0x8000, 8)];
    send_with(&eps[0], &segment, 1, CompletionFlags::SOLICITED_WAIT).expect("room");
    assert_eq!(success(&dto).0, 0);
}

//! How many receives an endpoint holds (`dat_ep_recv_query`), and the completion flags of receives.

use std::time::Duration;

use dat_api::object::ep::{EpStatus, RecvQuery};
use dat_api::object::evd::{self, Evd, Timeout};
use dat_api::types::{
    CompletionFlags, ConnectionKind, DtoStatus, EpAttributes, EpState, EventData,
};

use crate::fixture::*;

fn held(count: u32) -> RecvQuery {
    RecvQuery {
        allocated: count,
        span: count,
    }
}

#[test]
fn q01_q02_q05_a_receive_counts_from_post_to_dequeue() {
    let fixture = Fixture::new();
    let pair = fixture.pair();
    let [a, b] = &pair.eps;
    let m = &fixture.memory;
    assert_eq!(b.recv_query(), held(0));
    for cookie in 0..5 {
        recv(b, &[m.local(0, 8)], cookie).expect("room");
        assert_eq!(b.recv_query(), held(cookie as u32 + 1));
    }
    assert!(!b.status().recv_idle);
    for cookie in 0..5 {
        send(a, &[m.local(64, 8)], cookie).expect("room");
        success(&pair.evds[0]);
        assert_eq!(success(&pair.evds[1]), (cookie, 8));
        assert_eq!(b.recv_query(), held(4 - cookie as u32));
    }
    assert!(b.status().recv_idle);
}

/// Returns the cookie of the next flushed receive. A device may flush at any time, also after the
/// disconnect event.
fn flushed_by_now(evd: &Evd) -> u64 {
    loop {
        match next(evd) {
            EventData::Connection {
                kind: ConnectionKind::Disconnected,
                ..
            } => {}
            EventData::Dto { cookie, status, .. } => {
                assert_eq!(status, DtoStatus::Flushed);
                return cookie;
            }
            other => panic!("neither flushed nor the end: {other:?}"),
        }
    }
}

#[test]
fn q08_counts_survive_flush_reset_and_reconnection() {
    let fixture = Fixture::new();
    let pair = fixture.pair();
    let [a, b] = &pair.eps;
    let m = &fixture.memory;
    for round in 0..3 {
        for cookie in 0..6 {
            recv(b, &[m.local(0, 8)], cookie).expect("room");
        }
        send(a, &[m.local(64, 8)], 0).expect("room");
        assert_eq!(success(&pair.evds[1]), (0, 8));
        assert_eq!(b.recv_query(), held(5));
        b.disconnect_now(false).expect("connected");
        // Some of the flushed receives are taken, the others dropped by the reset.
        for cookie in 1..3 {
            assert_eq!(flushed_by_now(&pair.evds[1]), cookie);
        }
        assert_eq!(b.recv_query(), held(3), "round {round}");
        reaches(a, EpState::Disconnected);
        reaches(b, EpState::Disconnected);
        for ep in [a, b] {
            ep.reset_now().expect("disconnected");
            assert_eq!(ep.recv_query(), held(0));
        }
        // Only connection events are left in the EVDs.
        for evd in &pair.evds {
            while let Some(event) = wait_for(evd.handle(), Duration::from_millis(20)) {
                let is_dto = matches!(event.data, EventData::Dto { ep, .. } if ep == b.handle());
                assert!(!is_dto, "{event:?}");
            }
        }
        fixture.join(&pair.eps, &pair.evds);
    }
}

#[test]
fn status_reports_what_is_outstanding() {
    let fixture = Fixture::new();
    let pair = fixture.pair();
    let [a, b] = &pair.eps;
    let idle = |recv_idle, request_idle| EpStatus {
        state: EpState::Connected,
        recv_idle,
        request_idle,
    };
    assert_eq!(a.status(), idle(true, true));
    recv(a, &[fixture.memory.local(0, 8)], 1).expect("room");
    assert_eq!(a.status(), idle(false, true));
    send(a, &[fixture.memory.local(0, 8)], 1).expect("no receive over there");
    assert_eq!(a.status(), idle(false, false));
    recv(b, &[fixture.memory.local(64, 8)], 1).expect("room");
    success(&pair.evds[0]);
    assert_eq!(a.status(), idle(false, true));
}

#[test]
fn r04_unsignalled_receives_wake_no_waiter_and_others_do() {
    let fixture = Fixture::new();
    let unsignalled = EpAttributes {
        recv_completion_flags: CompletionFlags::UNSIGNALLED,
        request_completion_flags: CompletionFlags::UNSIGNALLED,
        ..plain()
    };
    let dto = [fixture.evd(64), fixture.evd(64)];
    let news = [fixture.evd(8), fixture.evd(8)];
    let eps = [0, 1].map(|i| {
        let (dto, conn) = (Some(&dto[i]), Some(&news[i]));
        dat_api::object::ep::Ep::create(
            &fixture.ia,
            Some(&fixture.pz),
            dto,
            dto,
            conn,
            Some(&unsignalled),
        )
        .expect("made")
    });
    fixture.join(&eps, &news);
    let m = &fixture.memory;
    for (cookie, flags) in [
        (1, CompletionFlags::UNSIGNALLED),
        (2, CompletionFlags::UNSIGNALLED),
        (3, CompletionFlags::empty()),
    ] {
        // SAFETY: one thread posts; the memory is never unmapped.
        unsafe { eps[1].post_recv(&[m.local(0, 8)], cookie, flags) }.expect("configured so");
    }
    std::thread::scope(|scope| {
        let evd = dto[1].handle();
        let (sender, waiting) = std::sync::mpsc::channel();
        scope.spawn(move || {
            let mut owned = evd::own(evd).expect("no other wait");
            // SAFETY: the call has no preconditions.
            let own = unsafe { libc::gettid() };
            sender.send(own).expect("the receiver is alive");
            let first = evd::wait(&mut owned, Timeout::Micros(60_000_000), 1);
            drop(owned);
            sender.send(own).expect("the receiver is alive");
            first.result.expect("an event")
        });
        let waiter = waiting.recv().expect("waiting");
        until_asleep(|| waiter);
        for cookie in 0..2 {
            send_with(
                &eps[0],
                &[m.local(64, 8)],
                cookie,
                CompletionFlags::UNSIGNALLED,
            )
            .expect("configured so");
        }
        assert!(
            waiting.recv_timeout(Duration::from_millis(200)).is_err(),
            "unsignalled completions woke the waiter"
        );
        send(&eps[0], &[m.local(64, 8)], 2).expect("room");
        waiting.recv_timeout(TIMEOUT).expect("woken by the third");
    });
    // The waiter took the first.
    assert_eq!(success(&dto[1]), (2, 8));
    assert_eq!(success(&dto[1]), (3, 8));
    for cookie in 0..3 {
        assert_eq!(success(&dto[0]), (cookie, 8));
    }
}

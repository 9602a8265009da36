//! What threads other than the posting one may do with an endpoint, and the
//! context by which completions name it.

use std::sync::mpsc;
use std::thread;

use dat_engine::control::QpState;
use dat_engine::{
    Completion, CompletionOp, ConnectOptions, ControlErrorKind, Endpoint, EndpointHandle,
    EndpointOptions, PostError, SendFlags, Status,
};

use crate::support::fixture::Fixture;
use crate::support::iwarp;

const SIGNALED: SendFlags = SendFlags::SIGNALED;
const UNSIGNALED: SendFlags = SendFlags::empty();

fn endpoint(fixture: &Fixture, context: u64, shared: bool) -> Endpoint {
    let options = EndpointOptions {
        context,
        srq: shared.then(|| fixture.srq.handle()),
        send_depth: 8,
        recv_depth: 8,
        ..EndpointOptions::new(fixture.cq.handle(), fixture.cq.handle())
    };
    fixture
        .domain
        .create_endpoint(&options)
        .expect("an endpoint")
}

/// Connects two endpoints by their handles.
fn join(handles: &[EndpointHandle; 2]) {
    if iwarp::is_iwarp() {
        return iwarp::join_handles(handles, &ConnectOptions::default());
    }
    let at = [0, 1].map(|i: usize| handles[i].local_address(1).expect("an active port"));
    let options = ConnectOptions::default();
    handles[0].connect(&at[1], &options).expect("connected");
    handles[1].connect(&at[0], &options).expect("connected");
}

fn reported(done: &[Completion]) -> Vec<(u64, u64, CompletionOp, Status)> {
    let mut reported: Vec<_> = done
        .iter()
        .map(|one| (one.context, one.wr_id, one.op, one.status))
        .collect();
    reported.sort_by_key(|one| (one.0, one.1));
    reported
}

#[test]
fn every_completion_names_its_endpoint_by_context_good_bad_and_flushed() {
    for shared in [false, true] {
        let mut fixture = Fixture::new(64);
        let mut ends = [1, 2].map(|i| endpoint(&fixture, u64::MAX - i, shared));
        let (first, second) = (u64::MAX - 1, u64::MAX - 2);
        crate::support::fixture::join(&mut ends);
        if shared {
            fixture.recv_shared(10).expect("room");
        } else {
            fixture.recv(&mut ends[1], 10).expect("room");
        }
        fixture.send(&mut ends[0], 20, SIGNALED).expect("room");
        fixture.system.run();
        assert_eq!(
            reported(&fixture.polled(2)),
            [
                (second, 10, CompletionOp::Recv, Status::Success),
                (first, 20, CompletionOp::Send, Status::Success),
            ]
        );
        // The peer posts nothing and goes to the error state, so the retries are
        // exceeded. On iWARP a send has completed when TCP has it, so only this
        // end's own error fails it.
        let (gone, status) = match iwarp::is_iwarp() {
            true => (0, Status::WrFlush),
            false => (1, Status::RetryExceeded),
        };
        ends[gone].to_error().expect("the error state");
        fixture.send(&mut ends[0], 21, SIGNALED).expect("room");
        fixture.send(&mut ends[0], 22, UNSIGNALED).expect("room");
        fixture.system.advance(std::time::Duration::from_secs(60));
        assert_eq!(
            reported(&fixture.polled(2)),
            [
                (first, 21, CompletionOp::Send, status),
                (first, 22, CompletionOp::Send, Status::WrFlush),
            ]
        );
    }
}

#[test]
fn a_handle_connects_and_the_poster_opens_when_it_pleases() {
    let mut fixture = Fixture::new(64);
    let mut ends = [1, 2].map(|context| endpoint(&fixture, context, false));
    let handles = [0, 1].map(|i: usize| ends[i].handle());
    assert!(!ends[0].open_receives() && !ends[0].open_sends());
    assert_eq!(fixture.recv(&mut ends[0], 0), Err(PostError::NotReady));
    handles[0].init(&ConnectOptions::default()).expect("INIT");
    assert_eq!(handles[0].state().expect("a state"), QpState::Init);
    assert_eq!(
        fixture.recv(&mut ends[0], 0),
        Err(PostError::NotReady),
        "the endpoint was not opened"
    );
    assert!(ends[0].open_receives() && !ends[0].open_sends());
    fixture.recv(&mut ends[0], 0).expect("room");
    join(&handles);
    assert_eq!(handles[0].state().expect("a state"), QpState::ReadyToSend);
    assert_eq!(
        fixture.send(&mut ends[0], 1, SIGNALED),
        Err(PostError::NotReady),
        "the endpoint was not opened"
    );
    assert_eq!(fixture.recv(&mut ends[1], 1), Err(PostError::NotReady));
    for end in &mut ends {
        assert!(end.open_receives() && end.open_sends());
    }
    fixture.send(&mut ends[1], 2, SIGNALED).expect("room");
    fixture.system.run();
    assert_eq!(
        reported(&fixture.polled(2)),
        [
            (1, 0, CompletionOp::Recv, Status::Success),
            (2, 2, CompletionOp::Send, Status::Success),
        ]
    );
    // A connected endpoint cannot be connected again.
    let at = handles[1].local_address(1).expect("an active port");
    let again = handles[0].connect(&at, &ConnectOptions::default());
    assert_eq!(again.unwrap_err().kind(), ControlErrorKind::Invalid);
}

#[test]
fn the_passive_side_receives_before_it_sends() {
    let mut fixture = Fixture::new(64);
    let mut ends = [1, 2].map(|context| endpoint(&fixture, context, false));
    let options = ConnectOptions::default();
    let at = [0, 1].map(|i: usize| ends[i].local_address(1).expect("an active port"));
    let passive = ends[1].handle();
    passive.init(&options).expect("INIT");
    passive.ready_to_receive(&at[0], &options).expect("RTR");
    assert!(ends[1].open_receives() && !ends[1].open_sends());
    fixture.recv(&mut ends[1], 1).expect("room");
    ends[0].connect(&at[1], &options).expect("connected");
    fixture.send(&mut ends[0], 2, SIGNALED).expect("room");
    fixture.system.run();
    assert_eq!(fixture.polled(2).len(), 2, "RTR takes messages");
    passive.ready_to_send(&options).expect("RTS");
    assert!(ends[1].open_sends());
}

#[test]
fn an_attempt_that_failed_flushes_what_was_and_what_will_be_posted() {
    for initialised in [false, true] {
        let mut fixture = Fixture::new(64);
        let mut end = endpoint(&fixture, 9, false);
        let handle = end.handle();
        let mut expected = Vec::new();
        if initialised {
            end.init(&ConnectOptions::default()).expect("INIT");
            fixture.recv(&mut end, 1).expect("room");
            expected.push((9, 1, CompletionOp::Recv, Status::WrFlush));
        }
        handle.to_error().expect("ERR");
        assert_eq!(handle.state().expect("a state"), QpState::Error);
        fixture.system.run();
        assert_eq!(reported(&fixture.polled(expected.len())), expected);
        assert!(end.open_receives() && end.open_sends());
        fixture.recv(&mut end, 2).expect("room");
        fixture.system.run();
        assert_eq!(
            reported(&fixture.polled(1)),
            [(9, 2, CompletionOp::Recv, Status::WrFlush)]
        );
        assert!(end.sends_idle() && end.recvs_outstanding() == 0);
        // Once more, and then back to a connection.
        handle.to_error().expect("ERR to ERR");
        end.reset().expect("RESET");
        assert_eq!(fixture.recv(&mut end, 5), Err(PostError::NotReady));
        let mut ends = [end, endpoint(&fixture, 8, false)];
        crate::support::fixture::join(&mut ends);
        fixture.recv(&mut ends[1], 6).expect("room");
        fixture.send(&mut ends[0], 7, SIGNALED).expect("room");
        fixture.system.run();
        assert_eq!(fixture.polled(2).len(), 2);
    }
}

#[test]
fn a_handle_of_an_endpoint_that_is_gone_refuses_to_move_it() {
    let mut fixture = Fixture::new(64);
    let end = endpoint(&fixture, 0, false);
    let (handle, qpn) = (end.handle(), end.qpn());
    drop(end);
    fixture.polled(0);
    let options = ConnectOptions::default();
    let gone = |result: Result<(), dat_engine::ControlError>| {
        let error = result.expect_err("gone");
        assert_eq!(error.kind(), ControlErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("was dropped"), "{error}");
    };
    gone(handle.init(&options));
    gone(handle.to_error());
    let peer = endpoint(&fixture, 0, false);
    assert_ne!(peer.qpn(), qpn, "a handle keeps the number");
    let at = peer.local_address(1).expect("an active port");
    gone(handle.connect(&at, &options));
    assert_eq!(handle.state().expect("a state"), QpState::Reset);
    assert!(handle.sends_idle() && handle.recvs_outstanding() == 0);
}

/// Returns the counts of the endpoint and of its handle, which must agree.
fn counts(end: &Endpoint) -> (bool, u32) {
    let handle = end.handle();
    assert_eq!(end.sends_idle(), handle.sends_idle());
    assert_eq!(end.recvs_outstanding(), handle.recvs_outstanding());
    (end.sends_idle(), end.recvs_outstanding())
}

#[test]
fn counts_follow_posts_and_polled_completions() {
    let mut fixture = Fixture::new(64);
    let mut ends = [1, 2].map(|context| endpoint(&fixture, context, false));
    crate::support::fixture::join(&mut ends);
    // Several laps of the rings.
    for lap in 0..20 {
        assert_eq!(counts(&ends[0]), (true, 0), "lap {lap}");
        for i in 0..3 {
            fixture.recv(&mut ends[1], i).expect("room");
        }
        assert_eq!(counts(&ends[1]), (true, 3));
        fixture.send(&mut ends[0], 0, SIGNALED).expect("room");
        fixture.send(&mut ends[0], 1, UNSIGNALED).expect("room");
        fixture.system.run();
        assert_eq!(
            (counts(&ends[0]), counts(&ends[1])),
            ((false, 0), (true, 3)),
            "nothing was polled"
        );
        assert_eq!(fixture.polled(3).len(), 3);
        let (is_idle, left) = counts(&ends[0]);
        assert_eq!((left, counts(&ends[1])), (0, (true, 1)));
        // On siw every request is signalled, and this one may have been polled.
        assert!(
            !is_idle || iwarp::is_iwarp(),
            "an unsignalled request counts until a later one completes"
        );
        fixture.send(&mut ends[0], 2, SIGNALED).expect("room");
        fixture.system.run();
        fixture.polled(1);
        assert_eq!((counts(&ends[0]), counts(&ends[1])), ((true, 0), (true, 0)));
    }
    if iwarp::is_iwarp() {
        // Its queue pairs have one connection each, and are not reset.
        return;
    }
    fixture.recv(&mut ends[1], 0).expect("room");
    fixture.send(&mut ends[0], 0, UNSIGNALED).expect("room");
    for end in &mut ends {
        end.reset().expect("RESET");
        assert_eq!(counts(end), (true, 0), "what was posted is forgotten");
    }
}

#[test]
fn a_shared_queue_counts_what_is_posted_and_not_polled() {
    let mut fixture = Fixture::new(64);
    let mut ends = fixture.pair(true);
    let count = |fixture: &Fixture| fixture.srq.outstanding();
    for lap in 0..20 {
        assert_eq!(count(&fixture), 0, "lap {lap}");
        for i in 0..5 {
            fixture.recv_shared(i).expect("room");
        }
        assert_eq!(count(&fixture), 5);
        for i in 0..5 {
            fixture.send(&mut ends[0], i, SIGNALED).expect("room");
            fixture.system.run();
            assert_eq!(count(&fixture), 5 - i as u32);
            assert_eq!(fixture.polled(2).len(), 2);
            assert_eq!(count(&fixture), 4 - i as u32);
        }
    }
    assert_eq!(ends[1].recvs_outstanding(), 0, "it has no queue of its own");
}

#[test]
fn one_thread_connects_while_another_posts_receives() {
    const ROUNDS: u64 = 40;
    let mut fixture = Fixture::new(64);
    for round in 0..ROUNDS {
        let mut ends = [1, 2].map(|context| endpoint(&fixture, context, false));
        let handles = [0, 1].map(|i: usize| ends[i].handle());
        let (initialised, wait) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                let options = ConnectOptions::default();
                handles[1].init(&options).expect("INIT");
                initialised.send(()).expect("it waits");
                join(&handles);
                if round % 2 == 1 {
                    handles[1].to_error().expect("ERR");
                }
            });
            wait.recv().expect("INIT");
            assert!(ends[1].open_receives());
            for wr_id in 0..8 {
                fixture.recv(&mut ends[1], wr_id).expect("room");
                thread::yield_now();
            }
        });
        assert!(ends[0].open_sends());
        // On iWARP a send to a peer in error completes when TCP has it: one more
        // completion.
        if round % 2 == 0 || !iwarp::is_iwarp() {
            fixture.send(&mut ends[0], 100, SIGNALED).expect("room");
        }
        fixture.system.run();
        let done = fixture.polled(if round % 2 == 1 { 8 } else { 2 });
        let flushed = done.iter().filter(|one| one.status == Status::WrFlush);
        if round % 2 == 1 {
            assert_eq!(flushed.count(), 8, "{done:?}");
        } else {
            assert_eq!((done.len(), flushed.count()), (2, 0), "{done:?}");
            assert_eq!(ends[1].recvs_outstanding(), 7);
        }
    }
}

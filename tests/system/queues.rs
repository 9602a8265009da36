//! Limits of queues: full, overrun, never signalled, and the events that report
//! them.

use dat_engine::control::{AsyncEventKind, AsyncSource};
use dat_engine::{
    Arm, CompletionFlags, CompletionOp, ControlErrorKind, CqOptions, Endpoint, EndpointOptions,
    PostError, SendFlags, SendOp, SendRequest, Status,
};

use crate::support::fixture::{Fixture, join};

const SIGNALED: SendFlags = SendFlags::SIGNALED;
const UNSIGNALED: SendFlags = SendFlags::empty();

#[test]
fn a_full_send_queue_refuses_posts_until_it_is_polled() {
    let mut fixture = Fixture::new(64);
    let mut ends = fixture.pair(true);
    let capacity = u64::from(ends[0].send_capacity());
    for lap in 0..50 {
        for i in 0..capacity {
            fixture.recv_shared(i).expect("room");
            fixture.send(&mut ends[0], i, SIGNALED).expect("room");
        }
        assert_eq!(
            fixture.send(&mut ends[0], 99, SIGNALED),
            Err(PostError::QueueFull)
        );
        fixture.system.run();
        // Completed but not polled: the places are still in use.
        assert_eq!(
            fixture.send(&mut ends[0], 99, SIGNALED),
            Err(PostError::QueueFull)
        );
        let done = fixture.polled(2 * capacity as usize);
        assert_eq!(done.len() as u64, 2 * capacity, "lap {lap}");
    }
}

#[test]
fn a_full_receive_queue_refuses_posts_until_it_is_polled() {
    let mut fixture = Fixture::new(64);
    let mut ends = fixture.pair(false);
    let capacity = u64::from(ends[1].recv_capacity());
    for lap in 0..50 {
        for i in 0..capacity {
            fixture.recv(&mut ends[1], i).expect("room");
        }
        assert_eq!(fixture.recv(&mut ends[1], 99), Err(PostError::QueueFull));
        for i in 0..capacity {
            fixture.send(&mut ends[0], i, SIGNALED).expect("room");
        }
        fixture.system.run();
        assert_eq!(fixture.recv(&mut ends[1], 99), Err(PostError::QueueFull));
        let done = fixture.polled(2 * capacity as usize);
        assert_eq!(done.len() as u64, 2 * capacity, "lap {lap}");
    }
}

#[test]
fn a_list_stops_at_the_first_request_without_room() {
    let mut fixture = Fixture::new(64);
    let mut ends = fixture.pair(true);
    let capacity = ends[0].send_capacity() as usize;
    let segments = [fixture.segment(0)];
    let request = SendRequest {
        wr_id: 1,
        op: SendOp::Send,
        flags: SIGNALED,
        segments: &segments,
    };
    // SAFETY: the buffer outlives the endpoints.
    let error = unsafe { ends[0].post_send_list(&vec![request; capacity + 3]) }.expect_err("full");
    assert_eq!(
        (error.posted, error.error),
        (capacity, PostError::QueueFull)
    );
    fixture.system.run();
    for i in 0..capacity {
        fixture.recv_shared(i as u64).expect("room");
    }
    fixture.system.advance(std::time::Duration::from_millis(50));
    assert_eq!(
        fixture.polled(2 * capacity).len(),
        2 * capacity,
        "what was posted before it is done"
    );
}

#[test]
fn an_unsignalled_run_is_released_by_the_next_completion() {
    let mut fixture = Fixture::new(64);
    let mut ends = fixture.pair(true);
    let capacity = u64::from(ends[0].send_capacity());
    for lap in 0..50 {
        for i in 0..capacity {
            fixture.recv_shared(i).expect("room");
            let flags = if i + 1 == capacity {
                SIGNALED
            } else {
                UNSIGNALED
            };
            fixture
                .send(&mut ends[0], i, flags)
                .unwrap_or_else(|e| panic!("{i} of {lap}: {e}"));
        }
        fixture.system.run();
        let done = fixture.polled(capacity as usize + 1);
        let sends: Vec<_> = done
            .iter()
            .filter(|one| one.op == CompletionOp::Send)
            .collect();
        assert_eq!(sends.len(), 1);
        assert_eq!(sends[0].wr_id, capacity - 1);
    }
}

#[test]
fn a_queue_that_was_never_signalled_stays_full_until_it_is_flushed() {
    let mut fixture = Fixture::new(64);
    let mut ends = fixture.pair(true);
    let capacity = u64::from(ends[0].send_capacity());
    for i in 0..capacity {
        fixture.recv_shared(i).expect("room");
        fixture.send(&mut ends[0], i, UNSIGNALED).expect("room");
    }
    fixture.system.run();
    let done = fixture.polled(capacity as usize);
    assert_eq!(done.len() as u64, capacity, "the receives");
    assert_eq!(
        fixture.send(&mut ends[0], 99, SIGNALED),
        Err(PostError::QueueFull)
    );
    for end in &mut ends {
        end.reset().expect("RESET");
    }
    join(&mut ends);
    fixture.recv_shared(1).expect("room");
    fixture
        .send(&mut ends[0], 1, SIGNALED)
        .expect("an empty queue");
    fixture.system.run();
    assert_eq!(fixture.polled(2).len(), 2);
}

#[test]
fn an_overrun_completion_queue_is_reported_and_nothing_hangs() {
    let mut fixture = Fixture::new(64);
    let small = CqOptions {
        depth: 4,
        ..CqOptions::default()
    };
    let mut small = fixture.system.device.create_cq(&small).expect("a CQ");
    let capacity = small.capacity() as usize + 1;
    let options = EndpointOptions {
        send_depth: 64,
        srq: Some(fixture.srq.handle()),
        ..EndpointOptions::new(small.handle(), fixture.cq.handle())
    };
    let mut ends = [
        fixture
            .domain
            .create_endpoint(&options)
            .expect("an endpoint"),
        { fixture.endpoint(true) },
    ];
    join(&mut ends);
    for i in 0..capacity as u64 + 2 {
        fixture.recv_shared(i).expect("room");
        fixture.send(&mut ends[0], i, SIGNALED).expect("room");
    }
    fixture.system.run();
    let events = fixture
        .system
        .events(|event| event.kind == AsyncEventKind::QpFatal);
    let overrun = events
        .iter()
        .find(|event| event.kind == AsyncEventKind::CqError);
    let overrun = overrun.unwrap_or_else(|| panic!("no overrun in {events:?}"));
    assert_eq!(overrun.source, AsyncSource::Cq(small.verbs().id()));
    let fatal = events
        .iter()
        .any(|event| event.kind == AsyncEventKind::QpFatal);
    assert!(fatal, "its queue pair has failed: {events:?}");
    // Polling ends after at most the ring's capacity.
    let polled = std::iter::from_fn(|| small.poll())
        .take(10 * capacity)
        .count();
    assert!(
        polled <= capacity,
        "{polled} completions from a ring of {capacity}"
    );
    fixture.polled(0);
    let violations = fixture.system.take_violations();
    assert!(
        violations.iter().all(|breach| breach.contains("overr")),
        "{violations:?}"
    );
}

/// A queue that is polled directly cannot be resized, and keeps its size.
#[test]
fn a_completion_queue_grows_where_libibverbs_polls_it() {
    let mut fixture = Fixture::new(40);
    let mut ends = fixture.pair(false);
    let exchange = |fixture: &Fixture, ends: &mut [Endpoint; 2], wr_ids: core::ops::Range<u64>| {
        for wr_id in wr_ids {
            fixture.recv(&mut ends[1], wr_id).expect("room");
            fixture
                .send(&mut ends[0], wr_id, SIGNALED)
                .expect("an empty queue");
        }
        fixture.system.run();
    };
    exchange(&fixture, &mut ends, 0..4);
    let before = fixture.cq.capacity();
    let resizes = fixture.system.device.resizes_cqs();
    match fixture.cq.handle().resize(4 * before) {
        Ok(()) => {
            assert!(resizes && fixture.cq.layout().is_none());
            assert!(fixture.cq.capacity() >= 4 * before);
        }
        Err(error) => {
            assert!(!resizes && fixture.cq.layout().is_some(), "{error}");
            assert_eq!(error.kind(), ControlErrorKind::Unsupported);
            assert_eq!(fixture.cq.capacity(), before);
        }
    }
    exchange(&fixture, &mut ends, 4..8);
    let done = fixture.polled(16);
    for op in [CompletionOp::Recv, CompletionOp::Send] {
        let of_op = done.iter().filter(|one| one.op == op);
        let wr_ids: Vec<u64> = of_op.map(|one| one.wr_id).collect();
        assert!(wr_ids.into_iter().eq(0..8), "{done:?}");
    }
}

#[test]
fn a_completion_before_the_arm_raises_its_event() {
    let fixture = Fixture::new(8);
    let channel = fixture.system.device.create_channel().expect("a channel");
    let options = CqOptions {
        depth: 8,
        channel: Some(&channel),
        ..CqOptions::default()
    };
    let mut cq = fixture.system.device.create_cq(&options).expect("a CQ");
    let options = EndpointOptions::new(cq.handle(), cq.handle());
    let mut ends = [0, 1].map(|_| {
        fixture
            .domain
            .create_endpoint(&options)
            .expect("an endpoint")
    });
    join(&mut ends);
    let tells = cq.reports_solicited();
    for lap in 0..10 {
        fixture.recv(&mut ends[1], 1).expect("room");
        fixture
            .send(&mut ends[0], 2, SIGNALED | SendFlags::SOLICITED)
            .expect("room");
        fixture.system.run();
        assert_eq!(cq.take_events().expect("alive"), 0, "not armed, lap {lap}");
        cq.arm([Arm::Solicited, Arm::Any][lap % 2]).expect("armed");
        fixture.system.run();
        assert_eq!(cq.take_events().expect("alive"), 1, "lap {lap}");
        let solicited = |one: dat_engine::Completion| {
            let flag = one.flags.contains(CompletionFlags::SOLICITED);
            (one.op, flag)
        };
        let mut seen: Vec<_> = std::iter::from_fn(|| cq.poll()).map(solicited).collect();
        seen.sort_by_key(|&(op, _)| op as u8);
        assert_eq!(
            seen,
            [(CompletionOp::Send, false), (CompletionOp::Recv, tells)]
        );
    }
}

#[test]
fn a_refused_access_is_reported_to_the_owner_of_the_memory() {
    let mut fixture = Fixture::new(64);
    let mut ends = fixture.pair(true);
    let segments = [fixture.segment(0)];
    let op = SendOp::Write {
        remote_addr: 0x1000,
        rkey: 0x1234_5678,
    };
    let request = SendRequest {
        wr_id: 1,
        op,
        flags: SIGNALED,
        segments: &segments,
    };
    // SAFETY: the buffer outlives the endpoints.
    unsafe { ends[0].post_send(&request) }.expect("room");
    fixture.system.run();
    let done = fixture.polled(1);
    assert_eq!(done.len(), 1);
    assert_eq!((done[0].wr_id, done[0].status), (1, Status::RemoteAccess));
    let refusing = AsyncSource::Qp(ends[1].verbs().id(), ends[1].qpn());
    let refused = |event: &dat_engine::AsyncEvent| {
        event.kind == AsyncEventKind::QpAccessError && event.source == refusing
    };
    let events = fixture.system.events(refused);
    assert!(events.iter().any(refused), "{events:?}");
}

#[test]
fn the_limit_of_a_shared_queue_is_reported_once_per_setting() {
    let mut fixture = Fixture::new(64);
    let mut ends = fixture.pair(true);
    for lap in 0..5 {
        for i in 0..6 {
            fixture.recv_shared(i).expect("room");
        }
        fixture.srq.set_limit(4).expect("a limit");
        let mut limit_events = Vec::new();
        for i in 0..6 {
            fixture.send(&mut ends[0], i, SIGNALED).expect("room");
            fixture.system.run();
            fixture.polled(2);
            // Six, five, four are left: the event comes only below the limit.
            let is_limit = |event: &dat_engine::AsyncEvent| event.kind == AsyncEventKind::SrqLimit;
            let events = match i {
                2 => fixture.system.events(is_limit),
                _ => fixture.system.events_by_now(),
            };
            limit_events.push(events.into_iter().filter(is_limit).count());
        }
        assert_eq!(limit_events, [0, 0, 1, 0, 0, 0], "lap {lap}");
    }
}

#[test]
fn an_endpoint_in_error_reports_its_last_shared_receive() {
    let mut fixture = Fixture::new(64);
    let mut ends = fixture.pair(true);
    fixture.recv_shared(1).expect("room");
    ends[1].to_error().expect("the error state");
    fixture.system.run();
    let source = AsyncSource::Qp(ends[1].verbs().id(), ends[1].qpn());
    let is_last = |event: &dat_engine::AsyncEvent| event.kind == AsyncEventKind::LastReceive;
    let events = fixture.system.events(is_last);
    let last = events.iter().find(|event| is_last(event));
    assert_eq!(last.map(|event| event.source), Some(source), "{events:?}");
    assert_eq!(
        fixture.polled(0),
        [],
        "the receive was not taken, and stays"
    );
}

/// Posts a marker and lets the device see its doorbell.
fn mark(fixture: &Fixture, end: &mut dat_engine::Endpoint, wr_id: u64) -> Result<(), PostError> {
    let marker = SendRequest {
        wr_id,
        op: SendOp::Nop,
        flags: UNSIGNALED,
        segments: &[],
    };
    // SAFETY: a marker names no memory.
    let posted = unsafe { end.post_send(&marker) };
    fixture.system.after_doorbell();
    posted
}

fn ops(done: &[dat_engine::Completion]) -> Vec<(u64, CompletionOp, Status)> {
    done.iter()
        .map(|one| (one.wr_id, one.op, one.status))
        .collect()
}

#[test]
fn a_marker_waits_for_the_acknowledgement_of_the_send_before_it() {
    let mut fixture = Fixture::new(64);
    let mut ends = fixture.pair(true);
    // The peer has no receive: the send is repeated without an acknowledgement.
    fixture.send(&mut ends[0], 1, UNSIGNALED).expect("room");
    mark(&fixture, &mut ends[0], 2).expect("room");
    fixture.system.run();
    fixture.system.advance(std::time::Duration::from_millis(50));
    assert_eq!(
        fixture.polled(0),
        [],
        "a marker completed before an earlier send"
    );
    assert!(!ends[0].sends_idle());
    fixture.recv_shared(3).expect("room");
    fixture.system.advance(std::time::Duration::from_millis(50));
    let mut done = ops(&fixture.polled(2));
    done.sort_by_key(|one| one.0);
    assert_eq!(
        done,
        [
            (2, CompletionOp::Nop, Status::Success),
            (3, CompletionOp::Recv, Status::Success),
        ]
    );
    assert!(ends[0].sends_idle());
    // With no request before it, it completes at once, and takes one place.
    for lap in 0..50 {
        mark(&fixture, &mut ends[0], lap).expect("room");
        fixture.system.run();
        assert_eq!(
            ops(&fixture.polled(1)),
            [(lap, CompletionOp::Nop, Status::Success)]
        );
    }
}

#[test]
fn a_marker_waits_for_the_response_of_the_read_before_it() {
    let mut fixture = Fixture::new(64);
    let mut ends = fixture.pair(true);
    let segments = [fixture.segment(0)];
    let read = SendRequest {
        wr_id: 1,
        op: SendOp::Read {
            remote_addr: fixture.segment(1).addr,
            rkey: fixture.buffer.region().rkey(),
        },
        flags: SIGNALED,
        segments: &segments,
    };
    let marker = SendRequest {
        wr_id: 2,
        op: SendOp::Nop,
        flags: UNSIGNALED,
        segments: &[],
    };
    // SAFETY: the buffer outlives the endpoints.
    unsafe { ends[0].post_send_list(&[read, marker]) }.expect("room");
    let mut done = Vec::new();
    let Fixture { system, cq, .. } = &mut fixture;
    system.meanwhile(|| done.extend(ops(&std::iter::from_fn(|| cq.poll()).collect::<Vec<_>>())));
    done.extend(ops(&fixture.polled(2 - done.len())));
    assert_eq!(
        done,
        [
            (1, CompletionOp::Read, Status::Success),
            (2, CompletionOp::Nop, Status::Success),
        ]
    );
}

#[test]
fn markers_are_flushed_as_markers() {
    let mut fixture = Fixture::new(64);
    let mut ends = fixture.pair(true);
    fixture.send(&mut ends[0], 1, UNSIGNALED).expect("room");
    mark(&fixture, &mut ends[0], 2).expect("room");
    ends[0].to_error().expect("the error state");
    mark(&fixture, &mut ends[0], 3).expect("room");
    fixture.system.run();
    assert_eq!(
        ops(&fixture.polled(3)),
        [
            (1, CompletionOp::Send, Status::WrFlush),
            (2, CompletionOp::Nop, Status::WrFlush),
            (3, CompletionOp::Nop, Status::WrFlush),
        ]
    );
}

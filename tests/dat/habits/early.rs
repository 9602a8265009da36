//! Requests on an endpoint that was accepted and is not yet established.

use std::thread;
use std::time::{Duration, Instant};

use dat::abi::*;

use crate::connections::staging::EndpointInState;
use crate::support::{Fixture, expect, fails_with, ok, state_of};

const PENDING: DAT_EP_STATE = DAT_EP_STATE_COMPLETION_PENDING;
const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;

/// A program that polls memory sees the peer's first RDMA write, and answers, before it has
/// taken the event of the connection.
#[test]
fn habit_14_a_request_waits_for_the_connection_that_was_accepted() {
    let fixture = Fixture::with_strict(false);
    let mut staged = EndpointInState::new(&fixture, PENDING);
    let memory = fixture.memory(64);
    let iov = [memory.segment(0, 8)];
    let end = staged.end;
    let codes = thread::scope(|scope| {
        let (begun, begins) = std::sync::mpsc::channel();
        let posting = scope.spawn(move || {
            let mut refused = 0;
            loop {
                let begin = Instant::now();
                begun.send(()).expect("the other thread waits");
                let code = end.post_send(&iov, 7, DEFAULT);
                if code == DAT_SUCCESS || refused == 60 {
                    return (refused, code);
                }
                // A busy host may need more than one second; no post is refused before.
                assert!(begin.elapsed() >= Duration::from_secs(1), "{code:#x}");
                refused += 1;
            }
        });
        begins.recv().expect("a post begins");
        thread::sleep(Duration::from_millis(20));
        staged.release_answer();
        posting.join().expect("no panic")
    });
    ok(codes.1);
    expect(end.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
    assert_eq!(state_of(end.ep), DAT_EP_STATE_CONNECTED);
}

#[test]
fn habit_14_strict_a_request_is_refused_at_once() {
    let fixture = Fixture::with_strict(true);
    let staged = EndpointInState::new(&fixture, PENDING);
    let memory = fixture.memory(64);
    let iov = [memory.segment(0, 8)];
    // On a busy host a call may take long; one that waits takes a second each time.
    let is_at_once = (0..20).any(|_| {
        let begin = Instant::now();
        let code = staged.end.post_send(&iov, 7, DEFAULT);
        fails_with(code, DAT_INVALID_STATE, DAT_INVALID_STATE_EP_COMPLPENDING);
        begin.elapsed() < Duration::from_secs(1)
    });
    assert!(is_at_once);
}

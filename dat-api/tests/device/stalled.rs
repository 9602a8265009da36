//! Warnings of requests that wait for a receive of the peer.

use std::sync::{Mutex, PoisonError};

use dat_api::object::ep::Ep;
use dat_api::warnings;

use crate::fixture::*;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn keep(line: &str) {
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    lines.push(line.to_owned());
}

/// Returns the warnings about an endpoint.
fn about(ep: &Ep) -> Vec<String> {
    let endpoint = format!("endpoint {:#x}", ep.handle().bits());
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let found = lines.iter().filter(|line| line.contains(&endpoint));
    found.cloned().collect()
}

#[test]
fn a_send_that_waits_for_a_receive_is_reported_once() {
    assert!(warnings::forward_to(keep), "no other test takes warnings");
    let fixture = Fixture::new();
    let pair = fixture.pair();
    let [a, b] = &pair.eps;
    let check = || fixture.ia.warn_of_stalled_requests();
    check();
    check();
    assert!(about(a).is_empty(), "nothing is outstanding");
    send(a, &[fixture.memory.local(0x1000, 100)], 1).expect("room");
    check();
    assert!(about(a).is_empty(), "it was posted just now");
    check();
    check();
    let lines = about(a);
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in [
        "no receive",
        "rnr_retry=7",
        "rnr_retry=6",
        "DAT_DTO_ERR_RECEIVER_NOT_READY",
    ] {
        assert!(lines[0].contains(part), "{lines:?}");
    }
    assert!(about(b).is_empty(), "its peer has no request");
    recv(b, &[fixture.memory.local(0, 100)], 2).expect("room");
    assert_eq!(success(&pair.evds[1]), (2, 100));
    assert_eq!(success(&pair.evds[0]), (1, 100));
    check();
    check();
    assert_eq!(about(a).len(), 1, "it has completed");
}

//! What the two ends of a connection are told of its end.

use dat::abi::*;

use super::{Bed, End, nothing_on, ok, state_of, wait};

/// The event of an end whose peer has broken the connection, or was killed. By
/// rdma_cm it is an end like any other: its messages know no reason, and the
/// kernel says goodbye for its programs.
pub fn broken_by_the_peer(bed: &Bed) -> DAT_EVENT_NUMBER {
    match bed.manager().as_str() {
        "rdma_cm" => DAT_CONNECTION_EVENT_DISCONNECTED,
        _ => DAT_CONNECTION_EVENT_BROKEN,
    }
}

/// This is the event of the end, which is disconnected, and there is no other.
#[track_caller]
pub fn over(end: &End, number: DAT_EVENT_NUMBER) {
    over_by(end, &[number]);
}

/// The same for one of these events.
#[track_caller]
fn over_by(end: &End, numbers: &[DAT_EVENT_NUMBER]) {
    let (answer, event, _) = wait(end.connect, 10_000_000, 1);
    ok(answer);
    let number = event.event_number;
    assert!(numbers.contains(&number), "{number:#x}, not {numbers:#x?}");
    // SAFETY: the number tells which member holds.
    let data = unsafe { event.event_data.connect_event_data };
    assert_eq!((data.ep_handle, data.private_data_size), (end.ep, 0));
    assert_eq!(state_of(end.ep), DAT_EP_STATE_DISCONNECTED);
    nothing_on(end.connect);
}

/// A transfer has failed: what its connection comes to, at the end that was told
/// by a completion, and at its peer.
#[track_caller]
pub fn both_broken(bed: &Bed, told: &End, peer: &End) {
    over(told, DAT_CONNECTION_EVENT_BROKEN);
    over(peer, broken_by_the_peer(bed));
}

/// The same where the peer has refused an access: its own queue pair has failed
/// too. It learns that from the device, or from its receives that were flushed,
/// if the other end's news is not there first.
#[track_caller]
pub fn both_broken_by_a_refusal(bed: &Bed, requester: &End, refuser: &End, told: bool) {
    let either = [DAT_CONNECTION_EVENT_BROKEN, broken_by_the_peer(bed)];
    match told {
        true => over(requester, DAT_CONNECTION_EVENT_BROKEN),
        false => over_by(requester, &either),
    }
    over_by(refuser, &either);
}

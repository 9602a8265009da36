//! Checks of the events that the two ends of a connection get when it ends.

use dat::abi::*;

use super::{End, Fixture, nothing_on, ok, state_of, wait};

/// Returns the event of an end whose peer has broken the connection or was
/// killed. Over rdma_cm it is an ordinary disconnect: its messages carry no
/// reason, and the kernel disconnects for a program that has ended.
pub fn broken_by_the_peer(fixture: &Fixture) -> DAT_EVENT_NUMBER {
    match fixture.manager().as_str() {
        "rdma_cm" => DAT_CONNECTION_EVENT_DISCONNECTED,
        _ => DAT_CONNECTION_EVENT_BROKEN,
    }
}

/// Checks that the end is disconnected, and that this event is its only one.
#[track_caller]
pub fn over(end: &End, number: DAT_EVENT_NUMBER) {
    over_by(end, &[number]);
}

/// Like [`over`], for one of several events.
#[track_caller]
fn over_by(end: &End, numbers: &[DAT_EVENT_NUMBER]) {
    let (answer, event, _) = wait(end.connect, 60_000_000, 1);
    ok(answer);
    let number = event.event_number;
    assert!(numbers.contains(&number), "{number:#x}, not {numbers:#x?}");
    // SAFETY: the event number selects this member.
    let data = unsafe { event.event_data.connect_event_data };
    assert_eq!((data.ep_handle, data.private_data_size), (end.ep, 0));
    assert_eq!(state_of(end.ep), DAT_EP_STATE_DISCONNECTED);
    nothing_on(end.connect);
}

/// Checks both ends after a failed transfer: the end that got the completion, and
/// its peer.
#[track_caller]
pub fn both_broken(fixture: &Fixture, failed: &End, peer: &End) {
    over(failed, DAT_CONNECTION_EVENT_BROKEN);
    over(peer, broken_by_the_peer(fixture));
}

/// Like [`both_broken`], where the queue pairs of both ends have failed, and the
/// first end's error was taken first. The second notices it by its own error or by
/// the first end's disconnect, whichever comes first.
#[track_caller]
pub fn both_failed(fixture: &Fixture, first: &End, second: &End) {
    over(first, DAT_CONNECTION_EVENT_BROKEN);
    over_by(
        second,
        &[DAT_CONNECTION_EVENT_BROKEN, broken_by_the_peer(fixture)],
    );
}

/// Like [`both_broken`], where the peer has refused an access, so that its own
/// queue pair has failed too. The peer notices this by the device's event, by its
/// flushed receives, or by the other end's disconnect, whichever comes first.
#[track_caller]
pub fn both_broken_by_a_refusal(fixture: &Fixture, requester: &End, refuser: &End, reported: bool) {
    let either = [DAT_CONNECTION_EVENT_BROKEN, broken_by_the_peer(fixture)];
    match reported {
        true => over(requester, DAT_CONNECTION_EVENT_BROKEN),
        false => over_by(requester, &either),
    }
    over_by(refuser, &either);
}

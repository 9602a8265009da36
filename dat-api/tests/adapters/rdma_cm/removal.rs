//! The removal of a device that is in use.

use std::process::Command;
use std::time::Duration;

use dat_api::types::{AsyncKind, ConnectionKind, EpState, EventData};

use crate::fixture::{Fixture, TIMEOUT, connection, name, reaches, wait_for};
use crate::setup::{lock_device, open};

/// Removes the device. Its removal completes only when this process ends: librdmacm closes no
/// device, and Soft-RoCE waits for its users.
#[test]
#[ignore = "removes the device: alone, in a machine that is thrown away"]
fn a_removed_device_is_reported_once() {
    let _lock = lock_device();
    let (ia, events) = open(name());
    let fixture = Fixture::on(ia, events);
    let pair = fixture.pair();
    let mut remover = Command::new("rdma");
    let mut remover = remover.args(["link", "del", name()]).spawn().expect("rdma");
    let event = wait_for(fixture.events, TIMEOUT).expect("the removal is reported");
    match event.data {
        EventData::Async { handle, kind, .. } => {
            assert_eq!(handle, fixture.ia.handle());
            assert_eq!(kind, AsyncKind::IaCatastrophic);
        }
        other => panic!("{other:?}"),
    }
    let ends = pair.evds.each_ref().map(|evd| connection(evd).0);
    assert!(ends.contains(&ConnectionKind::Broken), "{ends:?}");
    for ep in &pair.eps {
        reaches(ep, EpState::Disconnected);
    }
    // Reported once, by whichever thread notices first.
    assert_eq!(wait_for(fixture.events, Duration::from_millis(200)), None);
    drop(pair);
    drop(fixture);
    assert!(remover.try_wait().expect("a child").is_none());
}

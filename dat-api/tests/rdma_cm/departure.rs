//! The removal of a device that is in use.

use std::process::Command;
use std::time::Duration;

use dat_api::types::{AsyncKind, ConnectionKind, EpState, EventData};

use crate::rig::{open, turn};
use crate::world::{PATIENCE, World, connection, name, reaches, wait_for};

/// Removes the device. Its removal completes only when this process ends: librdmacm closes no
/// device, and Soft-RoCE waits for its users.
#[test]
#[ignore = "removes the device: alone, in a machine that is thrown away"]
fn device_goes() {
    let _turn = turn();
    let (ia, events) = open(name());
    let world = World::on(ia, events);
    let pair = world.pair();
    let mut remover = Command::new("rdma");
    let mut remover = remover.args(["link", "del", name()]).spawn().expect("rdma");
    let told = wait_for(world.events, PATIENCE).expect("the end of the device is told");
    match told.data {
        EventData::Async { handle, kind, .. } => {
            assert_eq!(handle, world.ia.handle());
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
    assert_eq!(wait_for(world.events, Duration::from_millis(200)), None);
    drop(pair);
    drop(world);
    assert!(remover.try_wait().expect("a child").is_none());
}

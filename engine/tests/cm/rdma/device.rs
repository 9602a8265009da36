//! Devices that rdma_cm serves, and devices that are removed.

use super::{Ends, ends, host};
use crate::cm::support::{ABSENCE, EventQueue, Events, TIMEOUT, local, own, parameters};
use dat_engine::cm::{CmError, ConnectionEvent, DeviceSink, Local};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Default)]
struct RemovalEvents(EventQueue<()>);

impl DeviceSink for RemovalEvents {
    fn removed(&self) {
        self.0.put(());
    }
}

#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn ports_that_rdma_cm_does_not_serve_are_refused_with_the_cause() {
    let manager = host().manager;
    let watch = |local: &Local| manager.watch_device(local, Arc::new(RemovalEvents::default()));
    drop(watch(&local()).expect("the device is served"));
    let at = |address: &str| Local {
        address: address.parse().unwrap(),
        ..local()
    };
    let elsewhere = Local {
        device: "mlx5_77".into(),
        ..local()
    };
    let cases = [
        (at("203.0.113.7"), "203.0.113.7"),
        (elsewhere, "mlx5_77"),
        (Local { port: 2, ..local() }, "port 2"),
    ];
    for (wrong, named) in cases {
        let error = watch(&wrong).unwrap_err();
        assert!(matches!(error, CmError::NotServed(_)), "{error}");
        let text = error.to_string();
        assert!(text.contains(named) && text.contains('\n'), "{text}");
    }
}

fn run(command: &str) {
    let mut words = command.split_whitespace();
    let status = Command::new(words.next().unwrap()).args(words).status();
    assert!(status.unwrap().success(), "{command}");
}

/// Restores the addresses, however the test ends.
struct Restore(Vec<String>);

impl Drop for Restore {
    fn drop(&mut self) {
        self.0.iter().for_each(|command| run(command));
    }
}

#[test]
#[ignore = "needs an rdma_cm device, whose addresses it removes: see perf-scripts/vm"]
fn a_removed_address_ends_no_connection_but_prevents_new_ones() {
    let host = host();
    let all = if_addrs::get_if_addrs().unwrap();
    let ours = all.iter().find(|one| one.ip() == own().ip()).unwrap();
    let name = &ours.name;
    let put = |one: &if_addrs::Interface| match &one.addr {
        if_addrs::IfAddr::V4(v4) => format!("{}/{}", v4.ip, v4.prefixlen),
        if_addrs::IfAddr::V6(v6) => format!("{}/{} nodad", v6.ip, v6.prefixlen),
    };
    let theirs = all.iter().filter(|one| one.name == *name).map(put);
    let restore = Restore(
        theirs
            .map(|address| format!("ip address replace dev {name} {address}"))
            .collect(),
    );
    let removals = Arc::new(RemovalEvents::default());
    let _watch = host
        .manager
        .watch_device(&local(), removals.clone())
        .unwrap();
    let (active, passive) = ends();
    let ends = Ends::connect(&host, active, passive);
    run(&format!("ip address flush dev {name}"));
    assert!(removals.0.within(ABSENCE).is_none(), "the device is there");
    ends.active_events.assert_no_event();
    ends.passive_events.assert_no_event();
    let (_connection, events) = host.connect();
    assert_eq!(events.next(), ConnectionEvent::Unreachable);
    let error = host.manager.watch_device(&local(), removals).unwrap_err();
    assert!(matches!(error, CmError::NotServed(_)), "{error}");
    // No disconnect arrives: each end has to disconnect, and waits for its own
    // timeout.
    for (end, events) in [
        (&ends.active, &ends.active_events),
        (&ends.passive, &ends.passive_events),
    ] {
        let begun = Instant::now();
        end.disconnect();
        assert_eq!(events.next(), ConnectionEvent::Disconnected);
        assert!(begun.elapsed() < Duration::from_secs(5), "{begun:?}");
    }
    drop(restore);
    let (active, passive) = super::ends();
    Ends::connect(&host, active, passive).disconnect(false);
}

/// Removes the device while it is in use. `rdma link del` returns when no process
/// has the device open, which for a program that has used rdma_cm is its end:
/// librdmacm closes no device, and Soft-RoCE does not detach an open one.
#[test]
#[ignore = "removes the device: run alone, in a disposable machine"]
fn a_removed_device_is_reported_once() {
    let host = host();
    let removals = Arc::new(RemovalEvents::default());
    let _watch = host
        .manager
        .watch_device(&local(), removals.clone())
        .unwrap();
    let (active, passive) = ends();
    let ends = Ends::connect(&host, active, passive);
    let (_waiting, waiting_events) = host.connect();
    let request = host.requests.next();
    assert!(removals.0.within(ABSENCE).is_none());
    let device = local().device;
    let mut remover = Command::new("rdma");
    let mut remover = remover.args(["link", "del", &device]).spawn().unwrap();
    removals.0.within(TIMEOUT).expect("the removal is reported");
    // The end that is removed first may send a disconnect to the other.
    let seen = [ends.active_events.next(), ends.passive_events.next()];
    let (broken, disconnected) = (ConnectionEvent::Broken, ConnectionEvent::Disconnected);
    assert!(seen.contains(&broken), "{seen:?}");
    assert!(
        seen.iter()
            .all(|one| [&broken, &disconnected].contains(&one)),
        "{seen:?}"
    );
    assert_eq!(waiting_events.next(), ConnectionEvent::Unreachable);
    assert!(!request.is_alive());
    let sink = Arc::new(Events::default());
    let _late = request.accept(parameters(2), b"", sink.clone()).unwrap();
    assert_eq!(sink.next(), ConnectionEvent::AcceptFailed);
    // Nothing is served any more, and nothing hangs.
    let error = host
        .manager
        .watch_device(&local(), removals.clone())
        .unwrap_err();
    assert!(matches!(error, CmError::NotServed(_)), "{error}");
    let (_connection, events) = host.connect();
    assert_eq!(events.next(), ConnectionEvent::Unreachable);
    assert!(removals.0.within(ABSENCE).is_none(), "reported twice");
    assert!(
        remover.try_wait().unwrap().is_none(),
        "it waits for the end of this process"
    );
}

//! Forked children that keep streams open, and processes without free descriptors.

use crate::cm::process::{LISTENING, QUALIFIER, answer_of, child};
use crate::cm::support::{Events, Host, connect, local, parameters, start, target};
use dat_engine::cm::{CmError, ConnectionEvent};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_forked_child_does_not_delay_an_orderly_disconnect() {
    let host = Host::new();
    let pair = host.connected();
    let mut raw = super::hostile::Raw::requesting(&host);
    let request = host.requests.next();
    // SAFETY: the child only sleeps until it is killed.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: the calls access no memory.
        unsafe {
            libc::alarm(30);
            loop {
                libc::pause();
            }
        }
    }
    pair.active.disconnect();
    assert_eq!(pair.passive_events.next(), ConnectionEvent::Disconnected);
    assert_eq!(pair.active_events.next(), ConnectionEvent::Disconnected);
    request.reject(&[]).expect("short private data");
    // The stream itself ends too, although the child has it open.
    assert!(!raw.read_all().is_empty());
    let Host {
        manager,
        listener,
        qualifier,
        requests,
    } = host;
    drop(listener);
    let (_connection, events) = connect(&manager, qualifier, None);
    assert_eq!(events.next(), ConnectionEvent::NonPeerRejected);
    drop(manager.listen(&local(), qualifier, requests).unwrap());
    // SAFETY: a signal to the child created above.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
}

#[test]
#[ignore = "run by the test below as a separate process"]
fn child_without_descriptors() {
    if std::env::var_os(QUALIFIER).is_none() {
        return;
    }
    let host = Host::new();
    let request = super::hostile::request_for(host.qualifier);
    let to = host.raw_address().into();
    let raw = || socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let (first, second) = (raw().unwrap(), raw().unwrap());
    let mut hoard = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        hoard.push(file);
    }
    let made = host.manager.listen_any(&local(), host.requests.clone());
    assert!(matches!(made, Err(CmError::Resources(_))), "{made:?}");
    let sink = Arc::new(Events::default());
    let made = host.manager.connect(
        &local(),
        target(crate::cm::support::own(), host.qualifier, None),
        parameters(1),
        b"",
        sink,
    );
    assert!(matches!(made, Err(CmError::Resources(_))), "{made:?}");
    // The reserve descriptor is for the first connection.
    first.connect(&to).unwrap();
    // That connection may be slow: nothing else waits for its descriptor.
    std::thread::sleep(Duration::from_millis(300));
    (&first).write_all(&request).unwrap();
    let served = host.requests.next();
    second.connect(&to).unwrap();
    (&second).write_all(&request).unwrap();
    assert!(host.requests.0.within(Duration::from_millis(300)).is_none());
    hoard.clear();
    assert!(host.requests.next().is_alive());
    assert!(served.is_alive());
}

#[test]
fn requests_without_free_descriptors_are_served_later() {
    let status = child("cm::socket::process::child_without_descriptors", 0)
        .wait()
        .unwrap();
    assert!(status.success());
}

#[test]
#[ignore = "the other process of the test below"]
fn accepter() {
    if std::env::var(QUALIFIER).is_err() {
        return;
    }
    let host = Host::new();
    println!("{LISTENING}{}", host.qualifier);
    let events = Arc::new(Events::default());
    let request = host.requests.next();
    let connection = request.accept(parameters(2), b"late", events).unwrap();
    // Exiting drops no handles.
    core::mem::forget(connection);
    std::process::exit(0);
}

/// Over rdma_cm the kernel rejects for a process that ends before its requester is ready.
#[test]
fn a_peer_that_accepts_and_exits_at_once_has_accepted() {
    let manager = start();
    for round in 0..10 {
        let event = answer_of("cm::socket::process::accepter", &manager);
        let ConnectionEvent::Accepted { private_data, .. } = event else {
            panic!("round {round}: {event:?}");
        };
        assert_eq!(private_data[..4], *b"late");
    }
}

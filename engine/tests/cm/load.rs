//! Many connections.

use super::support::{Events, Host, TIMEOUT, kind, local, parameters, start, target};
use dat_engine::cm::{
    Connection, ConnectionEvent, ConnectionSink, ListenSink, ManagerKind, Request,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Raises the descriptor limit to what the test needs, if the system allows.
pub(crate) fn raise_descriptors(count: u64) {
    // SAFETY: integers only; the calls read and write the struct in place.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        if limit.rlim_cur < count {
            limit.rlim_cur = limit.rlim_max.min(count + 1000);
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
        }
        assert!(
            limit.rlim_cur >= count,
            "needs {count} descriptors (ulimit -n)"
        );
    }
}

/// Returns more connections than may be without a request at a time. With rdma_cm
/// not more than its queue of datagrams holds, since a lost datagram is repeated
/// only after seconds.
fn many() -> usize {
    match kind() {
        ManagerKind::Socket => 1200,
        ManagerKind::Rdma => 100,
    }
}

#[test]
fn more_than_a_thousand_connections_are_established_at_a_time() {
    raise_descriptors(4000);
    let host = Host::new();
    let active: Vec<_> = (0..many()).map(|_| host.connect()).collect();
    let passive: Vec<_> = (0..many())
        .map(|_| {
            let events = Arc::new(Events::default());
            let request = host.requests.next();
            (
                request.accept(parameters(2), b"", events.clone()).unwrap(),
                events,
            )
        })
        .collect();
    for (_, events) in &active {
        events.assert_accepted();
    }
    for (_, events) in &passive {
        assert_eq!(events.next(), ConnectionEvent::Established);
    }
    for (connection, _) in active.iter().step_by(2).chain(passive.iter().step_by(2)) {
        connection.disconnect();
    }
    for (connection, _) in active.iter().skip(1).step_by(2) {
        connection.disconnect();
    }
    for (_, events) in active.iter().chain(&passive) {
        assert_eq!(events.next(), ConnectionEvent::Disconnected);
        assert_eq!(events.events_seen.within(Duration::ZERO), None);
    }
}

/// A sink that accepts every request, and keeps the connections.
#[derive(Default)]
pub(crate) struct Accepting(Mutex<Vec<Connection>>);

impl ListenSink for Accepting {
    fn request(&self, request: Request) {
        let made = request
            .accept(parameters(2), b"", Arc::new(NoSink))
            .unwrap();
        self.0.lock().unwrap().push(made);
    }
}

struct NoSink;

impl ConnectionSink for NoSink {
    fn event(&self, _: ConnectionEvent) -> Result<(), ()> {
        Ok(())
    }
}

#[derive(Default)]
struct Count {
    up: AtomicUsize,
    down: AtomicUsize,
}

impl ConnectionSink for Count {
    fn event(&self, event: ConnectionEvent) -> Result<(), ()> {
        match event {
            ConnectionEvent::Accepted { .. } => self.up.fetch_add(1, Ordering::Release),
            ConnectionEvent::Disconnected => self.down.fetch_add(1, Ordering::Release),
            other => panic!("{other:?}"),
        };
        Ok(())
    }
}

fn await_count(count: &AtomicUsize, least: usize) {
    let end = Instant::now() + TIMEOUT;
    while count.load(Ordering::Acquire) < least {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
#[ignore = "a measurement: --release --ignored --nocapture"]
fn rate_of_connections() {
    const ALL: usize = 4000;
    raise_descriptors(2 * ALL as u64 + 100);
    let manager = start();
    for _ in 0..5 {
        let accepting = Arc::new(Accepting::default());
        let (_listener, qualifier) = manager.listen_any(&local(), accepting.clone()).unwrap();
        let count = Arc::new(Count::default());
        let begun = Instant::now();
        let connect = |_| {
            let (to, sink) = (super::support::own(), count.clone());
            let made = manager.connect(
                &local(),
                target(to, qualifier, None),
                parameters(1),
                &[0; 56],
                sink,
            );
            made.unwrap()
        };
        let connections: Vec<_> = (0..ALL).map(connect).collect();
        await_count(&count.up, ALL);
        let up = begun.elapsed();
        let begun = Instant::now();
        connections.iter().for_each(Connection::disconnect);
        await_count(&count.down, ALL);
        let down = begun.elapsed();
        let rate = |time: Duration| ALL as f64 / time.as_secs_f64();
        let (up, down) = (rate(up), rate(down));
        println!("{ALL} connections: made at {up:.0}/s, ended at {down:.0}/s");
    }
}

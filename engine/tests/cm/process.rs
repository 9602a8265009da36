//! Processes that die, and processes that fork.

use super::support::{Events, Host, TIMEOUT, connect, kind, local, parameters, start, target};
use dat_engine::cm::{CmError, ConnectionEvent, Manager, ManagerKind};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The environment variable with the qualifier that a child process connects to.
pub(crate) const QUALIFIER: &str = "CM_TEST_QUALIFIER";

/// Returns the command that runs an ignored test as a separate process.
pub(crate) fn program(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]);
    command
}

pub(crate) fn child(test: &str, qualifier: u64) -> Child {
    program(test)
        .env(QUALIFIER, qualifier.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "the other process of the tests below"]
fn peer() {
    let Ok(qualifier) = std::env::var(QUALIFIER) else {
        return;
    };
    let manager = start();
    let (_connection, events) = connect(&manager, qualifier.parse().unwrap(), None);
    loop {
        events.next();
    }
}

#[test]
fn a_killed_peer_is_reported_at_once() {
    let host = Host::new();
    let mut child = child("cm::process::peer", host.qualifier);
    let events = Arc::new(Events::default());
    let request = host.requests.next();
    let _connection = request.accept(parameters(2), b"", events.clone()).unwrap();
    assert_eq!(events.next(), ConnectionEvent::Established);
    child.kill().unwrap();
    // The kernel sends a disconnect for programs that end.
    assert_eq!(
        events.next(),
        match kind() {
            ManagerKind::Socket => ConnectionEvent::Broken,
            ManagerKind::Rdma => ConnectionEvent::Disconnected,
        }
    );
    events.assert_no_event();
    child.wait().unwrap();
}

#[test]
fn a_killed_requester_is_reported_at_once() {
    let host = Host::new();
    let mut child = child("cm::process::peer", host.qualifier);
    let request = host.requests.next();
    assert!(request.is_alive());
    child.kill().unwrap();
    let begun = Instant::now();
    while request.is_alive() {
        assert!(begun.elapsed() < TIMEOUT);
        std::thread::sleep(Duration::from_millis(1));
    }
    let events = Arc::new(Events::default());
    let _connection = request.accept(parameters(2), b"", events.clone()).unwrap();
    assert_eq!(events.next(), ConnectionEvent::AcceptFailed);
    child.wait().unwrap();
}

#[test]
#[ignore = "the other process of the test below"]
fn rejecter() {
    if std::env::var(QUALIFIER).is_err() {
        return;
    }
    let host = Host::new();
    println!("{LISTENING}{}", host.qualifier);
    host.requests.next().reject(b"full").unwrap();
    // SAFETY: ends the process, without another call of the library.
    unsafe { libc::_exit(0) };
}

#[test]
#[ignore = "the other process of the test below"]
fn leaver() {
    let Ok(qualifier) = std::env::var(QUALIFIER) else {
        return;
    };
    let manager = start();
    let (connection, events) = connect(&manager, qualifier.parse().unwrap(), None);
    events.assert_accepted();
    connection.disconnect();
    std::process::exit(0);
}

#[test]
fn a_peer_that_disconnects_and_exits_at_once_has_disconnected() {
    let host = Host::new();
    for round in 0..10 {
        let mut child = child("cm::process::leaver", host.qualifier);
        let events = Arc::new(Events::default());
        let request = host.requests.next();
        let _connection = request.accept(parameters(2), b"", events.clone()).unwrap();
        assert_eq!(events.next(), ConnectionEvent::Established);
        assert_eq!(
            events.next(),
            ConnectionEvent::Disconnected,
            "round {round}"
        );
        child.wait().unwrap();
    }
}

/// Connects to a listener in a separate process, which is an ignored test, and returns its
/// answer. Both have ended then.
pub(crate) fn answer_of(test: &str, manager: &Manager) -> ConnectionEvent {
    let mut child = program(test)
        .env(QUALIFIER, "any")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let qualifier = lines.map(Result::unwrap).find_map(|line| {
        let (_, number) = line.split_once(LISTENING)?;
        Some(number.parse().unwrap())
    });
    let (_connection, events) = connect(manager, qualifier.expect("a qualifier"), None);
    let answer = events.next();
    child.wait().unwrap();
    answer
}

/// What such a listener prints before its qualifier.
pub(crate) const LISTENING: &str = "listening on ";

/// A rejection has no event that a program could wait for.
#[test]
fn a_peer_that_rejects_and_ends_at_once_has_rejected() {
    let manager = start();
    for round in 0..10 {
        let event = answer_of("cm::process::rejecter", &manager);
        let ConnectionEvent::PeerRejected { private_data } = event else {
            panic!("round {round}: {event:?}");
        };
        assert_eq!(private_data[..4], *b"full");
    }
}

#[test]
fn a_paused_peer_stays_connected() {
    let host = Host::new();
    let mut child = child("cm::process::peer", host.qualifier);
    let events = Arc::new(Events::default());
    let request = host.requests.next();
    let connection = request.accept(parameters(2), b"", events.clone()).unwrap();
    assert_eq!(events.next(), ConnectionEvent::Established);
    let signal = |number| {
        // SAFETY: a signal to a child process of this test.
        assert_eq!(unsafe { libc::kill(child.id().cast_signed(), number) }, 0);
    };
    signal(libc::SIGSTOP);
    assert_eq!(events.events_seen.within(Duration::from_millis(300)), None);
    signal(libc::SIGCONT);
    connection.disconnect();
    assert_eq!(events.next(), ConnectionEvent::Disconnected);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Runs in the child of a fork. Returns the number of the step that failed.
fn in_a_fork(host: &Host, pair: super::support::Pair) -> i32 {
    let sink = || Arc::new(Events::default());
    let to = super::support::own();
    let made = host.manager.connect(
        &local(),
        target(to, host.qualifier, None),
        parameters(1),
        b"",
        sink(),
    );
    if !matches!(made, Err(CmError::Forked)) {
        return 1;
    }
    if !matches!(
        host.manager.listen_any(&local(), host.requests.clone()),
        Err(CmError::Forked)
    ) {
        return 2;
    }
    let request = host.requests.next();
    if !matches!(
        request.accept(parameters(2), b"", sink()),
        Err(CmError::Forked)
    ) {
        return 3;
    }
    pair.active.disconnect();
    pair.passive.abort();
    drop(pair);
    // A manager that the child starts works.
    let own = Host::new();
    drop(own.connected());
    0
}

#[test]
fn calls_in_a_forked_child_fail_and_harm_no_connection() {
    let host = Host::new();
    let pair = host.connected();
    let (_waiting, waiting_events) = host.connect();
    let request = host.requests.next();
    host.requests.0.put(request);
    // SAFETY: the child uses handles that do nothing there, and memory that only
    // this thread uses; it exits without running destructors of the parent.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: ends the child if it hangs.
        unsafe { libc::alarm(20) };
        let run = std::panic::AssertUnwindSafe(|| {
            let code = in_a_fork(&host, pair);
            drop(host);
            code
        });
        let code = std::panic::catch_unwind(run).unwrap_or(99);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(code) };
    }
    assert!(pid > 0);
    let mut status = 0;
    // SAFETY: waits for the child created above.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(
        (libc::WIFEXITED(status), libc::WEXITSTATUS(status)),
        (true, 0)
    );
    pair.active_events.assert_no_event();
    pair.passive_events.assert_no_event();
    host.requests
        .next()
        .reject(&[])
        .expect("short private data");
    assert_eq!(
        waiting_events.next(),
        ConnectionEvent::PeerRejected {
            private_data: Vec::new()
        }
    );
    pair.active.disconnect();
    assert_eq!(pair.passive_events.next(), ConnectionEvent::Disconnected);
    assert_eq!(pair.active_events.next(), ConnectionEvent::Disconnected);
}

/// Returns a field of each service thread's status.
fn of_service_threads(field: &str) -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let status = tasks.filter_map(|task| {
        let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        status.starts_with("Name:\tengine-cm\n").then_some(status)
    });
    let line = |status: String| {
        let value = status.lines().find_map(|line| line.strip_prefix(field))?;
        Some(value.trim().to_owned())
    };
    status.filter_map(line).collect()
}

#[test]
fn the_service_thread_blocks_all_signals() {
    let _manager = start();
    // The thread sets its name itself.
    let begun = Instant::now();
    let blocked = loop {
        if let Some(blocked) = of_service_threads("SigBlk:").pop() {
            break blocked;
        }
        assert!(begun.elapsed() < Duration::from_secs(60));
    };
    let blocked = u64::from_str_radix(&blocked, 16).unwrap();
    for signal in [
        libc::SIGINT,
        libc::SIGALRM,
        libc::SIGUSR1,
        libc::SIGPROF,
        libc::SIGPIPE,
    ] {
        assert_ne!(blocked & 1 << (signal - 1), 0, "{signal}");
    }
}

#[test]
#[ignore = "the other process of the test below"]
fn child_with_one_manager() {
    if std::env::var_os(QUALIFIER).is_none() {
        return;
    }
    assert_eq!(of_service_threads("Name:").len(), 0);
    let host = Host::new();
    let pair = host.connected();
    assert_eq!(of_service_threads("Name:").len(), 1);
    let clone = host.manager.clone();
    drop(host);
    drop(clone);
    assert_eq!(
        of_service_threads("Name:").len(),
        1,
        "connections keep the thread"
    );
    pair.passive.disconnect();
    assert_eq!(pair.active_events.next(), ConnectionEvent::Disconnected);
    drop(pair);
    service_threads_are_gone();
    for _ in 0..200 {
        drop(start());
        service_threads_are_gone();
    }
}

/// Dropping the last handle has joined the thread, but the kernel lists a joined
/// thread for a moment longer.
#[track_caller]
fn service_threads_are_gone() {
    for _ in 0..1000 {
        if of_service_threads("Name:").is_empty() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    panic!("a service thread outlives the last handle");
}

#[test]
fn the_thread_ends_with_the_last_handle() {
    let status = child("cm::process::child_with_one_manager", 0)
        .wait()
        .unwrap();
    assert!(status.success());
}

//! Thousands of peers that connect and send nothing, against a program with 1024
//! descriptors.

use crate::cm::load::{Accepting, raise_descriptors};
use crate::cm::process::{QUALIFIER, program};
use crate::cm::support::{Events, Host, TIMEOUT, connect, kind, local, loopback, start};
use dat_engine::cm::{ConnectionEvent, ManagerKind};
use socket2::SockRef;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The descriptor limit of the attacked program.
const LIMIT: u64 = 1024;
/// The text before the qualifier in the program's output.
const LISTENS: &str = "listens on ";

/// Accepts every request, and opens files continuously, until its standard input
/// ends.
#[test]
#[ignore = "run by the tests below as a separate process"]
fn child_under_attack() {
    if std::env::var_os(QUALIFIER).is_none() {
        return;
    }
    limit_descriptors(LIMIT);
    let manager = start();
    let accepting = Arc::new(Accepting::default());
    let (_listener, qualifier) = manager.listen_any(&local(), accepting.clone()).unwrap();
    println!("{LISTENS}{qualifier}");
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let opener = scope.spawn(|| {
            while !ends.load(Ordering::Acquire) {
                File::open("/dev/null").expect("a free descriptor");
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ends.store(true, Ordering::Release);
        opener.join().unwrap();
    });
}

fn limit_descriptors(most: u64) {
    // SAFETY: integers only; the calls read and write the struct in place.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = most;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
}

/// The attacked program.
struct Target {
    child: Child,
    /// Ends the program when dropped.
    stdin: Option<ChildStdin>,
    _stdout: BufReader<ChildStdout>,
    qualifier: u64,
}

impl Target {
    fn start() -> Self {
        Self::running("cm::socket::flood::child_under_attack")
    }

    fn running(test: &str) -> Self {
        let mut command = program(test);
        command.env(QUALIFIER, "0");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        let qualifier = loop {
            line.clear();
            assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "it ended");
            // The test harness may have printed on the same line before.
            if let Some((_, number)) = line.split_once(LISTENS) {
                break number.trim().parse().unwrap();
            }
        };
        Self {
            stdin: child.stdin.take(),
            child,
            _stdout: stdout,
            qualifier,
        }
    }

    fn address(&self) -> SocketAddr {
        let mut address = loopback();
        address.set_port(u16::try_from(self.qualifier).unwrap());
        address
    }

    /// Opens a silent connection. Dropping it resets the stream, so that no
    /// TIME-WAIT remains.
    fn silent(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).unwrap();
        SockRef::from(&stream)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        stream
    }

    /// Checks that the program could open files all the time.
    fn finish(mut self) {
        drop(self.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

/// Connects as programs do, and returns how long that took.
fn serve_one(manager: &dat_engine::cm::Manager, target: &Target) -> Duration {
    let begun = Instant::now();
    let (connection, events) = connect(manager, target.qualifier, None);
    events.assert_accepted();
    let took = begun.elapsed();
    end(&connection, &events);
    took
}

fn end(connection: &dat_engine::cm::Connection, events: &Events) {
    connection.disconnect();
    assert_eq!(events.next(), ConnectionEvent::Disconnected);
}

/// On an idle machine a connection takes less than 0.2 s here, of which 0.1 s is
/// the grace at the first flood. The bound allows for a busy machine. Without the
/// limit on silent connections it took 8.9 s.
const BOUND: Duration = Duration::from_secs(4);

#[test]
fn thousands_of_silent_connections_delay_no_request_and_leave_descriptors_to_the_program() {
    const ALL: usize = 5000;
    if kind() != ManagerKind::Socket {
        return;
    }
    raise_descriptors(ALL as u64 + 500);
    let target = Target::start();
    let manager = start();
    let mut longest = serve_one(&manager, &target);
    let mut silent = Vec::new();
    for number in 1..=ALL {
        silent.push(target.silent());
        if number % 250 == 0 {
            longest = longest.max(serve_one(&manager, &target));
        }
    }
    for _ in 0..20 {
        longest = longest.max(serve_one(&manager, &target));
    }
    println!("the slowest of the connections took {longest:?}");
    assert!(longest < BOUND, "{longest:?}");
    // The oldest were dropped, the newest are still connected.
    for (stream, goes) in [(&silent[0], true), (&silent[ALL - 1], false)] {
        stream.set_nonblocking(!goes).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let end = std::io::Read::read(&mut &*stream, &mut [0]);
        assert_eq!(matches!(end, Ok(0)), goes, "{end:?}");
    }
    target.finish();
}

/// As port scanners do.
#[test]
fn thousands_of_short_connections_leak_nothing() {
    if kind() != ManagerKind::Socket {
        return;
    }
    let target = Target::start();
    let manager = start();
    for number in 0..2000 {
        // Resets the stream.
        drop(target.silent());
        if number % 500 == 0 {
            serve_one(&manager, &target);
        }
    }
    assert!(serve_one(&manager, &target) < BOUND);
    target.finish();
}

/// Holds every request, and rejects the oldest one for each line of its standard input.
#[test]
#[ignore = "run by the test below as a separate process"]
fn child_that_holds() {
    if std::env::var_os(QUALIFIER).is_none() {
        return;
    }
    limit_descriptors(HOLDING);
    let host = Host::new();
    println!("{LISTENS}{}", host.qualifier);
    for _ in std::io::stdin().lines() {
        host.requests.next().reject(b"").unwrap();
    }
}

/// The descriptor limit of a program that holds requests.
const HOLDING: u64 = 128;

/// Waits for the next event of any of these connections, which is then removed.
fn next_of(all: &mut Vec<(dat_engine::cm::Connection, Arc<Events>)>) -> ConnectionEvent {
    let begun = Instant::now();
    loop {
        for at in 0..all.len() {
            if let Some(event) = all[at].1.events_seen.within(Duration::ZERO) {
                all.remove(at);
                return event;
            }
        }
        assert!(begun.elapsed() < TIMEOUT, "no event");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn requests_that_leave_no_descriptors_are_answered_at_once() {
    let mut target = Target::running("cm::socket::flood::child_that_holds");
    let manager = start();
    let connect = || connect(&manager, target.qualifier, None);
    let begun = Instant::now();
    let mut held: Vec<_> = (0..HOLDING).map(|_| connect()).collect();
    // A sixteenth of the descriptors stays free.
    for _ in 0..HOLDING / 16 {
        assert_eq!(next_of(&mut held), ConnectionEvent::NonPeerRejected);
    }
    assert!(begun.elapsed() < BOUND);
    // When the program has answered some, another may wait.
    let rejected = ConnectionEvent::PeerRejected {
        private_data: Vec::new(),
    };
    let mut stdin = target.stdin.take().unwrap();
    stdin.write_all(&[b'\n'; 20]).unwrap();
    let mut answered = 0;
    while answered < 20 {
        answered += usize::from(next_of(&mut held) == rejected);
    }
    let (_connection, events) = connect();
    stdin.write_all(&[b'\n'; HOLDING as usize]).unwrap();
    assert_eq!(events.next(), rejected);
    // The program waits for more requests.
    target.child.kill().unwrap();
    target.child.wait().unwrap();
}

//! A peer whose process is killed (SIGKILL), in every state of a connection that
//! outlasts it: the one event, the state, and the outcome of outstanding
//! requests. The event depends on the connection manager. Over TCP a socket that
//! ends without a disconnect message is a broken connection; over rdma_cm the
//! kernel sends the disconnect.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use dat::abi::*;
use dat::exports::dat_ep_reset;

use super::end;
use crate::support::{
    Dto, End, Evd, Fixture, LONG, Memory, ServicePoint, accept, broken_by_the_peer, dequeue, dto,
    expect, nothing_on, ok, over, state_of, take_dto,
};

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;
/// Makes a process the one to be killed. The value is one of the words below and
/// a qualifier.
const VICTIM: &str = "DAT_KILLED_VICTIM";
/// Connects, and answers a message.
const REQUESTS: &str = "asks";
/// Connects, answers a message, and exits with everything open, while a thread
/// waits, when its standard input ends.
const EXITS: &str = "exits";
/// Waits for a request, accepts it, and answers a message.
const ACCEPTS: &str = "accepts";
/// Waits for a request, and does not answer it.
const HESITATES: &str = "hesitates";
/// Prefix of its output.
const PREFIX: &str = "victim:";

/// Runs the process that is killed. It exits after a minute.
fn run_as_child(what: &str) -> ! {
    let (what, qualifier) = what.split_once(' ').expect("two words");
    let begin = Instant::now();
    let fixture = Fixture::new();
    let memory = fixture.memory(64);
    let own = end(&fixture);
    ok(own.post_recv(&[memory.segment(0, 8)], 1));
    let ready = |text: &str| println!("\n{PREFIX} {text}");
    if what == REQUESTS || what == EXITS {
        let service_point = ServicePoint {
            psp: ptr::null_mut(),
            qualifier: qualifier.parse().expect("a qualifier"),
            requests: ptr::null_mut(),
        };
        ok(service_point.connect(own.ep, &[]));
    } else {
        let service_point = ServicePoint::new(&fixture);
        ready(&service_point.qualifier.to_string());
        let request = service_point.take_request();
        if what == ACCEPTS {
            ok(accept(request, own.ep));
        }
        ready("asked");
    }
    let mut owes = false;
    loop {
        assert!(begin.elapsed() < Duration::from_secs(60), "not killed");
        fixture.run();
        owes |= dequeue(own.recv).is_ok_and(|event| dto(&event).status == DAT_DTO_SUCCESS);
        // A message may arrive before the event that the connection is
        // established.
        if owes && state_of(own.ep) == DAT_EP_STATE_CONNECTED {
            ok(own.post_send(&[memory.segment(8, 8)], 2, DEFAULT));
            owes = false;
        }
        // No message of another process reaches a stepped device.
        let is_done = match fixture.is_stepped() {
            true => state_of(own.ep) == DAT_EP_STATE_CONNECTED,
            false => dequeue(own.request).is_ok(),
        };
        if what == EXITS && is_done {
            let waited = Evd(own.recv);
            thread::spawn(move || waited.wait(LONG, 1));
            waited.until_waited();
            let _ = std::io::stdin().read(&mut [0]);
            std::process::exit(0);
        }
        thread::sleep(Duration::from_micros(200));
    }
}

/// The process to be killed, as its parent sees it. It is killed at the latest
/// when this value is dropped.
struct KilledPeer {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl KilledPeer {
    fn new(test: &str, what: &str, qualifier: DAT_CONN_QUAL) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args([test, "--exact", "--nocapture"])
            .env(VICTIM, format!("{what} {qualifier}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, stdout }
    }

    /// Returns the next line that it prints.
    #[track_caller]
    fn says(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.stdout.read_line(&mut line).expect("a line");
            assert!(read > 0, "it ended");
            if let Some(text) = line.strip_prefix(PREFIX) {
                return text.trim().to_owned();
            }
        }
    }

    /// Stops the process, without closing its connections.
    fn stop(&self) {
        let pid = libc::pid_t::try_from(self.child.id()).expect("a process");
        // SAFETY: a signal to a child process.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGSTOP) }, 0);
        let mut status = 0;
        // The signal is delivered asynchronously. This call waits until all
        // threads of the process have stopped. SAFETY: the status of a child
        // process, which this call does not reap.
        let stopped = unsafe { libc::waitpid(pid, &raw mut status, libc::WUNTRACED) };
        assert!(stopped == pid && libc::WIFSTOPPED(status), "{status:#x}");
    }

    /// Kills the process, and returns when it is reaped.
    fn kill(&mut self) {
        self.child.kill().expect("the child process");
        self.child.wait().expect("the child process");
    }
}

impl Drop for KilledPeer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The test whose child process is killed.
fn begin() {
    if let Ok(what) = std::env::var(VICTIM) {
        run_as_child(&what);
    }
}

/// Posts three receives and two sends. The peer answers one send and has no
/// buffer for the other. Returns after the answer, with the tags of the requests
/// that are outstanding then. Not used with the stepped device, which no other
/// process can reach.
#[track_caller]
fn exchange(fixture: &Fixture, own: &End, memory: &Memory) -> [&'static [u64]; 2] {
    for tag in 0..3 {
        ok(own.post_recv(&[memory.segment(0, 8)], tag));
    }
    for tag in [10, 11] {
        ok(own.post_send(&[memory.segment(8, 8)], tag, DEFAULT));
    }
    fixture.run();
    if fixture.is_stepped() {
        return [&[0, 1, 2], &[10, 11]];
    }
    for (evd, tag) in [(own.recv, 0), (own.request, 10)] {
        let Dto { cookie, status, .. } = take_dto(evd);
        assert_eq!((cookie, status), (tag, DAT_DTO_SUCCESS));
        nothing_on(evd);
    }
    [&[1, 2], &[11]]
}

/// Checks that all remaining receives are flushed, once and in order, and that a
/// receive posted now is flushed too.
#[track_caller]
fn receives_flushed(fixture: &Fixture, own: &End, memory: &Memory, left: &[u64]) {
    ok(own.post_recv(&[memory.segment(0, 8)], 20));
    fixture.run();
    all_flushed(own.recv, &[left, &[20]].concat());
    nothing_on(fixture.async_evd);
}

/// Like [`receives_flushed`], for requests.
#[track_caller]
fn requests_flushed(fixture: &Fixture, own: &End, memory: &Memory, left: &[u64]) {
    ok(own.post_send(&[memory.segment(0, 8)], 21, DEFAULT));
    fixture.run();
    all_flushed(own.request, &[left, &[21]].concat());
    nothing_on(fixture.async_evd);
}

#[track_caller]
fn all_flushed(evd: DAT_EVD_HANDLE, tags: &[u64]) {
    for &tag in tags {
        let Dto { cookie, status, .. } = take_dto(evd);
        assert_eq!((cookie, status), (tag, DAT_DTO_ERR_FLUSHED));
    }
    nothing_on(evd);
}

#[test]
fn connected_to_a_requester_that_is_killed() {
    begin();
    let fixture = Fixture::new();
    let (memory, own, service_point) = (
        fixture.memory(64),
        end(&fixture),
        ServicePoint::new(&fixture),
    );
    let test = "connections::killed::connected_to_a_requester_that_is_killed";
    let mut victim = KilledPeer::new(test, REQUESTS, service_point.qualifier);
    ok(accept(service_point.take_request(), own.ep));
    expect(own.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
    let [receives, requests] = exchange(&fixture, &own, &memory);
    victim.kill();
    over(&own, broken_by_the_peer(&fixture));
    receives_flushed(&fixture, &own, &memory, receives);
    requests_flushed(&fixture, &own, &memory, requests);
}

/// A program that ends without closing its adapter neither hangs nor leaves its
/// peer connected.
#[test]
fn connected_to_a_requester_that_exits_without_closing() {
    begin();
    let fixture = Fixture::new();
    let (memory, own, service_point) = (
        fixture.memory(64),
        end(&fixture),
        ServicePoint::new(&fixture),
    );
    let test = "connections::killed::connected_to_a_requester_that_exits_without_closing";
    let mut victim = KilledPeer::new(test, EXITS, service_point.qualifier);
    ok(accept(service_point.take_request(), own.ep));
    expect(own.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
    let [receives, requests] = exchange(&fixture, &own, &memory);
    drop(victim.child.stdin.take());
    let begin = Instant::now();
    let status = loop {
        match victim.child.try_wait().expect("the child process") {
            Some(status) => break status,
            None => assert!(begin.elapsed() < Duration::from_secs(200), "it hangs"),
        }
        fixture.run();
        thread::sleep(Duration::from_millis(1));
    };
    assert!(status.success(), "{status}");
    over(&own, broken_by_the_peer(&fixture));
    receives_flushed(&fixture, &own, &memory, receives);
    requests_flushed(&fixture, &own, &memory, requests);
}

#[test]
fn connected_to_an_acceptor_that_is_killed() {
    begin();
    let fixture = Fixture::new();
    let (memory, own) = (fixture.memory(64), end(&fixture));
    let test = "connections::killed::connected_to_an_acceptor_that_is_killed";
    let mut victim = KilledPeer::new(test, ACCEPTS, 0);
    ok(asked(&mut victim).connect(own.ep, &[]));
    expect(own.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
    let [receives, requests] = exchange(&fixture, &own, &memory);
    victim.kill();
    over(&own, broken_by_the_peer(&fixture));
    receives_flushed(&fixture, &own, &memory, receives);
    requests_flushed(&fixture, &own, &memory, requests);
}

/// Waits for the service point of the process to be killed, and returns it.
#[track_caller]
fn asked(victim: &mut KilledPeer) -> ServicePoint {
    ServicePoint {
        psp: ptr::null_mut(),
        qualifier: victim.says().parse().expect("a qualifier"),
        requests: ptr::null_mut(),
    }
}

/// The request has arrived, and is not answered. The event must not say that the
/// peer's application rejected it.
#[test]
fn active_an_acceptor_that_is_killed() {
    begin();
    let fixture = Fixture::new();
    let (memory, own) = (fixture.memory(64), end(&fixture));
    for tag in [0, 1] {
        ok(own.post_recv(&[memory.segment(0, 8)], tag));
    }
    let test = "connections::killed::active_an_acceptor_that_is_killed";
    let mut victim = KilledPeer::new(test, HESITATES, 0);
    ok(asked(&mut victim).connect(own.ep, &[]));
    assert_eq!(victim.says(), "asked");
    nothing_on(own.connect);
    victim.kill();
    over(&own, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
    receives_flushed(&fixture, &own, &memory, &[0, 1]);
}

/// Accepts a request whose requester is already gone.
#[test]
fn accepted_a_requester_that_is_killed() {
    begin();
    let fixture = Fixture::new();
    let (memory, own, service_point) = (
        fixture.memory(64),
        end(&fixture),
        ServicePoint::new(&fixture),
    );
    for tag in [0, 1] {
        ok(own.post_recv(&[memory.segment(0, 8)], tag));
    }
    let test = "connections::killed::accepted_a_requester_that_is_killed";
    let mut victim = KilledPeer::new(test, REQUESTS, service_point.qualifier);
    let request = service_point.take_request();
    victim.kill();
    ok(accept(request, own.ep));
    over(&own, DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR);
    receives_flushed(&fixture, &own, &memory, &[0, 1]);
    requests_flushed(&fixture, &own, &memory, &[]);
}

/// Accepts a request whose requester is stopped: it neither reports that it is
/// ready nor disconnects. The manager gives it 10 seconds.
#[test]
fn accepted_a_requester_that_stops_responding() {
    begin();
    let fixture = Fixture::new();
    let (memory, own, service_point) = (
        fixture.memory(64),
        end(&fixture),
        ServicePoint::new(&fixture),
    );
    for tag in [0, 1] {
        ok(own.post_recv(&[memory.segment(0, 8)], tag));
    }
    let test = "connections::killed::accepted_a_requester_that_stops_responding";
    let victim = KilledPeer::new(test, REQUESTS, service_point.qualifier);
    let request = service_point.take_request();
    victim.stop();
    let begin = Instant::now();
    ok(accept(request, own.ep));
    while state_of(own.ep) == DAT_EP_STATE_COMPLETION_PENDING {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "the attempt did not end"
        );
        thread::sleep(Duration::from_millis(20));
    }
    over(&own, DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR);
    receives_flushed(&fixture, &own, &memory, &[0, 1]);
    requests_flushed(&fixture, &own, &memory, &[]);
    // Neither the endpoint nor the service point is still in use by the request.
    drop(victim);
    // SAFETY: a live handle.
    ok(unsafe { dat_ep_reset(own.ep) });
    let _next = KilledPeer::new(test, REQUESTS, service_point.qualifier);
    ok(accept(service_point.take_request(), own.ep));
    expect(own.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
}

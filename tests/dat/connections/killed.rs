//! A peer whose process is killed (SIGKILL), in every state of a connection that
//! outlives it: the one event, the state, and what becomes of what is outstanding.
//! Which event a connection gets depends on the manager: a socket that ends
//! without a goodbye is broken; for rdma_cm the kernel says goodbye.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use dat::abi::*;
use dat::exports::dat_ep_reset;

use super::end;
use crate::support::{
    Bed, Door, Dto, End, Memory, accept, broken_by_the_peer, dequeue, dto, expect, nothing_on, ok,
    over, state_of, take_dto,
};

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;
/// Tells a process that it is the one to be killed, and what it is to do before:
/// one of the words below, and a qualifier.
const VICTIM: &str = "DAT_KILLED_VICTIM";
/// It asks to be connected, and answers a message.
const ASKS: &str = "asks";
/// It waits for a request, accepts it, and answers a message.
const ACCEPTS: &str = "accepts";
/// It waits for a request, and does not answer it.
const HESITATES: &str = "hesitates";
/// What it says begins so.
const SAYS: &str = "victim:";

/// The process that is killed. It ends by itself after a minute.
fn be_the_victim(what: &str) -> ! {
    let (what, qualifier) = what.split_once(' ').expect("two words");
    let begin = Instant::now();
    let bed = Bed::new();
    let memory = bed.memory(64);
    let own = end(&bed);
    ok(own.post_recv(&[memory.segment(0, 8)], 1));
    let ready = |text: &str| println!("\n{SAYS} {text}");
    if what == ASKS {
        let door = Door {
            psp: ptr::null_mut(),
            qualifier: qualifier.parse().expect("a qualifier"),
            requests: ptr::null_mut(),
        };
        ok(door.knock(own.ep, &[]));
    } else {
        let door = Door::new(&bed);
        ready(&door.qualifier.to_string());
        let request = door.opens();
        if what == ACCEPTS {
            ok(accept(request, own.ep));
        }
        ready("asked");
    }
    let mut owes = false;
    loop {
        assert!(begin.elapsed() < Duration::from_secs(60), "not killed");
        bed.run();
        owes |= dequeue(own.recv).is_ok_and(|event| dto(&event).status == DAT_DTO_SUCCESS);
        // A message may be here before the word that the connection is up.
        if owes && state_of(own.ep) == DAT_EP_STATE_CONNECTED {
            ok(own.post_send(&[memory.segment(8, 8)], 2, DEFAULT));
            owes = false;
        }
        thread::sleep(Duration::from_micros(200));
    }
}

/// The victim, seen from here. It is killed when this is dropped, if not before.
struct Victim {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Victim {
    fn new(test: &str, what: &str, qualifier: DAT_CONN_QUAL) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args([test, "--exact", "--nocapture"])
            .env(VICTIM, format!("{what} {qualifier}"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let said = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, said }
    }

    /// The next thing that it says.
    #[track_caller]
    fn says(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.said.read_line(&mut line).expect("a line");
            assert!(read > 0, "it ended");
            if let Some(text) = line.strip_prefix(SAYS) {
                return text.trim().to_owned();
            }
        }
    }

    /// It does nothing any more, and hangs nothing up.
    fn stop(&self) {
        let pid = libc::pid_t::try_from(self.child.id()).expect("a process");
        // SAFETY: a signal to a process of ours.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGSTOP) }, 0);
        let mut status = 0;
        // The signal is only on its way yet. This waits for all threads of the
        // process to stop.
        // SAFETY: the status of a child of ours, which is not reaped by this.
        let stopped = unsafe { libc::waitpid(pid, &raw mut status, libc::WUNTRACED) };
        assert!(stopped == pid && libc::WIFSTOPPED(status), "{status:#x}");
    }

    /// Nothing of it is left when this returns.
    fn kill(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.kill();
    }
}

/// This test has the process to be killed in it.
fn begin() {
    if let Ok(what) = std::env::var(VICTIM) {
        be_the_victim(&what);
    }
}

/// Three receives and two sends, of which the peer answers one and has no buffer
/// for the other: when this returns the answer is there. Answers the names of
/// what is outstanding then. The device that is stepped by hand is alone: nothing
/// of it reaches another process.
#[track_caller]
fn talk(bed: &Bed, own: &End, memory: &Memory) -> [&'static [u64]; 2] {
    for tag in 0..3 {
        ok(own.post_recv(&[memory.segment(0, 8)], tag));
    }
    for tag in [10, 11] {
        ok(own.post_send(&[memory.segment(8, 8)], tag, DEFAULT));
    }
    bed.run();
    if bed.is_stepped() {
        return [&[0, 1, 2], &[10, 11]];
    }
    for (evd, tag) in [(own.recv, 0), (own.request, 10)] {
        let Dto { cookie, status, .. } = take_dto(evd);
        assert_eq!((cookie, status), (tag, DAT_DTO_SUCCESS));
        nothing_on(evd);
    }
    [&[1, 2], &[11]]
}

/// All receives that are left are flushed, once and in order, and so is one that
/// is posted now.
#[track_caller]
fn receives_flushed(bed: &Bed, own: &End, memory: &Memory, left: &[u64]) {
    ok(own.post_recv(&[memory.segment(0, 8)], 20));
    bed.run();
    all_flushed(own.recv, &[left, &[20]].concat());
    nothing_on(bed.async_evd);
}

/// The same of requests.
#[track_caller]
fn requests_flushed(bed: &Bed, own: &End, memory: &Memory, left: &[u64]) {
    ok(own.post_send(&[memory.segment(0, 8)], 21, DEFAULT));
    bed.run();
    all_flushed(own.request, &[left, &[21]].concat());
    nothing_on(bed.async_evd);
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
    let bed = Bed::new();
    let (memory, own, door) = (bed.memory(64), end(&bed), Door::new(&bed));
    let test = "connections::killed::connected_to_a_requester_that_is_killed";
    let mut victim = Victim::new(test, ASKS, door.qualifier);
    ok(accept(door.opens(), own.ep));
    expect(own.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
    let [receives, requests] = talk(&bed, &own, &memory);
    victim.kill();
    over(&own, broken_by_the_peer(&bed));
    receives_flushed(&bed, &own, &memory, receives);
    requests_flushed(&bed, &own, &memory, requests);
}

#[test]
fn connected_to_an_acceptor_that_is_killed() {
    begin();
    let bed = Bed::new();
    let (memory, own) = (bed.memory(64), end(&bed));
    let test = "connections::killed::connected_to_an_acceptor_that_is_killed";
    let mut victim = Victim::new(test, ACCEPTS, 0);
    ok(asked(&mut victim).knock(own.ep, &[]));
    expect(own.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
    let [receives, requests] = talk(&bed, &own, &memory);
    victim.kill();
    over(&own, broken_by_the_peer(&bed));
    receives_flushed(&bed, &own, &memory, receives);
    requests_flushed(&bed, &own, &memory, requests);
}

/// It waits for the victim's service point.
#[track_caller]
fn asked(victim: &mut Victim) -> Door {
    Door {
        psp: ptr::null_mut(),
        qualifier: victim.says().parse().expect("a qualifier"),
        requests: ptr::null_mut(),
    }
}

/// The request has reached it, and nobody answers: not the peer's consumer has
/// rejected it.
#[test]
fn active_an_acceptor_that_is_killed() {
    begin();
    let bed = Bed::new();
    let (memory, own) = (bed.memory(64), end(&bed));
    for tag in [0, 1] {
        ok(own.post_recv(&[memory.segment(0, 8)], tag));
    }
    let test = "connections::killed::active_an_acceptor_that_is_killed";
    let mut victim = Victim::new(test, HESITATES, 0);
    ok(asked(&mut victim).knock(own.ep, &[]));
    assert_eq!(victim.says(), "asked");
    nothing_on(own.connect);
    victim.kill();
    over(&own, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
    receives_flushed(&bed, &own, &memory, &[0, 1]);
}

/// Its request is accepted when it is gone.
#[test]
fn accepted_a_requester_that_is_killed() {
    begin();
    let bed = Bed::new();
    let (memory, own, door) = (bed.memory(64), end(&bed), Door::new(&bed));
    for tag in [0, 1] {
        ok(own.post_recv(&[memory.segment(0, 8)], tag));
    }
    let test = "connections::killed::accepted_a_requester_that_is_killed";
    let mut victim = Victim::new(test, ASKS, door.qualifier);
    let request = door.opens();
    victim.kill();
    ok(accept(request, own.ep));
    over(&own, DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR);
    receives_flushed(&bed, &own, &memory, &[0, 1]);
    requests_flushed(&bed, &own, &memory, &[]);
}

/// Its request is accepted when it is stopped: it neither reports that it is
/// ready nor hangs up. The manager gives it 10 seconds.
#[test]
fn accepted_a_requester_that_falls_silent() {
    begin();
    let bed = Bed::new();
    let (memory, own, door) = (bed.memory(64), end(&bed), Door::new(&bed));
    for tag in [0, 1] {
        ok(own.post_recv(&[memory.segment(0, 8)], tag));
    }
    let test = "connections::killed::accepted_a_requester_that_falls_silent";
    let victim = Victim::new(test, ASKS, door.qualifier);
    let request = door.opens();
    victim.stop();
    let begin = Instant::now();
    ok(accept(request, own.ep));
    while state_of(own.ep) == DAT_EP_STATE_COMPLETION_PENDING {
        assert!(begin.elapsed() < Duration::from_secs(60), "it never ends");
        thread::sleep(Duration::from_millis(20));
    }
    over(&own, DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR);
    receives_flushed(&bed, &own, &memory, &[0, 1]);
    requests_flushed(&bed, &own, &memory, &[]);
    // Nothing of it keeps the endpoint, nor the service point.
    drop(victim);
    // SAFETY: a live handle.
    ok(unsafe { dat_ep_reset(own.ep) });
    let _next = Victim::new(test, ASKS, door.qualifier);
    ok(accept(door.opens(), own.ep));
    expect(own.connect, DAT_CONNECTION_EVENT_ESTABLISHED);
}

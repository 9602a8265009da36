//! Agents: called once, on a thread of the library, with no lock held.

use std::ffi::CStr;
use std::ptr;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use dat::abi::*;
use dat::exports::*;

use super::{Cno, Evd, NO_AGENT, SECOND, SOON, joined};
use crate::support::{Fixture, Pair, Shape, fails, fails_with, nothing_on, ok, take_dto};

/// What agents do; set by the test that uses the device.
struct Script {
    calls: mpsc::Sender<(usize, Evd)>,
    /// Also called, on the thread of the library.
    then: Box<dyn Fn() + Send>,
}

static SCRIPT: Mutex<Option<Script>> = Mutex::new(None);

unsafe extern "C-unwind" fn agent(data: DAT_PVOID, evd: DAT_EVD_HANDLE) {
    let script = SCRIPT.lock().unwrap_or_else(PoisonError::into_inner);
    let script = script.as_ref().expect("a test");
    (script.then)();
    let _ = script.calls.send((data.addr(), Evd(evd)));
}

fn of(data: usize) -> DAT_OS_WAIT_PROXY_AGENT {
    DAT_OS_WAIT_PROXY_AGENT {
        instance_data: ptr::without_provenance_mut(data),
        proxy_agent_func: Some(agent),
    }
}

/// Receives the later calls of agents.
struct Calls(mpsc::Receiver<(usize, Evd)>);

impl Calls {
    fn new() -> Self {
        Self::doing(|| ())
    }

    fn doing(then: impl Fn() + Send + 'static) -> Self {
        let (calls, receiver) = mpsc::channel();
        let then = Box::new(then);
        *SCRIPT.lock().unwrap_or_else(PoisonError::into_inner) = Some(Script { calls, then });
        Self(receiver)
    }

    #[track_caller]
    fn one(&self) -> (usize, Evd) {
        self.0.recv_timeout(SOON).expect("a call of the agent")
    }

    #[track_caller]
    fn none(&self) {
        let call = self.0.recv_timeout(Duration::from_millis(15));
        assert!(call.is_err(), "the agent was called: {call:?}");
    }
}

#[test]
fn cno_n15_an_agent_is_called_once() {
    let fixture = Fixture::new();
    let calls = Calls::new();
    let cno = Cno::with_agent(&fixture, of(11));
    let evds = [(); 2].map(|()| cno.software(&fixture, 4));
    calls.none();
    evds[1].post(1);
    assert_eq!(calls.one(), (11, evds[1]));
    evds[0].post(2);
    evds[1].post(3);
    calls.none();
    // After the call the CNO has no agent. SAFETY: pointers, for which zero is
    // valid.
    let mut param: DAT_CNO_PARAM = unsafe { std::mem::zeroed() };
    // SAFETY: the result is writable.
    ok(unsafe { dat_cno_query(cno.0, DAT_CNO_FIELD_AGENT, &raw mut param) });
    assert!(param.agent.proxy_agent_func.is_none() && param.agent.instance_data.is_null());
}

/// Completions of the device call the agent too, after any time.
#[test]
fn cno_n15_completions_call_the_agent() {
    let fixture = Fixture::new();
    let calls = Calls::new();
    let pair = Pair::new(&fixture, &Shape::default());
    let memory = fixture.memory(64);
    let cno = Cno::with_agent(&fixture, of(1));
    cno.bind(pair.passive.recv);
    cno.bind(pair.active.request);
    for round in 0..4 {
        ok(pair.passive.post_recv(&[memory.segment(0, 8)], round));
        calls.none();
        ok(pair
            .active
            .post_send(&[memory.segment(8, 8)], 9, DAT_COMPLETION_SUPPRESS_FLAG));
        fixture.run();
        assert_eq!(calls.one(), (1, Evd(pair.passive.recv)));
        assert_eq!(take_dto(pair.passive.recv).cookie, round);
        calls.none();
        ok(cno.set_agent(of(1)));
    }
}

#[test]
fn cno_n16_modify_agent_arms_again() {
    let fixture = Fixture::new();
    let calls = Calls::new();
    let cno = Cno::new(&fixture);
    let evd = cno.software(&fixture, 8);
    // A trigger that was taken while there was no agent does not call a later
    // agent.
    evd.post(0);
    assert_eq!(evd.drain(), [0]);
    ok(cno.set_agent(of(1)));
    calls.none();
    evd.post(1);
    assert_eq!(calls.one(), (1, evd));
    // A trigger between two agents calls the second.
    evd.post(2);
    calls.none();
    ok(cno.set_agent(of(2)));
    assert_eq!(calls.one(), (2, evd));
    // Without an agent in between.
    ok(cno.set_agent(of(3)));
    ok(cno.set_agent(NO_AGENT));
    evd.post(3);
    calls.none();
    // Replaces an agent by another.
    assert_eq!(evd.drain(), [1, 2, 3]);
    ok(cno.set_agent(of(4)));
    ok(cno.set_agent(of(5)));
    evd.post(4);
    assert_eq!(calls.one(), (5, evd));
    calls.none();
}

/// A trigger calls the agent and also wakes a waiting thread.
#[test]
fn cno_n17_a_trigger_reaches_the_agent_and_a_waiter() {
    let fixture = Fixture::strict();
    let calls = Calls::new();
    let cno = Cno::with_agent(&fixture, of(1));
    let evd = cno.software(&fixture, 8);
    thread::scope(|scope| {
        let waiter = cno.asleep(scope);
        evd.post(1);
        assert_eq!(joined(waiter), Ok(evd));
    });
    assert_eq!(calls.one(), (1, evd));
    cno.finds_nothing();
    // First the agent, later a waiter.
    ok(cno.set_agent(of(2)));
    calls.none();
    evd.post(2);
    assert_eq!(calls.one(), (2, evd));
    assert_eq!(cno.wait(SECOND), Ok(evd.0));
    cno.finds_nothing();
}

#[test]
fn cno_n17_completions_reach_the_agent_and_a_waiter() {
    let fixture = Fixture::new();
    let calls = Calls::new();
    let pair = Pair::new(&fixture, &Shape::default());
    let memory = fixture.memory(64);
    let recv = pair.passive.recv;
    let cno = Cno::new(&fixture);
    cno.bind(recv);
    for round in 0..20 {
        ok(pair.passive.post_recv(&[memory.segment(0, 8)], round));
        ok(cno.set_agent(of(1)));
        thread::scope(|scope| {
            let waiter = cno.asleep(scope);
            ok(pair
                .active
                .post_send(&[memory.segment(8, 8)], 9, DAT_COMPLETION_SUPPRESS_FLAG));
            fixture.run();
            assert_eq!(joined(waiter), Ok(Evd(recv)));
        });
        assert_eq!(calls.one(), (1, Evd(recv)));
        assert_eq!(take_dto(recv).cookie, round);
        cno.finds_nothing();
    }
}

/// The thread has a name of the library and blocks all signals. Every call may be
/// made from it, because no lock is held.
#[test]
fn cno_n15_an_agent_may_make_every_call() {
    let fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    let evd = cno.software(&fixture, 8);
    let (sender, receiver) = mpsc::channel();
    let calls = Calls::doing(move || {
        let mut name = [0_u8; 32];
        // SAFETY: a place for the name, and for the mask.
        let blocked = unsafe {
            libc::pthread_getname_np(libc::pthread_self(), name.as_mut_ptr().cast(), 32);
            let mut mask: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), &raw mut mask);
            libc::sigismember(&raw const mask, libc::SIGUSR1) == 1
        };
        let name = CStr::from_bytes_until_nul(&name)
            .expect("a name")
            .to_owned();
        let numbers = evd.drain();
        let (other, second) = (cno, evd);
        fails(other.wait(0).expect_err("nothing"), DAT_QUEUE_EMPTY);
        fails_with(
            other.free(),
            DAT_INVALID_STATE,
            DAT_INVALID_STATE_CNO_IN_USE,
        );
        if numbers == [3] {
            second.calls(dat_evd_free);
            ok(other.free());
        } else {
            ok(other.set_agent(of(2)));
        }
        sender
            .send((name, blocked, numbers))
            .expect("the receiver is alive");
    });
    ok(cno.set_agent(of(1)));
    for (number, data) in [(1, 1), (2, 2), (3, 2)] {
        evd.post(number);
        assert_eq!(calls.one(), (data, evd));
        let (name, blocked, numbers) = receiver.recv_timeout(SOON).expect("the agent was called");
        assert_eq!(name.to_str(), Ok("dat-cno"));
        assert!(blocked, "the thread does not block all signals");
        assert_eq!(numbers, [number]);
    }
    // The agent has freed both.
    fails(cno.free(), DAT_INVALID_HANDLE);
    fails(evd.try_post(1), DAT_INVALID_HANDLE);
}

#[test]
fn cno_n15_freeing_waits_for_the_agent() {
    let fixture = Fixture::new();
    let (begun, has_begun) = mpsc::channel();
    let calls = Calls::doing(move || {
        let _ = begun.send(());
        thread::sleep(Duration::from_millis(50));
    });
    let cno = Cno::with_agent(&fixture, of(1));
    let evd = cno.software(&fixture, 4);
    evd.post(1);
    has_begun.recv_timeout(SOON).expect("the agent begins");
    evd.calls(dat_evd_free);
    ok(cno.free());
    // The agent has returned.
    assert_eq!(calls.0.try_recv().map(|(data, _)| data), Ok(1));
}

#[test]
fn cno_n16_a_freed_cno_calls_no_agent() {
    let fixture = Fixture::new();
    let calls = Calls::new();
    let cno = Cno::with_agent(&fixture, of(1));
    ok(cno.free());
    calls.none();
    // If the CNO's last EVD is freed first, the agent is released: see N19.
    nothing_on(fixture.async_evd);
}

#[test]
fn cno_n18_agents_are_released_when_the_ia_is_closed() {
    let mut fixture = Fixture::new();
    let calls = Calls::new();
    let [first, second] = [1, 2].map(|data| Cno::with_agent(&fixture, of(data)));
    let evd = second.software(&fixture, 4);
    // Its agent has been called already.
    let third = Cno::with_agent(&fixture, of(3));
    let waker = third.software(&fixture, 4);
    waker.post(1);
    assert_eq!(calls.one(), (3, waker));
    thread::scope(|scope| {
        let waiter = first.asleep(scope);
        ok(fixture.close(DAT_CLOSE_ABRUPT_FLAG));
        assert_eq!(joined(waiter), Ok(Evd(DAT_HANDLE_NULL)));
    });
    // The close has waited for the agents.
    let mut released: Vec<_> = calls.0.try_iter().collect();
    released.sort_unstable_by_key(|&(data, _)| data);
    assert_eq!(
        released,
        [(1, Evd(DAT_HANDLE_NULL)), (2, Evd(DAT_HANDLE_NULL))]
    );
    fails(evd.try_post(1), DAT_INVALID_HANDLE);
}

/// Its thread may not have started yet.
#[test]
fn cno_n18_an_agent_that_has_just_been_set_is_released() {
    for round in 1..40 {
        let mut fixture = Fixture::new();
        let calls = Calls::new();
        let _cno = Cno::with_agent(&fixture, of(round));
        ok(fixture.close(DAT_CLOSE_ABRUPT_FLAG));
        let released: Vec<_> = calls.0.try_iter().collect();
        assert_eq!(released, [(round, Evd(DAT_HANDLE_NULL))]);
    }
}

/// The agent closes the IA of its own CNO.
#[test]
fn cno_n18_an_agent_may_close_the_ia() {
    let mut fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    let evd = cno.software(&fixture, 4);
    let ia = Evd(fixture.ia);
    let calls = Calls::doing(move || {
        // SAFETY: the call validates its handles.
        ok(unsafe { dat_ia_close(ia.handle(), DAT_CLOSE_ABRUPT_FLAG) });
    });
    ok(cno.set_agent(of(1)));
    evd.post(1);
    assert_eq!(calls.one(), (1, evd));
    fails(fixture.close(DAT_CLOSE_ABRUPT_FLAG), DAT_INVALID_HANDLE);
    fixture.was_closed();
}

#[test]
fn cno_n19_the_agent_is_released_with_the_last_evd() {
    let fixture = Fixture::new();
    let calls = Calls::new();
    let cno = Cno::with_agent(&fixture, of(1));
    let [one, two] = [(); 2].map(|()| cno.software(&fixture, 4));
    one.calls(dat_evd_free);
    calls.none();
    two.calls(dat_evd_free);
    assert_eq!(calls.one(), (1, Evd(DAT_HANDLE_NULL)));
    // An agent that is set later has missed no trigger.
    ok(cno.set_agent(of(2)));
    calls.none();
    let evd = cno.software(&fixture, 4);
    evd.post(1);
    assert_eq!(calls.one(), (2, evd));
}

//! Waits whose CNO, EVD or adapter is freed.

use std::thread;
use std::time::Duration;

use dat::abi::*;
use dat::exports::*;

use super::{Cno, Evd, LONG, SECOND, joined, stays};
use crate::support::{End, Fixture, Shape, fails_with, ok};

#[test]
fn cno_n18_waiters_are_released_when_the_ia_is_closed() {
    for with_evds in [false, true] {
        let mut fixture = Fixture::new();
        let cno = Cno::new(&fixture);
        if with_evds {
            let end = End::new(&fixture, &Shape::default());
            cno.bind(end.recv);
            cno.bind(end.connect);
            cno.software(&fixture, 4);
        }
        thread::scope(|scope| {
            let waiters = [(); 3].map(|()| cno.asleep(scope));
            ok(fixture.close(DAT_CLOSE_ABRUPT_FLAG));
            for waiter in waiters {
                assert_eq!(joined(waiter), Ok(Evd(DAT_HANDLE_NULL)));
            }
        });
        let answer = cno.wait(LONG).expect_err("the IA is closed");
        fails_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO);
    }
}

/// The close may come at any moment of the wait.
#[test]
fn cno_n18_the_ia_may_be_closed_at_any_moment_of_a_wait() {
    for round in 0..20 {
        let mut fixture = Fixture::new();
        let cno = Cno::new(&fixture);
        let evd = cno.software(&fixture, 4);
        thread::scope(|scope| {
            let waiter = scope.spawn(move || cno.wait(LONG).map(Evd));
            thread::sleep(Duration::from_micros(round * 13));
            if round % 2 == 0 {
                let _ = evd.try_post(1);
            }
            ok(fixture.close(DAT_CLOSE_ABRUPT_FLAG));
            match waiter.join().expect("no panic") {
                Ok(triggered) => assert!(triggered == evd || triggered.0.is_null()),
                // The wait came after the CNO was freed.
                Err(answer) => fails_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO),
            }
        });
    }
}

#[test]
fn cno_n19_waiters_are_released_with_the_last_evd() {
    let fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    for _ in 0..2 {
        let [one, two] = [(); 2].map(|()| cno.software(&fixture, 4));
        thread::scope(|scope| {
            let waiters = [(); 2].map(|()| cno.asleep(scope));
            one.calls(dat_evd_free);
            waiters.iter().for_each(|waiter| stays(waiter));
            two.calls(dat_evd_free);
            for waiter in waiters {
                assert_eq!(joined(waiter), Ok(Evd(DAT_HANDLE_NULL)));
            }
        });
        // The CNO still works with other EVDs.
        cno.finds_nothing();
    }
    let evd = cno.software(&fixture, 4);
    evd.post(1);
    assert_eq!(cno.wait(SECOND), Ok(evd.0));
    evd.calls(dat_evd_free);
    ok(cno.free());
}

/// Removing the last EVD from the CNO is not freeing it: the thread goes on
/// waiting.
#[test]
fn cno_n19_detaching_the_last_evd_releases_no_waiter() {
    let fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    let evd = cno.software(&fixture, 4);
    thread::scope(|scope| {
        let waiter = cno.asleep(scope);
        // SAFETY: live handles.
        ok(unsafe { dat_evd_modify_cno(evd.0, DAT_HANDLE_NULL) });
        stays(&waiter);
        evd.post(1);
        stays(&waiter);
        // An event that came meanwhile triggers.
        cno.bind(evd.0);
        assert_eq!(joined(waiter), Ok(evd));
    });
}

/// The parent's CNO is invalid in the child. The child's calls return, and the
/// parent's waiter and agent go on.
#[test]
fn cno_n21_all_calls_return_in_a_child_of_fork() {
    let fixture = Fixture::new();
    let cno = Cno::new(&fixture);
    let evd = cno.software(&fixture, 4);
    evd.post(1);
    thread::scope(|scope| {
        assert_eq!(cno.wait(SECOND), Ok(evd.0));
        assert_eq!(evd.drain(), [1]);
        let waiter = cno.asleep(scope);
        // SAFETY: the child runs only the code under test, and leaves by `_exit`.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork");
        if pid == 0 {
            let refused = |answer: DAT_RETURN| answer & 0x3fff_0000 == DAT_INVALID_HANDLE;
            let mut triggered = std::ptr::null_mut();
            // SAFETY: ends a child that hangs; the calls validate their handles.
            let all = unsafe {
                libc::alarm(20);
                refused(dat_cno_wait(
                    cno.0,
                    DAT_TIMEOUT_INFINITE,
                    &raw mut triggered,
                )) && refused(dat_evd_modify_cno(evd.0, cno.0))
                    && refused(dat_cno_modify_agent(cno.0, super::NO_AGENT))
                    && refused(dat_evd_free(evd.0))
                    && refused(dat_cno_free(cno.0))
            };
            // SAFETY: the child must not run the parent's cleanup.
            unsafe { libc::_exit(if all { 42 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: a child of this process, and a place for its status.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert!(
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 42,
            "{status:#x}"
        );
        stays(&waiter);
        evd.post(2);
        assert_eq!(joined(waiter), Ok(evd));
    });
}

//! Signals that a waiting thread handles.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Once;
use std::thread;
use std::time::{Duration, Instant};

use dat_engine::wait::WaitPolicy;

use super::fixture::{Fixture, code};
use crate::object::evd::Timeout;
use crate::status::{ReturnType, Subtype};
use crate::types::EvdFlags;

const INTERRUPTED: (ReturnType, Subtype) = (ReturnType::InterruptedCall, Subtype::NoSubtype);

static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn handler(_: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::SeqCst);
}

/// Installs a handler of SIGUSR1 with SA_RESTART, which must make no difference.
fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: zero is an empty mask without flags.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: the handler is async-signal-safe.
        let failed =
            unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, core::ptr::null_mut()) };
        assert_eq!(failed, 0);
    });
}

fn own_thread() -> libc::pthread_t {
    // SAFETY: always safe.
    unsafe { libc::pthread_self() }
}

fn interrupt(thread: libc::pthread_t) {
    // SAFETY: the caller joins the thread later.
    assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
}

/// Waits on a thread of its own, and sends it signals until it returns, the first one `delay` after
/// the wait has begun. Returns how many it sent.
fn interrupted_after(fixture: &Fixture, delay: Duration) -> u32 {
    let (started, waiter) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            waiter.store(own_thread(), Ordering::SeqCst);
            started.store(true, Ordering::SeqCst);
            let waited = fixture.wait(Timeout::Infinite, 2);
            assert_eq!(code(waited.result), INTERRUPTED);
            assert_eq!(waited.nmore, 1);
        });
        while !started.load(Ordering::SeqCst) || !fixture.evd.state.is_waited() {
            core::hint::spin_loop();
        }
        let begin = Instant::now();
        while begin.elapsed() < delay {
            core::hint::spin_loop();
        }
        let mut sent = 0;
        while !thread.is_finished() {
            interrupt(waiter.load(Ordering::SeqCst));
            sent += 1;
            let start = Instant::now();
            while !thread.is_finished() && start.elapsed() < Duration::from_secs(2) {
                thread::yield_now();
            }
        }
        thread.join().expect("no panic");
        sent
    })
}

/// Interrupts 300 waits; returns how many of them needed more than one signal.
fn interrupted_again(policy: WaitPolicy) -> u32 {
    let fixture = Fixture::with_policy(4, EvdFlags::SOFTWARE, policy);
    fixture.post(1);
    // A signal that is handled before the wait blocks signals comes too early, like one before the
    // call.
    let again = |round: u64| {
        let sent = interrupted_after(&fixture, Duration::from_nanos(500 * (round % 150)));
        u32::from(sent > 1)
    };
    (0..300).map(again).sum()
}

#[test]
fn evd_wait_w19_w14_a_signal_ends_a_wait_and_nmore_is_returned() {
    install();
    for policy in [
        WaitPolicy::Block,
        WaitPolicy::Poll,
        WaitPolicy::Adaptive {
            min: Duration::ZERO,
            max: Some(Duration::from_micros(30)),
        },
    ] {
        // On a busy machine the waiter may lose its processor just before it blocks signals.
        let least = (0..3)
            .map(|_| interrupted_again(policy))
            .find(|&again| again <= 6);
        assert!(
            least.is_some(),
            "{policy}: many of 300 signals did not end the wait"
        );
    }
    assert!(HANDLED.load(Ordering::SeqCst) >= 900);
}

#[test]
fn evd_wait_signals_that_the_caller_blocks_do_not_end_it() {
    install();
    let fixture = Fixture::software(4);
    thread::scope(|scope| {
        let (send, receive) = std::sync::mpsc::channel();
        let fixture = &fixture;
        let waiter = scope.spawn(move || {
            // SAFETY: the set is written before it is read.
            unsafe {
                let mut set: libc::sigset_t = core::mem::zeroed();
                libc::sigemptyset(&raw mut set);
                libc::sigaddset(&raw mut set, libc::SIGUSR1);
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, core::ptr::null_mut());
            }
            send.send(own_thread()).expect("the receiver is open");
            fixture.wait(Timeout::Micros(40_000), 1)
        });
        let thread = receive.recv().expect("a thread");
        while !fixture.evd.state.is_waited() {
            thread::yield_now();
        }
        interrupt(thread);
        let waited = waiter.join().expect("no panic");
        assert_eq!(code(waited.result).0, ReturnType::TimeoutExpired);
    });
}

#[test]
fn evd_wait_an_event_beats_a_signal() {
    install();
    let fixture = Fixture::software(4);
    for _ in 0..200 {
        thread::scope(|scope| {
            let (send, receive) = std::sync::mpsc::channel();
            let fixture = &fixture;
            let waiter = scope.spawn(move || {
                send.send(own_thread()).expect("the receiver is open");
                fixture.wait(Timeout::Infinite, 1)
            });
            let thread = receive.recv().expect("a thread");
            while !fixture.evd.state.is_waited() {
                core::hint::spin_loop();
            }
            fixture.post(5);
            if !waiter.is_finished() {
                interrupt(thread);
            }
            assert!(waiter.join().expect("no panic").result.is_ok());
        });
    }
}

//! Signals that the waiting thread handles, and stops of the process.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use dat::abi::*;

use super::{Evd, LONG, MINUTE, MessagePair, SOON, Waited, Waiter, joined, own_thread, stays};
use crate::support::{
    Fixture, Shape, attach_and_detach, fails_with, is_alone, stop_and_continue, take_dto,
};

static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn handler(_: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::SeqCst);
}

/// One handler is installed with SA_RESTART and one without, which must make no
/// difference. The third signal is ignored.
const SIGNALS: [libc::c_int; 2] = [libc::SIGUSR1, libc::SIGUSR2];
const IGNORED: libc::c_int = libc::SIGWINCH;

fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (signal, flags) in SIGNALS.into_iter().zip([libc::SA_RESTART, 0]) {
            // SAFETY: zero is an empty mask, no flags.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = flags;
            // SAFETY: the handler is async-signal-safe.
            let failed =
                unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
            assert_eq!(failed, 0);
        }
        // SAFETY: takes numbers.
        unsafe { libc::signal(IGNORED, libc::SIG_IGN) };
    });
}

fn interrupt(thread: libc::pthread_t, signal: libc::c_int) {
    // SAFETY: the thread is joined later.
    assert_eq!(unsafe { libc::pthread_kill(thread, signal) }, 0);
}

/// Sends signals until the thread has returned. The first suffices, unless it is
/// handled before the wait blocks signals.
fn until_returned(
    waiter: Waiter<'_, Waited>,
    thread: libc::pthread_t,
    signal: libc::c_int,
) -> (Waited, u32) {
    let mut sent = 0;
    while !waiter.is_finished() && sent < 4 {
        interrupt(thread, signal);
        sent += 1;
        let start = Instant::now();
        while !waiter.is_finished() && start.elapsed() < Duration::from_secs(2) {
            thread::yield_now();
        }
    }
    (joined(waiter), sent)
}

#[test]
fn evd_wait_w19_w14_a_signal_ends_a_wait_and_nmore_is_set() {
    install();
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    let recv = messages.recv();
    let mut again = 0;
    let mut rounds = 0;
    for queued in 0..5 {
        for signal in SIGNALS {
            for timeout in [LONG, 2 * LONG] {
                rounds += 1;
                let before = HANDLED.load(Ordering::SeqCst);
                thread::scope(|scope| {
                    let (sender, receiver) = mpsc::channel();
                    let waiter = Waiter::spawn(scope, move || {
                        own_thread(&sender);
                        recv.wait(timeout, 6)
                    });
                    let thread = receiver.recv().expect("a thread");
                    recv.until_waited();
                    // From spinning to sleeping.
                    thread::sleep(Duration::from_micros(100 * rounds));
                    let (waited, sent) = until_returned(waiter, thread, signal);
                    fails_with(waited.answer, DAT_INTERRUPTED_CALL, DAT_NO_SUBTYPE);
                    assert_eq!(waited.nmore, queued);
                    again += u32::from(sent > 1);
                });
                assert!(HANDLED.load(Ordering::SeqCst) > before);
            }
        }
        messages.post_recvs(queued as u64..queued as u64 + 1);
        messages.deliver();
    }
    assert!(
        again <= 2,
        "{again} of {rounds} signals did not end the wait"
    );
    // No event was taken, and the next wait gets them.
    assert_eq!(recv.wait(0, 5).tag(), (0, 4));
    assert_eq!([(); 4].map(|()| take_dto(recv.0).cookie), [1, 2, 3, 4]);
}

#[test]
fn evd_wait_w19_a_signal_to_another_thread_ends_no_wait() {
    install();
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    messages.post_recvs(1..2);
    let recv = messages.recv();
    thread::scope(|scope| {
        let waiter = recv.asleep(scope, 1);
        for signal in SIGNALS {
            let before = HANDLED.load(Ordering::SeqCst);
            // SAFETY: always safe.
            interrupt(unsafe { libc::pthread_self() }, signal);
            assert_eq!(HANDLED.load(Ordering::SeqCst), before + 1);
            stays(&waiter, recv);
        }
        messages.deliver();
        assert_eq!(joined(waiter).soon().tag(), (1, 0));
    });
}

/// Neither a signal that the thread blocks, nor one that it ignores.
#[test]
fn evd_wait_w19_a_signal_that_is_not_handled_ends_no_wait() {
    install();
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    messages.post_recvs(1..2);
    let recv = messages.recv();
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        let waiter = Waiter::spawn(scope, move || {
            // SAFETY: sets are written before they are read.
            unsafe {
                let mut set: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&raw mut set);
                libc::sigaddset(&raw mut set, SIGNALS[0]);
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            }
            own_thread(&sender);
            recv.wait(LONG, 1)
        });
        let thread = receiver.recv().expect("a thread");
        recv.until_waited();
        thread::sleep(Duration::from_millis(5));
        for signal in [SIGNALS[0], IGNORED] {
            interrupt(thread, signal);
            stays(&waiter, recv);
        }
        messages.deliver();
        assert_eq!(joined(waiter).soon().tag(), (1, 0));
    });
}

/// However the wait ends, the caller's signal mask is as before.
#[test]
fn evd_wait_w19_the_signal_mask_is_left_as_it_was() {
    install();
    let fixture = Fixture::new();
    let evd = Evd::software(&fixture, 4);
    let mask = || {
        // SAFETY: the set is written before it is read.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set);
            (1..libc::SIGRTMAX())
                .filter(|&signal| libc::sigismember(&raw const set, signal) == 1)
                .collect::<Vec<_>>()
        }
    };
    let before = mask();
    assert_eq!(evd.wait(0, 1).expired(), 0);
    assert_eq!(evd.wait(3000, 1).expired(), 0);
    assert_eq!(mask(), before);
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        let (before, mask) = (&before, &mask);
        let waiter = Waiter::spawn(scope, move || {
            own_thread(&sender);
            let waited = evd.wait(LONG, 1);
            assert_eq!(mask(), *before);
            waited
        });
        let thread = receiver.recv().expect("a thread");
        evd.until_waited();
        let (waited, _) = until_returned(waiter, thread, SIGNALS[0]);
        fails_with(waited.answer, DAT_INTERRUPTED_CALL, DAT_NO_SUBTYPE);
        assert!(waited.took < SOON);
    });
}

/// Sends the calling thread's id, as the kernel has it.
fn own_id(to: &mpsc::Sender<libc::pid_t>) {
    // SAFETY: always safe.
    to.send(unsafe { libc::gettid() }).expect("a receiver");
}

/// Ctrl-Z and `fg`, and a debugger that attaches: no handler runs.
#[test]
fn evd_wait_w19_a_stop_of_the_process_ends_no_wait() {
    if !is_alone() {
        return;
    }
    let fixture = Fixture::new();
    let messages = MessagePair::new(&fixture, &Shape::default());
    let recv = messages.recv();
    for (tag, timeout) in (1..).zip([DAT_TIMEOUT_INFINITE, MINUTE]) {
        messages.post_recvs(tag..tag + 1);
        thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            let waiter = Waiter::spawn(scope, move || {
                own_id(&sender);
                recv.wait(timeout, 1)
            });
            let thread = receiver.recv().expect("a thread");
            recv.until_waited();
            for _ in 0..3 {
                stays(&waiter, recv);
                stop_and_continue();
                stays(&waiter, recv);
                attach_and_detach(thread);
            }
            stays(&waiter, recv);
            messages.deliver();
            assert_eq!(joined(waiter).tag(), (tag, 0));
        });
    }
}

#[test]
fn evd_wait_w19_a_handled_signal_ends_a_wait_after_a_stop() {
    if !is_alone() {
        return;
    }
    install();
    let fixture = Fixture::new();
    let evd = Evd::software(&fixture, 4);
    for signal in SIGNALS {
        for timeout in [DAT_TIMEOUT_INFINITE, MINUTE] {
            thread::scope(|scope| {
                let (sender, receiver) = mpsc::channel();
                let waiter = Waiter::spawn(scope, move || {
                    own_thread(&sender);
                    evd.wait(timeout, 1)
                });
                let thread = receiver.recv().expect("a thread");
                evd.until_waited();
                stays(&waiter, evd);
                stop_and_continue();
                stays(&waiter, evd);
                let (waited, _) = until_returned(waiter, thread, signal);
                fails_with(waited.answer, DAT_INTERRUPTED_CALL, DAT_NO_SUBTYPE);
            });
        }
    }
}

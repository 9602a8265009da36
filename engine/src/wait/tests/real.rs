//! The parts that use the system: signals, the wake descriptor, and threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use super::*;

/// A source that is ready when more messages were sent than received; only the
/// blocker wakes it.
struct MessageSource {
    sent: Arc<AtomicU64>,
    taken: u64,
}

impl Source for MessageSource {
    fn ready(&mut self) -> bool {
        self.sent.load(Ordering::Relaxed) > self.taken
    }

    fn arm(&mut self) {}

    fn take_events(&mut self) -> Result<u32, ControlError> {
        Ok(0)
    }

    fn channel(&self) -> Option<ChannelFds<'_>> {
        None
    }
}

fn mail() -> (MessageSource, Arc<AtomicU64>) {
    let sent = Arc::<AtomicU64>::default();
    let mail = MessageSource {
        sent: Arc::clone(&sent),
        taken: 0,
    };
    (mail, sent)
}

fn wait_for(
    mail: &mut MessageSource,
    blocker: &Blocker,
    policy: WaitPolicy,
    mut deadline: Deadline,
) -> (WaitOutcome, WaitCounters) {
    let mut counters = WaitCounters::default();
    let outcome = wait(
        mail,
        blocker,
        &mut SpinBudget::new(),
        policy,
        &mut deadline,
        &mut counters,
    );
    (outcome.expect("no failure"), counters)
}

#[test]
fn no_wake_up_is_lost_between_two_threads() {
    const ROUNDS: u64 = 20_000;
    for policy in [WaitPolicy::Block, spin_for(2_000), WaitPolicy::default()] {
        let blocker = Blocker::new().expect("a descriptor");
        let (mut mail, sent) = mail();
        let answered = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    // Sometimes at once, sometimes when the other thread sleeps.
                    while round % 3 != 0 && answered.load(Ordering::Relaxed) < round {
                        thread::yield_now();
                    }
                    sent.fetch_add(1, Ordering::Relaxed);
                    blocker.wake();
                }
            });
            while mail.taken < ROUNDS {
                let long = Deadline::after(Duration::from_secs(20));
                let (outcome, _) = wait_for(&mut mail, &blocker, policy, long);
                assert_eq!(
                    outcome,
                    WaitOutcome::Ready,
                    "{policy}: after {}",
                    mail.taken
                );
                mail.taken = mail.sent.load(Ordering::Relaxed);
                answered.store(mail.taken, Ordering::Relaxed);
            }
        });
    }
}

#[test]
fn a_wake_without_a_sleeper_leaves_no_token() {
    let blocker = Blocker::new().expect("a descriptor");
    let (mut mail, _) = mail();
    for _ in 0..3 {
        blocker.wake();
    }
    let (outcome, counters) = wait_for(
        &mut mail,
        &blocker,
        WaitPolicy::Block,
        Deadline::from_micros(2_000),
    );
    assert_eq!(outcome, WaitOutcome::TimedOut);
    assert_eq!((counters.blocks, counters.spurious), (1, 0));
}

#[test]
fn an_announcement_is_woken_once_and_a_late_token_shortens_one_sleep() {
    let blocker = Blocker::new().expect("a descriptor");
    let guard = SignalGuard::new();
    let block = |millis| {
        let timeout = Some(Duration::from_millis(millis));
        blocker.block(None, timeout, &guard).expect("no failure")
    };
    blocker.announce();
    blocker.wake();
    blocker.wake();
    assert_eq!(block(10_000), BlockResult::Woken);
    assert_eq!(block(1), BlockResult::TimedOut, "the token is gone");
    blocker.announce();
    blocker.wake();
    blocker.retract();
    assert_eq!(block(1), BlockResult::TimedOut, "this token is gone too");
    blocker.announce();
    blocker.retract();
    blocker.wake();
    assert_eq!(block(1), BlockResult::TimedOut, "there was no sleeper");
    // A waker that writes its token late finds the sleep over.
    blocker.announce();
    assert!(blocker.is_taken_for_test());
    blocker.retract();
    blocker.ring_for_test();
    assert_eq!(block(10_000), BlockResult::Woken);
    assert_eq!(block(1), BlockResult::TimedOut);
}

#[test]
fn a_channel_wakes_and_a_closed_one_does_not_hang() {
    let blocker = Blocker::new().expect("a descriptor");
    let guard = SignalGuard::new();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let channel = std::os::fd::AsFd::as_fd(&reader).into();
    let short = Some(Duration::from_millis(1));
    let block = |timeout| {
        blocker
            .block(Some(channel), timeout, &guard)
            .expect("no failure")
    };
    assert_eq!(block(short), BlockResult::TimedOut);
    std::io::Write::write_all(&mut &writer, b"x").expect("room");
    assert_eq!(block(None), BlockResult::Woken);
    drop(writer);
    assert_eq!(block(None), BlockResult::Woken, "the other end is gone");
}

#[test]
fn a_deadline_is_kept_by_every_policy() {
    for policy in [
        WaitPolicy::Poll,
        WaitPolicy::Umwait,
        WaitPolicy::Block,
        spin_for(500_000),
    ] {
        let blocker = Blocker::new().expect("a descriptor");
        let (mut mail, _) = mail();
        let start = Instant::now();
        let (outcome, _) = wait_for(&mut mail, &blocker, policy, Deadline::from_micros(3_000));
        assert_eq!(outcome, WaitOutcome::TimedOut);
        assert!(start.elapsed() >= Duration::from_millis(3), "{policy}");
        assert!(start.elapsed() < Duration::from_secs(3), "{policy}");
    }
}

/// Signal handlers belong to the process, so these tests run one at a time.
static SIGNALS: Mutex<()> = Mutex::new(());
static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_signal: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// Installs a handler that counts SIGUSR1 from 0.
fn counted() -> MutexGuard<'static, ()> {
    let turn = SIGNALS.lock().unwrap_or_else(PoisonError::into_inner);
    let handler: extern "C" fn(libc::c_int) = count;
    // SAFETY: the handler accesses an atomic only. `signal` sets SA_RESTART, which
    // must not restart a wait.
    let before = unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
    assert_ne!(before, libc::SIG_ERR);
    HANDLED.store(0, Ordering::Relaxed);
    turn
}

fn raise(signal: libc::c_int) {
    // SAFETY: a signal to this thread, which handles or ignores it.
    unsafe { libc::pthread_kill(libc::pthread_self(), signal) };
}

/// Returns whether this thread blocks a signal.
fn is_held_back(signal: libc::c_int) -> bool {
    let mut mask = core::mem::MaybeUninit::uninit();
    // SAFETY: the call only reads the mask, into a local variable.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, core::ptr::null(), mask.as_mut_ptr());
        libc::sigismember(mask.as_ptr(), signal) == 1
    }
}

#[test]
fn a_guard_blocks_signals_lets_them_in_on_request_and_restores_the_mask() {
    let _turn = counted();
    {
        let guard = SignalGuard::new();
        assert!(is_held_back(libc::SIGUSR1) && !is_held_back(libc::SIGSEGV));
        assert!(!guard.interrupted(), "there was none");
        raise(libc::SIGUSR1);
        assert_eq!(HANDLED.load(Ordering::Relaxed), 0);
        assert!(guard.interrupted());
        assert_eq!(HANDLED.load(Ordering::Relaxed), 1);
        assert!(!guard.interrupted(), "handled once only");
        assert!(is_held_back(libc::SIGUSR1), "blocked again");
        // Ignored by default: no handler runs, so there is no interruption.
        raise(libc::SIGURG);
        raise(libc::SIGCHLD);
        assert!(!guard.interrupted());
        raise(libc::SIGUSR1);
    }
    assert_eq!(
        HANDLED.load(Ordering::Relaxed),
        2,
        "handled when the guard is dropped"
    );
    assert!(!is_held_back(libc::SIGUSR1));
}

#[test]
fn signals_that_the_caller_blocks_stay_blocked() {
    let _turn = counted();
    let outer = SignalGuard::new();
    {
        let guard = SignalGuard::new();
        raise(libc::SIGUSR1);
        assert!(!guard.interrupted());
        let blocker = Blocker::new().expect("a descriptor");
        let slept = blocker.block(None, Some(Duration::from_millis(1)), &guard);
        assert_eq!(slept.expect("no failure"), BlockResult::TimedOut);
    }
    assert!(is_held_back(libc::SIGUSR1));
    assert_eq!(HANDLED.load(Ordering::Relaxed), 0);
    assert!(outer.interrupted());
}

#[test]
fn a_signal_before_the_sleep_ends_the_sleep() {
    let _turn = counted();
    let blocker = Blocker::new().expect("a descriptor");
    let guard = SignalGuard::new();
    raise(libc::SIGUSR1);
    let slept = blocker.block(None, Some(Duration::from_secs(20)), &guard);
    assert_eq!(slept.expect("no failure"), BlockResult::Signal);
    assert_eq!(HANDLED.load(Ordering::Relaxed), 1);
}

/// A signal that is ignored by default stays pending while the guard blocks it.
#[test]
fn an_ignored_signal_before_the_sleep_does_not_end_the_sleep() {
    let blocker = Blocker::new().expect("a descriptor");
    let guard = SignalGuard::new();
    raise(libc::SIGURG);
    let slept = blocker.block(None, Some(Duration::from_millis(1)), &guard);
    assert_eq!(slept.expect("no failure"), BlockResult::TimedOut);
}

#[test]
fn a_signal_ends_a_wait_that_spins_and_one_that_sleeps() {
    let _turn = counted();
    for policy in [WaitPolicy::Poll, WaitPolicy::Umwait, WaitPolicy::Block] {
        HANDLED.store(0, Ordering::Relaxed);
        let blocker = Blocker::new().expect("a descriptor");
        let (mut mail, _) = mail();
        let over = AtomicBool::new(false);
        // SAFETY: returns this thread's id.
        let waiter = unsafe { libc::pthread_self() };
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(5));
                // Repeated, in case the first came before the wait.
                while !over.load(Ordering::Relaxed) {
                    // SAFETY: the thread waits for this one to end.
                    unsafe { libc::pthread_kill(waiter, libc::SIGUSR1) };
                    thread::sleep(Duration::from_millis(20));
                }
            });
            let long = Deadline::after(Duration::from_secs(20));
            let (outcome, _) = wait_for(&mut mail, &blocker, policy, long);
            over.store(true, Ordering::Relaxed);
            assert_eq!(outcome, WaitOutcome::Interrupted, "{policy}");
            assert!(HANDLED.load(Ordering::Relaxed) > 0);
        });
        assert!(!is_held_back(libc::SIGUSR1));
    }
}

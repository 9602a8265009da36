//! Threads that wait in a call.

use std::fs;
use std::io::{self, Write};
use std::ops::Deref;
use std::panic::Location;
use std::process;
use std::sync::mpsc;
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use super::SOON;

/// A thread that waits in a call, and its number.
#[derive(Debug)]
pub struct Waiter<'s, T> {
    handle: ScopedJoinHandle<'s, T>,
    thread: libc::pid_t,
}

impl<'s, T: Send + 's> Waiter<'s, T> {
    /// Makes the call in a thread. Returns once the thread runs.
    pub fn spawn(scope: &'s Scope<'s, '_>, call: impl FnOnce() -> T + Send + 's) -> Self {
        let (sender, receiver) = mpsc::channel();
        let handle = scope.spawn(move || {
            // SAFETY: always safe.
            let thread = unsafe { libc::gettid() };
            sender.send(thread).expect("the receiver is alive");
            call()
        });
        let thread = receiver.recv().expect("a thread");
        Self { handle, thread }
    }
}

impl<T> Waiter<'_, T> {
    /// Waits until the thread sleeps in `dat_evd_wait` or `dat_cno_wait`. Its queues are
    /// armed then. On the verbs path, a completion before the arm counts as solicited.
    #[track_caller]
    pub fn until_asleep(&self) {
        let asleep = libc::SYS_ppoll.to_string();
        let begin = Instant::now();
        loop {
            let call = fs::read_to_string(format!("/proc/self/task/{}/syscall", self.thread));
            if call.is_ok_and(|call| call.split(' ').next() == Some(&asleep)) {
                return;
            }
            let waited = begin.elapsed();
            if waited >= SOON || self.handle.is_finished() {
                fatal(&format!("the thread does not sleep after {waited:?}"));
            }
            thread::sleep(Duration::from_micros(200));
        }
    }
}

impl<'s, T> Deref for Waiter<'s, T> {
    type Target = ScopedJoinHandle<'s, T>;

    fn deref(&self) -> &Self::Target {
        &self.handle
    }
}

impl<'s, T> From<Waiter<'s, T>> for ScopedJoinHandle<'s, T> {
    fn from(waiter: Waiter<'s, T>) -> Self {
        waiter.handle
    }
}

/// Checks that a thread goes on waiting for a while.
#[track_caller]
pub fn stays<T>(thread: &ScopedJoinHandle<'_, T>) {
    thread::sleep(Duration::from_millis(15));
    assert!(!thread.is_finished(), "the wait has ended");
}

/// Returns the result of a thread that must end soon.
#[track_caller]
pub fn joined<'s, T>(thread: impl Into<ScopedJoinHandle<'s, T>>) -> T {
    let thread = thread.into();
    let begin = Instant::now();
    while !thread.is_finished() {
        if begin.elapsed() >= SOON {
            fatal("a wait does not end: a wake-up was lost");
        }
        thread::sleep(Duration::from_micros(200));
    }
    thread.join().expect("no panic")
}

/// Ends the process: a panic would wait for the threads of its scope.
#[track_caller]
fn fatal(message: &str) -> ! {
    let test = thread::current();
    let (test, at) = (test.name().unwrap_or("a thread"), Location::caller());
    // Not captured, as the output of a macro is.
    let _ = writeln!(io::stderr(), "{test}, {at}: {message}");
    process::abort();
}

//! The NIC thread.

use std::io;
use std::os::fd::AsRawFd;

use super::waiting::{Wait, WaitPolicy};
use super::{Control, Driver, now, scheduling};
use crate::config::Wake;
use crate::fabric::port::Port;
use crate::nic::Nanos;
use crate::nic::spec::UarWrite;
use crate::uar::UarBank;

/// How often a sender that found no room looks again: nobody wakes it for a
/// reader that was killed.
const REFUSED_INTERVAL: Nanos = 2_000_000;

/// Everything the NIC thread owns or looks at.
pub struct NicThread<'a, D> {
    /// The NIC.
    pub driver: D,
    /// Its doorbell pages.
    pub bank: &'a UarBank,
    /// Its fabric.
    pub port: Port,
    /// What other threads want.
    pub control: &'a Control,
    /// How to learn of a doorbell while asleep.
    pub wake: Wake,
    /// Idle time after which it sleeps; usually [`NAP_LIMIT`](super::NAP_LIMIT).
    pub nap_limit: Nanos,
}

impl<D: Driver + Send + 'static> NicThread<'static, D> {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system has no more threads.
    pub fn spawn(self) -> io::Result<()> {
        // The thread is born with all signals blocked: no handler of the
        // application ever runs on it.
        let _blocked = scheduling::SignalsBlocked::new();
        std::thread::Builder::new()
            .name("mlx5emu-nic".into())
            .spawn(move || {
                scheduling::become_nic();
                // Without its NIC the process would wait for ever on completions.
                let abort = AbortOnPanic;
                self.run();
                std::mem::forget(abort);
            })?;
        Ok(())
    }
}

impl<D: Driver> NicThread<'_, D> {
    /// Runs until told to stop; leaves the fabric.
    pub fn run(self) {
        if let Some(attachment) = self.port.attachment() {
            self.control.wakes(attachment.waker());
        }
        let control = self.control;
        let policy = WaitPolicy::new(self.nap_limit);
        let mut turns = Turns {
            thread: self,
            policy,
            doorbells: Vec::with_capacity(64),
            deadline: None,
            again: true,
        };
        while !control.is_stopping() {
            turns.turn();
        }
        drop(turns);
        control.note_stopped();
    }
}

struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        eprintln!("mlx5-emu: the emulated NIC failed (see above); this is a bug of the emulator");
        std::process::abort();
    }
}

struct Turns<'a, D> {
    thread: NicThread<'a, D>,
    policy: WaitPolicy,
    doorbells: Vec<UarWrite>,
    deadline: Option<Nanos>,
    /// The last run did something: there may be more.
    again: bool,
}

impl<D: Driver> Turns<'_, D> {
    fn turn(&mut self) {
        self.scan();
        let came = !self.doorbells.is_empty() || self.thread.port.has_pending();
        let now = now();
        if !came {
            let due = self.deadline.is_some_and(|deadline| deadline <= now);
            if !(self.thread.control.take_kick() || due || self.again) {
                match self.policy.wait(now) {
                    Wait::Spin => std::hint::spin_loop(),
                    Wait::Nap(nap) => self.sleep(now, false, nap),
                    Wait::Sleep(nap) => self.sleep(now, self.thread.wake != Wake::Nap, nap),
                }
                return;
            }
            if !self.again {
                self.policy.interrupted();
            }
        } else {
            self.policy.work_arrived(now);
        }
        let progress = self
            .thread
            .driver
            .run(&self.doorbells, &mut self.thread.port, now);
        self.doorbells.clear();
        self.again = progress.worked;
        self.deadline = progress.next_deadline;
        if self.thread.port.take_refused() {
            let retry = now + REFUSED_INTERVAL;
            self.deadline = Some(self.deadline.map_or(retry, |deadline| deadline.min(retry)));
        }
    }

    fn scan(&mut self) {
        let doorbells = &mut self.doorbells;
        self.thread.bank.scan(&mut |write| doorbells.push(write));
    }

    /// Sleeps until a packet, a kick or the deadline, and for `nap` at most;
    /// with `faults`, if possible, until a doorbell instead. What comes while
    /// falling asleep is noticed: every party either stores before the last
    /// look here, or finds the sleeper announced.
    fn sleep(&mut self, now: Nanos, faults: bool, nap: Nanos) {
        let Some(attachment) = self.thread.port.attachment() else {
            return;
        };
        attachment.begin_sleep();
        if !self.thread.control.is_kicked() && !self.thread.port.has_pending() {
            let protected = faults && self.thread.bank.protect();
            self.scan();
            let until = self.deadline.map(|deadline| deadline.saturating_sub(now));
            let fault = if protected {
                self.thread.bank.as_raw_fd()
            } else {
                -1
            };
            let until = if protected {
                until
            } else {
                Some(until.map_or(nap, |t| t.min(nap)))
            };
            let announced = self.doorbells.is_empty() && self.wait_for(fault, until);
            if protected {
                self.thread.bank.unprotect();
            }
            if announced {
                self.policy.store_announced(super::now());
            }
        }
        if let Some(attachment) = self.thread.port.attachment() {
            attachment.end_sleep();
        }
    }

    /// Waits for the FIFO or the fault descriptor, at most `until`
    /// nanoseconds; `true` if a store faulted.
    fn wait_for(&self, fault: i32, until: Option<Nanos>) -> bool {
        let Some(attachment) = self.thread.port.attachment() else {
            return false;
        };
        let poll = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let mut fds = [poll(attachment.wake_fd().as_raw_fd()), poll(fault)];
        let timeout = until.map(|nanos| libc::timespec {
            tv_sec: (nanos / 1_000_000_000) as libc::time_t,
            tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
        });
        let timeout = timeout
            .as_ref()
            .map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: two pollfds, and a timespec or null, that live through the
        // call. An error is no event, and the caller looks by itself.
        unsafe { libc::ppoll(fds.as_mut_ptr(), 2, timeout, std::ptr::null()) };
        if fds[0].revents != 0 {
            attachment.drain_wakes();
        }
        fds[1].revents & libc::POLLIN != 0
    }
}

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

/// How long a peer may sleep on acknowledgements, if this thread sleeps too:
/// what follows them, an answer say, mostly comes sooner and wakes once.
const ACKNOWLEDGE_DELAY: Nanos = 30_000;

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
        let mut turns = Turns {
            thread: self,
            policy: WaitPolicy::default(),
            doorbells: Vec::with_capacity(64),
            deadline: None,
            again: true,
            faulted: None,
        };
        while !control.is_stopping() {
            turns.turn();
        }
        turns.thread.bank.unprotect();
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
    /// Stores wait in page faults; whether all of them are in `doorbells`.
    faulted: Option<bool>,
}

impl<D: Driver> Turns<'_, D> {
    fn turn(&mut self) {
        self.scan();
        let came = !self.doorbells.is_empty() || self.thread.port.has_pending();
        let now = now();
        if !came {
            let due = self.deadline.is_some_and(|deadline| deadline <= now);
            if !(self.thread.control.take_kick() || due || self.again) {
                self.wait(now);
                return;
            }
            if !self.again {
                self.policy.interrupted();
            }
        } else {
            self.policy.work_arrived(now, !self.doorbells.is_empty());
        }
        let progress = self
            .thread
            .driver
            .run(&self.doorbells, &mut self.thread.port, now);
        self.doorbells.clear();
        self.release_faulted();
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

    fn wait(&mut self, now: Nanos) {
        let bank = self.thread.bank;
        match self.policy.wait(now) {
            Wait::Spin => {
                self.thread.port.wake_all();
                bank.unprotect();
                std::hint::spin_loop();
            }
            Wait::Nap(nap) => {
                bank.unprotect();
                self.sleep(now, false, nap);
            }
            // What is protected stays so from sleep to sleep: a thread that
            // wakes for packets alone pays nothing for it.
            Wait::Sleep(nap) => {
                let woken_by_stores = self.thread.wake != Wake::Nap && bank.protect();
                if !woken_by_stores {
                    bank.unprotect();
                }
                self.sleep(now, woken_by_stores, nap);
            }
        }
    }

    /// Sleeps until a packet, a kick or the deadline, and until a doorbell,
    /// or else for `nap` at most. What comes while falling asleep is noticed:
    /// every party either stores before the last look here, or finds the
    /// sleeper announced.
    fn sleep(&mut self, now: Nanos, woken_by_stores: bool, nap: Nanos) {
        let Some(attachment) = self.thread.port.attachment() else {
            return;
        };
        attachment.begin_sleep();
        if !self.thread.control.is_kicked() && !self.thread.port.has_pending() {
            self.scan();
            if self.doorbells.is_empty() {
                let mut until = self.deadline.map(|deadline| deadline.saturating_sub(now));
                if !woken_by_stores {
                    until = Some(until.map_or(nap, |until| until.min(nap)));
                }
                let held_back = self.thread.port.has_unwoken();
                if held_back {
                    until = Some(until.map_or(ACKNOWLEDGE_DELAY, |u| u.min(ACKNOWLEDGE_DELAY)));
                }
                if self.wait_for(woken_by_stores, until) {
                    self.take_faults();
                } else if held_back {
                    self.thread.port.wake_all();
                }
            }
        }
        if let Some(attachment) = self.thread.port.attachment() {
            attachment.end_sleep();
        }
    }

    /// A fault tells the register before the store is made, and all that the
    /// store could tell is in memory by then: the NIC need not wait until
    /// the application has got a core again. Only the number of the CQ that
    /// is armed is in the store itself.
    fn take_faults(&mut self) {
        let doorbells = &mut self.doorbells;
        let complete = self
            .thread
            .bank
            .take_faults(&mut |write| doorbells.push(write));
        self.faulted = Some(complete);
        if self.doorbells.is_empty() {
            self.release_faulted();
        }
    }

    /// Lets the stores go on that wait in faults.
    fn release_faulted(&mut self) {
        if let Some(served) = self.faulted.take() {
            self.thread.bank.unprotect();
            self.policy.store_announced(now(), served);
        }
    }

    /// Waits for the FIFO or the fault descriptor, at most `until`
    /// nanoseconds; `true` if a store faulted.
    fn wait_for(&self, faults: bool, until: Option<Nanos>) -> bool {
        let Some(attachment) = self.thread.port.attachment() else {
            return false;
        };
        let fault = if faults {
            self.thread.bank.as_raw_fd()
        } else {
            -1
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

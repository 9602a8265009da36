//! The NIC thread.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use super::ack_timer::ACK_DELAY;
use super::placement::Placement;
use super::shared_nic::{IdlePlan, SharedNic};
use super::wait_policy::Wait;
use super::{Budget, Control, Driver, now, scheduling};
use crate::config::Wake;
use crate::fabric::waker::{PeerWaker, WakeSet};
use crate::spec::{Nanos, UarWrite};
use crate::sync::{Mutex, MutexGuard};
use crate::trap;
use crate::uar::UarPages;

/// Number of scans for work between two readings of the clock.
const SPINS: u32 = 16;

/// The NIC thread and what it uses.
pub struct NicThread<'a, D> {
    /// The NIC and its port.
    pub shared_nic: &'a Mutex<SharedNic<D>>,
    /// The NIC's doorbell pages.
    pub uar: &'a UarPages,
    /// How the thread sleeps and wakes peers.
    pub waker: Arc<PeerWaker>,
    /// Requests from other threads.
    pub control: &'a Control,
    /// How a doorbell reaches the NIC while the thread sleeps.
    pub wake: Wake,
}

impl<D: Driver + Send + 'static> NicThread<'static, D> {
    /// Starts the thread.
    ///
    /// # Errors
    /// Returns the error of the system if no thread can be created.
    pub fn spawn(self) -> io::Result<()> {
        // The thread inherits a full signal mask: no handler of the application
        // runs on it.
        let _blocked = scheduling::SignalsBlocked::new();
        std::thread::Builder::new()
            .name("mlx5emu-nic".into())
            .spawn(move || {
                scheduling::configure_nic_thread();
                // Without its NIC the process would wait for completions forever.
                let abort = AbortOnPanic;
                self.run();
                std::mem::forget(abort);
            })?;
        Ok(())
    }
}

impl<D: Driver> NicThread<'_, D> {
    /// Runs until stopped, then leaves the fabric.
    pub fn run(self) {
        self.control.set_waker(Arc::clone(&self.waker));
        let (control, uar) = (self.control, self.uar);
        let ack_timer = self.lock_shared().ack_timer.raw_fd();
        let mut nic_loop = NicLoop {
            thread: self,
            ack_timer,
            placement: Placement::default(),
            doorbells: Vec::with_capacity(64),
            deadline: None,
            more_work: true,
            pending_faults: None,
        };
        while !control.is_stopping() {
            nic_loop.iterate();
        }
        uar.unprotect();
        let mut shared_nic = nic_loop.thread.lock_shared();
        let SharedNic { driver, port, .. } = &mut *shared_nic;
        driver.stop(port, now());
        port.leave();
        drop(shared_nic);
        control.mark_stopped();
    }
}

impl<'a, D> NicThread<'a, D> {
    fn lock_shared(&self) -> MutexGuard<'a, SharedNic<D>> {
        self.shared_nic.lock()
    }

    /// Returns whether stores to protected pages are reported. The program may
    /// have replaced the signal handler that reports them.
    fn can_trap_stores(&self) -> bool {
        match self.wake {
            Wake::Nap => false,
            Wake::Auto | Wake::Uffd => true,
            Wake::Signal => trap::is_handler_active(),
        }
    }
}

struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        eprintln!(
            "mlx5-emu: the emulated NIC has panicked (see above); this is a bug in the emulator"
        );
        std::process::abort();
    }
}

struct NicLoop<'a, D> {
    thread: NicThread<'a, D>,
    placement: Placement,
    doorbells: Vec<UarWrite>,
    deadline: Option<Nanos>,
    /// The last batch did something, so there may be more work.
    more_work: bool,
    /// Set while stores wait in page faults: whether all of them are in
    /// `doorbells`.
    pending_faults: Option<bool>,
    /// The descriptor of the ack timer.
    ack_timer: i32,
}

impl<D: Driver> NicLoop<'_, D> {
    fn iterate(&mut self) {
        if self.thread.control.pause_requested() {
            self.thread.uar.unprotect();
            self.thread.control.wait_while_paused();
            self.more_work = true;
        }
        self.scan();
        let has_input = self.has_input();
        let now = now();
        let due = self.deadline.is_some_and(|deadline| deadline <= now);
        let run = has_input || self.thread.control.take_kick() || due || self.more_work;
        if run {
            self.thread.control.yield_to_waiters();
        }
        let mut shared_nic = self.thread.lock_shared();
        shared_nic.sleeps_until = None;
        if !run {
            let plan = shared_nic.plan_idle(now);
            let wakes = match plan.wait {
                Wait::Spin => shared_nic.port.take_wakes(),
                _ => WakeSet::default(),
            };
            drop(shared_nic);
            self.thread.waker.wake(wakes);
            self.deadline = plan.deadline;
            return self.wait(now, &plan);
        }
        if has_input {
            let doorbell = !self.doorbells.is_empty();
            shared_nic.policy.work_arrived(now, doorbell);
        } else if !self.more_work {
            shared_nic.policy.interrupted();
        }
        let SharedNic { driver, port, .. } = &mut *shared_nic;
        let progress = driver.run(&self.doorbells, port, now, Budget::BATCH);
        let wakes = port.take_immediate_wakes();
        shared_nic.deadline = progress.next_deadline;
        drop(shared_nic);
        self.deadline = progress.next_deadline;
        self.thread.waker.wake(wakes);
        self.more_work = progress.worked;
        self.doorbells.clear();
        self.release_faults();
    }

    fn scan(&mut self) {
        let doorbells = &mut self.doorbells;
        self.thread.uar.scan(&mut |write| doorbells.push(write));
    }

    fn has_input(&self) -> bool {
        !self.doorbells.is_empty() || self.thread.waker.has_pending()
    }

    fn wait(&mut self, now: Nanos, plan: &IdlePlan) {
        let uar = self.thread.uar;
        match plan.wait {
            Wait::Spin => {
                uar.unprotect();
                self.spin();
            }
            Wait::Nap(nap) => {
                uar.unprotect();
                self.sleep(now, false, nap, plan.needs_ack_timeout);
            }
            // Protected pages stay protected from sleep to sleep, so a wake-up
            // for packets alone does not pay for protecting them again.
            Wait::Sleep(nap) => {
                let stores_reported = self.thread.can_trap_stores() && uar.protect();
                if !stores_reported {
                    uar.unprotect();
                }
                self.sleep(now, stores_reported, nap, plan.needs_ack_timeout);
            }
        }
    }

    fn spin(&mut self) {
        for _ in 0..SPINS {
            std::hint::spin_loop();
            self.scan();
            if self.has_input() || self.thread.control.is_kicked() {
                return;
            }
        }
    }

    /// Sleeps until a packet, a kick, a doorbell or the deadline; for at most
    /// `nap` if stores are not reported. No event is lost while falling asleep:
    /// every other thread or process either stores before the last check here,
    /// or finds the announced sleep.
    fn sleep(&mut self, now: Nanos, stores_reported: bool, nap: Nanos, needs_ack_timeout: bool) {
        self.thread.waker.begin_sleep();
        if !self.thread.control.is_kicked() && !self.thread.waker.has_pending() {
            self.scan();
            if self.doorbells.is_empty() {
                let mut until = self.deadline.map(|deadline| deadline.saturating_sub(now));
                if !stores_reported {
                    until = Some(until.map_or(nap, |until| until.min(nap)));
                }
                if needs_ack_timeout {
                    until = Some(until.map_or(ACK_DELAY, |u| u.min(ACK_DELAY)));
                }
                match self.wait_for(stores_reported, until) {
                    WokenBy::Store => self.take_faults(),
                    WokenBy::Peer => {
                        if let Some(core) = self.thread.waker.take_waker_core() {
                            self.placement.woken_from(core);
                        }
                    }
                    WokenBy::Time if needs_ack_timeout => self.send_delayed_wakes(),
                    WokenBy::AckTimer => self.send_delayed_wakes(),
                    WokenBy::Time => {}
                }
            }
        }
        self.thread.waker.end_sleep();
    }

    fn send_delayed_wakes(&self) {
        let wakes = self.thread.lock_shared().delayed_ack_expired();
        self.thread.waker.wake(wakes);
    }

    /// Takes the doorbells of faulting stores. A fault reports the register
    /// before the store is made, and everything that the doorbell announces is
    /// in memory by then, so the NIC need not wait until the application
    /// repeats the store.
    fn take_faults(&mut self) {
        let doorbells = &mut self.doorbells;
        let complete = self
            .thread
            .uar
            .take_faults(&mut |write| doorbells.push(write));
        self.pending_faults = Some(complete);
        if self.doorbells.is_empty() {
            self.release_faults();
        }
    }

    /// Lets stores that wait in page faults continue.
    fn release_faults(&mut self) {
        if let Some(served) = self.pending_faults.take() {
            self.thread.uar.unprotect();
            let mut shared_nic = self.thread.lock_shared();
            shared_nic.policy.store_announced(now(), served);
        }
    }

    /// Waits for a wake-up, a page fault or the ack timer, at most `until`
    /// nanoseconds.
    fn wait_for(&self, faults: bool, until: Option<Nanos>) -> WokenBy {
        let fault = if faults {
            self.thread.uar.as_raw_fd()
        } else {
            -1
        };
        let poll = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let mut fds = [
            poll(self.thread.waker.fd().as_raw_fd()),
            poll(fault),
            poll(self.ack_timer),
        ];
        let timeout = until.map(|nanos| libc::timespec {
            tv_sec: (nanos / 1_000_000_000) as libc::time_t,
            tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
        });
        let timeout = timeout
            .as_ref()
            .map_or(std::ptr::null(), std::ptr::from_ref);
        let count = fds.len() as libc::nfds_t;
        // SAFETY: `count` pollfds, and a timespec or null, that live through
        // the call. After an error no event is set, and the caller checks again.
        unsafe { libc::ppoll(fds.as_mut_ptr(), count, timeout, std::ptr::null()) };
        if fds[0].revents != 0 {
            self.thread.waker.drain();
        }
        if fds[1].revents & libc::POLLIN != 0 {
            WokenBy::Store
        } else if fds[0].revents != 0 {
            WokenBy::Peer
        } else if fds[2].revents & libc::POLLIN != 0 {
            WokenBy::AckTimer
        } else {
            WokenBy::Time
        }
    }
}

/// What ended a sleep.
enum WokenBy {
    Store,
    Peer,
    AckTimer,
    Time,
}

//! The NIC thread.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard};

use super::patience::ACKNOWLEDGE_DELAY;
use super::placement::Placement;
use super::station::{Batch, Pause, Station, lock};
use super::waiting::Wait;
use super::{Control, Driver, now, scheduling};
use crate::config::Wake;
use crate::fabric::bells::{Bells, Wakes};
use crate::nic::Nanos;
use crate::nic::spec::UarWrite;
use crate::trap;
use crate::uar::UarBank;

/// Looks for work between two looks at the clock.
const SPINS: u32 = 16;

/// Everything the NIC thread owns or looks at.
pub struct NicThread<'a, D> {
    /// The NIC and its fabric.
    pub station: &'a Mutex<Station<D>>,
    /// Its doorbell pages.
    pub bank: &'a UarBank,
    /// How it sleeps.
    pub bells: Arc<Bells>,
    /// What other threads want.
    pub control: &'a Control,
    /// How a doorbell reaches the NIC while the thread is asleep.
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
        self.control.wakes(Arc::clone(&self.bells));
        let (control, bank) = (self.control, self.bank);
        let patience = self.lock_station().patience.raw_fd();
        let mut turns = Turns {
            thread: self,
            patience,
            placement: Placement::default(),
            doorbells: Vec::with_capacity(64),
            deadline: None,
            again: true,
            faulted: None,
        };
        while !control.is_stopping() {
            turns.turn();
        }
        bank.unprotect();
        turns.thread.lock_station().port.leave();
        control.note_stopped();
    }
}

impl<'a, D> NicThread<'a, D> {
    fn lock_station(&self) -> MutexGuard<'a, Station<D>> {
        lock(self.station)
    }

    /// Whether protected pages tell of stores; a program may have taken the
    /// signal away that does.
    fn can_be_told_of_stores(&self) -> bool {
        match self.wake {
            Wake::Nap => false,
            Wake::Auto | Wake::Uffd => true,
            Wake::Signal => trap::is_standing(),
        }
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
    placement: Placement,
    doorbells: Vec<UarWrite>,
    deadline: Option<Nanos>,
    /// The last run did something: there may be more.
    again: bool,
    /// Stores wait in page faults; whether all of them are in `doorbells`.
    faulted: Option<bool>,
    /// The timer of the station's patience.
    patience: i32,
}

impl<D: Driver> Turns<'_, D> {
    fn turn(&mut self) {
        if self.thread.control.is_held() {
            self.thread.bank.unprotect();
            self.thread.control.stand();
            self.again = true;
        }
        self.scan();
        let came = self.something_came();
        let now = now();
        let due = self.deadline.is_some_and(|deadline| deadline <= now);
        let run = came || self.thread.control.take_kick() || due || self.again;
        if run {
            self.thread.control.step_back();
        }
        let mut station = self.thread.lock_station();
        station.sleeps_until = None;
        if !run {
            let pause = station.pause(now);
            let wakes = match pause.wait {
                Wait::Spin => station.port.take_wakes(),
                _ => Wakes::default(),
            };
            drop(station);
            self.thread.bells.ring(wakes);
            self.deadline = pause.deadline;
            return self.wait(now, &pause);
        }
        if came {
            let doorbell = !self.doorbells.is_empty();
            station.policy.work_arrived(now, doorbell);
        } else if !self.again {
            station.policy.interrupted();
        }
        let Batch { worked, wakes } = station.run(&self.doorbells, now);
        self.deadline = station.deadline;
        drop(station);
        self.thread.bells.ring(wakes);
        self.again = worked;
        self.doorbells.clear();
        self.release_faulted();
    }

    fn scan(&mut self) {
        let doorbells = &mut self.doorbells;
        self.thread.bank.scan(&mut |write| doorbells.push(write));
    }

    fn something_came(&self) -> bool {
        !self.doorbells.is_empty() || self.thread.bells.has_pending()
    }

    fn wait(&mut self, now: Nanos, pause: &Pause) {
        let bank = self.thread.bank;
        match pause.wait {
            Wait::Spin => {
                bank.unprotect();
                self.spin();
            }
            Wait::Nap(nap) => {
                bank.unprotect();
                self.sleep(now, false, nap, pause.patient);
            }
            // What is protected stays so from sleep to sleep: a thread that
            // wakes for packets alone pays nothing for it.
            Wait::Sleep(nap) => {
                let told_of_stores = self.thread.can_be_told_of_stores() && bank.protect();
                if !told_of_stores {
                    bank.unprotect();
                }
                self.sleep(now, told_of_stores, nap, pause.patient);
            }
        }
    }

    fn spin(&mut self) {
        for _ in 0..SPINS {
            std::hint::spin_loop();
            self.scan();
            if self.something_came() || self.thread.control.is_kicked() {
                return;
            }
        }
    }

    /// Sleeps until a packet, a kick or the deadline, and until a doorbell,
    /// or else for `nap` at most. What comes while falling asleep is noticed:
    /// every party either stores before the last look here, or finds the
    /// sleeper announced.
    fn sleep(&mut self, now: Nanos, told_of_stores: bool, nap: Nanos, patient: bool) {
        self.thread.bells.begin_sleep();
        if !self.thread.control.is_kicked() && !self.thread.bells.has_pending() {
            self.scan();
            if self.doorbells.is_empty() {
                let mut until = self.deadline.map(|deadline| deadline.saturating_sub(now));
                if !told_of_stores {
                    until = Some(until.map_or(nap, |until| until.min(nap)));
                }
                if patient {
                    until = Some(until.map_or(ACKNOWLEDGE_DELAY, |u| u.min(ACKNOWLEDGE_DELAY)));
                }
                match self.wait_for(told_of_stores, until) {
                    WokenBy::Store => self.take_faults(),
                    WokenBy::Bell => {
                        if let Some(core) = self.thread.bells.take_rung_from() {
                            self.placement.follow(core);
                        }
                    }
                    WokenBy::Time if patient => self.wake_patient(),
                    WokenBy::Patience => self.wake_patient(),
                    WokenBy::Time => {}
                }
            }
        }
        self.thread.bells.end_sleep();
    }

    fn wake_patient(&self) {
        let wakes = self.thread.lock_station().patience_over();
        self.thread.bells.ring(wakes);
    }

    /// A fault tells the register before the store is made, and all that the
    /// store could tell is in memory by then: the NIC need not wait until
    /// the application has got a core again.
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
            let mut station = self.thread.lock_station();
            station.policy.store_announced(now(), served);
        }
    }

    /// Waits for the bell or the fault descriptor, at most `until` nanoseconds.
    fn wait_for(&self, faults: bool, until: Option<Nanos>) -> WokenBy {
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
        let mut fds = [
            poll(self.thread.bells.fd().as_raw_fd()),
            poll(fault),
            poll(self.patience),
        ];
        let timeout = until.map(|nanos| libc::timespec {
            tv_sec: (nanos / 1_000_000_000) as libc::time_t,
            tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
        });
        let timeout = timeout
            .as_ref()
            .map_or(std::ptr::null(), std::ptr::from_ref);
        let count = fds.len() as libc::nfds_t;
        // SAFETY: so many pollfds, and a timespec or null, that live through
        // the call. An error is no event, and the caller looks by itself.
        unsafe { libc::ppoll(fds.as_mut_ptr(), count, timeout, std::ptr::null()) };
        if fds[0].revents != 0 {
            self.thread.bells.drain();
        }
        if fds[1].revents & libc::POLLIN != 0 {
            WokenBy::Store
        } else if fds[0].revents != 0 {
            WokenBy::Bell
        } else if fds[2].revents & libc::POLLIN != 0 {
            WokenBy::Patience
        } else {
            WokenBy::Time
        }
    }
}

/// What ended a sleep.
enum WokenBy {
    Store,
    Bell,
    Patience,
    Time,
}

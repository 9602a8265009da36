//! The device under test: an emulated device inside the process, stepped by the test;
//! or, if `DAT_TEST_DEVICE` names one, an existing device, which works on its
//! own.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use mlx5emu::config::{Config, Mode};
use mlx5emu::emulator::Emulator;
use mlx5emu::nasty::Modes;

#[allow(dead_code, reason = "each test program uses a part of it")]
#[path = "installed.rs"]
pub mod installed;

pub use installed::name;
use installed::{given, set_up};

/// How long an event of a device that works on its own may take.
pub const TIMEOUT: Duration = Duration::from_secs(60);

static ONE_TEST: Mutex<()> = Mutex::new(());

/// Exclusive use of the device by one test.
#[derive(Debug)]
pub struct DeviceLock(#[expect(dead_code, reason = "kept for its drop")] MutexGuard<'static, ()>);

/// Waits until no other test uses the device, and installs the device first if
/// needed.
pub fn lock() -> DeviceLock {
    let lock = ONE_TEST.lock().unwrap_or_else(PoisonError::into_inner);
    set_up(config);
    DeviceLock(lock)
}

/// Returns the configuration of the device: as in the environment, for example its kernel
/// interface, but always stepped.
fn config() -> Config {
    let config = Config::from_env().expect("variables of the emulated device");
    let mut nasty = config.nasty;
    // Unless modes are given, QP numbers are reused at once, so that every test would see
    // completions of a queue pair that is gone. Connections over rdma_cm would have to wait
    // until the number is forgotten.
    if std::env::var_os(Config::NASTY).is_none_or(|list| list.is_empty()) && !config.rdma_cm {
        nasty.modes |= Modes::REUSE;
    }
    Config {
        mode: Mode::Stepped,
        nasty,
        ..config
    }
}

/// Returns whether the next queue pair gets the number of the last destroyed one.
#[allow(dead_code, reason = "each test program uses a part of it")]
pub fn reuses_qp_numbers() -> bool {
    emulator().is_some() && config().nasty.modes.contains(Modes::REUSE)
}

/// Returns the emulator if the test steps the device.
pub fn emulator() -> Option<&'static Emulator> {
    match given() {
        None => Some(Emulator::get().expect("a test has exclusive use of the device")),
        Some(_) => None,
    }
}

/// Violations that a stepped device has recorded since a point in time: uses of the
/// device that the emulator tolerates and hardware need not.
#[derive(Debug)]
pub struct Violations {
    /// Number of violations before.
    before: u64,
}

impl Violations {
    /// Begins with the violations that follow.
    pub fn from_now() -> Self {
        let before = emulator().map_or(0, |it| it.nic().violations().count());
        Self { before }
    }

    /// Returns the latest violations, oldest first.
    pub fn seen(&self) -> Vec<String> {
        let Some(emulator) = emulator() else {
            return Vec::new();
        };
        let nic = emulator.nic();
        let new = (nic.violations().count() - self.before) as usize;
        let recent: Vec<_> = nic.violations().recent().map(str::to_owned).collect();
        recent[recent.len() - new.min(recent.len())..].to_vec()
    }

    /// Like [`Self::seen`], and excludes these violations from later calls.
    pub fn take_violations(&mut self) -> Vec<String> {
        let seen = self.seen();
        *self = Self::from_now();
        seen
    }
}

/// Runs a stepped device until it has nothing left to do. A device that works on
/// its own gets a short time; a caller that needs a result then waits for it, as
/// with [`comes`].
pub fn run() {
    match emulator() {
        Some(emulator) => {
            emulator.run_until_idle();
        }
        None => moment(),
    }
}

/// Runs this many steps of a stepped device. A device that works on its own gets
/// an amount of time that grows with the number.
pub fn steps(count: u32) {
    match emulator() {
        Some(emulator) => {
            for _ in 0..count {
                if !emulator.step() {
                    break;
                }
            }
        }
        None => thread::sleep(count * Duration::from_micros(10)),
    }
}

/// Makes a call before, between and after all steps of a stepped device; on
/// another device, repeatedly while it works.
pub fn meanwhile(mut call: impl FnMut()) {
    match emulator() {
        Some(emulator) => {
            while emulator.step() {
                call();
            }
        }
        None => {
            for _ in 0..20 {
                call();
                thread::yield_now();
            }
        }
    }
}

/// Lets a stepped device see a doorbell before the next one is rung, because it
/// checks each of them.
pub fn after_doorbell() {
    steps(1);
}

/// Advances time, and runs what becomes due. A stepped device has virtual time.
/// On a device that works on its own, real time passes, at most a tenth of a
/// second; a caller that needs what comes later waits for it.
pub fn advance(by: Duration) {
    match emulator() {
        Some(emulator) => {
            emulator.advance(by);
        }
        None => thread::sleep(by.min(Duration::from_millis(100))),
    }
}

/// Returns the number of cases of a property test: this many, or a few where each
/// takes real time.
pub fn cases(count: u32) -> u32 {
    match given() {
        Some(_) => count / 10,
        None => count,
    }
}

/// Returns what must exist by now. On a device that works on its own it may come
/// a little later.
pub fn comes<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begin = Instant::now();
    loop {
        let found = look();
        if found.is_some() || emulator().is_some() || begin.elapsed() > TIMEOUT {
            return found;
        }
        thread::sleep(Duration::from_micros(200));
    }
}

/// Returns everything that exists by now, at least this many.
pub fn all<T>(count: usize, mut next: impl FnMut() -> Option<T>) -> Vec<T> {
    let mut found = Vec::new();
    comes(|| {
        found.extend(std::iter::from_fn(&mut next));
        (found.len() >= count).then_some(())
    });
    found
}

/// Sleeps long enough for a device that has nothing else to do. Several short
/// sleeps rather than one: where cores are few, each yields the processor to
/// threads that do the device's work.
fn moment() {
    for _ in 0..3 {
        thread::sleep(Duration::from_micros(200));
    }
}

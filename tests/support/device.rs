//! The device that the tests of this process work on: an emulated one in the
//! process itself, stepped by hand; or, if `DAT_TEST_DEVICE` names one, a
//! device that works on its own and is there already.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use mlx5emu::config::{Config, Mode};
use mlx5emu::emulator::Emulator;

#[allow(dead_code, reason = "some of it is for other tests")]
#[path = "installed.rs"]
pub mod installed;

pub use installed::name;
use installed::{given, set_up};

/// How long a device of its own may take for what must come.
pub const PATIENCE: Duration = Duration::from_secs(10);

static ONE_TEST: Mutex<()> = Mutex::new(());

/// The device is there, and no other test has it.
#[derive(Debug)]
pub struct Turn(#[expect(dead_code, reason = "kept for its drop")] MutexGuard<'static, ()>);

/// Waits until no other test has the device, and sees to it that it is there.
pub fn turn() -> Turn {
    let turn = ONE_TEST.lock().unwrap_or_else(PoisonError::into_inner);
    // What the environment says of the device, as the face that it shows; in
    // steps in any case.
    set_up(|| Config {
        mode: Mode::Stepped,
        ..Config::from_env().expect("variables of the emulated device")
    });
    Turn(turn)
}

/// The emulator, if the device is stepped by hand.
pub fn emulator() -> Option<&'static Emulator> {
    match given() {
        None => Some(Emulator::get().expect("a test has its turn")),
        Some(_) => None,
    }
}

/// What a stepped device has seen since, that hardware would not forgive.
#[derive(Debug)]
pub struct Breaches {
    /// How many there were before.
    before: u64,
}

impl Breaches {
    /// Those that come from now on.
    pub fn from_now() -> Self {
        let before = emulator().map_or(0, |it| it.nic().violations().count());
        Self { before }
    }

    /// The latest of them, oldest first.
    pub fn seen(&self) -> Vec<String> {
        let Some(emulator) = emulator() else {
            return Vec::new();
        };
        let nic = emulator.nic();
        let new = (nic.violations().count() - self.before) as usize;
        let recent: Vec<_> = nic.violations().recent().map(str::to_owned).collect();
        recent[recent.len() - new.min(recent.len())..].to_vec()
    }

    /// The same, and they do not count any more.
    pub fn forgive(&mut self) -> Vec<String> {
        let seen = self.seen();
        *self = Self::from_now();
        seen
    }
}

/// Lets the device do what is to be done now. One that works on its own gets
/// a moment: whoever wants something of it waits for that, as by [`comes`].
pub fn run() {
    match emulator() {
        Some(emulator) => {
            emulator.run_until_idle();
        }
        None => moment(),
    }
}

/// Lets a stepped device do so many things; one that works on its own has a
/// while that is the longer the more things there are.
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

/// Calls something before, between and after all that a stepped device has to
/// do; on one that works on its own, again and again while it works.
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

/// Lets a stepped device see a doorbell before the next one is rung: it checks
/// each of them.
pub fn rung() {
    steps(1);
}

/// Lets time pass, virtual on a stepped device, and the device do what falls
/// due. With one that works on its own that is real time, and so a tenth of a
/// second at most: whoever wants what comes after more of it waits for that.
pub fn advance(by: Duration) {
    match emulator() {
        Some(emulator) => {
            emulator.advance(by);
        }
        None => thread::sleep(by.min(Duration::from_millis(100))),
    }
}

/// So many cases of a property, or a few where each takes real time.
pub fn cases(count: u32) -> u32 {
    match given() {
        Some(_) => count / 10,
        None => count,
    }
}

/// What must be there by now. From a device that works on its own it may come
/// a little later.
pub fn comes<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begin = Instant::now();
    loop {
        let found = look();
        if found.is_some() || emulator().is_some() || begin.elapsed() > PATIENCE {
            return found;
        }
        thread::sleep(Duration::from_micros(200));
    }
}

/// All that there are by now, of which so many must come.
pub fn all<T>(count: usize, mut next: impl FnMut() -> Option<T>) -> Vec<T> {
    let mut found = Vec::new();
    comes(|| {
        found.extend(std::iter::from_fn(&mut next));
        (found.len() >= count).then_some(())
    });
    found
}

/// Long enough for a device that has nothing else to do. Several naps rather
/// than one: where cores are few, each gives way to whoever works for it.
fn moment() {
    for _ in 0..3 {
        thread::sleep(Duration::from_micros(200));
    }
}

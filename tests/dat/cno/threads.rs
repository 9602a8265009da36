//! Many threads: every event is found, each trigger wakes one waiter, and no
//! thread sleeps on an event that has come.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use dat::abi::*;
use dat::exports::*;

use super::{Cno, Evd, LONG, NO_AGENT, SECOND, joined, stays};
use crate::support::{Fixture, Memory, Pair, Shape, dequeue, fails, ok, words};

/// One trigger wakes one waiter, and the next trigger another.
#[test]
fn cno_n14_each_trigger_is_for_one_waiter() {
    let fixture = Fixture::strict();
    let cno = Cno::new(&fixture);
    let evds = [(); 3].map(|()| cno.software(&fixture, 4));
    thread::scope(|scope| {
        let mut waiters: Vec<_> = (0..3).map(|_| cno.asleep(scope)).collect();
        for evd in evds {
            evd.post(1);
            let begin = std::time::Instant::now();
            let at = loop {
                let ended = waiters.iter().position(|waiter| waiter.is_finished());
                if let Some(at) = ended {
                    break at;
                }
                assert!(begin.elapsed() < super::SOON, "no waiter was woken");
                thread::yield_now();
            };
            assert_eq!(joined(waiters.swap_remove(at)), Ok(evd));
            waiters.iter().for_each(|waiter| stays(waiter));
        }
    });
    cno.finds_nothing();
}

/// Several triggers at once wake several waiters, and no needed waiter stays
/// asleep.
#[test]
fn cno_n14_several_triggers_wake_several_waiters() {
    let fixture = Fixture::strict();
    let cno = Cno::new(&fixture);
    let evds = [(); 4].map(|()| cno.software(&fixture, 4));
    for round in 0..30 {
        thread::scope(|scope| {
            let waiters: Vec<_> = evds
                .iter()
                .map(|_| scope.spawn(move || cno.wait(LONG).map(Evd)))
                .collect();
            thread::sleep(Duration::from_micros(round * 20));
            for evd in evds {
                evd.post(1);
            }
            let woken: HashSet<_> = waiters
                .into_iter()
                .map(|waiter| waiter.join().expect("no panic").expect("woken").0.addr())
                .collect();
            assert_eq!(woken.len(), evds.len());
        });
        for evd in evds {
            assert_eq!(evd.drain(), [1]);
        }
    }
}

/// A reproducible sequence of pseudo-random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }

    /// Sometimes sleeps, long enough for other threads to sleep too.
    fn rest(&mut self) {
        if self.below(8) == 0 {
            thread::sleep(Duration::from_micros(self.below(600)));
        }
    }
}

/// Shared by the posting and the waiting threads.
struct Setup<'b> {
    fixture: &'b Fixture,
    cnos: [Cno; 2],
    software: [Evd; 3],
    pair: Pair,
    memory: Memory,
    /// The pointers of software events, and the cookies of receives.
    found: Mutex<HashSet<u64>>,
    received: AtomicUsize,
    is_done: AtomicBool,
}

// SAFETY: handles are numbers, and the memory is not touched by the tests.
unsafe impl Sync for Setup<'_> {}

/// Added to the cookies of receives.
const RECEIVE: u64 = 1 << 32;

impl<'b> Setup<'b> {
    fn new(fixture: &'b Fixture) -> Self {
        let cnos = [(); 2].map(|()| Cno::new(fixture));
        let software = [(); 3].map(|()| cnos[0].software(fixture, 16));
        let pair = Pair::new(fixture, &Shape::default());
        cnos[1].bind(pair.passive.recv);
        Self {
            fixture,
            cnos,
            software,
            pair,
            memory: fixture.memory(4096),
            found: Mutex::default(),
            received: AtomicUsize::new(0),
            is_done: AtomicBool::new(false),
        }
    }

    fn evds(&self) -> [Evd; 4] {
        let [one, two, three] = self.software;
        [one, two, three, Evd(self.pair.passive.recv)]
    }

    /// Takes all events. Another thread may own the EVD and finds them then.
    fn drain(&self) {
        for evd in self.evds() {
            while let Ok(event) = dequeue(evd.0) {
                self.count(&event);
            }
        }
    }

    fn count(&self, event: &DAT_EVENT) {
        let number = match event.event_number {
            // SAFETY: the event number selects this member.
            DAT_SOFTWARE_EVENT => unsafe { event.event_data.software_event_data }
                .pointer
                .addr() as u64,
            _ => {
                self.received.fetch_add(1, Ordering::SeqCst);
                let dto = crate::support::dto(event);
                assert_eq!(dto.status, DAT_DTO_SUCCESS);
                dto.cookie
            }
        };
        let is_new = self.found.lock().expect("no panic").insert(number);
        assert!(is_new, "{number:#x} twice");
    }

    fn is_over(&self) -> bool {
        self.is_done.load(Ordering::SeqCst)
    }

    /// Waits on a CNO repeatedly. While events keep coming, a long wait without
    /// an event means that a wake-up was lost.
    fn wait(&self, cno: Cno) {
        while !self.is_over() {
            match cno.wait(LONG / 2) {
                Ok(evd) => assert!(!evd.is_null(), "released"),
                Err(answer) => panic!("{}", words(answer)),
            }
            self.drain();
        }
    }

    /// Posts software events while `more` returns true. Returns how many.
    fn post(&self, which: usize, more: impl Fn(usize) -> bool) -> usize {
        let mut random = Random(which as u64 + 1);
        let mut count = 0;
        while more(count) {
            loop {
                match self.software[which].try_post(which << 24 | count) {
                    DAT_SUCCESS => break,
                    answer => fails(answer, DAT_QUEUE_FULL),
                }
                thread::yield_now();
            }
            count += 1;
            random.rest();
        }
        count
    }

    /// Sends messages while `more` returns true. Returns how many.
    fn send(&self, more: impl Fn(usize) -> bool) -> usize {
        let mut random = Random(11);
        let mut number = 0;
        while more(number) {
            while number >= self.received.load(Ordering::SeqCst) + 8 {
                thread::yield_now();
            }
            let (from, to) = (self.pair.active, self.pair.passive);
            ok(to.post_recv(&[self.memory.segment(0, 8)], RECEIVE + number as u64));
            let segment = [self.memory.segment(8, 8)];
            while from.post_send(&segment, 1, DAT_COMPLETION_DEFAULT_FLAG) != DAT_SUCCESS {
                thread::yield_now();
            }
            // Makes room for the next requests.
            while dequeue(from.request).is_ok() {}
            number += 1;
            random.rest();
        }
        number
    }

    /// Waits until all events were found, then ends the waiters.
    fn finish(&self, count: usize) {
        let begin = std::time::Instant::now();
        while self.found.lock().expect("no panic").len() < count {
            let found = self.found.lock().expect("no panic").len();
            assert!(begin.elapsed() < super::SOON, "{found} of {count}");
            thread::sleep(Duration::from_millis(1));
        }
        self.is_done.store(true, Ordering::SeqCst);
    }
}

/// Triggers the CNOs until their waiters have ended.
fn end_waits(fixture: &Fixture, cnos: [Cno; 2], have_ended: impl Fn() -> bool) {
    let wakers = cnos.map(|cno| cno.software(fixture, 1));
    while !have_ended() {
        for waker in wakers {
            let _ = waker.try_post(1);
            waker.drain();
            let _ = waker.try_post(1);
        }
        thread::sleep(Duration::from_micros(200));
    }
    for waker in wakers {
        waker.calls(dat_evd_free);
    }
}

#[test]
fn cno_n14_every_event_is_found() {
    const EACH: usize = 500;
    let fixture = Fixture::new();
    let setup = Setup::new(&fixture);
    let setup = &setup;
    thread::scope(|scope| {
        let _device = fixture.run_in_background(scope);
        let waiters: Vec<_> = [0, 1, 0, 1]
            .map(|at| scope.spawn(move || setup.wait(setup.cnos[at])))
            .into();
        for which in 0..3 {
            scope.spawn(move || setup.post(which, |count| count < EACH));
        }
        scope.spawn(|| setup.send(|count| count < EACH));
        setup.finish(4 * EACH);
        end_waits(&fixture, setup.cnos, || {
            waiters.iter().all(|waiter| waiter.is_finished())
        });
    });
}

/// The same while other threads disable, enable, move, wait on, create and free
/// EVDs, and set agents.
#[test]
fn cno_n20_no_event_is_lost_while_evds_and_agents_change() {
    unsafe extern "C-unwind" fn agent(_: DAT_PVOID, _: DAT_EVD_HANDLE) {}
    let fixture = Fixture::new();
    let setup = Setup::new(&fixture);
    let setup = &setup;
    let (is_still, end) = (&AtomicBool::new(false), &AtomicBool::new(false));
    // Each CNO keeps one EVD: freeing the last would release its waiters.
    let anchors = setup.cnos.map(|cno| cno.software(setup.fixture, 1));
    thread::scope(|scope| {
        let _device = fixture.run_in_background(scope);
        let waiters: Vec<_> = [0, 1, 0, 1]
            .map(|at| scope.spawn(move || setup.wait(setup.cnos[at])))
            .into();
        let mover = scope.spawn(move || {
            let mut random = Random(0x9e37_79b9_7f4a_7c15);
            while !is_still.load(Ordering::SeqCst) {
                let evd = setup.evds()[random.below(4) as usize];
                let cno = setup.cnos[random.below(2) as usize];
                match random.below(7) {
                    0 => evd.calls(dat_evd_disable),
                    1 | 2 => evd.calls(dat_evd_enable),
                    3 => cno.bind(evd.0),
                    // SAFETY: live handles.
                    4 => ok(unsafe { dat_evd_modify_cno(evd.0, DAT_HANDLE_NULL) }),
                    5 => {
                        let passing = cno.software(setup.fixture, 1);
                        let _ = passing.try_post(1);
                        passing.calls(dat_evd_free);
                    }
                    _ => ok(cno.set_agent(DAT_OS_WAIT_PROXY_AGENT {
                        proxy_agent_func: Some(agent),
                        ..NO_AGENT
                    })),
                }
                if random.below(4) == 0 {
                    thread::sleep(Duration::from_micros(random.below(200)));
                }
            }
        });
        let direct = scope.spawn(move || {
            let mut random = Random(7);
            while !is_still.load(Ordering::SeqCst) {
                let evd = setup.evds()[random.below(4) as usize];
                let threshold = 1 + random.below(3) as DAT_COUNT;
                let micros = random.below(500) as DAT_TIMEOUT;
                let (answer, event, _) = crate::support::wait(evd.0, micros, threshold);
                if answer == DAT_SUCCESS {
                    setup.count(&event);
                }
                thread::yield_now();
            }
        });
        // The threads go on for a moment after the changes have ended.
        let more = |_| !end.load(Ordering::SeqCst);
        let mut posters = vec![scope.spawn(move || setup.send(more))];
        for which in 0..3 {
            posters.push(scope.spawn(move || setup.post(which, more)));
        }
        thread::sleep(Duration::from_millis(700));
        is_still.store(true, Ordering::SeqCst);
        mover.join().expect("no panic");
        direct.join().expect("no panic");
        // From here on, all queued and later events trigger.
        for (at, evd) in setup.evds().into_iter().enumerate() {
            setup.cnos[at % 2].bind(evd.0);
            evd.calls(dat_evd_enable);
        }
        thread::sleep(Duration::from_millis(20));
        end.store(true, Ordering::SeqCst);
        let posted: usize = posters
            .into_iter()
            .map(|poster| poster.join().expect("no panic"))
            .sum();
        assert!(posted > 100, "only {posted} events");
        setup.finish(posted);
        end_waits(&fixture, setup.cnos, || {
            waiters.iter().all(|waiter| waiter.is_finished())
        });
    });
    for anchor in anchors {
        anchor.calls(dat_evd_free);
    }
}

/// CNOs are created and freed while threads wait on others.
#[test]
fn cno_n20_cnos_may_be_freed_while_threads_wait_on_others() {
    let fixture = Fixture::new();
    let fixture = &fixture;
    let cno = Cno::new(fixture);
    let evd = cno.software(fixture, 4);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let others = scope.spawn(|| {
            while !is_done.load(Ordering::SeqCst) {
                let other = Cno::new(fixture);
                let evd = other.software(fixture, 1);
                evd.post(1);
                assert_eq!(other.wait(SECOND), Ok(evd.0));
                evd.calls(dat_evd_free);
                ok(other.free());
            }
        });
        for number in 0..200 {
            let waiter = scope.spawn(move || cno.wait(LONG).map(Evd));
            evd.post(number);
            assert_eq!(waiter.join().expect("no panic"), Ok(evd));
            assert_eq!(evd.drain(), [number]);
        }
        is_done.store(true, Ordering::SeqCst);
        others.join().expect("no panic");
    });
}

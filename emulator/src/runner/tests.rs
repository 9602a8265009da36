//! Tests of the NIC thread with a simple model of a NIC.

use std::ops::Deref;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

use super::shared_nic::SharedNic;
use super::thread::NicThread;
use super::trapped_stores::TrappedStoreHandler;
use super::*;
use crate::config::Wake;
use crate::fabric::attachment::Attachment;
use crate::fabric::name::FabricName;
use crate::fabric::packet::Transmit;
use crate::fabric::tests::packet;
use crate::fabric::waker::PeerWaker;
use crate::spec::ContextId;
use crate::sync::Mutex;
use crate::trap;
use crate::uar::UarPages;
use crate::uar::fault::FaultMode;
use crate::uar::tests::{App, name, userfaultfd_or_skip};

#[cfg(target_arch = "x86_64")]
mod vector_stores;

/// Counts its inputs, and replies to packets that request it.
#[derive(Default)]
struct Inputs {
    doorbells: AtomicU64,
    /// Doorbells announced by a page fault, before their store.
    faults: AtomicU64,
    last: AtomicU64,
    /// The last value stored to each page.
    last_of: [AtomicU64; 2],
    packets: AtomicU64,
    runs: AtomicU64,
    /// CPU time of the thread, in nanoseconds, as of its last run.
    cpu: AtomicU64,
}

struct Counting(&'static Inputs);

impl Driver for Counting {
    fn run(
        &mut self,
        doorbells: &[UarWrite],
        port: &mut Port,
        _now: Nanos,
        _budget: Budget,
    ) -> Progress {
        for doorbell in doorbells {
            let value = u64::from_ne_bytes(doorbell.bytes);
            if value == 0 {
                self.0.faults.fetch_add(1, Ordering::Release);
            } else {
                self.0.last.store(value, Ordering::Release);
                if let Some(last) = self.0.last_of.get(doorbell.page.page as usize) {
                    last.store(value, Ordering::Release);
                }
                self.0.doorbells.fetch_add(1, Ordering::Release);
            }
        }
        let mut worked = !doorbells.is_empty();
        while let Some(packet) = port.receive() {
            worked = true;
            self.0.packets.fetch_add(1, Ordering::Release);
            if packet.payload == b"echo" {
                let [from, to] = [packet.header.destination_qpn, packet.header.source_qpn]
                    .map(|q| (q.0 >> 16) as u8);
                let _ = port.send(self::packet(from, to, packet.header.psn, b"reply"));
            }
        }
        self.0.cpu.store(thread_cpu(), Ordering::Relaxed);
        self.0.runs.fetch_add(1, Ordering::Release);
        Progress {
            worked,
            next_deadline: None,
        }
    }
}

fn thread_cpu() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A NIC thread with two application pages on its own fabric. It is never
/// freed, like an emulator; its files are removed with the [`FixtureGuard`].
struct Fixture {
    base: PathBuf,
    app: App,
    uar: UarPages,
    control: Control,
    inputs: &'static Inputs,
    shared_nic: Mutex<SharedNic<Counting>>,
    waker: Arc<PeerWaker>,
    wake: Wake,
}

struct FixtureGuard(&'static Fixture);

impl Deref for FixtureGuard {
    type Target = Fixture;

    fn deref(&self) -> &Fixture {
        self.0
    }
}

impl Drop for FixtureGuard {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.base);
    }
}

fn join(base: &Path) -> Attachment {
    Attachment::join_under(&[base.to_owned()], &FabricName::default()).unwrap()
}

impl Fixture {
    /// Returns `None`, with a message, if the kernel does not support this mode.
    fn create(test: &str, wake: Wake) -> Option<FixtureGuard> {
        let faults = match wake {
            Wake::Nap => None,
            Wake::Auto | Wake::Uffd => Some(userfaultfd_or_skip(FaultMode::Wait)?),
            Wake::Signal => Some(userfaultfd_or_skip(FaultMode::Signal)?),
        };
        let base = std::env::temp_dir().join(format!("mlx5emu-{test}-{}", std::process::id()));
        std::fs::create_dir(&base).unwrap();
        let (app, uar) = (App::new(2), UarPages::new(faults));
        for page in 0..2 {
            uar.add_page(name(page), app.file.as_fd()).unwrap();
        }
        uar.add_mapping(ContextId(1), 0, app.addr(0), 2 * crate::uar::PAGE_SIZE);
        let inputs: &'static Inputs = Box::leak(Box::default());
        let attachment = join(&base);
        let waker = Arc::clone(attachment.waker());
        let shared_nic = SharedNic::new(Counting(inputs), Port::attached(attachment));
        let fixture: &'static Self = Box::leak(Box::new(Self {
            base,
            app,
            uar,
            control: Control::default(),
            inputs,
            shared_nic: Mutex::new(shared_nic),
            waker,
            wake,
        }));
        if wake == Wake::Signal {
            trap::install_handlers().unwrap();
            trap::register(Box::leak(Box::new(TrappedStoreHandler {
                shared_nic: &fixture.shared_nic,
                uar: &fixture.uar,
                waker: Arc::clone(&fixture.waker),
                control: &fixture.control,
                armed: AtomicBool::new(false),
            })));
        }
        Some(FixtureGuard(fixture))
    }

    /// Starts the thread. It ends when the returned value is dropped, also by a
    /// panic.
    fn start<'s, 'e>(&'e self, scope: &'s Scope<'s, 'e>) -> StopAtEnd<'e> {
        let stop = StopAtEnd(&self.control);
        let nic = NicThread {
            shared_nic: &self.shared_nic,
            uar: &self.uar,
            waker: Arc::clone(&self.waker),
            control: &self.control,
            wake: self.wake,
        };
        scope.spawn(|| nic.run());
        self.until("the thread runs", || {
            self.inputs.runs.load(Ordering::Acquire) > 0
        });
        stop
    }

    fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !holds() {
            assert!(Instant::now() < end, "{what}");
            std::thread::yield_now();
        }
    }

    fn runs(&self) -> u64 {
        self.inputs.runs.load(Ordering::Acquire)
    }
}

struct StopAtEnd<'a>(&'a Control);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Stores at random moments while the NIC thread repeatedly falls asleep.
fn no_store_is_lost(test: &str, wake: Wake, stores: u64) {
    let Some(fixture) = Fixture::create(test, wake) else {
        return;
    };
    std::thread::scope(|scope| {
        let _stop = fixture.start(scope);
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for n in 1..=stores {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(n);
            let wait = Duration::from_nanos((random >> 33) % 4096 * ((random >> 20) % 32));
            let end = Instant::now() + wait;
            while Instant::now() < end {
                std::hint::spin_loop();
            }
            fixture
                .app
                .store(n as usize % 2, 0x800 + (n as usize % 4) * 0x100, n);
            fixture.until("the store is detected", || {
                fixture.inputs.last.load(Ordering::Acquire) == n
            });
        }
        assert_eq!(
            fixture.inputs.doorbells.load(Ordering::Acquire),
            stores,
            "each exactly once"
        );
    });
}

#[test]
fn no_store_is_lost_with_page_faults() {
    no_store_is_lost("stores-uffd", Wake::Uffd, 20_000);
}

#[test]
fn no_store_is_lost_with_signals() {
    if cfg!(target_arch = "x86_64") {
        no_store_is_lost("stores-signal", Wake::Signal, 20_000);
    }
}

/// Two threads ring at random moments, each on its own page, while the NIC
/// thread falls asleep and takes the same lock for packets and kicks.
#[test]
fn concurrent_stores_of_two_threads_are_all_served() {
    const STORES: u64 = 5_000;
    let Some(fixture) = Fixture::create("two-threads", Wake::Signal) else {
        return;
    };
    let kicks = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let _stop = fixture.start(scope);
        let storing = [0, 1].map(|page| {
            let fixture = &fixture;
            scope.spawn(move || {
                for n in 1..=STORES {
                    fixture.app.store(page, 0x800, n);
                    fixture.until("the store is detected", || {
                        fixture.inputs.last_of[page].load(Ordering::Acquire) == n
                    });
                    if n.is_multiple_of(4) {
                        std::thread::sleep(Duration::from_micros(n % 97));
                    }
                }
            })
        });
        scope.spawn(|| {
            while kicks.load(Ordering::Relaxed) {
                fixture.control.kick();
                std::thread::sleep(Duration::from_micros(70));
            }
        });
        for thread in storing {
            thread.join().unwrap();
        }
        kicks.store(false, Ordering::Relaxed);
    });
    let doorbells = fixture.inputs.doorbells.load(Ordering::Acquire);
    assert_eq!(doorbells, 2 * STORES, "each exactly once");
}

#[test]
fn a_thread_that_blocks_every_signal_can_ring_doorbells() {
    let Some(fixture) = Fixture::create("blocked", Wake::Signal) else {
        return;
    };
    std::thread::scope(|scope| {
        let _stop = fixture.start(scope);
        let blocked = scope.spawn(|| {
            // SAFETY: a set that is filled before use.
            let mask = unsafe {
                let mut all: libc::sigset_t = std::mem::zeroed();
                libc::sigfillset(&raw mut all);
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
                let mut mask: libc::sigset_t = std::mem::zeroed();
                libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask);
                mask
            };
            // SAFETY: the set that was filled above.
            let has = |signal| unsafe { libc::sigismember(&raw const mask, signal) == 1 };
            assert!(has(libc::SIGTERM) && !has(libc::SIGSEGV) && !has(libc::SIGBUS));
            for n in 1..20 {
                std::thread::sleep(Duration::from_millis(1));
                fixture.app.store(0, 0x800, n);
                fixture.until("the store is detected", || {
                    fixture.inputs.last.load(Ordering::Acquire) == n
                });
            }
        });
        blocked.join().unwrap();
    });
}

/// Programs that map files which others truncate install their own `SIGBUS`
/// handler.
#[test]
fn a_programs_own_handler_gets_the_other_faults() {
    static FILE: AtomicU64 = AtomicU64::new(0);
    extern "C" fn lengthen(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
        let file = FILE.fetch_or(1 << 32, Ordering::Relaxed) as libc::c_int;
        // SAFETY: a descriptor of this test, and a number.
        unsafe { libc::ftruncate(file, 4096) };
    }
    let Some(fixture) = Fixture::create("chained", Wake::Signal) else {
        return;
    };
    let app = App::new(1);
    let file = std::os::fd::AsRawFd::as_raw_fd(&app.file);
    FILE.store(u64::from(file.cast_unsigned()), Ordering::Relaxed);
    // SAFETY: a descriptor of this test; actions that are filled before use,
    // and a handler of the type that its flags select.
    unsafe {
        assert_eq!(libc::ftruncate(file, 0), 0);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = lengthen as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        let mut before: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGBUS, &action, &mut before), 0);
        app.store(0, 0x800, 5);
        let mut found: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGBUS, &before, &mut found);
        assert_eq!(found.sa_sigaction, lengthen as *const () as usize);
    }
    assert!(FILE.load(Ordering::Relaxed) >> 32 == 1, "it was called");
    assert!(trap::is_handler_active());
    std::thread::scope(|scope| {
        let _stop = fixture.start(scope);
        std::thread::sleep(Duration::from_millis(1));
        fixture.app.store(0, 0x800, 9);
        fixture.until("the store is detected", || {
            fixture.inputs.last.load(Ordering::Acquire) == 9
        });
    });
}

#[test]
fn no_store_is_lost_with_naps() {
    no_store_is_lost("stores-nap", Wake::Nap, 2_000);
}

/// Returns the CPU time that an idle NIC thread uses in a second, in percent.
fn idle_percent(test: &str, wake: Wake) -> Option<f64> {
    let fixture = Fixture::create(test, wake)?;
    let mut percent = 0.0;
    std::thread::scope(|scope| {
        let _stop = fixture.start(scope);
        fixture.app.store(0, 0x800, 1);
        fixture.until("the store is detected", || {
            fixture.inputs.last.load(Ordering::Acquire) == 1
        });
        // A store may be served on this thread; a kick never is.
        let kick = || {
            let runs = fixture.runs();
            fixture.control.kick();
            fixture.until("the kick is taken", || fixture.runs() > runs);
        };
        kick();
        let before = fixture.inputs.cpu.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_secs(1));
        kick();
        percent = (fixture.inputs.cpu.load(Ordering::Relaxed) - before) as f64 / 1e7;
    });
    Some(percent)
}

#[test]
fn an_idle_nic_woken_by_page_faults_uses_no_cpu() {
    if let Some(percent) = idle_percent("idle-uffd", Wake::Uffd) {
        println!("{percent:.3} % CPU");
        assert!(percent < 0.2, "{percent} % CPU");
    }
}

#[test]
fn an_idle_nic_with_trapped_stores_uses_no_cpu() {
    if let Some(percent) = idle_percent("idle-signal", Wake::Signal) {
        println!("{percent:.3} % CPU");
        assert!(percent < 0.2, "{percent} % CPU");
    }
}

#[test]
fn an_idle_nic_that_naps_uses_less_than_two_percent() {
    if let Some(percent) = idle_percent("idle-nap", Wake::Nap) {
        println!("{percent:.3} % CPU");
        assert!(percent < 2.0, "{percent} % CPU");
    }
}

#[test]
fn packets_and_kicks_wake_a_sleeping_nic() {
    for wake in [Wake::Signal, Wake::Uffd, Wake::Nap] {
        let Some(fixture) = Fixture::create("packets", wake) else {
            continue;
        };
        std::thread::scope(|scope| {
            let _stop = fixture.start(scope);
            let mut peer = join(&fixture.base);
            let mut payload = Vec::new();
            for psn in 0..300 {
                peer.send(1, &packet(2, 1, psn, b"echo")).unwrap();
                let wakes = peer.take_immediate_wakes();
                peer.waker().wake(wakes);
                let mut reply = None;
                let end = Instant::now() + Duration::from_secs(20);
                while reply.is_none() && Instant::now() < end {
                    reply = peer.receive(&mut payload);
                }
                let header = reply.expect("a reply packet");
                assert_eq!((header.psn, &payload[..]), (psn, &b"reply"[..]));
                std::thread::sleep(Duration::from_micros(u64::from(psn)));
            }
            for _ in 0..100 {
                let runs = fixture.runs();
                fixture.control.kick();
                fixture.until("the kick is taken", || fixture.runs() > runs);
                std::thread::sleep(Duration::from_micros(150));
            }
        });
        assert!(fixture.control.wait_stopped(Duration::ZERO));
    }
}

#[test]
fn a_command_finds_arrived_packets_processed() {
    // The NIC thread does not run, as on a host that is too busy for it.
    let Some(fixture) = Fixture::create("arrived", Wake::Nap) else {
        return;
    };
    let mut peer = join(&fixture.base);
    for psn in 0..100 {
        peer.send(1, &packet(2, 1, psn, b"ack")).unwrap();
    }
    fixture.shared_nic.lock().process_arrived(now());
    assert_eq!(fixture.inputs.packets.load(Ordering::Acquire), 100);
    // All of them, and the batch that found nothing.
    assert_eq!(fixture.runs(), 2);
}

#[test]
fn the_nic_naps_while_a_page_has_no_known_mapping() {
    let Some(fixture) = Fixture::create("unknown", Wake::Uffd) else {
        return;
    };
    let unknown = App::new(1);
    std::thread::scope(|scope| {
        let _stop = fixture.start(scope);
        let page = crate::spec::UarPage {
            context: ContextId(2),
            page: 0,
        };
        fixture.uar.add_page(page, unknown.file.as_fd()).unwrap();
        fixture.control.kick();
        for n in 1..50 {
            std::thread::sleep(Duration::from_micros(300));
            unknown.store(0, 0x800, n);
            fixture.until("the store is detected", || {
                fixture.inputs.last.load(Ordering::Acquire) == n
            });
        }
    });
}

/// Checks that a paused NIC does not run in any wake mode, and that a doorbell that is
/// stored meanwhile is processed later.
fn check_that_a_paused_nic_does_not_run(test: &str, wake: Wake) {
    let Some(fixture) = Fixture::create(test, wake) else {
        return;
    };
    std::thread::scope(|scope| {
        let _stop = fixture.start(scope);
        for n in 1..=50 {
            // Every other time the NIC has had time to fall asleep.
            if n % 2 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(fixture.control.pause(Duration::from_secs(20)));
            let runs = fixture.runs();
            fixture.app.store(0, 0x800, n);
            fixture.control.kick();
            std::thread::sleep(Duration::from_micros(200));
            assert_eq!(fixture.runs(), runs, "it moves");
            assert_ne!(fixture.inputs.last.load(Ordering::Acquire), n);
            fixture.control.resume();
            fixture.until("the store is detected", || {
                fixture.inputs.last.load(Ordering::Acquire) == n
            });
        }
        assert_eq!(fixture.inputs.doorbells.load(Ordering::Acquire), 50);
        // A paused NIC thread exits when it is stopped.
        assert!(fixture.control.pause(Duration::from_secs(20)));
    });
    fixture.control.resume();
}

#[test]
fn a_paused_nic_does_not_run_in_any_wake_mode() {
    check_that_a_paused_nic_does_not_run("held-nap", Wake::Nap);
    check_that_a_paused_nic_does_not_run("held-uffd", Wake::Uffd);
    if cfg!(target_arch = "x86_64") {
        check_that_a_paused_nic_does_not_run("held-signal", Wake::Signal);
    }
}

//! The emulator of this process: one NIC with all its devices, its UAR pages,
//! its attachment to the fabric, and the thread or the test that runs it.
//!
//! There is one emulator per process. It is created when the first device is
//! opened, and lives until the process exits. All access to the NIC is under
//! one lock: kernel commands take it through [`Emulator::nic`]; the NIC thread,
//! and a thread whose doorbell store was trapped, take it for one batch.

use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::addressing::{identifier, resolver};
use crate::capture::{Capture, CaptureError};
use crate::cm::Agent;
use crate::config::{Config, Mode, Wake};
use crate::decode::text::TraceWriter;
use crate::fabric::attachment::Attachment;
use crate::fabric::counters::Row;
use crate::fabric::directory::JoinError;
use crate::fabric::hosts::Hosts;
use crate::fabric::name::DeviceIdentity;
use crate::fabric::port::Port;
use crate::fabric::registry::ProcessSlot;
use crate::fabric::slow_link::SlowLink;
use crate::fabric::waker::PeerWaker;
use crate::fabric::{counters, reports};
use crate::faults::FaultSpec;
use crate::fork::{self, PerProcess};
use crate::hardware::Hardware;
use crate::hidden::HiddenFile;
use crate::log::warn;
use crate::nasty::policies::Policies;
use crate::nic::{Nic, NicOptions, ticks};
use crate::residency::pins;
use crate::runner::shared_nic::SharedNic;
use crate::runner::stepped::Stepper;
use crate::runner::thread::NicThread;
use crate::runner::trapped_stores::TrappedStoreHandler;
use crate::runner::{self, Control};
use crate::spec::{DoorbellView, EventSink, PortAddress, UarPage, WallClock};
use crate::sync::{Mutex, MutexGuard};
use crate::trap;
use crate::uar::UarPages;
use crate::uar::fault::{FaultMode, Userfaultfd};
use crate::udp::network::UdpNetwork;

/// Fabric slot of a process without peers, in stepped mode.
const SLOT_WITHOUT_PEERS: u8 = 1;

static EMULATOR: PerProcess<OnceLock<Emulator>> = PerProcess::new();
static START_LOCK: PerProcess<Mutex<()>> = PerProcess::new();

/// The emulator of this process.
pub struct Emulator {
    config: Config,
    slot: u8,
    hosts: Arc<Hosts>,
    shared_nic: Mutex<SharedNic<Hardware>>,
    uar: UarPages,
    control: Control,
    stepper: Option<Mutex<Stepper>>,
    /// What the device adds to timestamps, in ticks.
    timestamp_offset: u64,
    /// Where the processes of the fabric meet; `None` without other processes.
    place: Option<ProcessSlot>,
}

/// An error that prevents the emulator from starting.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The process cannot join the fabric.
    #[error(transparent)]
    Fabric(#[from] JoinError),
    /// [`Wake::Uffd`] is set, and the kernel does not allow it.
    #[error(
        "cannot write-protect doorbell pages with userfaultfd: {0}; \
         it needs Linux 5.19 and is forbidden in some containers: set {wake}=auto",
        wake = Config::WAKE
    )]
    Uffd(io::Error),
    /// [`Wake::Signal`] is set, and this program cannot use it.
    #[error("cannot trap doorbell stores: {0}; set {wake}=auto", wake = Config::WAKE)]
    Signal(trap::TrapError),
    /// The mode `pin` of `--nasty` is set, and the kernel does not allow it.
    #[error(
        "cannot pin registered memory for --nasty pin: {0}; it needs io_uring of \
         Linux 5.19, which some containers forbid: leave this mode out (all,-pin)"
    )]
    Pin(io::Error),
    /// The trace file cannot be written.
    #[error("cannot write trace file {}: {source}", path.display())]
    Trace {
        /// The trace file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// The capture file cannot take packets.
    #[error("cannot write packets to {}: {cause}", path.display())]
    Capture {
        /// The capture file.
        path: PathBuf,
        /// Why not.
        cause: CaptureError,
    },
    /// The NIC thread cannot be started.
    #[error("cannot start the NIC thread: {0}")]
    Thread(io::Error),
}

impl Emulator {
    /// Returns the emulator if it has been started.
    #[must_use]
    pub fn get() -> Option<&'static Self> {
        EMULATOR.get().get()
    }

    /// Starts the emulator of this process. The NIC reports its events to
    /// `events`. If the emulator is already running, it is returned unchanged
    /// and `events` is dropped.
    ///
    /// # Errors
    /// Returns [`StartError`]. Nothing stays allocated, and a later start may
    /// succeed.
    pub fn start(config: Config, events: Box<dyn EventSink>) -> Result<&'static Self, StartError> {
        let _start_lock = START_LOCK.get().lock();
        if let Some(running) = Self::get() {
            return Ok(running);
        }
        // Where they cannot be installed, an access to unmapped memory kills the program.
        let _ = trap::install_handlers();
        if Policies::new(config.nasty).pins_pages() {
            pins::open().map_err(StartError::Pin)?;
        }
        let threaded = config.mode == Mode::Threaded;
        let (wake, faults) = if threaded {
            set_up_wake(config.wake)?
        } else {
            (Wake::Nap, None)
        };
        let mut port = if threaded {
            let attachment = Attachment::join(&config.fabric)?;
            attachment.waker().announce(config.devices, config.ports);
            if let Some(first) = attachment.untrusted_entries().first() {
                let instead = attachment.directory().display();
                let text = format!(
                    "{first}; using {instead} for the fabric. Remove the former to use it again"
                );
                warn("fabric directory", &text);
            }
            Port::attached(attachment)
        } else {
            Port::without_peers(SLOT_WITHOUT_PEERS)
        };
        let hosts = Arc::new(Hosts::default());
        if !config.interfaces.is_empty() {
            port.reach(Box::new(UdpNetwork::new(&config, Arc::clone(&hosts))));
        }
        let counters = port.attachment().map(Attachment::port_counters);
        let counters = counters.transpose()?.unwrap_or_default();
        let ticks = if threaded { ticks(runner::now()) } else { 0 };
        let timestamp_offset = Policies::new(config.nasty).timestamp_offset(ticks, !threaded);
        let options = NicOptions {
            slot: port.slot(),
            devices: config.devices,
            ports: config.ports,
            view: view(&config),
            resolve: resolver(&config, Arc::clone(&hosts)),
            identify: identifier(&config),
            enforce_memlock: config.memlock,
            limits: config.limits,
            nasty: config.nasty,
            timestamp_offset,
            stepped: !threaded,
            counters,
            ..NicOptions::default()
        };
        let mut nic = Nic::new(options, events);
        if let Some(path) = &config.trace {
            nic.set_trace(TraceWriter::new(Box::new(trace_file(path)?)));
        }
        let mut hardware = Hardware::new(nic);
        hardware.set_faults(config.faults.as_ref());
        hardware.set_link(SlowLink::new(config.speed, config.devices));
        if let Some(path) = &config.pcap {
            let capture = Capture::open(path, &config, Arc::clone(&hosts));
            hardware.set_capture(capture.map_err(|cause| StartError::Capture {
                path: path.clone(),
                cause,
            })?);
        }
        hardware.follow_fabric(&port);
        let slot = port.slot();
        let place = port.attachment().map(Attachment::place);
        let waker = port
            .attachment()
            .map(|attachment| Arc::clone(attachment.waker()));
        let stepper = (!threaded).then(Mutex::default);
        let uar = UarPages::new(faults);
        let emulator = EMULATOR.get().get_or_init(|| Self {
            config,
            slot,
            hosts,
            shared_nic: Mutex::new(SharedNic::new(hardware, port)),
            uar,
            timestamp_offset,
            control: Control::default(),
            stepper,
            place,
        });
        if let Some(waker) = waker {
            emulator.start_thread(waker, wake)?;
        }
        Ok(emulator)
    }

    fn start_thread(&'static self, waker: Arc<PeerWaker>, wake: Wake) -> Result<(), StartError> {
        if wake == Wake::Signal {
            trap::register(Box::leak(Box::new(TrappedStoreHandler {
                shared_nic: &self.shared_nic,
                uar: &self.uar,
                waker: Arc::clone(&waker),
                control: &self.control,
                armed: AtomicBool::new(false),
            })));
        }
        NicThread {
            shared_nic: &self.shared_nic,
            uar: &self.uar,
            waker,
            control: &self.control,
            wake,
        }
        .spawn()
        .map_err(StartError::Thread)?;
        // SAFETY: the handler is a function of this library, which is never
        // unloaded while its NIC thread runs; it does not unwind.
        unsafe { libc::atexit(leave_fabric) };
        Ok(())
    }

    /// Returns the relation of the device clock to the time of day. In stepped mode the
    /// device clock is the time of the test, which begins at 1 ns.
    #[must_use]
    pub fn wall_clock(&self) -> WallClock {
        let clock = runner::wall_clock();
        let device = match &self.stepper {
            None => clock.device,
            Some(stepper) => ticks(stepper.lock().now()),
        };
        WallClock {
            device: device.wrapping_add(self.timestamp_offset),
            ..clock
        }
    }

    /// Returns the counters of a port: those of all processes of the fabric or, of devices
    /// that a test steps, of this process.
    pub(crate) fn counters(config: &Config, at: PortAddress) -> Row {
        let stepped = Self::get().filter(|it| it.stepper.is_some() && !fork::is_outsider());
        stepped.map_or_else(
            || counters::of_port(&config.fabric, at),
            |it| it.shared_nic.lock().driver.counters().row(at),
        )
    }

    /// Returns the reports of the processes whose [`counters`](Self::counters) count.
    pub(crate) fn reports(config: &Config) -> Vec<Vec<u8>> {
        let stepped = Self::get().filter(|it| it.stepper.is_some());
        stepped.map_or_else(
            || reports::collect(&config.fabric),
            |it| vec![it.shared_nic.lock().driver.report()],
        )
    }

    /// Locks the NIC for a kernel command. When the guard is dropped, the NIC
    /// runs once, since the command may have created work.
    pub fn nic(&self) -> NicGuard<'_> {
        let mut shared_nic = match self.shared_nic.try_lock() {
            Some(shared_nic) => shared_nic,
            None => self.control.with_priority(|| self.shared_nic.lock()),
        };
        // A command may end the use of the memory.
        shared_nic.driver.place_rest();
        NicGuard {
            shared_nic: Some(shared_nic),
            control: &self.control,
        }
    }

    /// Locks the NIC as [`nic`](Self::nic) does, for a command that decides what
    /// becomes of packets, such as moving a queue pair to the error state. Packets
    /// that have arrived are processed first, as hardware would have done by now:
    /// the NIC thread of a busy host may be late, and peers wake it late for acks.
    /// In stepped mode the test decides what has arrived.
    pub fn nic_after_packets(&self) -> NicGuard<'_> {
        let mut nic = self.nic();
        if self.stepper.is_none() && !self.control.is_paused() {
            nic.shared_nic().process_arrived(runner::now());
        }
        nic
    }

    /// Sets the agent that exchanges management packets with other processes.
    pub(crate) fn set_agent(&self, agent: Arc<dyn Agent>) {
        self.shared_nic.lock().driver.set_agent(agent);
    }

    /// Returns where the processes of the fabric meet, if there can be others.
    pub(crate) fn place(&self) -> Option<&ProcessSlot> {
        self.place.as_ref()
    }

    /// Requests that the NIC thread run once soon.
    pub fn wake(&self) {
        self.control.kick();
    }

    /// Pauses the NIC until [`Emulator::resume`]; see `Control::pause`. A
    /// stepped NIC is always paused.
    #[must_use]
    pub fn pause(&self) -> bool {
        const TIMEOUT: Duration = Duration::from_secs(5);
        self.stepper.is_some() || self.control.pause(TIMEOUT)
    }

    /// Resumes a paused NIC.
    pub fn resume(&self) {
        self.control.resume();
    }

    /// Runs one step (`Stepper::step`) of a paused NIC at the real time.
    /// Returns whether there was work, or `None` if the NIC is not paused.
    pub fn step_paused(&self) -> Option<bool> {
        let is_paused = self.stepper.is_some() || self.control.is_paused();
        if !is_paused {
            return None;
        }
        let mut shared_nic = self.shared_nic.lock();
        let SharedNic { driver, port, .. } = &mut *shared_nic;
        Some(Stepper::at(runner::now()).step(driver, port, &self.uar))
    }

    /// Returns the UAR pages. Pages that an application maps are added by
    /// [`map_page`](Self::map_page).
    #[must_use]
    pub(crate) fn uar(&self) -> &UarPages {
        &self.uar
    }

    /// Adds a UAR page that an application has mapped at `address`. The page
    /// is number `page.page` of the file `memory`.
    ///
    /// # Errors
    /// Returns an error if the NIC cannot map the page too.
    pub(crate) fn map_page(
        &self,
        page: UarPage,
        address: usize,
        memory: BorrowedFd<'_>,
    ) -> io::Result<()> {
        self.uar.add_page(page, memory)?;
        self.uar
            .add_mapping(page.context, page.page, address, crate::uar::PAGE_SIZE);
        // If the page could not be protected, the NIC thread must poll (nap)
        // from now on.
        self.wake();
        Ok(())
    }

    /// Adds a doorbell page that others map: page number `page.page` of the file `memory`.
    ///
    /// # Errors
    /// Returns an error if the NIC cannot map the page too.
    pub fn watch_page(&self, page: UarPage, memory: BorrowedFd<'_>) -> io::Result<()> {
        self.uar.add_page(page, memory)?;
        self.wake();
        Ok(())
    }

    /// Removes a doorbell page that was added by [`watch_page`](Self::watch_page).
    pub fn forget_page(&self, page: UarPage) {
        self.uar.remove_page(page);
    }

    /// Returns the configuration that the emulator was started with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the upper 8 bits of this process's QP numbers.
    #[must_use]
    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// Returns the other hosts on the UDP wire.
    pub(crate) fn hosts(&self) -> &Arc<Hosts> {
        &self.hosts
    }

    /// Returns the GUID of a device and the names of its ports. They are equal
    /// in all processes of the fabric.
    #[must_use]
    pub fn device_identity(&self, device: u8) -> DeviceIdentity {
        self.config.identity(device)
    }

    /// Takes the doorbells and does one unit of work, in stepped mode. Returns
    /// `false` if there was nothing to do, and always in threaded mode.
    pub fn step(&self) -> bool {
        self.with_stepper(|stepper, nic, port| stepper.step(nic, port, &self.uar))
            .unwrap_or(false)
    }

    /// Steps until there is nothing to do, in stepped mode. Returns the number
    /// of steps.
    pub fn run_until_idle(&self) -> usize {
        self.with_stepper(|stepper, nic, port| stepper.run_until_idle(nic, port, &self.uar))
            .unwrap_or(0)
    }

    /// Advances the clock by `by` in stepped mode, and runs all work that becomes
    /// due, in order.
    pub fn advance(&self, by: Duration) {
        self.with_stepper(|stepper, nic, port| stepper.advance(nic, port, &self.uar, by));
    }

    /// Replaces the injected faults; `None` stops all faults. The counters
    /// start again at zero.
    pub fn set_faults(&self, spec: Option<&FaultSpec>) {
        let mut shared_nic = self.shared_nic.lock();
        shared_nic.driver.set_faults(spec);
        drop(shared_nic);
        self.control.kick();
    }

    fn with_stepper<T>(
        &self,
        step: impl FnOnce(&mut Stepper, &mut Hardware, &mut Port) -> T,
    ) -> Option<T> {
        let mut stepper = self.stepper.as_ref()?.lock();
        let mut shared_nic = self.shared_nic.lock();
        let SharedNic { driver, port, .. } = &mut *shared_nic;
        Some(step(&mut stepper, driver, port))
    }
}

/// The NIC, locked for a kernel command.
pub struct NicGuard<'a> {
    shared_nic: Option<MutexGuard<'a, SharedNic<Hardware>>>,
    control: &'a Control,
}

impl NicGuard<'_> {
    fn shared_nic(&mut self) -> &mut SharedNic<Hardware> {
        self.shared_nic.as_mut().expect("held until dropped")
    }
}

impl Deref for NicGuard<'_> {
    type Target = Nic;

    fn deref(&self) -> &Nic {
        &self.shared_nic.as_ref().expect("held until dropped").driver
    }
}

impl DerefMut for NicGuard<'_> {
    fn deref_mut(&mut self) -> &mut Nic {
        &mut self.shared_nic().driver
    }
}

impl Drop for NicGuard<'_> {
    fn drop(&mut self) {
        self.shared_nic = None;
        self.control.kick();
    }
}

/// Opens the trace file. Several processes may append to it; the QP number in
/// an entry identifies the process.
fn trace_file(path: &FilePath) -> Result<HiddenFile, StartError> {
    let file = File::options().create(true).append(true).open(path);
    file.map(HiddenFile::new)
        .map_err(|source| StartError::Trace {
            path: path.to_owned(),
            source,
        })
}

/// Sets up how doorbells are noticed. Returns the mode in effect for the
/// requested mode `wake`.
fn set_up_wake(wake: Wake) -> Result<(Wake, Option<Userfaultfd>), StartError> {
    let signals = || {
        trap::install().map_err(StartError::Signal)?;
        Userfaultfd::new(FaultMode::Signal).map_err(StartError::Uffd)
    };
    let faults = || Userfaultfd::new(FaultMode::Wait).map_err(StartError::Uffd);
    Ok(match wake {
        Wake::Nap => (Wake::Nap, None),
        Wake::Uffd => (Wake::Uffd, Some(faults()?)),
        Wake::Signal => (Wake::Signal, Some(signals()?)),
        Wake::Auto => match (signals(), faults()) {
            (Ok(signals), _) => (Wake::Signal, Some(signals)),
            (_, Ok(faults)) => (Wake::Uffd, Some(faults)),
            _ => (Wake::Nap, None),
        },
    })
}

fn view(config: &Config) -> DoorbellView {
    match (config.lenient, config.mode) {
        (true, _) => DoorbellView::Records,
        (false, Mode::Stepped) => DoorbellView::Exact,
        (false, Mode::Threaded) => DoorbellView::Register,
    }
}

/// Runs at exit: waits until the NIC thread has left the fabric, so that the
/// last process removes the fabric's files.
extern "C" fn leave_fabric() {
    const TIMEOUT: Duration = Duration::from_millis(500);
    if let Some(emulator) = Emulator::get().filter(|_| !fork::is_outsider()) {
        emulator.control.stop();
        emulator.control.wait_stopped(TIMEOUT);
    }
}

//! The emulator of this process: one NIC with all its devices, its doorbell
//! pages, its place on the fabric, and what makes it move.
//!
//! It is made once, at the first device open, and lives as long as the
//! process. The kernel face locks the NIC for commands
//! ([`Emulator::nic`]); the NIC thread, and a thread whose doorbell was
//! trapped, lock it for one batch at a time.

use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::config::{Config, Link, Mode, Wake};
use crate::decode::text::TraceWriter;
use crate::fabric::attachment::Attachment;
use crate::fabric::bells::Bells;
use crate::fabric::directory::JoinError;
use crate::fabric::name::{DeviceIdentity, PortNames};
use crate::fabric::port::Port;
use crate::faults::FaultSpec;
use crate::guard;
use crate::hardware::Hardware;
use crate::nic::spec::{
    DoorbellView, EventSink, Path, PortAddress, PortIdentity, UarPage, WallClock,
};
use crate::nic::{Identify, Nic, NicOptions, Resolver};
use crate::runner::serve::StoreServer;
use crate::runner::station::Station;
use crate::runner::stepped::Stepper;
use crate::runner::thread::NicThread;
use crate::runner::{self, Control};
use crate::trap;
use crate::uar::UarBank;
use crate::uar::fault::{FaultWatch, Manner};
use crate::uverbs::complain;

/// Slot of a process that is alone, in stepped mode.
const ALONE: u8 = 1;

static EMULATOR: OnceLock<Emulator> = OnceLock::new();
static STARTING: Mutex<()> = Mutex::new(());
/// The descriptor that says "this process lives"; see [`leave_to_parent`].
static LIFE_LOCK: AtomicI32 = AtomicI32::new(-1);

/// The emulator of this process.
pub struct Emulator {
    config: Config,
    pid: u32,
    slot: u8,
    station: Mutex<Station<Hardware>>,
    uar: UarBank,
    control: Control,
    stepper: Option<Mutex<Stepper>>,
}

/// Why an emulator cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The fabric cannot be joined.
    #[error(transparent)]
    Fabric(#[from] JoinError),
    /// Page faults were asked for, and the kernel refuses them.
    #[error(
        "userfaultfd with write protection of shared memory: {0}; \
         it needs Linux 5.19 and is forbidden in some containers: set {wake}=auto",
        wake = Config::WAKE
    )]
    Uffd(io::Error),
    /// Signals were asked for, and this program cannot have them.
    #[error("stores cannot be trapped: {0}; set {wake}=auto", wake = Config::WAKE)]
    Signal(trap::Unfit),
    /// The trace file cannot be written.
    #[error("trace file {}: {source}", path.display())]
    Trace {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The NIC thread cannot be started.
    #[error("cannot start the NIC thread: {0}")]
    Thread(io::Error),
}

impl Emulator {
    /// The emulator, if it has been started.
    #[must_use]
    pub fn get() -> Option<&'static Self> {
        EMULATOR.get()
    }

    /// Starts the emulator of this process; `events` receives what the NIC
    /// reports. If it is running already, it stays as it is and `events` is
    /// not used.
    ///
    /// # Errors
    /// See [`StartError`]. Nothing is left behind, and a later start may succeed.
    pub fn start(config: Config, events: Box<dyn EventSink>) -> Result<&'static Self, StartError> {
        let _one_at_a_time = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = EMULATOR.get() {
            return Ok(running);
        }
        guard::install();
        let threaded = config.mode == Mode::Threaded;
        let (wake, faults) = if threaded {
            watch_faults(config.wake)?
        } else {
            (Wake::Nap, None)
        };
        let port = if threaded {
            let attachment = Attachment::join(&config.fabric)?;
            if let Some(first) = attachment.passed_over().first() {
                let instead = attachment.directory().display();
                let text = format!("{first}: using {instead} for the fabric; remove the first");
                complain("fabric directory", &text);
            }
            Port::attached(attachment)
        } else {
            Port::alone(ALONE)
        };
        let options = NicOptions {
            slot: port.slot(),
            devices: config.devices,
            ports: config.ports,
            view: view(&config),
            resolve: resolver(&config),
            identify: identifier(&config),
            enforce_memlock: config.memlock,
            limits: config.limits,
            stepped: !threaded,
            ..NicOptions::default()
        };
        let mut nic = Nic::new(options, events);
        if let Some(path) = &config.trace {
            nic.set_trace(Box::new(TraceWriter::new(trace_file(path)?)));
        }
        let mut hardware = Hardware::new(nic);
        hardware.set_faults(config.faults.as_ref());
        let life_lock = port.attachment().map_or(-1, Attachment::lock_fd);
        let slot = port.slot();
        let bells = port.attachment().map(|it| Arc::clone(it.bells()));
        let stepper = (!threaded).then(Mutex::default);
        let emulator = EMULATOR.get_or_init(|| Self {
            config,
            pid: std::process::id(),
            slot,
            station: Mutex::new(Station::new(hardware, port)),
            uar: UarBank::new(faults),
            control: Control::default(),
            stepper,
        });
        if let Some(bells) = bells {
            LIFE_LOCK.store(life_lock, Ordering::Relaxed);
            emulator.start_thread(bells, wake)?;
        }
        Ok(emulator)
    }

    fn start_thread(&'static self, bells: Arc<Bells>, wake: Wake) -> Result<(), StartError> {
        if wake == Wake::Signal {
            trap::tell(Box::leak(Box::new(StoreServer {
                station: &self.station,
                bank: &self.uar,
                bells: Arc::clone(&bells),
                control: &self.control,
                arms: AtomicBool::new(false),
            })));
        }
        NicThread {
            station: &self.station,
            bank: &self.uar,
            bells,
            control: &self.control,
            wake,
        }
        .spawn()
        .map_err(StartError::Thread)?;
        // SAFETY: both handlers are functions of this library, which is never
        // unloaded while its NIC thread runs; neither unwinds.
        unsafe {
            libc::pthread_atfork(None, None, Some(leave_to_parent));
            libc::atexit(leave_fabric);
        }
        Ok(())
    }

    /// What the time of day is by the device's clock; `None` when it is
    /// stepped, for then its time is the test's.
    #[must_use]
    pub fn wall_clock(&self) -> Option<WallClock> {
        self.stepper.is_none().then(runner::wall_clock)
    }

    /// Locks the NIC for a command. When the guard goes, the NIC runs once:
    /// the command may have made work.
    ///
    /// A forked child must not come here: see [`forked`](Self::forked).
    pub fn nic(&self) -> NicGuard<'_> {
        let station = match self.station.try_lock() {
            Ok(station) => station,
            Err(_) => self
                .control
                .announce(|| self.station.lock())
                .unwrap_or_else(PoisonError::into_inner),
        };
        NicGuard {
            station: Some(station),
            control: &self.control,
        }
    }

    /// Makes the NIC thread run once, soon.
    pub fn wake(&self) {
        self.control.kick();
    }

    /// Makes the NIC stand still until [`Emulator::release`], see
    /// `Control::hold`. A NIC that is stepped stands still anyway.
    #[must_use]
    pub fn hold(&self) -> bool {
        const PATIENCE: Duration = Duration::from_secs(5);
        self.stepper.is_some() || self.control.hold(PATIENCE)
    }

    /// Lets the NIC go on.
    pub fn release(&self) {
        self.control.release();
    }

    /// Moves a NIC that stands still by hand, by one step
    /// (`Stepper::step`) at the real time. `None` if it does not stand.
    pub fn step_held(&self) -> Option<bool> {
        let stands = self.stepper.is_some() || self.control.stands();
        if !stands {
            return None;
        }
        let mut station = self.station.lock().unwrap_or_else(PoisonError::into_inner);
        let Station { driver, port, .. } = &mut *station;
        Some(Stepper::at(runner::now()).step(driver, port, &self.uar))
    }

    /// The doorbell pages. Pages that applications map are announced by
    /// `map_page`.
    #[must_use]
    pub(crate) fn uar(&self) -> &UarBank {
        &self.uar
    }

    /// An application has mapped a doorbell page, which is `page.page` of
    /// this memory file, at `address`.
    ///
    /// # Errors
    /// When the NIC cannot map it as well.
    pub(crate) fn map_page(
        &self,
        page: UarPage,
        address: usize,
        memory: BorrowedFd<'_>,
    ) -> io::Result<()> {
        self.uar.add_page(page, memory)?;
        self.uar
            .note_mapping(page.context, page.page, address, crate::uar::PAGE_SIZE);
        // A sleeper that could not protect this page must nap from now on.
        self.wake();
        Ok(())
    }

    /// What the emulator was started with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The upper 8 bits of this process' QP numbers.
    #[must_use]
    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// Whether this process was forked from the one that started the
    /// emulator: it has the memory of a NIC, but no NIC. Takes no lock.
    #[must_use]
    pub fn forked(&self) -> bool {
        std::process::id() != self.pid
    }

    /// GUID of a device, and names of its ports, equal in all processes of the fabric.
    #[must_use]
    pub fn device_identity(&self, device: u8) -> DeviceIdentity {
        DeviceIdentity::derive(&self.config.fabric, device)
    }

    /// Stepped mode: takes the doorbells and does one unit of work. `false`
    /// when there was nothing to do, and always in threaded mode.
    pub fn step(&self) -> bool {
        self.stepping(|stepper, nic, port| stepper.step(nic, port, &self.uar))
            .unwrap_or(false)
    }

    /// Stepped mode: steps until there is nothing to do, and answers how
    /// many steps that took.
    pub fn run_until_idle(&self) -> usize {
        self.stepping(|stepper, nic, port| stepper.run_until_idle(nic, port, &self.uar))
            .unwrap_or(0)
    }

    /// Stepped mode: lets time pass, and runs what falls due, in order.
    pub fn advance(&self, by: Duration) {
        self.stepping(|stepper, nic, port| stepper.advance(nic, port, &self.uar, by));
    }

    /// From now on these faults happen, counted anew, or none any more.
    pub fn set_faults(&self, spec: Option<&FaultSpec>) {
        let mut station = self.station.lock().unwrap_or_else(PoisonError::into_inner);
        station.driver.set_faults(spec);
        drop(station);
        self.control.kick();
    }

    fn stepping<T>(
        &self,
        step: impl FnOnce(&mut Stepper, &mut Hardware, &mut Port) -> T,
    ) -> Option<T> {
        let mut stepper = self
            .stepper
            .as_ref()?
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut station = self.station.lock().unwrap_or_else(PoisonError::into_inner);
        let Station { driver, port, .. } = &mut *station;
        Some(step(&mut stepper, driver, port))
    }
}

/// The NIC, locked for a command.
pub struct NicGuard<'a> {
    station: Option<MutexGuard<'a, Station<Hardware>>>,
    control: &'a Control,
}

impl Deref for NicGuard<'_> {
    type Target = Nic;

    fn deref(&self) -> &Nic {
        &self.station.as_ref().expect("held until dropped").driver
    }
}

impl DerefMut for NicGuard<'_> {
    fn deref_mut(&mut self) -> &mut Nic {
        &mut self.station.as_mut().expect("held until dropped").driver
    }
}

impl Drop for NicGuard<'_> {
    fn drop(&mut self) {
        self.station = None;
        self.control.kick();
    }
}

/// The trace file, which other processes may be writing too: a QP number in
/// an entry says whose it is.
fn trace_file(path: &FilePath) -> Result<File, StartError> {
    let file = File::options().create(true).append(true).open(path);
    file.map_err(|source| StartError::Trace {
        path: path.to_owned(),
        source,
    })
}

/// How doorbells are to be noticed, of what was wished for.
fn watch_faults(wish: Wake) -> Result<(Wake, Option<FaultWatch>), StartError> {
    let signals = || {
        trap::install().map_err(StartError::Signal)?;
        FaultWatch::new(Manner::Signal).map_err(StartError::Uffd)
    };
    let faults = || FaultWatch::new(Manner::Wait).map_err(StartError::Uffd);
    Ok(match wish {
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

/// Where an address vector leads: by LID on an InfiniBand link, by GID where
/// there is no LID; on Ethernet by GID, and by address where one is given.
fn resolver(config: &Config) -> Resolver {
    let identities = (0..config.devices).map(|d| DeviceIdentity::derive(&config.fabric, d));
    let ports: Vec<_> = (0..)
        .zip(identities)
        .flat_map(|(device, identity)| {
            let address = move |port| PortAddress { device, port };
            (1..=config.ports).map(move |port| (address(port), identity.port(port)))
        })
        .collect();
    let link = config.link;
    Box::new(move |_, path: &Path| {
        let leads_here = |names: &PortNames| match link {
            Link::Ib if path.dlid != 0 => names.lid == path.dlid,
            Link::Ib => names.gid == path.dgid,
            Link::Roce => {
                let is_addressed = path.dmac.is_none_or(|mac| mac == names.mac);
                is_addressed && [names.ethernet_gid, names.ip_gid].contains(&path.dgid)
            }
        };
        let found = ports.iter().find(|(_, names)| leads_here(names));
        found.map(|(address, _)| *address)
    })
}

/// What the ports are.
fn identifier(config: &Config) -> Identify {
    let (fabric, link) = (config.fabric.clone(), config.link);
    Box::new(move |address| {
        let names = DeviceIdentity::derive(&fabric, address.device).port(address.port);
        match link {
            Link::Ib => PortIdentity {
                lid: names.lid,
                gids: [Some(names.gid), None],
                ethernet: false,
            },
            Link::Roce => PortIdentity {
                lid: 0,
                gids: [Some(names.ethernet_gid), Some(names.ip_gid)],
                ethernet: true,
            },
        }
    })
}

/// In a forked child: lets go of the lock that says the parent lives. The
/// lock belongs to the open file, which the child shares; it would keep the
/// slot taken after the parent's death.
extern "C" fn leave_to_parent() {
    let lock = LIFE_LOCK.swap(-1, Ordering::Relaxed);
    if lock >= 0 {
        // SAFETY: the child's copy of a descriptor that only the fabric
        // knows; the child never uses its attachment. close(2) may be called
        // after fork.
        unsafe { libc::close(lock) };
    }
}

/// At exit: gives the NIC thread the time to leave the fabric, so that the
/// last process takes the fabric's files with it.
extern "C" fn leave_fabric() {
    const PATIENCE: Duration = Duration::from_millis(500);
    if let Some(emulator) = Emulator::get().filter(|emulator| !emulator.forked()) {
        emulator.control.stop();
        emulator.control.wait_stopped(PATIENCE);
    }
}

//! This process' emulated device, moved by hand, for one test at a time.

use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use dat_engine::Device;
use mlx5emu::config::{Config, Mode};
use mlx5emu::emulator::Emulator;
use mlx5emu::nic::spec::{CqSpec, QpSpec, Qpn};
use mlx5emu::preload::{Installed, install};

use super::hand::HandRing;
use super::lib_side::LibSide;
use super::libmlx5::{Context, Shape};
use super::our_side::OurSide;
use super::rings::Rings;
use super::side::Side;
use super::twins::{SharedQueue, Twin, Twins};

static DEVICE: OnceLock<Mutex<Option<Installed>>> = OnceLock::new();
static ONE_TEST: Mutex<()> = Mutex::new(());

/// The device, open on both sides. When it goes, the NIC must have seen no
/// breach of the contract between driver and device, unless the test took them.
pub struct System {
    pub device: Device,
    pub context: Rc<Context>,
    violations: u64,
    _one_test: MutexGuard<'static, ()>,
}

impl System {
    /// The stepped device of this process. Tests of one process take turns.
    pub fn stepped() -> Self {
        let one_test = ONE_TEST.lock().unwrap_or_else(PoisonError::into_inner);
        DEVICE.get_or_init(set_up);
        let context = Context::open();
        let device = Device::open("mlx5_0").expect("the engine opens the emulated device");
        let violations = emulator().nic().violations().count();
        System {
            device,
            context,
            violations,
            _one_test: one_test,
        }
    }

    /// Takes doorbells and does one unit of work; `false` when idle.
    pub fn step(&self) -> bool {
        emulator().step()
    }

    /// Runs until nothing is left to do now.
    pub fn run(&self) {
        emulator().run_until_idle();
    }

    /// Lets virtual time pass, and runs what falls due.
    pub fn advance(&self, by: Duration) {
        emulator().advance(by);
    }

    /// What a queue pair was created with, as the device was told.
    pub fn qp_spec(&self, qpn: u32) -> QpSpec {
        *emulator()
            .nic()
            .qp_spec(Qpn(qpn))
            .expect("a queue pair of the device")
    }

    /// Its CQs {send, receive}, as the device was told.
    pub fn cq_specs(&self, qp: &QpSpec) -> [CqSpec; 2] {
        let nic = emulator().nic();
        [qp.send_cq, qp.recv_cq].map(|cq| *nic.cq_spec(cq).expect("a completion queue"))
    }

    /// Breaches of the contract that the NIC has recorded during this test.
    pub fn violations(&self) -> Vec<String> {
        let nic = emulator().nic();
        let new = (nic.violations().count() - self.violations) as usize;
        let recent: Vec<_> = nic.violations().recent().map(str::to_owned).collect();
        recent[recent.len() - new.min(recent.len())..].to_vec()
    }

    /// Allows the breaches so far, for tests that commit them on purpose.
    pub fn forgive(&mut self) -> Vec<String> {
        let forgiven = self.violations();
        self.violations += forgiven.len() as u64;
        forgiven
    }

    /// Two queue pairs made alike, ready to send, whose device never runs:
    /// one of libmlx5's and one of the engine's.
    pub fn twins(&self, shape: Shape) -> Twins {
        let mut theirs = LibSide::new(&self.context, shape, super::twins::MEMORY);
        let mut ours = OurSide::new(&self.device, shape, super::twins::MEMORY);
        let peers = [theirs.peer(), ours.peer()];
        theirs.connect(&peers[1], &super::libmlx5::Link::default());
        ours.connect(&peers[0], &super::libmlx5::Link::default());
        let registers = [
            theirs.qp.rings().bf.reg as usize,
            ours.endpoint
                .send_layout()
                .expect("direct path")
                .register
                .reg
                .as_ptr() as usize,
        ];
        let shared = theirs.srq.as_ref().map(|srq| {
            let rings = srq.rings();
            SharedQueue::new(rings.head as u16, rings.stride as usize)
        });
        let sides: [Box<dyn Side>; 2] = [Box::new(theirs), Box::new(ours)];
        let mut made = sides
            .into_iter()
            .zip(registers)
            .map(|(side, reg)| self.twin(side, reg));
        let mut twins = Twins::new(made.next().expect("theirs"), made.next().expect("ours"));
        twins.shared = shared;
        twins
    }

    /// What the device knows of an end, for a test that plays the device.
    fn twin(&self, side: Box<dyn Side>, register: usize) -> Twin {
        let spec = self.qp_spec(side.peer().qpn);
        let ring = |spec: CqSpec| {
            // SAFETY: the ring belongs to the twin's CQ and lives as long; the
            // device, which never runs, does not write it.
            unsafe { HandRing::new(spec.buf, spec.cqe_count, spec.cqe_size, 0) }
        };
        let [send_cq, recv_cq] = self.cq_specs(&spec).map(ring);
        let (recv, recv_record) = match spec.srq {
            None => {
                let len = (spec.rq_wqe_count as usize) << spec.rq_stride_log2;
                ((spec.rq_buf as usize, len), spec.dbrec as usize)
            }
            Some(srq) => {
                let nic = emulator().nic();
                let spec = nic.srq_spec(srq).expect("a shared receive queue");
                let len = (spec.wqe_count as usize) << spec.stride_log2;
                ((spec.buf as usize, len), spec.dbrec as usize)
            }
        };
        let rings = Rings {
            qpn: side.peer().qpn,
            send: (spec.sq_buf as usize, spec.sq_wqebb_count as usize * 64),
            recv,
            send_record: spec.dbrec as usize + 4,
            recv_record,
            register,
        };
        Twin {
            side,
            rings,
            user_index: spec.user_index,
            send_cq,
            recv_cq,
        }
    }
}

impl Drop for System {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let violations = self.violations();
            assert!(
                violations.is_empty(),
                "the NIC saw breaches: {violations:#?}"
            );
        }
    }
}

fn emulator() -> &'static Emulator {
    Emulator::get().expect("started when the device was opened")
}

fn set_up() -> Mutex<Option<Installed>> {
    // SAFETY: the tests read the environment only under ONE_TEST, which is
    // held. libmlx5 prints every error CQE, of which these tests make many.
    unsafe { std::env::set_var("MLX5_DEBUG_FILE", "/dev/null") };
    let config = Config {
        mode: Mode::Stepped,
        ..Config::default()
    };
    // SAFETY: as above.
    let installed = unsafe { install(&config) }.expect("an emulated device");
    // SAFETY: the function may be called at exit.
    unsafe { libc::atexit(take_down) };
    Mutex::new(Some(installed))
}

/// Removes the directory of the emulated device, which statics do not do.
extern "C" fn take_down() {
    if let Some(device) = DEVICE.get() {
        drop(device.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

//! The device of this process, open, for one test at a time.

use std::cell::OnceCell;
use std::rc::Rc;
use std::time::Duration;

use dat_engine::{AsyncEvent, Device};
use mlx5emu::spec::Qpn;

use super::behaviour::Behaviour;
use super::compared_qps::{ComparedQp, ComparedQps, Receives};
use super::cqe_writer::CqeWriter;
use super::device;
use super::engine_side::EngineSide;
use super::libmlx5::{Context, Shape};
use super::reference_side::ReferenceSide;
use super::shadow_page::ShadowPage;
use super::side::Side;

/// The device, opened by the engine, and by libmlx5 when a test needs it. When
/// this value is dropped, the emulated NIC must have recorded no violation of the
/// contract between driver and device, unless the test has taken it.
pub struct System {
    pub device: Device,
    context: OnceCell<Rc<Context>>,
    violations: device::Violations,
    _lock: device::DeviceLock,
}

impl System {
    /// Opens the device of this process. Tests of one process run one at a time.
    pub fn new() -> Self {
        let lock = device::lock();
        let device = Device::open(device::name()).expect("the engine opens the device");
        System {
            device,
            context: OnceCell::new(),
            violations: device::Violations::from_now(),
            _lock: lock,
        }
    }

    /// Returns libmlx5's context of the device.
    pub fn context(&self) -> &Rc<Context> {
        self.context.get_or_init(|| {
            let port = self.device.port(1).expect("the first port");
            Context::open(device::name(), port)
        })
    }

    /// Returns whether the test steps the device.
    pub fn is_stepped(&self) -> bool {
        device::emulator().is_some()
    }

    /// Lets the device see a doorbell before the next one is rung.
    pub fn after_doorbell(&self) {
        device::after_doorbell();
    }

    /// Runs the device until it has nothing left to do.
    pub fn run(&self) {
        device::run();
    }

    /// Makes a call before, between and after all steps of the device.
    pub fn meanwhile(&self, call: impl FnMut()) {
        device::meanwhile(call);
    }

    /// Advances virtual time, and runs what becomes due.
    pub fn advance(&self, by: Duration) {
        device::advance(by);
    }

    /// Returns the asynchronous events so far.
    pub fn events_by_now(&self) -> Vec<AsyncEvent> {
        let events = self.device.async_events();
        events.map(|event| event.expect("an event")).collect()
    }

    /// Returns the asynchronous events so far, of which one must match.
    pub fn events(&self, wanted: impl Fn(&AsyncEvent) -> bool) -> Vec<AsyncEvent> {
        let mut events = Vec::new();
        device::comes(|| {
            events.extend(self.events_by_now());
            events.iter().any(&wanted).then_some(())
        });
        events
    }

    /// Returns the violations of the contract that the NIC has recorded during
    /// this test.
    pub fn violations(&self) -> Vec<String> {
        self.violations.seen()
    }

    /// Excludes the violations so far from the check, for tests that commit them
    /// on purpose.
    pub fn take_violations(&mut self) -> Vec<String> {
        self.violations.take_violations()
    }

    /// Creates two queue pairs with equal attributes, one by libmlx5 and one by
    /// the engine, both ready to send. Their device never runs.
    pub fn compared_qps(&self, shape: Shape) -> ComparedQps {
        // Before they exist: each must be the only queue pair of its context.
        let behaviour = Behaviour::of_libmlx5(self);
        let mut theirs = ReferenceSide::new(self.context(), shape, super::compared_qps::MEMORY);
        let mut ours = EngineSide::new(&self.device, shape, super::compared_qps::MEMORY);
        let peers = [theirs.peer(), ours.peer()];
        theirs.connect(&peers[1], &super::libmlx5::Link::default());
        ours.connect(&peers[0], &super::libmlx5::Link::default());
        let [theirs, ours] = [
            self.compared_qp(Box::new(theirs)),
            self.compared_qp(Box::new(ours)),
        ];
        ComparedQps::new(theirs, ours, behaviour)
    }

    /// Creates a queue pair of libmlx5, ready to send. Its device never runs.
    pub fn compared_qp_of_libmlx5(&self, shape: Shape) -> ComparedQp {
        let mut side = ReferenceSide::new(self.context(), shape, super::compared_qps::MEMORY);
        let peer = side.peer();
        side.connect(&peer, &super::libmlx5::Link::default());
        self.compared_qp(Box::new(side))
    }

    /// Returns what a test needs that acts as the device of this end.
    fn compared_qp(&self, side: Box<dyn Side>) -> ComparedQp {
        let rings = side.rings();
        let [send_cq, recv_cq] = rings.cqs.map(|ring| {
            // SAFETY: the ring belongs to the CQ and lives as long; the device
            // never runs and so does not write it.
            unsafe { CqeWriter::new(ring.buf as u64, ring.cqe_count, ring.cqe_size, 0) }
        });
        // A doorbell would make an existing device run. A stepped one runs only when it is
        // stepped.
        let shadows = match self.is_stepped() {
            true => Vec::new(),
            // SAFETY: the pages belong to queues of `side`, which only this thread uses, and
            // `ComparedQp` drops the shadows before `side`.
            false => unsafe { ShadowPage::over_all(&rings) },
        };
        ComparedQp {
            _shadows: shadows,
            user_index: user_index(rings.qpn),
            receives: Receives::new(rings.shared_stride),
            side,
            rings,
            send_cq,
            recv_cq,
        }
    }
}

/// Returns the number by which completions name a queue pair, the only one of its context.
/// libmlx5 chooses the lowest free number of the context and does not report it.
fn user_index(qpn: u32) -> u32 {
    const LOWEST: u32 = 0;
    let Some(emulator) = device::emulator() else {
        return LOWEST;
    };
    let nic = emulator.nic();
    let spec = nic.qp_spec(Qpn(qpn)).expect("a queue pair");
    match spec.cqe_version {
        // CQE version 0: completions name the shared queue, or nothing.
        0 => spec.srq.map_or(0, |srq| srq.0),
        _ => {
            assert_eq!(spec.user_index, LOWEST, "the number that libmlx5 chooses");
            LOWEST
        }
    }
}

impl Drop for System {
    fn drop(&mut self) {
        super::iwarp::forget();
        if !std::thread::panicking() {
            let violations = self.violations();
            assert!(
                violations.is_empty(),
                "the NIC has recorded violations: {violations:#?}"
            );
        }
    }
}

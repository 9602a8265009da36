//! The device of this process, open, for one test at a time.

use std::cell::OnceCell;
use std::rc::Rc;
use std::time::Duration;

use dat_engine::{AsyncEvent, Device};
use mlx5emu::emulator::Emulator;
use mlx5emu::spec::{CqSpec, QpSpec, Qpn};

use super::behaviour::Behaviour;
use super::compared_qps::{ComparedQp, ComparedQps, Receives};
use super::cqe_writer::CqeWriter;
use super::device;
use super::engine_side::EngineSide;
use super::libmlx5::{Context, Shape};
use super::reference_side::ReferenceSide;
use super::rings::Rings;
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
        self.context.get_or_init(Context::open)
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

    /// Returns the attributes with which the device has created a queue pair.
    pub fn qp_spec(&self, qpn: u32) -> QpSpec {
        *emulator()
            .nic()
            .qp_spec(Qpn(qpn))
            .expect("a queue pair of the device")
    }

    /// Returns the attributes of its CQs {send, receive}.
    pub fn cq_specs(&self, qp: &QpSpec) -> [CqSpec; 2] {
        let nic = emulator().nic();
        [qp.send_cq, qp.recv_cq].map(|cq| *nic.cq_spec(cq).expect("a completion queue"))
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
        let mut theirs = ReferenceSide::new(self.context(), shape, super::compared_qps::MEMORY);
        let mut ours = EngineSide::new(&self.device, shape, super::compared_qps::MEMORY);
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
        let sides: [Box<dyn Side>; 2] = [Box::new(theirs), Box::new(ours)];
        let mut made = sides
            .into_iter()
            .zip(registers)
            .map(|(side, reg)| self.compared_qp(side, reg));
        let [theirs, ours] =
            [made.next(), made.next()].map(|compared_qp| compared_qp.expect("two queue pairs"));
        ComparedQps::new(theirs, ours, Behaviour::of_libmlx5(self))
    }

    /// Creates a queue pair of libmlx5, ready to send. Its device never runs.
    pub fn compared_qp_of_libmlx5(&self, shape: Shape) -> ComparedQp {
        let mut side = ReferenceSide::new(self.context(), shape, super::compared_qps::MEMORY);
        let peer = side.peer();
        side.connect(&peer, &super::libmlx5::Link::default());
        let register = side.qp.rings().bf.reg as usize;
        self.compared_qp(Box::new(side), register)
    }

    /// Returns what a test needs that acts as the device of this end.
    fn compared_qp(&self, side: Box<dyn Side>, register: usize) -> ComparedQp {
        let spec = self.qp_spec(side.peer().qpn);
        let ring = |spec: CqSpec| {
            // SAFETY: the ring belongs to the CQ and lives as long; the device
            // never runs and so does not write it.
            unsafe { CqeWriter::new(spec.buf, spec.cqe_count, spec.cqe_size, 0) }
        };
        let [send_cq, recv_cq] = self.cq_specs(&spec).map(ring);
        let (recv, recv_record, receives) = match spec.srq {
            None => {
                let len = (spec.rq_wqe_count as usize) << spec.rq_stride_log2;
                let ring = (spec.rq_buf as usize, len);
                (ring, spec.dbrec as usize, Receives::new(None))
            }
            Some(srq) => {
                let nic = emulator().nic();
                let spec = nic.srq_spec(srq).expect("a shared receive queue");
                let len = (spec.wqe_count as usize) << spec.stride_log2;
                let receives = Receives::new(Some(1 << spec.stride_log2));
                ((spec.buf as usize, len), spec.dbrec as usize, receives)
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
        ComparedQp {
            side,
            rings,
            user_index: match spec.cqe_version {
                // CQE version 0: completions name the shared queue, or nothing.
                0 => spec.srq.map_or(0, |srq| srq.0),
                _ => spec.user_index,
            },
            send_cq,
            recv_cq,
            receives,
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

fn emulator() -> &'static Emulator {
    device::emulator().expect("a stepped device")
}

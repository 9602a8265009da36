//! Behaviour of the direct path alone: rings, and how the engine uses them.

use dat_engine::control::{QpSpec, VerbsCq, VerbsQp, VerbsSrq};
use dat_engine::{CompletionOp, CqeSize, SendFlags, Status};
use mlx5emu::emulator::Emulator;
use mlx5emu::spec::{Cqn, Qpn, Srqn};

use crate::support::device::reuses_qp_numbers;
use crate::support::fixture::Fixture;
use crate::support::system::System;

const SIGNALED: SendFlags = SendFlags::SIGNALED;
const UNSIGNALED: SendFlags = SendFlags::empty();

#[test]
fn the_engine_and_the_device_get_the_same_rings() {
    let system = System::new();
    let domain = system.device.alloc_pd().expect("a domain");
    let narrow = VerbsCq::create(&system.device, 100, CqeSize::B64, None, 0).expect("a CQ");
    let wide = VerbsCq::create(&system.device, 100, CqeSize::B128, None, 0).expect("a CQ");
    let srq = VerbsSrq::create(&domain, 40, 3).expect("an SRQ");
    let spec = QpSpec {
        send_cq: &narrow,
        recv_cq: &wide,
        srq: None,
        send_depth: 16,
        recv_depth: 32,
        send_segments: 2,
        recv_segments: 2,
        inline_bytes: 64,
        inline_or_fewer: false,
        exclusive_register: false,
        payload_in_completion: true,
        windows: false,
    };
    let qp = VerbsQp::create(&domain, &spec).expect("a QP");

    let nic = Emulator::get().expect("running").nic();
    for (cq, size) in [(&narrow, 64), (&wide, 128)] {
        let layout = cq.layout().expect("direct path");
        let (here, there) = (layout, nic.cq_spec(Cqn(cq.cqn())).expect("the CQ"));
        assert_eq!(here.buf.addr().get() as u64, there.buf);
        assert_eq!(here.dbrec.addr().get() as u64, there.dbrec);
        assert_eq!(
            (here.cqe_count, here.cqe_size),
            (there.cqe_count, there.cqe_size)
        );
        assert_eq!(here.cqe_size, size);
        assert!(here.cqe_count >= 100);
    }
    let (here, there) = (
        srq.layout().expect("direct path"),
        nic.srq_spec(Srqn(srq.srqn())).expect("the SRQ"),
    );
    assert_eq!(here.buf.addr().get() as u64, there.buf);
    assert_eq!(here.dbrec.addr().get() as u64, there.dbrec);
    assert_eq!(here.stride, 1 << there.stride_log2);
    assert!((40..there.wqe_count).contains(&u32::from(here.tail - here.head)));

    let (send, recv) = (
        qp.send_layout().expect("direct path"),
        qp.recv_layout().expect("a receive queue"),
    );
    let there = nic.qp_spec(Qpn(qp.qpn())).expect("the QP");
    assert_eq!(send.buf.addr().get() as u64, there.sq_buf);
    assert_eq!(send.wqebb_count, there.sq_wqebb_count);
    assert_eq!(recv.buf.addr().get() as u64, there.rq_buf);
    assert_eq!(
        (recv.wqe_count, recv.stride),
        (there.rq_wqe_count, 1 << there.rq_stride_log2)
    );
    assert_eq!(recv.dbrec.addr().get() as u64, there.dbrec);
    assert_eq!(send.dbrec.addr().get() as u64, there.dbrec + 4);
    assert!(send.max_requests >= 16 && send.max_segments >= 2 && send.max_inline >= 64);
    // A WQE of control, address and two data segments, or 64 inline bytes with
    // their headers, takes at most two WQEBBs. No room is left for binding
    // windows.
    assert_eq!(send.wqebb_count, 32);
}

#[test]
fn a_qp_number_is_not_reused_before_its_completions_are_removed() {
    let mut fixture = Fixture::new(64);
    let [mut a, b] = fixture.pair(false);
    let number = a.qpn();
    fixture.send(&mut a, 1, SIGNALED).expect("room");
    a.to_error().expect("the error state");
    fixture.system.run();
    drop(a);
    let early = fixture.endpoint(false);
    assert_ne!(early.qpn(), number, "the queue was not polled since");
    assert_eq!(fixture.polled(0), []);
    let late = fixture.endpoint(false);
    if reuses_qp_numbers() {
        assert_eq!(late.qpn(), number);
    }
    drop(b);
}

/// libmlx5 refuses sends in ERR unless the queue pair has been in RTS.
#[test]
fn sends_of_an_attempt_that_failed_are_flushed() {
    let mut fixture = Fixture::new(64);
    let mut end = fixture.endpoint(false);
    end.to_error().expect("ERR");
    fixture.send(&mut end, 3, SIGNALED).expect("room");
    fixture.send(&mut end, 4, UNSIGNALED).expect("room");
    fixture.system.run();
    let flushed = |wr_id| (CompletionOp::Send, wr_id, Status::WrFlush);
    let done: Vec<_> = fixture
        .polled(2)
        .iter()
        .map(|one| (one.op, one.wr_id, one.status))
        .collect();
    assert_eq!(done, [flushed(3), flushed(4)]);
    assert!(end.sends_idle());
}

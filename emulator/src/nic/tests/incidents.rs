//! Failures of QPs, ports and devices, and the events that report them.

use std::collections::VecDeque;

use super::fixtures::*;
use crate::decode::cqe::Syndrome;
use crate::nic::qp_modify::mask;
use crate::nic::{CompletionOutcome, FaultInjector};
use crate::spec::*;

const FLUSHED: u8 = 0x05;
const NO_SYNDROME: u8 = 0xee;
const RESET: u8 = 0;
const ERR: u8 = 6;
const PORT: PortAddress = PortAddress { device: 0, port: 1 };
const OTHER_DEVICE: PortAddress = PortAddress { device: 1, port: 1 };
/// The ack timeout for the encoded value 14.
const TIMEOUT: u64 = 4096 << 14;

/// Injects listed faults in order, then none.
#[derive(Default)]
struct ScriptedFaults {
    receives: VecDeque<bool>,
    completions: VecDeque<CompletionOutcome>,
    commands: VecDeque<bool>,
}

impl FaultInjector for ScriptedFaults {
    fn no_receive(&mut self) -> bool {
        self.receives.pop_front().unwrap_or(false)
    }

    fn completion(&mut self, _of_request: bool) -> CompletionOutcome {
        self.completions
            .pop_front()
            .unwrap_or(CompletionOutcome::Success)
    }

    fn out_of_memory(&mut self) -> bool {
        self.commands.pop_front().unwrap_or(false)
    }
}

fn async_events(peer: &Peer) -> Vec<(AsyncEvent, AsyncObject)> {
    let events = peer.host.events.take();
    let kind = |event| match event {
        Event::Asynchronous(event, object) => Some((event, object)),
        Event::Completion(_) => None,
    };
    events.into_iter().filter_map(kind).collect()
}

#[test]
fn a_failed_qp_flushes_all_requests_and_raises_one_qp_fatal() {
    let mut pair = Pair::new();
    let receive = pair.a.data_segment(0, 64);
    pair.a.qp.post_receive(&[receive]);
    let counter = pair.a.post(SEND, SIGNALLED, &[inline_segment(b"x")]);
    let (nic, qpn) = (&mut pair.a.host.nic, pair.a.qp.qpn);
    nic.fail_qp(qpn).unwrap();
    nic.fail_qp(qpn).unwrap();
    assert_eq!(
        statuses(&pair.a.cq.poll_all()),
        [(FLUSHED, counter), (FLUSHED, 0)]
    );
    assert_eq!(pair.a.state(), ERR);
    let object = AsyncObject::Qp(0xa0);
    assert_eq!(async_events(&pair.a), [(AsyncEvent::QpFatal, object)]);
    let unknown = Qpn(pair.a.qp.qpn.0 + 99);
    assert_eq!(pair.a.host.nic.fail_qp(unknown), Err(Errno(libc::EINVAL)));
}

#[test]
fn a_port_that_is_down_loses_packets_and_a_short_flap_costs_one_retry() {
    let mut pair = Pair::new();
    let counter = pair.a.post(
        WRITE,
        SIGNALLED,
        &[pair.b.raddr_segment(0), pair.a.data_segment(0, 64)],
    );
    pair.a.host.nic.set_port(PORT, false);
    pair.a.host.nic.set_port(PORT, false);
    assert!(!pair.a.host.nic.port_is_up(PORT));
    let port = AsyncObject::Port(1);
    assert_eq!(async_events(&pair.a), [(AsyncEvent::PortErr, port)]);
    pair.run_until_idle();
    assert!(pair.wire.sent.is_empty());
    pair.a.host.nic.set_port(PORT, true);
    assert_eq!(async_events(&pair.a), [(AsyncEvent::PortActive, port)]);
    pair.advance(TIMEOUT + 1_000_000, 1_000_000);
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, counter)]);
    // The port of the peer: requests do not arrive.
    let counter = pair.a.post(
        WRITE,
        SIGNALLED,
        &[pair.b.raddr_segment(0), pair.a.data_segment(0, 64)],
    );
    pair.b.host.nic.set_port(PORT, false);
    pair.run_until_idle();
    assert_eq!(pair.a.cq.poll_all(), []);
    pair.b.host.nic.set_port(PORT, true);
    pair.advance(TIMEOUT + 1_000_000, 1_000_000);
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, counter)]);
}

#[test]
fn a_changed_gid_table_raises_an_event_and_stops_no_request() {
    let mut pair = Pair::new();
    pair.a.host.nic.change_gids(PORT);
    pair.a.host.nic.change_gids(OTHER_DEVICE);
    let port = AsyncObject::Port(1);
    assert_eq!(async_events(&pair.a), [(AsyncEvent::GidChange, port)]);
    pair.a.post(NOP, SIGNALLED, &[]);
    pair.run_until_idle();
    assert_eq!(pair.a.cq.poll_all().len(), 1);
}

#[test]
fn a_failed_device_executes_nothing_and_its_peer_exceeds_its_retries() {
    let mut pair = Pair::with_attributes(QpAttr {
        retry_count: 1,
        ..attributes()
    });
    let receive = pair.b.data_segment(0, 64);
    pair.b.qp.post_receive(&[receive]);
    let counter = pair.a.post(SEND, SIGNALLED, &[inline_segment(b"x")]);
    pair.b.host.nic.fail_device(0);
    pair.b.host.nic.fail_device(0);
    assert_eq!(
        async_events(&pair.b),
        [(AsyncEvent::DeviceFatal, AsyncObject::Device)]
    );
    pair.advance(3 * TIMEOUT, 1_000_000);
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(0x15, counter)]);
    // No request is executed or completed, and no violation is counted.
    pair.b.post(NOP, SIGNALLED, &[]);
    pair.run_until_idle();
    assert_eq!(pair.b.cq.poll_all(), []);
    assert_eq!(pair.b.state(), RESET);
    pair.assert_no_violations();
    let nic = &mut pair.b.host.nic;
    assert!(nic.has_failed(pair.b.host.context));
    assert_eq!(nic.open_context(0), Err(Errno(libc::EIO)));
    assert_eq!(async_events(&pair.b), []);
}

#[test]
fn other_devices_of_the_process_continue() {
    let mut host = Host::with_options(crate::nic::NicOptions {
        devices: 2,
        ..crate::nic::NicOptions::default()
    });
    host.nic.open_context(1).unwrap();
    host.nic.fail_device(1);
    assert!(!host.nic.has_failed(host.context));
    assert!(host.nic.port_is_up(PORT) && !host.nic.port_is_up(OTHER_DEVICE));
    assert_eq!(
        host.events.take().len(),
        1,
        "one event, for the context of device 1"
    );
    assert!(host.nic.open_context(0).is_ok());
}

#[test]
fn an_injected_rnr_nak_is_retried() {
    let mut pair = Pair::new();
    let receive = pair.b.data_segment(0, 64);
    pair.b.qp.post_receive(&[receive]);
    pair.b
        .host
        .nic
        .set_fault_injector(Some(Box::new(ScriptedFaults {
            receives: [true].into(),
            ..ScriptedFaults::default()
        })));
    let counter = pair.a.post(SEND, SIGNALLED, &[inline_segment(b"again")]);
    pair.run_until_idle();
    assert_eq!(
        (pair.a.cq.poll_all(), pair.b.cq.poll_all()),
        (vec![], vec![])
    );
    pair.advance(1_000_000, 100_000);
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(OK, counter)]);
    assert_eq!(pair.b.memory.get(0, 5), b"again");
    assert_eq!(pair.b.cq.poll_all().len(), 1);
}

#[test]
fn a_corrupt_cqe_fails_its_qp_and_flushes_the_other_requests() {
    let mut pair = Pair::new();
    pair.a
        .host
        .nic
        .set_fault_injector(Some(Box::new(ScriptedFaults {
            completions: [CompletionOutcome::Success, CompletionOutcome::Corrupt].into(),
            ..ScriptedFaults::default()
        })));
    for _ in 0..2 {
        pair.a.post(NOP, SIGNALLED, &[]);
    }
    let segments = [pair.b.raddr_segment(0), pair.a.data_segment(0, 64)];
    pair.a.post(WRITE, SIGNALLED, &segments);
    pair.run_until_idle();
    assert_eq!(
        statuses(&pair.a.cq.poll_all()),
        [(OK, 0), (NO_SYNDROME, 1), (FLUSHED, 2)]
    );
    let object = AsyncObject::Qp(0xa0);
    assert_eq!(async_events(&pair.a), [(AsyncEvent::QpFatal, object)]);
}

#[test]
fn an_injected_error_cqe_has_the_requested_syndrome() {
    for syndrome in [Syndrome::BadResponse, Syndrome::RnrRetryExceeded] {
        let mut pair = Pair::new();
        pair.a
            .host
            .nic
            .set_fault_injector(Some(Box::new(ScriptedFaults {
                completions: [CompletionOutcome::Failed(syndrome)].into(),
                ..ScriptedFaults::default()
            })));
        // One ack completes both.
        for _ in 0..2 {
            let segments = [pair.b.raddr_segment(0), pair.a.data_segment(0, 64)];
            pair.a.post(WRITE, SIGNALLED, &segments);
        }
        pair.run_until_idle();
        assert_eq!(
            statuses(&pair.a.cq.poll_all()),
            [(syndrome as u8, 0), (FLUSHED, 1)]
        );
    }
}

#[test]
fn an_injected_overrun_fails_the_cq_and_its_qps() {
    let mut pair = Pair::new();
    pair.a
        .host
        .nic
        .set_fault_injector(Some(Box::new(ScriptedFaults {
            completions: [CompletionOutcome::Overrun].into(),
            ..ScriptedFaults::default()
        })));
    pair.a.post(NOP, SIGNALLED, &[]);
    pair.a.post(NOP, SIGNALLED, &[]);
    pair.run_until_idle();
    assert_eq!(pair.a.cq.poll_all(), []);
    assert_eq!(
        async_events(&pair.a),
        [
            (AsyncEvent::CqErr, AsyncObject::Cq(0xc0)),
            (AsyncEvent::QpFatal, AsyncObject::Qp(0xa0))
        ]
    );
    assert_eq!(pair.a.state(), ERR);
}

#[test]
fn a_doorbell_record_beyond_the_ring_size_fails_the_qp() {
    let mut host = Host::with_options(crate::nic::NicOptions {
        view: DoorbellView::Register,
        ..crate::nic::NicOptions::default()
    });
    let cq = host.create_cq(64, 64);
    let spec = host.qp_spec(cq.cqn);
    let mut qp = host.create_qp(spec);
    modify_to_rts(&mut host.nic, qp.qpn, Qpn(2 << 16 | 1), attributes());
    qp.dbrec.put_be32(4, 1000);
    host.store_doorbell(0x800, [1; 8]);
    assert_eq!(host.nic.query_qp(qp.qpn).unwrap().state, ERR);
    assert_eq!(host.nic.violations().count(), 1);
    let object = AsyncObject::Qp(0xa0);
    assert_eq!(
        host.events.take(),
        [Event::Asynchronous(AsyncEvent::QpFatal, object)]
    );
    // Only once: the record is not read again.
    host.store_doorbell(0x800, [1; 8]);
    assert_eq!(host.events.take(), []);
}

/// Every command that creates an object can fail with ENOMEM. It then has created
/// nothing, and succeeds when memory is available again.
#[test]
fn a_command_that_fails_with_enomem_creates_nothing_and_can_be_repeated() {
    let mut host = Host::new(1);
    let memory = Buffer::new(4096);
    let (context, pd) = (host.context, host.pd);
    let cq = host.create_cq(16, 64);
    let qp = host.create_qp(host.qp_spec(cq.cqn));
    let key = host.register_buffer(&memory, 64, ALL_ACCESS) >> 8;
    let (cq_spec, at) = (
        *host.nic.cq_spec(cq.cqn).expect("the CQ exists"),
        memory.at(),
    );
    let mr_spec = MrSpec {
        context,
        pd,
        start: at,
        length: 64,
        hca_va: at,
        access: ALL_ACCESS,
    };
    let srq_spec = SrqSpec {
        context,
        pd,
        buf: at,
        wqe_count: 16,
        stride_log2: 5,
        dbrec: at,
        limit: 0,
        user_handle: 0,
        user_index: 0,
    };
    let larger = CqBuffer {
        buf: at,
        cqe_count: 32,
        cqe_size: 64,
    };
    let to_init = QpAttr {
        mask: mask::STATE | mask::PKEY_INDEX | mask::PORT | mask::ACCESS_FLAGS,
        state: 1,
        port: 1,
        ..QpAttr::default()
    };
    type Command<'a> = (
        &'a str,
        &'a dyn Fn(&mut crate::nic::Nic) -> Result<()>,
        usize,
    );
    let commands: [Command; 10] = [
        ("context", &|nic| nic.open_context(0).map(drop), 1),
        ("pd", &|nic| nic.alloc_pd(context).map(drop), 1),
        ("mr", &|nic| nic.reg_mr(&mr_spec).map(drop), 1),
        ("rereg", &|nic| nic.rereg_mr(key, &mr_spec, true), 0),
        (
            "mw",
            &|nic| {
                let kind = WindowType::Two;
                nic.alloc_mw(&MwSpec { context, pd, kind }).map(drop)
            },
            1,
        ),
        ("cq", &|nic| nic.create_cq(&cq_spec).map(drop), 1),
        ("resize", &|nic| nic.resize_cq(cq.cqn, &larger), 0),
        ("srq", &|nic| nic.create_srq(&srq_spec).map(drop), 1),
        ("qp", &|nic| nic.create_qp(&qp.spec).map(drop), 1),
        ("init", &|nic| nic.modify_qp(qp.qpn, &to_init), 0),
    ];
    let total = |nic: &crate::nic::Nic| {
        let all = nic.object_counts();
        all.contexts + all.pds + all.keys + all.cqs + all.srqs + all.qps
    };
    for (name, command, created) in commands {
        let nic = &mut host.nic;
        nic.set_fault_injector(Some(Box::new(ScriptedFaults {
            commands: [true].into(),
            ..ScriptedFaults::default()
        })));
        let (before, state) = (nic.object_counts(), nic.query_qp(qp.qpn).unwrap().state);
        assert_eq!(command(nic), Err(Errno(libc::ENOMEM)), "{name}");
        assert_eq!(nic.object_counts(), before, "{name}");
        assert_eq!(nic.query_qp(qp.qpn).unwrap().state, state, "{name}");
        let count = total(nic);
        assert_eq!(command(nic), Ok(()), "{name}");
        assert_eq!(total(nic), count + created, "{name}");
    }
    // A QP can be modified to RESET or ERR without memory.
    host.nic.set_fault_injector(Some(Box::new(ScriptedFaults {
        commands: [true].into(),
        ..ScriptedFaults::default()
    })));
    let to = |state| QpAttr {
        mask: mask::STATE,
        state,
        ..QpAttr::default()
    };
    for state in [ERR, RESET] {
        assert_eq!(host.nic.modify_qp(qp.qpn, &to(state)), Ok(()));
    }
}

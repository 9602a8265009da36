//! What happens to a QP, a port or a device from outside, and who is told.

use std::collections::VecDeque;

use super::rig::*;
use crate::decode::cqe::Syndrome;
use crate::nic::qp_modify::mask;
use crate::nic::spec::*;
use crate::nic::{CompletionOutcome, FaultInjector};

const FLUSHED: u8 = 0x05;
const NO_SYNDROME: u8 = 0xee;
const RESET: u8 = 0;
const ERR: u8 = 6;
const PORT: PortAddress = PortAddress { device: 0, port: 1 };
const OTHER: PortAddress = PortAddress { device: 1, port: 1 };
/// The ack timeout of code 14.
const TIMEOUT: u64 = 4096 << 14;

/// What is to happen, in order; then nothing more.
#[derive(Default)]
struct Script {
    receives: VecDeque<bool>,
    completions: VecDeque<CompletionOutcome>,
    commands: VecDeque<bool>,
}

impl FaultInjector for Script {
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

fn told(end: &End) -> Vec<(AsyncEvent, AsyncObject)> {
    let events = end.host.events.take();
    let kind = |event| match event {
        Event::Asynchronous(event, object) => Some((event, object)),
        Event::Completion(_) => None,
    };
    events.into_iter().filter_map(kind).collect()
}

#[test]
fn a_qp_that_fails_flushes_everything_and_its_owner_is_told_once() {
    let mut world = World::new();
    let receive = world.a.segment(0, 64);
    world.a.qp.post_receive(&[receive]);
    let counter = world.a.post(SEND, SIGNALLED, &[inline(b"x")]);
    let (nic, qpn) = (&mut world.a.host.nic, world.a.qp.qpn);
    nic.fail_qp(qpn).unwrap();
    nic.fail_qp(qpn).unwrap();
    assert_eq!(
        outcome(&world.a.cq.all()),
        [(FLUSHED, counter), (FLUSHED, 0)]
    );
    assert_eq!(world.a.state(), ERR);
    let object = AsyncObject::Qp(0xa0);
    assert_eq!(told(&world.a), [(AsyncEvent::QpFatal, object)]);
    let unknown = Qpn(world.a.qp.qpn.0 + 99);
    assert_eq!(world.a.host.nic.fail_qp(unknown), Err(Errno(libc::EINVAL)));
}

#[test]
fn a_port_that_is_down_loses_packets_and_a_short_flap_costs_a_retry_only() {
    let mut world = World::new();
    let counter = world.a.post(
        WRITE,
        SIGNALLED,
        &[world.b.remote(0), world.a.segment(0, 64)],
    );
    world.a.host.nic.set_port(PORT, false);
    world.a.host.nic.set_port(PORT, false);
    assert!(!world.a.host.nic.port_is_up(PORT));
    let port = AsyncObject::Port(1);
    assert_eq!(told(&world.a), [(AsyncEvent::PortErr, port)]);
    world.run();
    assert!(world.wire.sent.is_empty());
    world.a.host.nic.set_port(PORT, true);
    assert_eq!(told(&world.a), [(AsyncEvent::PortActive, port)]);
    world.pass(TIMEOUT + 1_000_000, 1_000_000);
    assert_eq!(outcome(&world.a.cq.all()), [(OK, counter)]);
    // The other side's port: requests arrive nowhere.
    let counter = world.a.post(
        WRITE,
        SIGNALLED,
        &[world.b.remote(0), world.a.segment(0, 64)],
    );
    world.b.host.nic.set_port(PORT, false);
    world.run();
    assert_eq!(world.a.cq.all(), []);
    world.b.host.nic.set_port(PORT, true);
    world.pass(TIMEOUT + 1_000_000, 1_000_000);
    assert_eq!(outcome(&world.a.cq.all()), [(OK, counter)]);
}

#[test]
fn a_changed_gid_table_is_told_and_stops_nothing() {
    let mut world = World::new();
    world.a.host.nic.change_gids(PORT);
    world.a.host.nic.change_gids(OTHER);
    let port = AsyncObject::Port(1);
    assert_eq!(told(&world.a), [(AsyncEvent::GidChange, port)]);
    world.a.post(NOP, SIGNALLED, &[]);
    world.run();
    assert_eq!(world.a.cq.all().len(), 1);
}

#[test]
fn a_device_that_failed_does_nothing_more_and_its_peer_gives_up() {
    let mut world = World::with(QpAttr {
        retry_count: 1,
        ..attributes()
    });
    let receive = world.b.segment(0, 64);
    world.b.qp.post_receive(&[receive]);
    let counter = world.a.post(SEND, SIGNALLED, &[inline(b"x")]);
    world.b.host.nic.fail_device(0);
    world.b.host.nic.fail_device(0);
    assert_eq!(
        told(&world.b),
        [(AsyncEvent::DeviceFatal, AsyncObject::Device)]
    );
    world.pass(3 * TIMEOUT, 1_000_000);
    assert_eq!(outcome(&world.a.cq.all()), [(0x15, counter)]);
    // Nothing is executed, completed or complained about.
    world.b.post(NOP, SIGNALLED, &[]);
    world.run();
    assert_eq!(world.b.cq.all(), []);
    assert_eq!(world.b.state(), RESET);
    world.assert_no_violations();
    let nic = &mut world.b.host.nic;
    assert!(nic.has_failed(world.b.host.context));
    assert_eq!(nic.open_context(0), Err(Errno(libc::EIO)));
    assert_eq!(told(&world.b), []);
}

#[test]
fn other_devices_of_the_process_go_on() {
    let mut host = Host::with(crate::nic::NicOptions {
        devices: 2,
        ..crate::nic::NicOptions::default()
    });
    host.nic.open_context(1).unwrap();
    host.nic.fail_device(1);
    assert!(!host.nic.has_failed(host.context));
    assert!(host.nic.port_is_up(PORT) && !host.nic.port_is_up(OTHER));
    assert_eq!(host.events.take().len(), 1, "the context of device 1 only");
    assert!(host.nic.open_context(0).is_ok());
}

#[test]
fn a_receiver_that_happens_not_to_be_ready_is_waited_for() {
    let mut world = World::new();
    let receive = world.b.segment(0, 64);
    world.b.qp.post_receive(&[receive]);
    world.b.host.nic.set_fault_injector(Some(Box::new(Script {
        receives: [true].into(),
        ..Script::default()
    })));
    let counter = world.a.post(SEND, SIGNALLED, &[inline(b"again")]);
    world.run();
    assert_eq!((world.a.cq.all(), world.b.cq.all()), (vec![], vec![]));
    world.pass(1_000_000, 100_000);
    assert_eq!(outcome(&world.a.cq.all()), [(OK, counter)]);
    assert_eq!(world.b.memory.get(0, 5), b"again");
    assert_eq!(world.b.cq.all().len(), 1);
}

#[test]
fn a_corrupt_completion_fails_its_qp_and_the_rest_is_flushed() {
    let mut world = World::new();
    world.a.host.nic.set_fault_injector(Some(Box::new(Script {
        completions: [CompletionOutcome::Success, CompletionOutcome::Corrupt].into(),
        ..Script::default()
    })));
    for _ in 0..2 {
        world.a.post(NOP, SIGNALLED, &[]);
    }
    let segments = [world.b.remote(0), world.a.segment(0, 64)];
    world.a.post(WRITE, SIGNALLED, &segments);
    world.run();
    assert_eq!(
        outcome(&world.a.cq.all()),
        [(OK, 0), (NO_SYNDROME, 1), (FLUSHED, 2)]
    );
    let object = AsyncObject::Qp(0xa0);
    assert_eq!(told(&world.a), [(AsyncEvent::QpFatal, object)]);
}

#[test]
fn a_completion_that_is_to_fail_does_with_its_syndrome() {
    for syndrome in [Syndrome::BadResponse, Syndrome::RnrRetryExceeded] {
        let mut world = World::new();
        world.a.host.nic.set_fault_injector(Some(Box::new(Script {
            completions: [CompletionOutcome::Failed(syndrome)].into(),
            ..Script::default()
        })));
        // Both are acknowledged at once.
        for _ in 0..2 {
            let segments = [world.b.remote(0), world.a.segment(0, 64)];
            world.a.post(WRITE, SIGNALLED, &segments);
        }
        world.run();
        assert_eq!(
            outcome(&world.a.cq.all()),
            [(syndrome as u8, 0), (FLUSHED, 1)]
        );
    }
}

#[test]
fn an_overrun_that_happens_is_an_overrun() {
    let mut world = World::new();
    world.a.host.nic.set_fault_injector(Some(Box::new(Script {
        completions: [CompletionOutcome::Overrun].into(),
        ..Script::default()
    })));
    world.a.post(NOP, SIGNALLED, &[]);
    world.a.post(NOP, SIGNALLED, &[]);
    world.run();
    assert_eq!(world.a.cq.all(), []);
    assert_eq!(
        told(&world.a),
        [
            (AsyncEvent::CqErr, AsyncObject::Cq(0xc0)),
            (AsyncEvent::QpFatal, AsyncObject::Qp(0xa0))
        ]
    );
    assert_eq!(world.a.state(), ERR);
}

#[test]
fn a_record_that_announces_more_than_a_ring_holds_fails_the_qp() {
    let mut host = Host::with(crate::nic::NicOptions {
        view: DoorbellView::Register,
        ..crate::nic::NicOptions::default()
    });
    let cq = host.cq(64, 64);
    let spec = host.qp_spec(cq.cqn);
    let mut qp = host.qp(spec);
    bring_up(&mut host.nic, qp.qpn, Qpn(2 << 16 | 1), attributes());
    qp.dbrec.put_be32(4, 1000);
    host.store(0x800, [1; 8]);
    assert_eq!(host.nic.query_qp(qp.qpn).unwrap().state, ERR);
    assert_eq!(host.nic.violations().count(), 1);
    let object = AsyncObject::Qp(0xa0);
    assert_eq!(
        host.events.take(),
        [Event::Asynchronous(AsyncEvent::QpFatal, object)]
    );
    // And once: what it says is not looked at again.
    host.store(0x800, [1; 8]);
    assert_eq!(host.events.take(), []);
}

/// Each command that makes something can find the device's memory used up.
/// Then it has made nothing, and succeeds when there is memory again.
#[test]
fn a_command_that_finds_no_memory_leaves_nothing_and_may_be_repeated() {
    let mut host = Host::new(1);
    let memory = Buffer::new(4096);
    let (context, pd) = (host.context, host.pd);
    let cq = host.cq(16, 64);
    let qp = host.qp(host.qp_spec(cq.cqn));
    let key = host.key(&memory, 64, ALL_ACCESS) >> 8;
    let (cq_spec, at) = (*host.nic.cq_spec(cq.cqn).expect("made"), memory.at());
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
    for (name, command, makes) in commands {
        let nic = &mut host.nic;
        nic.set_fault_injector(Some(Box::new(Script {
            commands: [true].into(),
            ..Script::default()
        })));
        let (before, state) = (nic.object_counts(), nic.query_qp(qp.qpn).unwrap().state);
        assert_eq!(command(nic), Err(Errno(libc::ENOMEM)), "{name}");
        assert_eq!(nic.object_counts(), before, "{name}");
        assert_eq!(nic.query_qp(qp.qpn).unwrap().state, state, "{name}");
        let count = total(nic);
        assert_eq!(command(nic), Ok(()), "{name}");
        assert_eq!(total(nic), count + makes, "{name}");
    }
    // A QP can be taken out of use without.
    host.nic.set_fault_injector(Some(Box::new(Script {
        commands: [true].into(),
        ..Script::default()
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

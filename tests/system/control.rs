//! The control path on the emulated device: what the device reports about rings,
//! and the lifetime of objects.

use dat_engine::control::{
    AsyncEventKind, AsyncSource, QpSpec, QpState, VerbsCq, VerbsQp, VerbsSrq,
};
use dat_engine::{
    Access, Arm, AsyncEvent, Completion, ConnectOptions, ControlErrorKind, CqOptions, CqeSize,
    Device, EndpointOptions, InlineShape, LinkLayer, Mtu, PathRequest, RecvRequest, SendFlags,
    SendOp, SendRequest, SrqOptions, Status, TransportOptions, devices,
};
use mlx5emu::spec::{Cqn, Qpn, Srqn};

use crate::support::device;
use crate::support::iwarp;
use crate::support::system::System;

fn spec<'a>(send_cq: &'a VerbsCq, recv_cq: &'a VerbsCq, srq: Option<&'a VerbsSrq>) -> QpSpec<'a> {
    QpSpec {
        send_cq,
        recv_cq,
        srq,
        send_depth: 16,
        recv_depth: 32,
        send_segments: 2,
        recv_segments: 2,
        inline_bytes: 64,
        inline_or_fewer: false,
        exclusive_register: false,
        payload_in_completion: true,
        windows: false,
    }
}

fn cq(device: &Device) -> VerbsCq {
    VerbsCq::create(device, 64, CqeSize::Default, None, 0).expect("a CQ")
}

#[test]
fn handles_may_be_dropped_in_any_order_and_no_object_remains() {
    let system = System::new();
    let (qpn, cqn, srqn);
    {
        let device = Device::open(device::name()).expect("the device");
        let domain = device.alloc_pd().expect("a domain");
        let channel = device.create_channel().expect("a channel");
        let buffer = domain.allocate(4096, Access::default()).expect("a buffer");
        let cq = VerbsCq::create(&device, 64, CqeSize::Default, Some(&channel), 0).expect("a CQ");
        let srq = VerbsSrq::create(&domain, 16, 1).expect("an SRQ");
        let exclusive = QpSpec {
            exclusive_register: true,
            ..spec(&cq, &cq, Some(&srq))
        };
        let qp = VerbsQp::create(&domain, &exclusive).expect("a QP");
        let layout = qp.send_layout();
        assert!(layout.is_none_or(|layout| layout.register.exclusive));
        (qpn, cqn, srqn) = (qp.qpn(), cq.cqn(), srq.srqn());
        // Dropped before what uses it.
        drop(device);
        drop(channel);
        drop(domain);
        drop(cq);
        drop(srq);
        drop(buffer);
        assert_eq!(qp.state().expect("the state"), QpState::Reset);
    }
    if let Some(emulator) = device::emulator() {
        let nic = emulator.nic();
        assert!(nic.qp_spec(Qpn(qpn)).is_none());
        assert!(nic.cq_spec(Cqn(cqn)).is_none());
        assert!(nic.srq_spec(Srqn(srqn)).is_none());
    }
    drop(system);
}

/// On siw each of these queues takes one or two pages, and its library misreads
/// one mmap offset as an error: see `engine/src/control/siw_offset.rs`.
#[test]
fn hundreds_of_queues_are_created_wherever_they_are_placed() {
    let system = System::new();
    let cqs: Vec<VerbsCq> = (0..200)
        .map(|at| {
            let cq = VerbsCq::create(&system.device, 1, CqeSize::Default, None, 0);
            cq.unwrap_or_else(|error| panic!("CQ {at}: {error}"))
        })
        .collect();
    let domain = system.device.alloc_pd().expect("a domain");
    let one = cqs[0].clone();
    drop(cqs);
    let qps: Vec<VerbsQp> = (0..100)
        .map(|at| {
            let qp = VerbsQp::create(&domain, &spec(&one, &one, None));
            qp.unwrap_or_else(|error| panic!("QP {at}: {error}"))
        })
        .collect();
    drop(qps);
}

#[test]
fn a_child_after_fork_gets_errors_and_destroys_nothing_of_its_parent() {
    let system = System::new();
    let domain = system.device.alloc_pd().expect("a domain");
    let cq = cq(&system.device);
    let qp = VerbsQp::create(&domain, &spec(&cq, &cq, None)).expect("a QP");
    let qpn = qp.qpn();
    // SAFETY: the child only makes calls that are refused and drops handles, and
    // leaves without running the parent's destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = |error: dat_engine::ControlError| error.kind() == ControlErrorKind::Forked;
        let good = system.device.alloc_pd().is_err_and(refused)
            && qp.to_error().is_err_and(refused)
            && domain.allocate(4096, Access::default()).is_err_and(refused);
        drop(qp);
        drop(cq);
        drop(domain);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was just forked.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        "status {status:#x}"
    );
    assert_eq!(qp.state().expect("the state"), QpState::Reset);
    if let Some(emulator) = device::emulator() {
        assert!(emulator.nic().qp_spec(Qpn(qpn)).is_some());
    }
}

#[test]
fn states_are_reached_in_order_or_refused_with_the_state_named() {
    let system = System::new();
    let domain = system.device.alloc_pd().expect("a domain");
    let cq = cq(&system.device);
    let qp = VerbsQp::create(&domain, &spec(&cq, &cq, None)).expect("a QP");
    let options = ConnectOptions::default();
    let peer = qp.local_address(1).expect("an address");

    let error = qp.to_rts(&options).expect_err("RESET to RTS");
    assert!(
        error.to_string().contains("is in the state RESET"),
        "{error}"
    );
    qp.to_init(&options).expect("INIT");
    qp.to_rtr(&peer, &options).expect("RTR to itself");
    assert_eq!(qp.state().expect("the state"), QpState::ReadyToReceive);
    qp.to_rts(&options).expect("RTS");
    qp.to_error().expect("ERR");
    assert_eq!(qp.state().expect("the state"), QpState::Error);
    // SAFETY: no endpoint drives it.
    unsafe { qp.to_reset() }.expect("RESET");
    assert_eq!(qp.state().expect("the state"), QpState::Reset);
    assert_ne!(
        qp.local_address(1).expect("an address").psn,
        peer.psn,
        "late packets would fit"
    );
}

#[test]
fn transport_options_reach_the_queue_pair() {
    let system = System::new();
    let domain = system.device.alloc_pd().expect("a domain");
    let cq = cq(&system.device);
    let qp = VerbsQp::create(&domain, &spec(&cq, &cq, None)).expect("a QP");
    let with = |pkey| ConnectOptions {
        transport: TransportOptions {
            sl: Some(3),
            traffic_class: Some(106),
            mtu: Mtu::from_bytes(512),
            timeout: Some(18),
            retry: Some(5),
            rnr_retry: Some(6),
            rnr_timer: Some(14),
            pkey: Some(pkey),
        },
        ..ConnectOptions::default()
    };
    let error = qp.to_init(&with(0x8123)).expect_err("another partition");
    assert!(error.to_string().contains("0x8123"), "{error}");
    // The table has it as that of a full member.
    let options = with(0x7fff);
    let peer = qp.local_address_for(&options).expect("an address");
    assert_eq!(peer.mtu, 2, "512 bytes, for the peer");
    qp.to_init(&options).expect("INIT");
    qp.to_rtr(&peer, &options).expect("RTR to itself");
    qp.to_rts(&options).expect("RTS");
    let has = qp.query().expect("the attributes");
    assert_eq!((has.mtu, has.timeout), (2, 18));
    assert_eq!((has.retry, has.rnr_retry, has.min_rnr_timer), (5, 6, 14));
    assert_eq!(has.pkey_index, 0);
    // Within an InfiniBand subnet packets have no global route header, and so no traffic class;
    // the kernel's mlx5 driver then does not set it.
    if peer.link == LinkLayer::Ethernet || device::emulator().is_some() {
        assert_eq!(has.traffic_class, 106);
    }
    // Soft-RoCE does not report it.
    if device::emulator().is_some() {
        assert_eq!(has.sl, 3);
    }
}

#[test]
fn wrong_arguments_are_refused_and_the_limit_is_named() {
    let system = System::new();
    let (device, limits) = (&system.device, system.device.limits());
    let domain = device.alloc_pd().expect("a domain");
    let good = cq(device);
    let limit = |result: Result<(), dat_engine::ControlError>, name: &str| {
        let error = result.expect_err(name);
        assert_eq!(error.kind(), ControlErrorKind::Limit, "{error}");
        assert!(error.to_string().contains(name), "{error}");
    };
    let create_cq =
        |depth, vector| VerbsCq::create(device, depth, CqeSize::Default, None, vector).map(drop);
    limit(create_cq(0, 0), "at least 1");
    limit(create_cq(limits.cq_depth + 1, 0), "max_cqe");
    limit(create_cq(1, limits.vectors), "num_comp_vectors");
    let create_srq = |depth, segments| VerbsSrq::create(&domain, depth, segments).map(drop);
    limit(create_srq(0, 1), "at least 1");
    limit(create_srq(limits.srq_depth + 1, 1), "max_srq_wr");
    limit(create_srq(1, limits.srq_segments + 1), "max_srq_sge");
    let qp = |change: fn(&mut QpSpec<'_>, u32), value| {
        let mut spec = spec(&good, &good, None);
        change(&mut spec, value);
        VerbsQp::create(&domain, &spec).map(drop)
    };
    limit(qp(|spec, n| spec.send_depth = n, 0), "at least 1");
    limit(
        qp(|spec, n| spec.recv_depth = n, limits.queue_depth + 1),
        "max_qp_wr",
    );
    limit(
        qp(|spec, n| spec.send_segments = n, limits.segments + 1),
        "max_sge",
    );
    // Within each limit, but too large together.
    let error = qp(|spec, n| spec.inline_bytes = n, 1 << 20).expect_err("a megabyte inline");
    assert!(
        error.to_string().contains("1048576 inline bytes"),
        "{error}"
    );
    limit(
        domain.allocate(0, Access::default()).map(drop),
        "length is 0",
    );

    let other = Device::open(device::name()).expect("the device again");
    let error = VerbsQp::create(&domain, &spec(&cq(&other), &good, None)).map(drop);
    assert!(
        error
            .expect_err("parts of two devices")
            .to_string()
            .contains("different devices")
    );
}

#[test]
fn a_refused_inline_size_names_the_largest_one_which_is_accepted() {
    let system = System::new();
    let domain = system.device.alloc_pd().expect("a domain");
    let cq = cq(&system.device);
    let create = |inline_bytes, inline_or_fewer| {
        let spec = QpSpec {
            inline_bytes,
            inline_or_fewer,
            ..spec(&cq, &cq, None)
        };
        VerbsQp::create(&domain, &spec).map(|qp| qp.grant().inline_bytes)
    };
    let largest = create(1 << 20, true).expect("the largest inline size");
    assert!((64..1 << 20).contains(&largest), "{largest}");
    assert_eq!(
        create(largest, false).expect("the largest inline size again"),
        largest
    );
    let error = create(largest + 1, false).expect_err("one more");
    assert_eq!(error.kind(), ControlErrorKind::Limit);
    let expected = format!("the device supports at most {largest} bytes inline");
    assert!(error.to_string().contains(&expected), "{error}");
    assert!(error.remedy().contains(&largest.to_string()), "{error}");
    // Endpoints use the whole inline size.
    let shape = InlineShape {
        send_depth: 16,
        recv_depth: 16,
        send_segments: 1,
    };
    let found = domain.probe_inline(&shape, 1 << 20).expect("an endpoint");
    assert!(found >= 64, "{found}");
}

#[test]
fn resizing_a_shared_receive_queue_fails_with_a_remedy() {
    let system = System::new();
    let domain = system.device.alloc_pd().expect("a domain");
    let srq = VerbsSrq::create(&domain, 16, 1).expect("an SRQ");
    let error = srq.resize(32).expect_err("mlx5 cannot");
    assert_eq!(error.kind(), ControlErrorKind::Unsupported);
    assert_eq!(error.errno(), Some(libc::EINVAL));
    assert!(error.remedy().contains("largest depth"), "{error}");
}

#[test]
fn unmapped_memory_and_missing_rights_are_refused() {
    let system = System::new();
    let domain = system.device.alloc_pd().expect("a domain");
    let nowhere = core::ptr::without_provenance_mut(0x1000);
    // SAFETY: nothing is mapped in the first pages, so no region is created.
    let result = unsafe { domain.register(nowhere, 4096, Access::default()) };
    let error = result.map(drop).expect_err("unmapped memory");
    assert_eq!(error.errno(), Some(libc::EFAULT), "{error}");
    assert!(error.to_string().contains("are mapped"), "{error}");
    let error = domain
        .allocate(64, Access::REMOTE_WRITE)
        .map(drop)
        .expect_err("not writable");
    assert!(error.to_string().contains("LOCAL_WRITE"), "{error}");
}

#[test]
fn buffers_are_zeroed_bounded_and_keep_what_is_written() {
    let system = System::new();
    let domain = system.device.alloc_pd().expect("a domain");
    let buffer = domain.allocate(100, Access::default()).expect("a buffer");
    let segment = buffer.segment(36, 64).expect("inside");
    assert_eq!(segment.addr, buffer.as_ptr().addr().get() as u64 + 36);
    assert_eq!((segment.length, segment.lkey), (64, buffer.region().lkey()));
    assert_eq!(buffer.segment(37, 64), None);
    assert_eq!(buffer.segment(usize::MAX, 1), None);
    let mut bytes = [1; 4];
    // SAFETY: nothing is posted.
    unsafe {
        assert!(buffer.read(0, &mut bytes));
        assert_eq!(bytes, [0; 4]);
        assert!(buffer.write(96, b"tail"));
        assert!(!buffer.write(97, b"tail"));
        assert!(buffer.read(96, &mut bytes));
        assert!(!buffer.read(97, &mut bytes));
    }
    assert_eq!(&bytes, b"tail");
}

#[test]
fn the_device_is_described_and_an_unknown_one_is_refused_with_the_names() {
    let system = System::new();
    let devices = devices().expect("a list");
    let device = devices
        .iter()
        .find(|device| device.name == device::name())
        .expect("the device");
    assert_eq!(
        device.path,
        system.device.info().path,
        "the path that opening selects"
    );
    if system.is_stepped() {
        let asked = PathRequest::from_environment().expect("a path");
        let direct = device.path == dat_engine::DataPath::Direct;
        assert_eq!(direct, asked != PathRequest::Verbs, "{asked}");
    }
    let port = &device.ports[0];
    assert_eq!(
        (port.number, port.state),
        (1, dat_engine::PortState::Active)
    );
    let message = if system.is_stepped() {
        1 << 30
    } else {
        1 << 20
    };
    assert!(port.gid().is_ok() && port.max_message >= message);
    let error = Device::open("mlx5_99")
        .map(drop)
        .expect_err("no such device");
    assert_eq!(error.kind(), ControlErrorKind::UnknownDevice);
    assert!(error.remedy().contains(device::name()), "{error}");
}

#[test]
fn events_are_counted_at_their_queue_and_name_their_object() {
    let system = System::new();
    let options = ConnectOptions::default();
    let dev = &system.device;
    let domain = dev.alloc_pd().expect("a domain");
    let buffer = domain.allocate(4096, Access::default()).expect("a buffer");
    let channel = dev.create_channel().expect("a channel");
    let create = |channel| {
        let options = CqOptions {
            depth: 64,
            channel,
            ..CqOptions::default()
        };
        dev.create_cq(&options).expect("a CQ")
    };
    let (mut cq, without_channel) = (create(Some(&channel)), create(Some(&channel)));
    let shape = SrqOptions {
        depth: 16,
        max_segments: 1,
    };
    let mut srq = domain.create_srq(&shape).expect("an SRQ");
    let with_srq = EndpointOptions {
        srq: Some(srq.handle()),
        ..EndpointOptions::new(cq.handle(), cq.handle())
    };
    let mut a = domain.create_endpoint(&with_srq).expect("an endpoint");
    let mut b = domain.create_endpoint(&with_srq).expect("an endpoint");
    if iwarp::is_iwarp() {
        iwarp::join([&mut a, &mut b], &options);
    } else {
        let (at_a, at_b) = (
            a.local_address(1).expect("a"),
            b.local_address(1).expect("b"),
        );
        a.connect(&at_b, &options).expect("a connects");
        b.connect(&at_a, &options).expect("b connects");
    }

    let recv = [buffer.segment(0, 64).expect("inside")];
    for wr_id in 0..2 {
        // SAFETY: the buffer outlives its use by the endpoints.
        unsafe {
            srq.post(&RecvRequest {
                wr_id,
                segments: &recv,
            })
        }
        .expect("room");
    }
    srq.set_limit(2).expect("a limit");
    assert_eq!(dev.async_events().count(), 0, "nothing happened yet");
    cq.arm(Arm::Any).expect("armed");
    let send = [buffer.segment(1024, 64).expect("inside")];
    let request = SendRequest {
        wr_id: 7,
        op: SendOp::Send,
        flags: SendFlags::SIGNALED,
        segments: &send,
    };
    // SAFETY: as above.
    unsafe { a.post_send(&request) }.expect("room");
    system.run();

    let drained = || Some(channel.drain().expect("events")).filter(|&count| count > 0);
    assert_eq!(device::comes(drained), Some(1));
    assert_eq!(
        (
            cq.verbs().event_count(),
            without_channel.verbs().event_count()
        ),
        (1, 0)
    );
    let mut done = [Completion::default(); 4];
    let mut count = 0;
    device::comes(|| {
        count += cq.poll_batch(&mut done[count..]);
        (count >= 2).then_some(())
    });
    assert_eq!(count, 2);
    assert!(
        done[..count]
            .iter()
            .all(|one| one.status == Status::Success)
    );

    let is_limit = |event: &AsyncEvent| event.kind == AsyncEventKind::SrqLimit;
    let events = system.events(is_limit);
    let limit = events.iter().find(|event| is_limit(event));
    let source = limit
        .unwrap_or_else(|| panic!("no limit event in {events:?}"))
        .source;
    assert_eq!(source, AsyncSource::Srq(srq.verbs().id()));
    // siw's library does not support the query.
    if !iwarp::is_iwarp() {
        assert_eq!(srq.verbs().limit().expect("the limit"), 0, "it fires once");
    }

    // An event that is never read must not keep its queue from being destroyed.
    cq.arm(Arm::Any).expect("armed");
    // SAFETY: as above.
    unsafe { a.post_send(&request) }.expect("room");
    system.run();
}

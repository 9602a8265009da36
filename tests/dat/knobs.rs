//! The keys of dat.conf for the network (`sl`, `traffic_class`, `mtu`, `timeout`,
//! `retry`, `rnr_retry`, `rnr_timer`, `pkey`, `gid`) and for payload in completions
//! (`scatter`): they reach the queue pairs, adapters report them, and wrong values are
//! refused.

use std::ffi::CString;
use std::ptr;
use std::time::Duration;

use dat::abi::*;
use dat::exports::*;
use dat_engine::{Device, Transport};
use mlx5emu::spec::{QpAttr, Qpn};

use crate::support::{
    End, Fixture, MessagePair, Pair, Shape, device, fails, fails_with, is_iwarp, ok, post_srq, srq,
    with_entry,
};

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;
/// `IBV_QPS_RTS`.
const READY_TO_SEND: u8 = 3;

/// Returns the attributes of the emulated device's connected queue pairs; `None` on
/// another device.
fn connected() -> Option<Vec<QpAttr>> {
    let emulator = device::emulator()?;
    let slot = u32::from(emulator.slot()) << 16;
    let nic = emulator.nic();
    let all = (0..1 << 16).filter_map(|number| nic.query_qp(Qpn(slot | number)).ok());
    Some(all.filter(|qp| qp.state == READY_TO_SEND).collect())
}

/// Returns whether connections use rdma_cm, which determines GID, partition and MTU
/// by the route and refuses keys that differ.
fn is_rdma_cm(fixture: &Fixture) -> bool {
    fixture.manager() == "rdma_cm"
}

/// Returns whether the device uses InfiniBand.
fn is_infiniband() -> bool {
    let devices = dat_engine::devices().expect("the list of devices");
    let found = devices.into_iter().find(|one| one.name == device::name());
    found.is_some_and(|one| one.transport == Transport::InfiniBand)
}

/// Opens and closes an adapter with these settings; returns the code of opening it.
fn open(settings: &str) -> DAT_RETURN {
    with_entry(settings, |name| {
        let (mut ia, mut evd) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: every pointer leads to what the call expects.
        let answer = unsafe {
            dat_ia_openv(
                name.as_ptr().cast_mut(),
                8,
                &raw mut evd,
                &raw mut ia,
                1,
                2,
                DAT_FALSE,
            )
        };
        if answer == DAT_SUCCESS {
            // SAFETY: a live handle.
            ok(unsafe { dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG) });
        }
        answer
    })
}

#[track_caller]
fn reports(fixture: &Fixture, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        let wanted = CString::new(*name).expect("no NUL");
        let found = fixture.attribute(&wanted);
        assert_eq!(found.as_deref(), Some(*value), "{name}");
    }
}

/// A message of several packets passes in both directions.
fn long_messages_pass(fixture: &Fixture, pair: &Pair) {
    let mut memory = fixture.memory(1 << 14);
    let pattern: Vec<u8> = (0..5000_u32).map(|at| (at % 251) as u8).collect();
    memory.write(0, &pattern);
    for (from, to) in [(pair.active, pair.passive), (pair.passive, pair.active)] {
        memory.write(8192, &[0; 5000]);
        ok(to.post_recv(&[memory.segment(8192, 5000)], 1));
        ok(from.post_send(&[memory.segment(0, 5000)], 2, DEFAULT));
        fixture.run();
        assert_eq!(to.received().status, DAT_DTO_SUCCESS);
        assert_eq!(from.requested().status, DAT_DTO_SUCCESS);
        assert_eq!(memory.read(8192, 5000), pattern);
    }
}

#[test]
fn each_key_reaches_both_queue_pairs_and_is_reported() {
    let fixture = Fixture::new();
    if connected().is_none() {
        eprintln!("SKIPPED: only the emulated NIC shows the attributes of its queue pairs");
        return;
    }
    let by_rdma_cm = is_rdma_cm(&fixture);
    drop(fixture);
    let of_both = "sl=3 traffic_class=106 timeout=18 retry=5 rnr_retry=6 rnr_timer=14";
    let of_sockets = "gid=0 pkey=0x7fff mtu=1024";
    let fixture = match by_rdma_cm {
        true => Fixture::configured(of_both),
        false => Fixture::configured(&format!("{of_sockets} {of_both}")),
    };
    // The partition is the entry of the table: a full member.
    let (gid, pkey, mtu) = match by_rdma_cm {
        true => ("route", "route", "route"),
        false => ("0", "0xffff", "1024"),
    };
    reports(
        &fixture,
        &[
            ("gid", gid),
            ("pkey", pkey),
            ("sl", "3"),
            ("traffic_class", "106"),
            ("mtu", mtu),
            ("timeout", "18"),
            ("retry", "5"),
            ("rnr_retry", "6"),
            ("rnr_timer", "14"),
            ("scatter", "1"),
        ],
    );
    let pair = Pair::new(&fixture, &Shape::default());
    let qps = connected().expect("the emulated NIC");
    assert_eq!(qps.len(), 2);
    for qp in &qps {
        assert_eq!((qp.path.sl, qp.path.traffic_class), (3, 106));
        assert_eq!(qp.pkey_index, 0);
        if !by_rdma_cm {
            assert_eq!((qp.path.sgid_index, qp.path_mtu), (0, 3));
        }
        assert_eq!(qp.timeout, 18);
        let retries = (qp.retry_count, qp.rnr_retry, qp.min_rnr_timer);
        assert_eq!(retries, (5, 6, 14));
    }
    long_messages_pass(&fixture, &pair);
}

#[test]
fn without_keys_the_defaults_reach_the_queue_pairs_and_are_reported() {
    let fixture = Fixture::new();
    let pair = Pair::new(&fixture, &Shape::default());
    let Some(qps) = connected() else {
        eprintln!("SKIPPED: only the emulated NIC shows the attributes of its queue pairs");
        return;
    };
    let by_rdma_cm = is_rdma_cm(&fixture);
    let or_route = |value| if by_rdma_cm { "route" } else { value };
    reports(
        &fixture,
        &[
            ("gid", or_route("0")),
            ("pkey", or_route("0xffff")),
            ("sl", or_route("0")),
            ("traffic_class", or_route("0")),
            ("mtu", or_route("4096")),
            ("timeout", or_route("16")),
            ("retry", "7"),
            ("rnr_retry", "7"),
            ("rnr_timer", "12"),
            ("scatter", "1"),
        ],
    );
    assert_eq!(qps.len(), 2);
    for qp in &qps {
        assert_eq!((qp.path.sl, qp.path.traffic_class), (0, 0));
        // Over rdma_cm the requester's is that of the engine; the other side adds the
        // delay of the requester's device (16) and the lifetime of packets.
        let timeouts = if by_rdma_cm { 14..=18 } else { 16..=16 };
        assert!(timeouts.contains(&qp.timeout), "{}", qp.timeout);
        assert_eq!(qp.path_mtu, 5);
        let retries = (qp.retry_count, qp.rnr_retry, qp.min_rnr_timer);
        assert_eq!(retries, (7, 7, 12));
    }
    long_messages_pass(&fixture, &pair);
}

#[test]
fn both_sides_use_the_smaller_mtu_and_each_its_own_traffic_class() {
    let fixture = Fixture::new();
    if connected().is_none() {
        eprintln!("SKIPPED: only the emulated NIC shows the attributes of its queue pairs");
        return;
    }
    // Over rdma_cm, the MTU is that of the route: 4096 bytes.
    let (mtus, expected) = match is_rdma_cm(&fixture) {
        true => (["", ""], 5),
        false => (["mtu=512", "mtu=2048"], 2),
    };
    let small = fixture.configured_beside(&format!("{} traffic_class=104", mtus[0]));
    let large = fixture.configured_beside(&format!("{} traffic_class=8", mtus[1]));
    let shape = Shape::default();
    for (from, to) in [(&small, &large), (&large, &small)] {
        let pair = Pair::connect(to, End::new(from, &shape), End::new(to, &shape));
        let mut qps = connected().expect("the emulated NIC");
        qps.sort_by_key(|qp| qp.path.traffic_class);
        let found: Vec<_> = qps
            .iter()
            .map(|qp| (qp.path_mtu, qp.path.traffic_class))
            .collect();
        assert_eq!(found, [(expected, 8), (expected, 104)]);
        for end in [pair.active, pair.passive] {
            // SAFETY: a live handle.
            ok(unsafe { dat_ep_free(end.ep) });
        }
    }
}

#[test]
fn keys_of_both_connection_managers_are_reported() {
    let fixture = Fixture::new();
    if is_iwarp() {
        return;
    }
    drop(fixture);
    let settings = "sl=3 traffic_class=104 timeout=18 retry=5 rnr_retry=6 rnr_timer=14 scatter=0";
    let fixture = Fixture::configured(settings);
    let expected: Vec<_> = settings
        .split(' ')
        .map(|setting| setting.split_once('=').expect("a key and a value"))
        .collect();
    reports(&fixture, &expected);
    let pair = Pair::new(&fixture, &Shape::default());
    long_messages_pass(&fixture, &pair);
}

#[test]
fn memory_is_placed_on_the_node_of_the_device_if_asked_and_that_is_reported() {
    let fixture = Fixture::configured("numa=any");
    reports(&fixture, &[("numa", "any")]);
    let engine = Device::open(device::name()).expect("a device");
    let expected = match engine.prefer_its_numa_node() {
        Ok(node) => format!("device (node {node})"),
        Err(error) => format!("any ({})", error.cause()),
    };
    drop((engine, fixture));
    let fixture = Fixture::configured("numa=device");
    reports(&fixture, &[("numa", &expected)]);
    let pair = Pair::new(&fixture, &Shape::default());
    long_messages_pass(&fixture, &pair);
}

#[test]
fn wrong_values_are_refused() {
    let _fixture = Fixture::new();
    for settings in [
        "sl=16",
        "traffic_class=256",
        "mtu=1500",
        "timeout=32",
        "retry=8",
        "rnr_retry=8",
        "rnr_timer=32",
        "pkey=0",
        "pkey=0x8000",
        "gid=256",
        "scatter=2",
        "numa=0",
        "trafic_class=104",
    ] {
        fails(open(settings), DAT_PROVIDER_NOT_FOUND);
    }
}

#[test]
fn what_the_device_or_its_port_does_not_have_is_refused() {
    let fixture = Fixture::new();
    if is_iwarp() {
        return;
    }
    for settings in ["pkey=0x6bad", "gid=255"] {
        // There rdma_cm connects in the partition of the network interface.
        if settings.starts_with("pkey") && is_rdma_cm(&fixture) && is_infiniband() {
            fails(open(settings), DAT_MODEL_NOT_SUPPORTED);
            continue;
        }
        fails_with(
            open(settings),
            DAT_INVALID_ADDRESS,
            DAT_INVALID_ADDRESS_UNSUPPORTED,
        );
    }
    // 7 on mlx5 devices, 6 on others.
    match fixture.attribute(c"retry").as_deref() {
        Some("7") => ok(open("retry=7")),
        _ => fails(open("retry=7"), DAT_INVALID_PARAMETER),
    }
    ok(open("timeout=0"));
    if device::emulator().is_some() {
        // The device may take 268 ms (16) to acknowledge.
        fails(open("timeout=15"), DAT_INVALID_PARAMETER);
        ok(open("timeout=16"));
    }
}

#[test]
fn on_iwarp_the_keys_are_refused() {
    let _fixture = Fixture::new();
    if !is_iwarp() {
        eprintln!("SKIPPED: needs an iWARP device");
        return;
    }
    for settings in [
        "gid=0",
        "pkey=0xffff",
        "sl=0",
        "traffic_class=0",
        "mtu=1024",
        "timeout=18",
        "retry=6",
        "rnr_retry=7",
        "rnr_timer=12",
    ] {
        fails(open(settings), DAT_MODEL_NOT_SUPPORTED);
    }
    ok(open("scatter=0"));
}

/// Sends messages of 1 to 32 bytes, which fit into a completion, and checks whether
/// the memory holds each before its completion is taken.
fn payload_is_in_memory(
    messages: &MessagePair<'_>,
    post: impl Fn(&[DAT_LMR_TRIPLET]),
    expected: bool,
) {
    let MessagePair { fixture, pair, .. } = messages;
    let mut memory = fixture.memory(4096);
    for length in [1, 8, 31, 32] {
        let pattern: Vec<u8> = (1..=length).collect();
        let length = pattern.len();
        memory.write(0, &pattern);
        memory.write(1024, &[0; 64]);
        post(&[memory.segment(1024, 64)]);
        ok(pair
            .active
            .post_send(&[memory.segment(0, length)], 1, DEFAULT));
        fixture.run();
        let arrived = match expected {
            true => device::comes(|| (memory.read(1024, length) == pattern).then_some(())),
            false => (memory.read(1024, length) != [0; 64][..length]).then_some(()),
        };
        assert_eq!(arrived.is_some(), expected, "{length} bytes");
        let received = pair.passive.received();
        assert_eq!(
            (received.status, received.length),
            (DAT_DTO_SUCCESS, length as u64)
        );
        assert_eq!(memory.read(1024, length), pattern);
        assert_eq!(pair.active.requested().status, DAT_DTO_SUCCESS);
    }
}

/// The receives are the endpoint's own, or those of a shared receive queue.
fn on_both_queues(fixture: &Fixture, expected: bool) {
    let shape = Shape::default();
    let own = MessagePair::new(fixture, &shape);
    let recv = own.pair.passive;
    payload_is_in_memory(&own, |iov| ok(recv.post_recv(iov, 1)), expected);
    let shared = srq(fixture, 16);
    let (active, passive) = (
        End::new(fixture, &shape),
        End::on_srq(fixture, &shape, shared),
    );
    let messages = MessagePair::of(fixture, Pair::connect(fixture, active, passive));
    payload_is_in_memory(&messages, |iov| ok(post_srq(shared, iov, 1)), expected);
}

#[test]
fn with_scatter_0_memory_holds_a_message_before_its_completion_is_taken() {
    let fixture = Fixture::configured("scatter=0");
    reports(&fixture, &[("scatter", "0")]);
    on_both_queues(&fixture, true);
}

#[test]
fn by_default_a_short_message_stays_in_its_completion_on_the_direct_path() {
    let fixture = Fixture::new();
    let direct = fixture.attribute(c"path").as_deref() == Some("direct");
    if !direct || device::emulator().is_none() {
        eprintln!("SKIPPED: only the direct path leaves payload in completions");
        return;
    }
    on_both_queues(&fixture, false);
}

#[test]
fn a_bounded_rnr_retry_fails_the_send_and_an_unbounded_one_waits() {
    let fixture = Fixture::new();
    if connected().is_none() {
        eprintln!("SKIPPED: needs the virtual time of the emulated NIC");
        return;
    }
    let unbounded = MessagePair::new(&fixture, &Shape::default());
    let (active, passive) = (unbounded.pair.active, unbounded.pair.passive);
    let buffer = [unbounded.memory.segment(1024, 64)];
    let send = |end: &End| ok(end.post_send(&[unbounded.memory.segment(0, 8)], 1, DEFAULT));
    send(&active);
    fixture.run();
    fixture.advance(Duration::from_secs(2));
    let (mut state, mut receives, mut requests) = (0, DAT_FALSE, DAT_TRUE);
    // SAFETY: a live handle; the results are writable.
    ok(unsafe {
        dat_ep_get_status(
            active.ep,
            &raw mut state,
            &raw mut receives,
            &raw mut requests,
        )
    });
    // This is how a program finds a send that waits for a receive.
    assert_eq!((state, requests), (DAT_EP_STATE_CONNECTED, DAT_FALSE));
    ok(passive.post_recv(&buffer, 2));
    fixture.advance(Duration::from_millis(10));
    assert_eq!(passive.received().status, DAT_DTO_SUCCESS);
    assert_eq!(active.requested().status, DAT_DTO_SUCCESS);

    let bounded = fixture.configured_beside("rnr_retry=6 rnr_timer=14");
    let shape = Shape::default();
    let pair = Pair::new(&bounded, &shape);
    let memory = bounded.memory(64);
    ok(pair.active.post_send(&[memory.segment(0, 8)], 1, DEFAULT));
    bounded.run();
    // Six delays of 1.28 ms.
    bounded.advance(Duration::from_millis(20));
    let failed = pair.active.requested();
    assert_eq!(failed.status, DAT_DTO_ERR_RECEIVER_NOT_READY);
}

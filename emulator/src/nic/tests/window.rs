//! Memory windows: binds, invalidations, and the accesses that they permit.

use super::fixtures::*;
use crate::spec::*;

const SEND_INVALIDATE: u8 = 0x01;
const FETCH_ADD: u8 = 0x12;
const WINDOW_BIND: u8 = 0x06;
const LOCAL_ACCESS: u8 = 0x11;
const REMOTE_ACCESS: u8 = 0x13;

#[test]
fn a_bound_window_permits_its_accesses_in_its_range() {
    for kind in [WindowType::One, WindowType::Two] {
        let mut it = Windows::new();
        let bind = it.bind(kind);
        assert_eq!(it.post_bind(&bind), OK);
        let (key, at) = (it.rkey(kind), it.bound_address());
        assert_eq!(it.write(key, at + 248), OK);
        assert_eq!(it.pair.b.memory.get(4096 + 248, 8), b"windowed");
        let into = it.pair.a.data_segment(0, 8);
        it.pair.a.post(
            READ,
            SIGNALLED,
            &[raddr_segment(at + 248, key), into.clone()],
        );
        assert_eq!(it.run_to_syndrome(), OK);
        assert_eq!(it.pair.a.memory.get(0, 8), b"windowed");
        it.pair.b.memory.put(4096, &7_u64.to_ne_bytes());
        let operands = [5_u64.to_be_bytes(), [0; 8]].concat();
        it.pair.a.post(
            FETCH_ADD,
            SIGNALLED,
            &[raddr_segment(at, key), operands, into],
        );
        assert_eq!(it.run_to_syndrome(), OK);
        assert_eq!(it.pair.b.memory.get(4096, 8), 12_u64.to_ne_bytes());
        it.pair.assert_no_violations();
        assert_eq!(it.write(key, at + 249), REMOTE_ACCESS, "beyond the end");
    }
}

#[test]
fn a_window_permits_no_access_that_it_was_not_bound_with() {
    let mut it = Windows::new();
    let bind = Bind {
        access: READ_ACCESS,
        ..it.bind(WindowType::One)
    };
    assert_eq!(it.post_bind(&bind), OK);
    let (key, at) = (it.one.rkey, it.bound_address());
    assert_eq!(it.write(key, at), REMOTE_ACCESS);
    assert_eq!(it.pair.b.memory.get(4096, 8), [0; 8]);
}

#[test]
fn a_key_is_invalid_before_the_bind_and_the_old_key_after_it() {
    let mut it = Windows::new();
    let (old, at) = (it.one.rkey, it.bound_address());
    assert_eq!(it.write(old, at), REMOTE_ACCESS);
    it.reconnect();
    let bind = it.bind(WindowType::One);
    assert_eq!(it.post_bind(&bind), OK);
    assert_eq!(it.write(old, at), REMOTE_ACCESS);
    it.reconnect();
    assert_eq!(it.write(it.one.rkey, at), OK);
}

#[test]
fn a_zero_based_window_has_addresses_from_0() {
    let mut it = Windows::new();
    let bind = Bind {
        start: 0,
        ..it.bind(WindowType::Two)
    };
    assert_eq!(it.post_bind(&bind), OK);
    assert_eq!(it.write(it.two.rkey, 16), OK);
    assert_eq!(it.pair.b.memory.get(4096 + 16, 8), b"windowed");
    let at = it.bound_address();
    assert_eq!(it.write(it.two.rkey, at), REMOTE_ACCESS);
}

#[test]
fn type_1_can_be_bound_again_and_is_unbound_by_a_bind_of_length_0() {
    let mut it = Windows::new();
    let bind = it.bind(WindowType::One);
    assert_eq!(it.post_bind(&bind), OK);
    let moved = it.bound_address() + 1024;
    let again = Bind {
        address: moved,
        start: moved,
        ..it.bind(WindowType::One)
    };
    assert_eq!(it.post_bind(&again), OK);
    assert_eq!(it.write(it.one.rkey, moved), OK);
    assert_eq!(it.unbind(WindowType::One), OK);
    assert_eq!(it.write(it.one.rkey, moved), REMOTE_ACCESS);
}

#[test]
fn type_2_must_be_unbound_before_a_bind() {
    let mut it = Windows::new();
    let bind = it.bind(WindowType::Two);
    assert_eq!(it.post_bind(&bind), OK);
    assert_eq!(it.unbind(WindowType::Two), OK);
    let at = it.bound_address();
    let bind = it.bind(WindowType::Two);
    assert_eq!(it.post_bind(&bind), OK);
    assert_eq!(it.write(it.two.rkey, at), OK);
    let bind = it.bind(WindowType::Two);
    assert_eq!(it.post_bind(&bind), WINDOW_BIND, "already bound");
    assert_eq!(it.pair.b.state(), 6, "the QP is in ERR");
}

#[test]
fn type_2_can_be_used_only_through_the_qp_that_bound_it() {
    let mut it = Windows::new();
    let bind = it.bind(WindowType::Two);
    assert_eq!(it.post_bind(&bind), OK);
    // New QPs between the same hosts.
    let Pair { a, b, .. } = &mut it.pair;
    let first = [a.qp.qpn, b.qp.qpn];
    for peer in [&mut *a, &mut *b] {
        let spec = peer.host.qp_spec(peer.cq.cqn);
        peer.qp = peer.host.create_qp(spec);
    }
    assert!(a.qp.qpn != first[0] && b.qp.qpn != first[1]);
    let (local_qpn, remote_qpn) = (a.qp.qpn, b.qp.qpn);
    modify_to_rts(&mut a.host.nic, local_qpn, remote_qpn, attributes());
    modify_to_rts(&mut b.host.nic, remote_qpn, local_qpn, attributes());
    let at = it.bound_address();
    assert_eq!(it.write(it.two.rkey, at), REMOTE_ACCESS);
    assert_eq!(it.unbind(WindowType::Two), 0x05, "B's QP is in ERR");
    it.reconnect();
    assert_eq!(
        it.unbind(WindowType::Two),
        WINDOW_BIND,
        "not this QP's window"
    );
}

#[test]
fn a_send_with_invalidate_invalidates_a_bound_type_2_window() {
    let mut it = Windows::new();
    let bind = it.bind(WindowType::Two);
    assert_eq!(it.post_bind(&bind), OK);
    let receive = it.pair.b.data_segment(0, 64);
    it.pair.b.qp.post_receive(&[receive.clone(), receive]);
    let key = it.two.rkey;
    let Pair { a, .. } = &mut it.pair;
    a.qp.write_wqe_with(
        SEND_INVALIDATE,
        SIGNALLED | SOLICITED,
        key,
        &[inline_segment(b"done")],
    );
    a.qp.ring_doorbell(&mut a.host);
    assert_eq!(it.run_to_syndrome(), OK);
    let cqe = it.pair.b.cq.poll().unwrap();
    assert_eq!((cqe.opcode, cqe.bytes, cqe.solicited), (4, 4, true));
    assert_eq!(u32::from_be_bytes(cqe.immediate), key);
    let at = it.bound_address();
    assert_eq!(it.write(key, at), REMOTE_ACCESS);
    it.reconnect();
    let bind = it.bind(WindowType::Two);
    assert_eq!(it.post_bind(&bind), OK, "the window is unbound");
}

#[test]
fn invalidating_other_keys_fails_on_both_sides() {
    let mut it = Windows::new();
    let bind = it.bind(WindowType::One);
    assert_eq!(it.post_bind(&bind), OK);
    let keys = [it.region, it.one.rkey, it.two.rkey, 0x1234_5678];
    for key in keys {
        let receive = it.pair.b.data_segment(0, 64);
        it.pair.b.qp.post_receive(&[receive]);
        let Pair { a, .. } = &mut it.pair;
        a.qp.write_wqe_with(SEND_INVALIDATE, SIGNALLED, key, &[inline_segment(b"x")]);
        a.qp.ring_doorbell(&mut a.host);
        assert_eq!(it.run_to_syndrome(), REMOTE_ACCESS);
        let syndrome = it.pair.b.cq.poll().unwrap().syndrome;
        assert_eq!(syndrome, LOCAL_ACCESS, "key {key:#x}");
        it.reconnect();
    }
    let at = it.bound_address();
    assert_eq!(it.write(it.one.rkey, at), OK, "type 1 stays bound");
}

#[test]
fn invalid_binds_fail() {
    let other_pd = |it: &mut Windows| {
        let host = &mut it.pair.b.host;
        let pd = host.nic.alloc_pd(host.context).unwrap();
        let spec = MrSpec {
            context: host.context,
            pd,
            start: it.pair.b.memory.at(),
            length: MEMORY_SIZE as u64,
            hca_va: it.pair.b.memory.at(),
            access: WINDOW_ACCESS,
        };
        it.pair.b.host.nic.reg_mr(&spec).unwrap().lkey
    };
    type Change = Box<dyn Fn(&mut Windows, &mut Bind)>;
    let cases: [(&str, Change); 8] = [
        (
            "a key that does not exist",
            Box::new(|_, bind| bind.region = 0x7777_7701),
        ),
        (
            "a window's key",
            Box::new(|it, bind| bind.region = it.one.rkey),
        ),
        (
            "a region of another protection domain",
            Box::new(move |it, bind| bind.region = other_pd(it)),
        ),
        (
            "a region without MW_BIND",
            Box::new(|it, bind| bind.region = register_region(&mut it.pair.b, ALL_ACCESS).lkey),
        ),
        (
            "remote writes on a region without local write",
            Box::new(|it, bind| {
                bind.region = register_region(&mut it.pair.b, Access::MW_BIND).lkey
            }),
        ),
        (
            "beyond the end",
            Box::new(|_, bind| bind.length = MEMORY_SIZE as u64),
        ),
        ("before the start", Box::new(|_, bind| bind.address -= 4097)),
        (
            "addresses that wrap",
            Box::new(|_, bind| bind.start = u64::MAX - 3),
        ),
    ];
    for (what, change) in &cases {
        for kind in [WindowType::One, WindowType::Two] {
            let mut it = Windows::new();
            let mut bind = it.bind(kind);
            change(&mut it, &mut bind);
            assert_eq!(it.post_bind(&bind), WINDOW_BIND, "{what}");
            assert_eq!(it.pair.b.state(), 6, "{what}");
        }
    }
    let mut it = Windows::new();
    let bind = it.bind(WindowType::One);
    let segments = bind_segments(it.pair.b.qp.qpn.0, &bind);
    let region = it.region;
    assert_eq!(it.umr(region, &segments), WINDOW_BIND, "a region's key");
}

#[test]
fn a_region_with_bound_windows_cannot_be_deregistered() {
    let mut it = Windows::new();
    let bind = it.bind(WindowType::One);
    assert_eq!(it.post_bind(&bind), OK);
    let bind = it.bind(WindowType::Two);
    assert_eq!(it.post_bind(&bind), OK);
    let (context, handle) = (it.pair.b.host.context, it.region_handle);
    let busy = Err(Errno(libc::EBUSY));
    assert_eq!(it.pair.b.host.nic.dereg_mr(context, handle), busy);
    assert_eq!(it.unbind(WindowType::Two), OK);
    assert_eq!(it.pair.b.host.nic.dereg_mr(context, handle), busy);
    let window = it.one.handle;
    it.pair.b.host.nic.dealloc_mw(context, window).unwrap();
    assert_eq!(it.pair.b.host.nic.dereg_mr(context, handle), Ok(()));
    let at = it.bound_address();
    assert_eq!(it.write(it.one.rkey, at), REMOTE_ACCESS);
}

#[test]
fn a_pd_with_windows_cannot_be_deallocated_and_window_keys_are_not_reused_at_once() {
    let mut host = Host::new(1);
    let (context, pd) = (host.context, host.pd);
    let spec = MwSpec {
        context,
        pd,
        kind: WindowType::Two,
    };
    let first = host.nic.alloc_mw(&spec).unwrap();
    assert_eq!(host.nic.dealloc_pd(pd), Err(Errno(libc::EBUSY)));
    assert_eq!(
        host.nic.dereg_mr(context, first.handle),
        Err(Errno(libc::EINVAL)),
        "a window is not a region"
    );
    host.nic.dealloc_mw(context, first.handle).unwrap();
    let invalid = Err(Errno(libc::EINVAL));
    assert_eq!(host.nic.dealloc_mw(context, first.handle), invalid);
    let second = host.nic.alloc_mw(&spec).unwrap();
    assert_eq!(second.handle, first.handle);
    assert_ne!(second.rkey, first.rkey);
}

#[test]
fn a_bind_is_executed_in_order_and_only_once() {
    // The write before the bind is lost and retransmitted; the bind is not repeated.
    let mut it = Windows::new();
    let bind = it.bind(WindowType::Two);
    let segments = bind_segments(it.pair.b.qp.qpn.0, &bind);
    let key = it.two.rkey;
    let Pair { a, b, wire, .. } = &mut it.pair;
    let mut first = true;
    wire.delivery_of = Box::new(move |_| {
        if std::mem::take(&mut first) {
            Delivery::Drop
        } else {
            Delivery::Deliver
        }
    });
    let raddr = a.raddr_segment(64);
    b.post(WRITE, SIGNALLED, &[raddr, inline_segment(b"first")]);
    b.qp.write_wqe_with(UMR, SIGNALLED, key, &segments);
    b.qp.write_wqe(SEND, SIGNALLED | SMALL_FENCE, &[inline_segment(b"key")]);
    b.qp.ring_doorbell(&mut b.host);
    let receive = a.data_segment(0, 64);
    a.qp.post_receive(&[receive]);
    it.pair.run_until_idle();
    it.pair.advance(4096 << 15, 4096 << 14);
    let all = it.pair.b.cq.poll_all();
    assert!(all.iter().all(|cqe| cqe.syndrome == OK), "{all:?}");
    assert_eq!(all.len(), 3);
    it.pair.assert_no_violations();
}

#[test]
fn a_request_after_a_bind_without_a_fence_is_a_violation() {
    let mut it = Windows::new();
    let bind = it.bind(WindowType::One);
    assert_eq!(it.post_bind(&bind), OK);
    it.pair.b.post(NOP, SIGNALLED, &[]);
    it.pair.run_until_idle();
    let texts: Vec<_> = it.pair.b.host.nic.violations().recent().collect();
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].contains("no small fence"), "{texts:?}");
}

#[test]
fn windows_work_on_unreliable_connections_and_forbidden_writes_are_dropped() {
    let mut it = Windows::of(Service::Uc);
    let bind = it.bind(WindowType::Two);
    assert_eq!(it.post_bind(&bind), OK);
    let (key, at) = (it.two.rkey, it.bound_address());
    assert_eq!(it.write(key, at), OK);
    assert_eq!(it.pair.b.memory.get(4096, 8), b"windowed");
    // A request completes when it is sent, whether or not it is executed.
    assert_eq!(it.write(key, at + 256), OK);
    assert_eq!(it.pair.b.memory.get(4096 + 256, 8), [0; 8]);
    let receive = it.pair.b.data_segment(0, 64);
    it.pair.b.qp.post_receive(&[receive]);
    let Pair { a, .. } = &mut it.pair;
    a.qp.write_wqe_with(SEND_INVALIDATE, SIGNALLED, key, &[inline_segment(b"x")]);
    a.qp.ring_doorbell(&mut a.host);
    assert_eq!(it.run_to_syndrome(), OK);
    assert_eq!(it.pair.b.cq.poll().unwrap().opcode, 4);
    it.pair.b.memory.put(4096, &[0; 8]);
    assert_eq!(it.write(key, at), OK);
    assert_eq!(
        it.pair.b.memory.get(4096, 8),
        [0; 8],
        "the window is invalidated"
    );
    assert_eq!(it.unbind(WindowType::Two), WINDOW_BIND);
    assert_eq!(it.pair.b.state(), 5, "the QP is in SQE");
}

#[test]
fn a_ud_qp_cannot_bind_windows() {
    let spec = |spec: &mut QpSpec| spec.service = Service::Ud;
    let mut pair = Pair::connect(
        peer(Host::new(1), spec),
        peer(Host::new(2), spec),
        attributes(),
    );
    let window = alloc_window(&mut pair.a, WindowType::One);
    let address = vec![0; 48];
    let mut segments = vec![address];
    segments.extend(unbind_segments(WindowType::One, 9));
    let Pair { a, .. } = &mut pair;
    a.qp.write_wqe_with(UMR, SIGNALLED, window.rkey, &segments);
    a.qp.ring_doorbell(&mut a.host);
    pair.run_until_idle();
    assert_eq!(statuses(&pair.a.cq.poll_all()), [(0x02, 0)]);
}

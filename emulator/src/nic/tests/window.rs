//! Memory windows: binds, invalidations, and what they open.

use super::rig::*;
use super::wire::Fate;
use crate::nic::spec::*;

const UMR: u8 = 0x25;
const SEND_INVALIDATE: u8 = 0x01;
const FETCH_ADD: u8 = 0x12;
const SMALL_FENCE: u8 = 0x20;
const WINDOW_BIND: u8 = 0x06;
const LOCAL_ACCESS: u8 = 0x11;
const REMOTE_ACCESS: u8 = 0x13;

const READ_RIGHT: u8 = 0x10;
const WRITE_RIGHT: u8 = 0x20;
const ATOMIC_RIGHT: u8 = 0x40;
const EVERY_RIGHT: u8 = READ_RIGHT | WRITE_RIGHT | ATOMIC_RIGHT;

/// What a bind says.
#[derive(Clone, Copy)]
struct Bind {
    kind: WindowType,
    variant: u8,
    region: u32,
    address: u64,
    start: u64,
    length: u64,
    rights: u8,
}

/// The segments of a bind as libmlx5 writes them.
fn bind_segments(qpn: u32, bind: &Bind) -> Vec<Vec<u8>> {
    let (mut flags, mut mask, mut owner) = (0x90_u8, 0x203c_2041_u64, 0x00ff_ffff_u32);
    if bind.kind == WindowType::Two {
        flags |= 0x20;
        mask |= 1 << 14;
        owner = qpn;
    }
    let mut control = vec![flags, 0, 0, 0, 0, 4, 0, 0];
    control.extend(mask.to_be_bytes());
    control.resize(48, 0);
    let mut context = vec![0, 0, bind.rights, 0];
    context.extend((owner << 8 | u32::from(bind.variant)).to_be_bytes());
    context.extend([0xdd; 8]);
    context.extend(bind.start.to_be_bytes());
    context.extend(bind.length.to_be_bytes());
    context.resize(64, 0xdd);
    let mut translation = pointer(bind.length as u32, bind.region, bind.address);
    translation.resize(64, 0);
    vec![control, context, translation]
}

/// Those of a bind of nothing (type 1) or a local invalidation (type 2).
fn free_segments(kind: WindowType, variant: u8) -> Vec<Vec<u8>> {
    let (flags, mask) = match kind {
        WindowType::One => (0x90_u8, 0x2000_2000_u64),
        WindowType::Two => (0x98, 0x2000_6000),
    };
    let mut control = vec![flags, 0, 0, 0, 0, 0, 0, 0];
    control.extend(mask.to_be_bytes());
    control.resize(48, 0);
    let mut context = vec![0x40, 0, 0xdd, 0];
    context.extend((0xffff_ff00 | u32::from(variant)).to_be_bytes());
    context.resize(64, 0xdd);
    vec![control, context]
}

/// A world whose end B has a region that windows may be bound to, and windows
/// of both types.
struct Windows {
    world: World,
    region: u32,
    region_handle: u32,
    one: MwKeys,
    two: MwKeys,
}

const EVERY_ACCESS: Access = ALL_ACCESS
    .union(Access::REMOTE_ATOMIC)
    .union(Access::MW_BIND);

fn register(end: &mut End, access: Access) -> MrKeys {
    let spec = MrSpec {
        context: end.host.context,
        pd: end.host.pd,
        start: end.memory.at(),
        length: MEMORY as u64,
        hca_va: end.memory.at(),
        access,
    };
    end.host.nic.reg_mr(&spec).unwrap()
}

fn window(end: &mut End, kind: WindowType) -> MwKeys {
    let spec = MwSpec {
        context: end.host.context,
        pd: end.host.pd,
        kind,
    };
    end.host.nic.alloc_mw(&spec).unwrap()
}

impl Windows {
    fn new() -> Self {
        Self::of(Service::Rc)
    }

    fn of(service: Service) -> Self {
        let end = |slot| end(Host::new(slot), |spec| spec.service = service);
        let access = ALL_ACCESS | Access::REMOTE_ATOMIC;
        let attr = QpAttr {
            access,
            ..attributes()
        };
        let mut world = World::of(end(1), end(2), attr);
        // Only the windows give rights to the peer.
        let keys = register(&mut world.b, Access::LOCAL_WRITE | Access::MW_BIND);
        let one = window(&mut world.b, WindowType::One);
        let two = window(&mut world.b, WindowType::Two);
        Self {
            world,
            region: keys.lkey,
            region_handle: keys.handle,
            one,
            two,
        }
    }

    /// 256 bytes from offset 4096 of B's memory, under the next key.
    fn bind(&self, kind: WindowType) -> Bind {
        let address = self.world.b.memory.at() + 4096;
        Bind {
            kind,
            variant: self.rkey(kind) as u8 + 1,
            region: self.region,
            address,
            start: address,
            length: 256,
            rights: EVERY_RIGHT,
        }
    }

    fn rkey(&self, kind: WindowType) -> u32 {
        match kind {
            WindowType::One => self.one.rkey,
            WindowType::Two => self.two.rkey,
        }
    }

    /// B posts a UMR on that key; answers its syndrome.
    fn umr(&mut self, key: u32, segments: &[Vec<u8>]) -> u8 {
        let b = &mut self.world.b;
        b.qp.write_with(UMR, SIGNALLED | SMALL_FENCE, key, segments);
        b.qp.ring(&mut b.host);
        self.world.run();
        let cqe = self.world.b.cq.poll().expect("it completes");
        assert_eq!(cqe.wqe_opcode, UMR);
        cqe.syndrome
    }

    /// Posts a bind; answers its syndrome. The window's key is the new one
    /// when it succeeds.
    fn post(&mut self, bind: &Bind) -> u8 {
        let key = self.rkey(bind.kind);
        let segments = bind_segments(self.world.b.qp.qpn.0, bind);
        let syndrome = self.umr(key, &segments);
        if syndrome == OK {
            self.set_variant(bind.kind, bind.variant);
        }
        syndrome
    }

    fn set_variant(&mut self, kind: WindowType, variant: u8) {
        let keys = match kind {
            WindowType::One => &mut self.one,
            WindowType::Two => &mut self.two,
        };
        keys.rkey = keys.rkey & !0xff | u32::from(variant);
    }

    fn free(&mut self, kind: WindowType) -> u8 {
        let variant = match kind {
            WindowType::One => self.one.rkey as u8 + 1,
            WindowType::Two => 0,
        };
        let syndrome = self.umr(self.rkey(kind), &free_segments(kind, variant));
        if syndrome == OK {
            self.set_variant(kind, variant);
        }
        syndrome
    }

    /// A writes 8 bytes through that key; answers the syndrome.
    fn write(&mut self, key: u32, address: u64) -> u8 {
        let segments = [remote(address, key), inline(b"windowed")];
        self.world.a.post(WRITE, SIGNALLED, &segments);
        self.outcome()
    }

    fn outcome(&mut self) -> u8 {
        self.world.run();
        self.world.a.cq.poll().expect("it completes").syndrome
    }

    fn reconnect(&mut self) {
        for end in [&mut self.world.a, &mut self.world.b] {
            set_state(&mut end.host.nic, end.qp.qpn, 0);
            end.qp.posted = 0;
            end.qp.received = 0;
            end.qp.dbrec.put_be32(0, 0);
            end.qp.dbrec.put_be32(4, 0);
            end.cq.all();
        }
        let attr = QpAttr {
            access: ALL_ACCESS | Access::REMOTE_ATOMIC,
            ..attributes()
        };
        let (a, b) = (self.world.a.qp.qpn, self.world.b.qp.qpn);
        bring_up(&mut self.world.a.host.nic, a, b, attr);
        bring_up(&mut self.world.b.host.nic, b, a, attr);
    }

    fn inside(&self) -> u64 {
        self.world.b.memory.at() + 4096
    }
}

#[test]
fn a_bound_window_opens_its_range_with_its_rights() {
    for kind in [WindowType::One, WindowType::Two] {
        let mut it = Windows::new();
        let bind = it.bind(kind);
        assert_eq!(it.post(&bind), OK);
        let (key, at) = (it.rkey(kind), it.inside());
        assert_eq!(it.write(key, at + 248), OK);
        assert_eq!(it.world.b.memory.get(4096 + 248, 8), b"windowed");
        let into = it.world.a.segment(0, 8);
        it.world
            .a
            .post(READ, SIGNALLED, &[remote(at + 248, key), into.clone()]);
        assert_eq!(it.outcome(), OK);
        assert_eq!(it.world.a.memory.get(0, 8), b"windowed");
        it.world.b.memory.put(4096, &7_u64.to_ne_bytes());
        let operands = [5_u64.to_be_bytes(), [0; 8]].concat();
        it.world
            .a
            .post(FETCH_ADD, SIGNALLED, &[remote(at, key), operands, into]);
        assert_eq!(it.outcome(), OK);
        assert_eq!(it.world.b.memory.get(4096, 8), 12_u64.to_ne_bytes());
        it.world.assert_no_violations();
        assert_eq!(it.write(key, at + 249), REMOTE_ACCESS, "past its end");
    }
}

#[test]
fn a_window_gives_no_right_that_it_was_not_bound_with() {
    let mut it = Windows::new();
    let bind = Bind {
        rights: READ_RIGHT,
        ..it.bind(WindowType::One)
    };
    assert_eq!(it.post(&bind), OK);
    let (key, at) = (it.one.rkey, it.inside());
    assert_eq!(it.write(key, at), REMOTE_ACCESS);
    assert_eq!(it.world.b.memory.get(4096, 8), [0; 8]);
}

#[test]
fn a_key_opens_nothing_before_the_bind_and_an_old_one_nothing_after() {
    let mut it = Windows::new();
    let (old, at) = (it.one.rkey, it.inside());
    assert_eq!(it.write(old, at), REMOTE_ACCESS);
    it.reconnect();
    let bind = it.bind(WindowType::One);
    assert_eq!(it.post(&bind), OK);
    assert_eq!(it.write(old, at), REMOTE_ACCESS);
    it.reconnect();
    assert_eq!(it.write(it.one.rkey, at), OK);
}

#[test]
fn a_zero_based_window_counts_from_0() {
    let mut it = Windows::new();
    let bind = Bind {
        start: 0,
        ..it.bind(WindowType::Two)
    };
    assert_eq!(it.post(&bind), OK);
    assert_eq!(it.write(it.two.rkey, 16), OK);
    assert_eq!(it.world.b.memory.get(4096 + 16, 8), b"windowed");
    let at = it.inside();
    assert_eq!(it.write(it.two.rkey, at), REMOTE_ACCESS);
}

#[test]
fn type_1_is_bound_again_and_unbound_by_a_bind_of_nothing() {
    let mut it = Windows::new();
    let bind = it.bind(WindowType::One);
    assert_eq!(it.post(&bind), OK);
    let moved = it.inside() + 1024;
    let again = Bind {
        address: moved,
        start: moved,
        ..it.bind(WindowType::One)
    };
    assert_eq!(it.post(&again), OK);
    assert_eq!(it.write(it.one.rkey, moved), OK);
    assert_eq!(it.free(WindowType::One), OK);
    assert_eq!(it.write(it.one.rkey, moved), REMOTE_ACCESS);
}

#[test]
fn type_2_must_be_free_to_be_bound() {
    let mut it = Windows::new();
    let bind = it.bind(WindowType::Two);
    assert_eq!(it.post(&bind), OK);
    assert_eq!(it.free(WindowType::Two), OK);
    let at = it.inside();
    let bind = it.bind(WindowType::Two);
    assert_eq!(it.post(&bind), OK);
    assert_eq!(it.write(it.two.rkey, at), OK);
    let bind = it.bind(WindowType::Two);
    assert_eq!(it.post(&bind), WINDOW_BIND, "bound already");
    assert_eq!(it.world.b.state(), 6, "and the QP is in error");
}

#[test]
fn type_2_belongs_to_the_queue_pair_that_bound_it() {
    let mut it = Windows::new();
    let bind = it.bind(WindowType::Two);
    assert_eq!(it.post(&bind), OK);
    // Another pair of QPs between the same hosts.
    let World { a, b, .. } = &mut it.world;
    let first = [a.qp.qpn, b.qp.qpn];
    for end in [&mut *a, &mut *b] {
        let spec = end.host.qp_spec(end.cq.cqn);
        end.qp = end.host.qp(spec);
    }
    assert!(a.qp.qpn != first[0] && b.qp.qpn != first[1]);
    let (here, there) = (a.qp.qpn, b.qp.qpn);
    bring_up(&mut a.host.nic, here, there, attributes());
    bring_up(&mut b.host.nic, there, here, attributes());
    let at = it.inside();
    assert_eq!(it.write(it.two.rkey, at), REMOTE_ACCESS);
    assert_eq!(it.free(WindowType::Two), 0x05, "the responder is in error");
    it.reconnect();
    assert_eq!(it.free(WindowType::Two), WINDOW_BIND, "not its window");
}

#[test]
fn a_peer_invalidates_what_is_bound_and_no_more() {
    let mut it = Windows::new();
    let bind = it.bind(WindowType::Two);
    assert_eq!(it.post(&bind), OK);
    let receive = it.world.b.segment(0, 64);
    it.world.b.qp.post_receive(&[receive.clone(), receive]);
    let key = it.two.rkey;
    let World { a, .. } = &mut it.world;
    a.qp.write_with(
        SEND_INVALIDATE,
        SIGNALLED | SOLICITED,
        key,
        &[inline(b"done")],
    );
    a.qp.ring(&mut a.host);
    assert_eq!(it.outcome(), OK);
    let cqe = it.world.b.cq.poll().unwrap();
    assert_eq!((cqe.opcode, cqe.bytes, cqe.solicited), (4, 4, true));
    assert_eq!(u32::from_be_bytes(cqe.immediate), key);
    let at = it.inside();
    assert_eq!(it.write(key, at), REMOTE_ACCESS);
    it.reconnect();
    let bind = it.bind(WindowType::Two);
    assert_eq!(it.post(&bind), OK, "it is free again");
}

#[test]
fn what_cannot_be_invalidated_fails_on_both_sides() {
    let mut it = Windows::new();
    let bind = it.bind(WindowType::One);
    assert_eq!(it.post(&bind), OK);
    let keys = [it.region, it.one.rkey, it.two.rkey, 0x1234_5678];
    for key in keys {
        let receive = it.world.b.segment(0, 64);
        it.world.b.qp.post_receive(&[receive]);
        let World { a, .. } = &mut it.world;
        a.qp.write_with(SEND_INVALIDATE, SIGNALLED, key, &[inline(b"x")]);
        a.qp.ring(&mut a.host);
        assert_eq!(it.outcome(), REMOTE_ACCESS);
        let syndrome = it.world.b.cq.poll().unwrap().syndrome;
        assert_eq!(syndrome, LOCAL_ACCESS, "key {key:#x}");
        it.reconnect();
    }
    let at = it.inside();
    assert_eq!(it.write(it.one.rkey, at), OK, "type 1 stays bound");
}

#[test]
fn binds_that_make_no_sense_fail() {
    let other_pd = |it: &mut Windows| {
        let host = &mut it.world.b.host;
        let pd = host.nic.alloc_pd(host.context).unwrap();
        let spec = MrSpec {
            context: host.context,
            pd,
            start: it.world.b.memory.at(),
            length: MEMORY as u64,
            hca_va: it.world.b.memory.at(),
            access: EVERY_ACCESS,
        };
        it.world.b.host.nic.reg_mr(&spec).unwrap().lkey
    };
    type Change = Box<dyn Fn(&mut Windows, &mut Bind)>;
    let cases: [(&str, Change); 8] = [
        ("no region", Box::new(|_, bind| bind.region = 0x7777_7701)),
        (
            "a window as region",
            Box::new(|it, bind| bind.region = it.one.rkey),
        ),
        (
            "another domain",
            Box::new(move |it, bind| bind.region = other_pd(it)),
        ),
        (
            "no right to bind",
            Box::new(|it, bind| bind.region = register(&mut it.world.b, ALL_ACCESS).lkey),
        ),
        (
            "writes to what is only read",
            Box::new(|it, bind| bind.region = register(&mut it.world.b, Access::MW_BIND).lkey),
        ),
        (
            "past the end",
            Box::new(|_, bind| bind.length = MEMORY as u64),
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
            assert_eq!(it.post(&bind), WINDOW_BIND, "{what}");
            assert_eq!(it.world.b.state(), 6, "{what}");
        }
    }
    let mut it = Windows::new();
    let bind = it.bind(WindowType::One);
    let segments = bind_segments(it.world.b.qp.qpn.0, &bind);
    let region = it.region;
    assert_eq!(it.umr(region, &segments), WINDOW_BIND, "a region's key");
}

#[test]
fn a_region_stays_while_windows_are_bound_to_it() {
    let mut it = Windows::new();
    let bind = it.bind(WindowType::One);
    assert_eq!(it.post(&bind), OK);
    let bind = it.bind(WindowType::Two);
    assert_eq!(it.post(&bind), OK);
    let (context, handle) = (it.world.b.host.context, it.region_handle);
    let busy = Err(Errno(libc::EBUSY));
    assert_eq!(it.world.b.host.nic.dereg_mr(context, handle), busy);
    assert_eq!(it.free(WindowType::Two), OK);
    assert_eq!(it.world.b.host.nic.dereg_mr(context, handle), busy);
    let window = it.one.handle;
    it.world.b.host.nic.dealloc_mw(context, window).unwrap();
    assert_eq!(it.world.b.host.nic.dereg_mr(context, handle), Ok(()));
    let at = it.inside();
    assert_eq!(it.write(it.one.rkey, at), REMOTE_ACCESS);
}

#[test]
fn a_domain_stays_while_it_has_windows_and_keys_do_not_come_back() {
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
        "a window is no region"
    );
    host.nic.dealloc_mw(context, first.handle).unwrap();
    let invalid = Err(Errno(libc::EINVAL));
    assert_eq!(host.nic.dealloc_mw(context, first.handle), invalid);
    let second = host.nic.alloc_mw(&spec).unwrap();
    assert_eq!(second.handle, first.handle);
    assert_ne!(second.rkey, first.rkey);
}

#[test]
fn a_bind_takes_its_turn_and_is_done_once() {
    // The write before it is lost and repeated; the bind between them is not.
    let mut it = Windows::new();
    let bind = it.bind(WindowType::Two);
    let segments = bind_segments(it.world.b.qp.qpn.0, &bind);
    let key = it.two.rkey;
    let World { a, b, wire, .. } = &mut it.world;
    let mut first = true;
    wire.decide = Box::new(move |_| {
        if std::mem::take(&mut first) {
            Fate::IsLost
        } else {
            Fate::Arrives
        }
    });
    let there = a.remote(64);
    b.post(WRITE, SIGNALLED, &[there, inline(b"first")]);
    b.qp.write_with(UMR, SIGNALLED, key, &segments);
    b.qp.write(SEND, SIGNALLED | SMALL_FENCE, &[inline(b"key")]);
    b.qp.ring(&mut b.host);
    let receive = a.segment(0, 64);
    a.qp.post_receive(&[receive]);
    it.world.run();
    it.world.pass(4096 << 15, 4096 << 14);
    let all = it.world.b.cq.all();
    assert!(all.iter().all(|cqe| cqe.syndrome == OK), "{all:?}");
    assert_eq!(all.len(), 3);
    it.world.assert_no_violations();
}

#[test]
fn what_follows_a_bind_without_a_fence_is_told() {
    let mut it = Windows::new();
    let bind = it.bind(WindowType::One);
    assert_eq!(it.post(&bind), OK);
    it.world.b.post(NOP, SIGNALLED, &[]);
    it.world.run();
    let texts: Vec<_> = it.world.b.host.nic.violations().recent().collect();
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].contains("no small fence"), "{texts:?}");
}

#[test]
fn an_unreliable_connection_has_windows_and_drops_what_they_refuse() {
    let mut it = Windows::of(Service::Uc);
    let bind = it.bind(WindowType::Two);
    assert_eq!(it.post(&bind), OK);
    let (key, at) = (it.two.rkey, it.inside());
    assert_eq!(it.write(key, at), OK);
    assert_eq!(it.world.b.memory.get(4096, 8), b"windowed");
    // What has left is done, whatever becomes of it.
    assert_eq!(it.write(key, at + 256), OK);
    assert_eq!(it.world.b.memory.get(4096 + 256, 8), [0; 8]);
    let receive = it.world.b.segment(0, 64);
    it.world.b.qp.post_receive(&[receive]);
    let World { a, .. } = &mut it.world;
    a.qp.write_with(SEND_INVALIDATE, SIGNALLED, key, &[inline(b"x")]);
    a.qp.ring(&mut a.host);
    assert_eq!(it.outcome(), OK);
    assert_eq!(it.world.b.cq.poll().unwrap().opcode, 4);
    it.world.b.memory.put(4096, &[0; 8]);
    assert_eq!(it.write(key, at), OK);
    assert_eq!(it.world.b.memory.get(4096, 8), [0; 8], "it is closed");
    assert_eq!(it.free(WindowType::Two), WINDOW_BIND);
    assert_eq!(it.world.b.state(), 5, "the send queue is in error");
}

#[test]
fn a_datagram_queue_has_no_windows() {
    let spec = |spec: &mut QpSpec| spec.service = Service::Ud;
    let mut world = World::of(
        end(Host::new(1), spec),
        end(Host::new(2), spec),
        attributes(),
    );
    let window = window(&mut world.a, WindowType::One);
    let address = vec![0; 48];
    let mut segments = vec![address];
    segments.extend(free_segments(WindowType::One, 9));
    let World { a, .. } = &mut world;
    a.qp.write_with(UMR, SIGNALLED, window.rkey, &segments);
    a.qp.ring(&mut a.host);
    world.run();
    assert_eq!(outcome(&world.a.cq.all()), [(0x02, 0)]);
}

//! Programs that take their memory away from under the device: rings,
//! records and buffers that are gone.

use super::rig::*;
use crate::nic::spec::*;
use crate::trap::guard;

const ERR: u8 = 6;
const LOCAL_QP_OPERATION: u8 = 0x02;
const LOCAL_PROTECTION: u8 = 0x04;
const PAGE: usize = 4096;

/// A page that is there, until it is taken away.
struct Page(u64);

impl Page {
    fn new() -> Self {
        // SAFETY: a fresh mapping.
        let at = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), PAGE, rights, flags, -1, 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
        guard::install();
        Self(at as u64)
    }

    /// As `munmap`, but nobody else can get the place meanwhile.
    fn is_gone(&self) {
        // SAFETY: our own mapping, of which no reference exists.
        let done = unsafe { libc::mprotect(self.0 as *mut libc::c_void, PAGE, libc::PROT_NONE) };
        assert_eq!(done, 0);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: our own mapping.
        unsafe { libc::munmap(self.0 as *mut libc::c_void, PAGE) };
    }
}

fn told(end: &End) -> Vec<AsyncEvent> {
    let events = end.host.events.take();
    let kind = |event| match event {
        Event::Asynchronous(event, _) => Some(event),
        Event::Completion(_) => None,
    };
    events.into_iter().filter_map(kind).collect()
}

/// A connection whose first end's QP has this in place of the rig's.
fn world(tune: impl FnOnce(&mut QpSpec), view: DoorbellView) -> World {
    let host = Host::with(crate::nic::NicOptions {
        slot: 1,
        view,
        ..crate::nic::NicOptions::default()
    });
    let mut a = end(host, |_| {});
    let mut spec = a.qp.spec;
    tune(&mut spec);
    a.host.nic.destroy_qp(a.qp.qpn).unwrap();
    a.qp.qpn = a.host.nic.create_qp(&spec).unwrap();
    World::of(a, end(Host::new(2), |_| {}), attributes())
}

#[test]
fn a_send_ring_that_is_gone_is_an_error_of_its_queue_pair() {
    let page = Page::new();
    let mut world = world(|spec| spec.sq_buf = page.0, DoorbellView::Register);
    page.is_gone();
    let counter = world.a.post(SEND, SIGNALLED, &[inline(b"x")]);
    world.run();
    assert_eq!(outcome(&world.a.cq.all()), [(LOCAL_QP_OPERATION, counter)]);
    assert_eq!(world.a.state(), ERR);
}

#[test]
fn records_that_are_gone_are_fatal_to_their_queue_pair() {
    for view in [DoorbellView::Register, DoorbellView::Exact] {
        let page = Page::new();
        let mut world = world(|spec| spec.dbrec = page.0, view);
        page.is_gone();
        world.a.post(SEND, SIGNALLED, &[inline(b"x")]);
        world.run();
        assert_eq!(world.a.cq.all(), []);
        assert_eq!(world.a.state(), ERR);
        assert_eq!(told(&world.a), [AsyncEvent::QpFatal]);
    }
}

#[test]
fn a_receive_ring_that_is_gone_is_fatal_and_the_sender_is_told() {
    let page = Page::new();
    let mut world = world(|spec| spec.rq_buf = page.0, DoorbellView::Exact);
    world.a.qp.dbrec.put_be32(0, 1);
    page.is_gone();
    let counter = world.b.post(SEND, SIGNALLED, &[inline(b"x")]);
    world.pass(5_000_000_000, 20_000_000);
    assert_eq!(world.a.state(), ERR);
    assert_eq!(told(&world.a), [AsyncEvent::QpFatal]);
    let completions = world.b.cq.all();
    assert_eq!(completions.len(), 1);
    assert_eq!(completions[0].counter, counter);
    assert_ne!(completions[0].syndrome, OK);
}

#[test]
fn buffers_that_are_gone_are_protection_errors_of_whoever_names_them() {
    let page = Page::new();
    let mut world = World::new();
    let spec = MrSpec {
        context: world.a.host.context,
        pd: world.a.host.pd,
        start: page.0,
        length: PAGE as u64,
        hca_va: page.0,
        access: ALL_ACCESS,
    };
    let key = world.a.host.nic.reg_mr(&spec).unwrap().lkey;
    page.is_gone();
    let counter = world.a.post(SEND, SIGNALLED, &[pointer(64, key, page.0)]);
    world.run();
    assert_eq!(outcome(&world.a.cq.all()), [(LOCAL_PROTECTION, counter)]);

    const REMOTE_ACCESS: u8 = 0x13;
    for opcode in [READ, WRITE] {
        let page = Page::new();
        let mut world = World::new();
        let spec = MrSpec {
            context: world.b.host.context,
            pd: world.b.host.pd,
            start: page.0,
            length: PAGE as u64,
            hca_va: page.0,
            access: ALL_ACCESS,
        };
        let key = world.b.host.nic.reg_mr(&spec).unwrap().rkey;
        page.is_gone();
        let segments = [remote(page.0, key), world.a.segment(0, 64)];
        let counter = world.a.post(opcode, SIGNALLED, &segments);
        world.run();
        assert_eq!(outcome(&world.a.cq.all()), [(REMOTE_ACCESS, counter)]);
        assert_eq!(told(&world.b), [AsyncEvent::QpAccessErr]);
    }
}

#[test]
fn a_completion_ring_that_is_gone_is_an_error_of_the_queue_and_fatal_to_its_queue_pairs() {
    let page = Page::new();
    let mut host = Host::new(1);
    let dbrec = Buffer::new(8);
    let model = host.cq(64, 64).cqn;
    let spec = CqSpec {
        buf: page.0,
        dbrec: dbrec.at(),
        ..*host.nic.cq_spec(model).unwrap()
    };
    let cqn = host.nic.create_cq(&spec).unwrap();
    let a = end(host, |spec| {
        spec.send_cq = cqn;
        spec.recv_cq = cqn;
    });
    let mut world = World::of(a, end(Host::new(2), |_| {}), attributes());
    page.is_gone();
    world.a.post(NOP, SIGNALLED, &[]);
    world.run();
    assert_eq!(told(&world.a), [AsyncEvent::CqErr, AsyncEvent::QpFatal]);
    assert_eq!(world.a.state(), ERR);
}

//! Records and rings of receives that a program takes away: what no completion
//! can tell is fatal to the queue that lost them.

use super::rig::*;
use crate::guard;
use crate::nic::spec::*;

const ERR: u8 = 6;
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

/// Whether accesses can fail here; says so if not.
fn accesses_can_fail() -> bool {
    guard::install();
    let can = guard::is_installed();
    if !can {
        eprintln!("SKIPPED: memory that is gone ends the process on this processor");
    }
    can
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
fn records_that_are_gone_are_fatal_to_their_queue_pair() {
    if !accesses_can_fail() {
        return;
    }
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
    if !accesses_can_fail() {
        return;
    }
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
fn a_shared_queue_whose_record_is_gone_fails_and_its_owner_is_told() {
    if !accesses_can_fail() {
        return;
    }
    let page = Page::new();
    let mut host = Host::new(2);
    let ring = Buffer::new(16 << 6);
    let spec = SrqSpec {
        context: host.context,
        pd: host.pd,
        buf: ring.at(),
        dbrec: page.0,
        wqe_count: 16,
        stride_log2: 6,
        limit: 0,
        user_handle: 0x50,
        user_index: 5,
    };
    let srq = host.nic.create_srq(&spec).unwrap();
    let b = end(host, |spec| spec.srq = Some(srq));
    let mut world = World::of(end(Host::new(1), |_| {}), b, attributes());
    page.is_gone();
    for _ in 0..2 {
        world.a.post(SEND, SIGNALLED, &[inline(b"x")]);
    }
    world.run();
    assert_eq!(told(&world.b), [AsyncEvent::SrqErr], "once");
}

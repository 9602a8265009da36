//! Doorbell records and receive rings that the application unmaps. No completion can
//! report this, so the queue fails with an asynchronous event.

use super::fixtures::*;
use crate::spec::*;

const ERR: u8 = 6;
const PAGE: usize = 4096;

/// A mapped page.
struct Page(u64);

impl Page {
    fn new() -> Self {
        // SAFETY: a new anonymous mapping.
        let at = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), PAGE, rights, flags, -1, 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
        Self(at as u64)
    }

    /// Makes the page inaccessible. Unlike after `munmap`, no other mapping can reuse the range.
    fn make_inaccessible(&self) {
        // SAFETY: the test's own mapping; no reference to it exists.
        let done = unsafe { libc::mprotect(self.0 as *mut libc::c_void, PAGE, libc::PROT_NONE) };
        assert_eq!(done, 0);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the test's own mapping.
        unsafe { libc::munmap(self.0 as *mut libc::c_void, PAGE) };
    }
}

fn async_events(peer: &Peer) -> Vec<AsyncEvent> {
    let events = peer.host.events.take();
    let kind = |event| match event {
        Event::Asynchronous(event, _) => Some(event),
        Event::Completion(_) => None,
    };
    events.into_iter().filter_map(kind).collect()
}

/// Returns a pair whose first QP is created with a changed [`QpSpec`].
fn pair(tune: impl FnOnce(&mut QpSpec), view: DoorbellView) -> Pair {
    let host = Host::with_options(crate::nic::NicOptions {
        slot: 1,
        view,
        ..crate::nic::NicOptions::default()
    });
    let mut a = peer(host, |_| {});
    let mut spec = a.qp.spec;
    tune(&mut spec);
    a.host.nic.destroy_qp(a.qp.qpn).unwrap();
    a.qp.qpn = a.host.nic.create_qp(&spec).unwrap();
    Pair::connect(a, peer(Host::new(2), |_| {}), attributes())
}

#[test]
fn a_qp_whose_doorbell_record_is_unmapped_fails() {
    if !can_recover_from_faults() {
        return;
    }
    for view in [DoorbellView::Register, DoorbellView::Exact] {
        let page = Page::new();
        let mut pair = pair(|spec| spec.dbrec = page.0, view);
        page.make_inaccessible();
        pair.a.post(SEND, SIGNALLED, &[inline_segment(b"x")]);
        pair.run_until_idle();
        assert_eq!(pair.a.cq.poll_all(), []);
        assert_eq!(pair.a.state(), ERR);
        assert_eq!(async_events(&pair.a), [AsyncEvent::QpFatal]);
    }
}

#[test]
fn a_qp_whose_receive_ring_is_unmapped_fails_and_the_senders_request_too() {
    if !can_recover_from_faults() {
        return;
    }
    let page = Page::new();
    let mut pair = pair(|spec| spec.rq_buf = page.0, DoorbellView::Exact);
    pair.a.qp.dbrec.put_be32(0, 1);
    page.make_inaccessible();
    let counter = pair.b.post(SEND, SIGNALLED, &[inline_segment(b"x")]);
    pair.advance(5_000_000_000, 20_000_000);
    assert_eq!(pair.a.state(), ERR);
    assert_eq!(async_events(&pair.a), [AsyncEvent::QpFatal]);
    let completions = pair.b.cq.poll_all();
    assert_eq!(completions.len(), 1);
    assert_eq!(completions[0].counter, counter);
    assert_ne!(completions[0].syndrome, OK);
}

#[test]
fn an_srq_whose_doorbell_record_is_unmapped_fails_with_one_event() {
    if !can_recover_from_faults() {
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
    let b = peer(host, |spec| spec.srq = Some(srq));
    let mut pair = Pair::connect(peer(Host::new(1), |_| {}), b, attributes());
    page.make_inaccessible();
    for _ in 0..2 {
        pair.a.post(SEND, SIGNALLED, &[inline_segment(b"x")]);
    }
    pair.run_until_idle();
    assert_eq!(async_events(&pair.b), [AsyncEvent::SrqErr], "one event");
}

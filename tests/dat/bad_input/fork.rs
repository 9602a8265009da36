//! A child process that goes on using its parent's handles.

use std::mem;
use std::ptr;

use dat::abi::*;
use dat::exports::*;

use crate::support::{
    End, Fixture, Pair, ServicePoint, Shape, blank, expect, held, nothing_on, ok, srq, state_of,
};

/// Runs a closure in a child process, and returns its exit status. Fails if the
/// child hangs or dies.
#[track_caller]
fn in_child(what: impl FnOnce() -> i32 + std::panic::UnwindSafe) -> i32 {
    // SAFETY: the child runs only the code under test, and leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork");
    if pid == 0 {
        // SAFETY: ends a child that hangs.
        unsafe { libc::alarm(30) };
        let answer = std::panic::catch_unwind(what).unwrap_or(99);
        // SAFETY: the child must not run the parent's cleanup.
        unsafe { libc::_exit(answer) };
    }
    let mut status = 0;
    // SAFETY: a child of this process, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert!(
        libc::WIFEXITED(status),
        "the child hung or died: {status:#x}"
    );
    libc::WEXITSTATUS(status)
}

/// Sends one message each way.
#[track_caller]
fn exchange(fixture: &Fixture, pair: &Pair) {
    let memory = fixture.memory(4096);
    for (from, to) in [(pair.active, pair.passive), (pair.passive, pair.active)] {
        ok(to.post_recv(&[memory.segment(1024, 8)], 1));
        ok(from.post_send(&[memory.segment(0, 8)], 2, DAT_COMPLETION_DEFAULT_FLAG));
        fixture.run();
        assert_eq!(to.received().status, DAT_DTO_SUCCESS);
        assert_eq!(from.requested().status, DAT_DTO_SUCCESS);
    }
}

/// Calls that need the adapter fail in the child with a clear error. Returns the
/// number of the first call that does not, or 0.
#[test]
fn calls_in_a_child_fail_because_the_adapter_belongs_to_its_parent() {
    let fixture = Fixture::new();
    let pair = Pair::new(&fixture, &Shape::default());
    let idle = End::new(&fixture, &Shape::default());
    let service_point = ServicePoint::new(&fixture);
    let queue = srq(&fixture, 4);
    let mut memory = fixture.memory(4096);
    let segment = memory.segment(0, 8);
    let (ia, pz) = (fixture.ia, fixture.pz);
    let lmr = memory.lmr;
    let attr = Shape::default().attributes();
    let surprise = in_child(std::panic::AssertUnwindSafe(|| {
        let mut made = ptr::null_mut();
        let (mut qualifier, mut address) = (0, Pair::address());
        let mut bytes = [0_u8; 64];
        let region = DAT_REGION_DESCRIPTION {
            for_va: bytes.as_mut_ptr().cast(),
        };
        let (mut context, mut remote, mut length, mut at) = (0, 0, 0, 0);
        let mut srq_attr = DAT_SRQ_ATTR {
            max_recv_dtos: 4,
            max_recv_iov: 1,
            low_watermark: 0,
        };
        // SAFETY: the calls validate their handles; the results are local.
        let answers = unsafe {
            [
                dat_pz_create(ia, &raw mut made),
                dat_lmr_create(
                    ia,
                    DAT_MEM_TYPE_VIRTUAL,
                    region,
                    64,
                    pz,
                    DAT_MEM_PRIV_ALL_FLAG,
                    &raw mut made,
                    &raw mut context,
                    &raw mut remote,
                    &raw mut length,
                    &raw mut at,
                ),
                dat_srq_create(ia, pz, &raw mut srq_attr, &raw mut made),
                dat_ep_create(
                    ia,
                    pz,
                    idle.recv,
                    idle.request,
                    idle.connect,
                    &raw const attr,
                    &raw mut made,
                ),
                dat_psp_create_any(
                    ia,
                    &raw mut qualifier,
                    service_point.requests,
                    DAT_PSP_CONSUMER_FLAG,
                    &raw mut made,
                ),
                dat_ep_connect(
                    idle.ep,
                    (&raw mut address).cast(),
                    service_point.qualifier,
                    1_000_000,
                    0,
                    ptr::null_mut(),
                    DAT_QOS_BEST_EFFORT,
                    DAT_CONNECT_DEFAULT_FLAG,
                ),
                dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG),
                dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG),
            ]
        };
        for (at, answer) in answers.into_iter().enumerate() {
            if answer & 0x3fff_0000 != DAT_INVALID_HANDLE {
                return 1 + i32::try_from(at).unwrap_or(90);
            }
        }
        0
    }));
    assert_eq!(
        surprise, 0,
        "the number of the first call that was not refused"
    );
    // The parent has noticed none of these calls.
    nothing_on(service_point.requests);
    nothing_on(idle.connect);
    assert_eq!(state_of(idle.ep), DAT_EP_STATE_UNCONNECTED);
    ok(idle.post_recv(&[segment], 1));
    exchange(&fixture, &pair);
    // SAFETY: live handles.
    unsafe {
        ok(dat_srq_free(queue));
        ok(dat_ep_free(idle.ep));
    }
    ok(memory.free());
    assert_eq!(memory.lmr, lmr);
    service_point.close();
}

/// Queries, waits, disconnects and frees return in the child, and do not affect
/// the parent's connection.
#[test]
fn calls_in_a_child_return_and_do_not_affect_its_parent() {
    let fixture = Fixture::new();
    let pair = Pair::new(&fixture, &Shape::default());
    let service_point = ServicePoint::new(&fixture);
    let queue = srq(&fixture, 4);
    let memory = fixture.memory(4096);
    ok(pair.active.post_recv(&[memory.segment(2048, 8)], 7));
    let pz = fixture.pz;
    let lmr = memory.lmr;
    let done = in_child(std::panic::AssertUnwindSafe(|| {
        let mut event = blank();
        let mut nmore = 0;
        let (mut allocated, mut span) = (0, 0);
        // SAFETY: the calls validate their handles; the results are local.
        unsafe {
            let mut info: DAT_EP_PARAM = mem::zeroed();
            let mut srq_info: DAT_SRQ_PARAM = mem::zeroed();
            for end in [pair.active, pair.passive] {
                let _ = dat_ep_query(end.ep, DAT_EP_FIELD_ALL, &raw mut info);
                let _ = dat_ep_recv_query(end.ep, &raw mut allocated, &raw mut span);
                for evd in [end.recv, end.request, end.connect] {
                    let _ = dat_evd_dequeue(evd, &raw mut event);
                    let _ = dat_evd_wait(evd, 10_000, 1, &raw mut event, &raw mut nmore);
                    let _ = dat_evd_set_unwaitable(evd);
                }
            }
            let _ = dat_srq_query(queue, DAT_SRQ_FIELD_ALL, &raw mut srq_info);
            let _ = dat_srq_set_lw(queue, 1);
            let _ = dat_ep_disconnect(pair.active.ep, DAT_CLOSE_ABRUPT_FLAG);
            let _ = dat_ep_disconnect(pair.passive.ep, DAT_CLOSE_GRACEFUL_FLAG);
            let _ = dat_ep_reset(pair.active.ep);
            let _ = dat_ep_free(pair.active.ep);
            let _ = dat_ep_free(pair.passive.ep);
            let _ = dat_srq_free(queue);
            let _ = dat_psp_free(service_point.psp);
            for evd in [
                pair.active.recv,
                pair.active.request,
                service_point.requests,
            ] {
                let _ = dat_evd_free(evd);
            }
            let _ = dat_lmr_free(lmr);
            let _ = dat_pz_free(pz);
        }
        42
    }));
    assert_eq!(done, 42);
    // The parent's connection, service point and registration still work.
    for end in [pair.active, pair.passive] {
        assert_eq!(state_of(end.ep), DAT_EP_STATE_CONNECTED);
        nothing_on(end.connect);
    }
    assert_eq!(held(pair.active.ep), (1, 1));
    ok(pair
        .passive
        .post_send(&[memory.segment(0, 8)], 1, DAT_COMPLETION_DEFAULT_FLAG));
    fixture.run();
    assert_eq!(pair.active.received().cookie, 7);
    pair.passive.requested();
    exchange(&fixture, &pair);
    let end = End::new(&fixture, &Shape::default());
    ok(service_point.connect(end.ep, &[]));
    // SAFETY: live handles.
    unsafe {
        ok(dat_cr_reject(service_point.take_request()));
        expect(end.connect, DAT_CONNECTION_EVENT_PEER_REJECTED);
        ok(dat_ep_disconnect(pair.active.ep, DAT_CLOSE_ABRUPT_FLAG));
        expect(pair.passive.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
        ok(dat_srq_free(queue));
    }
    service_point.close();
}

/// Posts of a child reach neither the device nor the parent's rings.
#[test]
fn a_child_that_posts_does_not_disturb_its_parent() {
    let fixture = Fixture::new();
    let pair = Pair::new(&fixture, &Shape::default());
    let memory = fixture.memory(4096);
    let (from, to) = (pair.active, pair.passive);
    for tag in 0..2 {
        ok(to.post_recv(&[memory.segment(1024, 8)], tag));
    }
    let done = in_child(std::panic::AssertUnwindSafe(|| {
        for tag in 0..4 {
            let _ = from.post_recv(&[memory.segment(0, 8)], tag);
            let _ = from.post_send(&[memory.segment(0, 8)], tag, DAT_COMPLETION_DEFAULT_FLAG);
        }
        42
    }));
    assert_eq!(done, 42);
    fixture.run();
    nothing_on(to.recv);
    nothing_on(from.request);
    for tag in 0..2 {
        ok(from.post_send(&[memory.segment(0, 8)], tag, DAT_COMPLETION_DEFAULT_FLAG));
        fixture.run();
        assert_eq!(to.received().cookie, tag);
        assert_eq!(from.requested().status, DAT_DTO_SUCCESS);
    }
    assert_eq!(held(from.ep), (0, 0));
    exchange(&fixture, &pair);
}

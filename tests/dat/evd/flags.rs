//! Completion flags: where each is valid, and the effects that W21 does not
//! cover.

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use crate::support::{
    End, Fixture, Memory, Pair, Shape, cookie, expect, fails, nothing_on, ok, take_dto,
};

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;
const SUPPRESS: DAT_COMPLETION_FLAGS = DAT_COMPLETION_SUPPRESS_FLAG;
const SOLICITED: DAT_COMPLETION_FLAGS = DAT_COMPLETION_SOLICITED_WAIT_FLAG;
const UNSIGNALLED: DAT_COMPLETION_FLAGS = DAT_COMPLETION_UNSIGNALLED_FLAG;
const FENCE: DAT_COMPLETION_FLAGS = DAT_COMPLETION_BARRIER_FENCE_FLAG;
const THRESHOLD: DAT_COMPLETION_FLAGS = DAT_COMPLETION_EVD_THRESHOLD_FLAG;

/// Each flag as an attribute of requests, and of receives.
#[test]
fn evd_f01_flags_as_attributes_of_endpoints() {
    for is_strict in [false, true] {
        flags_as_attributes(is_strict);
    }
}

fn flags_as_attributes(is_strict: bool) {
    let fixture = Fixture::with_strict(is_strict);
    let rows = [
        ("DEFAULT", DEFAULT, true, true),
        ("SUPPRESS", SUPPRESS, !is_strict, false),
        ("SOLICITED_WAIT", SOLICITED, false, true),
        ("UNSIGNALLED", UNSIGNALLED, true, true),
        ("BARRIER_FENCE", FENCE, false, false),
        ("EVD_THRESHOLD", THRESHOLD, true, true),
        ("two of them", UNSIGNALLED | THRESHOLD, false, false),
        ("an unknown flag", 0x40, false, false),
    ];
    for (name, flag, for_requests, for_receives) in rows {
        for (is_request, valid) in [(true, for_requests), (false, for_receives)] {
            println!("{name}, of requests: {is_request}");
            let shape = Shape {
                request_flags: if is_request { flag } else { DEFAULT },
                recv_flags: if is_request { DEFAULT } else { flag },
                ..Shape::default()
            };
            let end = End::without_ep(&fixture, &shape);
            let attributes = shape.attributes();
            let mut ep = ptr::null_mut();
            // SAFETY: live handles, and a place for the result.
            let answer = unsafe {
                dat_ep_create(
                    fixture.ia,
                    fixture.pz,
                    end.recv,
                    end.request,
                    end.connect,
                    &raw const attributes,
                    &raw mut ep,
                )
            };
            match valid {
                true => {
                    ok(answer);
                    // SAFETY: a live handle.
                    ok(unsafe { dat_ep_free(ep) });
                }
                false => fails(answer, DAT_INVALID_PARAMETER),
            }
        }
    }
}

/// Posts a request of each kind with these flags, in the order send, write, read.
fn requests(pair: &Pair, memory: &Memory, flags: DAT_COMPLETION_FLAGS) -> [DAT_RETURN; 3] {
    let segment = [memory.segment(0, 8)];
    let remote = memory.remote(2048, 8);
    let from = pair.active;
    [
        from.post_send(&segment, 1, flags),
        from.post_write(&segment, &remote, 1, flags),
        from.post_read(&segment, &remote, 1, flags),
    ]
}

fn receive(pair: &Pair, memory: &Memory, flags: DAT_COMPLETION_FLAGS) -> DAT_RETURN {
    let mut iov = [memory.segment(1024, 8)];
    // SAFETY: one segment, whose memory the tests keep.
    unsafe { dat_ep_post_recv(pair.passive.ep, 1, iov.as_mut_ptr(), cookie(2), flags) }
}

/// Each flag on each post, with each configuration of the endpoint.
#[test]
fn evd_f02_flags_on_posts() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    // Validity on a send, on RDMA, on a receive: never, always, or if configured.
    #[derive(Clone, Copy, PartialEq)]
    enum Valid {
        No,
        Yes,
        Configured,
    }
    use Valid::{Configured, No, Yes};
    let rows = [
        ("DEFAULT", DEFAULT, Yes, Yes, Yes),
        ("SUPPRESS", SUPPRESS, Yes, Yes, No),
        ("SOLICITED_WAIT", SOLICITED, Yes, No, No),
        (
            "UNSIGNALLED",
            UNSIGNALLED,
            Configured,
            Configured,
            Configured,
        ),
        ("BARRIER_FENCE", FENCE, Yes, Yes, No),
        ("EVD_THRESHOLD", THRESHOLD, No, No, No),
        ("an unknown flag", 0x40, No, No, No),
    ];
    for configured in [DEFAULT, UNSIGNALLED, THRESHOLD] {
        let shape = Shape {
            recvs: 16,
            requests: 64,
            evd_qlen: 128,
            recv_flags: configured,
            request_flags: configured,
            ..Shape::default()
        };
        let pair = Pair::new(&fixture, &shape);
        for (name, flag, on_send, on_rdma, on_receive) in rows {
            println!("{name}, configured {configured:#x}");
            let check = |answer, valid| match valid == Yes
                || valid == Configured && configured == UNSIGNALLED
            {
                true => ok(answer),
                false => fails(answer, DAT_INVALID_PARAMETER),
            };
            check(receive(&pair, &memory, flag), on_receive);
            // The message that a send needs.
            ok(receive(&pair, &memory, DEFAULT));
            let [send, write, read] = requests(&pair, &memory, flag);
            check(send, on_send);
            check(write, on_rdma);
            check(read, on_rdma);
            fixture.run();
        }
        // SAFETY: live handles.
        ok(unsafe { dat_ep_disconnect(pair.active.ep, DAT_CLOSE_ABRUPT_FLAG) });
        expect(pair.passive.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
    }
}

/// Only successful requests are suppressed.
#[test]
fn evd_f03_a_suppressed_request_that_fails_is_reported() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    for kind in 0..2 {
        let pair = Pair::new(&fixture, &Shape::default());
        let segment = [memory.segment(0, 8)];
        let remote = memory.remote(2048, 8);
        ok(pair.active.post_write(&segment, &remote, 1, SUPPRESS));
        fixture.run();
        nothing_on(pair.active.request);
        let mut wrong = remote;
        wrong.rmr_context ^= 0xdead_0000;
        ok(match kind {
            0 => pair.active.post_write(&segment, &wrong, 2, SUPPRESS),
            _ => pair.active.post_read(&segment, &wrong, 2, SUPPRESS),
        });
        fixture.run();
        let done = take_dto(pair.active.request);
        assert_eq!(done.cookie, 2);
        crate::support::refused_access(done.status);
    }
}

/// A fenced send waits for earlier reads: it carries the data that they read.
#[test]
fn evd_f04_a_fenced_request_waits_for_the_reads_before_it() {
    let fixture = Fixture::new();
    let mut memory = fixture.memory(4096);
    let pair = Pair::new(&fixture, &Shape::default());
    for round in 0..20_u8 {
        memory.write(2048, &[round + 1; 8]);
        memory.write(0, &[0; 8]);
        ok(pair.passive.post_recv(&[memory.segment(1024, 8)], 1));
        let here = [memory.segment(0, 8)];
        ok(pair
            .active
            .post_read(&here, &memory.remote(2048, 8), 2, DEFAULT));
        ok(pair.active.post_send(&here, 3, FENCE));
        fixture.run();
        assert_eq!(pair.passive.received().status, DAT_DTO_SUCCESS);
        assert_eq!(memory.read(1024, 8), [round + 1; 8]);
        for cookie in [2, 3] {
            assert_eq!(pair.active.requested().cookie, cookie);
        }
    }
}

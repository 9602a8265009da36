//! Attributes of endpoints.

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use crate::support::{
    End, Fixture, Pair, Shape, abilities, ep_info, fails, fails_with, nothing_on, ok, srq, wait,
};

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;
const SUPPRESS: DAT_COMPLETION_FLAGS = DAT_COMPLETION_SUPPRESS_FLAG;

/// Creates an endpoint without attributes.
fn by_default(fixture: &Fixture) -> End {
    let mut end = End::without_ep(fixture, &Shape::default());
    // SAFETY: live handles; the result is writable.
    ok(unsafe {
        dat_ep_create(
            fixture.ia,
            fixture.pz,
            end.recv,
            end.request,
            end.connect,
            ptr::null(),
            &raw mut end.ep,
        )
    });
    end
}

/// Returns how many reads an endpoint serves and issues.
fn reads_of(end: &End) -> [DAT_COUNT; 2] {
    let has = ep_info(end.ep).ep_attr;
    [has.max_rdma_read_in, has.max_rdma_read_out]
}

#[test]
fn habit_03_endpoints_with_default_attributes_read() {
    let fixture = Fixture::with_strict(false);
    let limits = abilities(&fixture).0;
    let [served, issued] = [
        limits.max_rdma_read_per_ep_in,
        limits.max_rdma_read_per_ep_out,
    ];
    let ends = [(); 2].map(|()| by_default(&fixture));
    for end in &ends {
        assert_eq!(reads_of(end), [served.min(4), issued.min(4)]);
    }
    let Pair { active, passive } = Pair::connect(&fixture, ends[0], ends[1]);
    let mut memory = fixture.memory(4096);
    for (reader, at) in [(active, 1024), (passive, 2048)] {
        // More reads than are carried out at a time.
        for round in 0..6_u8 {
            memory.write(0, &[round + 1; 64]);
            let answers = [0; 6].map(|_| {
                reader.post_read(&[memory.segment(at, 64)], &memory.remote(0, 64), 1, DEFAULT)
            });
            if served.min(issued) == 0 {
                fails(answers[0], DAT_MODEL_NOT_SUPPORTED);
                continue;
            }
            fixture.run();
            for answer in answers {
                ok(answer);
                assert_eq!(reader.requested().status, DAT_DTO_SUCCESS);
            }
            assert_eq!(memory.read(at, 64), [round + 1; 64]);
        }
    }
}

/// DAT_HW_DEFAULT leaves a number of reads open; 0 is no reads.
#[test]
fn habit_03_read_depths_that_are_left_open_get_the_default() {
    for is_strict in [false, true] {
        let fixture = Fixture::with_strict(is_strict);
        let limits = abilities(&fixture).0;
        let default = |most: DAT_COUNT| if is_strict { 0 } else { most.min(4) };
        let shape = Shape::default();
        let mut attributes = shape.attributes();
        attributes.max_rdma_read_in = DAT_HW_DEFAULT;
        attributes.max_rdma_read_out = 0;
        let end = End::with_attributes(&fixture, &shape, &attributes);
        assert_eq!(reads_of(&end), [default(limits.max_rdma_read_per_ep_in), 0]);
        attributes.max_rdma_read_in = 0;
        attributes.max_rdma_read_out = DAT_HW_DEFAULT;
        let end = End::with_attributes(&fixture, &shape, &attributes);
        assert_eq!(
            reads_of(&end),
            [0, default(limits.max_rdma_read_per_ep_out)]
        );
    }
}

/// As their page says (E15).
#[test]
fn habit_03_read_depths_stay_0_on_an_srq() {
    for is_strict in [false, true] {
        let fixture = Fixture::with_strict(is_strict);
        let shape = Shape {
            reads: DAT_HW_DEFAULT,
            ..Shape::default()
        };
        let end = End::on_srq(&fixture, &shape, srq(&fixture, 8));
        assert_eq!(reads_of(&end), [0, 0]);
    }
}

#[test]
fn habit_03_strict_endpoints_with_default_attributes_refuse_reads() {
    let fixture = Fixture::strict();
    let ends = [(); 2].map(|()| by_default(&fixture));
    let Pair { active, .. } = Pair::connect(&fixture, ends[0], ends[1]);
    assert_eq!(reads_of(&active), [0, 0]);
    let memory = fixture.memory(64);
    let answer = active.post_read(&[memory.segment(0, 8)], &memory.remote(8, 8), 1, DEFAULT);
    match abilities(&fixture).0.max_rdma_read_per_ep_out {
        0 => fails(answer, DAT_MODEL_NOT_SUPPORTED),
        _ => fails_with(answer, DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY),
    }
}

/// Creates an endpoint with these flags, on an SRQ or not; returns the code.
fn create(
    fixture: &Fixture,
    [recv_flags, request_flags]: [DAT_COMPLETION_FLAGS; 2],
    srq: DAT_SRQ_HANDLE,
) -> DAT_RETURN {
    let shape = Shape {
        recv_flags,
        request_flags,
        ..Shape::default()
    };
    let end = End::without_ep(fixture, &shape);
    let mut attributes = shape.attributes();
    if !srq.is_null() {
        attributes.max_recv_dtos = DAT_HW_DEFAULT;
    }
    let (ia, pz, of) = (fixture.ia, fixture.pz, &raw mut attributes);
    let [recv, request, connect] = [end.recv, end.request, end.connect];
    let mut ep = ptr::null_mut();
    // SAFETY: live handles, attributes, and a place for the result.
    unsafe {
        match srq.is_null() {
            true => dat_ep_create(ia, pz, recv, request, connect, of, &raw mut ep),
            false => dat_ep_create_with_srq(ia, pz, recv, request, connect, srq, of, &raw mut ep),
        }
    }
}

#[test]
fn habit_04_suppress_as_an_attribute_of_requests_has_no_effect() {
    let fixture = Fixture::with_strict(false);
    let memory = fixture.memory(4096);
    let others = [
        DEFAULT,
        DAT_COMPLETION_EVD_THRESHOLD_FLAG,
        DAT_COMPLETION_UNSIGNALLED_FLAG,
    ];
    for other in others {
        let shape = Shape {
            request_flags: SUPPRESS | other,
            ..Shape::default()
        };
        let Pair { active, passive } = Pair::new(&fixture, &shape);
        let has = ep_info(active.ep).ep_attr.request_completion_flags;
        assert_eq!(has, SUPPRESS | other, "as requested");
        let send = |flags| {
            ok(passive.post_recv(&[memory.segment(1024, 64)], 1));
            ok(active.post_send(&[memory.segment(0, 8)], 2, flags));
            fixture.run();
            assert_eq!(passive.received().status, DAT_DTO_SUCCESS);
        };
        send(DEFAULT);
        assert_eq!(active.requested().cookie, 2);
        send(SUPPRESS);
        nothing_on(active.request);
        // Threshold 1 only where posts decide about notification.
        send(DEFAULT);
        send(DEFAULT);
        let (answer, _, nmore) = wait(active.request, 60_000_000, 2);
        match other {
            DAT_COMPLETION_UNSIGNALLED_FLAG => fails(answer, DAT_INVALID_STATE),
            _ => {
                ok(answer);
                assert_eq!(nmore, 1);
            }
        }
    }
}

/// A change to or from the flag does not recreate the queue pair.
#[test]
fn habit_04_suppress_can_be_set_while_receives_are_posted() {
    let fixture = Fixture::with_strict(false);
    let end = End::new(&fixture, &Shape::default());
    let memory = fixture.memory(64);
    ok(end.post_recv(&[memory.segment(0, 8)], 1));
    for flags in [SUPPRESS, DEFAULT] {
        let mut to = ep_info(end.ep);
        to.ep_attr.request_completion_flags = flags;
        let field = DAT_EP_FIELD_EP_ATTR_REQUEST_COMPLETION_FLAGS;
        // SAFETY: a live endpoint; the values are local.
        ok(unsafe { dat_ep_modify(end.ep, field, &raw const to) });
        assert_eq!(ep_info(end.ep).ep_attr.request_completion_flags, flags);
    }
}

#[test]
fn habit_04_suppress_is_refused_for_receives_and_on_an_srq() {
    let fixture = Fixture::with_strict(false);
    let none = ptr::null_mut();
    let argument = |answer, argument| fails_with(answer, DAT_INVALID_PARAMETER, argument);
    argument(
        create(&fixture, [SUPPRESS, DEFAULT], none),
        DAT_INVALID_ARG6,
    );
    ok(create(&fixture, [DEFAULT, SUPPRESS], none));
    let srq = srq(&fixture, 8);
    argument(create(&fixture, [SUPPRESS, DEFAULT], srq), DAT_INVALID_ARG7);
    argument(create(&fixture, [DEFAULT, SUPPRESS], srq), DAT_INVALID_ARG7);
    ok(create(&fixture, [DEFAULT, DEFAULT], srq));
}

#[test]
fn habit_04_strict_suppress_is_no_attribute() {
    let fixture = Fixture::strict();
    for srq in [ptr::null_mut(), srq(&fixture, 8)] {
        for flags in [[SUPPRESS, DEFAULT], [DEFAULT, SUPPRESS]] {
            fails(create(&fixture, flags, srq), DAT_INVALID_PARAMETER);
        }
    }
}

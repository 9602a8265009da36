//! Lengths of RDMA transfers.

use dat::abi::*;
use dat::exports::*;

use crate::support::{
    End, Fixture, Memory, Pair, Shape, abilities, both_broken_by_a_refusal, fails, fails_with,
    nothing_on, ok, refused_access, srq,
};

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;

/// Bytes that differ from their neighbours.
fn text(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + seed) as u8).collect()
}

/// Returns one segment, and the same bytes in several ones.
fn lists(memory: &Memory, at: usize, length: usize) -> [Vec<DAT_LMR_TRIPLET>; 2] {
    let third = length / 3;
    let many = [
        memory.segment(at, third),
        memory.segment(at + third, third),
        memory.segment(at + 2 * third, length - 2 * third),
    ];
    [vec![memory.segment(at, length)], many.to_vec()]
}

#[test]
fn habit_06_the_local_length_decides_how_much_rdma_transfers() {
    const FROM: usize = 0;
    const TO: usize = 4096;
    let fixture = Fixture::with_strict(false);
    let Pair { active, .. } = Pair::new(&fixture, &Shape::default());
    let most_read = abilities(&fixture).0.max_iov_segments_per_rdma_read as usize;
    let mut memory = fixture.memory(8192);
    let mut seed = 0;
    for (length, stated) in [
        (200, 64),
        (200, 0),
        (200, 4000),
        (8, 0),
        (2048, 64),
        (64, 64),
    ] {
        for is_read in [false, true] {
            for iov in lists(&memory, if is_read { TO } else { FROM }, length) {
                if is_read && iov.len() > most_read {
                    continue;
                }
                let case = format!("read: {is_read}, {length} bytes, stated {stated}");
                seed += 1;
                let bytes = text(length, seed);
                memory.write(TO, &[0; 2100]);
                memory.write(FROM, &bytes);
                let remote = memory.remote(if is_read { FROM } else { TO }, stated);
                ok(match is_read {
                    true => active.post_read(&iov, &remote, 1, DEFAULT),
                    false => active.post_write(&iov, &remote, 1, DEFAULT),
                });
                fixture.run();
                let done = active.requested();
                assert_eq!(
                    (done.status, done.length),
                    (DAT_DTO_SUCCESS, length as u64),
                    "{case}"
                );
                println!("{case}");
                memory.has(TO, &bytes);
                assert_eq!(
                    memory.read(TO + length, 52),
                    [0; 52],
                    "{case}: more was transferred"
                );
            }
        }
    }
}

/// The length in the request is not checked, but the peer's device checks its
/// memory.
#[test]
fn habit_06_the_device_checks_the_region() {
    let fixture = Fixture::with_strict(false);
    for is_read in [false, true] {
        let pair = Pair::new(&fixture, &Shape::default());
        let (local, far) = (fixture.memory(4096), fixture.memory(64));
        let iov = [local.segment(0, 65)];
        let remote = far.remote(0, 64);
        ok(match is_read {
            true => pair.active.post_read(&iov, &remote, 1, DEFAULT),
            false => pair.active.post_write(&iov, &remote, 1, DEFAULT),
        });
        fixture.run();
        let reported = refused_access(pair.active.requested().status);
        both_broken_by_a_refusal(&fixture, &pair.active, &pair.passive, reported);
        assert_eq!(far.read(0, 64), [0; 64]);
    }
}

#[test]
fn habit_06_strict_the_remote_length_is_checked() {
    let fixture = Fixture::strict();
    let Pair { active, .. } = Pair::new(&fixture, &Shape::default());
    let most_read = abilities(&fixture).0.max_iov_segments_per_rdma_read as usize;
    let memory = fixture.memory(8192);
    let refused = |answer| fails_with(answer, DAT_LENGTH_ERROR, DAT_NO_SUBTYPE);
    for iov in lists(&memory, 0, 200) {
        for stated in [0, 64, 199] {
            refused(active.post_write(&iov, &memory.remote(4096, stated), 1, DEFAULT));
        }
        if iov.len() <= most_read {
            refused(active.post_read(&iov, &memory.remote(4096, 201), 1, DEFAULT));
        }
    }
    fixture.run();
    nothing_on(active.request);
}

/// Connects endpoints that declare RDMA of 64 bytes.
fn declared(fixture: &Fixture) -> Pair {
    let shape = Shape::default();
    let mut attributes = shape.attributes();
    attributes.max_rdma_size = 64;
    let ends = [(); 2].map(|()| End::with_attributes(fixture, &shape, &attributes));
    for end in ends {
        let has = crate::support::ep_info(end.ep).ep_attr;
        assert_eq!(has.max_rdma_size, 64, "as requested");
    }
    Pair::connect(fixture, ends[0], ends[1])
}

#[test]
fn habit_07_rdma_may_be_longer_than_max_rdma_size() {
    let fixture = Fixture::with_strict(false);
    let Pair { active, .. } = declared(&fixture);
    let most_read = abilities(&fixture).0.max_iov_segments_per_rdma_read as usize;
    let mut memory = fixture.memory(16384);
    for (seed, length) in [65, 4096].into_iter().enumerate() {
        for iov in lists(&memory, 0, length) {
            memory.write(0, &text(length, seed));
            let remote = memory.remote(8192, length);
            ok(active.post_write(&iov, &remote, 1, DEFAULT));
            fixture.run();
            let done = active.requested();
            assert_eq!((done.status, done.length), (DAT_DTO_SUCCESS, length as u64));
            memory.has(8192, &text(length, seed));
            if iov.len() > most_read {
                continue;
            }
            memory.write(0, &vec![0; length]);
            ok(active.post_read(&iov, &remote, 2, DEFAULT));
            fixture.run();
            let done = active.requested();
            assert_eq!((done.status, done.length), (DAT_DTO_SUCCESS, length as u64));
            assert_eq!(memory.read(0, length), text(length, seed));
        }
    }
}

/// As their page says (E09). The remote length is ignored here, too.
#[test]
fn habit_07_max_rdma_size_limits_rdma_on_an_srq() {
    let fixture = Fixture::with_strict(false);
    let shape = Shape::default();
    let mut attributes = shape.attributes();
    attributes.max_rdma_size = 64;
    attributes.max_recv_dtos = DAT_HW_DEFAULT;
    let mut end = End::without_ep(&fixture, &shape);
    // SAFETY: live handles; the result is writable.
    ok(unsafe {
        dat_ep_create_with_srq(
            fixture.ia,
            fixture.pz,
            end.recv,
            end.request,
            end.connect,
            srq(&fixture, 8),
            &raw const attributes,
            &raw mut end.ep,
        )
    });
    let active = Pair::connect(&fixture, end, End::new(&fixture, &shape)).active;
    let memory = fixture.memory(8192);
    let long = [memory.segment(0, 65)];
    let remote = memory.remote(4096, 65);
    for answer in [
        active.post_write(&long, &remote, 1, DEFAULT),
        active.post_read(&long, &remote, 1, DEFAULT),
    ] {
        fails_with(answer, DAT_LENGTH_ERROR, DAT_NO_SUBTYPE);
    }
    ok(active.post_write(
        &[memory.segment(0, 64)],
        &memory.remote(4096, 0),
        1,
        DEFAULT,
    ));
    fixture.run();
    let done = active.requested();
    assert_eq!((done.status, done.length), (DAT_DTO_SUCCESS, 64));
}

/// The limit of the adapter is checked, on the emulated device: others have to
/// lock that much memory.
#[test]
fn habit_07_the_limit_of_the_adapter_is_checked() {
    const COUNT: usize = 16;
    let fixture = Fixture::with_strict(false);
    if !fixture.is_stepped() {
        eprintln!("SKIPPED: the limit may be more memory than there is");
        return;
    }
    let limit = abilities(&fixture).0.max_rdma_size;
    let shape = Shape {
        iov: COUNT as DAT_COUNT,
        ..Shape::default()
    };
    let Pair { active, .. } = Pair::new(&fixture, &shape);
    let part = limit as usize / COUNT + 1;
    let memory = fixture.memory(part);
    let iov = [memory.segment(0, part); COUNT];
    let remote = memory.remote(0, 0);
    fails(
        active.post_write(&iov, &remote, 1, DEFAULT),
        DAT_LENGTH_ERROR,
    );
    fails(
        active.post_read(&iov, &remote, 1, DEFAULT),
        DAT_LENGTH_ERROR,
    );
}

#[test]
fn habit_07_strict_rdma_is_at_most_max_rdma_size() {
    let fixture = Fixture::strict();
    let Pair { active, .. } = declared(&fixture);
    let memory = fixture.memory(16384);
    for length in [65, 4096] {
        let iov = [memory.segment(0, length)];
        let remote = memory.remote(8192, length);
        for answer in [
            active.post_write(&iov, &remote, 1, DEFAULT),
            active.post_read(&iov, &remote, 1, DEFAULT),
        ] {
            fails_with(answer, DAT_LENGTH_ERROR, DAT_NO_SUBTYPE);
        }
    }
    ok(active.post_write(
        &[memory.segment(0, 64)],
        &memory.remote(8192, 64),
        1,
        DEFAULT,
    ));
    fixture.run();
    assert_eq!(active.requested().status, DAT_DTO_SUCCESS);
}

//! Guarantees of the data-path calls: no allocation, no waiting, ownership of
//! segment lists. For `dat_ep_post_recv` see `ep_post_recv`.
//!
//! | guarantee | test |
//! | --- | --- |
//! | none of them allocates or waits when it succeeds | `calls_…`; receives: `ep_post_recv` r06 |
//! | nor if it makes room in a full queue first, or is refused | `full_…` |
//! | the segment list belongs to the caller on return | `iov_…`; receives: `ep_post_recv` r14 |
//! | empty requests need neither a list nor remote memory | `empty_…`; receives: `face arguments` r01 |
//! | a read needs the local write privilege | `rdma_read_…` |
//! | strict: the target of an RDMA transfer may be larger than the transfer | `rdma_into_more_…`; less: `device posting::lengths_…`; not strict: `habits::rdma` |
//! | messages of every size arrive whole, cut anywhere | `sizes_…`; with more operations: `system conversation` |
//! | a full queue refuses | `queue_full_…`; sends: `ep_create_with_srq` e08; binds: `memory::rmr::bind`; receives: `ep_post_recv` r09, `memory::srq` |

use std::mem;
use std::ptr;

use dat::abi::*;
use dat::exports::*;

use crate::support::{
    End, Fixture, Pair, Shape, Window, abilities, allocations, cookie, dequeue, device, fails_with,
    nothing_on, ok, post_srq, srq, srq_info, take_dto,
};

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;

/// Returns how often this thread has given up its core to wait.
fn waits() -> i64 {
    // SAFETY: integers, for which zero is valid; the result is writable.
    unsafe {
        let mut usage: libc::rusage = mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
        usage.ru_nvcsw
    }
}

/// Makes a call that must neither allocate nor wait.
#[track_caller]
fn without_cost<T>(what: &str, call: impl FnOnce() -> T) -> T {
    let before = (allocations(), waits());
    let answer = call();
    let after = (allocations(), waits());
    assert_eq!(after, before, "{what}");
    answer
}

/// Takes an event, which comes once the device has had time.
fn taken(evd: DAT_EVD_HANDLE) {
    let found = device::comes(|| without_cost("dat_evd_dequeue", || dequeue(evd)).ok());
    assert!(found.is_some(), "no event");
}

#[test]
fn empty_requests_need_neither_a_list_nor_remote_memory() {
    let fixture = Fixture::new();
    let Pair { active, passive } = Pair::new(&fixture, &Shape::default());
    let nowhere = DAT_RMR_TRIPLET {
        rmr_context: 0x1234_5678,
        pad: 0,
        target_address: 0,
        segment_length: 0,
    };
    let (ep, none) = (active.ep, ptr::null_mut());
    ok(passive.post_recv(&[], 7));
    // SAFETY: live handles; no segments, so no list is read.
    unsafe {
        ok(dat_ep_post_recv(passive.ep, 0, none, cookie(8), DEFAULT));
        ok(dat_ep_post_send(ep, 0, none, cookie(1), DEFAULT));
        ok(dat_ep_post_rdma_write(
            ep,
            0,
            none,
            cookie(2),
            &raw const nowhere,
            DEFAULT,
        ));
        ok(dat_ep_post_rdma_read(
            ep,
            0,
            none,
            cookie(3),
            &raw const nowhere,
            DEFAULT,
        ));
        ok(dat_ep_post_send(ep, 0, none, cookie(4), DEFAULT));
    }
    fixture.run();
    for (evd, tags) in [(active.request, &[1, 2, 3, 4][..]), (passive.recv, &[7, 8])] {
        for &tag in tags {
            let dto = take_dto(evd);
            assert_eq!(
                (dto.cookie, dto.status, dto.length),
                (tag, DAT_DTO_SUCCESS, 0)
            );
        }
    }
}

/// Section 2: calls that must not block and should not allocate, in the case of
/// success.
#[test]
fn calls_of_the_data_path_neither_allocate_nor_wait() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let queue = srq(&fixture, 16);
    let shape = Shape::default();
    let active = End::for_windows(&fixture, &shape);
    let passive = End::on_srq(&fixture, &shape, queue);
    let Pair { active, passive } = Pair::connect(&fixture, active, passive);
    let window = Window::new(fixture.pz);
    let one = [memory.segment(0, 8)];
    let many = [0, 64, 128].map(|at| memory.segment(at, 8));
    let buffer = [memory.segment(1024, 64)];
    let remote = memory.remote(2048, 8);
    let far = memory.remote(2048, 24);
    // Several laps of each ring.
    for tag in 0..60 {
        for _ in 0..2 {
            ok(without_cost("dat_srq_post_recv", || {
                post_srq(queue, &buffer, tag)
            }));
        }
        ok(without_cost("dat_ep_post_send", || {
            active.post_send(&one, tag, DEFAULT)
        }));
        ok(without_cost("dat_ep_post_send", || {
            active.post_send(&many, tag, DEFAULT)
        }));
        ok(without_cost("dat_ep_post_rdma_write", || {
            active.post_write(&many, &far, tag, DEFAULT)
        }));
        ok(without_cost("dat_ep_post_rdma_read", || {
            active.post_read(&one, &remote, tag, DEFAULT)
        }));
        let rights = DAT_MEM_PRIV_REMOTE_READ_FLAG;
        let bound = without_cost("dat_rmr_bind", || {
            window.try_bind(active.ep, &one[0], rights, tag, DEFAULT)
        });
        ok(bound.0);
        fixture.run();
        for evd in [[active.request; 5].as_slice(), &[passive.recv; 2]].concat() {
            taken(evd);
        }
        let none = without_cost("dat_evd_dequeue", || dequeue(active.request));
        assert!(none.is_err());
    }
}

/// A post to a full queue polls for receives that messages have filled, on every
/// EVD that reports them. Events of receives with an EVD are delivered later, in
/// order.
#[test]
fn full_shared_queue_is_polled_without_allocating_or_waiting() {
    const ROUNDS: u64 = 3;
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let (message, buffer) = ([memory.segment(0, 8)], [memory.segment(1024, 64)]);
    for (row, has_evd) in [("a recv EVD", true), ("no recv EVD", false)] {
        println!("{row}");
        let queue = srq(&fixture, 4);
        let most = srq_info(queue).max_recv_dtos as u64;
        let shape = Shape {
            requests: 2 * most as DAT_COUNT,
            evd_qlen: (ROUNDS * most) as DAT_COUNT,
            ..Shape::default()
        };
        let mut passive = End::without_ep(&fixture, &shape);
        if !has_evd {
            passive.recv = ptr::null_mut();
        }
        let passive = passive.and_ep_on_srq(&fixture, &shape, queue);
        let Pair { active, passive } = Pair::connect(&fixture, End::new(&fixture, &shape), passive);
        let post = |tag| without_cost("dat_srq_post_recv", || post_srq(queue, &buffer, tag));
        for tag in 0..most {
            ok(post(tag));
        }
        for round in 1..=ROUNDS {
            fails_with(post(99), DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
            if round == ROUNDS {
                break;
            }
            for tag in 0..most {
                ok(active.post_send(&message, tag, DEFAULT));
            }
            fixture.run();
            for _ in 0..most {
                taken(active.request);
            }
            for tag in round * most..(round + 1) * most {
                let posted = device::comes(|| (post(tag) == DAT_SUCCESS).then_some(()));
                assert!(posted.is_some(), "{tag}: no room");
            }
        }
        if has_evd {
            for tag in 0..(ROUNDS - 1) * most {
                let received = take_dto(passive.recv);
                assert_eq!((received.cookie, received.status), (tag, DAT_DTO_SUCCESS));
            }
            nothing_on(passive.recv);
        }
    }
}

/// A post to a full queue polls for suppressed requests that have completed.
#[test]
fn full_request_queue_is_polled_without_allocating_or_waiting() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let Pair { active, .. } = Pair::new(&fixture, &Shape::default());
    let (from, to) = ([memory.segment(0, 8)], memory.remote(1024, 8));
    for tag in 0..100 {
        let posted = device::comes(|| {
            fixture.run();
            let answer = without_cost("dat_ep_post_rdma_write", || {
                active.post_write(&from, &to, tag, DAT_COMPLETION_SUPPRESS_FLAG)
            });
            (answer == DAT_SUCCESS).then_some(())
        });
        assert!(posted.is_some(), "{tag}: no room");
    }
    nothing_on(active.request);
    if fixture.is_stepped() {
        // The device does not run: there is room for this many, and then none.
        let most = Shape::default().requests as u64;
        fixture.run();
        let post = |tag| {
            without_cost("dat_ep_post_rdma_write", || {
                active.post_write(&from, &to, tag, DAT_COMPLETION_SUPPRESS_FLAG)
            })
        };
        let posted = (0..=most).take_while(|&tag| post(tag) == DAT_SUCCESS);
        let posted = posted.count() as u64;
        assert!((1..=most).contains(&posted), "{posted}");
        fails_with(post(99), DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    }
}

/// As the attribute `iov_ownership_on_return` says.
#[test]
fn iov_of_every_post_may_be_overwritten_on_return() {
    let fixture = Fixture::new();
    assert_eq!(
        abilities(&fixture).1.iov_ownership_on_return,
        DAT_IOV_CONSUMER
    );
    let mut memory = fixture.memory(4096);
    let queue = srq(&fixture, 8);
    let shape = Shape::default();
    let pair = Pair::connect(
        &fixture,
        End::new(&fixture, &shape),
        End::on_srq(&fixture, &shape, queue),
    );
    let from = pair.active;
    // More bytes than fit inline or in a CQE.
    let halves = |at| [memory.segment(at, 300), memory.segment(at + 300, 200)];
    let word: Vec<u8> = (0..500_u32).map(|at| (at % 251) as u8).collect();
    let remote = memory.remote(2048, 500);
    let rows: [(&str, usize, usize); 3] = [
        ("send", 0, 1024),
        ("RDMA write", 0, 2048),
        ("RDMA read", 3072, 3072),
    ];
    let lists = rows.map(|(_, at, _)| halves(at));
    let mut buffer = halves(1024);
    memory.write(0, &word);
    for ((row, _, to), mut iov) in rows.into_iter().zip(lists) {
        println!("{row}");
        let (list, count) = (iov.as_mut_ptr(), 2);
        match row {
            "send" => {
                ok(post_srq(queue, &buffer, 1));
                overwrite(&mut buffer);
                // SAFETY: two segments.
                ok(unsafe { dat_ep_post_send(from.ep, count, list, cookie(2), DEFAULT) });
            }
            "RDMA write" => {
                // SAFETY: two segments.
                ok(unsafe {
                    let to = &raw const remote;
                    dat_ep_post_rdma_write(from.ep, count, list, cookie(2), to, DEFAULT)
                });
            }
            _ => {
                // SAFETY: two segments.
                ok(unsafe {
                    let of = &raw const remote;
                    dat_ep_post_rdma_read(from.ep, count, list, cookie(2), of, DEFAULT)
                });
            }
        }
        overwrite(&mut iov);
        fixture.run();
        assert_eq!(from.requested().status, DAT_DTO_SUCCESS);
        if row == "send" {
            let received = take_dto(pair.passive.recv);
            assert_eq!((received.status, received.length), (DAT_DTO_SUCCESS, 500));
        }
        assert_eq!(memory.read(to, 500), word, "{row}");
    }
}

/// The attribute `rdma_write_for_rdma_read_req` says that the target memory of a
/// read needs no other privilege.
#[test]
fn rdma_read_fills_memory_that_can_only_be_written() {
    let fixture = Fixture::new();
    assert_eq!(
        abilities(&fixture).1.rdma_write_for_rdma_read_req,
        DAT_FALSE
    );
    let mut from = fixture.memory(64);
    let into = fixture.memory_in(fixture.pz, 64, DAT_MEM_PRIV_LOCAL_WRITE_FLAG);
    from.write(0, b"from there");
    let Pair { active, .. } = Pair::new(&fixture, &Shape::default());
    ok(active.post_read(&[into.segment(8, 10)], &from.remote(0, 10), 1, DEFAULT));
    fixture.run();
    assert_eq!(active.requested().status, DAT_DTO_SUCCESS);
    assert_eq!(into.read(8, 10), b"from there");
}

/// The target of an RDMA transfer may be larger than the transfer: it is filled
/// from the front, across segments, and the rest is unchanged. That the remote
/// segment of a read may be the smaller one is strict; see `habits::rdma`.
#[test]
fn rdma_into_more_than_is_transferred_fills_its_front() {
    let fixture = Fixture::strict();
    let pair = Pair::new(&fixture, &Shape::default());
    let mut memory = fixture.memory(4096);
    let text: Vec<u8> = (1..=64).collect();
    let (from, to) = (0, 1024);
    memory.write(from, &text);
    // The lengths of the segments, and how many bytes are transferred.
    let cuts: [(&[usize], usize); 6] = [
        (&[64], 63),
        (&[64], 1),
        (&[64], 0),
        (&[16, 16, 32], 20),
        (&[16, 0, 16, 32], 32),
        (&[8, 8], 15),
    ];
    for (lengths, wanted) in cuts {
        let mut at = to;
        let segments: Vec<_> = lengths
            .iter()
            .map(|&length| {
                at += length;
                memory.segment(at - length, length)
            })
            .collect();
        let local = memory.segment(from, wanted);
        let expected = |wanted: usize| [&text[..wanted], &[0; 64][wanted..]].concat();
        let case = format!("{lengths:?}, {wanted}");
        // A read: the local segments are the target.
        memory.write(to, &[0; 64]);
        let remote = memory.remote(from, wanted);
        ok(pair.active.post_read(&segments, &remote, 7, DEFAULT));
        fixture.run();
        let event = pair.active.requested();
        assert_eq!((event.cookie, event.status), (7, DAT_DTO_SUCCESS), "{case}");
        assert_eq!(event.length, wanted as u64, "{case}");
        assert_eq!(memory.read(to, 64), expected(wanted), "{case}");
        // A write: the remote memory is the target.
        memory.write(to, &[0; 64]);
        let remote = memory.remote(to, 64);
        ok(pair.active.post_write(&[local], &remote, 8, DEFAULT));
        fixture.run();
        let event = pair.active.requested();
        assert_eq!((event.cookie, event.status), (8, DAT_DTO_SUCCESS), "{case}");
        assert_eq!(event.length, wanted as u64, "{case}");
        assert_eq!(memory.read(to, 64), expected(wanted), "{case}");
    }
}

/// Messages of every size around the inline limits, cut in two at other places by each
/// end, while rings of odd depths wrap. The bytes around them stay.
#[test]
fn sizes_and_cuts_of_all_kinds_cross_rings_of_odd_depths() {
    const MOST: usize = 300;
    const AROUND: [u8; 4] = [0xcc; 4];
    let fixture = Fixture::new();
    let mut memory = fixture.memory(8192);
    let text: Vec<u8> = (0..MOST).map(|n| (n * 131 + (n >> 8)) as u8).collect();
    memory.write(0, &text);
    for depth in [1, 3, 5, 33] {
        let shape = Shape {
            recvs: depth,
            requests: depth,
            evd_qlen: 64,
            ..Shape::default()
        };
        let Pair { active, passive } = Pair::new(&fixture, &shape);
        for len in 0..=MOST {
            let case = format!("{len} bytes, depth {depth}");
            let (sent, received) = (len * 7 % (len + 1), len / 3);
            memory.write(4096, &[0xcc; 2048]);
            let into = [
                memory.segment(4100, received),
                memory.segment(5000, len - received),
            ];
            ok(passive.post_recv(&into, len as u64));
            let from = [memory.segment(0, sent), memory.segment(sent, len - sent)];
            ok(active.post_send(&from, len as u64, DEFAULT));
            fixture.run();
            let done = active.requested();
            let expected = (len as u64, DAT_DTO_SUCCESS);
            assert_eq!((done.cookie, done.status), expected, "{case}");
            let done = passive.received();
            assert_eq!((done.cookie, done.status), expected, "{case}");
            assert_eq!(done.length, len as u64, "{case}");
            for (at, part) in [(4100, &text[..received]), (5000, &text[received..len])] {
                let expected = [&AROUND, part, &AROUND].concat();
                assert_eq!(memory.read(at - 4, part.len() + 8), expected, "{case}");
            }
        }
    }
}

/// Overwrites segments that were passed to a call.
fn overwrite(iov: &mut [DAT_LMR_TRIPLET]) {
    // SAFETY: integers, for which any byte is valid.
    unsafe { ptr::write_bytes(iov.as_mut_ptr(), 0xff, iov.len()) };
    std::hint::black_box(iov);
}

/// As many requests as requested, and one more, for each kind of RDMA.
#[test]
fn queue_full_of_rdma_reads_and_writes() {
    let fixture = Fixture::new();
    if !fixture.is_stepped() {
        eprintln!("SKIPPED: requests stay outstanding on a stepped device only");
        return;
    }
    let memory = fixture.memory(4096);
    let most = Shape::default().requests as u64;
    for is_read in [false, true] {
        println!("reads: {is_read}");
        let Pair { active, .. } = Pair::new(&fixture, &Shape::default());
        let post = |tag| {
            let (iov, remote) = ([memory.segment(0, 8)], memory.remote(1024, 8));
            match is_read {
                false => active.post_write(&iov, &remote, tag, DEFAULT),
                true => active.post_read(&iov, &remote, tag, DEFAULT),
            }
        };
        for tag in 0..most {
            ok(post(tag));
        }
        fails_with(post(99), DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
        fixture.run();
        for tag in 0..most {
            let done = active.requested();
            assert_eq!((done.cookie, done.status), (tag, DAT_DTO_SUCCESS));
        }
        ok(post(1));
    }
}

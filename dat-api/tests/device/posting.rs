//! The data that posts transfer, and the posts that are refused.

use dat_api::object::ep::{Ep, kind};
use dat_api::object::lmr::Lmr;
use dat_api::object::pz::Pz;
use dat_api::types::{
    CompletionFlags, ConnectionKind, EpAttributes, EpState, LmrSegment, MemPrivileges, RmrSegment,
};
use dat_api::{DatReturn, ReturnType, Subtype};

use crate::fixture::*;

const EMPTY: LmrSegment = LmrSegment {
    context: 0xdead,
    address: 3,
    length: 0,
};

#[test]
fn r01_r02_r03_messages_of_all_segment_shapes_arrive_in_order() {
    let fixture = Fixture::new();
    let pair = fixture.pair();
    let [a, b] = &pair.eps;
    let m = &fixture.memory;
    let bytes: Vec<u8> = (0..200).collect();
    m.write(0x1000, &bytes);
    let cookies = [0, u64::MAX, 0x8000_0000_0000_0001, u64::MAX, 7];
    recv(b, &[], cookies[0]).expect("r01: nothing");
    recv(b, &[EMPTY, EMPTY], cookies[1]).expect("r01: nothing, twice");
    recv(b, &[m.local(0, 100), m.local(300, 100)], cookies[2]).expect("two");
    recv(b, &[EMPTY, m.local(500, 100)], cookies[3]).expect("one");
    recv(b, &[m.local(700, 10), m.local(800, 90)], cookies[4]).expect("two");
    send(a, &[], cookies[4]).expect("nothing");
    send(a, &[EMPTY], cookies[3]).expect("nothing");
    send(a, &[m.local(0x1000, 150)], cookies[2]).expect("one");
    send(a, &[m.local(0x1000, 30), m.local(0x1064, 70)], cookies[1]).expect("two");
    send(a, &[EMPTY, m.local(0x1000, 5)], cookies[0]).expect("one");
    let lengths = [0, 0, 150, 100, 5];
    for i in 0..5 {
        assert_eq!(success(&pair.evds[1]), (cookies[i], lengths[i]));
        assert_eq!(
            success(&pair.evds[0]),
            (cookies[4 - i], lengths[i]),
            "a send's length"
        );
    }
    // r02: the first segment is full, the second partly, the rest untouched.
    assert_eq!(m.read(0, 100), &bytes[..100]);
    assert_eq!(m.read(300, 100), [&bytes[100..150], &[0; 50]].concat());
    assert_eq!(m.read(500, 100), [&bytes[..30], &bytes[100..170]].concat());
    assert_eq!(m.read(700, 10), [&bytes[..5], &[0; 5]].concat());
    assert_eq!(m.read(800, 90), [0; 90]);
}

#[test]
fn rdma_reads_and_writes_carry_their_bytes_and_lengths() {
    let fixture = Fixture::new();
    let pair = fixture.pair();
    let [a, _] = &pair.eps;
    let m = &fixture.memory;
    for (round, len) in [1usize, 8, 64, 65, 4096].into_iter().enumerate() {
        let bytes: Vec<u8> = (0..len).map(|i| (i + round) as u8).collect();
        m.write(0, &bytes);
        let cookie = round as u64;
        write(a, &[m.local(0, len)], cookie, &m.remote(0x4000, len)).expect("room");
        assert_eq!(success(&pair.evds[0]), (cookie, len as u64));
        assert_eq!(m.read(0x4000, len), bytes);
        read(a, &[m.local(0x8000, len)], cookie, &m.remote(0x4000, len)).expect("room");
        assert_eq!(success(&pair.evds[0]), (cookie, len as u64));
        assert_eq!(m.read(0x8000, len), bytes);
    }
    write(a, &[EMPTY], 9, &RmrSegment::default()).expect("nothing");
    assert_eq!(success(&pair.evds[0]), (9, 0));
    nothing(&pair.evds[1]);
}

/// Returns the results of every kind of post.
fn each(ep: &Ep, segments: &[LmrSegment], remote: &RmrSegment) -> [Result<(), DatReturn>; 4] {
    [
        recv(ep, segments, 1),
        send(ep, segments, 1),
        read(ep, segments, 1, remote),
        write(ep, segments, 1, remote),
    ]
}

#[test]
fn r10_r11_r12_segments_are_checked_before_anything_is_posted() {
    for is_strict in [false, true] {
        segments_are_checked(is_strict);
    }
}

fn segments_are_checked(is_strict: bool) {
    let fixture = Fixture::with_strict(is_strict);
    let pair = fixture.pair();
    let [a, _] = &pair.eps;
    let other = Pz::create(&fixture.ia).expect("a zone");
    let foreign = Memory::new(&fixture.ia, &other, 4096, ALL_RIGHTS);
    let readable = Memory::new(&fixture.ia, &fixture.pz, 4096, MemPrivileges::LOCAL_READ);
    let writable = Memory::new(&fixture.ia, &fixture.pz, 4096, MemPrivileges::LOCAL_WRITE);
    let m = &fixture.memory;
    let remote = m.remote(0, 8);
    let kinds = |segment: LmrSegment| {
        each(a, &[m.local(0, 0), segment], &remote)
            .map(|result| result.err().and_then(DatReturn::kind))
    };
    let mut outside = m.local(0, 8);
    outside.address -= 1;
    assert_eq!(
        kinds(outside),
        [Some(ReturnType::InvalidParameter); 4],
        "r10"
    );
    let mut outside = m.local((1 << 16) - 8, 8);
    outside.length = 9;
    assert_eq!(
        kinds(outside),
        [Some(ReturnType::InvalidParameter); 4],
        "r10"
    );
    outside.length = u64::MAX;
    assert_eq!(
        kinds(outside),
        [Some(ReturnType::InvalidParameter); 4],
        "r10"
    );
    assert_eq!(
        kinds(foreign.local(0, 8)),
        [Some(ReturnType::ProtectionViolation); 4],
        "r11"
    );
    let mut unknown = m.local(0, 8);
    unknown.context ^= 0x5000_0000;
    assert_eq!(
        kinds(unknown),
        [Some(ReturnType::PrivilegesViolation); 4],
        "r12"
    );
    let no = Some(ReturnType::PrivilegesViolation);
    // Receives and reads write memory; sends and writes read it.
    assert_eq!(kinds(readable.local(0, 8)), [no, None, no, None], "r12");
    let unreadable = if is_strict { no } else { None };
    assert_eq!(
        kinds(writable.local(0, 8)),
        [None, unreadable, None, unreadable],
        "r12"
    );
    assert_eq!(a.state(), EpState::Connected);
}

#[test]
fn posts_that_alternate_between_two_lmrs_use_the_right_one() {
    // Too long for inline data, so that the keys are used.
    const LEN: usize = 200;
    for fixture in [Fixture::open(false), Fixture::open(true)] {
        let pair = fixture.pair();
        let [a, b] = &pair.eps;
        let memory = [(); 2].map(|()| Memory::new(&fixture.ia, &fixture.pz, 4 * LEN, ALL_RIGHTS));
        let [one, other] = &memory;
        for round in 0..6 {
            let (from, to) = match round % 2 {
                0 => (one, other),
                _ => (other, one),
            };
            let bytes = [round as u8 + 1; LEN];
            from.write(0, &bytes);
            recv(b, &[to.local(LEN, LEN)], round).expect("room");
            send(a, &[from.local(0, LEN)], round).expect("room");
            assert_eq!(success(&pair.evds[1]), (round, LEN as u64));
            assert_eq!(success(&pair.evds[0]), (round, LEN as u64));
            assert_eq!(to.read(LEN, LEN), bytes);
            write(a, &[from.local(0, LEN)], round, &to.remote(2 * LEN, LEN)).expect("room");
            assert_eq!(success(&pair.evds[0]), (round, LEN as u64));
            read(a, &[from.local(3 * LEN, LEN)], round, &to.remote(LEN, LEN)).expect("room");
            assert_eq!(success(&pair.evds[0]), (round, LEN as u64));
            assert_eq!(from.read(3 * LEN, LEN), bytes);
            // On iWARP a write is done when TCP has it, but comes before a later read.
            assert_eq!(to.read(2 * LEN, LEN), bytes);
        }
        // A segment in the cached LMR is refused once that is freed.
        let freed = other.local(0, LEN);
        // In this order: iWARP has no RNR.
        recv(b, &[freed], 6).expect("room");
        send(a, &[freed], 6).expect("room");
        assert_eq!(success(&pair.evds[1]), (6, LEN as u64));
        assert_eq!(success(&pair.evds[0]), (6, LEN as u64));
        Lmr::free(other.lmr.handle()).expect("nothing is bound to it");
        let refused = Err(refusal(ReturnType::PrivilegesViolation, Subtype::NoSubtype));
        assert_eq!(recv(b, &[freed], 7), refused);
        assert_eq!(send(a, &[freed], 7), refused);
    }
}

#[test]
fn lengths_and_counts_are_checked() {
    let fixture = Fixture::with_strict(true);
    let pair = fixture.pair();
    let [a, _] = &pair.eps;
    let m = &fixture.memory;
    let three = [m.local(0, 8), m.local(8, 8), m.local(16, 8)];
    let too_many = refusal(ReturnType::InvalidParameter, Subtype::InvalidArg2);
    assert_eq!(each(a, &three, &m.remote(64, 24)), [Err(too_many); 4]);
    let length = refusal(ReturnType::LengthError, Subtype::NoSubtype);
    for (segments, fits) in [(&three[..1], 8), (&three[..2], 16)] {
        assert_eq!(read(a, segments, 1, &m.remote(64, fits + 1)), Err(length));
        assert_eq!(write(a, segments, 1, &m.remote(64, fits - 1)), Err(length));
    }
    let big = Memory::new(&fixture.ia, &fixture.pz, (1 << 16) + 1, ALL_RIGHTS);
    let whole = big.local(0, (1 << 16) + 1);
    let refused = send(a, &[whole], 1).unwrap_err();
    assert_eq!(
        refused.kind(),
        Some(ReturnType::InvalidParameter),
        "max_message_size"
    );
    assert_eq!(
        write(a, &[whole], 1, &big.remote(0, (1 << 16) + 1)),
        Err(length),
        "max_rdma_size"
    );
}

#[test]
fn r05_flags_are_accepted_only_where_they_have_a_meaning() {
    let fixture = Fixture::new();
    let pair = fixture.pair();
    let [a, _] = &pair.eps;
    let segments = [fixture.memory.local(0, 8)];
    let remote = fixture.memory.remote(64, 8);
    let bad = Some(ReturnType::InvalidParameter);
    let kind = |result: Result<(), DatReturn>| result.err().and_then(DatReturn::kind);
    for flag in [
        CompletionFlags::SUPPRESS,
        CompletionFlags::SOLICITED_WAIT,
        CompletionFlags::UNSIGNALLED,
        CompletionFlags::BARRIER_FENCE,
        CompletionFlags::EVD_THRESHOLD,
        CompletionFlags::from_bits_retain(0x20),
    ] {
        // SAFETY: one thread posts; the memory is never unmapped.
        let received = unsafe { a.post_recv(&segments, 1, flag) };
        assert_eq!(kind(received), bad, "{flag:?}");
    }
    for flag in [
        CompletionFlags::UNSIGNALLED,
        CompletionFlags::EVD_THRESHOLD,
        CompletionFlags::from_bits_retain(0x20),
    ] {
        assert_eq!(kind(send_with(a, &segments, 1, flag)), bad, "{flag:?}");
    }
    // SAFETY: as above.
    let solicited = unsafe {
        a.post(
            kind::Write(|| remote),
            &segments,
            1,
            CompletionFlags::SOLICITED_WAIT,
        )
    };
    assert_eq!(kind(solicited), bad);
    for flag in [CompletionFlags::SUPPRESS, CompletionFlags::BARRIER_FENCE] {
        // SAFETY: as above.
        let written = unsafe { a.post(kind::Write(|| remote), &segments, 1, flag) };
        assert_eq!(written, Ok(()), "{flag:?}");
    }
    assert_eq!(success(&pair.evds[0]), (1, 8), "the fenced one");
}

#[test]
fn suppressed_requests_produce_no_events_and_never_fill_the_queue() {
    let fixture = Fixture::new();
    let pair = fixture.pair();
    let [a, b] = &pair.eps;
    let m = &fixture.memory;
    // The sender's EVD is not polled meanwhile.
    for round in 0..500u64 {
        recv(b, &[m.local(0, 8)], round).expect("room");
        send_with(a, &[m.local(64, 8)], round, CompletionFlags::SUPPRESS).expect("room");
        assert_eq!(success(&pair.evds[1]), (round, 8));
    }
    nothing(&pair.evds[0]);
    send(a, &[m.local(64, 8)], 1000).expect("room");
    recv(b, &[m.local(0, 8)], 1001).expect("room");
    assert_eq!(success(&pair.evds[0]), (1000, 8));
    assert_eq!(success(&pair.evds[1]), (1001, 8));
    assert!(a.status().request_idle);
    // A failure is still reported.
    recv(b, &[m.local(0, 4)], 1).expect("room");
    send_with(a, &[m.local(64, 8)], 2, CompletionFlags::SUPPRESS).expect("room");
    assert_eq!(done(&pair.evds[0]).cookie, 2);
    assert!(matches!(
        connection(&pair.evds[0]).0,
        ConnectionKind::Broken | ConnectionKind::Disconnected
    ));
}

#[test]
fn r09_e09_a_queue_holds_exactly_as_many_posts_as_asked_for() {
    let fixture = Fixture::new();
    let evds = [fixture.evd(64), fixture.evd(64)];
    let odd = EpAttributes {
        max_recv_dtos: 5,
        max_request_dtos: 3,
        ..plain()
    };
    let eps = [fixture.ep(&evds[0], &odd), fixture.ep(&evds[1], &odd)];
    let attributes = eps[0].query().attributes;
    assert_eq!(
        (attributes.max_recv_dtos, attributes.max_request_dtos),
        (5, 3)
    );
    let full = refusal(ReturnType::InsufficientResources, Subtype::ResourceMemory);
    let m = &fixture.memory;
    for cookie in 0..5 {
        recv(&eps[1], &[m.local(0, 8)], cookie).expect("room");
    }
    assert_eq!(recv(&eps[1], &[m.local(0, 8)], 5), Err(full));
    fixture.join(&eps, &evds);
    assert_eq!(recv(&eps[1], &[m.local(0, 8)], 5), Err(full));
    for cookie in 0..5 {
        send(&eps[0], &[m.local(64, 8)], cookie).expect("room");
        assert_eq!(success(&evds[0]), (cookie, 8));
    }
    for cookie in 0..5 {
        assert_eq!(
            success(&evds[1]),
            (cookie, 8),
            "earlier posts are unaffected"
        );
    }
    for cookie in 10..15 {
        recv(&eps[1], &[m.local(0, 8)], cookie).expect("as many as have completed");
    }
    assert_eq!(recv(&eps[1], &[m.local(0, 8)], 15), Err(full));
    for cookie in 0..3 {
        send(&eps[1], &[m.local(64, 8)], cookie).expect("room");
    }
    assert_eq!(
        send(&eps[1], &[m.local(64, 8)], 3),
        Err(full),
        "no receive over there"
    );
    // There is still room for a marker.
    eps[1].disconnect_now(true).expect("connected");
    for cookie in 0..3 {
        recv(&eps[0], &[m.local(0, 8)], cookie).expect("room");
        assert_eq!(success(&evds[0]), (cookie, 8));
    }
    assert_eq!(connection(&evds[0]).0, ConnectionKind::Disconnected);
}

#[test]
fn reads_beyond_the_agreed_number_are_refused() {
    let fixture = Fixture::new();
    let evds = [fixture.evd(16), fixture.evd(16)];
    let none = EpAttributes {
        max_rdma_read_in: 0,
        max_rdma_read_out: 0,
        ..plain()
    };
    let eps = [fixture.ep(&evds[0], &plain()), fixture.ep(&evds[1], &none)];
    fixture.join(&eps, &evds);
    let m = &fixture.memory;
    for ep in &eps {
        let refused = read(ep, &[m.local(0, 8)], 1, &m.remote(64, 8)).unwrap_err();
        assert_eq!(refused.kind(), Some(ReturnType::InsufficientResources));
    }
    // e15: the attribute stays as the consumer set it.
    assert_eq!(eps[0].query().attributes.max_rdma_read_out, 4);
}

#[test]
fn threads_can_share_an_endpoint_of_a_threadsafe_adapter() {
    let fixture = Fixture::open(true);
    let evds = [fixture.evd(256), fixture.evd(256)];
    let many = EpAttributes {
        max_recv_dtos: 100,
        max_request_dtos: 100,
        ..plain()
    };
    let eps = [fixture.ep(&evds[0], &many), fixture.ep(&evds[1], &many)];
    fixture.join(&eps, &evds);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (fixture, eps) = (&fixture, &eps);
            scope.spawn(move || {
                for i in 0..25 {
                    let cookie = thread << 32 | i;
                    recv(&eps[1], &[fixture.memory.local(0, 8)], cookie).expect("room");
                    send(&eps[0], &[fixture.memory.local(64, 8)], cookie).expect("room");
                }
            });
        }
    });
    for evd in &evds {
        let mut last = [None; 4];
        for _ in 0..100 {
            let (cookie, _) = success(evd);
            let thread = (cookie >> 32) as usize;
            assert!(
                last[thread] < Some(cookie),
                "each thread's posts are in order"
            );
            last[thread] = Some(cookie);
        }
    }
}

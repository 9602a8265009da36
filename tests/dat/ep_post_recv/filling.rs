//! The data that arrive, and where they are written.

use std::ptr;

use dat::abi::*;

use super::{DEFAULT, message, post};
use crate::support::{Dto, Fixture, Pair, Shape, expect, nothing_on, ok, state_of};

const GUARD: u8 = 0xee;

#[test]
fn ep_post_recv_r01_no_segments_for_an_empty_message() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let pair = Pair::new(&fixture, &Shape::default());
    let (from, to) = (pair.active, pair.passive);
    let mut unread = [memory.segment(0, 64)];
    ok(post(to.ep, 0, ptr::null_mut(), 1, DEFAULT));
    ok(post(to.ep, 0, unread.as_mut_ptr(), 2, DEFAULT));
    for cookie in [1, 2] {
        assert_eq!(
            message(&fixture, &from, &to, &[]),
            Dto {
                ep: to.ep,
                cookie,
                status: DAT_DTO_SUCCESS,
                length: 0
            }
        );
    }
    assert_eq!(state_of(to.ep), DAT_EP_STATE_CONNECTED);
}

#[test]
fn ep_post_recv_r01_an_empty_message_leaves_a_buffer_as_it_was() {
    let fixture = Fixture::new();
    let mut memory = fixture.memory(4096);
    memory.write(0, &[GUARD; 64]);
    let pair = Pair::new(&fixture, &Shape::default());
    let (from, to) = (pair.active, pair.passive);
    ok(to.post_recv(&[memory.segment(0, 64)], 7));
    let received = message(&fixture, &from, &to, &[]);
    assert_eq!((received.cookie, received.length), (7, 0));
    assert_eq!(memory.read(0, 64), [GUARD; 64]);
}

/// Segments of length 0 are skipped, whatever their other fields are.
#[test]
fn ep_post_recv_r01_segments_of_length_0_are_ignored() {
    let fixture = Fixture::new();
    let mut memory = fixture.memory(4096);
    memory.write(0, b"abcdef");
    let pair = Pair::new(&fixture, &Shape::default());
    let (from, to) = (pair.active, pair.passive);
    let empty = DAT_LMR_TRIPLET {
        lmr_context: 0xdead_beef,
        pad: 7,
        virtual_address: u64::MAX,
        segment_length: 0,
    };
    let of = |at: usize| memory.segment(1024 + at, 3);
    ok(to.post_recv(&[empty], 1));
    ok(to.post_recv(&[empty, of(0), empty, of(8)], 2));
    assert_eq!(message(&fixture, &from, &to, &[]).cookie, 1);
    let received = message(&fixture, &from, &to, &[memory.segment(0, 6)]);
    assert_eq!((received.cookie, received.length), (2, 6));
    assert_eq!(memory.read(1024, 3), b"abc");
    assert_eq!(memory.read(1032, 3), b"def");
}

/// The segments of a buffer are in another order in memory than in the message.
#[test]
fn ep_post_recv_r02_front_segments_are_filled_first_and_one_in_part() {
    const SEGMENTS: [(usize, usize); 4] = [(3000, 10), (1000, 20), (2000, 1), (1500, 29)];
    const TOTAL: usize = 60;
    let fixture = Fixture::new();
    let mut memory = fixture.memory(4096);
    let pair = Pair::new(&fixture, &Shape::default());
    let (from, to) = (pair.active, pair.passive);
    let words: Vec<u8> = (1..=TOTAL as u8).collect();
    memory.write(0, &words);
    for length in [0, 1, 9, 10, 11, 29, 30, 31, 32, 59, 60] {
        memory.write(900, &[GUARD; 3196]);
        let iov = SEGMENTS.map(|(at, len)| memory.segment(at, len));
        ok(to.post_recv(&iov, length as u64));
        let received = message(&fixture, &from, &to, &[memory.segment(0, length)]);
        assert_eq!(
            (received.cookie, received.status, received.length),
            (length as u64, DAT_DTO_SUCCESS, length as u64)
        );
        let mut expected = vec![GUARD; 3196];
        let mut left = &words[..length];
        for (at, len) in SEGMENTS {
            let (here, rest) = left.split_at(len.min(left.len()));
            expected[at - 900..at - 900 + here.len()].copy_from_slice(here);
            left = rest;
        }
        assert_eq!(memory.read(900, 3196), expected, "{length} bytes");
    }
}

#[test]
fn ep_post_recv_r02_segments_may_be_of_several_regions() {
    let fixture = Fixture::new();
    let (mut one, two) = (fixture.memory(4096), fixture.memory(64));
    one.write(0, b"first,second");
    let pair = Pair::new(&fixture, &Shape::default());
    ok(pair
        .passive
        .post_recv(&[one.segment(100, 6), two.segment(0, 64)], 1));
    let received = message(&fixture, &pair.active, &pair.passive, &[one.segment(0, 12)]);
    assert_eq!(received.length, 12);
    assert_eq!(one.read(100, 6), b"first,");
    assert_eq!(two.read(0, 7), b"second\0");
}

/// The message is longer than one packet.
#[test]
fn ep_post_recv_r02_long_messages_go_through_all_segments() {
    const LEN: usize = 50_000;
    let fixture = Fixture::new();
    let mut memory = fixture.memory(4 * LEN);
    let words: Vec<u8> = (0..LEN).map(|at| ((at * 31) >> 3) as u8).collect();
    memory.write(0, &words);
    let pair = Pair::new(&fixture, &Shape::default());
    let parts = [(0, 12_345), (20_000, 4097), (60_000, 1), (70_000, 40_000)];
    let iov = parts.map(|(at, len)| memory.segment(LEN + at, len));
    ok(pair.passive.post_recv(&iov, 1));
    let received = message(
        &fixture,
        &pair.active,
        &pair.passive,
        &[memory.segment(0, LEN)],
    );
    assert_eq!(
        (received.status, received.length),
        (DAT_DTO_SUCCESS, LEN as u64)
    );
    let mut got = Vec::new();
    for (at, len) in parts {
        got.extend(memory.read(LEN + at, len.min(LEN - got.len())));
    }
    assert!(got == words);
}

#[test]
fn ep_post_recv_r03_cookies_come_back_bit_for_bit_and_in_order() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let pair = Pair::new(&fixture, &Shape::default());
    let cookies = [
        0,
        u64::MAX,
        1,
        1,
        0x8000_0000_0000_0000,
        0x0123_4567_89ab_cdef,
        0,
        0xffff_ffff,
        1 << 32,
        1,
    ];
    for tag in cookies {
        ok(pair.passive.post_recv(&[memory.segment(0, 8)], tag));
    }
    for tag in cookies {
        let received = message(&fixture, &pair.active, &pair.passive, &[]);
        assert_eq!((received.ep, received.cookie), (pair.passive.ep, tag));
    }
    nothing_on(pair.passive.recv);
}

#[test]
fn ep_post_recv_r03_cookies_of_flushed_buffers_come_back_too() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let pair = Pair::new(&fixture, &Shape::default());
    let cookies = [u64::MAX, 0, 5, 5, 1 << 63];
    for tag in cookies {
        ok(pair.passive.post_recv(&[memory.segment(0, 8)], tag));
    }
    // SAFETY: a live handle.
    ok(unsafe { dat::exports::dat_ep_disconnect(pair.active.ep, DAT_CLOSE_ABRUPT_FLAG) });
    expect(pair.passive.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
    fixture.run();
    for tag in cookies {
        let received = pair.passive.received();
        assert_eq!(
            (received.cookie, received.status),
            (tag, DAT_DTO_ERR_FLUSHED)
        );
    }
    nothing_on(pair.passive.recv);
}

#[test]
fn ep_post_recv_r07_a_message_of_exactly_the_size_fits() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let pair = Pair::new(&fixture, &Shape::default());
    ok(pair
        .passive
        .post_recv(&[memory.segment(1024, 60), memory.segment(2048, 40)], 1));
    let received = message(
        &fixture,
        &pair.active,
        &pair.passive,
        &[memory.segment(0, 100)],
    );
    assert_eq!((received.status, received.length), (DAT_DTO_SUCCESS, 100));
    assert_eq!(state_of(pair.passive.ep), DAT_EP_STATE_CONNECTED);
}

#[test]
fn ep_post_recv_r07_a_message_that_is_too_long_is_a_length_error() {
    for (buffers, length) in [
        (vec![(1024, 60), (2048, 40)], 101),
        (vec![(1024, 8)], 4000),
        (vec![], 1),
    ] {
        let fixture = Fixture::new();
        let mut memory = fixture.memory(8192);
        memory.write(0, &[1; 4096]);
        let pair = Pair::new(&fixture, &Shape::default());
        let (from, to) = (pair.active, pair.passive);
        let at = |(at, len): (usize, usize)| memory.segment(4096 + at, len);
        let iov: Vec<_> = buffers.iter().copied().map(at).collect();
        ok(to.post_recv(&iov, 1));
        ok(to.post_recv(&[memory.segment(8000, 64)], 2));
        ok(from.post_send(&[memory.segment(0, length)], 3, DEFAULT));
        fixture.run();
        let received = to.received();
        assert_eq!(
            (received.cookie, received.status),
            (1, DAT_DTO_ERR_LOCAL_LENGTH)
        );
        assert_ne!(from.requested().status, DAT_DTO_SUCCESS);
        // The connection has ended, and every posted receive is completed.
        expect(to.connect, DAT_CONNECTION_EVENT_BROKEN);
        fixture.run();
        let rest = to.received();
        assert_eq!((rest.cookie, rest.status), (2, DAT_DTO_ERR_FLUSHED));
        assert_eq!(state_of(to.ep), DAT_EP_STATE_DISCONNECTED);
        nothing_on(to.recv);
        // Nothing was written past the segments.
        for byte in 4096..8192 {
            let inside = buffers
                .iter()
                .any(|&(at, len)| (4096 + at..4096 + at + len).contains(&byte));
            assert!(inside || memory.read(byte, 1) == [0], "byte {byte}");
        }
    }
}

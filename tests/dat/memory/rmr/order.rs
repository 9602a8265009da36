//! 3.4 row 7 (O07): a request that is posted to an endpoint after a bind starts
//! when the bind has completed. Here the requests of the binding endpoint use the
//! window themselves: its peer is on the same adapter and in the same zone, so
//! the device looks up the new context when they arrive.

use dat::abi::*;

use super::{DEFAULT, Ends, READ, WRITE};
use crate::support::{
    Dto, Fixture, both_broken_by_a_refusal, dequeue, device, dto, fails, fails_with, nothing,
    nothing_on, ok, refused_access, take_bound,
};

const SUPPRESS: DAT_COMPLETION_FLAGS = DAT_COMPLETION_SUPPRESS_FLAG;
const BARRIER: DAT_COMPLETION_FLAGS = DAT_COMPLETION_BARRIER_FENCE_FLAG;
const BOTH: DAT_MEM_PRIV_FLAGS = READ | WRITE;

/// The forms of a request that are built differently: few bytes travel inline,
/// many do not, several segments are gathered, and a fence is already set.
const POSTS: [(&str, usize, usize, DAT_COMPLETION_FLAGS); 6] = [
    ("one byte", 1, 1, DEFAULT),
    ("a few bytes", 24, 1, DEFAULT),
    ("many bytes", 1024, 1, DEFAULT),
    ("four segments", 256, 4, DEFAULT),
    ("behind a barrier", 64, 1, BARRIER),
    ("many behind a barrier", 1024, 2, BARRIER),
];

impl Ends {
    /// Returns this many segments of the owner's memory, of `len` bytes in all.
    fn pieces(&self, at: usize, len: usize, count: usize) -> Vec<DAT_LMR_TRIPLET> {
        let each = len / count;
        (0..count)
            .map(|piece| self.local.segment(at + piece * each, each))
            .collect()
    }

    /// Takes the owner's completion with this tag, which must be a success.
    #[track_caller]
    fn done(&self, tag: u64, what: &str) {
        self.fixture.run();
        let Dto { cookie, status, .. } = self.owner.requested();
        assert_eq!((cookie, status), (tag, DAT_DTO_SUCCESS), "{what}");
    }

    /// Posts a write or a read of eight bytes by the owner, through this context.
    fn access(&self, is_read: bool, remote: &DAT_RMR_TRIPLET, tag: u64) -> DAT_RETURN {
        let remote = DAT_RMR_TRIPLET {
            segment_length: 8,
            ..*remote
        };
        let iov = [self.local.segment(0, 8)];
        match is_read {
            true => self.owner.post_read(&iov, &remote, tag, DEFAULT),
            false => self.owner.post_write(&iov, &remote, tag, DEFAULT),
        }
    }
}

/// A write and a read directly after the bind, in every form: both use the
/// window, which is not bound yet when they are posted. Repeated so that they
/// begin anywhere in the ring.
#[test]
fn rmr_bind_o07_writes_and_reads_after_it_use_the_new_window() {
    let mut ends = Ends::new();
    let window = ends.window();
    // Soft-RoCE (Linux 6.1) may never resume after a fence: it records that it
    // waits for a response only after it has checked whether the response is
    // there.
    let fences = !device::name().starts_with("rxe");
    if !fences {
        eprintln!("SKIPPED in part: no request has the fence flag on Soft-RoCE");
    }
    for round in 0..70_u8 {
        for (what, len, count, flags) in POSTS {
            let [flags, barrier] = if fences {
                [flags, BARRIER]
            } else {
                [DEFAULT; 2]
            };
            let what = &format!("{what}, round {round}");
            let suppressed = round % 3 == 2;
            let at = usize::from(round) * 40;
            ends.local.write(0, &vec![round + 1; len]);
            let segment = ends.region.segment(at, len);
            let bind_flags = if suppressed { SUPPRESS } else { DEFAULT };
            let (answer, rmr_context) =
                window.try_bind(ends.owner.ep, &segment, BOTH, 1, bind_flags);
            ok(answer);
            let remote = DAT_RMR_TRIPLET {
                rmr_context,
                pad: 0,
                target_address: segment.virtual_address,
                segment_length: len as u64,
            };
            let from = ends.pieces(0, len, count);
            let into = ends.pieces(2048, len, count);
            if round % 2 == 0 {
                ok(ends.owner.post_write(&from, &remote, 2, flags));
                ok(ends.owner.post_read(&into, &remote, 3, flags | barrier));
            } else {
                ends.region.write(at, &vec![round + 1; len]);
                ok(ends.owner.post_read(&into, &remote, 2, flags));
                ok(ends.owner.post_write(&from, &remote, 3, flags));
            }
            if !suppressed {
                ends.bound(&window, 1);
            }
            ends.done(2, what);
            ends.done(3, what);
            assert_eq!(ends.region.read(at, len), vec![round + 1; len], "{what}");
            assert_eq!(ends.local.read(2048, len), vec![round + 1; len], "{what}");
        }
    }
    nothing_on(ends.owner.request);
}

/// Access that the bind removes is gone for requests after it: the previous
/// context if it binds again; every context if it unbinds; privileges that it
/// does not grant.
#[test]
fn rmr_bind_o07_access_that_it_ends_is_gone_for_later_requests() {
    for what in ["bound again", "unbound", "bound without the right"] {
        for is_read in [false, true] {
            let mut ends = Ends::new();
            let window = ends.window();
            ends.local.write(0, &[7; 8]);
            let before = ends.bind(&window, 0, 64, BOTH);
            ok(ends.access(is_read, &before, 9));
            ends.done(9, what);
            ends.local.write(0, &[9; 8]);
            ends.region.write(0, &[8; 8]);
            let segment = ends.region.segment(0, 64);
            let remote = match what {
                "bound again" => {
                    window.bind(ends.owner.ep, &segment, BOTH, 1);
                    before
                }
                "unbound" => {
                    window.unbind(ends.owner.ep, 1);
                    before
                }
                _ => window.bind(ends.owner.ep, &segment, DAT_MEM_PRIV_NONE_FLAG, 1),
            };
            ok(ends.access(is_read, &remote, 2));
            ends.bound(&window, 1);
            let reported = refused_access(ends.owner.requested().status);
            assert_eq!(ends.region.read(0, 8), [8; 8], "{what}, read {is_read}");
            assert_eq!(ends.local.read(0, 8), [9; 8], "{what}, read {is_read}");
            both_broken_by_a_refusal(&ends.fixture, &ends.owner, &ends.peer, reported);
        }
    }
}

/// A message after the bind carries the context. The receiver uses the window at
/// once, whatever else has happened by then.
#[test]
fn rmr_bind_o07_a_message_after_it_may_carry_the_context() {
    let mut ends = Ends::new();
    let window = ends.window();
    for round in 0..40_u8 {
        let at = usize::from(round) * 64;
        let segment = ends.region.segment(at, 64);
        let flags = if round % 2 == 0 { DEFAULT } else { SUPPRESS };
        let (answer, context) = window.try_bind(ends.owner.ep, &segment, BOTH, 2, flags);
        ok(answer);
        // Short enough to travel inline, or not.
        let len = if round % 4 < 2 { 12 } else { 512 };
        let mut message = vec![0; len];
        message[..4].copy_from_slice(&context.to_be_bytes());
        message[4..12].copy_from_slice(&segment.virtual_address.to_be_bytes());
        ends.local.write(2048, &message);
        ok(ends.peer.post_recv(&[ends.local.segment(1024, 512)], 1));
        let iov = [ends.local.segment(2048, len)];
        ok(ends.owner.post_send(&iov, 3, SUPPRESS));
        // Until the message has arrived, and no further.
        let mut received = None;
        for _ in 0..100_000 {
            received = dequeue(ends.peer.recv).ok();
            if received.is_some() {
                break;
            }
            ends.fixture.steps(1);
        }
        let received = dto(&received.expect("a message"));
        assert_eq!(received.status, DAT_DTO_SUCCESS);
        let message = ends.local.read(1024, 12);
        let remote = DAT_RMR_TRIPLET {
            rmr_context: DAT_RMR_CONTEXT::from_be_bytes(message[..4].try_into().expect("four")),
            pad: 0,
            target_address: u64::from_be_bytes(message[4..].try_into().expect("eight")),
            segment_length: 64,
        };
        ends.local.write(0, &[round + 1; 64]);
        assert_eq!(ends.write(&remote), DAT_DTO_SUCCESS, "round {round}");
        assert_eq!(ends.read(&remote), DAT_DTO_SUCCESS, "round {round}");
        assert_eq!(ends.region.read(at, 64), [round + 1; 64]);
        if flags == DEFAULT {
            ends.bound(&window, 2);
        }
        nothing_on(ends.owner.request);
    }
}

/// Two windows and a message: its receiver finds both bound, and the completions
/// come in posting order.
#[test]
fn rmr_bind_o07_a_message_after_two_binds_finds_both() {
    let ends = Ends::new();
    let (first, second) = (ends.window(), ends.window());
    for round in 0..10 {
        ok(ends.peer.post_recv(&[ends.local.segment(0, 64)], round));
        let segment = ends.region.segment(64, 64);
        let one = first.bind(ends.owner.ep, &segment, WRITE, 1);
        let two = second.bind(ends.owner.ep, &segment, READ, 2);
        ok(ends
            .owner
            .post_send(&[ends.region.segment(0, 8)], 3, DEFAULT));
        ends.fixture.run();
        // The message says that both are bound.
        assert_eq!(ends.peer.received().status, DAT_DTO_SUCCESS);
        assert_eq!(ends.write(&one), DAT_DTO_SUCCESS);
        assert_eq!(ends.read(&two), DAT_DTO_SUCCESS);
        // They have completed in order.
        ends.bound(&first, 1);
        ends.bound(&second, 2);
        assert_eq!(ends.owner.requested().cookie, 3);
    }
}

/// A bind after a bind, of one window or of two: the last one is in effect.
#[test]
fn rmr_bind_o07_binds_take_effect_in_order() {
    let mut ends = Ends::new();
    let (first, second) = (ends.window(), ends.window());
    ends.local.write(0, &[5; 8]);
    let segment = ends.region.segment(0, 64);
    let other = ends.region.segment(512, 64);
    let mut old = None;
    for round in 0..30 {
        let ep = ends.owner.ep;
        old = Some(first.bind(ep, &segment, BOTH, 1));
        let new = first.bind(ep, &other, BOTH, 2);
        second.unbind(ep, 3);
        let beside = second.bind(ep, &segment, BOTH, 4);
        ends.region.write(0, &[0; 1024]);
        ok(ends.access(false, &new, 5));
        ok(ends.access(false, &beside, 6));
        for (window, tag) in [(&first, 1), (&first, 2), (&second, 3), (&second, 4)] {
            ends.bound(window, tag);
        }
        ends.done(5, "the window that was bound twice");
        ends.done(6, "the one that was unbound and bound");
        for at in [0, 512] {
            assert_eq!(ends.region.read(at, 8), [5; 8], "round {round}, at {at}");
        }
    }
    // A context that was valid only between the two binds is not valid any more.
    ok(ends.access(false, &old.expect("rounds"), 8));
    ends.fixture.run();
    refused_access(ends.owner.requested().status);
}

/// Calls between the bind and the next request that post nothing, because they
/// are refused for their arguments or for a full queue, do not end the ordering.
#[test]
fn rmr_bind_o07_holds_across_posts_that_are_refused() {
    let mut ends = Ends::in_fixture(Fixture::strict());
    let window = ends.window();
    ends.local.write(0, &[6; 8]);
    for round in 0..20 {
        let at = round * 128;
        let remote = window.bind(ends.owner.ep, &ends.region.segment(at, 64), BOTH, 1);
        let owner = ends.owner;
        let outside = [ends.local.segment(4090, 64)];
        fails(owner.post_send(&outside, 0, DEFAULT), DAT_INVALID_PARAMETER);
        let iov = [ends.local.segment(0, 65)];
        fails(
            owner.post_write(&iov, &remote, 0, DEFAULT),
            DAT_LENGTH_ERROR,
        );
        let many = [ends.local.segment(0, 1); 5];
        fails(
            owner.post_read(&many, &remote, 0, DEFAULT),
            DAT_INVALID_PARAMETER,
        );
        let (answer, _) = window.try_bind(owner.ep, &nothing(), 0, 0, 0x20);
        fails(answer, DAT_INVALID_PARAMETER);
        ok(ends.access(false, &remote, 2));
        ends.bound(&window, 1);
        ends.done(2, "a write");
        assert_eq!(ends.region.read(at, 8), [6; 8]);
    }
    if !ends.fixture.is_stepped() {
        eprintln!("SKIPPED: the queue of a device that works on its own is not full for certain");
        return;
    }
    // The bind takes the last place.
    let most = crate::support::Shape::default().requests as u64;
    let elsewhere = ends.region.remote(3968, 8);
    for round in 0..10 {
        let at = round * 128;
        ends.region.write(at, &[0; 8]);
        for tag in 1..most {
            ok(ends.access(false, &elsewhere, tag));
        }
        let remote = window.bind(ends.owner.ep, &ends.region.segment(at, 64), BOTH, most);
        for is_read in [false, true] {
            let answer = ends.access(is_read, &remote, 0);
            fails_with(answer, DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
        }
        // One place is free after one completion was taken.
        ends.fixture.steps(1);
        for tag in 1..most {
            ends.done(tag, "one of many");
        }
        ok(ends.access(false, &remote, 99));
        let bound = take_bound(ends.owner.request);
        assert_eq!((bound.cookie, bound.status), (most, DAT_DTO_SUCCESS));
        ends.done(99, "the write behind");
        assert_eq!(ends.region.read(at, 8), [6; 8], "round {round}");
    }
}

/// Reads in progress when a bind is posted: with the fence flag the bind waits
/// for them, so it does not end the access of a read that is still running.
#[test]
fn rmr_bind_with_the_fence_flag_waits_for_reads() {
    let mut ends = Ends::new();
    let window = ends.window();
    ends.region.write(0, &[4; 1024]);
    for _ in 0..20 {
        let remote = ends.bind(&window, 0, 1024, BOTH);
        for tag in 0..4 {
            let into = [ends.local.segment(1024, 1024)];
            ok(ends.owner.post_read(&into, &remote, tag, DEFAULT));
        }
        let (answer, _) = window.try_bind(ends.owner.ep, &nothing(), 0, 4, BARRIER);
        ok(answer);
        for tag in 0..4 {
            ends.done(tag, "a read");
        }
        ends.bound(&window, 4);
    }
}

//! Invalid segments, regions, zones and handles.

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use super::{DEFAULT, message, post};
use crate::support::{
    End, Fixture, Memory, Pair, Shape, fails, fails_with, held, nothing_on, ok, state_of,
};

/// Posts the bad segment alone, and after and before a good one. Also after the
/// good one was posted, because the library may cache the last lookup.
#[track_caller]
fn refused(end: &End, good: DAT_LMR_TRIPLET, bad: DAT_LMR_TRIPLET, kind: DAT_RETURN) {
    let before = held(end.ep).0;
    for iov in [&[bad][..], &[good, bad], &[bad, good], &[good, good, bad]] {
        fails(end.post_recv(iov, 1), kind);
    }
    assert_eq!(
        held(end.ep).0,
        before,
        "a refused post has posted a receive"
    );
    ok(end.post_recv(&[good], 2));
    fails(end.post_recv(&[bad], 3), kind);
    assert_eq!(held(end.ep).0, before + 1);
}

#[test]
fn ep_post_recv_r10_segments_outside_their_region_are_refused() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let end = End::new(&fixture, &Shape::default());
    let of = |address: u64, length: u64| DAT_LMR_TRIPLET {
        lmr_context: memory.context,
        pad: 0,
        virtual_address: address,
        segment_length: length,
    };
    let first = memory.address(0);
    let good = of(first, 4096);
    for bad in [
        of(first, 4097),
        of(first - 1, 4096),
        of(first - 1, 1),
        of(first + 4096, 1),
        of(first + 4095, 2),
        of(0, 1),
        of(0, u64::MAX),
        of(first, u64::MAX),
        // The end wraps around into the region.
        of(first + 1, u64::MAX),
        of(u64::MAX, 2),
        of(u64::MAX, u64::MAX),
        of(first, 1 << 32),
    ] {
        refused(&end, good, bad, DAT_INVALID_PARAMETER);
    }
    for inside in [of(first + 4095, 1), of(first, 1), of(first + 1, 4095)] {
        ok(end.post_recv(&[inside], 1));
    }
}

#[test]
fn ep_post_recv_r11_regions_of_another_zone_are_refused() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let other = fixture.memory_in(fixture.pz(), 4096, DAT_MEM_PRIV_ALL_FLAG);
    let end = End::new(&fixture, &Shape::default());
    refused(
        &end,
        memory.segment(0, 8),
        other.segment(0, 8),
        DAT_PROTECTION_VIOLATION,
    );
}

/// The endpoint's current zone counts, also after a change.
#[test]
fn ep_post_recv_r11_the_zone_is_the_one_that_the_endpoint_has_now() {
    let fixture = Fixture::new();
    let second = fixture.pz();
    let (memory, other) = (
        fixture.memory(4096),
        fixture.memory_in(second, 4096, DAT_MEM_PRIV_ALL_FLAG),
    );
    let end = End::new(&fixture, &Shape::default());
    fails(
        end.post_recv(&[other.segment(0, 8)], 1),
        DAT_PROTECTION_VIOLATION,
    );
    let mut change = crate::support::ep_info(end.ep);
    change.pz_handle = second;
    // SAFETY: a live handle; the values are readable.
    ok(unsafe { dat_ep_modify(end.ep, DAT_EP_FIELD_PZ_HANDLE, &raw const change) });
    ok(end.post_recv(&[other.segment(0, 8)], 1));
    fails(
        end.post_recv(&[memory.segment(0, 8)], 1),
        DAT_PROTECTION_VIOLATION,
    );
}

#[test]
fn ep_post_recv_r12_contexts_that_name_no_region_are_refused() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let mut freed = fixture.memory(4096);
    let end = End::new(&fixture, &Shape::default());
    // So that the lookup may be cached.
    ok(end.post_recv(&[freed.segment(0, 8)], 1));
    let stale = freed.segment(0, 8);
    ok(freed.free());
    let with = |lmr_context| DAT_LMR_TRIPLET {
        lmr_context,
        ..memory.segment(0, 8)
    };
    refused(&end, memory.segment(0, 8), stale, DAT_PRIVILEGES_VIOLATION);
    for context in [0, u32::MAX, 0xdead_beef, !memory.context] {
        let bad = with(context);
        fails(end.post_recv(&[bad], 1), DAT_PRIVILEGES_VIOLATION);
        let iov = [memory.segment(0, 8), bad];
        fails(end.post_recv(&iov, 1), DAT_PRIVILEGES_VIOLATION);
    }
}

/// Another region may reuse the place of a freed one, but not its key.
#[test]
fn ep_post_recv_r12_a_context_is_not_reused() {
    let fixture = Fixture::new();
    let end = End::new(
        &fixture,
        &Shape {
            recvs: 64,
            evd_qlen: 64,
            ..Shape::default()
        },
    );
    let mut stale = Vec::new();
    for _ in 0..50 {
        let mut memory = fixture.memory(64);
        ok(end.post_recv(&[memory.segment(0, 8)], 1));
        stale.push(memory.context);
        ok(memory.free());
    }
    let memory = fixture.memory(64);
    for context in stale {
        assert_ne!(context, memory.context);
        let segment = DAT_LMR_TRIPLET {
            lmr_context: context,
            ..memory.segment(0, 8)
        };
        fails(end.post_recv(&[segment], 1), DAT_PRIVILEGES_VIOLATION);
    }
}

/// A receive writes to memory and needs the write privilege.
#[test]
fn ep_post_recv_r12_regions_that_may_not_be_written_are_refused() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let region = |rights| fixture.memory_in(fixture.pz, 64, rights);
    let end = End::new(
        &fixture,
        &Shape {
            recvs: 32,
            ..Shape::default()
        },
    );
    for rights in [
        DAT_MEM_PRIV_LOCAL_READ_FLAG,
        DAT_MEM_PRIV_REMOTE_READ_FLAG | DAT_MEM_PRIV_LOCAL_READ_FLAG,
        DAT_MEM_PRIV_REMOTE_READ_FLAG,
        DAT_MEM_PRIV_NONE_FLAG,
        DAT_MEM_PRIV_REMOTE_WRITE_FLAG,
    ] {
        let bad: Memory = region(rights);
        refused(
            &end,
            memory.segment(0, 8),
            bad.segment(0, 8),
            DAT_PRIVILEGES_VIOLATION,
        );
    }
    for rights in [DAT_MEM_PRIV_LOCAL_WRITE_FLAG, DAT_MEM_PRIV_ALL_FLAG] {
        ok(end.post_recv(&[region(rights).segment(0, 8)], 1));
    }
}

#[test]
fn ep_post_recv_r12_a_refusal_harms_neither_connection_nor_buffers() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let pair = Pair::new(&fixture, &Shape::default());
    let (from, to) = (pair.active, pair.passive);
    ok(to.post_recv(&[memory.segment(1024, 8)], 1));
    fails(
        to.post_recv(&[memory.segment(0, 4097)], 2),
        DAT_INVALID_PARAMETER,
    );
    ok(to.post_recv(&[memory.segment(2048, 8)], 3));
    for tag in [1, 3] {
        let received = message(&fixture, &from, &to, &[memory.segment(0, 8)]);
        assert_eq!((received.cookie, received.status), (tag, DAT_DTO_SUCCESS));
    }
    assert_eq!(state_of(to.ep), DAT_EP_STATE_CONNECTED);
    nothing_on(to.recv);
}

#[test]
fn ep_post_recv_r13_bad_handles_are_refused() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let end = End::new(&fixture, &Shape::default());
    let freed = End::new(&fixture, &Shape::default());
    // SAFETY: a live handle.
    ok(unsafe { dat_ep_free(freed.ep) });
    // Possibly in the slot of the freed one.
    let later = End::new(&fixture, &Shape::default());
    let mut not_a_handle = [0usize; 8];
    let mut iov = [memory.segment(0, 8)];
    for ep in [
        ptr::null_mut(),
        ptr::without_provenance_mut(0xdead_beef),
        ptr::without_provenance_mut(usize::MAX),
        (&raw mut not_a_handle).cast(),
        end.ep.wrapping_byte_add(1),
        end.ep.wrapping_byte_add(8),
        end.recv,
        end.connect,
        fixture.ia,
        fixture.pz,
        memory.lmr,
        freed.ep,
    ] {
        for (count, list) in [
            (1, iov.as_mut_ptr()),
            (0, ptr::null_mut()),
            (-1, ptr::null_mut()),
        ] {
            let answer = post(ep, count, list, 1, DEFAULT);
            fails_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
        }
    }
    assert_eq!(held(end.ep), (0, 0));
    assert_eq!(held(later.ep), (0, 0));
    ok(end.post_recv(&iov, 1));
}

//! Which access a bind grants, to which endpoints, and from when on.

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use super::{DEFAULT, Ends, READ, WRITE, part};
use crate::support::{expect, nothing, ok, refused_access, take_bound};

#[test]
fn rmr_bind_opens_its_range() {
    let mut ends = Ends::new();
    let window = ends.window();
    ends.local.write(0, &[7; 64]);
    let all = ends.bind(&window, 128, 64, READ | WRITE);
    assert_eq!(ends.write(&all), DAT_DTO_SUCCESS);
    assert_eq!(ends.region.read(128, 64), [7; 64]);
    assert_eq!(ends.read(&part(&all, 60, 4)), DAT_DTO_SUCCESS);
    assert_eq!(ends.local.read(2048, 4), [7; 4]);
}

#[test]
fn rmr_bind_opens_nothing_beside_its_range() {
    let open: [fn(&Ends, &DAT_RMR_TRIPLET) -> u32; 5] = [
        |ends, all| ends.write(&part(all, -1, 1)),
        |ends, all| ends.write(&part(all, 64, 1)),
        |ends, all| ends.write(&part(all, 1, 64)),
        |ends, all| ends.read(&part(all, -1, 64)),
        |ends, all| ends.read(&part(all, 63, 2)),
    ];
    for outside in open {
        let mut ends = Ends::new();
        let window = ends.window();
        ends.local.write(0, &[7; 64]);
        let all = ends.bind(&window, 128, 64, READ | WRITE);
        refused_access(outside(&ends, &all));
        assert_eq!(ends.region.read(127, 1), [0]);
        assert_eq!(ends.region.read(192, 1), [0]);
        expect(ends.peer.connect, DAT_CONNECTION_EVENT_BROKEN);
    }
}

#[test]
fn rmr_bind_grants_its_privileges_and_no_others() {
    for (rights, reads, writes) in [
        (READ, true, false),
        (WRITE, false, true),
        (READ | WRITE, true, true),
        (DAT_MEM_PRIV_NONE_FLAG, false, false),
        // Local privileges have no effect here.
        (DAT_MEM_PRIV_ALL_FLAG, true, true),
    ] {
        for (is_read, may) in [(true, reads), (false, writes)] {
            let ends = Ends::new();
            let window = ends.window();
            let all = ends.bind(&window, 0, 32, rights);
            let status = if is_read {
                ends.read(&all)
            } else {
                ends.write(&all)
            };
            if may {
                assert_eq!(status, DAT_DTO_SUCCESS, "{rights:#x} read {is_read}");
            } else {
                refused_access(status);
            }
        }
    }
}

/// A bind of a bound window moves it: the context changes, and the previous one
/// is invalid once the bind has completed.
#[test]
fn rmr_bind_each_has_a_context_of_its_own_and_ends_the_one_before() {
    let ends = Ends::new();
    let window = ends.window();
    let mut before: Option<DAT_RMR_TRIPLET> = None;
    for round in 0..20 {
        let remote = ends.bind(&window, round * 64, 64, READ | WRITE);
        if let Some(before) = before.replace(remote) {
            assert_ne!(before.rmr_context, remote.rmr_context);
        }
        assert_eq!(ends.write(&remote), DAT_DTO_SUCCESS);
        assert_eq!(window.info().rmr_context, remote.rmr_context);
    }
    let old = before.expect("bound");
    ends.bind(&window, 0, 4096, READ | WRITE);
    refused_access(ends.write(&old));
}

#[test]
fn rmr_bind_of_length_0_unbinds() {
    let ends = Ends::new();
    let window = ends.window();
    // Also a window that is not bound.
    window.unbind(ends.owner.ep, 1);
    ends.bound(&window, 1);
    let remote = ends.bind(&window, 0, 64, READ | WRITE);
    assert_eq!(ends.write(&remote), DAT_DTO_SUCCESS);
    window.unbind(ends.owner.ep, 2);
    ends.bound(&window, 2);
    assert_eq!(window.info().lmr_triplet.segment_length, 0);
    window.unbind(ends.owner.ep, 3);
    ends.bound(&window, 3);
    refused_access(ends.write(&remote));
    // An unbind needs no context, so the pointer may be null. SAFETY: a live
    // handle; the segment is local.
    let answer = unsafe {
        dat_rmr_bind(
            window.rmr,
            &nothing(),
            0,
            ends.owner.ep,
            crate::support::cookie(4),
            DEFAULT,
            ptr::null_mut(),
        )
    };
    // The connection is broken, so the unbind is flushed.
    ok(answer);
    ends.fixture.run();
    assert_eq!(take_bound(ends.owner.request).status, DAT_DTO_ERR_FLUSHED);
}

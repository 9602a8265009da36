//! Memory windows from creation to free, and the objects that they keep in use.

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use super::{Ends, READ, WRITE};
use crate::support::{
    Fixture, Pair, Shape, Window, abilities, dequeue, device, expect, fails, fails_with,
    nothing_on, ok, refused_access, wait,
};

/// `dat_lmr_free`: bound RMRs exist. `dat_pz_free`: in use by an RMR.
/// `dat_ia_close`: an RMR keeps the adapter in use.
#[test]
fn rmr_keeps_its_zone_and_its_region_in_use() {
    let mut ends = Ends::new();
    let mut window = ends.window();
    let in_use = DAT_INVALID_STATE_LMR_IN_USE;
    ends.bind(&window, 0, 64, READ);
    fails_with(ends.region.free(), DAT_INVALID_STATE, in_use);
    // Bound to other memory, it releases the first.
    let mut second = ends.fixture.memory(64);
    window.bind(ends.owner.ep, &second.segment(0, 8), READ, 2);
    fails_with(second.free(), DAT_INVALID_STATE, in_use);
    if ends.fixture.is_stepped() {
        // The device has not executed the bind yet.
        fails_with(ends.region.free(), DAT_INVALID_STATE, in_use);
    }
    ends.bound(&window, 2);
    ok(ends.region.free());
    window.unbind(ends.owner.ep, 3);
    if ends.fixture.is_stepped() {
        fails_with(second.free(), DAT_INVALID_STATE, in_use);
        // The refused call has no effect.
        ok(ends
            .owner
            .post_send(&[second.segment(0, 8)], 4, DAT_COMPLETION_SUPPRESS_FLAG));
        ok(ends.peer.post_recv(&[ends.local.segment(0, 8)], 4));
    }
    ends.bound(&window, 3);
    ok(second.free());

    let pz = ends.fixture.pz();
    let mut alone = Window::new(pz);
    // SAFETY: a live handle.
    let free = || unsafe { dat_pz_free(pz) };
    fails_with(free(), DAT_INVALID_STATE, DAT_INVALID_STATE_PZ_IN_USE);
    ok(alone.free());
    ok(free());
    let answer = ends.fixture.close(DAT_CLOSE_GRACEFUL_FLAG);
    fails_with(answer, DAT_INVALID_STATE, DAT_INVALID_STATE_IA_IN_USE);
    ok(window.free());
}

/// `dat_rmr_free`: bound or not; freeing a bound window unbinds it.
#[test]
fn rmr_free_unbinds() {
    let mut ends = Ends::new();
    let mut window = ends.window();
    let remote = ends.bind(&window, 0, 64, READ | WRITE);
    assert_eq!(ends.write(&remote), DAT_DTO_SUCCESS);
    ok(window.free());
    ok(ends.region.free());
    refused_access(ends.write(&remote));
    fails_with(window.free(), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_RMR);
    ok(ends.window().free());
}

/// The rows of `dat_rmr_create`, `dat_rmr_query` and `dat_rmr_free`.
#[test]
fn rmr_create_query_free_row_by_row() {
    let mut ends = Ends::new();
    let window = ends.window();
    let (ia, pz, ep) = (ends.fixture.ia, ends.fixture.pz, ends.owner.ep);
    let ih = DAT_INVALID_HANDLE;
    let mut made = ptr::null_mut();
    // SAFETY: the calls validate their handles; null pointers are under test.
    unsafe {
        for bad in [ptr::null_mut(), ia, ep, window.rmr] {
            fails_with(
                dat_rmr_create(bad, &raw mut made),
                ih,
                DAT_INVALID_HANDLE_PZ,
            );
        }
        let answer = dat_rmr_create(pz, ptr::null_mut());
        fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
        assert!(made.is_null());
        let mut info = std::mem::zeroed();
        for bad in [ptr::null_mut(), ia, pz, ep] {
            let answer = dat_rmr_query(bad, DAT_RMR_FIELD_ALL, &raw mut info);
            fails_with(answer, ih, DAT_INVALID_HANDLE_RMR);
            fails_with(dat_rmr_free(bad), ih, DAT_INVALID_HANDLE_RMR);
        }
        let answer = dat_rmr_query(window.rmr, 0x20, &raw mut info);
        fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
        let answer = dat_rmr_query(window.rmr, DAT_RMR_FIELD_ALL, ptr::null_mut());
        fails_with(answer, DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    }
    let info = window.info();
    assert_eq!((info.ia_handle, info.pz_handle), (ia, pz));
    assert_eq!((info.rmr_context, info.mem_priv), (0, 0));
    let remote = ends.bind(&window, 8, 16, READ);
    let info = window.info();
    let segment = ends.region.segment(8, 16);
    assert_eq!(info.rmr_context, remote.rmr_context);
    assert_eq!(info.mem_priv, READ);
    assert_eq!(
        (
            info.lmr_triplet.lmr_context,
            info.lmr_triplet.virtual_address,
            info.lmr_triplet.segment_length
        ),
        (segment.lmr_context, segment.virtual_address, 16)
    );
    // Every object has a context and a kind.
    let mut kind = 99;
    // SAFETY: a live handle; the result is writable.
    ok(unsafe { dat_get_handle_type(window.rmr, &raw mut kind) });
    assert_eq!(kind, DAT_HANDLE_TYPE_RMR);
    ok(ends.fixture.close(DAT_CLOSE_ABRUPT_FLAG));
    // SAFETY: the call validates its handle.
    fails_with(
        unsafe { dat_rmr_free(window.rmr) },
        ih,
        DAT_INVALID_HANDLE_RMR,
    );
}

/// The adapter's attributes for windows are true.
#[test]
fn rmr_attributes_are_true() {
    let fixture = Fixture::new();
    let (adapter, provider) = abilities(&fixture);
    assert!(adapter.max_rmrs > 0);
    assert_eq!(adapter.max_rmr_target_address, u64::MAX);
    assert_eq!(provider.evd_stream_merging_supported[4], [DAT_TRUE; 6]);
    let many: Vec<_> = (0..adapter.max_rmrs.min(64))
        .map(|_| Window::new(fixture.pz))
        .collect();
    assert!(
        many.iter()
            .all(|one| dequeue(fixture.async_evd).is_err() && !one.rmr.is_null())
    );
}

/// The events of an endpoint's connection are removed when it is reset or freed,
/// wherever they are: completions of binds like those of transfers, and also
/// those that a wait with too few events has staged.
#[test]
fn rmr_bind_completions_are_removed_by_reset_and_free() {
    let fixture = Fixture::new();
    let shape = Shape::default();
    let memory = fixture.memory(64);
    for freed in [false, true] {
        let pair = Pair::for_windows(&fixture, &shape);
        let (end, peer) = (pair.active, pair.passive);
        let mut window = Window::new(fixture.pz);
        let segment = memory.segment(0, 8);
        window.bind(end.ep, &segment, DAT_MEM_PRIV_REMOTE_READ_FLAG, 1);
        ok(peer.post_recv(&[memory.segment(32, 8)], 1));
        ok(end.post_send(&[segment], 2, DAT_COMPLETION_DEFAULT_FLAG));
        fixture.run();
        let both = device::comes(|| {
            let (answer, _, waiting) = wait(end.request, 0, 3);
            fails(answer, DAT_TIMEOUT_EXPIRED);
            (waiting == 2).then_some(())
        });
        both.expect("a bind and a send, staged");
        // SAFETY: a live handle.
        unsafe {
            ok(dat_ep_disconnect(end.ep, DAT_CLOSE_ABRUPT_FLAG));
            expect(end.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
            match freed {
                true => ok(dat_ep_free(end.ep)),
                false => ok(dat_ep_reset(end.ep)),
            }
        }
        nothing_on(end.request);
        ok(window.free());
    }
}

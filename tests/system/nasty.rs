//! Uses of the device that only modes of the emulated device (`MLX5EMU_NASTY`) make
//! fail where they are wrong. Without a mode these tests pass with such mistakes, too.

use dat_engine::{CompletionOp, SendFlags, SendOp, SendRequest};

use crate::support::fixture::Fixture;

/// There are more queue pairs than doorbell registers, so a BlueFlame copy of one could
/// mix with that of another.
#[test]
fn inline_messages_of_queue_pairs_that_share_registers_arrive() {
    const PAIRS: usize = 20;
    let mut fixture = Fixture::new(64);
    let mut pairs: Vec<_> = (0..PAIRS).map(|_| fixture.pair(true)).collect();
    for lap in 0..3 {
        for (number, [from, _]) in pairs.iter_mut().enumerate() {
            fixture.recv_shared(lap).expect("room");
            let flags = SendFlags::SIGNALED | SendFlags::INLINE;
            fixture.send(from, lap, flags).expect("room");
            fixture.system.run();
            let done = fixture.polled(2);
            assert_eq!(done.len(), 2, "lap {lap} of pair {number}: {done:?}");
            assert!(done.iter().all(|one| one.status.is_success()), "{done:?}");
        }
    }
}

/// Returns the address of a request's memory ([`Fixture::segment`]).
fn place(fixture: &Fixture, wr_id: u64) -> *mut u64 {
    let offset = wr_id as usize * 64;
    assert!(offset + 8 <= fixture.buffer.len());
    // Aligned: the buffer is whole pages.
    fixture.buffer.as_ptr().as_ptr().wrapping_add(offset).cast()
}

/// Several queue pairs take receives from one queue, so they complete, and are posted
/// again, in any order.
#[test]
fn receives_that_are_posted_again_in_any_order_get_each_message_once() {
    const PAIRS: usize = 4;
    const RECEIVES: u64 = 12;
    let mut fixture = Fixture::new(64);
    let mut pairs: Vec<_> = (0..PAIRS).map(|_| fixture.pair(true)).collect();
    for wr_id in 0..RECEIVES {
        fixture.recv_shared(wr_id).expect("room");
    }
    for lap in 0..100_u64 {
        for (number, [from, _]) in pairs.iter_mut().enumerate() {
            // A message of its own place in the memory, behind the receives'.
            let wr_id = 100 + number as u64;
            // SAFETY: inside the buffer, and no request uses the place now.
            unsafe { place(&fixture, wr_id).write_volatile(lap << 8 | wr_id) };
            let segments = [fixture.segment(wr_id)];
            let request = SendRequest {
                wr_id,
                op: SendOp::Send,
                flags: SendFlags::SIGNALED,
                segments: &segments,
            };
            // SAFETY: the buffer outlives the endpoints.
            unsafe { from.post_send(&request) }.expect("room");
            fixture.system.after_doorbell();
        }
        fixture.system.run();
        let done = fixture.polled(2 * PAIRS);
        assert!(done.iter().all(|one| one.status.is_success()), "{done:?}");
        let received: Vec<u64> = done
            .iter()
            .filter(|one| one.op == CompletionOp::Recv)
            .map(|one| one.wr_id)
            .collect();
        assert_eq!(
            (received.len(), done.len()),
            (PAIRS, 2 * PAIRS),
            "lap {lap}"
        );
        let mut texts = Vec::new();
        for wr_id in received {
            // SAFETY: inside the buffer; its receive has completed.
            texts.push(unsafe { place(&fixture, wr_id).read_volatile() });
            fixture.recv_shared(wr_id).expect("room");
        }
        texts.sort_unstable();
        let expected = (0..PAIRS as u64).map(|number| lap << 8 | (100 + number));
        assert!(texts.iter().copied().eq(expected), "lap {lap}: {texts:?}");
    }
}

//! A smoke test of the fixture: one message each way, and nothing is left behind.

use dat::abi::*;
use dat::exports::*;

use crate::support::{Fixture, Pair, Shape, expect, nothing_on, ok};

#[test]
fn one_message_each_way_and_an_orderly_end() {
    let mut fixture = Fixture::new();
    let pair = Pair::new(&fixture, &Shape::default());
    let mut memory = fixture.memory(4096);
    memory.write(0, b"there");
    memory.write(64, b"and back");
    for (from, to, at, len) in [
        (pair.active, pair.passive, 0, 5),
        (pair.passive, pair.active, 64, 8),
    ] {
        ok(to.post_recv(&[memory.segment(1024 + at, 64)], 1));
        ok(from.post_send(&[memory.segment(at, len)], 2, DAT_COMPLETION_DEFAULT_FLAG));
        fixture.run();
        let received = to.received();
        assert_eq!(
            (
                received.ep,
                received.cookie,
                received.status,
                received.length
            ),
            (to.ep, 1, DAT_DTO_SUCCESS, len as u64)
        );
        assert_eq!(memory.read(1024 + at, len), memory.read(at, len));
        let sent = from.requested();
        assert_eq!(
            (sent.ep, sent.cookie, sent.status),
            (from.ep, 2, DAT_DTO_SUCCESS)
        );
        nothing_on(to.recv);
        nothing_on(from.request);
    }
    // SAFETY: live handles.
    unsafe {
        ok(dat_ep_disconnect(pair.active.ep, DAT_CLOSE_ABRUPT_FLAG));
        expect(pair.active.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
        expect(pair.passive.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
        for end in [pair.active, pair.passive] {
            ok(dat_ep_free(end.ep));
            for evd in [end.recv, end.request, end.connect] {
                ok(dat_evd_free(evd));
            }
        }
        ok(memory.free());
        ok(dat_pz_free(fixture.pz));
    }
    ok(fixture.close(DAT_CLOSE_GRACEFUL_FLAG));
}

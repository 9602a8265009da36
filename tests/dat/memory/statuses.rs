//! Section 3.3: causes each completion status, and checks the effect on both ends
//! of the connection.

use std::time::Duration;

use dat::abi::*;
use dat::exports::*;
use mlx5emu::faults::FaultSpec;
use mlx5emu::spec::Qpn;

use crate::support::{
    Dto, End, Fixture, Memory, Pair, Shape, both_broken, both_broken_by_a_refusal, both_failed,
    device, expect, nothing_on, ok, over, refused_access,
};

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;

/// Receives at either end that no message uses.
const WAITING: [u64; 2] = [0x70, 0x71];

/// Connects two endpoints that both have receives waiting for a message.
fn waiting_pair(fixture: &Fixture, memory: &Memory) -> Pair {
    let pair = Pair::new(fixture, &Shape::default());
    wait_at(&pair.active, memory);
    wait_at(&pair.passive, memory);
    pair
}

fn wait_at(end: &End, memory: &Memory) {
    for tag in WAITING {
        ok(end.post_recv(&[memory.segment(32, 32)], tag));
    }
}

/// Checks that nothing is outstanding at an end of a connection: the waiting
/// receives were flushed, once and in order, and a receive that is posted now is
/// flushed last.
#[track_caller]
fn flushed(fixture: &Fixture, end: &End, memory: &Memory) {
    fixture.run();
    for tag in WAITING {
        let Dto { cookie, status, .. } = end.received();
        assert_eq!((cookie, status), (tag, DAT_DTO_ERR_FLUSHED));
    }
    ok(end.post_send(&[memory.segment(0, 8)], 0x7f, DEFAULT));
    fixture.run();
    let Dto { cookie, status, .. } = end.requested();
    assert_eq!((cookie, status), (0x7f, DAT_DTO_ERR_FLUSHED));
    nothing_on(end.recv);
    nothing_on(end.request);
}

/// Checks the effect of a failed transfer on its connection: events at both ends,
/// and flushed requests.
#[track_caller]
fn broken(fixture: &Fixture, failed: &End, peer: &End, memory: &Memory) {
    both_broken(fixture, failed, peer);
    flushed(fixture, failed, memory);
    flushed(fixture, peer, memory);
}

/// Checks the end of a connection that failed at both ends, at the first end
/// first.
#[track_caller]
fn failed_at_both(fixture: &Fixture, first: &End, second: &End, memory: &Memory) {
    both_failed(fixture, first, second);
    flushed(fixture, first, memory);
    flushed(fixture, second, memory);
}

/// Checks that the device reports this endpoint and nothing else. Not every
/// device does.
#[track_caller]
fn reported(fixture: &Fixture, ep: DAT_EP_HANDLE) {
    if !fixture.is_stepped() {
        return;
    }
    let event = expect(fixture.async_evd, DAT_ASYNC_ERROR_EP_BROKEN);
    // SAFETY: the event number selects this member.
    let data = unsafe { event.event_data.asynch_error_event_data };
    assert_eq!(data.dat_handle, ep);
    nothing_on(fixture.async_evd);
}

/// Statuses 0 and 1.
#[test]
fn status_success_and_flushed() {
    let fixture = Fixture::new();
    let memory = fixture.memory(64);
    let pair = Pair::new(&fixture, &Shape::default());
    ok(pair.passive.post_recv(&[memory.segment(0, 32)], 1));
    ok(pair.active.post_send(&[memory.segment(32, 8)], 2, DEFAULT));
    fixture.run();
    let sent = pair.active.requested();
    assert_eq!((sent.status, sent.length), (DAT_DTO_SUCCESS, 8));
    let received = pair.passive.received();
    assert_eq!((received.status, received.length), (DAT_DTO_SUCCESS, 8));
    wait_at(&pair.active, &memory);
    wait_at(&pair.passive, &memory);
    // SAFETY: a live handle.
    ok(unsafe { dat_ep_disconnect(pair.passive.ep, DAT_CLOSE_ABRUPT_FLAG) });
    for end in [pair.passive, pair.active] {
        over(&end, DAT_CONNECTION_EVENT_DISCONNECTED);
        flushed(&fixture, &end, &memory);
    }
    nothing_on(fixture.async_evd);
}

/// Statuses 2 and 7: a receive that is too short, and the status of its sender.
#[test]
fn status_local_length_and_remote_responder() {
    let fixture = Fixture::new();
    let memory = fixture.memory(64);
    let pair = Pair::new(&fixture, &Shape::default());
    ok(pair.passive.post_recv(&[memory.segment(0, 4)], 1));
    wait_at(&pair.active, &memory);
    wait_at(&pair.passive, &memory);
    ok(pair.active.post_send(&[memory.segment(32, 8)], 2, DEFAULT));
    fixture.run();
    assert_eq!(pair.passive.received().status, DAT_DTO_ERR_LOCAL_LENGTH);
    assert_eq!(pair.active.requested().status, DAT_DTO_ERR_REMOTE_RESPONDER);
    failed_at_both(&fixture, &pair.passive, &pair.active, &memory);
}

/// Status 4 in a completion: the post was valid, and the LMR is freed between the
/// post and its use.
#[test]
fn status_local_protection_error_for_removed_memory() {
    let fixture = Fixture::new();
    let memory = fixture.memory(64);
    let mut into = fixture.memory(64);
    let pair = Pair::new(&fixture, &Shape::default());
    ok(pair.passive.post_recv(&[into.segment(0, 32)], 1));
    ok(into.free());
    wait_at(&pair.active, &memory);
    wait_at(&pair.passive, &memory);
    ok(pair.active.post_send(&[memory.segment(32, 8)], 2, DEFAULT));
    fixture.run();
    assert_eq!(pair.passive.received().status, DAT_DTO_ERR_LOCAL_PROTECTION);
    assert_eq!(pair.active.requested().status, DAT_DTO_ERR_REMOTE_RESPONDER);
    failed_at_both(&fixture, &pair.passive, &pair.active, &memory);
    // More bytes than a post copies.
    let mut from = fixture.memory(4096);
    let pair = waiting_pair(&fixture, &memory);
    if fixture.is_stepped() {
        ok(pair.active.post_send(&[from.segment(0, 4096)], 3, DEFAULT));
        ok(from.free());
        fixture.run();
        assert_eq!(pair.active.requested().status, DAT_DTO_ERR_LOCAL_PROTECTION);
        broken(&fixture, &pair.active, &pair.passive, &memory);
    }
}

/// Status 6, for each reason that only the peer can detect.
#[test]
fn status_remote_access_for_every_reason() {
    let wrong: [fn(&mut DAT_RMR_TRIPLET); 5] = [
        |remote| remote.rmr_context = !remote.rmr_context,
        |remote| remote.target_address -= 1,
        |remote| remote.target_address += 60,
        // A missing privilege, and a wrong zone.
        |_| {},
        |_| {},
    ];
    for (row, wrong) in wrong.into_iter().enumerate() {
        for is_read in [false, true] {
            let fixture = Fixture::new();
            let local = fixture.memory(64);
            let rights = match (row, is_read) {
                (3, false) => DAT_MEM_PRIV_ALL_FLAG & !DAT_MEM_PRIV_REMOTE_WRITE_FLAG,
                (3, true) => DAT_MEM_PRIV_ALL_FLAG & !DAT_MEM_PRIV_REMOTE_READ_FLAG,
                _ => DAT_MEM_PRIV_ALL_FLAG,
            };
            let zone = if row == 4 { fixture.pz() } else { fixture.pz };
            let memory = fixture.memory_in(zone, 64, rights);
            let pair = waiting_pair(&fixture, &local);
            let mut remote = memory.remote(0, 8);
            wrong(&mut remote);
            let iov = [local.segment(0, 8)];
            if is_read {
                ok(pair.active.post_read(&iov, &remote, 1, DEFAULT));
            } else {
                ok(pair.active.post_write(&iov, &remote, 1, DEFAULT));
            }
            // Not executed any more although it is valid.
            ok(pair.active.post_send(&iov, 2, DEFAULT));
            fixture.run();
            let failed = pair.active.requested();
            assert_eq!(failed.cookie, 1);
            let was_reported = refused_access(failed.status);
            let behind = pair.active.requested();
            assert_eq!((behind.cookie, behind.status), (2, DAT_DTO_ERR_FLUSHED));
            both_broken_by_a_refusal(&fixture, &pair.active, &pair.passive, was_reported);
            flushed(&fixture, &pair.active, &local);
            flushed(&fixture, &pair.passive, &local);
            reported(&fixture, pair.passive.ep);
            assert_eq!(memory.read(0, 64), [0; 64]);
        }
    }
}

/// Status 8: no packet of the peer arrives any more.
#[test]
fn status_transport_when_every_packet_is_lost() {
    let fixture = Fixture::new();
    let Some(emulator) = device::emulator() else {
        eprintln!("SKIPPED: packets are lost on the emulated NIC only");
        return;
    };
    let memory = fixture.memory(64);
    let pair = waiting_pair(&fixture, &memory);
    let faults: FaultSpec = "seed=1,drop=1".parse().expect("faults");
    emulator.set_faults(Some(&faults));
    for tag in [1, 2] {
        ok(pair.active.post_send(&[memory.segment(0, 8)], tag, DEFAULT));
    }
    fixture.run();
    fixture.advance(Duration::from_secs(30));
    emulator.set_faults(None);
    let [first, second] = [(); 2].map(|()| pair.active.requested());
    assert_eq!((first.cookie, first.status), (1, DAT_DTO_ERR_TRANSPORT));
    assert_eq!((second.cookie, second.status), (2, DAT_DTO_ERR_FLUSHED));
    // The connection manager notified the peer, because the peer's device has seen no
    // packet.
    broken(&fixture, &pair.active, &pair.passive, &memory);
    nothing_on(fixture.async_evd);
}

/// Statuses 5 and 9: the device reports an invalid response, or a peer without a
/// receive for too long. A peer that follows the protocol causes neither, and
/// endpoints wait for receives without limit, so the test writes these CQEs
/// itself.
#[test]
fn status_bad_response_and_receiver_not_ready() {
    let fixture = Fixture::new();
    let Some(emulator) = device::emulator() else {
        eprintln!("SKIPPED: a device does not fail so on demand; the emulated one does");
        return;
    };
    let memory = fixture.memory(64);
    for (fault, status) in [
        ("bad-response@1", DAT_DTO_ERR_BAD_RESPONSE),
        ("rnr-exceeded@1", DAT_DTO_ERR_RECEIVER_NOT_READY),
    ] {
        let pair = waiting_pair(&fixture, &memory);
        let faults: FaultSpec = fault.parse().expect("faults");
        emulator.set_faults(Some(&faults));
        for tag in [1, 2] {
            ok(pair
                .active
                .post_write(&[memory.segment(0, 8)], &memory.remote(8, 8), tag, DEFAULT));
        }
        fixture.run();
        emulator.set_faults(None);
        let [first, second] = [(); 2].map(|()| pair.active.requested());
        assert_eq!((first.cookie, first.status), (1, status), "{fault}");
        assert_eq!((second.cookie, second.status), (2, DAT_DTO_ERR_FLUSHED));
        broken(&fixture, &pair.active, &pair.passive, &memory);
    }
}

/// Status 3: the device cannot decode the request. No call builds such a request,
/// so the test corrupts one in the ring before the device reads it.
#[test]
fn status_local_ep_of_a_request_that_is_spoilt() {
    let mut fixture = Fixture::new();
    let Some(emulator) = device::emulator() else {
        eprintln!("SKIPPED: a request waits in its ring on a stepped device only");
        return;
    };
    let memory = fixture.memory(64);
    let pair = waiting_pair(&fixture, &memory);
    ok(pair
        .active
        .post_send(&[memory.segment(0, 8)], 0x51, DEFAULT));
    let slot = u32::from(emulator.slot()) << 16;
    let mut spoilt = 0;
    for number in 0..1 << 16 {
        let Some(spec) = emulator.nic().qp_spec(Qpn(slot | number)).copied() else {
            continue;
        };
        // SAFETY: rings and records of living queue pairs, which the device does
        // not use now: the send word of the record, and the number of inline
        // bytes in the first WQE, which no longer matches the WQE.
        unsafe {
            let posted = (spec.dbrec as *const u32).add(1).read_volatile();
            if posted != 0 {
                (spec.sq_buf as *mut u8).add(18).write_volatile(0x03);
                spoilt += 1;
            }
        }
    }
    assert_eq!(spoilt, 1, "one queue pair has posted");
    fixture.run();
    let failed = pair.active.requested();
    assert_eq!((failed.cookie, failed.status), (0x51, DAT_DTO_ERR_LOCAL_EP));
    broken(&fixture, &pair.active, &pair.passive, &memory);
    let [violation] = &fixture.take_violations()[..] else {
        panic!("one request was corrupted");
    };
    assert!(violation.contains("inline bytes"), "{violation}");
}

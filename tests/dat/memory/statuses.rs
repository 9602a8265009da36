//! Section 3.3: the statuses of completions, each brought about.

use std::time::Duration;

use dat::abi::*;
use dat::exports::*;
use mlx5emu::faults::FaultSpec;
use mlx5emu::nic::spec::Qpn;

use crate::support::{
    Bed, End, Pair, Shape, device, expect, ok, reaches, refused_access, state_of,
};

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;

/// What a failed transfer does to its connection, both of whose ends hear it.
#[track_caller]
fn broken(end: &End) {
    expect(end.connect, DAT_CONNECTION_EVENT_BROKEN);
    assert_eq!(state_of(end.ep), DAT_EP_STATE_DISCONNECTED);
}

/// Statuses 0 and 1.
#[test]
fn status_success_and_flushed() {
    let bed = Bed::new();
    let memory = bed.memory(64);
    let pair = Pair::new(&bed, &Shape::default());
    ok(pair.passive.post_recv(&[memory.segment(0, 32)], 1));
    ok(pair.active.post_send(&[memory.segment(32, 8)], 2, DEFAULT));
    bed.run();
    let sent = pair.active.requested();
    assert_eq!((sent.status, sent.length), (DAT_DTO_SUCCESS, 8));
    let received = pair.passive.received();
    assert_eq!((received.status, received.length), (DAT_DTO_SUCCESS, 8));
    ok(pair.passive.post_recv(&[memory.segment(0, 32)], 3));
    // SAFETY: a live handle.
    ok(unsafe { dat_ep_disconnect(pair.passive.ep, DAT_CLOSE_ABRUPT_FLAG) });
    bed.run();
    assert_eq!(pair.passive.received().status, DAT_DTO_ERR_FLUSHED);
    reaches(pair.passive.ep, DAT_EP_STATE_DISCONNECTED);
    ok(pair.passive.post_send(&[memory.segment(0, 8)], 4, DEFAULT));
    bed.run();
    assert_eq!(pair.passive.requested().status, DAT_DTO_ERR_FLUSHED);
}

/// Statuses 2 and 7: a receive that is too short, and what its sender is told.
#[test]
fn status_local_length_and_remote_responder() {
    let bed = Bed::new();
    let memory = bed.memory(64);
    let pair = Pair::new(&bed, &Shape::default());
    ok(pair.passive.post_recv(&[memory.segment(0, 4)], 1));
    ok(pair.active.post_send(&[memory.segment(32, 8)], 2, DEFAULT));
    bed.run();
    assert_eq!(pair.passive.received().status, DAT_DTO_ERR_LOCAL_LENGTH);
    assert_eq!(pair.active.requested().status, DAT_DTO_ERR_REMOTE_RESPONDER);
    broken(&pair.active);
    broken(&pair.passive);
}

/// Status 4: found as a completion, for the post was good: the LMR goes
/// between it and its use.
#[test]
fn status_local_protection_of_memory_that_is_gone() {
    let bed = Bed::new();
    let memory = bed.memory(64);
    let mut into = bed.memory(64);
    let pair = Pair::new(&bed, &Shape::default());
    ok(pair.passive.post_recv(&[into.segment(0, 32)], 1));
    ok(into.free());
    ok(pair.active.post_send(&[memory.segment(32, 8)], 2, DEFAULT));
    bed.run();
    assert_eq!(pair.passive.received().status, DAT_DTO_ERR_LOCAL_PROTECTION);
    broken(&pair.passive);
    // More than is copied when it is posted.
    let mut from = bed.memory(4096);
    let pair = Pair::new(&bed, &Shape::default());
    if bed.is_stepped() {
        ok(pair.active.post_send(&[from.segment(0, 4096)], 3, DEFAULT));
        ok(from.free());
        bed.run();
        assert_eq!(pair.active.requested().status, DAT_DTO_ERR_LOCAL_PROTECTION);
        broken(&pair.active);
    }
}

/// Status 6, for each of the reasons that only the peer knows.
#[test]
fn status_remote_access_for_every_reason() {
    let wrong: [fn(&mut DAT_RMR_TRIPLET); 5] = [
        |remote| remote.rmr_context = !remote.rmr_context,
        |remote| remote.target_address -= 1,
        |remote| remote.target_address += 60,
        // A right, and a zone, that are not there.
        |_| {},
        |_| {},
    ];
    for (row, wrong) in wrong.into_iter().enumerate() {
        for is_read in [false, true] {
            let bed = Bed::new();
            let local = bed.memory(64);
            let rights = match (row, is_read) {
                (3, false) => DAT_MEM_PRIV_ALL_FLAG & !DAT_MEM_PRIV_REMOTE_WRITE_FLAG,
                (3, true) => DAT_MEM_PRIV_ALL_FLAG & !DAT_MEM_PRIV_REMOTE_READ_FLAG,
                _ => DAT_MEM_PRIV_ALL_FLAG,
            };
            let zone = if row == 4 { bed.pz() } else { bed.pz };
            let memory = bed.memory_in(zone, 64, rights);
            let pair = Pair::new(&bed, &Shape::default());
            let mut remote = memory.remote(0, 8);
            wrong(&mut remote);
            let iov = [local.segment(0, 8)];
            if is_read {
                ok(pair.active.post_read(&iov, &remote, 1, DEFAULT));
            } else {
                ok(pair.active.post_write(&iov, &remote, 1, DEFAULT));
            }
            bed.run();
            refused_access(pair.active.requested().status);
            broken(&pair.active);
            assert_eq!(memory.read(0, 64), [0; 64]);
        }
    }
}

/// Status 8: nothing is heard of the peer any more.
#[test]
fn status_transport_when_every_packet_is_lost() {
    let bed = Bed::new();
    let Some(emulator) = device::emulator() else {
        eprintln!("SKIPPED: packets are lost on the emulated NIC only");
        return;
    };
    let memory = bed.memory(64);
    let pair = Pair::new(&bed, &Shape::default());
    let faults: FaultSpec = "seed=1,drop=1".parse().expect("faults");
    emulator.set_faults(Some(&faults));
    ok(pair.active.post_send(&[memory.segment(0, 8)], 1, DEFAULT));
    bed.run();
    bed.advance(Duration::from_secs(30));
    emulator.set_faults(None);
    assert_eq!(pair.active.requested().status, DAT_DTO_ERR_TRANSPORT);
    broken(&pair.active);
}

/// Statuses 5 and 9: the device says that the answer made no sense, or that the
/// peer had no receive for too long. A peer that keeps to the protocol gives no
/// such answer, and endpoints wait for receives for ever, so it is said without
/// a cause.
#[test]
fn status_bad_response_and_receiver_not_ready() {
    let bed = Bed::new();
    let Some(emulator) = device::emulator() else {
        eprintln!("SKIPPED: a device does not fail so on demand; the emulated one does");
        return;
    };
    let memory = bed.memory(64);
    for (fault, status) in [
        ("bad-response@1", DAT_DTO_ERR_BAD_RESPONSE),
        ("rnr-exceeded@1", DAT_DTO_ERR_RECEIVER_NOT_READY),
    ] {
        let pair = Pair::new(&bed, &Shape::default());
        let faults: FaultSpec = fault.parse().expect("faults");
        emulator.set_faults(Some(&faults));
        for tag in [1, 2] {
            ok(pair
                .active
                .post_write(&[memory.segment(0, 8)], &memory.remote(8, 8), tag, DEFAULT));
        }
        bed.run();
        emulator.set_faults(None);
        let [first, second] = [(); 2].map(|()| pair.active.requested());
        assert_eq!((first.cookie, first.status), (1, status), "{fault}");
        assert_eq!((second.cookie, second.status), (2, DAT_DTO_ERR_FLUSHED));
        broken(&pair.active);
    }
}

/// Status 3: the device cannot read the request as it was built. No call
/// builds such a one, so it is spoilt in the ring before the device looks.
#[test]
fn status_local_ep_of_a_request_that_is_spoilt() {
    let bed = Bed::new();
    let Some(emulator) = device::emulator() else {
        eprintln!("SKIPPED: a request waits in its ring on a stepped device only");
        return;
    };
    let memory = bed.memory(64);
    let pair = Pair::new(&bed, &Shape::default());
    ok(pair
        .active
        .post_send(&[memory.segment(0, 8)], 0x51, DEFAULT));
    let slot = u32::from(emulator.slot()) << 16;
    let mut spoilt = 0;
    for number in 0..1 << 16 {
        let Some(spec) = emulator.nic().qp_spec(Qpn(slot | number)).copied() else {
            continue;
        };
        // SAFETY: the rings and records of living queue pairs, which the
        // device does not use just now: the send word of the record, and the
        // number of inline bytes in the first WQE, which no longer fit it.
        unsafe {
            let posted = (spec.dbrec as *const u32).add(1).read_volatile();
            if posted != 0 {
                (spec.sq_buf as *mut u8).add(18).write_volatile(0x03);
                spoilt += 1;
            }
        }
    }
    assert_eq!(spoilt, 1, "one queue pair has posted");
    bed.run();
    let failed = pair.active.requested();
    assert_eq!((failed.cookie, failed.status), (0x51, DAT_DTO_ERR_LOCAL_EP));
    broken(&pair.active);
}

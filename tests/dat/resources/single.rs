//! Resources that run out in special ways: connections, qualifiers, locked
//! memory.

use std::fs;

use dat::abi::*;
use dat::exports::*;

use super::calls::{self, Objects};
use super::limits::{Limit, Unprivileged};
use super::{UNTOUCHED, Undo, blank, device_lacks};
use crate::support::{
    End, Fixture, Shape, accept, device, expect, fails_with, is_alone, ok, state_of, wait,
};

/// Connects with the first, the second, … need of the two queue pairs refused. If
/// the accepting side cannot begin, `dat_cr_accept` fails without effect: the
/// request can be accepted again. Later failures cannot be undone, there and at
/// the requester, which begins when it gets the accept: both ends get an
/// event, and both can connect again.
#[test]
fn resources_missing_at_either_end_of_a_connection_are_reported_to_both() {
    if !is_alone() {
        return;
    }
    let objects = Objects::new();
    let Some(emulator) = device::emulator() else {
        eprintln!("SKIPPED: a device does not run out of memory on demand; the emulated one does");
        return;
    };
    let shape = Shape::default();
    let ends = [
        End::new(&objects.fixture, &shape),
        End::new(&objects.fixture, &shape),
    ];
    let [active, passive] = &ends;
    let states = || ends.each_ref().map(|end| state_of(end.ep));
    let (mut refused, mut failed) = (0, 0);
    for satisfied in 0.. {
        ok(objects.service_point.connect(active.ep, b"data"));
        let cr = objects.service_point.take_request();
        device_lacks(emulator, satisfied, true);
        let answer = accept(cr, passive.ep);
        if answer != DAT_SUCCESS {
            device_lacks(emulator, satisfied, false);
            fails_with(answer, DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
            assert_eq!(state_of(passive.ep), DAT_EP_STATE_UNCONNECTED);
            refused += 1;
            ok(accept(cr, passive.ep));
        }
        let (code, event, _) = wait(active.connect, 60_000_000, 1);
        ok(code);
        let event = event.event_number;
        device_lacks(emulator, satisfied, false);
        if event == DAT_CONNECTION_EVENT_ESTABLISHED {
            expect(passive.connect, event);
            if answer == DAT_SUCCESS {
                break;
            }
            assert_eq!(states(), [DAT_EP_STATE_CONNECTED; 2]);
            for end in &ends {
                // SAFETY: a live handle.
                ok(unsafe { dat_ep_disconnect(end.ep, DAT_CLOSE_ABRUPT_FLAG) });
                expect(end.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
            }
        } else {
            assert_eq!(event, DAT_CONNECTION_EVENT_NON_PEER_REJECTED, "{satisfied}");
            expect(
                passive.connect,
                DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR,
            );
            failed += 1;
        }
        assert_eq!(states(), [DAT_EP_STATE_DISCONNECTED; 2]);
        for end in &ends {
            // SAFETY: a live handle.
            let reset = || unsafe { dat_ep_reset(end.ep) };
            device_lacks(emulator, 0, true);
            let answer = reset();
            device_lacks(emulator, 0, false);
            fails_with(answer, DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
            assert_eq!(state_of(end.ep), DAT_EP_STATE_DISCONNECTED);
            ok(reset());
        }
    }
    assert!(refused > 0 && failed > 0, "{refused} {failed}");
}

/// Gives this thread its own network namespace with this range of ports. Returns
/// `false`, with a printed reason, if the system does not allow that.
fn ports_of_our_own(first: u16, last: u16) -> bool {
    const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
    // SAFETY: a flag.
    let unshared = match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => fs::write(RANGE, format!("{first} {last}")),
        _ => Err(std::io::Error::last_os_error()),
    };
    if let Err(error) = &unshared {
        eprintln!("SKIPPED: no network of its own for a thread: {error} (needs CAP_SYS_ADMIN)");
    }
    unshared.is_ok()
}

/// `dat_psp_create_any` when every qualifier of the host is in use, and after one
/// is free again.
#[test]
fn resources_no_qualifier_is_left_until_one_is_released() {
    if !is_alone() {
        return;
    }
    const PORTS: std::ops::RangeInclusive<u16> = 40_000..=40_003;
    let fixture = Fixture::new();
    let requests = fixture.evd(8, DAT_EVD_CR_FLAG);
    let any = || {
        let (mut psp, mut qualifier) = (blank(), 0);
        // SAFETY: live handles; the results are writable.
        let answer = unsafe {
            dat_psp_create_any(
                fixture.ia,
                &raw mut qualifier,
                requests,
                DAT_PSP_CONSUMER_FLAG,
                &raw mut psp,
            )
        };
        match answer {
            DAT_SUCCESS => Ok((psp, qualifier)),
            answer => {
                assert_eq!((psp.addr(), qualifier), (UNTOUCHED, 0));
                Err(answer)
            }
        }
    };
    if !ports_of_our_own(*PORTS.start(), *PORTS.end()) {
        return;
    }
    let mut points: Vec<_> = PORTS.map(|_| any().expect("one is left")).collect();
    let mut given: Vec<_> = points.iter().map(|(_, qualifier)| *qualifier).collect();
    given.sort_unstable();
    assert_eq!(given, PORTS.map(DAT_CONN_QUAL::from).collect::<Vec<_>>());
    let nothing_left = || {
        let answer = any().expect_err("none is left");
        fails_with(answer, DAT_CONN_QUAL_UNAVAILABLE, DAT_NO_SUBTYPE);
    };
    nothing_left();
    let (psp, qualifier) = points.pop().expect("four");
    // SAFETY: live handles, freed once.
    unsafe {
        ok(dat_psp_free(psp));
        let (psp, again) = any().expect("one is left");
        assert_eq!(again, qualifier);
        nothing_left();
        ok(dat_psp_free(psp));
        for (psp, _) in points {
            ok(dat_psp_free(psp));
        }
    }
}

/// Memory that must not be locked cannot be registered: the error is a lack of
/// memory, and it ends when the limit is raised or locked memory is freed.
#[test]
fn resources_memory_that_may_not_be_locked_cannot_be_registered() {
    if !is_alone() {
        return;
    }
    let fixture = Fixture::new();
    let Some(emulator) = device::emulator() else {
        eprintln!("SKIPPED: a kernel's own limit (ulimit -l) would bind other tests, too");
        return;
    };
    let bytes = vec![0_u8; 64 << 10];
    let register = |len| {
        let at = bytes.as_ptr().cast_mut().cast();
        let region = DAT_REGION_DESCRIPTION { for_va: at };
        calls::register(&fixture, DAT_MEM_TYPE_VIRTUAL, region, len)
    };
    let refused = |call: Result<Undo, DAT_RETURN>| {
        let answer = call.err().expect("more than may be locked");
        fails_with(answer, DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    };
    emulator.nic().enforce_memlock(true);
    {
        let (_unprivileged, limit) = (Unprivileged::now(), Limit::now(libc::RLIMIT_MEMLOCK));
        limit.set(40 << 10);
        refused(register(64 << 10));
        let first = register(16 << 10).expect("little");
        refused(register(32 << 10));
        first();
        register(32 << 10).expect("as much as may be locked")();
    }
    register(64 << 10).expect("no limit any more")();
    emulator.nic().enforce_memlock(false);
}

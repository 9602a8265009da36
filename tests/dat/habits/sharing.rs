//! One EVD for receives and requests whose completion flags differ.

use std::ptr;
use std::thread;

use dat::abi::*;
use dat::exports::*;

use crate::support::{
    Dto, End, Evd, Fixture, Pair, Shape, cookie, ep_info, fails_with, joined, ok, srq, take_dto,
};

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;
const UNSIGNALLED: DAT_COMPLETION_FLAGS = DAT_COMPLETION_UNSIGNALLED_FLAG;
const THRESHOLD: DAT_COMPLETION_FLAGS = DAT_COMPLETION_EVD_THRESHOLD_FLAG;
const SOLICITED: DAT_COMPLETION_FLAGS = DAT_COMPLETION_SOLICITED_WAIT_FLAG;

fn shape([recv_flags, request_flags]: [DAT_COMPLETION_FLAGS; 2]) -> Shape {
    Shape {
        recv_flags,
        request_flags,
        ..Shape::default()
    }
}

/// Creates an endpoint that reports receives and requests to one EVD, and takes
/// receives from an SRQ unless it is null.
fn create(
    fixture: &Fixture,
    evd: Evd,
    flags: [DAT_COMPLETION_FLAGS; 2],
    srq: DAT_SRQ_HANDLE,
) -> Result<End, DAT_RETURN> {
    let mut attributes = shape(flags).attributes();
    if !srq.is_null() {
        attributes.max_recv_dtos = DAT_HW_DEFAULT;
    }
    let (ia, pz, of) = (fixture.ia, fixture.pz, &raw mut attributes);
    let mut end = End {
        ep: ptr::null_mut(),
        recv: evd.0,
        request: evd.0,
        connect: fixture.evd(8, DAT_EVD_CONNECTION_FLAG),
    };
    // SAFETY: live handles, attributes, and a place for the result.
    let answer = unsafe {
        match srq.is_null() {
            true => dat_ep_create(ia, pz, evd.0, evd.0, end.connect, of, &raw mut end.ep),
            false => {
                let ep = &raw mut end.ep;
                dat_ep_create_with_srq(ia, pz, evd.0, evd.0, end.connect, srq, of, ep)
            }
        }
    };
    match answer {
        DAT_SUCCESS => Ok(end),
        refused => Err(refused),
    }
}

fn one_evd(fixture: &Fixture) -> Evd {
    Evd::new(fixture, 64, DAT_EVD_DTO_FLAG)
}

#[track_caller]
fn mismatch<T>(made: Result<T, DAT_RETURN>) {
    match made {
        Ok(_) => panic!("created"),
        Err(answer) => fails_with(answer, DAT_INVALID_PARAMETER, DAT_NO_SUBTYPE),
    }
}

const NONE: DAT_SRQ_HANDLE = ptr::null_mut();

#[test]
fn habit_05_one_evd_takes_default_receives_and_unsignalled_requests() {
    let fixture = Fixture::with_strict(false);
    let memory = fixture.memory(4096);
    let evds = [one_evd(&fixture), one_evd(&fixture)];
    let flags = [DEFAULT, UNSIGNALLED];
    let [active, passive] = evds.map(|evd| create(&fixture, evd, flags, NONE).expect("made"));
    for end in [active, passive] {
        let has = ep_info(end.ep).ep_attr;
        assert_eq!(
            [has.recv_completion_flags, has.request_completion_flags],
            flags
        );
    }
    Pair::connect(&fixture, active, passive);
    let send = |from: End, tag, flags| {
        ok(from.post_send(&[memory.segment(0, 8)], tag, flags));
        fixture.run();
    };
    let receive = |to: End, tag| ok(to.post_recv(&[memory.segment(1024, 64)], tag));
    let evd = evds[0];
    // The threshold rule: posts decide about notification.
    for threshold in [2, 3] {
        let waited = evd.wait(0, threshold);
        waited.refused(DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_CONFIG_NOTIFY);
    }
    evd.wait(0, 1).expired();
    for round in 0..3 {
        // Completions of unsignalled sends do not wake; a received message does.
        for _ in 0..2 {
            receive(passive, 1);
        }
        receive(active, 10);
        thread::scope(|scope| {
            let waiter = evd.asleep(scope, 1);
            for tag in [20, 21] {
                send(active, tag, UNSIGNALLED);
                thread::sleep(std::time::Duration::from_millis(15));
                assert!(!waiter.is_finished(), "round {round}: woken by a send");
            }
            send(passive, 30, UNSIGNALLED);
            let waited = joined(waiter).soon();
            assert_eq!(waited.tag(), (20, 2), "the first that is queued");
        });
        assert_eq!(cookies(evd, 2), [21, 10]);
        assert_eq!(cookies(evds[1], 3), [1, 1, 30]);
        // A send without the flag wakes.
        receive(passive, 2);
        thread::scope(|scope| {
            let waiter = evd.asleep(scope, 1);
            send(active, 22, DEFAULT);
            assert_eq!(joined(waiter).soon().tag(), (22, 0));
        });
        assert_eq!(cookies(evds[1], 1), [2]);
    }
    // Receives are not configured for the flag.
    let mut iov = [memory.segment(1024, 64)];
    // SAFETY: one segment, whose memory this test keeps.
    let answer =
        unsafe { dat_ep_post_recv(active.ep, 1, iov.as_mut_ptr(), cookie(1), UNSIGNALLED) };
    fails_with(answer, DAT_INVALID_PARAMETER, DAT_NO_SUBTYPE);
}

/// Takes this many completions.
#[track_caller]
fn cookies(evd: Evd, count: usize) -> Vec<u64> {
    let taken = (0..count).map(|_| {
        let Dto { cookie, status, .. } = take_dto(evd.0);
        assert_eq!(status, DAT_DTO_SUCCESS);
        cookie
    });
    taken.collect()
}

/// Each pair of flags, in one call and in two.
#[test]
fn habit_05_flags_that_may_differ_on_one_evd() {
    let fixture = Fixture::with_strict(false);
    let kinds = [DEFAULT, UNSIGNALLED, THRESHOLD];
    for flags in kinds
        .into_iter()
        .flat_map(|recv| kinds.map(|request| [recv, request]))
    {
        println!("receives {:#x}, requests {:#x}", flags[0], flags[1]);
        let evd = one_evd(&fixture);
        let end = create(&fixture, evd, flags, NONE).expect("made");
        for other in kinds {
            let beside = create(&fixture, evd, [other; 2], NONE).expect("beside it");
            // SAFETY: a live handle.
            ok(unsafe { dat_ep_free(beside.ep) });
        }
        // Waits for one event only, exactly as long as a stream is UNSIGNALLED.
        let waited = evd.wait(0, 2);
        match flags.contains(&UNSIGNALLED) {
            true => waited.refused(DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_CONFIG_NOTIFY),
            false => assert_eq!(waited.expired(), 0),
        }
        // SAFETY: a live handle.
        ok(unsafe { dat_ep_free(end.ep) });
        assert_eq!(evd.wait(0, 2).expired(), 0);
    }
    // Solicited receives share with their like only.
    if fixture_reports_solicited(&fixture) {
        for request in kinds {
            mismatch(create(
                &fixture,
                one_evd(&fixture),
                [SOLICITED, request],
                NONE,
            ));
        }
    }
}

fn fixture_reports_solicited(fixture: &Fixture) -> bool {
    let supported = crate::support::abilities(fixture)
        .1
        .completion_flags_supported;
    supported & SOLICITED != 0
}

/// As their page says (E12), also for endpoints beside them.
#[test]
fn habit_05_endpoints_on_an_srq_share_an_evd_with_their_like() {
    for is_strict in [false, true] {
        let fixture = Fixture::with_strict(is_strict);
        let srq = srq(&fixture, 8);
        let mixed = [DEFAULT, UNSIGNALLED];
        mismatch(create(&fixture, one_evd(&fixture), mixed, srq));
        // A plain endpoint beside one on an SRQ.
        let evd = one_evd(&fixture);
        let on_srq = create(&fixture, evd, [DEFAULT; 2], srq).expect("made");
        mismatch(create(&fixture, evd, mixed, NONE));
        mismatch(create(&fixture, evd, [UNSIGNALLED; 2], NONE));
        let plain = create(&fixture, evd, [DEFAULT; 2], NONE).expect("alike");
        for end in [on_srq, plain] {
            // SAFETY: a live handle.
            ok(unsafe { dat_ep_free(end.ep) });
        }
        // And in the other order.
        if !is_strict {
            create(&fixture, evd, mixed, NONE).expect("no SRQ");
            for flags in [mixed, [DEFAULT; 2], [UNSIGNALLED; 2]] {
                mismatch(create(&fixture, evd, flags, srq));
            }
        }
    }
}

#[test]
fn habit_05_strict_streams_of_one_evd_are_configured_alike() {
    let fixture = Fixture::strict();
    for (recv, request) in [
        (DEFAULT, UNSIGNALLED),
        (UNSIGNALLED, DEFAULT),
        (DEFAULT, THRESHOLD),
        (THRESHOLD, UNSIGNALLED),
    ] {
        mismatch(create(&fixture, one_evd(&fixture), [recv, request], NONE));
    }
    create(&fixture, one_evd(&fixture), [UNSIGNALLED; 2], NONE).expect("alike");
}

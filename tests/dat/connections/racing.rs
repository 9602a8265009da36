//! Requests that race with the end of a service point: either they come whole,
//! or nobody was listening.

use std::sync::atomic::{AtomicBool, Ordering};

use dat::abi::*;

use super::{end, established};
use crate::support::{
    Bed, Door, End, Point, accept, arrival, dequeue, expect, nothing_on, ok, reaches, state_of,
};

const ROUNDS: u32 = 40;

/// Ends a service point while a request comes. In the first round it is over
/// before, in the last the request is there before: between them they race, and
/// the end comes the later the later the round.
fn race(round: u32, free: impl FnOnce() + Send, knock: impl FnOnce(), comes: impl FnOnce()) {
    match round {
        0 => {
            free();
            knock();
        }
        last if last == ROUNDS - 1 => {
            knock();
            comes();
            free();
        }
        _ => {
            let go = &AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    while !go.load(Ordering::Acquire) {
                        std::hint::spin_loop();
                    }
                    for _ in 0..round * 500 {
                        std::hint::spin_loop();
                    }
                    free();
                });
                go.store(true, Ordering::Release);
                knock();
            });
        }
    }
}

/// Nothing is left of a round.
fn tidy(ends: [End; 2], requests: DAT_EVD_HANDLE) {
    use dat::exports::{dat_ep_free, dat_evd_free};
    // SAFETY: live handles.
    unsafe {
        for end in ends {
            ok(dat_ep_free(end.ep));
            for evd in [end.recv, end.request, end.connect] {
                ok(dat_evd_free(evd));
            }
        }
        ok(dat_evd_free(requests));
    }
}

#[test]
fn a_request_that_races_with_the_end_of_a_reserved_point() {
    let bed = Bed::new();
    let (mut refused, mut came) = (0, 0);
    for round in 0..ROUNDS {
        let (active, passive) = (end(&bed), end(&bed));
        let point = Point::new(&bed, passive.ep);
        race(
            round,
            || ok(point.free()),
            || ok(point.door().knock(active.ep, &[])),
            || reaches(passive.ep, DAT_EP_STATE_PASSIVE_CONNECTION_PENDING),
        );
        match state_of(passive.ep) {
            DAT_EP_STATE_UNCONNECTED => {
                expect(active.connect, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
                nothing_on(point.requests);
                refused += 1;
            }
            DAT_EP_STATE_PASSIVE_CONNECTION_PENDING => {
                let cr = arrival(point.requests).cr_handle;
                ok(accept(cr, DAT_HANDLE_NULL));
                established([&active, &passive]);
                came += 1;
            }
            other => panic!("state {other}"),
        }
        tidy([active, passive], point.requests);
    }
    println!("{refused} refused, {came} came");
    assert!(refused > 0 && came > 0, "{refused} refused, {came} came");
}

#[test]
fn a_request_that_races_with_the_end_of_a_public_point() {
    let bed = Bed::new();
    let (mut refused, mut came) = (0, 0);
    for round in 0..ROUNDS {
        let (active, passive) = (end(&bed), end(&bed));
        let door = Door::new(&bed);
        let mut first = None;
        race(
            round,
            || ok(door.free()),
            || ok(door.knock(active.ep, &[])),
            || first = Some(arrival(door.requests).cr_handle),
        );
        // Nothing comes any more once it is freed.
        let request = first.or_else(|| {
            let event = dequeue(door.requests).ok()?;
            assert_eq!(event.event_number, DAT_CONNECTION_REQUEST_EVENT);
            // SAFETY: the number tells which member holds.
            Some(unsafe { event.event_data.cr_arrival_event_data.cr_handle })
        });
        if let Some(cr) = request {
            ok(accept(cr, passive.ep));
            established([&active, &passive]);
            came += 1;
        } else {
            expect(active.connect, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
            refused += 1;
        }
        nothing_on(door.requests);
        tidy([active, passive], door.requests);
    }
    println!("{refused} refused, {came} came");
    assert!(refused > 0 && came > 0, "{refused} refused, {came} came");
}

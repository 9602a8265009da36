//! Requests that race with the end of a service point: each either arrives or is
//! refused.
//!
//! On iWARP a third end is possible: the kernel drops the request unanswered, and its
//! requester gets a timeout. Linux 6.1 does so in drivers/infiniband/core/iwcm.c. siw hands
//! the request over (`cm_event_handler`), which queues it for the listener's worker. If the
//! listener is destroyed before the worker's turn, `destroy_cm_id` sets
//! `IWCM_F_DROP_EVENTS`, and `cm_work_handler` drops the request without `iw_cm_reject`.
//! siw keeps the TCP connection open (`siw_cm_work_handler` in
//! drivers/infiniband/sw/siw/siw_cm.c: its timer ignores `SIW_EPSTATE_RECVD_MPAREQ`) until
//! the requester's own timer ends it after 10 s (`MPAREQ_TIMEOUT`). No program sees such a
//! request, so none can refuse it.

use std::sync::atomic::{AtomicBool, Ordering};

use dat::abi::*;

use super::{end, established};
use crate::support::{
    End, Fixture, ReservedPoint, ServicePoint, accept, arrival, dequeue, is_iwarp, nothing_on, ok,
    reaches, state_of, wait,
};

const ROUNDS: u32 = 40;

/// Frees a service point while a request is on its way. In the first round the
/// point is freed before the request, in the last round after it has arrived; in
/// between they race, with a later free in each round.
fn race(round: u32, free: impl FnOnce() + Send, connect: impl FnOnce(), comes: impl FnOnce()) {
    match round {
        0 => {
            free();
            connect();
        }
        last if last == ROUNDS - 1 => {
            connect();
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
                connect();
            });
        }
    }
}

/// Counts the requests that reached no service point, by the event of their
/// requesters.
#[derive(Default)]
struct RefusedRequests {
    refused: u32,
    dropped: u32,
}

impl RefusedRequests {
    /// Takes the event of a round's requester. It must be a refusal. On iWARP it
    /// may be a timeout of the requester or of the kernel, unless the point was
    /// freed before the request.
    fn take(&mut self, round: u32, active: &End) {
        let (answer, event, _) = wait(active.connect, 30_000_000, 1);
        ok(answer);
        match event.event_number {
            DAT_CONNECTION_EVENT_NON_PEER_REJECTED => self.refused += 1,
            DAT_CONNECTION_EVENT_TIMED_OUT | DAT_CONNECTION_EVENT_UNREACHABLE
                if is_iwarp() && round > 0 =>
            {
                self.dropped += 1;
            }
            other => panic!("event {other:#x} in round {round}"),
        }
        nothing_on(active.connect);
    }

    /// Prints the outcome of the requests. Some must have been refused, and some
    /// must have arrived.
    fn print_counts(&self, came: u32) {
        let Self { refused, dropped } = *self;
        let counts = format!("{refused} refused, {dropped} dropped by the kernel, {came} came");
        println!("{counts}");
        assert!(refused > 0 && came > 0, "{counts}");
    }
}

/// Frees the objects of a round.
fn free_round(ends: [End; 2], requests: DAT_EVD_HANDLE) {
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
    let fixture = Fixture::new();
    let (mut refused_requests, mut came) = (RefusedRequests::default(), 0);
    for round in 0..ROUNDS {
        let (active, passive) = (end(&fixture), end(&fixture));
        let point = ReservedPoint::new(&fixture, passive.ep);
        race(
            round,
            || ok(point.free()),
            || ok(point.service_point().connect(active.ep, &[])),
            || reaches(passive.ep, DAT_EP_STATE_PASSIVE_CONNECTION_PENDING),
        );
        match state_of(passive.ep) {
            DAT_EP_STATE_UNCONNECTED => {
                refused_requests.take(round, &active);
                nothing_on(point.requests);
            }
            DAT_EP_STATE_PASSIVE_CONNECTION_PENDING => {
                let cr = arrival(point.requests).cr_handle;
                ok(accept(cr, DAT_HANDLE_NULL));
                established([&active, &passive]);
                came += 1;
            }
            other => panic!("state {other}"),
        }
        free_round([active, passive], point.requests);
    }
    refused_requests.print_counts(came);
}

#[test]
fn a_request_that_races_with_the_end_of_a_public_point() {
    let fixture = Fixture::new();
    let (mut refused_requests, mut came) = (RefusedRequests::default(), 0);
    for round in 0..ROUNDS {
        let (active, passive) = (end(&fixture), end(&fixture));
        let service_point = ServicePoint::new(&fixture);
        let mut first = None;
        race(
            round,
            || ok(service_point.free()),
            || ok(service_point.connect(active.ep, &[])),
            || first = Some(arrival(service_point.requests).cr_handle),
        );
        // No request arrives after the point is freed.
        let request = first.or_else(|| {
            let event = dequeue(service_point.requests).ok()?;
            assert_eq!(event.event_number, DAT_CONNECTION_REQUEST_EVENT);
            // SAFETY: the event number selects this member.
            Some(unsafe { event.event_data.cr_arrival_event_data.cr_handle })
        });
        if let Some(cr) = request {
            ok(accept(cr, passive.ep));
            established([&active, &passive]);
            came += 1;
        } else {
            refused_requests.take(round, &active);
        }
        nothing_on(service_point.requests);
        free_round([active, passive], service_point.requests);
    }
    refused_requests.print_counts(came);
}

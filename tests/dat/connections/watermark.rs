//! `dat_ep_set_watermark`: how many receives an endpoint may hold that messages
//! have filled and the application has not dequeued.

use dat::abi::*;
use dat::exports::*;

use super::end;
use crate::support::{
    End, Fixture, Memory, Pair, Shape, abilities, device, ep_info, expect, fails_with, held,
    nothing_on, ok, post_srq, reaches, srq, state_of,
};

const OFF: DAT_COUNT = DAT_WATERMARK_INFINITE;

/// The source of the receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Own,
    Shared,
}

const SOURCES: [From; 2] = [From::Own, From::Shared];

/// An endpoint that receives, with buffers for ten messages.
struct Setup<'b> {
    fixture: &'b Fixture,
    pair: Pair,
    memory: Memory,
    queue: Option<DAT_SRQ_HANDLE>,
}

impl<'b> Setup<'b> {
    fn new(fixture: &'b Fixture, from: From) -> Self {
        println!("{from:?}");
        let shape = Shape::default();
        let queue = (from == From::Shared).then(|| srq(fixture, 16));
        let receiver = match queue {
            None => end(fixture),
            Some(queue) => End::on_srq(fixture, &shape, queue),
        };
        let setup = Self {
            fixture,
            pair: Pair::connect(fixture, end(fixture), receiver),
            memory: fixture.memory(4096),
            queue,
        };
        setup.post(10);
        setup
    }

    fn post(&self, count: u64) {
        let buffer = [self.memory.segment(1024, 8)];
        for tag in 0..count {
            ok(match self.queue {
                None => self.pair.passive.post_recv(&buffer, tag),
                Some(queue) => post_srq(queue, &buffer, tag),
            });
        }
    }

    fn ep(&self) -> DAT_EP_HANDLE {
        self.pair.passive.ep
    }

    fn set(&self, soft: DAT_COUNT, hard: DAT_COUNT) -> DAT_RETURN {
        // SAFETY: a live endpoint.
        unsafe { dat_ep_set_watermark(self.ep(), soft, hard) }
    }

    /// Sends this many messages, and polls without dequeuing.
    fn send(&self, count: u64) {
        for tag in 0..count {
            let data = [self.memory.segment(0, 8)];
            ok(self
                .pair
                .active
                .post_send(&data, tag, DAT_COMPLETION_DEFAULT_FLAG));
            self.fixture.run();
            assert_eq!(self.pair.active.requested().status, DAT_DTO_SUCCESS);
        }
        held(self.ep());
    }

    fn take(&self, count: u64) {
        for _ in 0..count {
            assert_eq!(self.pair.passive.received().status, DAT_DTO_SUCCESS);
        }
    }

    #[track_caller]
    fn assert_no_event(&self) {
        self.fixture.run();
        nothing_on(self.fixture.async_evd);
        nothing_on(self.pair.passive.connect);
        assert_eq!(state_of(self.ep()), DAT_EP_STATE_CONNECTED);
    }

    /// Checks that the soft watermark was reported once.
    #[track_caller]
    fn expect_event(&self) {
        let event = expect(
            self.fixture.async_evd,
            DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR,
        );
        // SAFETY: the event number selects this member.
        let data = unsafe { event.event_data.asynch_error_event_data };
        assert_eq!(data.dat_handle, self.ep());
        assert_eq!(data.reason, DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT as DAT_COUNT);
        self.assert_no_event();
    }

    #[track_caller]
    fn breaks(&self) {
        expect(self.pair.passive.connect, DAT_CONNECTION_EVENT_BROKEN);
        assert_eq!(state_of(self.ep()), DAT_EP_STATE_DISCONNECTED);
        nothing_on(self.pair.passive.connect);
        reaches(self.pair.active.ep, DAT_EP_STATE_DISCONNECTED);
    }
}

#[test]
fn the_soft_mark_is_reported_once_when_it_is_exceeded() {
    for from in SOURCES {
        let fixture = Fixture::new();
        let setup = Setup::new(&fixture, from);
        ok(setup.set(2, OFF));
        setup.send(2);
        setup.assert_no_event();
        setup.send(1);
        setup.expect_event();
        setup.send(1);
        setup.assert_no_event();
        // Below and above the mark again: only another call arms it.
        setup.take(4);
        setup.send(3);
        setup.assert_no_event();
        setup.take(3);
        ok(setup.set(1, OFF));
        setup.send(1);
        setup.assert_no_event();
        setup.send(1);
        setup.expect_event();
    }
}

#[test]
fn the_hard_mark_breaks_the_connection_when_it_is_exceeded() {
    for from in SOURCES {
        let fixture = Fixture::new();
        let setup = Setup::new(&fixture, from);
        ok(setup.set(OFF, 3));
        setup.send(3);
        setup.assert_no_event();
        // Dequeued buffers are not held.
        setup.take(2);
        setup.send(2);
        setup.assert_no_event();
        setup.send(1);
        setup.breaks();
        nothing_on(fixture.async_evd);
        // Messages that arrived before the break stay valid.
        setup.take(4);
    }
}

#[test]
fn a_mark_that_is_exceeded_already_takes_effect_in_the_call() {
    for from in SOURCES {
        let fixture = Fixture::new();
        let setup = Setup::new(&fixture, from);
        setup.send(3);
        ok(setup.set(3, 3));
        setup.assert_no_event();
        for _ in 0..2 {
            ok(setup.set(2, OFF));
            setup.expect_event();
        }
        ok(setup.set(0, 2));
        expect(fixture.async_evd, DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR);
        setup.breaks();
    }
}

/// A dequeue counts all completions that have arrived, even if the application
/// takes one at a time.
#[test]
fn a_dequeue_counts_all_held_receives() {
    for from in SOURCES {
        let fixture = Fixture::new();
        let setup = Setup::new(&fixture, from);
        ok(setup.set(2, OFF));
        for tag in 0..3 {
            let data = [setup.memory.segment(0, 8)];
            ok(setup
                .pair
                .active
                .post_send(&data, tag, DAT_COMPLETION_DEFAULT_FLAG));
        }
        fixture.run();
        for _ in 0..3 {
            assert_eq!(setup.pair.active.requested().status, DAT_DTO_SUCCESS);
        }
        nothing_on(fixture.async_evd);
        setup.take(1);
        setup.expect_event();
        setup.take(2);
    }
}

/// The marks are independent, whichever is lower.
#[test]
fn the_marks_are_independent() {
    for from in SOURCES {
        for soft in [1, 5] {
            let fixture = Fixture::new();
            let setup = Setup::new(&fixture, from);
            ok(setup.set(soft, 3));
            if soft < 3 {
                setup.send(2);
                setup.expect_event();
                setup.send(2);
            } else {
                setup.send(4);
            }
            setup.breaks();
            nothing_on(fixture.async_evd);
        }
    }
}

#[test]
fn a_mark_that_is_turned_off_has_no_effect() {
    for from in SOURCES {
        let fixture = Fixture::new();
        let setup = Setup::new(&fixture, from);
        ok(setup.set(1, 2));
        ok(setup.set(OFF, OFF));
        setup.send(6);
        setup.assert_no_event();
    }
}

/// 0 is a valid mark: the first message that is not dequeued exceeds it.
#[test]
fn a_mark_of_0_is_exceeded_by_one_message() {
    for from in SOURCES {
        let fixture = Fixture::new();
        let setup = Setup::new(&fixture, from);
        ok(setup.set(OFF, 0));
        setup.assert_no_event();
        setup.send(1);
        setup.breaks();
    }
}

/// Flushed buffers were not filled by a message.
#[test]
fn flushed_receives_do_not_count() {
    let fixture = Fixture::new();
    let setup = Setup::new(&fixture, From::Own);
    ok(setup.set(1, OFF));
    // SAFETY: a live endpoint.
    ok(unsafe { dat_ep_disconnect(setup.ep(), DAT_CLOSE_ABRUPT_FLAG) });
    expect(
        setup.pair.passive.connect,
        DAT_CONNECTION_EVENT_DISCONNECTED,
    );
    assert!(device::comes(|| (held(setup.ep()).0 == 10).then_some(())).is_some());
    nothing_on(fixture.async_evd);
}

/// Marks stay set for the endpoint's lifetime; a reported mark stays reported.
#[test]
fn marks_survive_a_reset() {
    let fixture = Fixture::new();
    let setup = Setup::new(&fixture, From::Shared);
    ok(setup.set(1, 4));
    setup.send(2);
    setup.expect_event();
    setup.take(2);
    let ends = [setup.pair.active, setup.pair.passive];
    // SAFETY: live endpoints.
    unsafe {
        ok(dat_ep_disconnect(ends[0].ep, DAT_CLOSE_ABRUPT_FLAG));
        for end in ends {
            expect(end.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
            ok(dat_ep_reset(end.ep));
        }
    }
    Pair::connect(&fixture, ends[0], ends[1]);
    setup.send(4);
    setup.assert_no_event();
    setup.send(1);
    setup.breaks();
}

/// The attributes of endpoint and provider describe the watermarks correctly.
#[test]
fn attributes_report_the_marks() {
    let fixture = Fixture::new();
    assert_eq!(abilities(&fixture).1.srq_watermarks_supported, 0x111);
    let setup = Setup::new(&fixture, From::Shared);
    let reported = |ep| {
        let attr = ep_info(ep).ep_attr;
        (attr.srq_soft_hw, attr.max_recv_dtos)
    };
    assert_eq!(reported(setup.ep()), (DAT_HW_DEFAULT, DAT_HW_DEFAULT));
    for (soft, hard) in [(3, 5), (7, OFF), (OFF, 2), (0, 0), (OFF, OFF)] {
        ok(setup.set(soft, hard));
        assert_eq!(reported(setup.ep()), (soft, hard));
    }
    let own = Setup::new(&fixture, From::Own);
    ok(own.set(3, 5));
    // The hard mark has no attribute besides the depth of the queue.
    assert_eq!(reported(own.ep()), (3, Shape::default().recvs));
    fails_with(own.set(-2, 1), DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    fails_with(own.set(1, -2), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    assert_eq!(reported(own.ep()), (3, Shape::default().recvs), "unchanged");
}

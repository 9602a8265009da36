//! The states of an EVD.

use std::thread;

use dat::abi::*;
use dat::exports::*;

use super::{Evd, joined, stays, waits};
use crate::cno::{Cno, SECOND};
use crate::support::{End, Fixture, Shape, fails, fails_with, nothing_on, ok};

const ENABLED: DAT_EVD_STATE = DAT_EVD_STATE_ENABLED;
const DISABLED: DAT_EVD_STATE = DAT_EVD_STATE_DISABLED;
const WAITABLE: DAT_EVD_STATE = DAT_EVD_STATE_WAITABLE;
const UNWAITABLE: DAT_EVD_STATE = DAT_EVD_STATE_UNWAITABLE;

/// The two flags are independent, and repeating a call has no effect.
#[test]
fn evd_v01_v02_two_independent_axes_begin_enabled_and_waitable() {
    let fixture = Fixture::new();
    for evd in [
        Evd::new(&fixture, 4, DAT_EVD_SOFTWARE_FLAG),
        Evd(fixture.async_evd),
    ] {
        assert_eq!(evd.query().evd_state, ENABLED | WAITABLE, "at first");
        type Call = unsafe extern "C" fn(DAT_EVD_HANDLE) -> DAT_RETURN;
        let rows: [(Call, DAT_EVD_STATE); 8] = [
            (dat_evd_disable, DISABLED | WAITABLE),
            (dat_evd_disable, DISABLED | WAITABLE),
            (dat_evd_set_unwaitable, DISABLED | UNWAITABLE),
            (dat_evd_set_unwaitable, DISABLED | UNWAITABLE),
            (dat_evd_enable, ENABLED | UNWAITABLE),
            (dat_evd_enable, ENABLED | UNWAITABLE),
            (dat_evd_clear_unwaitable, ENABLED | WAITABLE),
            (dat_evd_clear_unwaitable, ENABLED | WAITABLE),
        ];
        for (row, (call, state)) in rows.into_iter().enumerate() {
            evd.calls(call);
            assert_eq!(evd.query().evd_state, state, "row {row}");
        }
    }
}

/// Only direct waits are refused: events arrive, are dequeued, and trigger the
/// CNO.
#[test]
fn evd_v03_an_unwaitable_evd_does_everything_but_wait() {
    let fixture = Fixture::new();
    let evd = Evd::new(&fixture, 4, DAT_EVD_SOFTWARE_FLAG);
    let cno = Cno::new(&fixture);
    cno.bind(evd.0);
    evd.calls(dat_evd_set_unwaitable);
    evd.post(1);
    let (answer, _, _) = crate::support::wait(evd.0, 0, 1);
    fails_with(answer, DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_UNWAITABLE);
    assert_eq!(cno.wait(SECOND), Ok(evd.0));
    assert_eq!(evd.drain(), [1]);
    // Disabled as well: events still arrive and can be dequeued.
    evd.calls(dat_evd_disable);
    evd.post(2);
    cno.finds_nothing();
    assert_eq!(evd.drain(), [2]);
    for number in 0..4 {
        evd.post(number);
    }
    fails(evd.try_post(4), DAT_QUEUE_FULL);
    nothing_on(fixture.async_evd);
    assert_eq!(evd.drain(), [0, 1, 2, 3]);
}

/// Both calls at once; the first ends the wait.
#[test]
fn evd_v04_unwaitable_ends_a_wait_on_the_evd_and_not_on_its_cno() {
    let fixture = Fixture::new();
    let evd = Evd::new(&fixture, 4, DAT_EVD_SOFTWARE_FLAG);
    let cno = Cno::new(&fixture);
    cno.bind(evd.0);
    thread::scope(|scope| {
        let direct = waits(scope, evd, 1);
        let through = cno.asleep(scope);
        stays(&direct);
        evd.calls(dat_evd_set_unwaitable);
        let answer = joined(direct);
        fails_with(answer, DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_UNWAITABLE);
        stays(&through);
        evd.post(1);
        assert_eq!(joined(through), Ok(evd));
    });
}

/// The configuration of the attached endpoints, while there are any.
#[test]
fn evd_v05_the_configuration_follows_the_endpoints() {
    let fixture = Fixture::new();
    const AXIS: DAT_EVD_STATE = DAT_EVD_STATE_CONFIG_THRESHOLD;
    let rows = [
        (DAT_COMPLETION_DEFAULT_FLAG, DAT_EVD_STATE_CONFIG_NOTIFY),
        (DAT_COMPLETION_UNSIGNALLED_FLAG, DAT_EVD_STATE_CONFIG_NOTIFY),
        (
            DAT_COMPLETION_SOLICITED_WAIT_FLAG,
            DAT_EVD_STATE_CONFIG_SOLICITED,
        ),
        (
            DAT_COMPLETION_EVD_THRESHOLD_FLAG,
            DAT_EVD_STATE_CONFIG_THRESHOLD,
        ),
    ];
    for (flags, state) in rows {
        let shape = Shape {
            recv_flags: flags,
            ..Shape::default()
        };
        let end = End::new(&fixture, &shape);
        let [recv, request, connect] = [end.recv, end.request, end.connect].map(Evd);
        assert_eq!(recv.query().evd_state & AXIS, state, "flags {flags:#x}");
        assert_eq!(
            request.query().evd_state & AXIS,
            DAT_EVD_STATE_CONFIG_NOTIFY
        );
        assert_eq!(connect.query().evd_state & AXIS, 0, "no completions");
        // SAFETY: a live handle.
        ok(unsafe { dat_ep_free(end.ep) });
        assert_eq!(recv.query().evd_state & AXIS, 0, "no endpoint is attached");
    }
}

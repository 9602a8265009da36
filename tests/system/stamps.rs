//! Completion time stamps: when the device wrote a CQE, in nanoseconds.

use std::time::{Duration, SystemTime};

use dat_engine::{Arrival, ControlErrorKind, DataPath, SendFlags};

use crate::support::device;
use crate::support::fixture::Fixture;

#[test]
fn completions_carry_the_time_at_which_the_device_wrote_them() {
    const ROUNDS: u64 = 4;
    let mut fixture = Fixture::new(64);
    let clock = fixture.system.device.clock();
    if fixture.system.device.info().path != DataPath::Direct {
        let refused = clock.expect_err("the verbs path has no stamps");
        assert_eq!(refused.kind(), ControlErrorKind::Unsupported);
        assert!(
            refused.to_string().contains("the data path is verbs"),
            "{refused}"
        );
        return;
    }
    let clock = clock.expect("a device clock");
    let mut times = Vec::new();
    let [mut from, mut to] = fixture.pair(false);
    for round in 0..ROUNDS {
        fixture.recv(&mut to, 2 * round).expect("room");
        fixture
            .send(&mut from, 2 * round + 1, SendFlags::SIGNALED)
            .expect("room");
        fixture.system.run();
        let done = device::all(2, || fixture.cq.poll_stamped());
        assert_eq!(done.len(), 2, "{done:?}");
        for (completion, stamp) in done {
            assert!(completion.status.is_success(), "{completion:?}");
            let Arrival::At(ticks) = stamp else {
                panic!("{completion:?} has the stamp {stamp:?}");
            };
            times.push(clock.nanoseconds(ticks).expect("a time"));
        }
        fixture.system.advance(Duration::from_micros(100));
    }
    assert!(times.is_sorted(), "{times:?}");
    if fixture.system.is_stepped() {
        // Time advances between the rounds, and by some ticks inside one.
        for pair in times.chunks(2).collect::<Vec<_>>().windows(2) {
            let passed = pair[1][0] - pair[0][0];
            assert!((100_000..101_000).contains(&passed), "{times:?}");
        }
        let now = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
        let away = times[0].abs_diff(now.as_nanos() as u64);
        assert!(away < 60_000_000_000, "{away} ns away from the time of day");
    }
}

#[test]
fn a_failed_request_has_no_time() {
    let mut fixture = Fixture::new(64);
    let [mut from, mut to] = fixture.pair(false);
    fixture.recv(&mut to, 1).expect("room");
    to.to_error().expect("in error");
    fixture
        .send(&mut from, 2, SendFlags::SIGNALED)
        .expect("room");
    fixture.system.run();
    let done = device::all(1, || fixture.cq.poll_stamped());
    assert!(
        done.iter().all(|(completion, stamp)| {
            !completion.status.is_success() && *stamp == Arrival::Unknown
        }),
        "{done:?}"
    );
}

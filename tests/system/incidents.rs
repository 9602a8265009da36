//! External failures of queue pairs, ports and devices, as the engine reports
//! them; and the number of queue pairs.

use std::process::Command;
use std::time::{Duration, Instant};

use dat_engine::control::{AsyncEventKind, AsyncSource, PortState};
use dat_engine::{
    Arm, Completion, CqOptions, Endpoint, EndpointOptions, PostError, SendFlags, Status,
};
use mlx5emu::emulator::Emulator;
use mlx5emu::spec::{PortAddress, Qpn};

use crate::support::device;
use crate::support::fixture::{Fixture, join};

const SIGNALED: SendFlags = SendFlags::SIGNALED;
const PORT: PortAddress = PortAddress { device: 0, port: 1 };

/// Returns the fixture and the emulator. `None` on a device that works on its own,
/// which does not fail on demand.
fn emulated(depth: u32) -> Option<(Fixture, &'static Emulator)> {
    let fixture = Fixture::new(depth);
    let emulator = device::emulator();
    if emulator.is_none() {
        eprintln!("SKIPPED: needs the emulated NIC, which fails on demand");
    }
    emulator.map(|emulator| (fixture, emulator))
}

fn statuses(done: &[Completion]) -> Vec<(u64, Status)> {
    done.iter().map(|one| (one.wr_id, one.status)).collect()
}

fn reported(fixture: &Fixture) -> Vec<(AsyncEventKind, AsyncSource)> {
    let events = fixture.system.events_by_now();
    events.iter().map(|it| (it.kind, it.source)).collect()
}

#[test]
fn a_failed_queue_pair_is_reported_by_number_and_works_after_a_reset() {
    let Some((mut fixture, emulator)) = emulated(64) else {
        return;
    };
    let mut ends = fixture.pair(false);
    fixture.recv(&mut ends[0], 7).expect("room");
    let qpn = ends[0].qpn();
    emulator.nic().fail_qp(Qpn(qpn)).expect("known");
    fixture.send(&mut ends[0], 8, SIGNALED).expect("room");
    fixture.system.run();
    let mut done = statuses(&fixture.polled(2));
    done.sort_unstable_by_key(|&(wr_id, _)| wr_id);
    assert_eq!(done, [(7, Status::WrFlush), (8, Status::WrFlush)]);
    let events = reported(&fixture);
    let is_ours = |source: &AsyncSource| matches!(source, AsyncSource::Qp(_, n) if *n == qpn);
    assert!(
        matches!(&events[..], [(AsyncEventKind::QpFatal, source)] if is_ours(source)),
        "{events:?}"
    );
    for end in &mut ends {
        end.reset().expect("RESET");
    }
    join(&mut ends);
    fixture.recv(&mut ends[1], 1).expect("room");
    fixture.send(&mut ends[0], 2, SIGNALED).expect("room");
    fixture.system.run();
    assert_eq!(fixture.polled(2).len(), 2);
}

#[test]
fn a_port_that_goes_down_and_up_is_reported_and_messages_arrive() {
    let Some((mut fixture, emulator)) = emulated(64) else {
        return;
    };
    let mut ends = fixture.pair(false);
    let state = |fixture: &Fixture| fixture.system.device.port(1).expect("a port").state;
    emulator.nic().set_port(PORT, false);
    assert_eq!(
        reported(&fixture),
        [(AsyncEventKind::PortError, AsyncSource::Port(1))]
    );
    assert_ne!(state(&fixture), PortState::Active);
    fixture.recv(&mut ends[1], 1).expect("room");
    fixture.send(&mut ends[0], 2, SIGNALED).expect("room");
    fixture.system.advance(Duration::from_millis(100));
    assert_eq!(fixture.polled(0), []);
    emulator.nic().set_port(PORT, true);
    emulator.nic().change_gids(PORT);
    assert_eq!(
        reported(&fixture),
        [
            (AsyncEventKind::PortActive, AsyncSource::Port(1)),
            (AsyncEventKind::PortAddress, AsyncSource::Port(1))
        ]
    );
    assert_eq!(state(&fixture), PortState::Active);
    fixture.system.advance(Duration::from_millis(200));
    assert_eq!(fixture.polled(2).len(), 2);
}

/// The device fails for the rest of the process, so this test needs its own
/// process.
#[test]
fn after_a_fatal_error_of_the_device_every_call_is_refused_and_every_wait_wakes() {
    let program = std::env::current_exe().expect("this test");
    let mut child = Command::new(program);
    child.args([
        "--exact",
        "incidents::device_fatal",
        "--ignored",
        "--nocapture",
    ]);
    let output = child.output().expect("started");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn device_fatal() {
    let Some((mut fixture, emulator)) = emulated(64) else {
        return;
    };
    let mut ends = fixture.pair(false);
    let channel = fixture.system.device.create_channel().expect("a channel");
    let options = CqOptions {
        depth: 8,
        channel: Some(&channel),
        ..CqOptions::default()
    };
    let mut waited = fixture.system.device.create_cq(&options).expect("a CQ");
    waited.arm(Arm::Any).expect("armed");
    fixture.recv(&mut ends[0], 1).expect("room");
    emulator.nic().fail_device(0);
    // Waits wake: the descriptors are readable, and their events report the
    // failure.
    let mut events = fixture.system.device.async_events();
    let event = events.next().expect("one").expect("readable");
    assert_eq!(event.kind, AsyncEventKind::DeviceFatal);
    let end = events.next().expect("an answer").expect_err("no more");
    assert!(end.to_string().contains("Input/output"), "{end}");
    let refused = waited.take_events().expect_err("no more events");
    assert!(refused.to_string().contains("Input/output"), "{refused}");
    // Calls are refused, and none hangs.
    let refused = fixture.system.device.alloc_pd().err().expect("refused");
    assert!(refused.to_string().contains("Input/output"), "{refused}");
    ends[0].to_error().expect_err("refused");
    // A post only writes the program's own memory, and has no effect.
    let posted = fixture.send(&mut ends[0], 2, SIGNALED);
    assert!(matches!(posted, Ok(()) | Err(PostError::NotReady)));
    fixture.system.run();
    assert_eq!(fixture.polled(0), []);
    drop((ends, waited, fixture));
}

/// Ten thousand queue pairs: none is slower because of the others.
#[test]
fn ten_thousand_queue_pairs_fit_and_work() {
    const PAIRS: usize = 5_000;
    let Some((mut fixture, _)) = emulated(4096) else {
        return;
    };
    let before = (Instant::now(), resident());
    let mut pairs: Vec<[Endpoint; 2]> = Vec::with_capacity(PAIRS);
    for _ in 0..PAIRS {
        let mut pair = [small(&fixture), small(&fixture)];
        join(&mut pair);
        pairs.push(pair);
    }
    let made = (before.0.elapsed(), resident() - before.1);
    let begin = Instant::now();
    for (number, pair) in (0..).zip(&mut pairs) {
        fixture.recv(&mut pair[1], number).expect("room");
        fixture.send(&mut pair[0], number, SIGNALED).expect("room");
        if number % 512 == 511 {
            fixture.system.run();
            assert_eq!(fixture.polled(1024).len(), 1024);
        }
    }
    fixture.system.run();
    let used = begin.elapsed();
    let begin = Instant::now();
    drop(pairs);
    println!(
        "{} queue pairs: made and connected in {:?}, {} KiB each; one message each way in {used:?}; \
         gone in {:?}",
        2 * PAIRS,
        made.0,
        made.1 / 1024 / (2 * PAIRS),
        begin.elapsed()
    );
}

fn small(fixture: &Fixture) -> Endpoint {
    let options = EndpointOptions {
        send_depth: 1,
        recv_depth: 1,
        inline_bytes: 0,
        exclusive_register: false,
        ..EndpointOptions::new(fixture.cq.handle(), fixture.cq.handle())
    };
    fixture
        .domain
        .create_endpoint(&options)
        .expect("an endpoint")
}

/// Returns the resident memory of the process in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("readable");
    let pages: usize = statm
        .split(' ')
        .nth(1)
        .and_then(|text| text.parse().ok())
        .expect("a number");
    pages * 4096
}

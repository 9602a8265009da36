//! rdma_cm of the emulated device: when adapters use it, and what they report when
//! the device or its port fails.

use std::env;
use std::net::IpAddr;
use std::process::{Command, Stdio};

use dat::abi::*;
use dat::exports::*;

use crate::support::device::installed::given;
use crate::support::{
    Dto, End, Fixture, Pair, ServicePoint, Shape, device, expect, here_ip, nothing_on, ok, over,
    state_of, take_dto,
};

/// Makes a process the child of a test. The value is what it has to find: a
/// connection manager, and the address of the adapter, or `host` for any address
/// that other hosts may reach.
const EXPECTED: &str = "DAT_EXPECTED_MANAGER";
/// Set in the environment of a process that runs one of these tests.
const ALONE: &str = "DAT_ON_RDMA_CM";
/// `MLX5EMU_RDMA_CM`.
const RDMA_CM: &str = mlx5emu::config::Config::RDMA_CM;

/// Returns the addresses of this host that other hosts may reach.
fn addresses() -> Vec<IpAddr> {
    let all = if_addrs::get_if_addrs().expect("the system's interfaces");
    let usable = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    };
    all.iter()
        .map(if_addrs::Interface::ip)
        .filter(usable)
        .collect()
}

/// Connects two endpoints, sends a message, and checks manager and address.
fn run_as_child(expected: &str) {
    let (manager, address) = expected.split_once(' ').expect("two words");
    let fixture = Fixture::new();
    assert_eq!(fixture.manager(), manager);
    match address {
        "host" => assert!(addresses().contains(&here_ip()), "{}", here_ip()),
        _ => assert_eq!(here_ip().to_string(), address),
    }
    passes_a_message(&fixture, &Pair::new(&fixture, &Shape::default()));
}

#[track_caller]
fn passes_a_message(fixture: &Fixture, pair: &Pair) {
    let memory = fixture.memory(64);
    ok(pair.passive.post_recv(&[memory.segment(0, 8)], 1));
    let flags = DAT_COMPLETION_DEFAULT_FLAG;
    ok(pair.active.post_send(&[memory.segment(8, 8)], 2, flags));
    fixture.run();
    for (evd, tag) in [(pair.passive.recv, 1), (pair.active.request, 2)] {
        let Dto { cookie, status, .. } = take_dto(evd);
        assert_eq!((cookie, status), (tag, DAT_DTO_SUCCESS));
    }
}

/// `auto` takes rdma_cm if it serves the address of the port, as on hardware. On
/// the emulated device, loopback addresses are served too.
#[test]
fn auto_takes_rdma_cm_where_it_serves_the_address() {
    if let Ok(expected) = env::var(EXPECTED) {
        return run_as_child(&expected);
    }
    if given().is_some() {
        eprintln!("SKIPPED: needs the emulated NIC");
        return;
    }
    let host = addresses().first().map(IpAddr::to_string);
    let on_all = match host {
        Some(_) => "rdma_cm host",
        // The port has no address that other hosts reach.
        None => "socket 127.0.0.1",
    };
    let by_address = host.as_ref().map(|host| format!("rdma_cm {host}"));
    let (default, loopback) = (None, Some("127.0.0.1"));
    let mut cases = vec![
        // The emulator sets DAT_LISTEN to loopback.
        ("1", "auto", default, "rdma_cm 127.0.0.1"),
        ("1", "auto", loopback, "rdma_cm 127.0.0.1"),
        ("1", "auto", Some("all"), on_all),
        ("1", "rdma_cm", default, "rdma_cm 127.0.0.1"),
        ("1", "socket", default, "socket 127.0.0.1"),
        ("0", "auto", default, "socket 127.0.0.1"),
    ];
    if let (Some(host), Some(expected)) = (&host, &by_address) {
        cases.push(("1", "auto", Some(host), expected));
    }
    let name = "rdma_cm::auto_takes_rdma_cm_where_it_serves_the_address";
    for (emulated, choice, listen, expected) in cases {
        let mut child = Command::new(env::current_exe().expect("this program"));
        child
            .args([name, "--exact", "--nocapture"])
            .env(EXPECTED, expected)
            .env(RDMA_CM, emulated)
            .env("DAT_CM", choice)
            .env_remove("DAT_LISTEN")
            .envs(listen.map(|listen| ("DAT_LISTEN", listen)))
            .stdin(Stdio::null());
        let output = child.output().expect("this binary runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{RDMA_CM}={emulated} DAT_CM={choice} DAT_LISTEN={listen:?}: not {expected}:\n{stderr}"
        );
    }
}

/// Runs a test in a process of its own whose emulated device has rdma_cm. Returns
/// whether this is that process, where the caller runs the test.
#[must_use]
fn is_on_rdma_cm(name: &str) -> bool {
    if env::var_os(ALONE).is_some() {
        return true;
    }
    if given().is_some() {
        eprintln!("SKIPPED: needs the emulated NIC");
        return false;
    }
    let output = Command::new(env::current_exe().expect("this program"))
        .args([name, "--exact", "--nocapture"])
        .env(ALONE, "1")
        .env(RDMA_CM, "1")
        .env("DAT_CM", "rdma_cm")
        .stdin(Stdio::null())
        .output()
        .expect("this binary runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{name}: {}\n{stdout}{stderr}",
        output.status
    );
    false
}

/// The device reports its failure by verbs and by rdma_cm; the adapter does once.
#[test]
fn a_removed_device_is_reported_once() {
    if !is_on_rdma_cm("rdma_cm::a_removed_device_is_reported_once") {
        return;
    }
    let fixture = Fixture::new();
    let pair = Pair::new(&fixture, &Shape::default());
    let service_point = ServicePoint::new(&fixture);
    let [waiting, late] = [(); 2].map(|()| End::new(&fixture, &Shape::default()));
    ok(service_point.connect(waiting.ep, &[]));
    let request = service_point.take_request();
    let emulator = device::emulator().expect("the test steps the device");
    emulator.nic().fail_device(0);
    fixture.run();
    let event = expect(fixture.async_evd, DAT_ASYNC_ERROR_IA_CATASTROPHIC);
    // SAFETY: the event number selects this member.
    let data = unsafe { event.event_data.asynch_error_event_data };
    assert_eq!(data.dat_handle, fixture.ia);
    for end in [&pair.active, &pair.passive] {
        over(end, DAT_CONNECTION_EVENT_BROKEN);
    }
    // No answer can arrive any more.
    over(&waiting, DAT_CONNECTION_EVENT_UNREACHABLE);
    // SAFETY: the call validates its handles.
    unsafe { dat_cr_reject(request) };
    // A new request ends too, or is refused.
    let _ = service_point.connect(late.ep, &[]);
    while state_of(late.ep) == DAT_EP_STATE_ACTIVE_CONNECTION_PENDING {
        std::thread::yield_now();
    }
    nothing_on(fixture.async_evd);
}

/// A port that is down ends no connection over rdma_cm, and when it is up again,
/// new connections work.
#[test]
fn connections_outlast_a_port_that_is_down_for_a_moment() {
    if !is_on_rdma_cm("rdma_cm::connections_outlast_a_port_that_is_down_for_a_moment") {
        return;
    }
    let fixture = Fixture::new();
    let pair = Pair::new(&fixture, &Shape::default());
    let emulator = device::emulator().expect("the test steps the device");
    let port = mlx5emu::spec::PortAddress { device: 0, port: 1 };
    emulator.nic().set_port(port, false);
    fixture.run();
    nothing_on(pair.active.connect);
    nothing_on(pair.passive.connect);
    emulator.nic().set_port(port, true);
    fixture.run();
    passes_a_message(&fixture, &pair);
    passes_a_message(&fixture, &Pair::new(&fixture, &Shape::default()));
    // SAFETY: a live handle.
    ok(unsafe { dat_ep_disconnect(pair.active.ep, DAT_CLOSE_ABRUPT_FLAG) });
    over(&pair.active, DAT_CONNECTION_EVENT_DISCONNECTED);
    over(&pair.passive, DAT_CONNECTION_EVENT_DISCONNECTED);
}

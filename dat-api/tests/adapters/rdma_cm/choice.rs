//! Which connection manager an adapter uses, and what the manager needs.

use std::net::IpAddr;

use dat_api::object::ia::Ia;
use dat_api::{ReturnType, Subtype};

use super::{interface, run};
use crate::fixture::{Fixture, is_iwarp, name};
use crate::setup::{Conf, Variables, close, code, lock_device, open, refused, request};

/// Returns the manager that the attributes name.
fn manager(ia: &Ia) -> String {
    let provider = ia.query().provider;
    let mut all = provider.provider_specific_attributes.into_iter();
    all.find(|one| one.name == "cm").expect("published").value
}

#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn the_manager_is_the_configured_one_or_one_that_works() {
    let _lock = lock_device();
    let by_rdma_cm = if is_iwarp() { 235 } else { 56 };
    for (asked, got, most) in [
        ("", "rdma_cm", by_rdma_cm),
        ("auto", "rdma_cm", by_rdma_cm),
        ("rdma_cm", "rdma_cm", by_rdma_cm),
        ("socket", "socket", 512),
    ] {
        if got == "socket" && is_iwarp() {
            // Refused: see the tests of iWARP.
            continue;
        }
        let _variables = Variables::set(&[("DAT_CM", asked)]);
        let (ia, events) = open(name());
        assert_eq!(manager(&ia), got, "{asked}");
        assert_eq!(ia.query().provider.max_private_data_size, most, "{asked}");
        assert_eq!(ia.address().ip(), interface().1, "{asked}");
        let fixture = Fixture::on(ia, events);
        drop(fixture.pair());
    }
}

#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn interfaces_and_their_addresses_name_the_device() {
    let _lock = lock_device();
    let _variables = Variables::set(&[("DAT_CM", "rdma_cm")]);
    let (interface, address) = interface();
    let all = if_addrs::get_if_addrs().expect("the system's interfaces");
    let other = |one: &&if_addrs::Interface| match one.ip() {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) => one.name == interface && !ip.is_unicast_link_local(),
    };
    let v6 = all.iter().find(other).expect("an IPv6 address").ip();
    let line = |name: &str, what: &str| {
        format!("{name} u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 \"{what} 0\" \"\"\n")
    };
    let _conf = Conf::new(
        &[
            line("by-name", &interface),
            line("by-v4", &address.to_string()),
            line("by-v6", &v6.to_string()),
            line("none", "eth77"),
            line("loopback", "lo"),
            line("nobody", "203.0.113.7"),
        ]
        .concat(),
    );
    for (entry, expected) in [("by-name", address), ("by-v4", address), ("by-v6", v6)] {
        let (ia, _) = open(entry);
        assert_eq!(ia.device().info().name, name(), "{entry}");
        assert_eq!(ia.address().ip(), expected, "{entry}");
        close(ia);
    }
    for (entry, cause) in [
        ("none", "no network interface eth77"),
        ("loopback", "no RDMA device behind the network interface lo"),
        ("nobody", "203.0.113.7"),
    ] {
        let error = refused(&request(entry));
        assert_eq!(error.code().kind(), Some(ReturnType::ProviderNotFound));
        assert!(error.cause().contains(cause), "{error}");
    }
}

/// Runs commands that restore the machine, however the test ends.
struct Restore(Vec<String>);

impl Drop for Restore {
    fn drop(&mut self) {
        self.0.iter().for_each(|command| run(command));
    }
}

#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn rdma_cm_refuses_a_port_without_an_address() {
    let _lock = lock_device();
    let (interface, _) = interface();
    let all = if_addrs::get_if_addrs().expect("the system's interfaces");
    let of = |one: &if_addrs::Interface| match &one.addr {
        if_addrs::IfAddr::V4(v4) => (one.ip(), v4.prefixlen),
        if_addrs::IfAddr::V6(v6) => (one.ip(), v6.prefixlen),
    };
    let own = all.iter().filter(|one| one.name == interface).map(of);
    let restore = Restore(
        own.map(|(ip, length)| {
            format!(
                "ip address replace {ip}/{length} dev {interface} {}",
                nodad(ip)
            )
        })
        .collect(),
    );
    run(&format!("ip address flush dev {interface}"));
    {
        let _variables = Variables::set(&[("DAT_CM", "rdma_cm")]);
        let error = refused(&request(name()));
        let expected = code(
            ReturnType::InvalidAddress,
            Subtype::InvalidAddressUnsupported,
        );
        assert_eq!(error.code(), expected, "{error}");
        assert!(error.cause().contains("no IP address"), "{error}");
        assert!(error.cause().contains("ip address"), "the remedy: {error}");
    }
    {
        let _variables = Variables::set(&[("DAT_CM", "auto")]);
        match Ia::open(&request(name())) {
            Ok((ia, _)) => {
                assert_eq!(manager(&ia), "socket");
                close(ia);
            }
            // iWARP has no other manager, so the error is the same.
            Err(error) if is_iwarp() => {
                assert!(error.cause().contains("no IP address"), "{error}");
            }
            // Without an address there may be no GID either.
            Err(error) => panic!("by sockets it opens: {error}"),
        }
    }
    drop(restore);
    let (ia, _) = open(name());
    close(ia);
}

fn nodad(ip: IpAddr) -> &'static str {
    if ip.is_ipv6() { "nodad" } else { "" }
}

#[test]
#[ignore = "needs an rdma_cm device: see perf-scripts/vm"]
fn an_interface_that_is_down_is_reported() {
    let _lock = lock_device();
    let (interface, _) = interface();
    let _restore = Restore(vec![
        format!("ip link set {interface} up"),
        // A link that goes down loses its IPv6 addresses.
        format!("ip address replace fd99::1/64 dev {interface} nodad"),
    ]);
    run(&format!("ip link set {interface} down"));
    let _variables = Variables::set(&[("DAT_CM", "rdma_cm")]);
    let error = refused(&request(name()));
    assert_eq!(error.code().kind(), Some(ReturnType::InvalidAddress));
    assert!(error.cause().contains("is down"), "{error}");
    assert!(error.cause().contains(&interface), "{error}");
}

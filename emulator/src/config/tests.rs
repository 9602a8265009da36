//! The variables and their values.

use super::*;

fn read(pairs: &[(&'static str, &str)]) -> Result<Config, ConfigError> {
    Config::from_lookup(|name| {
        pairs
            .iter()
            .find(|pair| pair.0 == name)
            .map(|pair| OsString::from(pair.1))
    })
}

#[test]
fn unset_and_empty_variables_mean_the_defaults() {
    let config = read(&[(Config::LINK, ""), (Config::TRACE, "")]).unwrap();
    assert_eq!(config.fabric.as_str(), "default");
    assert_eq!(
        (config.link, config.devices, config.lenient),
        (Link::Ib, 1, false)
    );
    assert_eq!(
        (config.face, config.wake, config.trace),
        (Face::Ioctl, Wake::Auto, None)
    );
}

#[test]
fn every_variable_is_read() {
    let config = read(&[
        (Config::FABRIC, "lab-1"),
        (Config::LINK, "roce"),
        (Config::DEVICES, "3"),
        (Config::PORTS, "2"),
        (Config::LENIENT, "1"),
        (Config::FACE, "write"),
        (Config::TRACE, "/tmp/t"),
        (Config::WAKE, "nap"),
        (Config::RESOLVE_TIME, "7"),
        (Config::FAULTS, "seed=3,drop=0.5"),
        (Config::LIMITS, "max_sge=1,no_srq"),
        (Config::NASTY, "seed=2,srq"),
        (Config::DATA_IN_ORDER, "no"),
        (Config::NUMA_NODE, "3"),
        (Config::TRACE_COMMANDS, "/tmp/c"),
        (Config::PCAP, "/tmp/p"),
        (Config::EXPLAIN, "1"),
    ])
    .unwrap();
    assert_eq!(config.fabric.as_str(), "lab-1");
    assert_eq!(
        (config.link, config.devices, config.ports, config.lenient),
        (Link::Roce, 3, 2, true)
    );
    assert_eq!((config.face, config.wake), (Face::Write, Wake::Nap));
    assert_eq!(config.resolve_time, Duration::from_millis(7));
    assert_eq!(config.trace, Some(PathBuf::from("/tmp/t")));
    assert_eq!(config.trace_commands, Some(PathBuf::from("/tmp/c")));
    assert_eq!(config.pcap, Some(PathBuf::from("/tmp/p")));
    assert!(config.explain);
    let faults = config.faults.expect("given").to_string();
    assert_eq!(faults, "seed=3,drop=0.5");
    assert_eq!(config.limits.to_string(), "max_sge=1,max_srq=0");
    assert_eq!(config.nasty.to_string(), "seed=2,srq");
    assert_eq!(config.data_in_order, DataInOrder::No);
    assert_eq!(config.numa_node, Some(3));
    let none = read(&[(Config::NUMA_NODE, "none")]).expect("a value");
    assert_eq!(none.numa_node, None);
}

#[test]
fn the_interfaces_of_another_wire_are_not_used() {
    let one = "udp=127.0.0.1";
    assert_eq!(read(&[]).unwrap().found(), "");
    let found = read(&[(Config::WIRE, one)]).unwrap().found();
    let of = |wire: &str| {
        let config = read(&[(Config::WIRE, wire), (Config::INTERFACES, &found)]).unwrap();
        config.interfaces[0].clone()
    };
    let same = of("udp=127.0.0.1,latency=1us");
    assert!(found.ends_with(&same.to_string()), "{found}: {same}");
    let other = of("udp=127.0.0.2");
    assert_eq!(other.addresses, [IpAddr::from([127, 0, 0, 2])]);
}

#[test]
fn an_invalid_value_is_reported_with_its_variable_and_the_accepted_values() {
    for (variable, value) in [
        (Config::FABRIC, "../x"),
        (Config::LINK, "token-ring"),
        (Config::DEVICES, "0"),
        (Config::DEVICES, "17"),
        (Config::DEVICES, "two"),
        (Config::PORTS, "0"),
        (Config::PORTS, "3"),
        (Config::LENIENT, "yes"),
        (Config::EXPLAIN, "yes"),
        (Config::FACE, "netlink"),
        (Config::WAKE, "spin"),
        (Config::RESOLVE_TIME, "10001"),
        (Config::RESOLVE_TIME, "1 s"),
        (Config::FAULTS, "drop=2"),
        (Config::LIMITS, "max_sge=31"),
        (Config::NASTY, "kind"),
        (Config::DATA_IN_ORDER, "maybe"),
        (Config::NUMA_NODE, "-1"),
        (Config::WIRE, "tcp"),
        (Config::WIRE, "udp=localhost"),
        (Config::WIRE, "local,latency=1us"),
        (Config::WIRE, "udp,latency=1"),
        (Config::WIRE, "udp=127.0.0.1,bandwidth=1"),
        (Config::WIRE, "udp,"),
    ] {
        let text = read(&[(variable, value)]).unwrap_err().to_string();
        assert!(text.contains(variable) && text.contains(value), "{text}");
    }
    let given = [(Config::WIRE, "udp"), (Config::INTERFACES, "udp eth0 1")];
    let text = read(&given).unwrap_err().to_string();
    assert!(text.contains(Config::INTERFACES), "{text}");
    let text = read(&[(Config::LINK, "eth")]).unwrap_err().to_string();
    assert!(text.ends_with("expected one of: ib, roce"), "{text}");
}

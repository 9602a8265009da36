//! What each adapter name opens.

use std::collections::BTreeMap;

use dat_api::ReturnType;
use dat_api::object::ia::IaInfo;
use dat_api::registry::{self, ConfFile, Entry, VERSION};
use dat_api::safe::{Adapter, EndpointOptions};
use dat_api::types::{EvdFlags, MemPrivileges};
use dat_engine::{DataPath, DeviceInfo, LinkLayer, PathRequest, PortInfo, PortState, Transport};

use crate::advice;
use crate::linker::{self, Found};
use crate::problem::Problem;
use crate::report::{self, Opened, Outcome};

/// The library of names that need no entry.
const OURS: &str = "libdat.so.1";
/// The bytes of memory that are registered to find out whether the limit allows it.
const REGISTERED: usize = 64 << 10;

/// An adapter and its description.
pub(crate) struct Examined {
    pub(crate) report: report::Adapter,
    /// Open, unless it cannot be used.
    pub(crate) adapter: Option<Adapter>,
}

/// Examines the names; without any, every entry of dat.conf and every device.
pub(crate) fn examine(file: &ConfFile, names: &[String]) -> Vec<report::Adapter> {
    let mut all: Vec<Examined> = Vec::new();
    for entry in &file.conf.entries {
        if !names.is_empty() && !names.contains(&entry.name) {
            continue;
        }
        let first = all.iter().find(|one| is_used(one, entry));
        all.push(match first {
            Some(first) => unused(entry, first.report.line),
            None => of_entry(entry),
        });
        // An earlier entry whose device does not exist is not a problem if this one opens.
        let at = all.len() - 1;
        if all[at].report.result == Outcome::Ok {
            for earlier in &mut all[..at] {
                if same_key(&earlier.report, entry) && earlier.report.result == Outcome::Problem {
                    earlier.report.result = Outcome::Unused;
                }
            }
        }
    }
    for name in device_names(names) {
        let known = all.iter().any(|one| one.report.name == name);
        if !known {
            all.push(of_name(&name));
        }
    }
    let mut reports: Vec<_> = all.into_iter().map(|one| one.report).collect();
    if names.is_empty() {
        reports.extend(unusable_devices());
        if reports.iter().all(|one| one.result == Outcome::Ignored) {
            reports.push(nothing());
        }
    }
    reports
}

/// Returns the adapter for a test: the one of this name, or the first that can be used.
pub(crate) fn choose(file: &ConfFile, name: Option<&str>) -> Examined {
    let entries = &file.conf.entries;
    let matching = entries
        .iter()
        .filter(|one| name.is_none_or(|name| one.name == name));
    let usable = matching.filter(|entry| (entry.major, entry.minor) == VERSION);
    let mut failed: Option<Examined> = None;
    for entry in usable {
        let mut examined = of_entry(entry);
        if examined.adapter.is_some() {
            return examined;
        }
        if name.is_some() && examined.report.result == Outcome::Foreign {
            let text = format!(
                "{} serves the name, and dat-check tests this library",
                entry.library
            );
            let next = "test with a program of that library, or name libdat.so.1 in the entry";
            examined.report.result = Outcome::Problem;
            examined.report.problem = Some(Problem::new(text, next));
        }
        failed.get_or_insert(examined);
    }
    if let (Some(_), Some(failed)) = (name, failed) {
        return failed;
    }
    let names = match name {
        Some(name) => vec![name.to_owned()],
        None => registry::device_names().unwrap_or_default(),
    };
    let mut failed: Option<Examined> = None;
    for name in names {
        let examined = of_name(&name);
        if examined.adapter.is_some() {
            return examined;
        }
        failed.get_or_insert(examined);
    }
    failed.unwrap_or_else(|| Examined {
        report: nothing(),
        adapter: None,
    })
}

/// Returns the names that are examined as devices.
fn device_names(names: &[String]) -> Vec<String> {
    match names {
        [] => registry::device_names().unwrap_or_default(),
        names => names.to_vec(),
    }
}

/// Returns the devices that have no name because they cannot be opened.
fn unusable_devices() -> Vec<report::Adapter> {
    let devices = dat_engine::devices_with(PathRequest::Auto).unwrap_or_default();
    let unusable = devices.iter().filter_map(|device| match &device.path {
        DataPath::Unusable { .. } => Some(of_name(&device.name).report),
        _ => None,
    });
    unusable.collect()
}

/// Returns the report if no name can be opened at all.
fn nothing() -> report::Adapter {
    of_name("(any)").report
}

fn same_key(report: &report::Adapter, entry: &Entry) -> bool {
    report.line.is_some()
        && report.name == entry.name
        && report.dat_version == version(entry)
        && report.threadsafe == Some(entry.threadsafe)
}

/// Returns whether an earlier entry is used instead of this one.
fn is_used(earlier: &Examined, entry: &Entry) -> bool {
    same_key(&earlier.report, entry)
        && matches!(earlier.report.result, Outcome::Ok | Outcome::Foreign)
}

fn version(entry: &Entry) -> String {
    format!("{}.{}", entry.major, entry.minor)
}

/// Returns an entry that was not examined yet.
fn blank(entry: &Entry) -> report::Adapter {
    let mut notes = Vec::new();
    if entry.threadsafe {
        notes.push(
            "a threadsafe entry: programs have to request that; dat_ia_open opens nonthreadsafe ones"
                .to_owned(),
        );
    }
    report::Adapter {
        name: entry.name.clone(),
        result: Outcome::Problem,
        line: Some(entry.line),
        dat_version: version(entry),
        threadsafe: Some(entry.threadsafe),
        library: entry.library.clone(),
        library_path: None,
        instance_data: Some(entry.instance_data.clone()),
        opened: None,
        problem: None,
        notes,
    }
}

fn unused(entry: &Entry, used: Option<usize>) -> Examined {
    let mut report = blank(entry);
    report.result = Outcome::Unused;
    if let Some(line) = used {
        report
            .notes
            .push(format!("line {line} has the same name and is used"));
    }
    Examined {
        report,
        adapter: None,
    }
}

fn of_entry(entry: &Entry) -> Examined {
    let mut report = blank(entry);
    if (entry.major, entry.minor) != VERSION {
        report.result = Outcome::Ignored;
        report.notes.push(format!(
            "for programs of DAT {}.{}, which use another registry ({}); programs of uDAPL 1.2 do not \
             see it",
            entry.major,
            entry.minor,
            if entry.major == 2 { "libdat2.so.2" } else { "not this one" }
        ));
        return Examined {
            report,
            adapter: None,
        };
    }
    if !entry.is_ours() {
        look_up(&mut report);
        return Examined {
            report,
            adapter: None,
        };
    }
    opened(report, Adapter::open_entry(entry), || {
        advice::for_entry(entry.line, &entry.instance_data, &advice::devices())
    })
}

fn of_name(name: &str) -> Examined {
    let report = report::Adapter {
        name: name.to_owned(),
        result: Outcome::Problem,
        line: None,
        dat_version: format!("{}.{}", VERSION.0, VERSION.1),
        threadsafe: None,
        library: OURS.to_owned(),
        library_path: None,
        instance_data: None,
        opened: None,
        problem: None,
        notes: Vec::new(),
    };
    opened(report, Adapter::open(name), || {
        advice::for_name(&advice::devices())
    })
}

/// Looks another library up.
fn look_up(report: &mut report::Adapter) {
    let library = &report.library;
    match linker::find(library) {
        Found::At { path, missing } => {
            report.library_path = Some(path);
            if missing.is_empty() {
                report.result = Outcome::Foreign;
            } else {
                report.problem = Some(Problem::new(
                    format!(
                        "{library} needs {}, not found by the dynamic linker",
                        missing.join(", ")
                    ),
                    "install the packages that contain them (`ldd` shows the libraries of a file)",
                ));
            }
        }
        Found::Nowhere { reason } => {
            report.problem = Some(Problem::new(
                format!("the dynamic linker does not load {library}: {reason}"),
                format!(
                    "install the package of {library}, or add its folder to LD_LIBRARY_PATH; to use this \
                     library instead, write libdat.so.1 in the line"
                ),
            ));
        }
        Found::Unknown { reason } => {
            report.result = Outcome::Foreign;
            report.notes.push(format!(
                "not known whether {library} is installed: {reason}"
            ));
        }
    }
}

/// Completes the report of an adapter of this library; `next` is the next step if there is no such
/// device.
fn opened(
    mut report: report::Adapter,
    adapter: dat_api::Result<Adapter>,
    next: impl Fn() -> String,
) -> Examined {
    let adapter = match adapter {
        Ok(adapter) => adapter,
        Err(error) => {
            report.problem = Some(match error.code().kind() {
                Some(ReturnType::ProviderNotFound) => Problem::with_next(&error, next()),
                _ => Problem::of_error(&error),
            });
            return Examined {
                report,
                adapter: None,
            };
        }
    };
    let device = adapter.device();
    let problem = match adapter.port() {
        Ok(port) => {
            report.opened = Some(describe(&adapter.query(), device, &port));
            port_problem(device.transport, &port).or_else(|| endpoint_problem(&adapter))
        }
        Err(error) => Some(Problem::of_error(&error)),
    };
    if adapter.address().ip().is_loopback() {
        report.notes.push(
            "its address is that of this host alone, so only programs of this host can connect; see \
             DAT_LISTEN in udapl(7)"
                .to_owned(),
        );
    }
    let usable = problem.is_none();
    report.result = if usable {
        Outcome::Ok
    } else {
        Outcome::Problem
    };
    report.problem = problem;
    Examined {
        report,
        adapter: usable.then_some(adapter),
    }
}

fn describe(info: &IaInfo, device: &DeviceInfo, port: &PortInfo) -> Opened {
    let IaInfo { ia, provider, .. } = info;
    let attributes: BTreeMap<String, String> = ia
        .transport_attributes
        .iter()
        .chain(&ia.vendor_attributes)
        .chain(&provider.provider_specific_attributes)
        .map(|one| (one.name.to_owned(), one.value.clone()))
        .collect();
    let (path, path_reason) = match &device.path {
        DataPath::Direct => ("direct", None),
        DataPath::Verbs { reason } => ("verbs", Some(reason.clone())),
        DataPath::Unusable { reason } => ("unusable", Some(reason.clone())),
    };
    Opened {
        device: device.name.clone(),
        firmware: device.firmware.clone(),
        port: port.number,
        transport: device.transport.to_string(),
        link_layer: port.link.to_string(),
        port_state: port.state.to_string(),
        port_mtu: port.active_mtu.bytes(),
        address: ia.ia_address.ip().to_string(),
        connection_manager: attributes.get("cm").cloned().unwrap_or_default(),
        path: path.to_owned(),
        path_reason,
        attributes,
    }
}

/// Returns why a port cannot connect.
fn port_problem(transport: Transport, port: &PortInfo) -> Option<Problem> {
    if port.state != PortState::Active {
        let next = match (port.link, port.state) {
            (LinkLayer::Ethernet, _) => {
                "bring the network interface up (`ip link set NAME up`), and check cable and switch"
            }
            (_, PortState::Initializing | PortState::Armed) => {
                "the link is up, but no subnet manager activates it: start opensm on one node"
            }
            _ => "check the cable and the switch port (`ibstat`)",
        };
        let text = format!("port {} is {}", port.number, port.state);
        return Some(Problem::new(text, next));
    }
    if transport == Transport::Iwarp {
        return None;
    }
    let error = port.gid().err()?;
    let text = error.to_string();
    let (cause, _) = text.split_once('\n').unwrap_or((&text, ""));
    let next = match error.remedy() {
        "" => "give the port's network interface an IP address (`ip address add`)",
        remedy => remedy,
    };
    Some(Problem::new(cause, next))
}

/// Returns why no memory can be registered or no endpoint created.
fn endpoint_problem(adapter: &Adapter) -> Option<Problem> {
    let tried = || {
        let zone = adapter.zone()?;
        let privileges = MemPrivileges::LOCAL_READ | MemPrivileges::LOCAL_WRITE;
        let _memory = zone.memory(REGISTERED, privileges)?;
        let events = adapter.dispatcher(16, EvdFlags::DTO | EvdFlags::CONNECTION)?;
        zone.endpoint(&EndpointOptions::new(&events)).map(drop)
    };
    tried().err().map(|error| Problem::of_error(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dat_engine::control::Mtu;

    fn port(link: LinkLayer, state: PortState) -> PortInfo {
        let mtu = Mtu::from_code(3).expect("a code");
        PortInfo {
            number: 2,
            state,
            link,
            lid: 0,
            active_mtu: mtu,
            max_mtu: mtu,
            max_message: 1 << 30,
            gids: Vec::new(),
        }
    }

    #[test]
    fn a_port_that_is_down_has_the_remedy_of_its_link() {
        let problem = |link, state| {
            let problem = port_problem(Transport::Roce, &port(link, state));
            problem.expect("not active")
        };
        let down = problem(LinkLayer::Ethernet, PortState::Down);
        assert_eq!(down.problem, "port 2 is down");
        assert!(down.next.contains("ip link set"), "{down:?}");
        let waiting = problem(LinkLayer::InfiniBand, PortState::Initializing);
        assert!(waiting.next.contains("opensm"), "{waiting:?}");
        let unplugged = problem(LinkLayer::InfiniBand, PortState::Down);
        assert!(unplugged.next.contains("cable"), "{unplugged:?}");
    }

    #[test]
    fn a_roce_port_needs_a_gid_and_an_iwarp_port_none() {
        let active = port(LinkLayer::Ethernet, PortState::Active);
        let problem = port_problem(Transport::Roce, &active).expect("no GID");
        assert!(problem.problem.contains("GID"), "{problem:?}");
        assert!(!problem.next.is_empty(), "{problem:?}");
        assert_eq!(port_problem(Transport::Iwarp, &active), None);
    }
}

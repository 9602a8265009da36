//! Opening one adapter of this library, and describing it.

use std::collections::BTreeMap;

use dat_api::ReturnType;
use dat_api::object::ia::IaInfo;
use dat_api::safe::{Adapter, EndpointOptions};
use dat_api::types::{EvdFlags, MemPrivileges};
use dat_engine::{DeviceInfo, LinkLayer, PortInfo, PortState, Transport};

use crate::problem::Problem;
use crate::report::{self, Opened, Outcome};
use crate::system::emulated_fabric;

/// The bytes of memory that are registered to find out whether the limit allows it.
const REGISTERED: usize = 64 << 10;

/// The note of an adapter that listens on a loopback address.
const LOCAL_ADDRESS: &str = "its address is that of this host alone, so only programs of this host \
                             can connect; see DAT_LISTEN in udapl(7)";

/// An adapter and its description.
pub(crate) struct Examined {
    pub(crate) report: report::Adapter,
    /// Open, unless it cannot be used.
    pub(crate) adapter: Option<Adapter>,
}

impl Examined {
    /// Returns a report without an open adapter.
    pub(crate) fn closed(report: report::Adapter) -> Self {
        Self {
            report,
            adapter: None,
        }
    }

    /// Removes what is known of an adapter that programs do not get.
    pub(crate) fn close(&mut self) {
        self.adapter = None;
        self.report.opened = None;
        self.report.notes.retain(|note| note != LOCAL_ADDRESS);
    }

    /// Makes it an entry that programs do not get.
    pub(crate) fn not_used(&mut self, note: String) {
        self.close();
        self.report.result = Outcome::Unused;
        self.report.notes.push(note);
    }

    pub(crate) fn fail(&mut self, problem: Problem) {
        self.adapter = None;
        self.report.result = Outcome::Problem;
        self.report.problem = Some(problem);
    }

    /// Returns whether it could not be opened or loaded by itself.
    pub(crate) fn is_failed(&self) -> bool {
        self.report.opened.is_none() && self.report.result == Outcome::Problem
    }
}

/// Completes the report of an adapter of this library; `next` is the next step if there is no such
/// device.
pub(crate) fn opened(
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
            return Examined::closed(report);
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
        report.notes.push(LOCAL_ADDRESS.to_owned());
    }
    report.result = Outcome::Ok;
    let mut examined = Examined {
        report,
        adapter: Some(adapter),
    };
    if let Some(problem) = problem {
        examined.fail(problem);
    }
    examined
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
        path: device.path.name().to_owned(),
        path_reason: device.path.reason().map(str::to_owned),
        attributes,
    }
}

/// Returns why a port cannot connect.
fn port_problem(transport: Transport, port: &PortInfo) -> Option<Problem> {
    if port.state != PortState::Active {
        let next = match (port.link, port.state) {
            _ if emulated_fabric().is_some() => {
                "`mlx5-emu port up` with its --fabric, --device and --port brings it up"
            }
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
    let next = "give the port's network interface an IP address (`ip address add`)";
    Some(Problem::of_engine(&error, next))
}

/// Returns why no memory can be registered or no endpoint created.
fn endpoint_problem(adapter: &Adapter) -> Option<Problem> {
    let tried = || {
        let zone = adapter.create_zone()?;
        let privileges = MemPrivileges::LOCAL_READ | MemPrivileges::LOCAL_WRITE;
        let _memory = zone.allocate(REGISTERED, privileges)?;
        let events = adapter.create_dispatcher(16, EvdFlags::DTO | EvdFlags::CONNECTION)?;
        zone.create_endpoint(&EndpointOptions::new(&events))
            .map(drop)
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

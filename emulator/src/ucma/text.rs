//! Commands and events as text, for traces.

use std::fmt;

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::abi::{
    self, AddrReply, ConnParam, EventReply, PathReply, command, option, qp_type, query,
};
use super::address::Address;
use super::commands::{parse, parse_without_ece};
use super::ports::Space;

/// Returns the name of a command.
pub(super) fn name(number: u32) -> String {
    let name = match number {
        command::CREATE_ID => "CREATE_ID",
        command::DESTROY_ID => "DESTROY_ID",
        command::BIND_IP => "BIND_IP",
        command::BIND => "BIND",
        command::RESOLVE_IP => "RESOLVE_IP",
        command::RESOLVE_ADDR => "RESOLVE_ADDR",
        command::RESOLVE_ROUTE => "RESOLVE_ROUTE",
        command::QUERY_ROUTE => "QUERY_ROUTE",
        command::QUERY => "QUERY",
        command::CONNECT => "CONNECT",
        command::LISTEN => "LISTEN",
        command::ACCEPT => "ACCEPT",
        command::REJECT => "REJECT",
        command::DISCONNECT => "DISCONNECT",
        command::INIT_QP_ATTR => "INIT_QP_ATTR",
        command::GET_EVENT => "GET_EVENT",
        command::GET_OPTION => "GET_OPTION",
        command::SET_OPTION => "SET_OPTION",
        command::NOTIFY => "NOTIFY",
        command::JOIN_IP_MCAST => "JOIN_IP_MCAST",
        command::JOIN_MCAST => "JOIN_MCAST",
        command::LEAVE_MCAST => "LEAVE_MCAST",
        command::MIGRATE_ID => "MIGRATE_ID",
        command::RESOLVE_IB_SERVICE => "RESOLVE_IB_SERVICE",
        command::WRITE_CM_EVENT => "WRITE_CM_EVENT",
        _ => return format!("command {number}"),
    };
    name.into()
}

/// Returns a command's request in words; empty if it is too short.
pub(super) fn request(number: u32, body: &[u8]) -> String {
    describe(number, body).unwrap_or_default()
}

fn describe(number: u32, body: &[u8]) -> Option<String> {
    Some(match number {
        command::CREATE_ID => {
            let it: abi::CreateId = read(body)?;
            let space = match Space::from_number(it.ps) {
                Some(space) => format!("port space {space:?}"),
                None => format!("port space {:#x}", it.ps),
            };
            let kind = match it.qp_type {
                qp_type::RC => "RC".into(),
                qp_type::UD => "UD".into(),
                other => format!("type {other}"),
            };
            format!("{space}, queue pair {kind}")
        }
        command::BIND_IP => {
            let it: abi::BindIp = read(body)?;
            format!("id {}, {}", it.id, Shown(&it.addr))
        }
        command::BIND => {
            let it: abi::Bind = read(body)?;
            format!("id {}, {}", it.id, Shown(&it.addr))
        }
        command::RESOLVE_IP => {
            let it: abi::ResolveIp = read(body)?;
            let from = (it.src_addr[..2] != [0, 0]).then_some(&it.src_addr[..]);
            resolve(it.id, from, &it.dst_addr, it.timeout_ms)
        }
        command::RESOLVE_ADDR => {
            let it: abi::ResolveAddr = read(body)?;
            let from = (it.src_size > 0).then_some(&it.src_addr[..]);
            resolve(it.id, from, &it.dst_addr, it.timeout_ms)
        }
        command::RESOLVE_ROUTE => {
            let it: abi::ResolveRoute = read(body)?;
            format!("id {}, timeout {} ms", it.id, it.timeout_ms)
        }
        command::QUERY => {
            let it: abi::Query = read(body)?;
            let what = match it.option {
                query::ADDR => "addresses".into(),
                query::PATH => "paths".into(),
                query::GID => "GIDs".into(),
                other => format!("query {other}"),
            };
            format!("id {}, {what}", it.id)
        }
        command::QUERY_ROUTE => format!("id {}", read::<abi::Query>(body)?.id),
        command::CONNECT => {
            let it: abi::Connect = parse_without_ece(body).ok()?;
            format!("id {}, {}", it.id, connection(&it.conn_param))
        }
        command::ACCEPT => {
            let it: abi::Accept = parse_without_ece(body).ok()?;
            match it.conn_param.valid {
                0 => format!("id {}, confirms the reply", it.id),
                _ => format!("id {}, {}", it.id, connection(&it.conn_param)),
            }
        }
        command::LISTEN => {
            let it: abi::Listen = read(body)?;
            format!("id {}, backlog {}", it.id, it.backlog.cast_signed())
        }
        command::NOTIFY => {
            let it: abi::Listen = read(body)?;
            format!("id {}, event {} of the queue pair", it.id, it.backlog)
        }
        command::REJECT => {
            let it: abi::Reject = read(body)?;
            let (id, reason, len) = (it.id, it.reason, it.private_data_len);
            format!("id {id}, reason {reason}, {len} bytes of private data")
        }
        command::DISCONNECT => format!("id {}", read::<abi::IdOnly>(body)?.id),
        command::DESTROY_ID => format!("id {}", read::<abi::DestroyId>(body)?.id),
        command::INIT_QP_ATTR => {
            let it: abi::InitQpAttr = read(body)?;
            let state = ["RESET", "INIT", "RTR", "RTS"].get(it.qp_state as usize);
            match state {
                Some(state) => format!("id {}, for {state}", it.id),
                None => format!("id {}, for state {}", it.id, it.qp_state),
            }
        }
        command::SET_OPTION => {
            let it: abi::SetOption = read(body)?;
            let name = match (it.level, it.name) {
                (option::LEVEL_ID, option::ID_TOS) => "RDMA_OPTION_ID_TOS".into(),
                (option::LEVEL_ID, option::ID_REUSEADDR) => "RDMA_OPTION_ID_REUSEADDR".into(),
                (option::LEVEL_ID, option::ID_AFONLY) => "RDMA_OPTION_ID_AFONLY".into(),
                (option::LEVEL_ID, option::ID_ACK_TIMEOUT) => "RDMA_OPTION_ID_ACK_TIMEOUT".into(),
                (option::LEVEL_IB, option::IB_PATH) => "RDMA_OPTION_IB_PATH".into(),
                (level, name) => format!("option {name} of level {level}"),
            };
            format!("id {}, {name}, {} bytes", it.id, it.len)
        }
        command::MIGRATE_ID => {
            let it: abi::MigrateId = read(body)?;
            format!("id {}, from file descriptor {}", it.id, it.fd)
        }
        command::WRITE_CM_EVENT => {
            let it: abi::WriteEvent = read(body)?;
            let status = it.status.cast_signed();
            format!("id {}, {}, status {status}", it.id, event_name(it.event))
        }
        _ => String::new(),
    })
}

fn read<T: FromBytes + KnownLayout + Immutable>(body: &[u8]) -> Option<T> {
    parse(body).ok()
}

fn resolve(id: u32, from: Option<&[u8]>, to: &[u8], timeout_ms: u32) -> String {
    let from = from.map_or_else(String::new, |from| format!(" from {}", Shown(from)));
    format!("id {id}, {}{from}, timeout {timeout_ms} ms", Shown(to))
}

fn connection(conn: &ConnParam) -> String {
    let ConnParam {
        qp_num,
        private_data_len,
        responder_resources,
        initiator_depth,
        retry_count,
        rnr_retry_count,
        ..
    } = conn;
    format!(
        "queue pair {qp_num:#x}, responder_resources {responder_resources}, \
         initiator_depth {initiator_depth}, retry_count {retry_count}, \
         rnr_retry_count {rnr_retry_count}, {private_data_len} bytes of private data"
    )
}

/// Returns the reply to a command that ends the events of an id in a file.
pub(super) fn reported(events: u32) -> String {
    format!("{events} events taken")
}

/// Returns the reply to a query.
pub(super) fn queried(kind: u32, reply: &[u8]) -> String {
    if kind == query::PATH {
        return read::<PathReply>(reply)
            .map_or_else(String::new, |it| format!("paths: {}", it.num_paths));
    }
    let Some(it) = read::<AddrReply>(reply) else {
        return String::new();
    };
    let port = match it.port_num {
        0 => "no device".into(),
        port => format!("device {} port {port}", it.ibdev_index),
    };
    let end = |address, size| match size {
        0 => "none".into(),
        _ => Shown(address).to_string(),
    };
    let (from, to) = (
        end(&it.src_addr, it.src_size),
        end(&it.dst_addr, it.dst_size),
    );
    format!("{from} to {to}, {port}")
}

/// Returns an event that the application takes.
pub(super) fn event(reply: &EventReply) -> String {
    let status = reply.status.cast_signed();
    format!(
        "id {}, {}, status {status}",
        reply.id,
        event_name(reply.event)
    )
}

/// Returns the name of an event without its prefix, `RDMA_CM_EVENT_`.
fn event_name(number: u32) -> String {
    // In the order of `enum rdma_cm_event_type`.
    const NAMES: [&str; 20] = [
        "ADDR_RESOLVED",
        "ADDR_ERROR",
        "ROUTE_RESOLVED",
        "ROUTE_ERROR",
        "CONNECT_REQUEST",
        "CONNECT_RESPONSE",
        "CONNECT_ERROR",
        "UNREACHABLE",
        "REJECTED",
        "ESTABLISHED",
        "DISCONNECTED",
        "DEVICE_REMOVAL",
        "MULTICAST_JOIN",
        "MULTICAST_ERROR",
        "ADDR_CHANGE",
        "TIMEWAIT_EXIT",
        "ADDRINFO_RESOLVED",
        "ADDRINFO_ERROR",
        "USER",
        "INTERNAL",
    ];
    match NAMES.get(number as usize) {
        Some(name) => (*name).into(),
        None => format!("event {number}"),
    }
}

/// A socket address in a command.
struct Shown<'a>(&'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Address::parse(self.0) {
            Some(Address::V4 { ip, port }) => write!(f, "{ip}:{port}"),
            Some(Address::V6 { ip, port, .. }) => write!(f, "[{ip}]:{port}"),
            Some(Address::Ib { gid, sid, .. }) => {
                write!(f, "GID {} service {sid:#x}", std::net::Ipv6Addr::from(gid))
            }
            None => f.write_str("an address of unknown family"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::{FromZeros, IntoBytes};

    #[test]
    fn requests_are_described_in_words() {
        let mut bind = abi::Bind::new_zeroed();
        bind.id = 3;
        let address = Address::parse(&[2, 0, 0x1d, 0x2f, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        let bytes = address.unwrap().bytes();
        bind.addr[..bytes.len()].copy_from_slice(&bytes);
        assert_eq!(
            request(command::BIND, bind.as_bytes()),
            "id 3, 10.0.0.1:7471"
        );
        let mut resolve = abi::ResolveAddr::new_zeroed();
        (resolve.id, resolve.timeout_ms) = (4, 2000);
        resolve.dst_addr = bind.addr;
        let text = "id 4, 10.0.0.1:7471, timeout 2000 ms";
        assert_eq!(request(command::RESOLVE_ADDR, resolve.as_bytes()), text);
        (resolve.src_addr, resolve.src_size) = (bind.addr, 16);
        let text = "id 4, 10.0.0.1:7471 from 10.0.0.1:7471, timeout 2000 ms";
        assert_eq!(request(command::RESOLVE_ADDR, resolve.as_bytes()), text);
        let create = [
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6, 1, 2, 0, 0, 0, 0, 0,
        ];
        assert_eq!(
            request(command::CREATE_ID, &create),
            "port space Tcp, queue pair RC"
        );
        assert_eq!(request(command::CREATE_ID, &create[..9]), "");
        assert_eq!(request(command::GET_EVENT, &[]), "");
    }

    #[test]
    fn replies_of_queries_show_both_ends() {
        let mut reply = AddrReply::new_zeroed();
        assert_eq!(
            queried(query::ADDR, reply.as_bytes()),
            "none to none, no device"
        );
        reply.src_addr[..8].copy_from_slice(&[2, 0, 0, 9, 127, 0, 0, 1]);
        (reply.src_size, reply.port_num, reply.ibdev_index) = (16, 2, 3);
        assert_eq!(
            queried(query::ADDR, reply.as_bytes()),
            "127.0.0.1:9 to none, device 3 port 2"
        );
        assert_eq!(queried(query::PATH, &[1, 0, 0, 0, 0, 0, 0, 0]), "paths: 1");
    }

    #[test]
    fn every_command_and_event_has_a_name() {
        for number in 0..=command::WRITE_CM_EVENT {
            assert!(!name(number).contains(' '), "{number}");
        }
        assert_eq!(name(99), "command 99");
        assert_eq!(event_name(abi::event::ESTABLISHED), "ESTABLISHED");
        assert_eq!(event_name(abi::event::TIMEWAIT_EXIT), "TIMEWAIT_EXIT");
        assert_eq!(event_name(abi::event::INTERNAL), "INTERNAL");
        assert_eq!(event_name(20), "event 20");
    }
}

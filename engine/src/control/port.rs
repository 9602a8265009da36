//! Ports: state, addresses, MTU.

use super::context::Context;
use super::gid::{self, GidChoice, GidEntry};
use crate::error::{ControlError, ControlErrorKind};
use dv_sys::inline::{IBV_LINK_LAYER_ETHERNET, dv_query_port};
use dv_sys::verbs::{ibv_mtu, ibv_port_attr, ibv_port_state};
use std::fmt;

/// The link layer of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// InfiniBand: peers are addressed by LID.
    InfiniBand,
    /// Ethernet: peers are addressed by GID (RoCE), or by IP address and TCP port
    /// (iWARP).
    Ethernet,
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "InfiniBand",
            Self::Ethernet => "Ethernet",
        })
    }
}

/// Logical state of a port (`enum ibv_port_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// No link.
    Down,
    /// Linked, waiting for a subnet manager.
    Initializing,
    /// Configured, not yet activated.
    Armed,
    /// In use.
    Active,
    /// A transient state, or one that the engine does not know.
    Other(u32),
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down => f.write_str("down"),
            Self::Initializing => f.write_str("initializing"),
            Self::Armed => f.write_str("armed"),
            Self::Active => f.write_str("active"),
            Self::Other(number) => write!(f, "state {number}"),
        }
    }
}

/// A path MTU as verbs encode it: 1 (256 bytes) to 5 (4096 bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mtu(u8);

impl Mtu {
    /// Returns the MTU for a code of `enum ibv_mtu`.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        (1..=5).contains(&code).then_some(Self(code))
    }

    /// Returns the code of `enum ibv_mtu`.
    #[must_use]
    pub fn code(self) -> u8 {
        self.0
    }

    /// Returns the MTU of that many bytes: 256, 512, 1024, 2048 or 4096.
    #[must_use]
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        (1..=5).map(Self).find(|mtu| mtu.bytes() == bytes)
    }

    /// Returns the payload of a full packet in bytes.
    #[must_use]
    pub fn bytes(self) -> u32 {
        128 << self.0
    }

    fn from_verbs(mtu: ibv_mtu::Type) -> Self {
        u8::try_from(mtu)
            .ok()
            .and_then(Self::from_code)
            .unwrap_or(Self(1))
    }
}

/// A port of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// Number, from 1.
    pub number: u8,
    /// Logical state.
    pub state: PortState,
    /// Link layer.
    pub link: LinkLayer,
    /// Local identifier; 0 on Ethernet.
    pub lid: u16,
    /// MTU in use.
    pub active_mtu: Mtu,
    /// Largest MTU.
    pub max_mtu: Mtu,
    /// Largest message in bytes.
    pub max_message: u32,
    /// Used entries of the GID table; none on iWARP, which has no GIDs.
    pub gids: Vec<GidEntry>,
}

impl PortInfo {
    pub(super) fn query(context: &Context, number: u8) -> Result<Self, ControlError> {
        let attr = query(context, number)?;
        // iWARP drivers put a hardware address into the table.
        let gids = if context.is_iwarp() {
            Vec::new()
        } else {
            let length = usize::try_from(attr.gid_tbl_len).unwrap_or(0);
            gid::read_table(context, number, length, link_of(&attr))
        };
        let port = Self::new(number, &attr, gids);
        context.remember_port(&port);
        Ok(port)
    }

    /// Queries the port as [`Self::query`] does, for a connection from the GID at
    /// `index`, or from the GID that the engine chooses. The other GIDs are those
    /// of the last full query, as long as this one is unchanged. Reading all GIDs
    /// takes most of the time of a connection.
    pub(super) fn query_for(
        context: &Context,
        number: u8,
        index: Option<u8>,
    ) -> Result<Self, ControlError> {
        let Some(known) = context.known_port(number) else {
            return Self::query(context, number);
        };
        let attr = query(context, number)?;
        let port = Self::new(number, &attr, known.gids.clone());
        let entry = match index {
            Some(index) => port.gids.iter().find(|entry| entry.index == index).copied(),
            None => port.gid().ok().map(|choice| choice.entry),
        };
        match entry {
            Some(entry) if gid::is_still(context, number, port.link, &entry) => {
                context.remember_port(&port);
                Ok(port)
            }
            _ => Self::query(context, number),
        }
    }

    fn new(number: u8, attr: &ibv_port_attr, gids: Vec<GidEntry>) -> Self {
        Self {
            number,
            state: state_of(attr),
            link: link_of(attr),
            lid: attr.lid,
            active_mtu: Mtu::from_verbs(attr.active_mtu),
            max_mtu: Mtu::from_verbs(attr.max_mtu),
            max_message: attr.max_msg_sz,
            gids,
        }
    }

    /// Returns the GID for connections, and the reason for the choice.
    ///
    /// # Errors
    /// See [`GidChoice::choose`].
    pub fn gid(&self) -> Result<GidChoice, ControlError> {
        GidChoice::choose(self.link, &self.gids)
    }

    /// Fails unless the port is active.
    pub(super) fn require_active(&self, operation: &'static str) -> Result<(), ControlError> {
        if self.state == PortState::Active {
            return Ok(());
        }
        let remedy = match (self.link, self.state) {
            (LinkLayer::Ethernet, _) => {
                "bring the network interface up (ip link set NAME up) and check cable and peer"
            }
            (LinkLayer::InfiniBand, PortState::Initializing | PortState::Armed) => {
                "the link is up but no subnet manager activates it: start opensm on one node"
            }
            (LinkLayer::InfiniBand, _) => "check the cable and the switch port (see ibstat)",
        };
        Err(ControlError::new(
            ControlErrorKind::PortDown,
            operation,
            format!("port {} is {}", self.number, self.state),
        )
        .with_remedy(remedy))
    }
}

pub(super) fn query(context: &Context, number: u8) -> Result<ibv_port_attr, ControlError> {
    // SAFETY: the struct holds integers only, for which zero is valid.
    let mut attr: ibv_port_attr = unsafe { core::mem::zeroed() };
    // SAFETY: the context is open; the size of `attr` is that of the header that
    // the shim was compiled with.
    let errno = unsafe { dv_query_port(context.as_ptr(), number, &raw mut attr) };
    match errno {
        0 => Ok(attr),
        libc::EINVAL => Err(ControlError::verbs(format!("query port {number}"), errno)
            .with_cause("the device has no such port")
            .with_remedy("ports are counted from 1")),
        _ => Err(ControlError::verbs(format!("query port {number}"), errno)),
    }
}

fn link_of(attr: &ibv_port_attr) -> LinkLayer {
    // Drivers older than RoCE leave the field 0 ("unspecified"), which means
    // InfiniBand.
    match u32::from(attr.link_layer) {
        IBV_LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
        _ => LinkLayer::InfiniBand,
    }
}

fn state_of(attr: &ibv_port_attr) -> PortState {
    match attr.state {
        ibv_port_state::IBV_PORT_DOWN => PortState::Down,
        ibv_port_state::IBV_PORT_INIT => PortState::Initializing,
        ibv_port_state::IBV_PORT_ARMED => PortState::Armed,
        ibv_port_state::IBV_PORT_ACTIVE => PortState::Active,
        other => PortState::Other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(link: LinkLayer, state: PortState) -> PortInfo {
        let mtu = Mtu::from_code(5).expect("a code");
        PortInfo {
            number: 1,
            state,
            link,
            lid: 1,
            active_mtu: mtu,
            max_mtu: mtu,
            max_message: 1 << 30,
            gids: Vec::new(),
        }
    }

    #[test]
    fn a_port_that_is_not_active_is_refused_with_the_remedy_for_its_link() {
        let cases = [
            (LinkLayer::InfiniBand, PortState::Initializing, "opensm"),
            (LinkLayer::InfiniBand, PortState::Down, "cable"),
            (LinkLayer::Ethernet, PortState::Down, "ip link set"),
        ];
        for (link, state, remedy) in cases {
            let error = port(link, state).require_active("connect").unwrap_err();
            assert_eq!(error.kind(), ControlErrorKind::PortDown);
            assert!(error.remedy().contains(remedy), "{error}");
        }
        assert!(
            port(LinkLayer::InfiniBand, PortState::Active)
                .require_active("connect")
                .is_ok()
        );
    }

    #[test]
    fn mtu_codes_are_those_of_verbs() {
        assert_eq!(Mtu::from_code(1).map(Mtu::bytes), Some(256));
        assert_eq!(Mtu::from_code(5).map(Mtu::bytes), Some(4096));
        assert_eq!(Mtu::from_code(0), None);
        assert_eq!(Mtu::from_code(6), None);
        for code in 1..=5 {
            let mtu = Mtu::from_code(code).expect("a code");
            assert_eq!(Mtu::from_bytes(mtu.bytes()), Some(mtu));
        }
        for bytes in [0, 128, 1000, 1500, 8192] {
            assert_eq!(Mtu::from_bytes(bytes), None);
        }
    }
}

//! GIDs, and the choice of the GID for connections.

use super::context::Context;
use super::port::LinkLayer;
use crate::error::{ControlError, ControlErrorKind};
use dv_sys::verbs::{self, ibv_gid, ibv_gid_entry};
use std::fmt;
use std::net::Ipv6Addr;

/// A 128-bit global identifier, in network byte order.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// Returns whether all bits are zero, as in an unused entry.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }

    /// Returns whether the address is link-local (`fe80::/10`).
    #[must_use]
    pub fn is_link_local(self) -> bool {
        Ipv6Addr::from(self.0).is_unicast_link_local()
    }

    /// Returns the subnet prefix: the upper 64 bits.
    #[must_use]
    pub fn subnet_prefix(self) -> [u8; 8] {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        [a, b, c, d, e, f, g, h]
    }

    pub(super) fn to_verbs(self) -> ibv_gid {
        ibv_gid { raw: self.0 }
    }

    pub(super) fn from_verbs(gid: ibv_gid) -> Self {
        // SAFETY: every bit pattern of the union's 16 bytes is a valid `raw`.
        Self(unsafe { gid.raw })
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The protocol of a GID table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidKind {
    /// InfiniBand.
    InfiniBand,
    /// RoCE version 1: not routable, limited to one Ethernet segment.
    RoceV1,
    /// RoCE version 2: over UDP and IP.
    RoceV2,
}

impl fmt::Display for GidKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "IB",
            Self::RoceV1 => "RoCE v1",
            Self::RoceV2 => "RoCE v2",
        })
    }
}

/// One used entry of a port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// Index in the table.
    pub index: u8,
    /// The identifier.
    pub gid: Gid,
    /// Its protocol.
    pub kind: GidKind,
}

/// The GID for connections of a port, and the reason for the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidChoice {
    /// The entry.
    pub entry: GidEntry,
    /// The reason for the choice, as a phrase.
    pub reason: &'static str,
}

impl GidChoice {
    /// Chooses among the entries of a port. On InfiniBand: the first one, which is
    /// the port's own. On RoCE: version 2 before version 1, and routable before
    /// link-local. Among equals: the lowest index.
    ///
    /// # Errors
    /// The table has no entry for the link layer.
    pub fn choose(link: LinkLayer, entries: &[GidEntry]) -> Result<Self, ControlError> {
        let ranked = entries
            .iter()
            .filter_map(|entry| Some((rank(link, entry)?, entry)));
        match ranked.min_by_key(|&(rank, entry)| (rank, entry.index)) {
            Some((rank, &entry)) => Ok(Self {
                entry,
                reason: REASONS[rank],
            }),
            None => Err(no_gid(link)),
        }
    }
}

const REASONS: [&str; 4] = [
    "the port's own GID",
    "RoCE v2 and routable",
    "RoCE v2, link-local (no routable address on the interface)",
    "RoCE v1 (no RoCE v2 entry)",
];

/// Returns the index in [`REASONS`]; lower is better.
fn rank(link: LinkLayer, entry: &GidEntry) -> Option<usize> {
    match (link, entry.kind) {
        (LinkLayer::InfiniBand, GidKind::InfiniBand) => Some(0),
        (LinkLayer::Ethernet, GidKind::RoceV2) if !entry.gid.is_link_local() => Some(1),
        (LinkLayer::Ethernet, GidKind::RoceV2) => Some(2),
        (LinkLayer::Ethernet, GidKind::RoceV1) => Some(3),
        _ => None,
    }
}

fn no_gid(link: LinkLayer) -> ControlError {
    let error = ControlError::new(
        ControlErrorKind::NoGid,
        "choose a GID",
        format!("the port's GID table has no usable {link} entry"),
    );
    match link {
        LinkLayer::Ethernet => error.with_remedy(
            "bring the port's network interface up and give it an address \
             (ip link set NAME up; ip addr add ADDRESS/PREFIX dev NAME)",
        ),
        LinkLayer::InfiniBand => {
            error.with_remedy("check that a subnet manager (opensm) serves the port")
        }
    }
}

/// Reads the used entries of a port's GID table.
pub(super) fn read_table(
    context: &Context,
    port: u8,
    length: usize,
    link: LinkLayer,
) -> Vec<GidEntry> {
    // Tables are long (1024 entries with Soft-RoCE) and mostly unused, and are read
    // for every connection.
    if let Some(entries) = read_at_once(context, port) {
        return entries;
    }
    let length = length.min(usize::from(u8::MAX) + 1);
    (0..=u8::MAX)
        .take(length)
        .filter_map(|index| read(context, port, index, link))
        .collect()
}

/// Returns whether an entry of the table is unchanged.
pub(super) fn is_still(context: &Context, port: u8, link: LinkLayer, entry: &GidEntry) -> bool {
    read(context, port, entry.index, link).as_ref() == Some(entry)
}

const UNUSED: ibv_gid_entry = ibv_gid_entry {
    gid: ibv_gid { raw: [0; 16] },
    gid_index: 0,
    port_num: 0,
    gid_type: 0,
    ndev_ifindex: 0,
};

/// Reads the used entries with one system call. `None` if the kernel does not have
/// that call, or if there are very many entries.
fn read_at_once(context: &Context, port: u8) -> Option<Vec<GidEntry>> {
    let mut table = [UNUSED; 128];
    // SAFETY: the context is open, and that many entries are writable.
    let found = unsafe {
        dv_sys::inline::ibv_query_gid_table(
            context.as_ptr(),
            table.as_mut_ptr(),
            table.len() as _,
            0,
        )
    };
    let found = table.get(..usize::try_from(found).ok()?)?;
    let of_port = found
        .iter()
        .filter(|entry| entry.port_num == u32::from(port));
    Some(of_port.filter_map(used).collect())
}

/// Converts an entry of libibverbs, if it has a GID and its index fits in an
/// address vector.
fn used(entry: &ibv_gid_entry) -> Option<GidEntry> {
    let gid = Gid::from_verbs(entry.gid);
    let index = u8::try_from(entry.gid_index).ok()?;
    let kind = kind_of(entry);
    (!gid.is_zero()).then_some(GidEntry { index, gid, kind })
}

fn kind_of(entry: &ibv_gid_entry) -> GidKind {
    match entry.gid_type {
        verbs::IBV_GID_TYPE_ROCE_V1 => GidKind::RoceV1,
        verbs::IBV_GID_TYPE_ROCE_V2 => GidKind::RoceV2,
        _ => GidKind::InfiniBand,
    }
}

fn read(context: &Context, port: u8, index: u8, link: LinkLayer) -> Option<GidEntry> {
    let mut entry = UNUSED;
    // SAFETY: the context is open, and the entry is writable for its size.
    let failed = unsafe {
        dv_sys::inline::ibv_query_gid_ex(
            context.as_ptr(),
            u32::from(port),
            u32::from(index),
            &raw mut entry,
            0,
        )
    } != 0;
    let (gid, kind) = if failed {
        // An unused entry, or a kernel that does not report types.
        (read_untyped(context, port, index)?, untyped_kind(link))
    } else {
        (Gid::from_verbs(entry.gid), kind_of(&entry))
    };
    (!gid.is_zero()).then_some(GidEntry { index, gid, kind })
}

fn untyped_kind(link: LinkLayer) -> GidKind {
    match link {
        LinkLayer::InfiniBand => GidKind::InfiniBand,
        LinkLayer::Ethernet => GidKind::RoceV1,
    }
}

fn read_untyped(context: &Context, port: u8, index: u8) -> Option<Gid> {
    let mut gid = ibv_gid { raw: [0; 16] };
    // SAFETY: as in `read`.
    let failed =
        unsafe { verbs::ibv_query_gid(context.as_ptr(), port, i32::from(index), &raw mut gid) }
            != 0;
    (!failed).then(|| Gid::from_verbs(gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u8, kind: GidKind, address: &str) -> GidEntry {
        let address: Ipv6Addr = address.parse().expect("an IPv6 address");
        GidEntry {
            index,
            gid: Gid(address.octets()),
            kind,
        }
    }

    #[test]
    fn roce_prefers_version_2_and_routable_addresses() {
        let table = [
            entry(0, GidKind::RoceV1, "fe80::1"),
            entry(1, GidKind::RoceV2, "fe80::1"),
            entry(2, GidKind::RoceV1, "::ffff:192.0.2.1"),
            entry(3, GidKind::RoceV2, "::ffff:192.0.2.1"),
            entry(5, GidKind::RoceV2, "2001:db8::1"),
        ];
        let choice = GidChoice::choose(LinkLayer::Ethernet, &table).expect("a choice");
        assert_eq!(choice.entry.index, 3);
        assert!(choice.reason.contains("routable"));
        let choice = GidChoice::choose(LinkLayer::Ethernet, &table[..2]).expect("a choice");
        assert_eq!(choice.entry.index, 1);
        let choice = GidChoice::choose(LinkLayer::Ethernet, &table[..1]).expect("a choice");
        assert_eq!((choice.entry.index, choice.reason), (0, REASONS[3]));
    }

    #[test]
    fn infiniband_takes_the_first_entry() {
        let table = [
            entry(0, GidKind::InfiniBand, "fe80::2"),
            entry(1, GidKind::InfiniBand, "fe80::3"),
        ];
        let choice = GidChoice::choose(LinkLayer::InfiniBand, &table).expect("a choice");
        assert_eq!(choice.entry.index, 0);
    }

    #[test]
    fn used_entries_are_converted_and_empty_ones_skipped() {
        let raw_entry = |index, gid_type, first| ibv_gid_entry {
            gid: ibv_gid {
                raw: [first, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9],
            },
            gid_index: index,
            port_num: 1,
            gid_type,
            ndev_ifindex: 3,
        };
        let seen = used(&raw_entry(200, verbs::IBV_GID_TYPE_ROCE_V2, 0xfe)).expect("an entry");
        assert_eq!((seen.index, seen.kind), (200, GidKind::RoceV2));
        assert_eq!((seen.gid.0[0], seen.gid.0[15]), (0xfe, 9));
        assert_eq!(
            used(&raw_entry(256, verbs::IBV_GID_TYPE_ROCE_V2, 0xfe)),
            None
        );
        assert_eq!(used(&UNUSED), None);
    }

    #[test]
    fn no_usable_entry_is_an_error_with_a_remedy() {
        let table = [entry(0, GidKind::InfiniBand, "fe80::2")];
        let error = GidChoice::choose(LinkLayer::Ethernet, &table).unwrap_err();
        assert_eq!(error.kind(), ControlErrorKind::NoGid);
        assert!(error.remedy().contains("ip link set"), "{error}");
        assert!(GidChoice::choose(LinkLayer::InfiniBand, &[]).is_err());
    }
}

//! The address vector in the WQE of a datagram (`mlx5_wqe_datagram_seg`).

use super::wqe::SEGMENT;

/// Size of the long form in bytes.
const LONG: usize = 48;
/// `MLX5_EXTENDED_UD_AV`, in the word of the QP number.
const IS_LONG: u32 = 1 << 31;
/// Bit before the flow label: the packet has a GRH. Reserved on Ethernet, where every
/// packet has a network header.
const HAS_GRH: u32 = 1 << 30;

/// The destination of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressVector {
    /// Queue key as posted.
    pub qkey: u32,
    /// QP number.
    pub qpn: u32,
    /// Upper half: static rate; lower half: service level, on Ethernet the priority
    /// in its upper three bits.
    pub rate_and_level: u8,
    /// Source path bits.
    pub path_bits: u8,
    /// LID.
    pub lid: u16,
    /// MAC address.
    pub mac: [u8; 6],
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Whether the datagram has a GRH on InfiniBand.
    pub has_grh: bool,
    /// Index of the source GID.
    pub source_gid: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// GID.
    pub gid: [u8; 16],
}

impl AddressVector {
    /// Parses the address vector at the start of the bytes. Returns it with its
    /// length. The short form, which ends after the LID, has no global part.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let mut whole = [0; LONG];
        let short = bytes.get(..SEGMENT)?;
        whole[..SEGMENT].copy_from_slice(short);
        let be32 = |bytes: &[u8; LONG], at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let length = if be32(&whole, 8) & IS_LONG == 0 {
            SEGMENT
        } else {
            whole.copy_from_slice(bytes.get(..LONG)?);
            LONG
        };
        let global = be32(&whole, 28);
        let mut gid = [0; 16];
        gid.copy_from_slice(&whole[32..]);
        let mut mac = [0; 6];
        mac.copy_from_slice(&whole[20..26]);
        let vector = Self {
            qkey: be32(&whole, 0),
            qpn: be32(&whole, 8) & 0x00ff_ffff,
            rate_and_level: whole[12],
            path_bits: whole[13] & 0x7f,
            lid: u16::from_be_bytes([whole[14], whole[15]]),
            mac,
            traffic_class: whole[26],
            hop_limit: whole[27],
            has_grh: global & HAS_GRH != 0,
            source_gid: (global >> 20) as u8,
            flow_label: global & 0x000f_ffff,
            gid,
        };
        Some((vector, length))
    }
}

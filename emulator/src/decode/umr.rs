//! The contents of a UMR WQE, which changes a memory key: memory windows are bound,
//! unbound and invalidated by UMRs (`mlx5_wqe_umr_ctrl_seg`,
//! `mlx5_wqe_mkey_context_seg`, `mlx5_wqe_umr_klm_seg`).
//!
//! The key itself is in the immediate field of the control segment. Only the fields
//! selected by the mask are changed; other fields of the mkey context contain whatever
//! was in the ring before.

use super::wqe::{Malformed, SEGMENT};

/// Size of the UMR control segment in bytes.
pub const CONTROL: usize = 48;
/// Size of the mkey context in bytes.
pub const CONTEXT: usize = 64;
/// Size of a translation entry (KLM) in bytes.
pub const KLM: usize = 16;
/// The QP number that means none.
pub const NO_QP: u32 = 0x00ff_ffff;
/// The bit of the context's first byte that frees the key.
pub const FREE: u8 = 1 << 6;

bitflags::bitflags! {
    /// Flags of the change (`MLX5_WQE_UMR_CTRL_FLAG_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct UmrFlags: u8 {
        /// The key must belong to this QP.
        const CHECK_QPN = 1 << 3;
        /// The translation entries are stored from an offset on.
        const TRANSLATION_OFFSET = 1 << 4;
        /// The key must be free.
        const CHECK_FREE = 1 << 5;
        /// The key must not be free.
        const CHECK_IN_USE = 1 << 6;
        /// The translation entries are in the WQE.
        const INLINE = 1 << 7;
        const _ = !0;
    }

    /// The fields of the context that are changed (`MLX5_WQE_UMR_CTRL_MKEY_MASK_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MkeyMask: u64 {
        /// Length.
        const LENGTH = 1;
        /// Size of a page.
        const PAGE_SIZE = 1 << 1;
        /// Start address.
        const START = 1 << 6;
        /// Protection domain.
        const DOMAIN = 1 << 7;
        /// Variant, the low byte of the key.
        const KEY = 1 << 13;
        /// QP number.
        const QPN = 1 << 14;
        /// Access flag for local writes.
        const LOCAL_WRITE = 1 << 18;
        /// Access flag for remote reads.
        const REMOTE_READ = 1 << 19;
        /// Access flag for remote writes.
        const REMOTE_WRITE = 1 << 20;
        /// Access flag for atomics.
        const ATOMIC = 1 << 21;
        /// Whether the key is free.
        const FREE = 1 << 29;
        const _ = !0;
    }

    /// Access flags of a key (`MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MkeyAccess: u8 {
        /// Local reads.
        const LOCAL_READ = 1 << 2;
        /// Local writes.
        const LOCAL_WRITE = 1 << 3;
        /// Remote reads.
        const REMOTE_READ = 1 << 4;
        /// Remote writes.
        const REMOTE_WRITE = 1 << 5;
        /// Atomics.
        const ATOMIC = 1 << 6;
        const _ = !0;
    }
}

/// A translation entry (KLM): the memory behind a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Klm {
    /// Length in bytes; a posted 0 means 2^31.
    pub length: u32,
    /// Key of the memory.
    pub key: u32,
    /// Address in it.
    pub address: u64,
}

impl Klm {
    /// Parses a translation entry.
    #[must_use]
    pub fn parse(bytes: &[u8; KLM]) -> Self {
        let count = be32(bytes, 0);
        Self {
            length: if count == 0 { 1 << 31 } else { count },
            key: be32(bytes, 4),
            address: be64(bytes, 8),
        }
    }
}

/// A UMR WQE without its control segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Umr {
    /// Flags of the change.
    pub flags: UmrFlags,
    /// The fields that are changed.
    pub mask: MkeyMask,
    /// Length of the translation entries in units of 16 bytes, as posted.
    pub octowords: u16,
    /// Offset of the first translation entry, as posted.
    pub offset: u16,
    /// Whether the key is free afterwards.
    pub free: bool,
    /// Access flags.
    pub access: MkeyAccess,
    /// Protection domain, 24 bits.
    pub pd: u32,
    /// log2 of the size of a page in bytes.
    pub log_page_size: u8,
    /// QP number, 24 bits; [`NO_QP`] for none.
    pub qpn: u32,
    /// Low byte of the key.
    pub variant: u8,
    /// Start address.
    pub start: u64,
    /// Length in bytes.
    pub length: u64,
    /// The first translation entry, if the WQE contains one.
    pub klm: Option<Klm>,
}

impl Umr {
    /// Parses what follows the control segment.
    ///
    /// # Errors
    /// Returns an error if the bytes end inside a segment.
    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let (control, rest) = body
            .split_first_chunk::<CONTROL>()
            .ok_or(Malformed::Truncated)?;
        let (context, rest) = rest
            .split_first_chunk::<CONTEXT>()
            .ok_or(Malformed::Truncated)?;
        let owner = be32(context, 4);
        Ok(Self {
            flags: UmrFlags::from_bits_retain(control[0]),
            mask: MkeyMask::from_bits_retain(be64(control, 8)),
            octowords: u16::from_be_bytes([control[4], control[5]]),
            offset: u16::from_be_bytes([control[6], control[7]]),
            free: context[0] & FREE != 0,
            access: MkeyAccess::from_bits_retain(context[2]),
            pd: be32(context, 12) & 0x00ff_ffff,
            log_page_size: context[59] & 0x1f,
            qpn: owner >> 8,
            variant: owner as u8,
            start: be64(context, 16),
            length: be64(context, 24),
            klm: rest.first_chunk().map(Klm::parse),
        })
    }
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    let word = bytes[at..].first_chunk().copied();
    u32::from_be_bytes(word.unwrap_or_default())
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    let word = bytes[at..].first_chunk().copied();
    u64::from_be_bytes(word.unwrap_or_default())
}

const _: () = assert!(KLM == SEGMENT);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_have_the_layout_of_mlx5dv() {
        let mut bytes = [0; CONTROL + CONTEXT + 64];
        bytes[0] = 0xb0;
        bytes[4..8].copy_from_slice(&[0, 4, 0, 1]);
        bytes[8..16].copy_from_slice(&0x203c_6041_u64.to_be_bytes());
        let context = CONTROL;
        bytes[context + 2] = 0x70;
        bytes[context + 4..context + 8].copy_from_slice(&0x0102_0342_u32.to_be_bytes());
        bytes[context + 16..context + 24].copy_from_slice(&0x1122_3344_5566_u64.to_be_bytes());
        bytes[context + 24..context + 32].copy_from_slice(&77_u64.to_be_bytes());
        let klm = CONTROL + CONTEXT;
        bytes[klm..klm + 4].copy_from_slice(&77_u32.to_be_bytes());
        bytes[klm + 4..klm + 8].copy_from_slice(&0x1234_u32.to_be_bytes());
        bytes[klm + 8..klm + 16].copy_from_slice(&0x9000_u64.to_be_bytes());
        let umr = Umr::parse(&bytes).unwrap();
        assert_eq!(
            umr,
            Umr {
                flags: UmrFlags::INLINE | UmrFlags::TRANSLATION_OFFSET | UmrFlags::CHECK_FREE,
                mask: MkeyMask::LENGTH
                    | MkeyMask::START
                    | MkeyMask::KEY
                    | MkeyMask::QPN
                    | MkeyMask::LOCAL_WRITE
                    | MkeyMask::REMOTE_READ
                    | MkeyMask::REMOTE_WRITE
                    | MkeyMask::ATOMIC
                    | MkeyMask::FREE,
                octowords: 4,
                offset: 1,
                free: false,
                access: MkeyAccess::REMOTE_READ | MkeyAccess::REMOTE_WRITE | MkeyAccess::ATOMIC,
                pd: 0,
                log_page_size: 0,
                qpn: 0x01_0203,
                variant: 0x42,
                start: 0x1122_3344_5566,
                length: 77,
                klm: Some(Klm {
                    length: 77,
                    key: 0x1234,
                    address: 0x9000
                }),
            }
        );
        bytes[context] = FREE;
        let unbind = Umr::parse(&bytes[..CONTROL + CONTEXT]).unwrap();
        assert!(unbind.free && unbind.klm.is_none());
        assert_eq!(Umr::parse(&bytes[..111]), Err(Malformed::Truncated));
    }
}

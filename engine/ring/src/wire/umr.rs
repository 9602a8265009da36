//! The segments of a WQE that changes a memory key (`MLX5_OPCODE_UMR`), as
//! far as memory windows of type 1 need them: control
//! (`mlx5_wqe_umr_ctrl_seg`), context of the key (`mlx5_wqe_mkey_context_seg`)
//! and translation (`mlx5_wqe_umr_klm_seg`).
//!
//! A window of type 1 belongs to its protection domain and to no queue pair, may be
//! bound while it is bound, and is unbound by a bind of 0 bytes. The immediate data
//! of the control segment names the key by its index; the low byte of the key is in
//! the context.

use super::{Be32, Be64, UNIT};

/// Units of the control segment of a change.
const CONTROL_UNITS: usize = 3;
/// Units of the context of the key.
const CONTEXT_UNITS: usize = 4;
/// Units of the list of translations: one, filled up to what the device reads.
const TRANSLATION_UNITS: usize = 4;

/// Units of a whole WQE that binds, the control segment of every WQE included.
pub const BIND_UNITS: u32 = (1 + CONTROL_UNITS + CONTEXT_UNITS + TRANSLATION_UNITS) as u32;
/// Units of a whole WQE that unbinds.
const UNBIND_UNITS: u32 = (1 + CONTROL_UNITS + CONTEXT_UNITS) as u32;

/// The most bytes that one translation, and so one window, covers: 2 GiB.
pub const LONGEST_WINDOW: u64 = 1 << 31;

bitflags::bitflags! {
    /// What peers may do through a key
    /// (`MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_*`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct MkeyAccess: u8 {
        /// RDMA reads.
        const REMOTE_READ = 1 << 4;
        /// RDMA writes.
        const REMOTE_WRITE = 1 << 5;
    }
}

/// The range that a bind opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowRange {
    /// The region's key.
    pub lkey: u32,
    /// First byte, as the region counts; peers count the same.
    pub addr: u64,
    /// Bytes; 1 to [`LONGEST_WINDOW`].
    pub length: u64,
    /// What peers may do.
    pub access: MkeyAccess,
}

/// A change of a memory window of type 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowChange {
    /// The key until now.
    pub before: u32,
    /// The key from then on: the same but for the low byte.
    pub key: u32,
    /// The range that it opens; `None` closes the window.
    pub range: Option<WindowRange>,
}

impl WindowChange {
    /// Returns the number of units of its WQE.
    pub const fn units(&self) -> u32 {
        match self.range {
            Some(_) => BIND_UNITS,
            None => UNBIND_UNITS,
        }
    }

    /// Returns the units behind the WQE's control segment, in order. Only the first
    /// `units() - 1` of them are the WQE's.
    pub fn body(&self) -> [[u64; 2]; BIND_UNITS as usize - 1] {
        let mut units = [[0; 2]; BIND_UNITS as usize - 1];
        let (control, rest) = units.split_at_mut(CONTROL_UNITS);
        let (context, translation) = rest.split_at_mut(CONTEXT_UNITS);
        control[0] = self.control();
        let first = |free: u8, access: u8| {
            let rights = u32::from(free) << 24 | u32::from(access) << 8;
            let owner = NO_QUEUE_PAIR | (self.key & 0xff);
            Be64::new(u64::from(rights) << 32 | u64::from(owner)).to_bits()
        };
        let Some(range) = self.range else {
            context[0][0] = first(FREE, 0);
            return units;
        };
        context[0][0] = first(0, range.access.bits());
        context[1] = [
            Be64::new(range.addr).to_bits(),
            Be64::new(range.length).to_bits(),
        ];
        translation[0] = [
            Be64::new(range.length << 32 | u64::from(range.lkey)).to_bits(),
            Be64::new(range.addr).to_bits(),
        ];
        units
    }

    /// Returns the part of the control segment that is not 0: flags and the number of
    /// translations, in octowords; what of the context is to be changed.
    fn control(&self) -> [u64; 2] {
        let mut mask = mask::FREE | mask::MKEY;
        let mut octowords = 0;
        if self.range.is_some() {
            octowords = TRANSLATION_UNITS as u64;
            mask |= mask::LENGTH
                | mask::START
                | mask::LOCAL_WRITE
                | mask::REMOTE_READ
                | mask::REMOTE_WRITE
                | mask::ATOMIC;
        }
        let flags = u32::from(flag::TRANSLATION_OFFSET | flag::INLINE) << 24;
        [
            Be64::new(u64::from(flags) << 32 | octowords << 16).to_bits(),
            Be64::new(mask).to_bits(),
        ]
    }
}

/// The upper bits of the context's QP number word for a key of no queue pair.
const NO_QUEUE_PAIR: u32 = 0xffff_ff00;
/// `MLX5_WQE_MKEY_CONTEXT_FREE`.
const FREE: u8 = 1 << 6;
/// `MLX5_WQE_UMR_CTRL_FLAG_*`.
mod flag {
    pub(super) const TRANSLATION_OFFSET: u8 = 1 << 4;
    pub(super) const INLINE: u8 = 1 << 7;
}

/// `MLX5_WQE_UMR_CTRL_MKEY_MASK_*`.
mod mask {
    pub(super) const LENGTH: u64 = 1 << 0;
    pub(super) const START: u64 = 1 << 6;
    pub(super) const MKEY: u64 = 1 << 13;
    pub(super) const LOCAL_WRITE: u64 = 1 << 18;
    pub(super) const REMOTE_READ: u64 = 1 << 19;
    pub(super) const REMOTE_WRITE: u64 = 1 << 20;
    pub(super) const ATOMIC: u64 = 1 << 21;
    pub(super) const FREE: u64 = 1 << 29;
}

const _: () = {
    // `mlx5_wqe_umr_ctrl_seg`, `mlx5_wqe_mkey_context_seg`, and the room that
    // libmlx5 gives translations.
    assert!(CONTROL_UNITS * UNIT == 48);
    assert!(CONTEXT_UNITS * UNIT == 64);
    assert!(TRANSLATION_UNITS * UNIT == 64);
    assert!(size_of::<Be32>() * 4 == UNIT);
};

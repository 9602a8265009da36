//! The control segment, which C declares packed and aligned at once.

/// `struct mlx5_wqe_ctrl_seg`. Multi-byte fields are big endian.
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct mlx5_wqe_ctrl_seg {
    pub opmod_idx_opcode: u32,
    pub qpn_ds: u32,
    pub signature: u8,
    /// A `__be16` at an odd offset.
    pub dci_stream_channel_id: [u8; 2],
    pub fm_ce_se: u8,
    pub imm: u32,
}

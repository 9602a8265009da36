//! Names of opcodes and syndromes, as in `mlx5dv.h` without their prefix.

/// Returns the name of a send WQE's opcode (`MLX5_OPCODE_*`).
pub(super) fn wqe_opcode(opcode: u8) -> Option<&'static str> {
    Some(match opcode {
        0x00 => "NOP",
        0x01 => "SEND_INVAL",
        0x08 => "RDMA_WRITE",
        0x09 => "RDMA_WRITE_IMM",
        0x0a => "SEND",
        0x0b => "SEND_IMM",
        0x0e => "TSO",
        0x10 => "RDMA_READ",
        0x11 => "ATOMIC_CS",
        0x12 => "ATOMIC_FA",
        0x14 => "ATOMIC_MASKED_CS",
        0x15 => "ATOMIC_MASKED_FA",
        0x19 => "FMR",
        0x1b => "LOCAL_INVAL",
        0x1f => "CONFIG_CMD",
        0x20 => "SET_PSV",
        0x25 => "UMR",
        0x28 => "TAG_MATCHING",
        0x2c => "FLOW_TBL_ACCESS",
        0x2f => "MMO",
        _ => return None,
    })
}

/// Returns the name of a CQE's opcode (`MLX5_CQE_*`).
pub(super) fn cqe_opcode(opcode: u8) -> Option<&'static str> {
    Some(match opcode {
        0 => "REQ",
        1 => "RESP_WR_IMM",
        2 => "RESP_SEND",
        3 => "RESP_SEND_IMM",
        4 => "RESP_SEND_INV",
        5 => "RESIZE_CQ",
        6 => "NO_PACKET",
        12 => "SIG_ERR",
        13 => "REQ_ERR",
        14 => "RESP_ERR",
        15 => "INVALID",
        _ => return None,
    })
}

/// Returns the name of an error CQE's syndrome (`MLX5_CQE_SYNDROME_*`).
pub(super) fn syndrome(syndrome: u8) -> &'static str {
    match syndrome {
        0x01 => "LOCAL_LENGTH_ERR",
        0x02 => "LOCAL_QP_OP_ERR",
        0x04 => "LOCAL_PROT_ERR",
        0x05 => "WR_FLUSH_ERR",
        0x06 => "MW_BIND_ERR",
        0x10 => "BAD_RESP_ERR",
        0x11 => "LOCAL_ACCESS_ERR",
        0x12 => "REMOTE_INVAL_REQ_ERR",
        0x13 => "REMOTE_ACCESS_ERR",
        0x14 => "REMOTE_OP_ERR",
        0x15 => "TRANSPORT_RETRY_EXC_ERR",
        0x16 => "RNR_RETRY_EXC_ERR",
        0x22 => "REMOTE_ABORTED_ERR",
        _ => "unknown syndrome, not in mlx5dv.h",
    }
}

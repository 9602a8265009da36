//! The operations of requests, in the terms of verbs and of the device's manual.

use dat_engine::{AtomicOp, CompletionOp, SendOp};
use dv_sys::verbs::*;
use proptest::prelude::*;

/// Generates any operation that verbs has too.
pub fn any_op() -> impl Strategy<Value = SendOp> {
    let remote = || (any::<u64>(), any::<u32>());
    let atomic = prop_oneof![
        any::<u64>().prop_map(AtomicOp::FetchAdd),
        any::<(u64, u64)>().prop_map(|(compare, swap)| AtomicOp::CompareSwap { compare, swap }),
    ];
    prop_oneof![
        3 => Just(SendOp::Send),
        1 => any::<u32>().prop_map(SendOp::SendImm),
        2 => remote().prop_map(|(remote_addr, rkey)| SendOp::Write { remote_addr, rkey }),
        1 => (remote(), any::<u32>())
            .prop_map(|((remote_addr, rkey), imm)| SendOp::WriteImm { remote_addr, rkey, imm }),
        1 => remote().prop_map(|(remote_addr, rkey)| SendOp::Read { remote_addr, rkey }),
        2 => (remote(), atomic).prop_map(|((remote_addr, rkey), op)| SendOp::Atomic {
            remote_addr: remote_addr & !7,
            rkey,
            op,
        }),
    ]
}

/// Returns the `MLX5_OPCODE_*` that the completion reports.
pub fn opcode(op: SendOp) -> u8 {
    match op {
        SendOp::Send => 0x0a,
        SendOp::SendImm(_) => 0x0b,
        SendOp::Write { .. } => 0x08,
        SendOp::WriteImm { .. } => 0x09,
        SendOp::Read { .. } => 0x10,
        SendOp::Atomic { op, .. } => match op {
            AtomicOp::CompareSwap { .. } => 0x11,
            AtomicOp::FetchAdd(_) => 0x12,
        },
        SendOp::Nop => 0x00,
    }
}

/// Fills in the operation of a work request.
pub fn fill(wr: &mut ibv_send_wr, op: SendOp) {
    use ibv_wr_opcode as Verb;
    let rdma = |remote_addr, rkey| wr_t {
        rdma: rdma_t { remote_addr, rkey },
    };
    let mut immediate = 0;
    wr.opcode = match op {
        SendOp::Send => Verb::IBV_WR_SEND,
        SendOp::SendImm(imm) => {
            immediate = imm;
            Verb::IBV_WR_SEND_WITH_IMM
        }
        SendOp::Write { remote_addr, rkey } => {
            wr.wr = rdma(remote_addr, rkey);
            Verb::IBV_WR_RDMA_WRITE
        }
        SendOp::WriteImm {
            remote_addr,
            rkey,
            imm,
        } => {
            immediate = imm;
            wr.wr = rdma(remote_addr, rkey);
            Verb::IBV_WR_RDMA_WRITE_WITH_IMM
        }
        SendOp::Read { remote_addr, rkey } => {
            wr.wr = rdma(remote_addr, rkey);
            Verb::IBV_WR_RDMA_READ
        }
        SendOp::Atomic {
            remote_addr,
            rkey,
            op,
        } => {
            let (opcode, compare_add, swap) = match op {
                AtomicOp::FetchAdd(add) => (Verb::IBV_WR_ATOMIC_FETCH_AND_ADD, add, 0),
                AtomicOp::CompareSwap { compare, swap } => {
                    (Verb::IBV_WR_ATOMIC_CMP_AND_SWP, compare, swap)
                }
            };
            wr.wr.atomic = atomic_t {
                remote_addr,
                compare_add,
                swap,
                rkey,
            };
            opcode
        }
        SendOp::Nop => unreachable!("verbs has no marker"),
    };
    wr.imm_data_invalidated_rkey_union.imm_data = immediate.to_be();
}

/// Returns the opcode of a completion.
pub fn wc_opcode(op: CompletionOp) -> ibv_wc_opcode::Type {
    match op {
        CompletionOp::Send => ibv_wc_opcode::IBV_WC_SEND,
        CompletionOp::Write | CompletionOp::WriteImm => ibv_wc_opcode::IBV_WC_RDMA_WRITE,
        CompletionOp::Read => ibv_wc_opcode::IBV_WC_RDMA_READ,
        CompletionOp::Recv => ibv_wc_opcode::IBV_WC_RECV,
        CompletionOp::RecvWriteImm => ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM,
        CompletionOp::CompareSwap => ibv_wc_opcode::IBV_WC_COMP_SWAP,
        CompletionOp::FetchAdd => ibv_wc_opcode::IBV_WC_FETCH_ADD,
        CompletionOp::Bind => ibv_wc_opcode::IBV_WC_BIND_MW,
        CompletionOp::Nop => unreachable!("verbs has no marker"),
    }
}

/// Returns whether a completion with this opcode has a length.
pub fn has_length(opcode: ibv_wc_opcode::Type) -> bool {
    matches!(
        opcode,
        ibv_wc_opcode::IBV_WC_RECV
            | ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM
            | ibv_wc_opcode::IBV_WC_RDMA_READ
            | ibv_wc_opcode::IBV_WC_COMP_SWAP
            | ibv_wc_opcode::IBV_WC_FETCH_ADD
    )
}

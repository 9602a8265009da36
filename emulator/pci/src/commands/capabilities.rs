//! What the device can do.
//!
//! The driver asks for nothing whose capability is 0: flow steering, on-demand paging,
//! sub-functions, encryption. Each value here is one that the NIC keeps.

use mlx5emu::limits::{BF_REG_SIZE, GID_TABLE, MAX_RD_ATOMIC, MAX_RQ_DESC, MAX_SQ_DESC};
use mlx5emu::spec::CLOCK_KHZ;

use super::{CONTEXT, Function, Outcome, command_in};
use crate::bits::{Field, part, part_mut};
use crate::events::INTERRUPTS;
use crate::layout::hca_cap;

/// Kinds of capabilities, in the modifier of the command.
const GENERAL: u64 = 0;
const ATOMIC: u64 = 3;
/// Length of what is known of a kind.
const LENGTH: usize = 4096;

pub(super) fn query(function: &mut Function, input: &[u8], output: &mut [u8]) -> Outcome {
    let kind = command_in::OP_MOD.get(input) >> 1;
    let mut capabilities = [0; LENGTH];
    let set = |bytes: &mut [u8], field: Field, value: u32| field.set(bytes, value.into());
    match kind {
        GENERAL => {
            for (field, value) in general(function) {
                set(&mut capabilities, field, value);
            }
        }
        ATOMIC => {
            for (field, value) in atomic_caps::OF_8_BYTES {
                set(&mut capabilities, field, value);
            }
        }
        _ => {}
    }
    for (to, from) in part_mut(output, CONTEXT).iter_mut().zip(capabilities) {
        *to = from;
    }
    Ok(())
}

/// Takes the capabilities that the driver chooses: of those here only the version of
/// completions.
pub(super) fn set(function: &mut Function, input: &[u8], _: &mut [u8]) -> Outcome {
    if command_in::OP_MOD.get(input) >> 1 == GENERAL {
        function.cqe_version = hca_cap::CQE_VERSION.get(part(input, CONTEXT)) as u8;
    }
    Ok(())
}

/// Capabilities for atomic operations.
mod atomic_caps {
    use super::Field;

    /// Compare and swap, fetch and add; of 8 bytes, with results in the host's byte order.
    pub(super) const OF_8_BYTES: [(Field, u32); 4] = [
        (Field::new(0x40, 2), 1),
        (Field::new(0x46, 1), 1),
        (Field::new(0x90, 16), 0b11),
        (Field::new(0xb0, 16), 0b1000),
    ];
}

fn general(function: &Function) -> [(Field, u32); 66] {
    let limits = function.emulator.config().limits;
    let log = |limit: u32| limit.max(1).ilog2();
    [
        (hca_cap::LOG_MAX_SRQ_SZ, log(limits.max_srq_wr + 1)),
        (hca_cap::LOG_MAX_QP_SZ, log(limits.max_qp_wr)),
        (hca_cap::LOG_MAX_QP, log(limits.max_qp + 1)),
        (hca_cap::LOG_MAX_SRQ, log(limits.max_srq + 1)),
        (hca_cap::LOG_MAX_CQ_SZ, log(limits.max_cqe + 1)),
        (hca_cap::LOG_MAX_CQ, log(limits.max_cq + 1)),
        (hca_cap::LOG_MAX_EQ_SZ, 22),
        (hca_cap::LOG_MAX_EQ, 7),
        (hca_cap::MAX_NUM_EQS, INTERRUPTS as u32),
        (hca_cap::LOG_MAX_MKEY, log(limits.max_mr)),
        (hca_cap::MAX_INDIRECTION, 4),
        (hca_cap::FIXED_BUFFER_SIZE, 1),
        (hca_cap::LOG_MAX_MRW_SZ, 40),
        (hca_cap::LOG_MAX_BSF_LIST_SIZE, 6),
        (hca_cap::LOG_MAX_KLM_LIST_SIZE, 16),
        (hca_cap::LOG_MAX_RA_REQ_QP, log(MAX_RD_ATOMIC.into())),
        (hca_cap::LOG_MAX_RA_RES_QP, log(MAX_RD_ATOMIC.into())),
        (hca_cap::CC_QUERY_ALLOWED, 0),
        (hca_cap::CC_MODIFY_ALLOWED, 0),
        // Codes, not numbers: 8 GIDs, 128 keys.
        (hca_cap::GID_TABLE_SIZE, log(GID_TABLE / 8)),
        (hca_cap::PKEY_TABLE_SIZE, 0),
        (hca_cap::MAX_QP_CNT, 1),
        (hca_cap::IB_VIRT, 1),
        (hca_cap::VPORT_COUNTERS, 1),
        (hca_cap::LOCAL_CA_ACK_DELAY, 16),
        // InfiniBand.
        (hca_cap::PORT_TYPE, 0),
        (hca_cap::NUM_PORTS, 1),
        (hca_cap::LOG_MAX_MSG, 30),
        (hca_cap::STAT_RATE_SUPPORT, 0),
        (hca_cap::CQE_VERSION, 1),
        (hca_cap::UMR_MODIFY_ENTITY_SIZE_DISABLED, 0),
        (hca_cap::UMR_MODIFY_ATOMIC_DISABLED, 0),
        (hca_cap::UMR_INDIRECT_MKEY_DISABLED, 1),
        (hca_cap::WQ_SIGNATURE, 1),
        (hca_cap::SCTR_DATA_CQE, 1),
        (hca_cap::ATOMIC, limits.has_atomics.into()),
        (hca_cap::CQ_OI, 1),
        (hca_cap::CQ_RESIZE, limits.resizes_cqs.into()),
        (hca_cap::CQ_MODERATION, 1),
        (hca_cap::BLOCK_LB_MC, 0),
        (hca_cap::SCQE_BREAK_MODERATION, 0),
        (hca_cap::IMAICL, 1),
        (hca_cap::QKV, 0),
        (hca_cap::PKV, 0),
        (hca_cap::SET_DETH_SQPN, 0),
        (hca_cap::XRC, 1),
        (hca_cap::UD, 1),
        (hca_cap::UC, 1),
        (hca_cap::RC, 1),
        (hca_cap::LOG_PG_SZ, 12),
        (hca_cap::BF, 1),
        (hca_cap::LOG_BF_REG_SIZE, log(BF_REG_SIZE)),
        (hca_cap::MAX_WQE_SZ_SQ, MAX_SQ_DESC),
        (hca_cap::MAX_WQE_SZ_RQ, MAX_RQ_DESC),
        (hca_cap::MAX_QP_MCG, 0),
        (hca_cap::LOG_MAX_MCG, 0),
        (hca_cap::LOG_MAX_TRANSPORT_DOMAIN, 16),
        (hca_cap::LOG_MAX_PD, log(limits.max_pd)),
        (hca_cap::LOG_MAX_XRCD, 16),
        (hca_cap::LOG_MAX_RMP, log(limits.max_srq + 1)),
        (hca_cap::LOG_MAX_RQ, 0),
        (hca_cap::LOG_MAX_SQ, log(limits.max_qp + 1)),
        (hca_cap::LOG_UAR_PAGE_SZ, 0),
        (hca_cap::DEVICE_FREQUENCY_KHZ, CLOCK_KHZ as u32),
        (hca_cap::LOG_MAX_WQ_SZ, 15),
        (hca_cap::CQE_128_ALWAYS, 0),
    ]
}

//! Registers of the port, and what the device says of itself.

use super::{Function, Outcome, Status};
use crate::bits::{Field, part, part_mut};
use crate::layout::{access_register_in, pmtu_reg, ptys_reg, pvlc_reg, query_issi_out};

/// Offset of a register in its command.
const REGISTER: usize = 16;
/// The vendor, as the IEEE numbers it.
const MELLANOX: u64 = 0x0002c9;
/// Numbers of registers.
const PMTU: u64 = 0x5003;
const PTYS: u64 = 0x5004;
const PVLC: u64 = 0x500f;
const NODE_DESCRIPTION: u64 = 0x6001;
const HOST_ENDIANNESS: u64 = 0x7004;

/// 4 lanes of 25 Gb/s (EDR), as `ibv_query_port` reports of this device.
const WIDTH_4X: u64 = 4;
const SPEED_EDR: u64 = 0x20;
const INFINIBAND: u64 = 1;
const MTU: u64 = 4096;
/// Virtual lanes 0 to 3.
const FOUR_LANES: u64 = 4;

pub(super) fn query_issi(_: &mut Function, _: &[u8], output: &mut [u8]) -> Outcome {
    // Versions 0 and 1 of the interface.
    query_issi_out::SUPPORTED_ISSI_DW0.set(output, 0b11);
    Ok(())
}

pub(super) fn query_adapter(_: &mut Function, _: &[u8], output: &mut [u8]) -> Outcome {
    const VENDOR: Field = Field::new(0x148, 24);
    VENDOR.set(output, MELLANOX);
    /// Identity of the board, behind the vendor's data.
    const BOARD: usize = 256;
    for (to, from) in part_mut(output, BOARD).iter_mut().zip(b"EMU0000000001") {
        *to = *from;
    }
    Ok(())
}

/// Reads or writes a register. What is written has no effect.
pub(super) fn access(_: &mut Function, input: &[u8], output: &mut [u8]) -> Outcome {
    let register = access_register_in::REGISTER_ID.get(input);
    // What selects the part of the register comes back.
    for (to, from) in part_mut(output, REGISTER)
        .iter_mut()
        .zip(part(input, REGISTER))
    {
        *to = *from;
    }
    let values: &[(Field, u64)] = match register {
        PTYS => &[
            (ptys_reg::IB_LINK_WIDTH_CAPABILITY, WIDTH_4X),
            (ptys_reg::IB_PROTO_CAPABILITY, SPEED_EDR),
            (ptys_reg::IB_LINK_WIDTH_ADMIN, WIDTH_4X),
            (ptys_reg::IB_PROTO_ADMIN, SPEED_EDR),
            (ptys_reg::IB_LINK_WIDTH_OPER, WIDTH_4X),
            (ptys_reg::IB_PROTO_OPER, SPEED_EDR),
            (ptys_reg::PROTO_MASK, INFINIBAND),
        ],
        PMTU => &[
            (pmtu_reg::MAX_MTU, MTU),
            (pmtu_reg::ADMIN_MTU, MTU),
            (pmtu_reg::OPER_MTU, MTU),
        ],
        PVLC => &[
            (pvlc_reg::VL_HW_CAP, FOUR_LANES),
            (pvlc_reg::VL_ADMIN, FOUR_LANES),
            (pvlc_reg::VL_OPERATIONAL, FOUR_LANES),
        ],
        NODE_DESCRIPTION | HOST_ENDIANNESS => &[],
        _ => return Err(Status::BadParameter),
    };
    for (field, value) in values {
        field.set(part_mut(output, REGISTER), *value);
    }
    Ok(())
}

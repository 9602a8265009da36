//! Stores to a doorbell page as text.

use super::{TextError, be16, be32, names, send_wqe};

const LEN: usize = 8;
/// `MLX5_CQ_DB_REQ_NOT_SOL`: the command bit of "solicited only".
const SOLICITED_ONLY: u32 = 1 << 24;

/// Decodes an 8-byte doorbell, as a send doorbell and as a CQ arm where both are
/// possible, or a BlueFlame copy of a WQE.
///
/// # Errors
/// Returns an error for another length, or bytes that are none of these.
pub fn doorbell(bytes: &[u8]) -> Result<String, TextError> {
    match bytes.len() {
        LEN => match (send_doorbell(bytes), arm_doorbell(bytes)) {
            (Ok(send), Ok(arm)) => Ok(format!("{send}  or, if stored at 0x20:\n{arm}")),
            (Ok(text), Err(_)) | (Err(_), Ok(text)) => Ok(text),
            (Err(error), Err(_)) => Err(error),
        },
        given if given > LEN && given.is_multiple_of(64) => {
            Ok(format!("  BlueFlame copy of\n{}", send_wqe(bytes)?))
        }
        given => {
            let expected = "8, or a multiple of 64 for a BlueFlame copy";
            Err(TextError::WrongLength {
                what: "a doorbell",
                expected,
                given,
            })
        }
    }
}

/// Decodes the first 8 bytes of a control segment, stored to a BlueFlame register.
///
/// # Errors
/// Returns an error for another length, or bytes that start no control segment.
pub fn send_doorbell(bytes: &[u8]) -> Result<String, TextError> {
    exactly_eight(bytes)?;
    let opcode = bytes[3];
    let name = names::wqe_opcode(opcode).ok_or(TextError::UnknownOpcode { at: 0, opcode })?;
    let units = usize::from(bytes[7] & 0x3f);
    if units == 0 {
        return Err(TextError::NoUnits { at: 0, units });
    }
    Ok(format!(
        "  send    QPN {:#08x}, last WQE {name} (opcode {opcode:#04x}) at index {}, {units} units\n",
        be32(bytes, 4) >> 8,
        be16(bytes, 1)
    ))
}

/// Decodes a CQ arm, stored at offset 0x20.
///
/// # Errors
/// Returns an error for another length, or bytes with undefined bits set.
pub fn arm_doorbell(bytes: &[u8]) -> Result<String, TextError> {
    exactly_eight(bytes)?;
    let (command, cqn) = (be32(bytes, 0), be32(bytes, 4));
    if command & !(0x3000_0000 | SOLICITED_ONLY | 0xff_ffff) != 0 || cqn == 0 || cqn >> 24 != 0 {
        return Err(TextError::NotAnArm { command, cqn });
    }
    Ok(format!(
        "  arm     CQN {cqn:#08x} for {}, sequence {}, consumer index {}\n",
        if command & SOLICITED_ONLY == 0 {
            "any completion"
        } else {
            "solicited completions"
        },
        command >> 28,
        command & 0xff_ffff
    ))
}

fn exactly_eight(bytes: &[u8]) -> Result<(), TextError> {
    if bytes.len() == LEN {
        return Ok(());
    }
    Err(TextError::WrongLength {
        what: "a doorbell",
        expected: "8",
        given: bytes.len(),
    })
}

//! WQEs, CQEs and doorbells as text, with one line per segment.
//!
//! Used by `mlx5-emu dump` for any bytes, and by the trace for what the NIC reads and
//! writes. Decoding is tolerant: bytes that a NIC would refuse are shown with what is
//! wrong, and only bytes that cannot be decoded at all are an error.
//!
//! Formats: `mlx5dv.h` (`mlx5_wqe_ctrl_seg` and the other segments, `mlx5_cqe64`,
//! `mlx5_err_cqe`) and PRM "Work queue elements", "Completion queue element".

mod cqe;
mod doorbell;
mod dump;
mod input;
mod names;
mod trace;
mod umr;
mod wqe;

#[cfg(test)]
mod tests;

pub use cqe::cqe;
pub use doorbell::{arm_doorbell, doorbell, send_doorbell};
pub use dump::{Kind, dump};
pub use input::{HexError, InputError, bytes_of_argument, bytes_of_hex};
pub use trace::TraceWriter;
pub use wqe::{Form, datagram_wqe, receive_wqe, send_wqe, send_wqes, shared_receive_wqe};

/// An error for bytes that cannot be decoded in the given format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// There are too few bytes.
    #[error("{what} has {needed} bytes, only {given} given")]
    TooShort {
        /// The format.
        what: &'static str,
        /// Its length in bytes.
        needed: usize,
        /// The number of bytes given.
        given: usize,
    },
    /// The length is not one of the format's.
    #[error("{what}: {given} bytes given, expected {expected}")]
    WrongLength {
        /// The format.
        what: &'static str,
        /// The accepted lengths.
        expected: &'static str,
        /// The number of bytes given.
        given: usize,
    },
    /// The control segment has a length below one unit.
    #[error(
        "not a send WQE: the control segment at byte {at} counts {units} units of 16 bytes, \
         expected at least 1"
    )]
    NoUnits {
        /// Offset of the control segment.
        at: usize,
        /// The value of its `ds` field.
        units: usize,
    },
    /// The opcode is not one of a send WQE.
    #[error("not a send WQE: opcode {opcode:#04x} at byte {at} is not in mlx5dv.h")]
    UnknownOpcode {
        /// Offset of the control segment.
        at: usize,
        /// The opcode.
        opcode: u8,
    },
    /// The bytes are not a CQ arm.
    #[error("not a CQ arm: command word {command:#010x}, CQ number {cqn:#010x}")]
    NotAnArm {
        /// Sequence number, command and consumer index.
        command: u32,
        /// The CQ number.
        cqn: u32,
    },
    /// The opcode is not one of a CQE.
    #[error("not a CQE: opcode {opcode:#03x} in its last byte is not in mlx5dv.h")]
    UnknownCqe {
        /// The upper four bits of the last byte.
        opcode: u8,
    },
}

/// Reads a big-endian field.
fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Reads a big-endian field.
fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Reads a big-endian field.
fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}

/// Formats payload as hex and as ASCII; cuts long payload.
fn payload(bytes: &[u8]) -> String {
    const SHOWN: usize = 32;
    let shown = &bytes[..bytes.len().min(SHOWN)];
    let hex: Vec<String> = shown.iter().map(|byte| format!("{byte:02x}")).collect();
    let letter = |&byte: &u8| {
        if byte == b' ' || byte.is_ascii_graphic() {
            byte
        } else {
            b'.'
        }
    };
    let letters: String = shown.iter().map(|byte| char::from(letter(byte))).collect();
    let cut = if bytes.len() > SHOWN { " …" } else { "" };
    format!("{}{cut} |{letters}|", hex.join(" "))
}

//! WQEs, CQEs and doorbells as text: one line per segment.
//!
//! Called by `mlx5-emu dump` with bytes from anywhere, and by the trace option
//! with what the NIC reads and writes. It reads tolerantly: bytes that a NIC
//! would refuse are shown with what is wrong, and only what cannot be read at
//! all is an error.
//!
//! Formats: `mlx5dv.h` (`mlx5_wqe_ctrl_seg` and its companions, `mlx5_cqe64`,
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

/// Bytes that cannot be read as what they were said to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// Fewer bytes than the thing has.
    #[error("{what} has {needed} bytes, only {given} given")]
    TooShort {
        /// What was asked for.
        what: &'static str,
        /// Its length in bytes.
        needed: usize,
        /// What there is.
        given: usize,
    },
    /// A length that the thing never has.
    #[error("{what}: {given} bytes given, expected {expected}")]
    WrongLength {
        /// What was asked for.
        what: &'static str,
        /// Lengths that would do.
        expected: &'static str,
        /// What there is.
        given: usize,
    },
    /// The control segment says that the WQE has no control segment.
    #[error(
        "not a send WQE: the control segment at byte {at} counts {units} units of 16 bytes, \
         of which it is one itself"
    )]
    NoUnits {
        /// Where the control segment is.
        at: usize,
        /// What its `ds` field says.
        units: usize,
    },
    /// No opcode of a WQE.
    #[error("not a send WQE: opcode {opcode:#04x} at byte {at} is none of mlx5dv.h's")]
    UnknownOpcode {
        /// Where the control segment is.
        at: usize,
        /// What it says.
        opcode: u8,
    },
    /// No request for a completion event.
    #[error("not a CQ arm: command word {command:#010x}, CQ number {cqn:#010x}")]
    NotAnArm {
        /// Sequence number, command and consumer index.
        command: u32,
        /// The number.
        cqn: u32,
    },
    /// No opcode of a CQE.
    #[error("not a CQE: opcode {opcode:#03x} in its last byte is none of mlx5dv.h's")]
    UnknownCqe {
        /// The upper four bits of the last byte.
        opcode: u8,
    },
}

/// A big-endian field.
fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// A big-endian field.
fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// A big-endian field.
fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}

/// Payload as hex and, where printable, as letters; long payload is cut.
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

//! CQEs as text.

use super::{TextError, be16, be32, be64, names, payload};

const CQE: usize = 64;

/// Decodes a CQE of 64 bytes, or of 128, whose second half is the completion and whose
/// first half may contain data.
///
/// # Errors
/// Returns an error for another length or an unknown opcode.
pub fn cqe(bytes: &[u8]) -> Result<String, TextError> {
    let (extra, cqe) = match bytes.len() {
        64 => (&bytes[..0], bytes),
        128 => bytes.split_at(CQE),
        given => {
            return Err(TextError::WrongLength {
                what: "a CQE",
                expected: "64 or 128",
                given,
            });
        }
    };
    let op_own = cqe[63];
    let opcode = op_own >> 4;
    let name = names::cqe_opcode(opcode).ok_or(TextError::UnknownCqe { opcode })?;
    let mut text = format!(
        "  {name} (opcode {opcode:#03x}), QPN {:#08x}, WQE counter {}, owner {}{}\n",
        be32(cqe, 56) & 0xff_ffff,
        be16(cqe, 60),
        op_own & 1,
        if op_own & 2 == 0 { "" } else { ", solicited" },
    );
    match opcode {
        13 | 14 => text.push_str(&error(cqe)),
        5 => text.push_str("  the CQ continues in another ring\n"),
        15 => text.push_str("  not written by the device yet\n"),
        _ => text.push_str(&success(opcode, extra, cqe)),
    }
    Ok(text)
}

fn success(opcode: u8, extra: &[u8], cqe: &[u8]) -> String {
    let bytes = be32(cqe, 44);
    let mut text = format!(
        "  {bytes} bytes, SRQ number or user index {:#08x}",
        be32(cqe, 32)
    );
    match opcode {
        0 => {
            let sent = cqe[56];
            let name = names::wqe_opcode(sent).unwrap_or("unknown");
            text.push_str(&format!(", of {name} (opcode {sent:#04x})"));
        }
        1 | 3 => text.push_str(&format!(", immediate {:#010x}", be32(cqe, 36))),
        4 => text.push_str(&format!(", invalidated rkey {:#010x}", be32(cqe, 36))),
        _ => {}
    }
    if be64(cqe, 48) != 0 {
        text.push_str(&format!(", timestamp {}", be64(cqe, 48)));
    }
    text.push('\n');
    let capacity = match cqe[63] >> 2 & 3 {
        0 => return text,
        1 => &cqe[..32],
        2 if !extra.is_empty() => extra,
        2 => {
            text.push_str("  data of up to 64 bytes, which only a 128-byte CQE can contain\n");
            return text;
        }
        _ => {
            text.push_str("  compressed: a block of mini CQEs follows\n");
            return text;
        }
    };
    let len = bytes as usize;
    match capacity.get(..len) {
        Some(data) => text.push_str(&format!("  data in the CQE: {}\n", payload(data))),
        None => {
            let holds = capacity.len();
            text.push_str(&format!(
                "  data in the CQE: {len} bytes, but the CQE has room for {holds}\n"
            ));
        }
    }
    text
}

fn error(cqe: &[u8]) -> String {
    let (vendor, syndrome) = (cqe[54], cqe[55]);
    let sent = cqe[56];
    let of = match names::wqe_opcode(sent) {
        Some(name) if cqe[63] >> 4 == 13 => format!(", of {name} (opcode {sent:#04x})"),
        _ => String::new(),
    };
    format!(
        "  {} (syndrome {syndrome:#04x}), vendor syndrome {vendor:#04x}, SRQ number or user index {:#08x}{of}\n",
        names::syndrome(syndrome),
        be32(cqe, 32),
    )
}

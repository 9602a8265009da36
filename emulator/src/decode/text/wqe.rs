//! WQEs of send queues, receive queues and SRQs as text.

use super::{TextError, be16, be32, be64, names, payload, umr};
use crate::decode::address::AddressVector;

/// The unit of a WQE's length (`ds`) in bytes.
const UNIT: usize = 16;
/// The unit of a send ring in bytes.
const WQEBB: usize = 64;
/// The key of the segment that ends a receive WQE (`MLX5_INVALID_LKEY`).
const NO_KEY: u32 = 0x100;
/// `byte_count` bit of inline data (`MLX5_INLINE_SEG`).
const INLINE: u32 = 1 << 31;

/// Decodes the send WQE that starts with the first byte. Later bytes are ignored.
///
/// # Errors
/// Returns an error if there are too few bytes or no control segment.
pub fn send_wqe(bytes: &[u8]) -> Result<String, TextError> {
    one_send_wqe(bytes, 0, Form::Connected).map(|(text, _)| text)
}

/// Decodes a send WQE of a UD QP, otherwise the same as [`send_wqe`].
///
/// # Errors
/// The same as for [`send_wqe`].
pub fn datagram_wqe(bytes: &[u8]) -> Result<String, TextError> {
    one_send_wqe(bytes, 0, Form::Datagram).map(|(text, _)| text)
}

/// The layout of a send WQE after its control segment, which cannot be derived from its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// RC and UC QPs: segments that depend on the opcode.
    Connected,
    /// UD QPs: an address vector first.
    Datagram,
}

/// Decodes send WQEs as in a ring, each at a multiple of 64 bytes. WQEBBs of zeros are
/// skipped.
///
/// # Errors
/// The same as for [`send_wqe`], for the first WQE that cannot be decoded.
pub fn send_wqes(bytes: &[u8], form: Form) -> Result<String, TextError> {
    let mut text = String::new();
    let mut at = 0;
    while at < bytes.len() {
        let block = &bytes[at..bytes.len().min(at + WQEBB)];
        if at > 0 && block.iter().all(|&byte| byte == 0) {
            at += WQEBB;
            continue;
        }
        let (one, len) = one_send_wqe(bytes, at, form)?;
        text.push_str(&one);
        at += len.next_multiple_of(WQEBB);
    }
    if text.is_empty() {
        return Err(TextError::TooShort {
            what: "a control segment",
            needed: UNIT,
            given: 0,
        });
    }
    Ok(text)
}

/// Decodes the WQE at byte `at`. Returns its text and its length in bytes.
fn one_send_wqe(bytes: &[u8], at: usize, form: Form) -> Result<(String, usize), TextError> {
    let given = bytes.len() - at;
    let wqe = &bytes[at..];
    if given < UNIT {
        return Err(TextError::TooShort {
            what: "a control segment",
            needed: UNIT,
            given,
        });
    }
    let opcode = wqe[3];
    let name = names::wqe_opcode(opcode).ok_or(TextError::UnknownOpcode { at, opcode })?;
    let units = usize::from(wqe[7] & 0x3f);
    if units == 0 {
        return Err(TextError::NoUnits { at, units });
    }
    let len = units * UNIT;
    let wqe = wqe.get(..len).ok_or(TextError::TooShort {
        what: "this WQE",
        needed: len,
        given,
    })?;

    let mut lines = Lines::default();
    lines.add("ctrl", &control(wqe, name));
    let mut rest = &wqe[UNIT..];
    for take in prologue(opcode, form) {
        rest = take(rest, &mut lines);
    }
    scatter_gather(rest, &mut lines);
    Ok((lines.0, len))
}

/// Decodes a receive WQE with as many segments as there are bytes.
///
/// # Errors
/// Returns an error if the length is not a multiple of 16.
pub fn receive_wqe(bytes: &[u8]) -> Result<String, TextError> {
    whole_units("a receive WQE", bytes)?;
    let mut lines = Lines::default();
    scatter_gather(bytes, &mut lines);
    Ok(lines.0)
}

/// Decodes an SRQ WQE: the link to the next one, then data segments.
///
/// # Errors
/// Returns an error if the length is not a multiple of 16.
pub fn shared_receive_wqe(bytes: &[u8]) -> Result<String, TextError> {
    whole_units("an SRQ WQE", bytes)?;
    let mut lines = Lines::default();
    lines.add("next", &format!("WQE {}", be16(bytes, 2)));
    scatter_gather(&bytes[UNIT..], &mut lines);
    Ok(lines.0)
}

fn whole_units(what: &'static str, bytes: &[u8]) -> Result<(), TextError> {
    if bytes.is_empty() || !bytes.len().is_multiple_of(UNIT) {
        let expected = "a multiple of 16";
        return Err(TextError::WrongLength {
            what,
            expected,
            given: bytes.len(),
        });
    }
    Ok(())
}

/// Lines of the form `  name   fields`.
#[derive(Default)]
pub(super) struct Lines(String);

impl Lines {
    pub(super) fn add(&mut self, segment: &str, fields: &str) {
        self.0.push_str(&format!("  {segment:<7} {fields}\n"));
    }
}

fn control(wqe: &[u8], name: &str) -> String {
    let flags = wqe[11];
    let mut text = format!(
        "{name} (opcode {:#04x}), index {}, QPN {:#08x}, {} units",
        wqe[3],
        be16(wqe, 1),
        be32(wqe, 4) >> 8,
        wqe[7] & 0x3f,
    );
    if wqe[0] != 0 {
        text.push_str(&format!(", opmod {:#04x}", wqe[0]));
    }
    text.push_str(match flags >> 2 & 3 {
        0 => ", CQE on error only",
        2 => ", signalled",
        _ => ", CQE mode reserved",
    });
    if flags & 2 != 0 {
        text.push_str(", solicited");
    }
    text.push_str(match flags >> 5 {
        0 => "",
        1 => ", small fence",
        2 | 4 => ", fence",
        3 => ", strong fence",
        _ => ", reserved fence mode",
    });
    match wqe[3] {
        0x09 | 0x0b => text.push_str(&format!(", immediate {:#010x}", be32(wqe, 12))),
        0x01 => text.push_str(&format!(", invalidates rkey {:#010x}", be32(wqe, 12))),
        0x25 => text.push_str(&format!(", mkey {:#010x}", be32(wqe, 12))),
        _ if be32(wqe, 12) != 0 => text.push_str(&format!(", imm field {:#010x}", be32(wqe, 12))),
        _ => {}
    }
    if wqe[8] != 0 {
        text.push_str(&format!(", signature {:#04x}", wqe[8]));
    }
    text
}

type Take = for<'a> fn(&'a [u8], &mut Lines) -> &'a [u8];

/// Returns the decoders of the segments between control segment and data, by opcode.
fn prologue(opcode: u8, form: Form) -> &'static [Take] {
    match opcode {
        0x01.. if form == Form::Datagram => &[address],
        0x08 | 0x09 | 0x10 => &[remote_address],
        0x11 | 0x12 => &[remote_address, atomic],
        0x25 => &[umr::control, umr::context, umr::translations],
        _ => &[],
    }
}

/// Returns the next segment. If the WQE ends inside it, adds a line that reports it.
pub(super) fn segment<'a>(
    rest: &'a [u8],
    len: usize,
    name: &str,
    lines: &mut Lines,
) -> Option<&'a [u8]> {
    let segment = rest.get(..len);
    if segment.is_none() {
        lines.add(
            name,
            &format!("missing: {len} bytes expected, {} left", rest.len()),
        );
    }
    segment
}

fn remote_address<'a>(rest: &'a [u8], lines: &mut Lines) -> &'a [u8] {
    let Some(seg) = segment(rest, UNIT, "raddr", lines) else {
        return &[];
    };
    lines.add(
        "raddr",
        &format!(
            "address {:#018x}, rkey {:#010x}",
            be64(seg, 0),
            be32(seg, 8)
        ),
    );
    &rest[UNIT..]
}

fn address<'a>(rest: &'a [u8], lines: &mut Lines) -> &'a [u8] {
    let Some((to, len)) = AddressVector::parse(rest) else {
        lines.add(
            "av",
            &format!("missing: 16 or 48 bytes expected, {} left", rest.len()),
        );
        return &[];
    };
    let mut text = format!(
        "QPN {:#08x}, Q_Key {:#010x}, LID {:#06x}, rate and SL {:#04x}",
        to.qpn, to.qkey, to.lid, to.rate_and_level
    );
    if to.has_grh || to.gid != [0; 16] {
        text.push_str(&format!(
            ", {}GID {}, source GID {}, flow {:#07x}, class {:#04x}, {} hops",
            if to.has_grh { "GRH, " } else { "" },
            std::net::Ipv6Addr::from(to.gid),
            to.source_gid,
            to.flow_label,
            to.traffic_class,
            to.hop_limit
        ));
    }
    if to.mac != [0; 6] {
        let bytes: Vec<String> = to.mac.iter().map(|byte| format!("{byte:02x}")).collect();
        text.push_str(&format!(", MAC {}", bytes.join(":")));
    }
    lines.add("av", &text);
    &rest[len..]
}

fn atomic<'a>(rest: &'a [u8], lines: &mut Lines) -> &'a [u8] {
    let Some(seg) = segment(rest, UNIT, "atomic", lines) else {
        return &[];
    };
    let text = format!(
        "swap or add {:#018x}, compare {:#018x}",
        be64(seg, 0),
        be64(seg, 8)
    );
    lines.add("atomic", &text);
    &rest[UNIT..]
}

/// Decodes data segments and inline data up to the end.
fn scatter_gather(mut rest: &[u8], lines: &mut Lines) {
    while !rest.is_empty() {
        let Some(seg) = segment(rest, UNIT, "data", lines) else {
            return;
        };
        let count = be32(seg, 0);
        if count & INLINE != 0 {
            let len = (count & !INLINE) as usize;
            match rest.get(4..4 + len) {
                Some(data) => lines.add("inline", &format!("{len} bytes: {}", payload(data))),
                None => {
                    let text = format!("missing: {len} bytes expected, {} left", rest.len() - 4);
                    lines.add("inline", &text);
                }
            }
            rest = &rest[(4 + len).next_multiple_of(UNIT).min(rest.len())..];
            continue;
        }
        let (key, address) = (be32(seg, 4), be64(seg, 8));
        if count == 0 && key == NO_KEY && address == 0 {
            lines.add("end", "no segments after this");
            return;
        }
        // A count of 0 means 2^31 (PRM "Data segment pointer").
        let count = if count == 0 { INLINE } else { count };
        let text = format!("address {address:#018x}, lkey {key:#010x}, {count} bytes");
        lines.add("data", &text);
        rest = &rest[UNIT..];
    }
}

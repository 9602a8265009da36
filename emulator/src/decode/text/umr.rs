//! The segments of a UMR WQE as text.

use super::wqe::{Lines, segment};
use super::{be16, be32, be64};
use crate::decode::umr::{CONTEXT, CONTROL, FREE, KLM, Klm, MkeyAccess, MkeyMask, NO_QP, UmrFlags};

/// Returns the names of the bits that are set, or `none`.
fn list(bits: u64, table: &[(u64, &str)], none: &str) -> String {
    let names: Vec<&str> = table
        .iter()
        .filter(|(bit, _)| bits & bit != 0)
        .map(|(_, name)| *name)
        .collect();
    if names.is_empty() {
        none.into()
    } else {
        names.join(", ")
    }
}

pub(super) fn control<'a>(rest: &'a [u8], lines: &mut Lines) -> &'a [u8] {
    let Some(seg) = segment(rest, CONTROL, "umr", lines) else {
        return &[];
    };
    let how = list(
        seg[0].into(),
        &[
            (UmrFlags::INLINE.bits().into(), "inline"),
            (UmrFlags::CHECK_FREE.bits().into(), "must be free"),
            (UmrFlags::CHECK_QPN.bits().into(), "must be this QP's"),
        ],
        "no checks",
    );
    let what = list(
        be64(seg, 8),
        &[
            (MkeyMask::FREE.bits(), "state"),
            (MkeyMask::KEY.bits(), "key byte"),
            (MkeyMask::QPN.bits(), "QPN"),
            (MkeyMask::START.bits(), "address"),
            (MkeyMask::LENGTH.bits(), "length"),
            (MkeyMask::LOCAL_WRITE.bits(), "local write"),
            (MkeyMask::REMOTE_READ.bits(), "remote read"),
            (MkeyMask::REMOTE_WRITE.bits(), "remote write"),
            (MkeyMask::ATOMIC.bits(), "atomics"),
        ],
        "nothing",
    );
    let text = format!(
        "flags {:#04x} ({how}), {} octowords of translations from {}, mask {:#018x} (changes {what})",
        seg[0],
        be16(seg, 4),
        be16(seg, 6),
        be64(seg, 8)
    );
    lines.add("umr", &text);
    &rest[CONTROL..]
}

pub(super) fn context<'a>(rest: &'a [u8], lines: &mut Lines) -> &'a [u8] {
    let Some(seg) = segment(rest, CONTEXT, "mkey", lines) else {
        return &[];
    };
    let (qpn, key) = (be32(seg, 4) >> 8, seg[7]);
    let owner = if qpn == NO_QP {
        "of no QP".into()
    } else {
        format!("QPN {qpn:#08x}")
    };
    // The other fields of a free key contain whatever was in the ring before.
    let text = if seg[0] & FREE != 0 {
        format!("free, {owner}, key byte {key:#04x}")
    } else {
        let rights = list(
            seg[2].into(),
            &[
                (MkeyAccess::LOCAL_READ.bits().into(), "local read"),
                (MkeyAccess::LOCAL_WRITE.bits().into(), "local write"),
                (MkeyAccess::REMOTE_READ.bits().into(), "remote read"),
                (MkeyAccess::REMOTE_WRITE.bits().into(), "remote write"),
                (MkeyAccess::ATOMIC.bits().into(), "atomics"),
            ],
            "no rights",
        );
        format!(
            "{owner}, key byte {key:#04x}, {rights}, address {:#018x}, {} bytes",
            be64(seg, 16),
            be64(seg, 24)
        )
    };
    lines.add("mkey", &text);
    &rest[CONTEXT..]
}

/// Decodes the translation entries; the padding after them is not shown.
pub(super) fn translations<'a>(rest: &'a [u8], lines: &mut Lines) -> &'a [u8] {
    for bytes in rest.as_chunks::<KLM>().0 {
        if *bytes != [0; KLM] {
            let Klm {
                length,
                key,
                address,
            } = Klm::parse(bytes);
            let text = format!("address {address:#018x}, lkey {key:#010x}, {length} bytes");
            lines.add("klm", &text);
        }
    }
    &[]
}

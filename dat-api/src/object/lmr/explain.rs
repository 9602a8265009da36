//! Why a segment was refused, in words.

use super::{Lmr, table};
use crate::handle::{self, Handle};
use crate::status::ReturnType;
use crate::types::{LmrSegment, MemPrivileges};

/// Returns what is wrong with a segment that is not empty, for use in a zone with all privileges of
/// `need`: the type of the code, and the cause. `zone` is its number, its handle, and what it is the
/// zone of. The order is that of the lookup. `None` if nothing is wrong now.
pub(crate) fn why_refused(
    segment: &LmrSegment,
    (zone, pz, owner): (u32, Option<Handle>, &str),
    need: MemPrivileges,
) -> Option<(ReturnType, String)> {
    let LmrSegment {
        context,
        address,
        length,
    } = *segment;
    let Some((_, _, lmr)) = table::snapshot(context) else {
        return Some((
            ReturnType::PrivilegesViolation,
            format!(
                "no LMR has the context {context:#x}: it was freed, or the context is not the \
                 lmr_context of a dat_lmr_create; pass that of registered memory"
            ),
        ));
    };
    if lmr.pz != zone {
        let its = Handle::from_bits(lmr.handle)
            .and_then(handle::pin::<Lmr>)
            .map(|lmr| lmr.pz().handle());
        return Some((
            ReturnType::ProtectionViolation,
            format!(
                "the LMR with the context {context:#x} is in PZ {}, but the {owner} in PZ {}: \
                 create both in one protection zone",
                bits(its),
                bits(pz)
            ),
        ));
    }
    let lacks = need.difference(lmr.privileges);
    if !lacks.is_empty() {
        return Some((
            ReturnType::PrivilegesViolation,
            format!(
                "the LMR with the context {context:#x} has the privileges {:#x}, without {}: \
                 register the memory with it",
                lmr.privileges.bits(),
                names(lacks)
            ),
        ));
    }
    let offset = address.wrapping_sub(lmr.address);
    (offset > lmr.length || length > lmr.length - offset).then(|| {
        (
            ReturnType::InvalidParameter,
            format!(
                "{length} bytes at {address:#x} are not all inside the LMR with the context \
                 {context:#x}, {} bytes at {:#x}: stay inside it, or register more",
                lmr.length, lmr.address
            ),
        )
    })
}

/// Returns the names of privileges in the header.
pub(crate) fn names(privileges: MemPrivileges) -> String {
    let names: Vec<_> = privileges
        .iter_names()
        .map(|(name, _)| format!("DAT_MEM_PRIV_{name}_FLAG"))
        .collect();
    names.join(" | ")
}

fn bits(handle: Option<Handle>) -> String {
    handle.map_or("null".into(), |handle| format!("{:#x}", handle.bits()))
}

#[cfg(test)]
mod tests {
    use super::super::table::{Contents, Entry};
    use super::*;

    #[test]
    fn r10_r11_r12_causes_name_the_values_and_come_in_the_order_of_the_lookup() {
        let entry = Entry::new(&Contents {
            address: 0x1000,
            length: 100,
            key: 5,
            pz: 7,
            privileges: MemPrivileges::LOCAL_READ,
            handle: 0,
        })
        .expect("a row");
        let context = entry.context();
        let why = |context, length, zone, need| {
            let segment = LmrSegment {
                context,
                address: 0x1000,
                length,
            };
            why_refused(&segment, (zone, None, "endpoint"), need)
        };
        let (read, write) = (MemPrivileges::LOCAL_READ, MemPrivileges::LOCAL_WRITE);
        assert_eq!(why(context, 100, 7, read), None);
        for (found, kind, text) in [
            (
                why(context, 101, 7, read),
                ReturnType::InvalidParameter,
                "101 bytes at 0x1000 are not all inside",
            ),
            (
                why(context, 101, 7, write),
                ReturnType::PrivilegesViolation,
                "without DAT_MEM_PRIV_LOCAL_WRITE_FLAG",
            ),
            (
                why(context, 101, 8, write),
                ReturnType::ProtectionViolation,
                "create both in one protection zone",
            ),
            (
                why(context ^ 1, 101, 8, write),
                ReturnType::PrivilegesViolation,
                "no LMR has the context",
            ),
        ] {
            let (actual, cause) = found.expect(text);
            assert_eq!(actual, kind, "{cause}");
            assert!(cause.contains(text), "{cause}");
        }
    }
}

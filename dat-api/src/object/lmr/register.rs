//! Registering memory with the device.

use dat_engine::{Access, ControlError, ControlErrorKind, MemoryRegion, Transport};

use crate::error::{DatError, Result};
use crate::object::pz::Pz;
use crate::status::{ReturnType, Subtype};
use crate::types::MemPrivileges;

/// Registers with the device; also returns whether windows can be bound.
///
/// # Safety
/// As [`Lmr::create`].
pub(super) unsafe fn register(
    pz: &Pz,
    address: usize,
    length: u64,
    privileges: MemPrivileges,
) -> Result<(MemoryRegion, bool)> {
    let bytes = usize::try_from(length).map_err(|_| too_long(length))?;
    let rules = pz.ia().rules();
    if length > rules.limits.max_lmr_block_size {
        return Err(too_long(length));
    }
    let start = core::ptr::with_exposed_provenance_mut(address);
    let access = access_of(privileges, rules.transport, rules.limits.atomics);
    if rules.limits.max_rmrs == 0 {
        // A driver without windows may refuse the flag.
        // SAFETY: the memory stays mapped until the LMR is freed.
        let region = unsafe { pz.domain().register(start, bytes, access) };
        return Ok((region.map_err(refused)?, false));
    }
    // SAFETY: the memory stays mapped until the LMR is freed.
    let first = unsafe {
        pz.domain()
            .register(start, bytes, access | Access::WINDOW_BIND)
    };
    match first {
        Ok(region) => Ok((region, true)),
        // The kernel requires memory under windows to be writable; memory that is only read need
        // not be.
        Err(_) if !access.contains(Access::LOCAL_WRITE) => {
            // SAFETY: the memory stays mapped until the LMR is freed.
            let second = unsafe { pz.domain().register(start, bytes, access) };
            Ok((second.map_err(refused)?, false))
        }
        Err(error) => Err(refused(error)),
    }
}

/// Returns the access that the device must allow for these privileges.
///
/// On iWARP the response to an RDMA read is written like a peer's write (RFC 5040, section 5.2), so
/// memory that reads may be posted to must allow remote writes. Peers do not get the key
/// ([`LmrInfo::rmr_context`] is 0), but the requests of reads carry it, so a peer that was read
/// from can write to that LMR until it is freed.
///
/// On a device without atomic operations the privilege for them is ignored: no peer has any.
fn access_of(privileges: MemPrivileges, transport: Transport, atomics: bool) -> Access {
    let local_write = match transport {
        Transport::Iwarp => Access::LOCAL_WRITE.union(Access::REMOTE_WRITE),
        _ => Access::LOCAL_WRITE,
    };
    let atomic = match atomics {
        // As for remote writes below.
        true => Access::REMOTE_ATOMIC.union(Access::LOCAL_WRITE),
        false => Access::empty(),
    };
    let pairs = [
        (MemPrivileges::REMOTE_ATOMIC, atomic),
        (MemPrivileges::LOCAL_WRITE, local_write),
        (MemPrivileges::REMOTE_READ, Access::REMOTE_READ),
        // Verbs grant remote writes only together with local writes; the table of LMRs refuses
        // local writes.
        (
            MemPrivileges::REMOTE_WRITE,
            Access::REMOTE_WRITE.union(Access::LOCAL_WRITE),
        ),
    ];
    pairs
        .into_iter()
        .filter(|&(privilege, _)| privileges.contains(privilege))
        .fold(Access::empty(), |all, (_, access)| all | access)
}

fn refused(error: ControlError) -> DatError {
    match error.kind() {
        // All other arguments have been checked, so the memory is invalid.
        ControlErrorKind::Invalid => DatError::new(
            ReturnType::InvalidParameter,
            Subtype::InvalidArg3,
            error.to_string(),
        ),
        _ => error.into(),
    }
}

fn too_long(length: u64) -> DatError {
    DatError::new(
        ReturnType::InvalidParameter,
        Subtype::InvalidArg4,
        format!(
            "{length} bytes are more than the device can register at once (max_lmr_block_size): \
             register several LMRs"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locally_written_memory_allows_remote_writes_only_on_iwarp() {
        let sink = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let local = MemPrivileges::LOCAL_WRITE;
        assert_eq!(access_of(local, Transport::Iwarp, false), sink);
        assert_eq!(access_of(local, Transport::Roce, true), Access::LOCAL_WRITE);
        assert_eq!(
            access_of(local, Transport::InfiniBand, true),
            Access::LOCAL_WRITE
        );
        for source in [
            MemPrivileges::LOCAL_READ,
            MemPrivileges::LOCAL_READ | MemPrivileges::REMOTE_READ,
        ] {
            let access = access_of(source, Transport::Iwarp, false);
            assert!(!access.intersects(sink), "{source:?}");
        }
    }

    #[test]
    fn peers_may_use_atomic_operations_where_the_device_has_them() {
        let atomic = MemPrivileges::REMOTE_ATOMIC;
        let expected = Access::REMOTE_ATOMIC | Access::LOCAL_WRITE;
        assert_eq!(access_of(atomic, Transport::Roce, true), expected);
        assert_eq!(access_of(atomic, Transport::Roce, false), Access::empty());
        let local = access_of(MemPrivileges::LOCAL_READ, Transport::Roce, true);
        assert_eq!(local, Access::empty());
    }
}

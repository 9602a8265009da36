//! Local memory regions.

use dat_api::handle::Pinned;
use dat_api::object::ia::Ia;
use dat_api::object::lmr::{self, Lmr, MemoryKind};
use dat_api::object::pz::Pz;
use dat_api::types::MemPrivileges;
use dat_api::{Kind, Result, Subtype};

use crate::abi::*;
use crate::face::call::{Named, call};
use crate::face::frame::{bad_argument, require, require_with};
use crate::face::handles::{bare, named, pin};
use crate::face::output::{Out, commit_new};
use crate::face::strings;
use crate::version;

/// Converts the description of the memory to register.
///
/// # Safety
/// The union member that the type selects is set. The identifier of shared memory
/// is readable.
unsafe fn memory(
    mem_type: DAT_MEM_TYPE,
    region: DAT_REGION_DESCRIPTION,
    length: DAT_VLEN,
) -> Result<MemoryKind> {
    match mem_type {
        DAT_MEM_TYPE_VIRTUAL => Ok(MemoryKind::Virtual {
            // SAFETY: the type of the memory says that this member is set; any bits are an address.
            address: unsafe { region.for_va }.expose_provenance(),
            length,
        }),
        DAT_MEM_TYPE_LMR => {
            // SAFETY: the type selects this member, as required of the caller.
            let source = unsafe { region.for_lmr_handle };
            Ok(MemoryKind::Lmr {
                source: named(source, Kind::Lmr)?,
            })
        }
        DAT_MEM_TYPE_SHARED_VIRTUAL => {
            // SAFETY: the type of the memory says that this member is set.
            let shared = unsafe { region.for_shared_memory };
            require(
                !shared.shared_memory_id.is_null(),
                Subtype::InvalidArg3,
                "the identifier of the shared memory is null: expected the address of 40 bytes that \
                 all users of this memory choose alike",
            )?;
            // SAFETY: the identifier is readable.
            let identifier = unsafe { shared.shared_memory_id.read_unaligned() };
            Ok(MemoryKind::SharedVirtual {
                address: shared.virtual_address.expose_provenance(),
                length,
                identifier: identifier.map(strings::byte),
            })
        }
        _ => Err(bad_argument(
            Subtype::InvalidArg2,
            format!(
                "memory type {mem_type}: expected DAT_MEM_TYPE_VIRTUAL ({DAT_MEM_TYPE_VIRTUAL}), \
                 DAT_MEM_TYPE_LMR ({DAT_MEM_TYPE_LMR}) or DAT_MEM_TYPE_SHARED_VIRTUAL \
                 ({DAT_MEM_TYPE_SHARED_VIRTUAL})"
            ),
        )),
    }
}

/// The result pointers of `dat_lmr_create`. Each may be null.
pub(crate) struct Created {
    pub(crate) lmr_handle: Out<DAT_LMR_HANDLE>,
    pub(crate) lmr_context: Out<DAT_LMR_CONTEXT>,
    pub(crate) rmr_context: Out<DAT_RMR_CONTEXT>,
    pub(crate) registered_length: Out<DAT_VLEN>,
    pub(crate) registered_address: Out<DAT_VADDR>,
}

/// Registers memory.
///
/// # Safety
/// The contract of `exports`.
pub(crate) unsafe fn create(
    ia: &Pinned<Ia>,
    mem_type: DAT_MEM_TYPE,
    region_description: DAT_REGION_DESCRIPTION,
    length: DAT_VLEN,
    pz_handle: DAT_PZ_HANDLE,
    privileges: DAT_MEM_PRIV_FLAGS,
    created: &Created,
) -> Result<()> {
    let pz = pin::<Pz>(pz_handle)?;
    let privileges = self::privileges(privileges, version::PRIVILEGES, Subtype::InvalidArg6)?;
    // SAFETY: the contract of `exports`.
    let memory = unsafe { memory(mem_type, region_description, length) }?;
    // SAFETY: by the contract of `exports` registered memory stays mapped.
    let lmr = unsafe { Lmr::create(&ia.to_arc(), memory, &pz.to_arc(), privileges) }?;
    commit_new(lmr.handle(), Lmr::free)?;
    let info = lmr.query();
    // `to_c` sets the provider table even if the caller does not want the
    // handle.
    let handle = crate::face::handles::to_c(lmr.handle());
    created.lmr_handle.set(handle);
    created.lmr_context.set(info.lmr_context);
    created.rmr_context.set(info.rmr_context);
    created.registered_length.set(info.registered_size);
    created.registered_address.set(info.registered_address);
    Ok(())
}

/// Converts the privileges of memory. `argument` names the argument for error
/// returns.
pub(crate) fn privileges(
    privileges: DAT_MEM_PRIV_FLAGS,
    allowed: MemPrivileges,
    argument: Subtype,
) -> Result<MemPrivileges> {
    MemPrivileges::from_bits(privileges)
        .filter(|&privileges| allowed.contains(privileges))
        .ok_or_else(|| {
            let or = match allowed.contains(MemPrivileges::REMOTE_ATOMIC) {
                true => " and DAT_IB_MEM_PRIV_REMOTE_ATOMIC",
                false => "",
            };
            bad_argument(
                argument,
                format!(
                    "the privileges {privileges:#x} have bits that are not accepted here: expected bits of {:#x}, \
                     DAT_MEM_PRIV_ALL_FLAG{or}",
                    allowed.bits()
                ),
            )
        })
}

fn param(lmr: &Lmr) -> DAT_LMR_PARAM {
    let info = lmr.query();
    let identifier = lmr.identifier();
    let pointer = core::ptr::with_exposed_provenance_mut;
    let (mem_type, region_desc, length) = match info.kind {
        MemoryKind::Virtual { address, length } => (
            DAT_MEM_TYPE_VIRTUAL,
            DAT_REGION_DESCRIPTION {
                for_va: pointer(address),
            },
            length,
        ),
        MemoryKind::Lmr { source } => (
            DAT_MEM_TYPE_LMR,
            DAT_REGION_DESCRIPTION {
                for_lmr_handle: bare(source),
            },
            info.registered_size,
        ),
        MemoryKind::SharedVirtual {
            address, length, ..
        } => (
            DAT_MEM_TYPE_SHARED_VIRTUAL,
            DAT_REGION_DESCRIPTION {
                for_shared_memory: DAT_SHARED_MEMORY {
                    virtual_address: pointer(address),
                    // This copy belongs to the LMR: the application must not
                    // write to it, nor read it after the LMR is freed.
                    shared_memory_id: identifier.map_or(core::ptr::null_mut(), |identifier| {
                        core::ptr::from_ref(identifier).cast_mut().cast()
                    }),
                },
            },
            length,
        ),
    };
    #[allow(clippy::needless_update, reason = "a later version has more members")]
    DAT_LMR_PARAM {
        ia_handle: bare(info.ia),
        mem_type,
        region_desc,
        length,
        pz_handle: bare(info.pz),
        mem_priv: info.privileges.bits(),
        lmr_context: info.lmr_context,
        rmr_context: info.rmr_context,
        registered_size: info.registered_size,
        registered_address: info.registered_address,
        ..version::lmr_param()
    }
}

call!(
    dat_lmr_query,
    |lmr: Pinned<Lmr>, mask: DAT_LMR_PARAM_MASK, place: Out<DAT_LMR_PARAM>| {
        place.answer(mask, DAT_LMR_FIELD_ALL, || param(&lmr))
    }
);

call!(dat_lmr_free, ending, |lmr: Named<Lmr>| Lmr::free(lmr.0));

/// Checks the segments. Nothing else is needed, because DMA is cache-coherent on
/// all supported hosts.
///
/// # Safety
/// `local_segments` leads to as many readable segments as `num_segments` says.
unsafe fn sync(
    ia: &Pinned<Ia>,
    local_segments: *const DAT_LMR_TRIPLET,
    num_segments: DAT_VLEN,
) -> Result<()> {
    let ia = ia.to_arc();
    let is_there = num_segments == 0 || !local_segments.is_null();
    require_with(is_there, Subtype::InvalidArg2, || {
        format!(
            "the segments are null, but there are {num_segments}: expected an array of that many"
        )
    })?;
    let count = usize::try_from(num_segments).unwrap_or(usize::MAX);
    for at in 0..count {
        // SAFETY: the index is below the count; the segment need not be aligned.
        let segment = unsafe { version::local_segments(local_segments)(at) };
        require_with(lmr::covers(&ia, &segment), Subtype::InvalidArg2, || {
            format!(
                "segment {at}, {} bytes at {:#x} with the context {:#x}, is not inside an LMR of \
                 the IA: expected a part of registered memory",
                segment.length, segment.address, segment.context
            )
        })?;
    }
    Ok(())
}

call!(
    dat_lmr_sync_rdma_read,
    |ia: Pinned<Ia>, segments: *const DAT_LMR_TRIPLET, num_segments: DAT_VLEN| {
        // SAFETY: the contract of `exports`.
        unsafe { sync(&ia, segments, num_segments) }
    }
);

call!(
    dat_lmr_sync_rdma_write,
    |ia: Pinned<Ia>, segments: *const DAT_LMR_TRIPLET, num_segments: DAT_VLEN| {
        // SAFETY: the contract of `exports`.
        unsafe { sync(&ia, segments, num_segments) }
    }
);

//! Local memory regions.

use dat_api::object::ia::Ia;
use dat_api::object::lmr::{self, Lmr, MemoryKind};
use dat_api::object::pz::Pz;
use dat_api::types::MemPrivileges;
use dat_api::{Kind, Result, Subtype};

use crate::abi::{
    DAT_IA_HANDLE, DAT_LMR_CONTEXT, DAT_LMR_FIELD_ALL, DAT_LMR_HANDLE, DAT_LMR_PARAM,
    DAT_LMR_PARAM_MASK, DAT_LMR_TRIPLET, DAT_MEM_PRIV_FLAGS, DAT_MEM_TYPE, DAT_MEM_TYPE_LMR,
    DAT_MEM_TYPE_SHARED_VIRTUAL, DAT_MEM_TYPE_VIRTUAL, DAT_PZ_HANDLE, DAT_REGION_DESCRIPTION,
    DAT_RETURN, DAT_RMR_CONTEXT, DAT_SHARED_MEMORY, DAT_VADDR, DAT_VLEN,
};
use crate::face::frame::{bad_argument, control, require, require_with};
use crate::face::handles::{bare, named, pin};
use crate::face::output::{Output, query_output};
use crate::face::strings;
use crate::face::subject::on;
use crate::providers::dispatch::foreign;
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
            // SAFETY: the caller's promise; any bits are an address.
            address: unsafe { region.for_va }.expose_provenance(),
            length,
        }),
        DAT_MEM_TYPE_LMR => {
            // SAFETY: the type selects this member, as required of the caller.
            let source = unsafe { region.for_lmr_handle };
            Ok(MemoryKind::Lmr {
                source: named(source, Kind::Lmr, Subtype::InvalidHandleLmr)?,
            })
        }
        DAT_MEM_TYPE_SHARED_VIRTUAL => {
            // SAFETY: required of the caller.
            let shared = unsafe { region.for_shared_memory };
            require(
                !shared.shared_memory_id.is_null(),
                Subtype::InvalidArg3,
                "the identifier of the shared memory is null: expected the address of 40 bytes that \
                 all users of this memory choose alike",
            )?;
            // SAFETY: required of the caller.
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
    pub(crate) lmr_handle: *mut DAT_LMR_HANDLE,
    pub(crate) lmr_context: *mut DAT_LMR_CONTEXT,
    pub(crate) rmr_context: *mut DAT_RMR_CONTEXT,
    pub(crate) registered_length: *mut DAT_VLEN,
    pub(crate) registered_address: *mut DAT_VADDR,
}

/// Registers memory.
///
/// # Safety
/// The contract of `exports`.
pub(crate) unsafe fn create(
    ia_handle: DAT_IA_HANDLE,
    mem_type: DAT_MEM_TYPE,
    region_description: DAT_REGION_DESCRIPTION,
    length: DAT_VLEN,
    pz_handle: DAT_PZ_HANDLE,
    privileges: DAT_MEM_PRIV_FLAGS,
    created: &Created,
) -> Result<()> {
    let ia = pin::<Ia>(ia_handle, Subtype::InvalidHandleIa)?;
    let pz = pin::<Pz>(pz_handle, Subtype::InvalidHandlePz)?;
    let privileges = self::privileges(privileges, version::PRIVILEGES, Subtype::InvalidArg6)?;
    // SAFETY: the contract of `exports`.
    let memory = unsafe { memory(mem_type, region_description, length) }?;
    // SAFETY: by the contract of `exports` registered memory stays mapped.
    let lmr = unsafe { Lmr::create(&ia.to_arc(), memory, &pz.to_arc(), privileges) }?;
    let info = lmr.query();
    // `to_c` sets the provider table even if the caller does not want the
    // handle.
    let handle = crate::face::handles::to_c(lmr.handle());
    // SAFETY: the contract of `exports`.
    unsafe {
        set(created.lmr_handle, handle);
        set(created.lmr_context, info.lmr_context);
        set(created.rmr_context, info.rmr_context);
        set(created.registered_length, info.registered_size);
        set(created.registered_address, info.registered_address);
    }
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

/// Writes a result unless its pointer is null.
///
/// # Safety
/// As for [`Output::new`].
unsafe fn set<T>(place: *mut T, value: T) {
    // SAFETY: required of the caller.
    if let Some(place) = unsafe { Output::optional(place) } {
        place.set(value);
    }
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

#[unsafe(export_name = symbol!("dat_lmr_query"))]
pub unsafe extern "C" fn dat_lmr_query(
    lmr_handle: DAT_LMR_HANDLE,
    lmr_param_mask: DAT_LMR_PARAM_MASK,
    lmr_param: *mut DAT_LMR_PARAM,
) -> DAT_RETURN {
    foreign!(lmr_handle.lmr_query_func(lmr_handle, lmr_param_mask, lmr_param));
    control("dat_lmr_query", on("lmr", lmr_handle), || {
        let lmr = pin::<Lmr>(lmr_handle, Subtype::InvalidHandleLmr)?;
        // SAFETY: the contract of `exports`.
        let place = unsafe { query_output(lmr_param_mask, DAT_LMR_FIELD_ALL, lmr_param) }?;
        place.set(param(&lmr));
        Ok(())
    })
}

#[unsafe(export_name = symbol!("dat_lmr_free"))]
pub unsafe extern "C" fn dat_lmr_free(lmr_handle: DAT_LMR_HANDLE) -> DAT_RETURN {
    foreign!(lmr_handle.lmr_free_func(lmr_handle));
    control("dat_lmr_free", on("lmr", lmr_handle), || {
        Lmr::free(named(lmr_handle, Kind::Lmr, Subtype::InvalidHandleLmr)?)
    })
}

/// Checks the segments. Nothing else is needed, because DMA is cache-coherent on
/// all supported hosts.
///
/// # Safety
/// `local_segments` leads to as many readable segments as `num_segments` says.
unsafe fn sync(
    ia_handle: DAT_IA_HANDLE,
    local_segments: *const DAT_LMR_TRIPLET,
    num_segments: DAT_VLEN,
) -> Result<()> {
    let ia = pin::<Ia>(ia_handle, Subtype::InvalidHandleIa)?.to_arc();
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

#[unsafe(export_name = symbol!("dat_lmr_sync_rdma_read"))]
pub unsafe extern "C" fn dat_lmr_sync_rdma_read(
    ia_handle: DAT_IA_HANDLE,
    local_segments: *const DAT_LMR_TRIPLET,
    num_segments: DAT_VLEN,
) -> DAT_RETURN {
    foreign!(ia_handle.lmr_sync_rdma_read_func(ia_handle, local_segments, num_segments));
    control("dat_lmr_sync_rdma_read", on("ia", ia_handle), || {
        // SAFETY: the contract of `exports`.
        unsafe { sync(ia_handle, local_segments, num_segments) }
    })
}

#[unsafe(export_name = symbol!("dat_lmr_sync_rdma_write"))]
pub unsafe extern "C" fn dat_lmr_sync_rdma_write(
    ia_handle: DAT_IA_HANDLE,
    local_segments: *const DAT_LMR_TRIPLET,
    num_segments: DAT_VLEN,
) -> DAT_RETURN {
    foreign!(ia_handle.lmr_sync_rdma_write_func(ia_handle, local_segments, num_segments));
    control("dat_lmr_sync_rdma_write", on("ia", ia_handle), || {
        // SAFETY: the contract of `exports`.
        unsafe { sync(ia_handle, local_segments, num_segments) }
    })
}

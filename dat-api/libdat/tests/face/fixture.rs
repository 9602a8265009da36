//! An adapter with one object of each kind, created through the C interface.

use core::mem::{MaybeUninit, zeroed};
use core::ptr::null_mut;

use dat::abi::*;
use dat::exports::*;

use crate::face::common::success;
use crate::face::launcher::device;

/// Size in bytes of the memory that [`Fixture`] sends from and receives into.
pub(crate) const BYTES: usize = 4096;

pub(crate) struct Fixture {
    pub(crate) ia: DAT_IA_HANDLE,
    pub(crate) async_evd: DAT_EVD_HANDLE,
    pub(crate) pz: DAT_PZ_HANDLE,
    pub(crate) lmr: DAT_LMR_HANDLE,
    pub(crate) context: DAT_LMR_CONTEXT,
    pub(crate) memory: *mut u8,
    /// For receives, requests and software events.
    pub(crate) evd: DAT_EVD_HANDLE,
    pub(crate) connect_evd: DAT_EVD_HANDLE,
    pub(crate) cr_evd: DAT_EVD_HANDLE,
    pub(crate) ep: DAT_EP_HANDLE,
    pub(crate) srq: DAT_SRQ_HANDLE,
    pub(crate) srq_ep: DAT_EP_HANDLE,
    pub(crate) psp: DAT_PSP_HANDLE,
}

pub(crate) fn open(name: &core::ffi::CStr) -> (DAT_IA_HANDLE, DAT_EVD_HANDLE) {
    let (mut ia, mut evd) = (DAT_HANDLE_NULL, DAT_HANDLE_NULL);
    let name = name.as_ptr().cast_mut();
    // SAFETY: a name, and room for the handles.
    let answer = unsafe { dat_ia_openv(name, 8, &raw mut evd, &raw mut ia, 1, 2, DAT_FALSE) };
    success("dat_ia_openv", answer);
    (ia, evd)
}

/// Returns attributes of a small endpoint.
pub(crate) fn attributes() -> DAT_EP_ATTR {
    // SAFETY: numbers and pointers, for which 0 is a value.
    let mut attr: DAT_EP_ATTR = unsafe { zeroed() };
    attr.max_message_size = BYTES as u64;
    attr.max_rdma_size = BYTES as u64;
    attr.max_recv_dtos = 4;
    attr.max_request_dtos = 4;
    attr.max_recv_iov = 2;
    attr.max_request_iov = 2;
    attr.srq_soft_hw = DAT_HW_DEFAULT;
    attr
}

pub(crate) fn evd(ia: DAT_IA_HANDLE, flags: DAT_EVD_FLAGS) -> DAT_EVD_HANDLE {
    let mut evd = DAT_HANDLE_NULL;
    // SAFETY: there is room for the handle.
    let answer = unsafe { dat_evd_create(ia, 16, DAT_HANDLE_NULL, flags, &raw mut evd) };
    success("dat_evd_create", answer);
    evd
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let (ia, async_evd) = open(&device());
        let memory = Box::leak(Box::new([0_u8; BYTES])).as_mut_ptr();
        let (mut pz, mut lmr, mut ep) = (DAT_HANDLE_NULL, DAT_HANDLE_NULL, DAT_HANDLE_NULL);
        let (mut srq, mut srq_ep, mut psp) = (DAT_HANDLE_NULL, DAT_HANDLE_NULL, DAT_HANDLE_NULL);
        let (mut context, mut qualifier) = (0, 0);
        let region = DAT_REGION_DESCRIPTION {
            for_va: memory.cast(),
        };
        let flags = DAT_EVD_DTO_FLAG | DAT_EVD_SOFTWARE_FLAG;
        let evd_of = |flags| evd(ia, flags);
        let (evd, connect_evd) = (evd_of(flags), evd_of(DAT_EVD_CONNECTION_FLAG));
        let cr_evd = evd_of(DAT_EVD_CR_FLAG);
        let mut attr = attributes();
        // The EVD carries software events too.
        attr.recv_completion_flags = DAT_COMPLETION_EVD_THRESHOLD_FLAG;
        attr.request_completion_flags = DAT_COMPLETION_EVD_THRESHOLD_FLAG;
        let mut srq_attr = DAT_SRQ_ATTR {
            max_recv_dtos: 8,
            max_recv_iov: 2,
            low_watermark: DAT_SRQ_LW_DEFAULT,
        };
        // SAFETY: memory that is never freed, and writable results.
        unsafe {
            success("dat_pz_create", dat_pz_create(ia, &raw mut pz));
            let answer = dat_lmr_create(
                ia,
                DAT_MEM_TYPE_VIRTUAL,
                region,
                BYTES as u64,
                pz,
                DAT_MEM_PRIV_ALL_FLAG,
                &raw mut lmr,
                &raw mut context,
                null_mut(),
                null_mut(),
                null_mut(),
            );
            success("dat_lmr_create", answer);
            let answer = dat_ep_create(ia, pz, evd, evd, connect_evd, &raw const attr, &raw mut ep);
            success("dat_ep_create", answer);
            let answer = dat_srq_create(ia, pz, &raw mut srq_attr, &raw mut srq);
            success("dat_srq_create", answer);
            attr.max_recv_dtos = DAT_HW_DEFAULT;
            let answer = dat_ep_create_with_srq(
                ia,
                pz,
                evd,
                evd,
                connect_evd,
                srq,
                &raw const attr,
                &raw mut srq_ep,
            );
            success("dat_ep_create_with_srq", answer);
            let answer = dat_psp_create_any(
                ia,
                &raw mut qualifier,
                cr_evd,
                DAT_PSP_CONSUMER_FLAG,
                &raw mut psp,
            );
            success("dat_psp_create_any", answer);
        }
        assert_ne!(qualifier, 0);
        Self {
            ia,
            async_evd,
            pz,
            lmr,
            context,
            memory,
            evd,
            connect_evd,
            cr_evd,
            ep,
            srq,
            srq_ep,
            psp,
        }
    }

    /// Returns all handles with their types.
    pub(crate) fn handles(&self) -> [(DAT_HANDLE, DAT_HANDLE_TYPE); 11] {
        [
            (self.ia, DAT_HANDLE_TYPE_IA),
            (self.async_evd, DAT_HANDLE_TYPE_EVD),
            (self.pz, DAT_HANDLE_TYPE_PZ),
            (self.lmr, DAT_HANDLE_TYPE_LMR),
            (self.evd, DAT_HANDLE_TYPE_EVD),
            (self.connect_evd, DAT_HANDLE_TYPE_EVD),
            (self.cr_evd, DAT_HANDLE_TYPE_EVD),
            (self.ep, DAT_HANDLE_TYPE_EP),
            (self.srq, DAT_HANDLE_TYPE_SRQ),
            (self.srq_ep, DAT_HANDLE_TYPE_EP),
            (self.psp, DAT_HANDLE_TYPE_PSP),
        ]
    }

    /// Returns a segment of `length` bytes.
    pub(crate) fn segment(&self, length: u64) -> DAT_LMR_TRIPLET {
        DAT_LMR_TRIPLET {
            lmr_context: self.context,
            pad: 0xdead,
            virtual_address: self.memory.addr() as u64,
            segment_length: length,
        }
    }
}

/// Returns room for a result that the call must write completely: filled with a
/// pattern.
pub(crate) fn dirty<T>() -> MaybeUninit<T> {
    let mut room = MaybeUninit::<T>::uninit();
    // SAFETY: the memory has this many bytes.
    unsafe {
        room.as_mut_ptr()
            .cast::<u8>()
            .write_bytes(0xa5, size_of::<T>());
    }
    room
}

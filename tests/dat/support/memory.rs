//! Registered memory.

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use super::{device, ok};

/// Zeroed memory and its LMR, which is freed with the memory.
pub struct Memory {
    bytes: Box<[u8]>,
    pub lmr: DAT_LMR_HANDLE,
    pub context: DAT_LMR_CONTEXT,
    pub rmr_context: DAT_RMR_CONTEXT,
    freed: bool,
}

impl Memory {
    pub fn new(
        ia: DAT_IA_HANDLE,
        pz: DAT_PZ_HANDLE,
        len: usize,
        rights: DAT_MEM_PRIV_FLAGS,
    ) -> Self {
        let mut bytes = vec![0_u8; len].into_boxed_slice();
        let (mut lmr, mut context, mut rmr_context) = (ptr::null_mut(), 0, 0);
        let (mut length, mut address) = (0, 0);
        let region = DAT_REGION_DESCRIPTION {
            for_va: bytes.as_mut_ptr().cast(),
        };
        // SAFETY: the memory outlives its registration; the results are writable.
        ok(unsafe {
            dat_lmr_create(
                ia,
                DAT_MEM_TYPE_VIRTUAL,
                region,
                len as u64,
                pz,
                rights,
                &raw mut lmr,
                &raw mut context,
                &raw mut rmr_context,
                &raw mut length,
                &raw mut address,
            )
        });
        assert!(address <= bytes.as_ptr().addr() as u64 && length >= len as u64);
        Self {
            bytes,
            lmr,
            context,
            rmr_context,
            freed: false,
        }
    }

    /// Returns the address of a byte.
    pub fn address(&self, offset: usize) -> u64 {
        (self.bytes.as_ptr().addr() + offset) as u64
    }

    /// Returns a local segment.
    pub fn segment(&self, offset: usize, len: usize) -> DAT_LMR_TRIPLET {
        DAT_LMR_TRIPLET {
            lmr_context: self.context,
            pad: 0,
            virtual_address: self.address(offset),
            segment_length: len as u64,
        }
    }

    /// Returns a remote segment, for the peer.
    pub fn remote(&self, offset: usize, len: usize) -> DAT_RMR_TRIPLET {
        DAT_RMR_TRIPLET {
            rmr_context: self.rmr_context,
            pad: 0,
            target_address: self.address(offset),
            segment_length: len as u64,
        }
    }

    /// Writes bytes. No request may be reading them.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        for (at, byte) in bytes.iter().enumerate() {
            // SAFETY: the index has checked the bounds; this value owns the
            // memory.
            unsafe { ptr::write_volatile(&raw mut self.bytes[offset + at], *byte) };
        }
    }

    /// Reads bytes that the device may have written.
    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        (offset..offset + len)
            // SAFETY: the index has checked the bounds; the memory is mapped.
            .map(|at| unsafe { ptr::read_volatile(&raw const self.bytes[at]) })
            .collect()
    }

    /// Checks that the memory has these bytes, or gets them within seconds: on iWARP,
    /// an RDMA write is complete before its bytes have arrived.
    #[track_caller]
    pub fn has(&self, offset: usize, bytes: &[u8]) {
        let arrived = device::comes(|| (self.read(offset, bytes.len()) == bytes).then_some(()));
        if arrived.is_none() {
            assert_eq!(self.read(offset, bytes.len()), bytes);
        }
    }

    /// Calls `dat_lmr_free` and returns its code.
    pub fn free(&mut self) -> DAT_RETURN {
        // SAFETY: the call validates its handles.
        let answer = unsafe { dat_lmr_free(self.lmr) };
        self.freed |= answer == DAT_SUCCESS;
        answer
    }
}

impl Drop for Memory {
    /// The registration may have been freed with its adapter.
    fn drop(&mut self) {
        if !self.freed {
            let _ = self.free();
        }
    }
}

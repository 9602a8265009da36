//! Registered memory (LMRs).

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::rc::Rc;

use dat_api::safe::RemoteSegment;

use super::abi::*;
use super::{Adapter, control};
use crate::failure::Failure;

/// Zeroed memory with the alignment of a page.
struct Pages {
    start: NonNull<u8>,
    layout: Layout,
}

impl Pages {
    fn allocate(bytes: usize) -> Self {
        const PAGE: usize = 4096;
        let layout = Layout::from_size_align(bytes, PAGE)
            .expect("two messages are smaller than the address space");
        // SAFETY: the size is not zero: a message has at least one byte.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => Self { start, layout },
            None => handle_alloc_error(layout),
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// Memory with its LMR.
pub(crate) struct Memory {
    lmr: DAT_LMR_HANDLE,
    context: u32,
    rmr_context: u32,
    adapter: Rc<Adapter>,
    // Freed after the LMR (see `Drop`).
    bytes: Pages,
}

impl Memory {
    /// Registers memory for every use.
    pub(crate) fn register(adapter: &Rc<Adapter>, length: usize) -> Result<Self, Failure> {
        let mut memory = Self {
            lmr: DAT_HANDLE_NULL,
            context: 0,
            rmr_context: 0,
            adapter: Rc::clone(adapter),
            bytes: Pages::allocate(length),
        };
        let region = DAT_REGION_DESCRIPTION {
            for_va: memory.bytes.start.as_ptr().cast(),
        };
        let (lmr, context) = (&raw mut memory.lmr, &raw mut memory.context);
        let (rmr_context, mut registered, mut first) = (&raw mut memory.rmr_context, 0, 0);
        let Adapter { calls, ia, pz } = **adapter;
        // SAFETY: handles of this adapter; the memory has that length and outlives the LMR; the
        // other pointers are to variables that are written.
        let code = unsafe {
            lmr_create!(
                (calls.lmr_create),
                [ia, DAT_MEM_TYPE_VIRTUAL, region, length as u64, pz],
                [lmr, context, rmr_context, &raw mut registered, &raw mut first]
            )
        };
        control("dat_lmr_create", code)?;
        Ok(memory)
    }

    /// Returns the address of the first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.bytes.start
    }

    /// Returns all of it, for requests of the other side.
    pub(crate) fn exposed_buffer(&self) -> RemoteSegment {
        RemoteSegment {
            context: self.rmr_context,
            address: self.bytes.start.addr().get() as u64,
            length: self.bytes.layout.size() as u64,
        }
    }

    /// Returns a range of it, for a request of this side.
    pub(crate) fn segment(&self, range: core::ops::Range<usize>) -> DAT_LMR_TRIPLET {
        assert!(
            range.end <= self.bytes.layout.size(),
            "the range is within the buffer"
        );
        let address = self.bytes.start.addr().get() + range.start;
        // SAFETY: all members are integers, for which zero is valid; not all versions have the same.
        let mut segment: DAT_LMR_TRIPLET = unsafe { core::mem::zeroed() };
        segment.lmr_context = self.context;
        segment.virtual_address = address as u64;
        segment.segment_length = range.len().try_into().expect("buffers are below 4 GiB");
        segment
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: an LMR, freed once, or null, which the call refuses with an error.
        unsafe { (self.adapter.calls.lmr_free)(self.lmr) };
    }
}

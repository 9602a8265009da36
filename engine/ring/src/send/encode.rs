//! The WQE of a request: the control segment, the peer's address if there is one,
//! and the data.
//!
//! There is one encoder. The fast path and the slow path differ in how the data
//! are written, which is a [`Payload`]: one segment (`one.rs`) or any number
//! (`slow.rs`). Fields of a request that are constants in the caller stay
//! constants here, so each operation is compiled separately.

use core::ptr::NonNull;

use super::{Control, Place, SendProducer, Written};
use crate::request::{SendFlags, SendOp, SendRequest};
use crate::units::write_unit;
use crate::wire::{CtrlFlags, RemoteSegment, UNIT, WqeOpcode};

/// The data of a request.
pub(super) trait Payload {
    /// The reason why the data were not written.
    type Refused;

    /// Writes data segments. Returns how many units they take.
    ///
    /// # Safety
    /// `body` is the second or third unit of the WQE at the producer, which the
    /// credits say is free.
    unsafe fn write_data(
        &self,
        ring: &SendProducer,
        body: NonNull<u8>,
    ) -> Result<u32, Self::Refused>;

    /// Writes the bytes themselves behind their header. Returns how many units
    /// they take.
    ///
    /// # Safety
    /// As for [`Self::write_data`]; and the memory of the segments is readable.
    unsafe fn write_inline(
        &self,
        ring: &SendProducer,
        body: NonNull<u8>,
    ) -> Result<u32, Self::Refused>;
}

/// What is done with a WQE that is written. A trait, because LLVM would call a closure
/// that several paths use out of line.
pub(super) trait Then {
    /// The result.
    type Result;

    fn then(ring: &mut SendProducer, written: Written) -> Self::Result;
}

/// Rings the doorbell.
pub(super) enum Ring {}

impl Then for Ring {
    type Result = ();

    #[inline(always)]
    fn then(ring: &mut SendProducer, written: Written) {
        ring.ring_single(written);
    }
}

/// Returns the WQE to the caller, which rings the doorbell.
pub(super) enum Return {}

impl Then for Return {
    type Result = Written;

    #[inline(always)]
    fn then(_: &mut SendProducer, written: Written) -> Written {
        written
    }
}

/// What an operation is in the control segment.
#[derive(Clone, Copy)]
pub(super) struct Operation {
    opcode: WqeOpcode,
    imm: u32,
}

/// What else the WQE of a request needs.
#[derive(Clone, Copy)]
pub(super) struct Transfer {
    pub(super) operation: Operation,
    pub(super) remote: Option<Remote>,
    pub(super) fence: CtrlFlags,
    pub(super) wr_data: u32,
}

/// Address and key of the peer's memory.
pub(super) type Remote = (u64, u32);

impl Operation {
    /// Also returns the peer's memory, if the operation has any. `None` for a
    /// marker, which has no data, and for atomic operations (`atomic.rs`).
    #[inline(always)]
    pub(super) fn of(op: SendOp) -> Option<(Self, Option<Remote>)> {
        let (opcode, imm, remote) = match op {
            SendOp::Send => (WqeOpcode::Send, 0, None),
            SendOp::SendImm(imm) => (WqeOpcode::SendImm, imm, None),
            SendOp::Write { remote_addr, rkey } => {
                (WqeOpcode::RdmaWrite, 0, Some((remote_addr, rkey)))
            }
            SendOp::WriteImm {
                remote_addr,
                rkey,
                imm,
            } => (WqeOpcode::RdmaWriteImm, imm, Some((remote_addr, rkey))),
            SendOp::Read { remote_addr, rkey } => {
                (WqeOpcode::RdmaRead, 0, Some((remote_addr, rkey)))
            }
            SendOp::Nop | SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. } => return None,
        };
        Some((Self { opcode, imm }, remote))
    }
}

impl SendProducer {
    /// Writes the WQE of a request at the producer's position, for which the
    /// caller has checked the credits, and passes it to `T`.
    /// The device sees it with the next doorbell.
    ///
    /// # Errors
    /// The payload's; nothing is posted then.
    ///
    /// # Safety
    /// As for [`Self::post_with_data`].
    #[inline(always)]
    pub(super) unsafe fn encode<P: Payload, T: Then>(
        &mut self,
        request: &SendRequest<'_>,
        transfer: Transfer,
        payload: &P,
    ) -> Result<T::Result, P::Refused> {
        // A read has nothing to copy.
        let is_inline = request.flags.contains(SendFlags::INLINE)
            && !matches!(transfer.operation.opcode, WqeOpcode::RdmaRead);
        let place = self.place();
        let before = if transfer.remote.is_some() { 2 } else { 1 };
        // SAFETY: the second or third unit of the WQE's first WQEBB.
        let body = unsafe { place.wqe.add(before * UNIT) };
        // Everything after the data is compiled separately: without inline data the
        // fast path knows the length of the WQE.
        Ok(match is_inline {
            true => {
                // SAFETY: required of the caller.
                let units = unsafe { payload.write_inline(self, body) }?;
                let written = self.complete(request, transfer, place, units);
                T::then(self, written)
            }
            false => {
                // SAFETY: required of the caller.
                let units = unsafe { payload.write_data(self, body) }?;
                let written = self.complete(request, transfer, place, units);
                T::then(self, written)
            }
        })
    }

    /// Writes the segments before the data, which take `units`.
    #[inline(always)]
    fn complete(
        &mut self,
        request: &SendRequest<'_>,
        transfer: Transfer,
        place: Place,
        units: u32,
    ) -> Written {
        let Operation { opcode, imm } = transfer.operation;
        let mut before = 1;
        if let Some((addr, rkey)) = transfer.remote {
            let remote = RemoteSegment::new(addr, rkey);
            // SAFETY: the second unit of the WQE's first WQEBB.
            unsafe { write_unit(place.wqe.add(UNIT), remote.to_words()) };
            before = 2;
        }
        let control = Control {
            opcode,
            units: before + units,
            flags: with_fence(request.flags, transfer.fence),
            imm,
        };
        self.finish(place, request.wr_id, transfer.wr_data, control)
    }
}

/// Returns the flags of a request that carries a fence besides its own.
#[inline(always)]
pub(super) fn with_fence(asked: SendFlags, fence: CtrlFlags) -> CtrlFlags {
    let flags = CtrlFlags::from_bits_truncate(asked.bits());
    if flags.contains(CtrlFlags::FENCE) {
        // The larger one includes it.
        flags
    } else {
        flags | fence
    }
}

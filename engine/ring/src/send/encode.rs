//! The WQE of a request: the control segment, the peer's address and the operands of an
//! atomic operation if there are any, and the data.
//!
//! The fast path (`one.rs`) and the slow path (`slow.rs`) differ in how the data are
//! written. Fields of a request that are constants in the caller stay constants here,
//! so each operation is compiled separately.

use core::sync::atomic::Ordering;

use super::{SendProducer, WqeStart, Written, wqebbs};
use crate::request::{SendFlags, SendOp};
use crate::units::write_unit;
use crate::wire::{CtrlFlags, CtrlSegment, RemoteSegment, UNIT, WqeOpcode};

/// What precedes the data in a WQE.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// The operation.
    pub opcode: WqeOpcode,
    /// The immediate data in host byte order; of a bind, the key that it replaces.
    pub(super) imm: u32,
    /// Address and key of the peer's memory.
    pub(super) remote: Option<(u64, u32)>,
    /// The operands of an atomic operation ([`crate::wire::AtomicOp::to_words`]).
    pub(super) operands: Option<(u64, Option<u64>)>,
}

impl Head {
    /// Returns a control segment without anything else.
    #[inline(always)]
    pub(super) const fn of_opcode(opcode: WqeOpcode, imm: u32) -> Self {
        Self {
            opcode,
            imm,
            remote: None,
            operands: None,
        }
    }

    #[inline(always)]
    const fn to_remote(opcode: WqeOpcode, imm: u32, remote_addr: u64, rkey: u32) -> Self {
        Self {
            remote: Some((remote_addr, rkey)),
            ..Self::of_opcode(opcode, imm)
        }
    }

    /// Returns the head of a request's WQE.
    #[inline(always)]
    #[must_use]
    #[rustfmt::skip]
    pub const fn of(op: SendOp) -> Self {
        match op {
            SendOp::Send => Self::of_opcode(WqeOpcode::Send, 0),
            SendOp::SendImm(imm) => Self::of_opcode(WqeOpcode::SendImm, imm),
            SendOp::Write { remote_addr, rkey } => {
                Self::to_remote(WqeOpcode::RdmaWrite, 0, remote_addr, rkey)
            }
            SendOp::WriteImm { remote_addr, rkey, imm } => {
                Self::to_remote(WqeOpcode::RdmaWriteImm, imm, remote_addr, rkey)
            }
            SendOp::Read { remote_addr, rkey } => {
                Self::to_remote(WqeOpcode::RdmaRead, 0, remote_addr, rkey)
            }
            SendOp::Atomic { remote_addr, rkey, op } => Self {
                operands: Some(op.to_words()),
                ..Self::to_remote(op.opcode(), 0, remote_addr, rkey)
            },
            SendOp::Nop => Self::of_opcode(WqeOpcode::Nop, 0),
        }
    }

    /// Returns the length in units.
    #[inline(always)]
    pub(super) const fn units(&self) -> u32 {
        1 + self.remote.is_some() as u32 + self.operands.is_some() as u32
    }
}

impl SendProducer {
    /// Writes what precedes the data of a WQE, which take `units` and are written. The WQE
    /// is then complete except for the doorbell.
    #[inline(always)]
    pub(super) fn finish(
        &mut self,
        place: WqeStart,
        (wr_id, wr_data): (u64, u32),
        head: Head,
        units: u32,
        flags: CtrlFlags,
    ) -> Written {
        // SAFETY: the first three units of the WQE's first WQEBB.
        let [first, second, third] = [0, 1, 2].map(|unit| unsafe { place.wqe.add(unit * UNIT) });
        let units = head.units() + units;
        let Head { opcode, imm, .. } = head;
        let ctrl = CtrlSegment::new(opcode, place.counter, self.qpn_shifted, units, flags, imm);
        // SAFETY: as above; the credits say that the WQEBB is free.
        unsafe {
            if let Some((addr, rkey)) = head.remote {
                write_unit(second, RemoteSegment::new(addr, rkey).to_words());
            }
            match head.operands {
                None => {}
                Some((first, None)) => third.cast::<u64>().write(first),
                Some((first, Some(second))) => write_unit(third, [first, second]),
            }
            write_unit(first, ctrl.to_words());
        }
        // SAFETY: the index is below the WQEBB count, which is the number of
        // entries, and the consumer that owns them outlives this half.
        let entry = unsafe { self.entries.add(place.index).as_ref() };
        entry.wr_id.store(wr_id, Ordering::Relaxed);
        entry.wr_data.store(wr_data, Ordering::Relaxed);
        entry.posted.store(self.credits.take(1), Ordering::Relaxed);
        self.producer = place.counter.wrapping_add(wqebbs(units) as u16);
        Written {
            doorbell: ctrl.doorbell(),
            wqe: place.wqe,
            units,
        }
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

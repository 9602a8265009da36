//! The test in the role of the device: it writes CQEs into a ring.
//!
//! The layout is that of `mlx5dv.h` (`mlx5_cqe64`, `mlx5_err_cqe`) as bindgen
//! reads it, so that the test depends on neither the engine's nor the emulator's
//! decoder.

use core::mem::{offset_of, zeroed};
use core::ptr;
use core::sync::atomic::{Ordering, fence};

use dv_sys::mlx5dv::{mlx5_cqe64, mlx5_err_cqe};

/// Size in bytes of a completion, whatever the size of a CQE.
const COMPLETION: usize = 64;

/// The content of a CQE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cqe {
    /// `MLX5_CQE_*`.
    pub opcode: u8,
    pub solicited: bool,
    pub qpn: u32,
    /// The QP's user index (CQE version 1), or the SRQ number (version 0).
    pub user_index: u32,
    pub wqe_counter: u16,
    pub byte_count: u32,
    /// Immediate data, host byte order.
    pub imm: u32,
    /// `MLX5_OPCODE_*` of the WQE, in CQEs of send queues.
    pub sent: u8,
    /// Syndrome and vendor syndrome, in error CQEs.
    pub error: Option<(u8, u8)>,
    /// Payload in the CQE, and whether it is in the 64-byte place.
    pub inline: Option<(Vec<u8>, InlinePlace)>,
}

/// The place of payload in a CQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InlinePlace {
    /// In the first 32 bytes of the completion.
    Within,
    /// In the 64 bytes before the completion, which only a 128-byte CQE has.
    Before,
}

/// A completion ring that the test writes and its owner polls.
pub struct CqeWriter {
    buf: *mut u8,
    cqe_count: u32,
    cqe_size: usize,
    produced: u32,
}

impl CqeWriter {
    /// Wraps a ring in which `produced` CQEs have been written so far.
    ///
    /// # Safety
    /// `buf` is a completion ring of that shape. It outlives this value, and no
    /// other code writes it.
    pub unsafe fn new(buf: u64, cqe_count: u32, cqe_size: u32, produced: u32) -> Self {
        assert!(cqe_count.is_power_of_two() && (cqe_size == 64 || cqe_size == 128));
        CqeWriter {
            buf: buf as *mut u8,
            cqe_count,
            cqe_size: cqe_size as usize,
            produced,
        }
    }

    /// Writes the next CQE, its last byte last.
    pub fn push(&mut self, cqe: &Cqe) {
        let index = self.produced & (self.cqe_count - 1);
        let owner = u8::from(self.produced & self.cqe_count != 0);
        let bytes = cqe.bytes(self.cqe_size, owner);
        let at = self.buf.wrapping_add(index as usize * self.cqe_size);
        let last = self.cqe_size - 1;
        // SAFETY: inside the ring by the contract of `new`.
        unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), last) };
        fence(Ordering::Release);
        // SAFETY: as above.
        unsafe { at.add(last).write_volatile(bytes[last]) };
        self.produced += 1;
    }
}

impl Cqe {
    /// Returns the CQE as it lies in a ring.
    pub fn bytes(&self, cqe_size: usize, owner: u8) -> Vec<u8> {
        let mut bytes = vec![0; cqe_size];
        let start = cqe_size - COMPLETION;
        let format = match &self.inline {
            None => 0,
            Some((_, InlinePlace::Within)) => 1 << 2,
            Some((_, InlinePlace::Before)) => 2 << 2,
        };
        let op_own = self.opcode << 4 | format | u8::from(self.solicited) << 1 | owner;
        bytes[start..].copy_from_slice(&match self.error {
            None => self.good(op_own),
            Some((syndrome, vendor)) => self.bad(op_own, syndrome, vendor),
        });
        if let Some((data, place)) = &self.inline {
            let at = if *place == InlinePlace::Within {
                start
            } else {
                start - COMPLETION
            };
            bytes[at..at + data.len()].copy_from_slice(data);
        }
        bytes
    }

    fn qpn_word(&self) -> u32 {
        u32::from(self.sent) << 24 | self.qpn
    }

    fn good(&self, op_own: u8) -> [u8; COMPLETION] {
        // SAFETY: plain numbers, for which zeroes are valid.
        let mut cqe: mlx5_cqe64 = unsafe { zeroed() };
        cqe.srqn_uidx = self.user_index.to_be();
        cqe.imm_inval_pkey = self.imm.to_be();
        cqe.byte_cnt = self.byte_count.to_be();
        cqe.sop_drop_qpn = self.qpn_word().to_be();
        cqe.wqe_counter = self.wqe_counter.to_be();
        cqe.op_own = op_own;
        const { assert!(offset_of!(mlx5_cqe64, op_own) == COMPLETION - 1) };
        // SAFETY: 64 initialised bytes without padding (its layout test says so).
        unsafe { ptr::read(ptr::from_ref(&cqe).cast()) }
    }

    fn bad(&self, op_own: u8, syndrome: u8, vendor: u8) -> [u8; COMPLETION] {
        // SAFETY: plain numbers, for which zeroes are valid.
        let mut cqe: mlx5_err_cqe = unsafe { zeroed() };
        cqe.srqn = self.user_index.to_be();
        (cqe.syndrome, cqe.vendor_err_synd) = (syndrome, vendor);
        cqe.s_wqe_opcode_qpn = self.qpn_word().to_be();
        cqe.wqe_counter = self.wqe_counter.to_be();
        cqe.op_own = op_own;
        const { assert!(offset_of!(mlx5_err_cqe, op_own) == COMPLETION - 1) };
        // SAFETY: 64 initialised bytes without padding (its layout test says so).
        unsafe { ptr::read(ptr::from_ref(&cqe).cast()) }
    }
}

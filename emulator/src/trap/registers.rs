//! The vector registers of a thread that a signal interrupted: the kernel saves them
//! in the signal's frame, in the format of the `XSAVE` instruction (Intel SDM, volume 1,
//! chapter 13; `struct _fpx_sw_bytes` of <asm/sigcontext.h>).

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Offset of the first of the 16 registers xmm0 to xmm15, of 16 bytes each.
const XMM: usize = 160;
/// Offset of the words that describe the frame: `FP_XSTATE_MAGIC1`, the size of all, the
/// state components (64 bits), the size of the `XSAVE` area.
const SOFTWARE: usize = 464;
const MAGIC: u32 = 0x4650_5853;
/// Offset of the bits of the state components that are not in their initial state.
const XSTATE_BV: usize = 512;
/// The state component of zmm16 to zmm31, of 64 bytes each.
const HI16_ZMM: u32 = 7;

/// The offset of that component on this processor; 0 if it has none.
static HI16_ZMM_OFFSET: AtomicUsize = AtomicUsize::new(0);

/// Reads the layout of the frame from the processor. `CPUID` is slow in a virtual machine.
pub(super) fn read_layout() {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const LAYOUT: u32 = 0xd;
    if __cpuid(0).eax >= LAYOUT {
        let component = __cpuid_count(LAYOUT, HI16_ZMM);
        HI16_ZMM_OFFSET.store(component.ebx as usize, Relaxed);
    }
}

/// The vector registers in a signal's frame.
pub(super) struct VectorRegisters {
    /// The area of `XSAVE`, or null if the thread has not used such registers.
    frame: *const u8,
    /// The offset of zmm16 in it; 0 if the processor has no such register.
    upper: usize,
}

impl VectorRegisters {
    /// Returns the registers in a frame of this processor.
    pub(super) fn new(frame: *const u8) -> Self {
        let upper = HI16_ZMM_OFFSET.load(Relaxed);
        Self { frame, upper }
    }

    /// Returns the first 8 bytes of xmm, ymm or zmm `register`; zeros if they are unknown.
    ///
    /// # Safety
    /// `frame` is null, or the floating-point state of a running signal handler's context.
    pub(super) unsafe fn low_bytes(&self, register: usize) -> [u8; 8] {
        if self.frame.is_null() {
            return [0; 8];
        }
        let offset = match register {
            0..16 => Some(XMM + 16 * register),
            // SAFETY: `frame` is null, or the state in a running handler's context.
            _ => unsafe { self.upper(register - 16) },
        };
        // SAFETY: the first 512 bytes always exist; `upper` has compared its offset
        // with the size of the area.
        offset.map_or([0; 8], |offset| unsafe { self.read(offset) })
    }

    /// Returns the offset of zmm16 + `index`, unless the frame does not have it.
    ///
    /// # Safety
    /// As for [`low_bytes`](Self::low_bytes), and not null.
    unsafe fn upper(&self, index: usize) -> Option<usize> {
        // SAFETY: these words are in the first 512 bytes.
        let (magic, components, size) = unsafe {
            (
                u32::from_le_bytes(self.read(SOFTWARE)),
                u64::from_le_bytes(self.read(SOFTWARE + 8)),
                u32::from_le_bytes(self.read(SOFTWARE + 16)),
            )
        };
        let start = self.upper;
        let end = start + 64 * 16;
        let exists = magic == MAGIC && components >> HI16_ZMM & 1 == 1;
        if !exists || start == 0 || end > size as usize {
            return None;
        }
        // SAFETY: the size of the area shows that it has the header.
        let changed = u64::from_le_bytes(unsafe { self.read(XSTATE_BV) });
        // In the initial state all bytes are zeros, and may not be written.
        (changed >> HI16_ZMM & 1 == 1).then_some(start + 64 * index)
    }

    unsafe fn read<const N: usize>(&self, offset: usize) -> [u8; N] {
        // SAFETY: the caller has checked that these bytes exist.
        unsafe { self.frame.add(offset).cast::<[u8; N]>().read_unaligned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UPPER: usize = 1664;

    /// Returns a frame in which the first byte of each register is 100 + its number.
    fn frame(changed: u64, size: u32) -> Vec<u8> {
        let mut bytes = vec![0_u8; UPPER + 64 * 16];
        for register in 0..16 {
            bytes[XMM + 16 * register] = 100 + register as u8;
            bytes[UPPER + 64 * register] = 116 + register as u8;
        }
        bytes[SOFTWARE..][..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[SOFTWARE + 8..][..8].copy_from_slice(&0xe7_u64.to_le_bytes());
        bytes[SOFTWARE + 16..][..4].copy_from_slice(&size.to_le_bytes());
        bytes[XSTATE_BV..][..8].copy_from_slice(&changed.to_le_bytes());
        bytes
    }

    #[test]
    fn all_registers_are_found_in_a_frame() {
        let size = (UPPER + 64 * 16) as u32;
        let low = |bytes: &[u8], register| {
            let registers = VectorRegisters {
                frame: bytes.as_ptr(),
                upper: UPPER,
            };
            // SAFETY: a whole frame.
            let bytes = unsafe { registers.low_bytes(register) };
            bytes[0]
        };
        let whole = frame(1 << HI16_ZMM, size);
        assert_eq!([0, 9, 15].map(|it| low(&whole, it)), [100, 109, 115]);
        assert_eq!([16, 31].map(|it| low(&whole, it)), [116, 131]);
        let initial = frame(0, size);
        assert_eq!([15, 16].map(|it| low(&initial, it)), [115, 0]);
        let shorter = frame(1 << HI16_ZMM, size - 1);
        assert_eq!([15, 16].map(|it| low(&shorter, it)), [115, 0]);
        let none = VectorRegisters::new(std::ptr::null());
        // SAFETY: null.
        assert_eq!(unsafe { none.low_bytes(3) }, [0; 8]);
    }
}

//! Halting the processor between two polls until a line of memory is written.
//!
//! A halt needs instructions that few processors have: UMONITOR and UMWAIT (Intel, CPUID
//! leaf 7, WAITPKG), or MONITORX and MWAITX (AMD, CPUID leaf 0x8000_0001). No other
//! processor executes them. They have not run on a processor that has them: tests check
//! their encodings, and the order of the steps with a simulated processor.

use core::marker::PhantomData;
use core::ptr::NonNull;
use std::sync::OnceLock;

/// A byte that is written when a completion comes. Valid for `'a`.
#[derive(Clone, Copy, Debug)]
pub struct WatchedByte<'a> {
    at: NonNull<u8>,
    ring: PhantomData<&'a u8>,
}

impl WatchedByte<'_> {
    /// Returns a watched byte.
    ///
    /// # Safety
    /// The byte is mapped and readable for `'a`.
    #[must_use]
    pub unsafe fn new(at: NonNull<u8>) -> Self {
        Self {
            at,
            ring: PhantomData,
        }
    }
}

/// The instructions for a halt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Halt {
    /// The processor has none.
    None,
    /// UMONITOR and UMWAIT.
    Umwait,
    /// MONITORX and MWAITX.
    Mwaitx,
}

/// The longest halt, in cycles of the time stamp counter: less than 10 microseconds on
/// processors whose counter runs at 1 GHz or more. A halt ends after this time for everything
/// that does not write the watched line: a deadline, a signal, another thread.
const LONGEST: u32 = 10_000;

impl Halt {
    /// Returns the instructions of this processor.
    pub(super) fn of_processor() -> Self {
        static FOUND: OnceLock<Halt> = OnceLock::new();
        *FOUND.get_or_init(Self::detect)
    }

    #[cfg(target_arch = "x86_64")]
    fn detect() -> Self {
        use core::arch::x86_64::{__cpuid, __cpuid_count};
        let (leaves, extended) = (__cpuid(0).eax, __cpuid(0x8000_0000).eax);
        let leaf_7 = if leaves >= 7 {
            __cpuid_count(7, 0).ecx
        } else {
            0
        };
        let leaf_amd = match extended {
            0x8000_0001..=0x8000_ffff => __cpuid(0x8000_0001).ecx,
            _ => 0,
        };
        Self::from_cpuid(leaf_7, leaf_amd)
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn detect() -> Self {
        Self::None
    }

    /// Returns the instructions that these values of ECX report: of CPUID leaf 7, and of leaf
    /// 0x8000_0001.
    #[cfg(any(target_arch = "x86_64", test))]
    fn from_cpuid(leaf_7: u32, leaf_amd: u32) -> Self {
        const WAITPKG: u32 = 1 << 5;
        const MONITORX: u32 = 1 << 29;
        match (leaf_7 & WAITPKG != 0, leaf_amd & MONITORX != 0) {
            (true, _) => Self::Umwait,
            (false, true) => Self::Mwaitx,
            (false, false) => Self::None,
        }
    }

    /// Begins to watch the line of a byte. Returns false if the processor cannot.
    pub(super) fn monitor(self, byte: WatchedByte<'_>) -> bool {
        match self {
            Self::None => false,
            #[cfg(target_arch = "x86_64")]
            Self::Umwait => {
                // SAFETY: the processor has the instruction, which only reads the byte.
                unsafe { x86_64::umonitor(byte.at.as_ptr()) };
                true
            }
            #[cfg(target_arch = "x86_64")]
            Self::Mwaitx => {
                // SAFETY: as above.
                unsafe { x86_64::monitorx(byte.at.as_ptr()) };
                true
            }
            #[cfg(not(target_arch = "x86_64"))]
            Self::Umwait | Self::Mwaitx => {
                let _ = byte.at;
                false
            }
        }
    }

    /// Halts the processor until the watched line is written, an interrupt comes, or the longest
    /// time has passed; also sooner. Returns at once if no line is watched.
    pub(super) fn halt(self) {
        match self {
            Self::None => {}
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the processor has the instruction.
            Self::Umwait => unsafe { x86_64::umwait(LONGEST) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Self::Mwaitx => unsafe { x86_64::mwaitx(LONGEST) },
            #[cfg(not(target_arch = "x86_64"))]
            Self::Umwait | Self::Mwaitx => {
                let _ = LONGEST;
            }
        }
    }
}

/// The instructions, as bytes: the assembler need not know them.
#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use core::arch::asm;

    /// UMONITOR RAX (Intel SDM vol. 2).
    ///
    /// # Safety
    /// The processor has WAITPKG; the byte is mapped and readable.
    #[inline]
    pub(super) unsafe fn umonitor(byte: *const u8) {
        // SAFETY: required of the caller.
        unsafe {
            asm!(".byte 0xf3, 0x0f, 0xae, 0xf0", in("rax") byte, options(nostack, preserves_flags));
        }
    }

    /// UMWAIT ECX, until the time stamp counter reaches EDX:EAX. Bit 0 of ECX asks for the state
    /// with the shorter wake-up, C0.1.
    ///
    /// # Safety
    /// The processor has WAITPKG.
    #[inline]
    pub(super) unsafe fn umwait(cycles: u32) {
        // SAFETY: every x86-64 has a time stamp counter.
        let until = unsafe { core::arch::x86_64::_rdtsc() } + u64::from(cycles);
        // SAFETY: required of the caller; the instruction changes nothing but flags.
        unsafe {
            asm!(
                ".byte 0xf2, 0x0f, 0xae, 0xf1",
                in("ecx") 1,
                in("eax") until as u32,
                in("edx") (until >> 32) as u32,
                options(nostack),
            );
        }
    }

    /// MONITORX: the address in RAX, no extensions in ECX, no hints in EDX (AMD APM vol. 3).
    ///
    /// # Safety
    /// The processor has MONITORX; the byte is mapped and readable.
    #[inline]
    pub(super) unsafe fn monitorx(byte: *const u8) {
        // SAFETY: required of the caller.
        unsafe {
            asm!(
                ".byte 0x0f, 0x01, 0xfa",
                in("rax") byte,
                in("ecx") 0,
                in("edx") 0,
                options(nostack, preserves_flags),
            );
        }
    }

    /// MWAITX for at most EBX cycles (bit 1 of ECX), in the state C0 (0xf0 in EAX).
    ///
    /// # Safety
    /// The processor has MONITORX.
    #[inline]
    pub(super) unsafe fn mwaitx(cycles: u32) {
        // SAFETY: required of the caller. RBX is the compiler's own, so it is put back.
        unsafe {
            asm!(
                "xchg rbx, {cycles}",
                ".byte 0x0f, 0x01, 0xfb",
                "xchg rbx, {cycles}",
                cycles = inout(reg) u64::from(cycles) => _,
                in("eax") 0xf0,
                in("ecx") 2,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpuid_says_which_instructions_a_processor_has() {
        const WAITPKG: u32 = 0x20;
        const MONITORX: u32 = 0x2000_0000;
        assert_eq!(Halt::from_cpuid(0, 0), Halt::None);
        assert_eq!(Halt::from_cpuid(!WAITPKG, !MONITORX), Halt::None);
        assert_eq!(Halt::from_cpuid(WAITPKG, 0), Halt::Umwait);
        assert_eq!(Halt::from_cpuid(0, MONITORX), Halt::Mwaitx);
        assert_eq!(Halt::from_cpuid(WAITPKG, MONITORX), Halt::Umwait);
    }

    #[test]
    fn a_processor_without_them_watches_nothing() {
        let byte = 0u8;
        // SAFETY: the byte outlives the watch.
        let watched = unsafe { WatchedByte::new(NonNull::from(&byte)) };
        assert!(!Halt::None.monitor(watched));
        Halt::None.halt();
    }

    /// Whatever this processor has, a halt ends.
    #[test]
    fn a_halt_ends_by_itself() {
        let byte = 0u8;
        let halt = Halt::of_processor();
        for _ in 0..1000 {
            // SAFETY: the byte outlives the watch.
            let watched = unsafe { WatchedByte::new(NonNull::from(&byte)) };
            assert_eq!(halt.monitor(watched), halt != Halt::None);
            halt.halt();
        }
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    core::arch::global_asm!(
        ".globl dat_engine_halt_encodings",
        "dat_engine_halt_encodings:",
        "umonitor rax",
        "umwait ecx",
        "monitorx",
        "mwaitx",
    );

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[test]
    fn encodings_are_those_of_the_assembler() {
        unsafe extern "C" {
            static dat_engine_halt_encodings: [u8; 14];
        }
        // SAFETY: the 14 bytes of the instructions above, which are data here.
        let bytes = unsafe { dat_engine_halt_encodings };
        let umonitor_umwait = [0xf3, 0x0f, 0xae, 0xf0, 0xf2, 0x0f, 0xae, 0xf1];
        assert_eq!(bytes[..8], umonitor_umwait);
        assert_eq!(bytes[8..], [0x0f, 0x01, 0xfa, 0x0f, 0x01, 0xfb]);
    }
}

//! Halting the processor between two polls until a line of memory is written.
//!
//! A halt needs instructions that few processors have: UMONITOR and UMWAIT (Intel, CPUID
//! leaf 7, WAITPKG), or MONITORX and MWAITX (AMD, CPUID leaf 0x8000_0001). No other
//! processor executes them. They have not run on a processor that has them: tests check
//! which instructions are chosen, and the order of the steps with a simulated processor.

#[cfg(target_arch = "x86_64")]
use core::arch::asm;
use core::sync::atomic::AtomicU8;
use std::sync::OnceLock;

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
#[cfg(target_arch = "x86_64")]
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
        let leaf_7 = match __cpuid(0).eax {
            0..7 => 0,
            _ => __cpuid_count(7, 0).ecx,
        };
        // Every x86-64 has this leaf, which reports its 64-bit mode.
        Self::from_cpuid(leaf_7, __cpuid(0x8000_0001).ecx)
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
    pub(super) fn monitor(self, byte: &AtomicU8) -> bool {
        let _at = byte.as_ptr();
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor has the instruction, which only reads the byte at RAX. MONITORX
        // also takes extensions (ECX) and hints (EDX): none.
        unsafe {
            match self {
                Self::None => {}
                Self::Umwait => asm!(
                    "umonitor rax", // Intel SDM vol. 2
                    in("rax") _at, options(nostack, preserves_flags),
                ),
                Self::Mwaitx => asm!(
                    "monitorx", // AMD APM vol. 3
                    in("rax") _at, in("ecx") 0, in("edx") 0, options(nostack, preserves_flags),
                ),
            }
        }
        self != Self::None
    }

    /// Halts the processor until the watched line is written, an interrupt comes, or the longest
    /// time has passed; also sooner. Returns at once if no line is watched.
    pub(super) fn halt(self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor has the instruction, and as every x86-64 a time stamp counter.
        // Neither instruction changes more than flags. RBX is the compiler's own, so it is put
        // back.
        unsafe {
            match self {
                Self::None => {}
                Self::Umwait => {
                    // UMWAIT ECX, until the counter reaches EDX:EAX; bit 0 of ECX asks for the
                    // state with the shorter wake-up, C0.1.
                    let until = core::arch::x86_64::_rdtsc() + u64::from(LONGEST);
                    asm!(
                        "umwait ecx",
                        in("ecx") 1, in("eax") until as u32, in("edx") (until >> 32) as u32,
                        options(nostack),
                    );
                }
                // MWAITX for at most EBX cycles (bit 1 of ECX), in the state C0 (0xf0 in EAX).
                Self::Mwaitx => asm!(
                    "xchg rbx, {cycles}", "mwaitx", "xchg rbx, {cycles}",
                    cycles = inout(reg) u64::from(LONGEST) => _, in("eax") 0xf0, in("ecx") 2,
                    options(nostack, preserves_flags),
                ),
            }
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
        assert!(!Halt::None.monitor(&AtomicU8::new(0)));
        Halt::None.halt();
    }

    /// Whatever this processor has, a halt ends.
    #[test]
    fn a_halt_ends_by_itself() {
        let byte = AtomicU8::new(0);
        let halt = Halt::of_processor();
        for _ in 0..1000 {
            assert_eq!(halt.monitor(&byte), halt != Halt::None);
            halt.halt();
        }
    }
}

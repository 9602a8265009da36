//! Client requests of callgrind, which switch instrumentation on and off. See
//! its manual, "Client requests"; the codes are those of `valgrind.h` and
//! `callgrind.h`.

/// Whether client requests are implemented here for this processor.
pub(crate) const CAN_SWITCH: bool = cfg!(target_arch = "x86_64");

/// `VG_USERREQ_TOOL_BASE('C','T')`.
const CALLGRIND: u64 = 0x4354_0000;
const START_INSTRUMENTATION: u64 = CALLGRIND + 4;
const STOP_INSTRUMENTATION: u64 = CALLGRIND + 5;

/// Switches instrumentation on, with an empty cache. Does nothing without
/// valgrind.
pub(crate) fn start() {
    request(START_INSTRUMENTATION);
}

/// Switches instrumentation off.
pub(crate) fn stop() {
    request(STOP_INSTRUMENTATION);
}

#[cfg(target_arch = "x86_64")]
fn request(code: u64) {
    let arguments = [code, 0, 0, 0, 0, 0];
    // SAFETY: the instructions rotate a register by 128 bits in total and exchange
    // a register with itself, so they change nothing. Valgrind recognizes the
    // sequence and returns its result in rdx.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") &raw const arguments,
            inout("rdx") 0_u64 => _,
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn request(_code: u64) {}

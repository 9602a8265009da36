//! Telling callgrind what to look at (its manual, "Client requests"; the codes
//! are those of `valgrind.h` and `callgrind.h`).

/// Whether the requests are known for this processor.
pub(super) const CAN_SWITCH: bool = cfg!(target_arch = "x86_64");

/// `VG_USERREQ_TOOL_BASE('C','T')`.
const CALLGRIND: u64 = 0x4354_0000;
const START_INSTRUMENTATION: u64 = CALLGRIND + 4;
const STOP_INSTRUMENTATION: u64 = CALLGRIND + 5;

/// Has callgrind look from now on, with a cold cache. Nothing without it.
pub(super) fn start() {
    request(START_INSTRUMENTATION);
}

/// Has it look away.
pub(super) fn stop() {
    request(STOP_INSTRUMENTATION);
}

#[cfg(target_arch = "x86_64")]
fn request(code: u64) {
    let arguments = [code, 0, 0, 0, 0, 0];
    // SAFETY: four rotations by 128 bits in all and an exchange of a register
    // with itself: nothing happens but under valgrind, which answers in rdx.
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

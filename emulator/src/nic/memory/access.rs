//! Single accesses to host memory that may not be there.
//!
//! A program may unmap or free what it has registered. The pages of a real
//! device stay pinned then; here the access faults. On x86-64 each of these
//! functions is a few instructions whose addresses are known, so the handler
//! of the signal ([`resume`], called by `crate::trap`) can let the thread go
//! on at a place that answers "fault": as a kernel does with the addresses its
//! users give it. They cost a call.
//!
//! Elsewhere, and where the program keeps the signal away, a fault is the end
//! of the process.

#[cfg(target_arch = "x86_64")]
mod machine {
    use core::arch::global_asm;

    /// A value and whether there was none: `rax` and `rdx`.
    #[repr(C)]
    pub(super) struct Answer {
        pub(super) value: u64,
        pub(super) fault: u64,
    }

    // Leaf functions that touch no stack: at every instruction the return
    // address is on its top, so the one place to resume at serves all.
    global_asm!(
        ".pushsection .text.mlx5emu_access,\"ax\",@progbits",
        ".balign 16",
        ".globl mlx5emu_access_begin",
        ".hidden mlx5emu_access_begin",
        "mlx5emu_access_begin:",
        ".irp size, 1, 2, 4, 8, 64",
        ".globl mlx5emu_load\\size",
        ".hidden mlx5emu_load\\size",
        ".globl mlx5emu_store\\size",
        ".hidden mlx5emu_store\\size",
        ".endr",
        ".globl mlx5emu_compare_swap",
        ".hidden mlx5emu_compare_swap",
        ".globl mlx5emu_fetch_add",
        ".hidden mlx5emu_fetch_add",
        "mlx5emu_load1:",
        "movzx eax, byte ptr [rdi]",
        "xor edx, edx",
        "ret",
        "mlx5emu_load2:",
        "movzx eax, word ptr [rdi]",
        "xor edx, edx",
        "ret",
        "mlx5emu_load4:",
        "mov eax, dword ptr [rdi]",
        "xor edx, edx",
        "ret",
        "mlx5emu_load8:",
        "mov rax, qword ptr [rdi]",
        "xor edx, edx",
        "ret",
        "mlx5emu_load64:",
        ".irp at, 0, 8, 16, 24, 32, 40, 48, 56",
        "mov rax, qword ptr [rdi + \\at]",
        "mov qword ptr [rsi + \\at], rax",
        ".endr",
        "xor edx, edx",
        "ret",
        "mlx5emu_store1:",
        "mov byte ptr [rdi], sil",
        "xor edx, edx",
        "ret",
        "mlx5emu_store2:",
        "mov word ptr [rdi], si",
        "xor edx, edx",
        "ret",
        "mlx5emu_store4:",
        "mov dword ptr [rdi], esi",
        "xor edx, edx",
        "ret",
        "mlx5emu_store8:",
        "mov qword ptr [rdi], rsi",
        "xor edx, edx",
        "ret",
        "mlx5emu_store64:",
        ".irp at, 0, 8, 16, 24, 32, 40, 48, 56",
        "mov rax, qword ptr [rsi + \\at]",
        "mov qword ptr [rdi + \\at], rax",
        ".endr",
        "xor edx, edx",
        "ret",
        "mlx5emu_compare_swap:",
        "mov rax, rsi",
        "lock cmpxchg qword ptr [rdi], rdx",
        "mov edx, 0",
        "ret",
        "mlx5emu_fetch_add:",
        "mov rax, rsi",
        "lock xadd qword ptr [rdi], rax",
        "xor edx, edx",
        "ret",
        ".globl mlx5emu_access_fault",
        ".hidden mlx5emu_access_fault",
        "mlx5emu_access_fault:",
        "mov edx, 1",
        "ret",
        ".popsection",
    );

    unsafe extern "sysv64" {
        static mlx5emu_access_begin: u8;
        static mlx5emu_access_fault: u8;
        pub(super) fn mlx5emu_load1(host: u64) -> Answer;
        pub(super) fn mlx5emu_load2(host: u64) -> Answer;
        pub(super) fn mlx5emu_load4(host: u64) -> Answer;
        pub(super) fn mlx5emu_load8(host: u64) -> Answer;
        pub(super) fn mlx5emu_load64(host: u64, into: *mut u8) -> Answer;
        pub(super) fn mlx5emu_store1(host: u64, value: u8) -> Answer;
        pub(super) fn mlx5emu_store2(host: u64, value: u16) -> Answer;
        pub(super) fn mlx5emu_store4(host: u64, value: u32) -> Answer;
        pub(super) fn mlx5emu_store8(host: u64, value: u64) -> Answer;
        pub(super) fn mlx5emu_store64(host: u64, from: *const u8) -> Answer;
        pub(super) fn mlx5emu_compare_swap(host: u64, compare: u64, swap: u64) -> Answer;
        pub(super) fn mlx5emu_fetch_add(host: u64, add: u64) -> Answer;
    }

    /// Where a thread that faulted at `at` goes on, if it was in here.
    pub(crate) fn resume(at: u64) -> Option<u64> {
        let begin = &raw const mlx5emu_access_begin as u64;
        let fault = &raw const mlx5emu_access_fault as u64;
        (begin..fault).contains(&at).then_some(fault)
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod machine {
    use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

    pub(super) struct Answer {
        pub(super) value: u64,
        pub(super) fault: u64,
    }

    fn good(value: u64) -> Answer {
        Answer { value, fault: 0 }
    }

    macro_rules! word {
        ($load:ident, $store:ident, $atomic:ty, $plain:ty) => {
            pub(super) unsafe fn $load(host: u64) -> Answer {
                // SAFETY: the caller's address, aligned.
                let word = unsafe { <$atomic>::from_ptr(host as *mut $plain) };
                good(word.load(Ordering::Acquire).into())
            }
            pub(super) unsafe fn $store(host: u64, value: $plain) -> Answer {
                // SAFETY: as above.
                let word = unsafe { <$atomic>::from_ptr(host as *mut $plain) };
                word.store(value, Ordering::Release);
                good(0)
            }
        };
    }
    word!(mlx5emu_load1, mlx5emu_store1, AtomicU8, u8);
    word!(mlx5emu_load2, mlx5emu_store2, AtomicU16, u16);
    word!(mlx5emu_load4, mlx5emu_store4, AtomicU32, u32);
    word!(mlx5emu_load8, mlx5emu_store8, AtomicU64, u64);

    pub(super) unsafe fn mlx5emu_load64(host: u64, into: *mut u8) -> Answer {
        for at in (0..64).step_by(8) {
            // SAFETY: inside both ranges.
            unsafe {
                let word = mlx5emu_load8(host + at).value;
                into.add(at as usize).cast::<u64>().write_unaligned(word);
            }
        }
        good(0)
    }

    pub(super) unsafe fn mlx5emu_store64(host: u64, from: *const u8) -> Answer {
        for at in (0..64).step_by(8) {
            // SAFETY: inside both ranges.
            unsafe {
                let word = from.add(at as usize).cast::<u64>().read_unaligned();
                mlx5emu_store8(host + at, word);
            }
        }
        good(0)
    }

    pub(super) unsafe fn mlx5emu_compare_swap(host: u64, compare: u64, swap: u64) -> Answer {
        // SAFETY: the caller's address, aligned.
        let word = unsafe { AtomicU64::from_ptr(host as *mut u64) };
        let was = word.compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire);
        good(was.unwrap_or_else(|other| other))
    }

    pub(super) unsafe fn mlx5emu_fetch_add(host: u64, add: u64) -> Answer {
        // SAFETY: the caller's address, aligned.
        let word = unsafe { AtomicU64::from_ptr(host as *mut u64) };
        good(word.fetch_add(add, Ordering::AcqRel))
    }

    pub(crate) fn resume(_at: u64) -> Option<u64> {
        None
    }
}

pub(crate) use machine::resume;

/// Bytes of a block.
pub(super) const BLOCK: usize = 64;

fn answer(answer: machine::Answer) -> Option<u64> {
    (answer.fault == 0).then_some(answer.value)
}

// SAFETY of all below: an address that is not mapped is answered (or, where
// nothing guards, ends the process); what is mapped and given to the device is
// memory that this program shares with it. Loads acquire and stores release:
// on x86-64 every one does.

pub(super) fn load8(host: u64) -> Option<u8> {
    // SAFETY: see above.
    answer(unsafe { machine::mlx5emu_load1(host) }).map(|value| value as u8)
}

pub(super) fn load16(host: u64) -> Option<u16> {
    // SAFETY: see above.
    answer(unsafe { machine::mlx5emu_load2(host) }).map(|value| value as u16)
}

pub(super) fn load32(host: u64) -> Option<u32> {
    // SAFETY: see above.
    answer(unsafe { machine::mlx5emu_load4(host) }).map(|value| value as u32)
}

pub(super) fn load64(host: u64) -> Option<u64> {
    // SAFETY: see above.
    answer(unsafe { machine::mlx5emu_load8(host) })
}

pub(super) fn load_block(host: u64, into: &mut [u8; BLOCK]) -> Option<()> {
    // SAFETY: see above; `into` has room for a block.
    answer(unsafe { machine::mlx5emu_load64(host, into.as_mut_ptr()) }).map(|_| ())
}

pub(super) fn store8(host: u64, value: u8) -> Option<()> {
    // SAFETY: see above.
    answer(unsafe { machine::mlx5emu_store1(host, value) }).map(|_| ())
}

pub(super) fn store16(host: u64, value: u16) -> Option<()> {
    // SAFETY: see above.
    answer(unsafe { machine::mlx5emu_store2(host, value) }).map(|_| ())
}

pub(super) fn store32(host: u64, value: u32) -> Option<()> {
    // SAFETY: see above.
    answer(unsafe { machine::mlx5emu_store4(host, value) }).map(|_| ())
}

pub(super) fn store64(host: u64, value: u64) -> Option<()> {
    // SAFETY: see above.
    answer(unsafe { machine::mlx5emu_store8(host, value) }).map(|_| ())
}

pub(super) fn store_block(host: u64, from: &[u8; BLOCK]) -> Option<()> {
    // SAFETY: see above; `from` has a block.
    answer(unsafe { machine::mlx5emu_store64(host, from.as_ptr()) }).map(|_| ())
}

/// Answers what was there.
pub(super) fn compare_swap(host: u64, compare: u64, swap: u64) -> Option<u64> {
    // SAFETY: see above.
    answer(unsafe { machine::mlx5emu_compare_swap(host, compare, swap) })
}

/// Answers what was there.
pub(super) fn fetch_add(host: u64, add: u64) -> Option<u64> {
    // SAFETY: see above.
    answer(unsafe { machine::mlx5emu_fetch_add(host, add) })
}

//! The memory accesses.
//!
//! Each is a leaf function without a stack frame: wherever a signal interrupts
//! it, the return address is on top of the stack, so the handler can continue the
//! thread at a common exit that returns 1. Words of 1, 2, 4 and 8 bytes are
//! copied whole. Longer ranges are copied word by word in ascending order up to
//! 256 bytes, and above that by a string instruction, whose stores become visible
//! before later ones.

use super::AccessFault;

/// A word that is loaded and stored whole.
pub(crate) trait Word: Copy {
    #[doc(hidden)]
    fn load(address: u64, into: &mut Self) -> u32;
    #[doc(hidden)]
    fn store(address: u64, from: &Self) -> u32;
}

fn result_of(status: u32) -> Result<(), AccessFault> {
    if status == 0 {
        Ok(())
    } else {
        Err(AccessFault)
    }
}

/// Loads an aligned word.
///
/// # Errors
/// Returns an error if the memory is not mapped or not readable.
#[inline]
pub(crate) fn load<T: Word + Default>(address: u64) -> Result<T, AccessFault> {
    let mut value = T::default();
    result_of(T::load(address, &mut value))?;
    Ok(value)
}

/// Stores an aligned word, after all earlier stores.
///
/// # Errors
/// Returns an error if the memory is not mapped or not writable.
#[inline]
pub(crate) fn store<T: Word>(address: u64, value: T) -> Result<(), AccessFault> {
    result_of(T::store(address, &value))
}

/// Loads aligned words of 8 bytes. The length of `into` is a multiple of 8.
///
/// # Errors
/// Returns an error if part of the memory is not mapped or not readable.
#[inline]
pub(crate) fn load_words(address: u64, into: &mut [u8]) -> Result<(), AccessFault> {
    debug_assert!(into.len().is_multiple_of(8));
    result_of(machine::copy_in(address, into))
}

/// Stores aligned words of 8 bytes. The length of `from` is a multiple of 8.
///
/// # Errors
/// Returns an error if part of the memory is not mapped or not writable. Words
/// before that part may have been stored.
#[inline]
pub(crate) fn store_words(address: u64, from: &[u8]) -> Result<(), AccessFault> {
    debug_assert!(from.len().is_multiple_of(8));
    result_of(machine::copy_out(address, from))
}

/// Adds to an aligned word of 8 bytes atomically. Returns the previous value.
///
/// # Errors
/// The same as for [`store`].
pub(crate) fn add(address: u64, value: u64) -> Result<u64, AccessFault> {
    let mut was = 0;
    result_of(machine::add(address, value, &mut was))?;
    Ok(was)
}

/// Replaces an aligned word of 8 bytes by `swap` atomically if it equals
/// `compare`. Returns the previous value.
///
/// # Errors
/// The same as for [`store`].
pub(crate) fn compare_swap(address: u64, compare: u64, swap: u64) -> Result<u64, AccessFault> {
    let mut was = compare;
    result_of(machine::compare_swap(address, &mut was, swap))?;
    Ok(was)
}

pub(super) use machine::{CAN_RECOVER, continue_at_exit};

#[cfg(target_arch = "x86_64")]
mod machine {
    use std::arch::global_asm;
    use std::ffi::c_void;

    use super::Word;

    pub(in crate::guard) const CAN_RECOVER: bool = true;

    // Arguments in rdi, rsi, rdx; status in eax. The operand in the program's
    // memory is always the one addressed by rdi (for copies, rdi or rsi).
    global_asm!(
        ".pushsection .text.mlx5emu_guard, \"ax\", @progbits",
        // Global and hidden: the rest of this crate may be in other objects.
        ".globl mlx5emu_guard_begin",
        ".hidden mlx5emu_guard_begin",
        ".globl mlx5emu_guard_end",
        ".hidden mlx5emu_guard_end",
        ".globl mlx5emu_guard_exit",
        ".hidden mlx5emu_guard_exit",
        ".globl mlx5emu_guard_copy",
        ".hidden mlx5emu_guard_copy",
        ".globl mlx5emu_guard_add",
        ".hidden mlx5emu_guard_add",
        ".globl mlx5emu_guard_compare_swap",
        ".hidden mlx5emu_guard_compare_swap",
        ".globl mlx5emu_guard_load_1",
        ".hidden mlx5emu_guard_load_1",
        ".globl mlx5emu_guard_load_2",
        ".hidden mlx5emu_guard_load_2",
        ".globl mlx5emu_guard_load_4",
        ".hidden mlx5emu_guard_load_4",
        ".globl mlx5emu_guard_load_8",
        ".hidden mlx5emu_guard_load_8",
        ".globl mlx5emu_guard_store_1",
        ".hidden mlx5emu_guard_store_1",
        ".globl mlx5emu_guard_store_2",
        ".hidden mlx5emu_guard_store_2",
        ".globl mlx5emu_guard_store_4",
        ".hidden mlx5emu_guard_store_4",
        ".globl mlx5emu_guard_store_8",
        ".hidden mlx5emu_guard_store_8",
        ".balign 16",
        "mlx5emu_guard_begin:",
        "mlx5emu_guard_load_1: movzx eax, byte ptr [rdi]",
        "mov byte ptr [rsi], al",
        "xor eax, eax",
        "ret",
        "mlx5emu_guard_load_2: movzx eax, word ptr [rdi]",
        "mov word ptr [rsi], ax",
        "xor eax, eax",
        "ret",
        "mlx5emu_guard_load_4: mov eax, dword ptr [rdi]",
        "mov dword ptr [rsi], eax",
        "xor eax, eax",
        "ret",
        "mlx5emu_guard_load_8: mov rax, qword ptr [rdi]",
        "mov qword ptr [rsi], rax",
        "xor eax, eax",
        "ret",
        "mlx5emu_guard_store_1: mov al, byte ptr [rsi]",
        "mov byte ptr [rdi], al",
        "xor eax, eax",
        "ret",
        "mlx5emu_guard_store_2: mov ax, word ptr [rsi]",
        "mov word ptr [rdi], ax",
        "xor eax, eax",
        "ret",
        "mlx5emu_guard_store_4: mov eax, dword ptr [rsi]",
        "mov dword ptr [rdi], eax",
        "xor eax, eax",
        "ret",
        "mlx5emu_guard_store_8: mov rax, qword ptr [rsi]",
        "mov qword ptr [rdi], rax",
        "xor eax, eax",
        "ret",
        // rdi: destination, rsi: source, rdx: number of words, at least one.
        "mlx5emu_guard_copy: cmp rdx, 32",
        "ja 3f",
        "2: mov rax, qword ptr [rsi]",
        "mov qword ptr [rdi], rax",
        "add rsi, 8",
        "add rdi, 8",
        "dec rdx",
        "jnz 2b",
        "xor eax, eax",
        "ret",
        "3: mov rcx, rdx",
        "rep movsq",
        "xor eax, eax",
        "ret",
        // rdi: word, rsi: addend, rdx: receives the previous value.
        "mlx5emu_guard_add: mov rax, rsi",
        "lock xadd qword ptr [rdi], rax",
        "mov qword ptr [rdx], rax",
        "xor eax, eax",
        "ret",
        // rdi: word, rsi: compare value, receives the previous one; rdx: swap.
        "mlx5emu_guard_compare_swap: mov rax, qword ptr [rsi]",
        "lock cmpxchg qword ptr [rdi], rdx",
        "mov qword ptr [rsi], rax",
        "xor eax, eax",
        "ret",
        "mlx5emu_guard_end:",
        "mlx5emu_guard_exit: mov eax, 1",
        "ret",
        ".popsection",
    );

    unsafe extern "C" {
        fn mlx5emu_guard_begin();
        fn mlx5emu_guard_end();
        fn mlx5emu_guard_exit();
        fn mlx5emu_guard_copy(to: u64, from: u64, words: usize) -> u32;
        fn mlx5emu_guard_add(word: u64, value: u64, was: &mut u64) -> u32;
        fn mlx5emu_guard_compare_swap(word: u64, compare: &mut u64, swap: u64) -> u32;
    }

    macro_rules! word {
        ($type:ty, $load:ident, $store:ident) => {
            unsafe extern "C" {
                fn $load(address: u64, into: &mut $type) -> u32;
                fn $store(address: u64, from: &$type) -> u32;
            }
            impl Word for $type {
                #[inline]
                fn load(address: u64, into: &mut Self) -> u32 {
                    // SAFETY: the function reads the program's word, which
                    // may be unmapped, and writes `into`.
                    unsafe { $load(address, into) }
                }
                #[inline]
                fn store(address: u64, from: &Self) -> u32 {
                    // SAFETY: the function reads `from` and writes a word of
                    // memory that the program gave to the device, which may
                    // be unmapped.
                    unsafe { $store(address, from) }
                }
            }
        };
    }
    word!(u8, mlx5emu_guard_load_1, mlx5emu_guard_store_1);
    word!(u16, mlx5emu_guard_load_2, mlx5emu_guard_store_2);
    word!(u32, mlx5emu_guard_load_4, mlx5emu_guard_store_4);
    word!(u64, mlx5emu_guard_load_8, mlx5emu_guard_store_8);

    pub(super) fn copy_in(address: u64, into: &mut [u8]) -> u32 {
        match into.len() / 8 {
            0 => 0,
            // SAFETY: writes whole words of `into` only; reads as for `Word::load`.
            words => unsafe { mlx5emu_guard_copy(into.as_mut_ptr() as u64, address, words) },
        }
    }

    pub(super) fn copy_out(address: u64, from: &[u8]) -> u32 {
        match from.len() / 8 {
            0 => 0,
            // SAFETY: reads whole words of `from` only; writes as for `Word::store`.
            words => unsafe { mlx5emu_guard_copy(address, from.as_ptr() as u64, words) },
        }
    }

    pub(super) fn add(address: u64, value: u64, was: &mut u64) -> u32 {
        // SAFETY: as for `Word::store`.
        unsafe { mlx5emu_guard_add(address, value, was) }
    }

    pub(super) fn compare_swap(address: u64, was: &mut u64, swap: u64) -> u32 {
        // SAFETY: as for `Word::store`.
        unsafe { mlx5emu_guard_compare_swap(address, was, swap) }
    }

    /// Continues the interrupted thread at the exit if it was executing one of
    /// the instructions above. Returns whether it was.
    ///
    /// # Safety
    /// `context` is the third argument of a running `SA_SIGINFO` handler.
    pub(in crate::guard) unsafe fn continue_at_exit(context: *mut c_void) -> bool {
        // SAFETY: `context` is that of a running signal handler.
        let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        let at = registers[libc::REG_RIP as usize].cast_unsigned();
        let begin = mlx5emu_guard_begin as *const () as u64;
        let end = mlx5emu_guard_end as *const () as u64;
        let was_there = (begin..end).contains(&at);
        if was_there {
            let exit = mlx5emu_guard_exit as *const () as u64;
            registers[libc::REG_RIP as usize] = exit.cast_signed();
        }
        was_there
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod machine {
    //! Accesses that cannot recover from a fault.

    use std::ffi::c_void;
    use std::sync::atomic::{AtomicU64, Ordering, fence};

    use super::Word;

    pub(in crate::guard) const CAN_RECOVER: bool = false;

    macro_rules! word {
        ($($type:ty)*) => {$(
            impl Word for $type {
                #[inline]
                fn load(address: u64, into: &mut Self) -> u32 {
                    // SAFETY: memory that the program gave to the device.
                    *into = unsafe { (address as *const $type).read_volatile() };
                    fence(Ordering::Acquire);
                    0
                }
                #[inline]
                fn store(address: u64, from: &Self) -> u32 {
                    fence(Ordering::Release);
                    // SAFETY: as for `load`.
                    unsafe { (address as *mut $type).write_volatile(*from) };
                    0
                }
            }
        )*};
    }
    word!(u8 u16 u32 u64);

    pub(super) fn copy_in(address: u64, into: &mut [u8]) -> u32 {
        for (at, word) in (address..).step_by(8).zip(into.as_chunks_mut::<8>().0) {
            // SAFETY: memory that the program gave to the device.
            *word = unsafe { (at as *const u64).read_volatile() }.to_ne_bytes();
        }
        0
    }

    pub(super) fn copy_out(address: u64, from: &[u8]) -> u32 {
        for (at, word) in (address..).step_by(8).zip(from.as_chunks::<8>().0) {
            // SAFETY: as for `copy_in`.
            unsafe { (at as *mut u64).write_volatile(u64::from_ne_bytes(*word)) };
        }
        0
    }

    fn word<'a>(address: u64) -> &'a AtomicU64 {
        // SAFETY: aligned memory that the program gave to the device; the
        // reference does not outlive the one operation.
        unsafe { AtomicU64::from_ptr(address as *mut u64) }
    }

    pub(super) fn add(address: u64, value: u64, was: &mut u64) -> u32 {
        *was = word(address).fetch_add(value, Ordering::AcqRel);
        0
    }

    pub(super) fn compare_swap(address: u64, was: &mut u64, swap: u64) -> u32 {
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let result_of = word(address).compare_exchange(*was, swap, success, failure);
        *was = result_of.unwrap_or_else(|other| other);
        0
    }

    pub(in crate::guard) unsafe fn continue_at_exit(_context: *mut c_void) -> bool {
        false
    }
}

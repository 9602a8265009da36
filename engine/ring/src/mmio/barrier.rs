//! Barriers between the processor and the device, each named by its situation.
//!
//! | here | rdma-core (`udma_barrier.h`) | x86-64 | AArch64 |
//! | --- | --- | --- | --- |
//! | `before_record` | `udma_to_device_barrier` | compiler | `dmb oshst` |
//! | `before_register` | `mmio_wc_start` | `sfence` | `dsb st` |
//! | `after_register` | `mmio_flush_writes` | `sfence` | `dsb st` |
//! | `after_ownership` | `udma_from_device_barrier` | compiler | `dmb oshld` |
//! | `before_release` | – | compiler | `dmb oshld` |
//!
//! The sources disagree in two places.
//!
//! - **After the ownership check on x86-64**, rdma-core executes `lfence`. UCX
//!   (`ucs_memory_cpu_load_fence`) and the kernel (`dma_rmb`) have a compiler
//!   barrier only. That is enough: a CQE is write-back memory, and x86-64 does
//!   not reorder loads from such memory with each other (Intel SDM vol. 3,
//!   8.2.2). An `lfence` would also keep the cache misses of consecutive CQEs
//!   from overlapping.
//! - **On AArch64**, rdma-core before version 55 uses `dsb` throughout; since
//!   then, as here, `dmb` in the outer shareable domain for normal memory, which is
//!   what the kernel's `dma_rmb` and `dma_wmb` are. The register is device or
//!   write-combining memory and keeps `dsb st`.
//!
//! Every barrier is at least a compiler barrier. Under Miri each is an atomic
//! fence, which Miri's memory model checks.

#[cfg(not(any(miri, target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("mmio::barrier supports x86-64 and AArch64; add this architecture's barriers");

#[cfg(all(target_arch = "x86_64", not(miri)))]
use self::x86_64 as arch;

#[cfg(all(target_arch = "aarch64", not(miri)))]
use self::aarch64 as arch;

#[cfg(miri)]
use self::model as arch;

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64 {
    use core::arch::asm;

    #[inline(always)]
    pub(crate) fn loads_before_anything() {
        // SAFETY: no instruction; the block only tells the compiler that memory
        // may be read and written here (no `nomem`).
        unsafe { asm!("", options(nostack, preserves_flags)) }
    }

    #[inline(always)]
    pub(crate) fn flush_stores() {
        // SAFETY: `sfence` exists on every x86-64 and changes nothing but the
        // order of stores.
        unsafe { asm!("sfence", options(nostack, preserves_flags)) }
    }

    /// The locked exchange that took the lock has drained the stores before it.
    #[inline(always)]
    pub(crate) fn flush_stores_locked() {
        loads_before_anything();
    }

    #[inline(always)]
    pub(crate) fn stores_before_stores() {
        loads_before_anything();
    }
}

/// `RUSTFLAGS='--cfg dat_check_aarch64' cargo check -p mlx5-rings` type-checks
/// this module on another host.
#[cfg(any(all(target_arch = "aarch64", not(miri)), dat_check_aarch64))]
#[cfg_attr(dat_check_aarch64, allow(dead_code))]
mod aarch64 {
    use core::arch::asm;

    #[inline(always)]
    pub(crate) fn flush_stores() {
        // SAFETY: `dsb st` waits for earlier stores and has no other effect.
        unsafe { asm!("dsb st", options(nostack, preserves_flags)) }
    }

    /// An acquire of the lock orders later accesses after it, but not the
    /// record's store before the register's.
    #[inline(always)]
    pub(crate) fn flush_stores_locked() {
        flush_stores();
    }

    #[inline(always)]
    pub(crate) fn stores_before_stores() {
        // SAFETY: `dmb oshst` orders stores and has no other effect.
        unsafe { asm!("dmb oshst", options(nostack, preserves_flags)) }
    }

    #[inline(always)]
    pub(crate) fn loads_before_anything() {
        // SAFETY: `dmb oshld` orders earlier loads before later accesses and
        // has no other effect.
        unsafe { asm!("dmb oshld", options(nostack, preserves_flags)) }
    }
}

#[cfg(miri)]
mod model {
    use core::sync::atomic::{Ordering, fence};

    pub(crate) fn flush_stores() {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn flush_stores_locked() {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn stores_before_stores() {
        fence(Ordering::Release);
    }

    pub(crate) fn loads_before_anything() {
        fence(Ordering::Acquire);
    }
}

/// Between the last store to a WQE and the store to the doorbell record: a
/// device that sees the record sees the WQE.
pub(crate) use arch::stores_before_stores as before_record;

/// Between the store to the doorbell record and the store to the register: a
/// device that takes the doorbell sees the record. The register is
/// write-combining, so on x86-64 the usual store order does not hold.
pub(crate) use arch::flush_stores as before_register;

/// [`before_register`] for a caller that has just taken the register's lock.
pub(crate) use arch::flush_stores_locked as before_register_locked;

/// After the last store to the register, before its lock is released or its
/// other half is written: the stores leave the processor now, as one doorbell,
/// and are not combined with the next.
pub(crate) use arch::flush_stores as after_register;

/// Between the load of a CQE's ownership byte and the loads of the rest of it
/// and of the memory that it reports.
pub(crate) use arch::loads_before_anything as after_ownership;

/// Between the last load from a CQE and the store of the consumer index that
/// lets the device overwrite it.
pub(crate) use arch::loads_before_anything as before_release;

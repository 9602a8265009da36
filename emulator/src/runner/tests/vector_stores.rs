//! Stores of vector registers, with which programs copy WQEs to BlueFlame registers.

use std::sync::atomic::Ordering;

use super::Fixture;
use crate::config::Wake;

/// Stores the first 32 or 64 bytes of `words` by one instruction.
type Store = unsafe fn(words: &[u64; 8], to: usize);

unsafe fn store_ymm(words: &[u64; 8], to: usize) {
    // SAFETY: reads 32 bytes of `words`, and writes them to memory that the caller
    // provides; the caller has checked for AVX.
    unsafe {
        std::arch::asm!(
            "vmovdqu ymm3, [{from}]", "vmovdqu [{to}], ymm3", "vzeroupper",
            from = in(reg) words.as_ptr(), to = in(reg) to, out("xmm3") _,
        );
    }
}

unsafe fn store_upper_zmm(words: &[u64; 8], to: usize) {
    // SAFETY: as above, with 64 bytes and AVX-512.
    unsafe {
        std::arch::asm!(
            "vmovdqu64 zmm19, [{from}]", "vmovdqu64 [{to}], zmm19",
            from = in(reg) words.as_ptr(), to = in(reg) to, out("xmm19") _,
        );
    }
}

#[test]
fn a_trapped_store_of_a_vector_register_has_its_first_bytes() {
    let kinds: [(bool, Store); 2] = [
        (is_x86_feature_detected!("avx"), store_ymm),
        (is_x86_feature_detected!("avx512f"), store_upper_zmm),
    ];
    let Some(fixture) = Fixture::create("vector-stores", Wake::Signal) else {
        return;
    };
    std::thread::scope(|scope| {
        let _stop = fixture.start(scope);
        for (turn, (supported, store)) in kinds.into_iter().cycle().take(20).enumerate() {
            if !supported {
                continue;
            }
            // Let the thread protect the page again.
            std::thread::sleep(std::time::Duration::from_millis(2));
            let first = turn as u64 + 1;
            // SAFETY: a page of the fixture; the processor has the instruction.
            unsafe { store(&[first, 2, 3, 4, 5, 6, 7, 8], fixture.app.addr(0) + 0x800) };
            fixture.until("the store is detected", || {
                fixture.inputs.last.load(Ordering::Acquire) == first
            });
        }
    });
}

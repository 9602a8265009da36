//! The store tracer records each store once, in order, with its exact length.
//! A shadow page keeps stores from the device.

#![cfg(target_arch = "x86_64")]

use core::arch::asm;
use core::ptr;

use crate::support::shadow_page::ShadowPage;
use crate::support::store_tracer::{PAGE, Store, StoreTracer, coalesced};

/// Pages of a memory file, mapped twice: for the program, and for a device.
struct TwoViews {
    program: usize,
    device: usize,
}

impl TwoViews {
    fn new() -> Self {
        // SAFETY: a new memory file, mapped at an address of the kernel's choice.
        unsafe {
            let fd = libc::memfd_create(c"views".as_ptr(), 0);
            assert!(fd >= 0);
            assert_eq!(libc::ftruncate(fd, 2 * PAGE as i64), 0);
            let map = || {
                let protection = libc::PROT_READ | libc::PROT_WRITE;
                libc::mmap(
                    ptr::null_mut(),
                    2 * PAGE,
                    protection,
                    libc::MAP_SHARED,
                    fd,
                    0,
                ) as usize
            };
            let views = TwoViews {
                program: map(),
                device: map(),
            };
            libc::close(fd);
            views
        }
    }

    fn tracer(&self) -> StoreTracer {
        let mut tracer = StoreTracer::default();
        // SAFETY: the views belong to this test and live until its end.
        unsafe { tracer.watch(self.program, 2 * PAGE) };
        tracer
    }

    fn device_byte(&self, offset: usize) -> u8 {
        // SAFETY: inside the mapping.
        unsafe { ptr::read_volatile((self.device + offset) as *const u8) }
    }
}

impl Drop for TwoViews {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, not used afterwards.
        unsafe {
            libc::munmap(self.program as *mut _, 2 * PAGE);
            libc::munmap(self.device as *mut _, 2 * PAGE);
        }
    }
}

fn store(addr: usize, bytes: &[u8]) -> Store {
    Store {
        addr,
        bytes: bytes.to_vec(),
    }
}

#[test]
fn stores_are_recorded_in_order_with_their_lengths() {
    let views = TwoViews::new();
    let at = views.program;
    let ((), stores) = views.tracer().record(|| {
        // SAFETY: inside the mapping, aligned.
        unsafe {
            ptr::write_volatile((at + 0x808) as *mut u64, 0x0102_0304_0506_0708);
            ptr::write_volatile((at + 4) as *mut u32, 0xaabb_ccdd);
            ptr::write_volatile((at + 0x808) as *mut u16, 0xeeff);
            ptr::write_volatile((at + PAGE) as *mut u8, 7);
        }
    });
    assert_eq!(
        stores,
        [
            store(at + 0x808, &[8, 7, 6, 5, 4, 3, 2, 1]),
            store(at + 4, &[0xdd, 0xcc, 0xbb, 0xaa]),
            store(at + 0x808, &[0xff, 0xee]),
            store(at + PAGE, &[7]),
        ]
    );
    assert_eq!(
        views.device_byte(0x808),
        0xff,
        "the last store is in the page"
    );
    assert_eq!(
        views.device_byte(0x80a),
        6,
        "and so is what it left of the first"
    );
    assert_eq!(
        views.device_byte(0x810),
        0,
        "and nothing of the tracer's own"
    );
}

#[test]
fn a_store_that_changes_nothing_is_a_store() {
    let views = TwoViews::new();
    for fill in [0u64, 0xa5a5_a5a5_a5a5_a5a5, !0xa5a5_a5a5_a5a5_a5a5] {
        let at = views.program + 0x20;
        // SAFETY: inside the mapping, aligned.
        unsafe { ptr::write_volatile(at as *mut u64, fill) };
        let ((), stores) = views.tracer().record(|| {
            // SAFETY: inside the mapping, aligned.
            unsafe { ptr::write_volatile(at as *mut u64, fill) };
        });
        assert_eq!(stores, [store(at, &fill.to_ne_bytes())]);
    }
}

#[test]
fn a_copy_is_one_write_whatever_instructions_made_it() {
    let views = TwoViews::new();
    let source: Vec<u8> = (0..64).map(|i| 3 * i + 1).collect();
    let at = views.program + 0xa00;
    let by_words = || {
        for i in 0..8 {
            // SAFETY: 64 bytes at both.
            unsafe {
                let word = ptr::read_unaligned(source.as_ptr().cast::<u64>().add(i));
                ptr::write_volatile((at as *mut u64).add(i), word);
            }
        }
    };
    let by_vectors = || {
        for i in (0..64).step_by(16) {
            // SAFETY: 16 bytes at both; xmm0 is declared.
            unsafe {
                asm!("movdqu xmm0, [{s}]", "movaps [{d}], xmm0",
                    s = in(reg) source.as_ptr().add(i), d = in(reg) at + i, out("xmm0") _);
            }
        }
    };
    let by_string = || {
        // SAFETY: 64 bytes at both; the registers are declared.
        unsafe {
            asm!("rep movsb", inout("rcx") 64usize => _, inout("rsi") source.as_ptr() => _,
                inout("rdi") at => _);
        }
    };
    let ((), words) = views.tracer().record(by_words);
    let ((), vectors) = views.tracer().record(by_vectors);
    let ((), bytes) = views.tracer().record(by_string);
    assert_eq!((words.len(), vectors.len(), bytes.len()), (8, 4, 64));
    for stores in [words, vectors, bytes] {
        assert_eq!(coalesced(stores), [store(at, &source)]);
    }
}

#[test]
fn an_exchange_is_recorded_and_executed_once() {
    let views = TwoViews::new();
    let at = views.program + 0x100;
    // SAFETY: inside the mapping, aligned; no other reference to it exists.
    let word = unsafe { core::sync::atomic::AtomicU32::from_ptr(at as *mut u32) };
    word.store(41, core::sync::atomic::Ordering::Relaxed);
    let (old, stores) = views
        .tracer()
        .record(|| word.swap(42, core::sync::atomic::Ordering::SeqCst));
    assert_eq!(
        (old, word.load(core::sync::atomic::Ordering::Relaxed)),
        (41, 42)
    );
    assert_eq!(stores, [store(at, &42u32.to_ne_bytes())]);
}

#[test]
fn stores_elsewhere_and_afterwards_are_not_recorded() {
    let views = TwoViews::new();
    let mut elsewhere = vec![0u8; PAGE];
    let tracer = views.tracer();
    let (sum, stores) = tracer.record(|| {
        elsewhere.fill(1);
        elsewhere.iter().map(|&byte| u32::from(byte)).sum::<u32>()
    });
    assert_eq!((sum, stores), (PAGE as u32, vec![]));
    // SAFETY: inside the mapping; a protected page would end the test here.
    unsafe { ptr::write_volatile(views.program as *mut u8, 1) };
    let ((), stores) = tracer.record(|| ());
    assert_eq!(stores, []);
}

/// The device reads nothing but what is forwarded, until the registers return.
#[test]
fn a_shadow_page_keeps_stores_from_the_device() {
    let views = TwoViews::new();
    let store = |value: u8| {
        // SAFETY: inside the mapping.
        unsafe { ptr::write_volatile((views.program + 8) as *mut u8, value) };
    };
    store(1);
    // SAFETY: the page belongs to this test, and is mapped until its end.
    let shadow = unsafe { ShadowPage::over(views.program + 8) };
    store(2);
    assert_eq!(views.device_byte(8), 1);
    shadow.forward(8);
    assert_eq!(views.device_byte(8), 2);
    store(3);
    drop(shadow);
    assert_eq!(views.device_byte(8), 2);
    store(4);
    assert_eq!(views.device_byte(8), 4);
}

//! The call itself: side effects that it must not have, and what is allowed after
//! it.

use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dat::abi::*;

use super::{DEFAULT, message, post};
use crate::support::{
    End, Fixture, Pair, Shape, abilities, allocations, fails, nothing_on, ok, wait,
};

/// Returns how often this thread has given up its core to wait.
fn waits() -> i64 {
    // SAFETY: integers, for which zero is valid; the result is writable.
    unsafe {
        let mut usage: libc::rusage = mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
        usage.ru_nvcsw
    }
}

/// Page faults do not count; they end once the ring has been used throughout.
#[test]
fn ep_post_recv_r06_posting_neither_allocates_nor_waits() {
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    for recv_flags in [DEFAULT, DAT_COMPLETION_UNSIGNALLED_FLAG] {
        let shape = Shape {
            recv_flags,
            recvs: 1024,
            evd_qlen: 1024,
            ..Shape::default()
        };
        let end = End::new(&fixture, &shape);
        let one = [memory.segment(0, 8)];
        let many = [
            memory.segment(0, 8),
            memory.segment(64, 8),
            memory.segment(128, 8),
        ];
        let outside = [memory.segment(4090, 8)];
        ok(end.post_recv(&one, 0));
        let before = (allocations(), waits());
        let mut answers = 0;
        for _ in 0..340 {
            answers |= end.post_recv(&one, 1);
            answers |= end.post_recv(&many, 2);
            answers |= post(end.ep, 1, one.as_ptr().cast_mut(), 2, recv_flags);
        }
        ok(answers);
        let refused = end.post_recv(&outside, 3);
        for tag in 0..3 {
            ok(end.post_recv(&one, tag));
        }
        let full = end.post_recv(&one, 4);
        let after = (allocations(), waits());
        fails(refused, DAT_INVALID_PARAMETER);
        fails(full, DAT_INSUFFICIENT_RESOURCES);
        assert_eq!(after, before);
    }
}

/// After success no other call is needed for the device to use the buffer. (The
/// payload of a short message may stay in its CQE until the application polls, so
/// this message is long.)
#[test]
fn ep_post_recv_r06_success_means_that_the_device_has_the_buffer() {
    let fixture = Fixture::new();
    let mut memory = fixture.memory(4096);
    memory.write(0, &[7; 512]);
    let pair = Pair::new(&fixture, &Shape::default());
    ok(pair.passive.post_recv(&[memory.segment(1024, 600)], 1));
    ok(pair.active.post_send(&[memory.segment(0, 512)], 1, DEFAULT));
    fixture.run();
    // Read before any call polls an EVD.
    assert_eq!(memory.read(1024, 512), [7; 512]);
    assert_eq!(memory.read(1536, 88), [0; 88]);
}

/// An upcall posts while the thread that it interrupts may hold any lock. Here a
/// thread sleeps on the EVD of the same endpoint, and another polls its request
/// EVD.
#[test]
fn ep_post_recv_r06_a_thread_may_post_while_others_wait_for_the_events() {
    const MESSAGES: u64 = 300;
    let fixture = Fixture::new();
    let memory = fixture.memory(4096);
    let pair = Pair::new(&fixture, &Shape::default());
    let (from, to) = (pair.active, pair.passive);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiter = scope.spawn(move || {
            let to = to;
            for tag in 0..MESSAGES {
                let (answer, event, _) = wait(to.recv, 60_000_000, 1);
                ok(answer);
                assert_eq!(crate::support::dto(&event).cookie, tag);
            }
        });
        scope.spawn(|| {
            let end: End = to;
            while !done.load(Ordering::Acquire) {
                nothing_on(end.request);
                thread::yield_now();
            }
        });
        for tag in 0..MESSAGES {
            // The sender must not get ahead of the waiter: there is room for 16.
            while to.post_recv(&[memory.segment(1024, 8)], tag) != DAT_SUCCESS {
                thread::yield_now();
            }
            ok(from.post_send(&[memory.segment(0, 8)], tag, DEFAULT));
            fixture.run();
            assert_eq!(from.requested().status, DAT_DTO_SUCCESS);
        }
        let waited = waiter.join();
        done.store(true, Ordering::Release);
        assert!(waited.is_ok());
    });
}

#[test]
fn ep_post_recv_r14_the_segments_may_be_overwritten_on_return() {
    let fixture = Fixture::new();
    let mut memory = fixture.memory(4096);
    memory.write(0, b"one, two");
    let (_, provider) = abilities(&fixture);
    assert_eq!(provider.iov_ownership_on_return, DAT_IOV_CONSUMER);
    let pair = Pair::new(&fixture, &Shape::default());
    for count in [1, 2] {
        let mut iov = [memory.segment(1024, 5), memory.segment(2048, 5)];
        iov[0].pad = 0x5a5a_5a5a;
        ok(post(pair.passive.ep, count, iov.as_mut_ptr(), 1, DEFAULT));
        assert_eq!(
            iov[0].pad, 0x5a5a_5a5a,
            "the library must not write the list"
        );
        assert_eq!(
            (iov[0].virtual_address, iov[0].segment_length),
            (memory.address(1024), 5)
        );
        // SAFETY: integers, for which any byte is valid.
        unsafe { ptr::write_bytes(iov.as_mut_ptr(), 0xff, iov.len()) };
        let length = 4 * count as usize;
        let received = message(
            &fixture,
            &pair.active,
            &pair.passive,
            &[memory.segment(0, length)],
        );
        assert_eq!(
            (received.status, received.length),
            (DAT_DTO_SUCCESS, length as u64)
        );
    }
    assert_eq!(memory.read(1024, 6), b"one, \0");
    assert_eq!(memory.read(2048, 4), b"two\0");
}

/// After the call not even the page is accessed.
#[test]
fn ep_post_recv_r14_the_segments_may_be_unmapped_on_return() {
    let fixture = Fixture::new();
    let mut memory = fixture.memory(4096);
    memory.write(0, b"word");
    let pair = Pair::new(&fixture, &Shape::default());
    // SAFETY: a page that this test maps and unmaps.
    unsafe {
        let page = libc::mmap(
            ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(page, libc::MAP_FAILED);
        let iov: *mut DAT_LMR_TRIPLET = page.cast();
        iov.write(memory.segment(1024, 8));
        // The call only reads the page.
        assert_eq!(libc::mprotect(page, 4096, libc::PROT_READ), 0);
        ok(post(pair.passive.ep, 1, iov, 1, DEFAULT));
        assert_eq!(libc::munmap(page, 4096), 0);
    }
    let received = message(
        &fixture,
        &pair.active,
        &pair.passive,
        &[memory.segment(0, 4)],
    );
    assert_eq!((received.status, received.length), (DAT_DTO_SUCCESS, 4));
    assert_eq!(memory.read(1024, 4), b"word");
}

/// The published alignment is that of cache lines, and is advice: other buffers
/// work.
#[test]
fn ep_post_recv_r15_the_optimal_alignment_is_published_and_true() {
    let fixture = Fixture::new();
    let mut memory = fixture.memory(8192);
    memory.write(0, b"aligned or not");
    let (_, provider) = abilities(&fixture);
    let alignment = provider.optimal_buffer_alignment;
    assert!(alignment.is_power_of_two(), "{alignment}");
    assert_eq!(DAT_OPTIMAL_ALIGNMENT as u32 % alignment, 0, "{alignment}");
    // SAFETY: returns a number.
    let line = unsafe { libc::sysconf(libc::_SC_LEVEL1_DCACHE_LINESIZE) };
    if let Ok(line @ 1..) = u32::try_from(line) {
        assert_eq!(
            alignment % line,
            0,
            "alignment {alignment}, cache lines of {line} bytes"
        );
    }
    let pair = Pair::new(&fixture, &Shape::default());
    let base = 4096 - memory.address(4096) as usize % alignment as usize;
    for offset in [0, 1, 7, alignment as usize, alignment as usize - 1] {
        let at = base + offset;
        ok(pair.passive.post_recv(&[memory.segment(at, 64)], 1));
        let received = message(
            &fixture,
            &pair.active,
            &pair.passive,
            &[memory.segment(0, 14)],
        );
        assert_eq!((received.status, received.length), (DAT_DTO_SUCCESS, 14));
        assert_eq!(memory.read(at, 14), b"aligned or not");
    }
}

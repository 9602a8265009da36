//! The protocols of the rings with the device as a thread, in all interleavings that loom knows:
//! those of `tests/litmus`, in the memory model of the language. Each barrier is what it is under
//! Miri (`engine/ring/src/mmio/barrier.rs`), and each is needed: without it the protocol fails.
//! Loom executes no store before an earlier load, so it cannot show that `before_release` is
//! needed. Only with `--cfg loom`:
//!
//! ```text
//! perf-scripts/test loom
//! ```

#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::thread;

/// A barrier of the processor.
#[derive(Clone, Copy)]
struct Barrier(Option<Ordering>);

const BEFORE_RECORD: Barrier = Barrier(Some(Release));
const BEFORE_REGISTER: Barrier = Barrier(Some(SeqCst));
const AFTER_OWNERSHIP: Barrier = Barrier(Some(Acquire));
const NONE: Barrier = Barrier(None);

impl Barrier {
    fn execute(self) {
        if let Some(ordering) = self.0 {
            fence(ordering);
        }
    }
}

/// The words that processor and device share.
fn words<const N: usize>() -> Arc<[AtomicU32; N]> {
    Arc::new([(); N].map(|()| AtomicU32::new(0)))
}

/// The processor writes the words in this order, with a barrier behind each; the device reads
/// them, the last first, and `check` gets them in the order of the words.
fn protocol<const N: usize>(barriers: [Barrier; N], check: fn([u32; N])) {
    loom::model(move || {
        let words = words::<N>();
        let device = thread::spawn({
            let words = words.clone();
            move || {
                let mut read = [0; N];
                for at in (0..N).rev() {
                    read[at] = words[at].load(Relaxed);
                    fence(Acquire);
                }
                check(read);
            }
        });
        for (word, barrier) in words.iter().zip(barriers) {
            word.store(1, Relaxed);
            barrier.execute();
        }
        device.join().unwrap();
    });
}

/// A request, its number in the doorbell record, the doorbell.
fn send(before_record: Barrier, before_register: Barrier) {
    protocol(
        [before_record, before_register, NONE],
        |[request, record, doorbell]| {
            assert!(doorbell == 0 || record == 1, "no record for the doorbell");
            assert!(record == 0 || request == 1, "no request for the record");
        },
    );
}

/// The segments of a shared receive, the link to it, the record.
fn shared_receive(before_record: Barrier) {
    protocol([NONE, before_record, NONE], |[segments, link, record]| {
        assert!(record == 0 || link == 1, "no link for the record");
        assert!(record == 0 || segments == 1, "no segments for the record");
    });
}

/// The arm record, the arm register.
fn arm(before_register: Barrier) {
    protocol([before_register, NONE], |[record, register]| {
        assert!(register == 0 || record == 1, "armed by an older record");
    });
}

/// The device writes a message, its completion, the ownership byte.
fn completion(after_ownership: Barrier) {
    loom::model(move || {
        let words = words::<3>();
        let device = thread::spawn({
            let words = words.clone();
            move || {
                for word in &*words {
                    fence(Release);
                    word.store(1, Relaxed);
                }
            }
        });
        if words[2].load(Relaxed) == 1 {
            after_ownership.execute();
            let [message, completion] = [0, 1].map(|at| words[at].load(Relaxed));
            assert!(completion == 1, "an older completion");
            assert!(message == 1, "an older message");
        }
        device.join().unwrap();
    });
}

#[test]
fn each_protocol_holds() {
    send(BEFORE_RECORD, BEFORE_REGISTER);
    shared_receive(BEFORE_RECORD);
    arm(BEFORE_REGISTER);
    completion(AFTER_OWNERSHIP);
}

#[test]
#[should_panic(expected = "no request for the record")]
fn a_request_needs_before_record() {
    send(NONE, BEFORE_REGISTER);
}

#[test]
#[should_panic(expected = "no record for the doorbell")]
fn a_doorbell_needs_before_register() {
    send(BEFORE_RECORD, NONE);
}

#[test]
#[should_panic(expected = "for the record")]
fn a_shared_receive_needs_before_record() {
    shared_receive(NONE);
}

#[test]
#[should_panic(expected = "armed by an older record")]
fn an_arm_needs_before_register() {
    arm(NONE);
}

#[test]
#[should_panic(expected = "an older")]
fn a_completion_needs_after_ownership() {
    completion(NONE);
}

//! A process writes garbage to the shared memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::attachment::Attachment;
use super::segment::tests::{ring_offset, slot_offset};
use super::tests::{Scratch, eventually, packet, psns, readable, wake_peers};

/// The shared segment of a fabric, mapped like by another process of the user.
struct Corruptor(memmap2::MmapRaw);

impl Corruptor {
    fn new(at: &Attachment) -> Self {
        let file = open_segment(at);
        Self(memmap2::MmapOptions::new().map_raw(&file).unwrap())
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= self.0.len());
        // SAFETY: inside the mapping, and aligned by the callers.
        unsafe { AtomicU64::from_ptr(self.0.as_mut_ptr().add(offset).cast()) }
    }
}

fn open_segment(of: &Attachment) -> std::fs::File {
    let path = of.directory().join("segment");
    std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

/// Does what a receiver's NIC thread does.
fn serve(attachment: &mut Attachment) -> Vec<u32> {
    let found = psns(attachment);
    attachment.served();
    let wakes = attachment.take_wakes();
    attachment.waker().wake(wakes);
    found
}

#[test]
fn garbage_in_the_positions_of_a_ring_stalls_neither_end() {
    let scratch = Scratch::new("positions");
    let (mut one, mut two) = (scratch.join(), scratch.join());
    one.send(2, &packet(1, 2, 1, b"x")).unwrap();
    assert_eq!(serve(&mut two), [1]);
    let corruptor = Corruptor::new(&one);
    let ring = ring_offset(1, 2);
    for (n, (offset, garbage)) in (2..).zip([
        (0, u64::MAX / 2),
        (64, u64::MAX / 2),
        (0, 8),
        (64, 8),
        (0, 7_777_777),
        (64, 1),
    ]) {
        corruptor
            .word(ring + offset)
            .store(garbage, Ordering::SeqCst);
        eventually("the ring has room again", || {
            serve(&mut two);
            one.has_room(2)
        });
        eventually("the peer is no longer reported as busy", || {
            serve(&mut two);
            !one.peer_is_busy(2)
        });
        one.send(2, &packet(1, 2, n, b"x")).unwrap();
        let found = serve(&mut two);
        assert_eq!(found.last(), Some(&n), "{found:?}");
    }
}

#[test]
fn garbage_in_the_words_of_a_slot_is_corrected() {
    let scratch = Scratch::new("words");
    let (mut one, mut two) = (scratch.join(), scratch.join());
    one.send(2, &packet(1, 2, 1, b"x")).unwrap();
    assert_eq!(serve(&mut two), [1]);
    let corruptor = Corruptor::new(&one);
    let slot = slot_offset(2);
    // The word `serving`: the peer seems to be busy.
    corruptor.word(slot + 8).store(7, Ordering::SeqCst);
    eventually("the busy flag is cleared", || {
        let is_busy = one.peer_is_busy(2);
        wake_peers(&mut one);
        serve(&mut two);
        !is_busy
    });
    // `generation` and `sleep`: the peer seems to have exited, or to be awake.
    let generation = corruptor.word(slot).load(Ordering::SeqCst);
    two.waker().drain();
    two.waker().begin_sleep();
    corruptor
        .word(slot)
        .store(generation & !1, Ordering::SeqCst);
    one.send(2, &packet(1, 2, 2, b"x")).unwrap();
    assert_eq!(one.counters().undeliverable, 1);
    two.served();
    one.send(2, &packet(1, 2, 3, b"x")).unwrap();
    wake_peers(&mut one);
    // And `pending`: no packets seem to be pending.
    corruptor.word(slot + 64).store(0, Ordering::SeqCst);
    assert!(!readable(&two, Duration::ZERO) && !two.has_pending());
    eventually("the sender wakes the peer anyway", || {
        assert!(one.peer_is_busy(2));
        readable(&two, Duration::ZERO)
    });
    assert_eq!(psns(&mut two), [3]);
    // The process wakes its own thread without reading the shared word.
    two.waker().drain();
    corruptor.word(slot).store(generation, Ordering::SeqCst);
    two.waker().wake_own();
    assert!(readable(&two, Duration::ZERO));
}

#[test]
fn a_peer_that_keeps_writing_garbage_does_not_block_others() {
    let scratch = Scratch::new("without-end");
    let (mut one, mut two, mut three) = (scratch.join(), scratch.join(), scratch.join());
    for _ in 0..1000 {
        // From a slot that this process does not own: discarded.
        one.send(3, &packet(9, 3, 0, b"")).unwrap();
    }
    let mut payload = Vec::new();
    assert_eq!(three.receive(&mut payload), None);
    let discarded = three.counters().stale;
    assert!((1..1000).contains(&discarded), "{discarded} in one call");
    assert!(three.waker().has_pending(), "the caller calls again");
    two.send(3, &packet(2, 3, 7, b"")).unwrap();
    assert_eq!(three.receive(&mut payload).unwrap().psn, 7);
    assert!(three.counters().stale < 1000, "the other peer had its turn");
    while three.has_pending() {
        assert_eq!(three.receive(&mut payload), None);
    }
    assert_eq!(three.counters().stale, 1000);
}

#[test]
fn a_truncated_segment_is_reported_and_kills_no_process() {
    crate::trap::install_handlers().unwrap();
    for (test, left) in [("truncated", 0), ("shortened", ring_offset(1, 2) as u64)] {
        let scratch = Scratch::new(test);
        let (mut one, mut two) = (scratch.join(), scratch.join());
        one.send(2, &packet(1, 2, 1, b"x")).unwrap();
        two.send(1, &packet(2, 1, 1, b"x")).unwrap();
        assert_eq!((psns(&mut one), psns(&mut two)), (vec![1], vec![1]));
        assert!(!one.is_lost() && !two.is_lost());
        open_segment(&one).set_len(left).unwrap();
        assert!(!one.is_lost(), "not accessed yet");
        two.waker().begin_sleep();
        eventually("the sender notices", || {
            let _ = one.send(2, &packet(1, 2, 2, b"x"));
            one.is_lost()
        });
        let error = one.take_error().expect("reported once").to_string();
        assert!(error.contains("truncated"), "{error}");
        assert!(one.take_error().is_none());
        assert!(readable(&two, Duration::ZERO), "its peer is woken");
        two.waker().end_sleep();
        eventually(
            "the peer detects the store, or treats the process as exited",
            || {
                let _ = two.send(1, &packet(2, 1, 2, b"x"));
                psns(&mut two);
                two.is_lost() || two.counters().undeliverable != 0
            },
        );
        // A lost attachment drops packets, and reports nothing more.
        assert!(one.has_room(2) && !one.peer_is_busy(2));
        one.send(2, &packet(1, 2, 3, b"x")).unwrap();
        assert!(psns(&mut one).is_empty() && !one.has_pending());
    }
}

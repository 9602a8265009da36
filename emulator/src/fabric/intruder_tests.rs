//! A process that writes to the shared memory what it should not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::attachment::Attachment;
use super::segment::tests::{ring_offset, slot_offset};
use super::tests::{Scratch, eventually, packet, psns, readable, ring_urgent};

/// The shared segment of a fabric, as another process of the user sees it.
struct Intruder(memmap2::MmapRaw);

impl Intruder {
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

/// Lets a receiver do what its NIC thread does.
fn serve(attachment: &mut Attachment) -> Vec<u32> {
    let found = psns(attachment);
    attachment.served();
    let wakes = attachment.take_wakes();
    attachment.bells().ring(wakes);
    found
}

#[test]
fn garbage_in_the_positions_of_a_ring_stalls_neither_end() {
    let scratch = Scratch::new("positions");
    let (mut one, mut two) = (scratch.join(), scratch.join());
    one.send(2, &packet(1, 2, 1, b"x")).unwrap();
    assert_eq!(serve(&mut two), [1]);
    let intruder = Intruder::new(&one);
    let ring = ring_offset(1, 2);
    for (n, (offset, garbage)) in (2..).zip([
        (0, u64::MAX / 2),
        (64, u64::MAX / 2),
        (0, 8),
        (64, 8),
        (0, 7_777_777),
        (64, 1),
    ]) {
        intruder
            .word(ring + offset)
            .store(garbage, Ordering::SeqCst);
        eventually("the ring gets room again", || {
            serve(&mut two);
            one.has_room(2)
        });
        eventually("nothing waits for ever to be heard", || {
            serve(&mut two);
            !one.is_unheard(2)
        });
        one.send(2, &packet(1, 2, n, b"x")).unwrap();
        let found = serve(&mut two);
        assert_eq!(found.last(), Some(&n), "{found:?}");
    }
}

#[test]
fn garbage_in_the_words_of_a_slot_does_not_last() {
    let scratch = Scratch::new("words");
    let (mut one, mut two) = (scratch.join(), scratch.join());
    one.send(2, &packet(1, 2, 1, b"x")).unwrap();
    assert_eq!(serve(&mut two), [1]);
    let intruder = Intruder::new(&one);
    let slot = slot_offset(2);
    // The word of `serving`: the peer seems to be busy for ever.
    intruder.word(slot + 8).store(7, Ordering::SeqCst);
    eventually("a peer that seems busy is looked after", || {
        let unheard = one.is_unheard(2);
        ring_urgent(&mut one);
        serve(&mut two);
        !unheard
    });
    // `life` and `sleep`: the peer seems to be gone, or to be awake.
    let life = intruder.word(slot).load(Ordering::SeqCst);
    two.bells().drain();
    two.bells().begin_sleep();
    intruder.word(slot).store(life & !1, Ordering::SeqCst);
    one.send(2, &packet(1, 2, 2, b"x")).unwrap();
    assert_eq!(one.counters().vanished, 1);
    two.served();
    one.send(2, &packet(1, 2, 3, b"x")).unwrap();
    ring_urgent(&mut one);
    // And `pending`: no peer has anything for it.
    intruder.word(slot + 64).store(0, Ordering::SeqCst);
    assert!(!readable(&two, Duration::ZERO) && !two.has_pending());
    eventually("the sender insists", || {
        assert!(one.is_unheard(2));
        readable(&two, Duration::ZERO)
    });
    assert_eq!(psns(&mut two), [3]);
    // Its own wake-up does not depend on the shared word.
    two.bells().drain();
    intruder.word(slot).store(life, Ordering::SeqCst);
    two.bells().wake_own();
    assert!(readable(&two, Duration::ZERO));
}

#[test]
fn a_peer_that_writes_garbage_without_end_does_not_keep_others_waiting() {
    let scratch = Scratch::new("without-end");
    let (mut one, mut two, mut three) = (scratch.join(), scratch.join(), scratch.join());
    for _ in 0..1000 {
        // Of a slot that this process does not have: discarded.
        one.send(3, &packet(9, 3, 0, b"")).unwrap();
    }
    let mut payload = Vec::new();
    assert_eq!(three.receive(&mut payload), None);
    let discarded = three.counters().stale;
    assert!((1..1000).contains(&discarded), "{discarded} in one call");
    assert!(three.bells().has_pending(), "the caller comes back");
    two.send(3, &packet(2, 3, 7, b"")).unwrap();
    assert_eq!(three.receive(&mut payload).unwrap().psn, 7);
    assert!(
        three.counters().stale < 1000,
        "the honest peer had its turn"
    );
    while three.has_pending() {
        assert_eq!(three.receive(&mut payload), None);
    }
    assert_eq!(three.counters().stale, 1000);
}

#[test]
fn a_truncated_segment_is_noticed_and_ends_no_process() {
    crate::guard::install();
    for (test, left) in [("truncated", 0), ("shortened", ring_offset(1, 2) as u64)] {
        let scratch = Scratch::new(test);
        let (mut one, mut two) = (scratch.join(), scratch.join());
        one.send(2, &packet(1, 2, 1, b"x")).unwrap();
        two.send(1, &packet(2, 1, 1, b"x")).unwrap();
        assert_eq!((psns(&mut one), psns(&mut two)), (vec![1], vec![1]));
        assert!(!one.is_lost() && !two.is_lost());
        open_segment(&one).set_len(left).unwrap();
        assert!(!one.is_lost(), "no one has looked yet");
        two.bells().begin_sleep();
        eventually("the sender notices", || {
            let _ = one.send(2, &packet(1, 2, 2, b"x"));
            one.is_lost()
        });
        let trouble = one.take_trouble().expect("told once").to_string();
        assert!(trouble.contains("truncated"), "{trouble}");
        assert!(one.take_trouble().is_none());
        assert!(readable(&two, Duration::ZERO), "its peer is woken");
        two.bells().end_sleep();
        eventually("the peer notices, or sees it gone", || {
            let _ = two.send(1, &packet(2, 1, 2, b"x"));
            psns(&mut two);
            two.is_lost() || two.counters().vanished != 0
        });
        // What is lost neither refuses nor waits, nor says anything more.
        assert!(one.has_room(2) && !one.is_unheard(2));
        one.send(2, &packet(1, 2, 3, b"x")).unwrap();
        assert!(psns(&mut one).is_empty() && !one.has_pending());
    }
}

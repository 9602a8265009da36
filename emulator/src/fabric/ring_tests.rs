use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};
use proptest::prelude::*;

use super::*;
use crate::fabric::wire::tests::headers;

type Shared = Arc<MmapRaw>;

fn memory() -> Shared {
    let map = MmapOptions::new().len(RING_BYTES).map_anon().unwrap();
    Arc::new(MmapRaw::from(map))
}

fn ring(memory: &Shared) -> RingMemory<Shared> {
    let base = NonNull::new(memory.as_mut_ptr()).unwrap();
    // SAFETY: RING_BYTES are mapped, page aligned, and live as the Arc.
    unsafe { RingMemory::new(base, memory.clone()) }
}

const GENERATIONS: Generations = Generations {
    source: 3,
    destination: 4,
};

fn header(psn: u32) -> Header {
    let bytes = [0; HEADER_BYTES];
    let (header, _) = wire::decode(&bytes).unwrap();
    Header { psn, ..header }
}

fn push(producer: &mut Producer<Shared>, psn: u32, payload: &[u8]) {
    producer.push(
        &wire::encode(&header(psn), payload.len(), GENERATIONS),
        payload,
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn packets_come_out_as_they_went_in_at_every_position(
        packets in prop::collection::vec((headers(), prop::collection::vec(any::<u8>(), 0..4097)), 1..40),
        start in (0_u64..1 << 20).prop_map(|n| (n * 8).wrapping_sub(1 << 19)),
    ) {
        let memory = memory();
        for offset in [HEAD, TAIL] {
            ring(&memory).position(offset).store(start, Ordering::Relaxed);
        }
        let (mut producer, mut consumer) = (Producer::new(ring(&memory)), Consumer::new(ring(&memory)));
        let mut payload = Vec::new();
        let mut sent = packets.iter();
        let mut pending = std::collections::VecDeque::new();
        loop {
            let next = if producer.has_room() { sent.next() } else { None };
            if let Some((header, bytes)) = next {
                producer.push(&wire::encode(header, bytes.len(), GENERATIONS), bytes);
                pending.push_back((header, bytes));
            } else {
                let Some((header, bytes)) = pending.pop_front() else { break };
                prop_assert_eq!(consumer.pop(&mut payload), Popped::Packet(*header, GENERATIONS));
                prop_assert_eq!(&payload, bytes);
            }
        }
        prop_assert_eq!(consumer.pop(&mut payload), Popped::Empty);
    }

    #[test]
    fn garbage_is_never_followed_outside_the_ring_and_the_ring_recovers(
        head: u64, tail: u64, bytes in prop::collection::vec(any::<u8>(), 4096), near: bool,
    ) {
        let memory = memory();
        let raw = ring(&memory);
        for chunk in 0..CAPACITY / bytes.len() {
            raw.copy_in((chunk * bytes.len()) as u64, &bytes);
        }
        let head = if near { tail.wrapping_add(head % (CAPACITY as u64 + 64)) } else { head };
        raw.position(HEAD).store(head, Ordering::Relaxed);
        raw.position(TAIL).store(tail, Ordering::Relaxed);
        let mut consumer = Consumer::new(ring(&memory));
        let mut producer = Producer::new(ring(&memory));
        let mut payload = Vec::new();
        while consumer.pop(&mut payload) != Popped::Empty {
            prop_assert!(payload.len() <= MAX_PAYLOAD);
        }
        prop_assert!(producer.has_room());
        push(&mut producer, 77, b"alive");
        prop_assert_eq!(consumer.pop(&mut payload), Popped::Packet(header(77), GENERATIONS));
        prop_assert_eq!(&payload[..], b"alive");
    }

    #[test]
    fn garbage_in_the_positions_of_a_used_ring_stalls_neither_end(
        sent in 0_u32..80, taken in 0_u32..80, lead in -300_000_i64..300_000,
        head: Option<u64>, tail: Option<u64>, near: bool, request: bool,
    ) {
        let memory = memory();
        let (mut producer, mut consumer) = (Producer::new(ring(&memory)), Consumer::new(ring(&memory)));
        let mut payload = Vec::new();
        for psn in 0..sent {
            if producer.has_room() {
                push(&mut producer, psn, &[3; MAX_PAYLOAD]);
            }
        }
        for _ in 0..taken {
            consumer.pop(&mut payload);
        }
        for (offset, garbage) in [(HEAD, head), (TAIL, tail)] {
            let Some(garbage) = garbage else { continue };
            let position = ring(&memory);
            let position = position.position(offset);
            let value = if near {
                position.load(Ordering::Relaxed).wrapping_add_signed(lead)
            } else {
                garbage
            };
            position.store(value, Ordering::Relaxed);
        }
        if request {
            ring(&memory).room_requested().store(7, Ordering::Relaxed);
        }
        // What a sender and a receiver do while they wait for each other.
        let mut rounds = 0;
        while !producer.is_empty() || !producer.has_room() {
            rounds += 1;
            prop_assert!(rounds < 10, "stalled");
            producer.request_room();
            while consumer.pop(&mut payload) != Popped::Empty {}
            consumer.take_room_request();
        }
        push(&mut producer, 77, b"alive");
        prop_assert_eq!(consumer.pop(&mut payload), Popped::Packet(header(77), GENERATIONS));
        prop_assert_eq!(&payload[..], b"alive");
    }
}

#[test]
fn an_incomplete_record_is_invisible() {
    let memory = memory();
    let mut producer = Producer::new(ring(&memory));
    let mut consumer = Consumer::new(ring(&memory));
    let mut payload = Vec::new();
    // A producer that is killed before its last store leaves this:
    producer
        .ring
        .copy_in(0, &wire::encode(&header(1), 64, GENERATIONS));
    producer.ring.copy_in(HEADER_BYTES as u64, &[7; 64]);
    assert_eq!(consumer.pop(&mut payload), Popped::Empty);
    // Its successor starts at the same position.
    producer = Producer::new(ring(&memory));
    push(&mut producer, 2, b"whole");
    assert_eq!(
        consumer.pop(&mut payload),
        Popped::Packet(header(2), GENERATIONS)
    );
    assert_eq!(consumer.pop(&mut payload), Popped::Empty);
}

#[test]
fn a_full_ring_refuses_and_records_that_the_producer_waits() {
    let memory = memory();
    let mut producer = Producer::new(ring(&memory));
    let mut consumer = Consumer::new(ring(&memory));
    let mut payload = Vec::new();
    let mut sent = 0;
    while producer.has_room() {
        push(&mut producer, sent, &[1; MAX_PAYLOAD]);
        sent += 1;
    }
    assert!(sent >= 60, "{sent} full packets fit");
    assert!(!consumer.take_room_request());
    assert!(!producer.request_room());
    for psn in 0..sent {
        assert_eq!(
            consumer.pop(&mut payload),
            Popped::Packet(header(psn), GENERATIONS)
        );
    }
    assert!(consumer.take_room_request());
    assert!(!consumer.take_room_request(), "the request is taken once");
    assert!(producer.has_room());
}

#[test]
fn two_threads_exchange_every_packet_in_order() {
    const COUNT: u32 = 50_000;
    let memory = memory();
    let mut producer = Producer::new(ring(&memory));
    let mut consumer = Consumer::new(ring(&memory));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for psn in 0..COUNT {
                while !producer.has_room() {
                    std::thread::yield_now();
                }
                let payload = [psn as u8; 200];
                push(&mut producer, psn, &payload[..psn as usize % 200]);
            }
        });
        let mut payload = Vec::new();
        let mut expected = 0;
        while expected < COUNT {
            match consumer.pop(&mut payload) {
                Popped::Packet(found, _) => {
                    assert_eq!(found.psn, expected);
                    assert_eq!(payload.len(), expected as usize % 200);
                    assert!(payload.iter().all(|&byte| byte == expected as u8));
                    expected += 1;
                }
                Popped::Empty => std::thread::yield_now(),
                Popped::Malformed => panic!("malformed record without garbage"),
            }
        }
    });
}

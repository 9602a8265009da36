//! The completion ring with a device that writes into plain memory.

use proptest::prelude::*;

use super::*;
use crate::testing::Memory;

struct Fixture {
    entries: Memory,
    records: Memory,
    page: Memory,
    size: u32,
    stride: usize,
    ring: CompletionRing,
    /// The device's producer counter.
    produced: u32,
}

fn fixture(count: u32, stride: u32, start: u32) -> Fixture {
    let entries = Memory::new((count * stride) as usize, 0);
    let records = Memory::new(64, 0xee);
    let page = Memory::new(4096, 0);
    let layout = CompletionLayout {
        buf: entries.at(0),
        cqe_count: count,
        cqe_size: stride,
        dbrec: records.at(0).cast(),
        uar: page.at(0),
        cqn: 0x00ab_cdef,
    };
    // As the provider initialises them: invalid, on the lap before `start`.
    for index in 0..count {
        let skip = if stride == 128 { 127 } else { 63 };
        let counter = start.wrapping_add(index);
        let owner = u8::from(counter.wrapping_sub(count) & count != 0);
        let at = (counter & (count - 1)) * stride + skip;
        entries.write(at as usize, &[if start == 0 { 0xf0 } else { 0xf0 | owner }]);
    }
    let ring = if start == 0 {
        // SAFETY: the memory is kept beside the ring.
        unsafe { CompletionRing::new(&layout) }
    } else {
        // SAFETY: as above.
        unsafe { CompletionRing::new_from(&layout, start) }
    };
    let mut ring = ring.unwrap();
    ring.publish();
    Fixture {
        entries,
        records,
        page,
        size: count,
        stride: stride as usize,
        ring,
        produced: start,
    }
}

impl Fixture {
    fn produce(&mut self, qpn: u32, counter: u16, opcode: CqeOpcode) {
        let index = (self.produced & (self.size - 1)) as usize;
        let at = index * self.stride + self.stride - 64;
        let owner = u8::from(self.produced & self.size != 0);
        self.entries.write(at + 56, &qpn.to_be_bytes());
        self.entries.write(at + 60, &counter.to_be_bytes());
        self.entries.write(at + 63, &[opcode.0 << 4 | owner]);
        self.produced = self.produced.wrapping_add(1);
    }

    fn take(&mut self) -> Option<CqeTail> {
        let tail = self.ring.peek()?.0.tail();
        // SAFETY: the entry is there.
        unsafe { self.ring.advance() };
        self.ring.publish();
        Some(tail)
    }
}

#[test]
fn an_unwritten_entry_is_not_there_on_the_first_lap() {
    for stride in [64, 128] {
        let fixture = fixture(4, stride, 0);
        assert!(fixture.ring.peek().is_none());
        assert_eq!(fixture.ring.entries().written_end(), 0);
    }
}

#[test]
fn the_consumer_index_has_24_bits() {
    let mut fixture = fixture(4, 64, 0x00ff_ffff);
    assert_eq!(fixture.records.be32(0), 0xff_ffff);
    fixture.produce(1, 0, CqeOpcode::REQUESTER);
    fixture.take().unwrap();
    assert_eq!(fixture.records.be32(0), 0);
}

#[test]
fn arming_writes_record_and_register_with_sequence_command_and_index() {
    let mut fixture = fixture(4, 64, 0x0123_4567);
    fixture.ring.arm(Arm::Any, 0);
    assert_eq!(fixture.records.be32(4), 0x0023_4567);
    assert_eq!(
        fixture.page.bytes(0x20, 8),
        [0x00, 0x23, 0x45, 0x67, 0x00, 0xab, 0xcd, 0xef]
    );
    fixture.ring.arm(Arm::Solicited, 3);
    assert_eq!(fixture.records.be32(4), 0x3123_4567);
    assert_eq!(
        fixture.page.bytes(0x20, 8),
        [0x31, 0x23, 0x45, 0x67, 0x00, 0xab, 0xcd, 0xef]
    );
    fixture.ring.arm(Arm::Solicited, 4);
    assert_eq!(
        fixture.records.be32(4),
        0x0123_4567,
        "two bits of the number of events"
    );
    assert_eq!(
        fixture.records.be32(0),
        0x23_4567,
        "the consumer index stays"
    );
    assert_eq!(fixture.page.bytes(0, 0x20), [0; 0x20]);
    assert_eq!(fixture.page.bytes(0x28, 64), [0; 64]);
}

#[test]
fn cq_clean_invalidates_the_cqes_of_one_queue_pair_up_to_the_end() {
    let mut fixture = fixture(8, 128, 0xffff_fffa);
    for counter in 0..3 {
        fixture.produce(7, counter, CqeOpcode::RESPONDER_SEND);
        fixture.produce(8, counter, CqeOpcode::REQUESTER);
    }
    let end = fixture.ring.entries().written_end();
    assert_eq!(end, 0);
    fixture.produce(7, 99, CqeOpcode::RESPONDER_SEND);
    fixture.take().unwrap();
    let mut seen = Vec::new();
    fixture
        .ring
        .cq_clean(7, end, |tail| seen.push(tail.wqe_counter()));
    assert_eq!(seen, [1, 2]);
    fixture
        .ring
        .cq_clean(7, end, |_| panic!("a stale CQE is not cleaned again"));
    let left: Vec<_> = core::iter::from_fn(|| fixture.take())
        .map(|tail| (tail.qpn(), tail.wqe_counter(), tail.own_op().opcode()))
        .collect();
    let (dead, done) = (CqeOpcode::STALE, CqeOpcode::REQUESTER);
    assert_eq!(
        left,
        [
            (8, 0, done),
            (7, 1, dead),
            (8, 1, done),
            (7, 2, dead),
            (8, 2, done),
            (7, 99, CqeOpcode::RESPONDER_SEND)
        ]
    );
}

#[test]
fn cq_clean_up_to_a_consumed_end_removes_nothing() {
    let mut fixture = fixture(4, 64, 0);
    fixture.produce(7, 0, CqeOpcode::REQUESTER);
    let end = fixture.ring.entries().written_end();
    fixture.take().unwrap();
    fixture.produce(7, 1, CqeOpcode::REQUESTER);
    fixture.ring.cq_clean(7, end, |_| panic!("beyond the end"));
}

#[test]
fn the_end_of_a_full_ring_is_one_lap_ahead() {
    let mut fixture = fixture(4, 64, 0);
    for counter in 0..4 {
        fixture.produce(7, counter, CqeOpcode::REQUESTER);
    }
    assert_eq!(fixture.ring.entries().written_end(), 4);
}

#[test]
fn layouts_that_contradict_themselves_are_refused() {
    let memory = Memory::new(4096, 0);
    let refused = |cqe_count, cqe_size| {
        let layout = CompletionLayout {
            buf: memory.at(0),
            cqe_count,
            cqe_size,
            dbrec: memory.at(0).cast(),
            uar: memory.at(0),
            cqn: 1,
        };
        // SAFETY: large enough for what is not refused at once.
        unsafe { CompletionRing::new_from(&layout, 0) }.is_err()
    };
    assert!(!refused(4, 64));
    assert!(!refused(4, 128));
    assert!(refused(3, 64));
    assert!(refused(0, 64));
    assert!(refused(4, 32));
    assert!(refused(1 << 23, 64));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    /// A run ends at the first entry with another last byte, and at the first entry
    /// that is not written, on any lap. The ring continues after the run.
    #[test]
    fn runs_take_what_single_peeks_take(
        log in 0u32..5,
        stride in prop_oneof![Just(64u32), Just(128)],
        start in prop_oneof![Just(0u32), 0xff_fff0u32..0x100_0010, u32::MAX - 9..=u32::MAX],
        rounds in prop::collection::vec(prop::collection::vec(any::<bool>(), 0..16), 1..20),
    ) {
        let mut fixture = fixture(1 << log, stride, start);
        let mut counter = 0;
        for sends in rounds {
            let sends = &sends[..sends.len().min(1 << log)];
            let opcode = |send| match send {
                true => CqeOpcode::REQUESTER,
                false => CqeOpcode::RESPONDER_SEND,
            };
            for &send in sends {
                fixture.produce(1, counter, opcode(send));
                counter += 1;
            }
            let mut expected = (counter - sends.len() as u16..counter).zip(sends.iter().copied());
            let mut runs = sends.chunk_by(|one, other| one == other);
            while let Some((_, own_op)) = fixture.ring.peek() {
                let mut run = fixture.ring.run(own_op);
                let mut taken = 0;
                while let Some(slot) = run.peek() {
                    let (number, send) = expected.next().expect("no more than was written");
                    prop_assert_eq!(slot.wqe_counter(), number);
                    prop_assert_eq!(own_op.opcode(), opcode(send));
                    // SAFETY: the entry is there.
                    unsafe { run.advance(|_| {}) };
                    taken += 1;
                }
                prop_assert_eq!(Some(taken), runs.next().map(<[bool]>::len));
                let before = fixture.ring.consumed();
                // SAFETY: the run has passed that many entries.
                unsafe { fixture.ring.end_run(run, taken) };
                prop_assert_eq!(fixture.ring.consumed(), before.wrapping_add(taken as u32));
                fixture.ring.publish();
            }
            prop_assert_eq!(expected.next(), None);
        }
    }

    /// For any order of writing and polling, over several laps, each written
    /// entry is returned once, in order, and no other entry is returned.
    #[test]
    fn entries_come_out_as_they_went_in(
        log in 0u32..5,
        stride in prop_oneof![Just(64u32), Just(128)],
        start in prop_oneof![Just(0u32), 0xff_fff0u32..0x100_0010, u32::MAX - 9..=u32::MAX],
        ops in prop::collection::vec(any::<bool>(), 1..200),
    ) {
        let mut fixture = fixture(1 << log, stride, start);
        let mut written = std::collections::VecDeque::new();
        let mut next = 0u16;
        for produce in ops {
            if produce && written.len() < 1 << log {
                fixture.produce(u32::from(next) + 1, next, CqeOpcode::REQUESTER);
                written.push_back(next);
                next += 1;
            } else {
                let tail = fixture.take();
                prop_assert_eq!(tail.map(CqeTail::wqe_counter), written.pop_front());
            }
            let end = fixture.ring.entries().written_end();
            prop_assert_eq!(end, fixture.produced & 0xff_ffff);
        }
    }
}

/// Consumes `entries` entries, and returns which were shown ahead, each time some were.
fn shown_ahead(fixture: &mut Fixture, entries: usize) -> Vec<Vec<u32>> {
    let mut shown = Vec::new();
    for _ in 0..entries {
        fixture.ring.peek().unwrap();
        let ahead = |group: Group| shown.push(group.map(|slot| slot.request_qpn().qpn()).collect());
        // SAFETY: the entry is there.
        unsafe { fixture.ring.advance_ahead(ahead) };
        fixture.ring.publish();
    }
    shown
}

#[test]
fn a_ring_that_looks_ahead_shows_the_written_entries_of_the_next_group() {
    for stride in [64, 128] {
        for lap in 0..3 {
            let start = 32 * lap + 5;
            let mut fixture = fixture(32, stride, start);
            fixture.ring.look_ahead(true);
            for qpn in start..start + 30 {
                fixture.produce(qpn, 0, CqeOpcode::REQUESTER);
            }
            // 5 to 15, then 16 to 31, then the beginning of the next lap.
            let [first, second, third] = [11, 27, 30].map(|at| start + at);
            let expected: [Vec<u32>; 2] = [(first..second).collect(), (second..third).collect()];
            assert_eq!(shown_ahead(&mut fixture, 30), expected);
            assert!(fixture.ring.peek().is_none());
        }
    }
}

#[test]
fn looking_ahead_can_begin_and_end_anywhere() {
    let mut fixture = fixture(32, 64, 0);
    let produce = |fixture: &mut Fixture, entries: u32| {
        for qpn in fixture.produced..fixture.produced + entries {
            fixture.produce(qpn, 0, CqeOpcode::REQUESTER);
        }
    };
    produce(&mut fixture, 32);
    assert!(shown_ahead(&mut fixture, 20).is_empty());
    fixture.ring.look_ahead(true);
    assert_eq!(
        shown_ahead(&mut fixture, 12),
        [Vec::new()],
        "nothing of the next lap is written"
    );
    produce(&mut fixture, 20);
    assert_eq!(
        shown_ahead(&mut fixture, 16),
        [(48..52).collect::<Vec<_>>()]
    );
    fixture.ring.look_ahead(false);
    assert!(shown_ahead(&mut fixture, 4).is_empty());
    produce(&mut fixture, 32);
    assert!(shown_ahead(&mut fixture, 32).is_empty());
}

#[test]
fn a_ring_smaller_than_a_group_does_not_look_ahead() {
    let mut fixture = fixture(8, 64, 0);
    fixture.ring.look_ahead(true);
    for _ in 0..3 {
        for _ in 0..8 {
            fixture.produce(1, 0, CqeOpcode::REQUESTER);
        }
        assert!(shown_ahead(&mut fixture, 8).is_empty());
    }
}

#[test]
fn a_run_looks_ahead_where_it_begins_a_group() {
    let mut fixture = fixture(32, 64, 0);
    fixture.ring.look_ahead(true);
    for qpn in 0..20 {
        fixture.produce(qpn, 0, CqeOpcode::REQUESTER);
    }
    let (_, own_op) = fixture.ring.peek().unwrap();
    let mut run = fixture.ring.run(own_op);
    let mut shown = Vec::new();
    for _ in 0..18 {
        run.peek().unwrap();
        // SAFETY: the entry is there.
        unsafe { run.advance(|group: Group| shown.push(group.count())) };
    }
    // SAFETY: the run has passed that many entries.
    unsafe { fixture.ring.end_run(run, 18) };
    assert_eq!(shown, [4]);
    for qpn in 20..40 {
        fixture.produce(qpn, 0, CqeOpcode::REQUESTER);
    }
    assert_eq!(
        shown_ahead(&mut fixture, 22),
        [(32..40).collect::<Vec<_>>()]
    );
}

//! CQEs of any bytes in a completion ring, polled in every way that the engine polls.
#![no_main]

use std::ptr::NonNull;

use libfuzzer_sys::fuzz_target;
use mlx5_rings::complete::{Arm, CompletionRing};
use mlx5_rings::layout::CompletionLayout;
use mlx5_rings::wire::{CqeOpcode, WqeOpcode};

/// The most entries of a ring.
const ENTRIES: usize = 64;

/// The memory that ring and device share.
#[repr(C, align(4096))]
struct Shared {
    page: [u64; 512],
    records: [u64; 8],
    entries: [u8; ENTRIES * 128],
}

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = Bytes(bytes);
    let form = bytes.byte();
    let count = 1_usize << (form & 7).min(6);
    let stride = if form & 8 == 0 { 64 } else { 128 };
    let mut shared = Box::new(Shared {
        page: [0; 512],
        records: [0; 8],
        entries: [0xf0; ENTRIES * 128],
    });
    // One pointer to all of it: ring and device use no references.
    let base = NonNull::from(&mut *shared).cast::<u8>();
    // SAFETY: inside the structure.
    let at = |offset: usize| unsafe { base.add(offset) };
    let entries = std::mem::offset_of!(Shared, entries);
    let layout = CompletionLayout {
        buf: at(entries),
        cqe_count: count as u32,
        cqe_size: stride as u32,
        dbrec: at(std::mem::offset_of!(Shared, records)).cast(),
        uar: at(0),
        cqn: 7,
    };
    // SAFETY: the memory lives longer than the ring, and only this function uses it.
    let mut ring = unsafe { CompletionRing::new(&layout) }.expect("a ring");
    ring.look_ahead(form & 16 != 0);
    let mut produced = 0_usize;
    let mut consumed = 0_usize;
    while !bytes.0.is_empty() {
        match bytes.byte() % 8 {
            // The device writes the next entry if there is room, or once more one that waits.
            kind @ (0..=2) => {
                let waiting = produced - consumed;
                let number = match kind {
                    0 if waiting == 0 => continue,
                    0 => consumed + usize::from(bytes.byte()) % waiting,
                    _ if waiting == count => continue,
                    _ => produced,
                };
                let mut entry = [0; 128];
                entry[..stride].fill_with(|| bytes.byte());
                let owner = u8::from(number & count != 0);
                entry[stride - 1] = entry[stride - 1] & !1 | owner;
                for (offset, byte) in entry.iter().take(stride).enumerate() {
                    let place = at(entries + number % count * stride + offset);
                    // SAFETY: inside the entry.
                    unsafe { place.write_volatile(*byte) };
                }
                produced = produced.max(number + 1);
            }
            3 => {
                let Some((slot, own_op)) = ring.peek() else {
                    continue;
                };
                let (tail, cqe) = (slot.tail(), slot.copy());
                assert_eq!(
                    (tail.qpn(), tail.wqe_counter()),
                    (cqe.tail().qpn(), slot.wqe_counter())
                );
                assert_eq!(slot.tail_of(slot.request_qpn()), Some(tail));
                assert_eq!(
                    (slot.byte_count(), slot.imm()),
                    (cqe.byte_count(), cqe.imm())
                );
                assert!(!cqe.to_string().is_empty());
                let _ = (
                    slot.timestamp(),
                    own_op.opcode(),
                    WqeOpcode::from_bits(own_op.0),
                );
                let _ = ring.payload(own_op.inline_scatter());
                // SAFETY: `peek` has returned it.
                unsafe {
                    ring.advance_ahead(|group| {
                        let _ = group.count();
                    })
                };
                consumed += 1;
                ring.publish();
            }
            4 => {
                let written = ring.written();
                assert!(written.is_none_or(|written| written as usize <= count));
                let _ = (
                    ring.has_more(bytes.byte().into()),
                    ring.entries().holds_any(),
                );
            }
            5 => {
                let Some((_, own_op)) = ring.peek() else {
                    continue;
                };
                if own_op.opcode() == CqeOpcode::INVALID {
                    continue;
                }
                let mut run = ring.run(own_op);
                let mut passed = 0;
                while passed < 2 * count && run.peek().is_some() {
                    // SAFETY: `peek` has returned it.
                    unsafe {
                        run.advance(|group| {
                            let _ = group.count();
                        })
                    };
                    passed += 1;
                }
                assert!(passed <= count, "{passed} entries of {count}");
                // SAFETY: this ring began the run, and it was advanced so often.
                unsafe { ring.end_run(run, passed) };
                consumed += passed;
                ring.publish();
            }
            6 => {
                let qpn = u32::from_be_bytes([0, bytes.byte(), bytes.byte(), bytes.byte()]);
                let end = ring.entries().written_end();
                let mut seen = 0;
                ring.cq_clean(qpn, end, |tail| {
                    assert_eq!(tail.qpn(), qpn);
                    seen += 1;
                });
                assert!(seen <= count);
            }
            _ => ring.arm(Arm::Any, bytes.byte().into()),
        }
        assert_eq!(ring.consumed() as usize, consumed);
    }
});

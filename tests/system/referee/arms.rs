//! `ibv_req_notify_cq` and the engine arm completion queues by the same stores
//! and get the same events, through many events and through arms without one.

use crate::support::device;
use crate::support::libmlx5::{Link, Shape};
use crate::support::pair::{Driver, Pair};
use crate::support::rings::{CompletionRing, Rings};
use crate::support::shadow_page::{ShadowPage, page_of};
use crate::support::side::Side;
use crate::support::store_tracer::{self, Store, StoreTracer, coalesced};
use crate::support::system::System;
use crate::support::work::SendWork;
use dat_engine::{SendFlags, SendOp};

/// Offset of the CQ doorbell in its page (`MLX5_CQ_DOORBELL`).
const DOORBELL: usize = 0x20;

/// The memory through which a CQ is armed.
struct ArmPlace {
    ring: CompletionRing,
    /// Memory over the page of an existing device: the tracer's trial runs would ring it.
    shadow: Option<ShadowPage>,
}

impl ArmPlace {
    /// The receive CQ of an end, whose sends have a register on another page.
    fn new(pair: &Pair, end: usize) -> Self {
        let Rings { register, cqs, .. } = pair[end].rings();
        let [_, ring] = cqs;
        assert_ne!(page_of(register), page_of(ring.page));
        // SAFETY: the page belongs to a queue of this end, which only this thread uses, and the
        // test drops this value before the pair.
        let shadow = (!pair.system.is_stepped()).then(|| unsafe { ShadowPage::over(ring.page) });
        ArmPlace { ring, shadow }
    }

    /// Records the stores of a call, and passes the doorbell on to an existing device.
    fn record(&self, tracer: &StoreTracer, call: impl FnOnce()) -> Vec<(&'static str, Vec<u8>)> {
        let ((), stores) = tracer.record(call);
        if let Some(shadow) = &self.shadow {
            shadow.forward(DOORBELL);
        }
        self.seen(stores)
    }

    /// Returns the stores: the record word, and the doorbell without its CQN.
    fn seen(&self, stores: Vec<Store>) -> Vec<(&'static str, Vec<u8>)> {
        let named = |store: Store| {
            let mut bytes = store.bytes;
            if store.addr == self.ring.arm_record {
                ("record", bytes)
            } else if store.addr == self.ring.page + DOORBELL {
                assert_eq!(
                    bytes[4..],
                    self.ring.cqn.to_be_bytes(),
                    "the number of the queue"
                );
                bytes.truncate(4);
                ("doorbell", bytes)
            } else {
                ("elsewhere", bytes)
            }
        };
        coalesced(stores).into_iter().map(named).collect()
    }
}

#[test]
fn arming_makes_the_same_stores_and_raises_the_same_events() {
    if !store_tracer::supported() {
        return;
    }
    let shape = Shape {
        events: true,
        recv_depth: 8,
        ..Shape::default()
    };
    let drivers = [Driver::Engine, Driver::Libmlx5];
    let mut pair = Pair::new(System::new(), drivers, shape, &Link::default());
    // Dropped before the pair.
    let places = [0, 1].map(|end| ArmPlace::new(&pair, end));
    let mut tracer = StoreTracer::default();
    for ArmPlace { ring, .. } in &places {
        // SAFETY: pages of the CQ and of its context, which outlive the tracer;
        // the device does not run during a recording.
        unsafe {
            tracer.watch(ring.arm_record, 4);
            tracer.watch(ring.page + DOORBELL, 8);
        }
    }
    // Messages between two arms, some of them solicited, and the kind of arm.
    let rounds: [(&[bool], bool); 12] = [
        (&[false], false),
        (&[false, false, false], false),
        (&[], false),
        (&[false], true),
        (&[true], true),
        (&[], true),
        (&[false], false),
        (&[true, true], true),
        (&[false, true, false], true),
        (&[false; 8], false),
        (&[], false),
        (&[true], false),
    ];
    // Whether the CQs are armed for any completion; if not, for solicited ones.
    let mut for_any = false;
    for lap in 0..10 {
        for (i, &(messages, solicited_only)) in rounds.iter().enumerate() {
            let mut seen = Vec::new();
            for (end, place) in places.iter().enumerate() {
                seen.push(place.record(&tracer, || pair.sides[end].arm_recv(solicited_only)));
            }
            assert_eq!(
                seen[0], seen[1],
                "stores of the engine, stores of libmlx5: lap {lap}, round {i}"
            );
            assert_eq!(seen[0].len(), 2);
            // An arm for any completion is not replaced by one for solicited completions.
            for_any |= !solicited_only;
            pair.system.after_doorbell();
            for &solicited in messages {
                exchange(&mut pair, solicited);
            }
            pair.system.run();
            let is_due = messages.iter().any(|&solicited| solicited || for_any);
            for_any &= !is_due;
            let events = [0, 1].map(|end| take_events(&mut *pair.sides[end], is_due.into()));
            let due = [u32::from(is_due); 2];
            assert_eq!(events, due, "one event per arm: lap {lap}, round {i}");
            for end in [0, 1] {
                assert_eq!(
                    pair.sides[end].recv_answers(messages.len()).len(),
                    messages.len()
                );
            }
        }
    }
}

/// Returns the events so far, at least this many.
fn take_events(side: &mut dyn Side, count: u32) -> u32 {
    let mut events = 0;
    device::comes(|| {
        events += side.take_events();
        (events >= count).then_some(())
    });
    events
}

/// Each end sends one message to the other.
fn exchange(pair: &mut Pair, solicited: bool) {
    let mut flags = SendFlags::SIGNALED;
    flags.set(SendFlags::SOLICITED, solicited);
    for end in [0, 1] {
        pair[1 - end].recv(0, vec![]);
        pair[end].send(SendWork {
            wr_id: 0,
            op: SendOp::Send,
            flags,
            segments: vec![],
        });
        pair.system.run();
        assert_eq!(pair[end].send_answers(1).len(), 1);
    }
}

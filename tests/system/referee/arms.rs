//! `ibv_req_notify_cq` and the engine arm completion queues by the same stores
//! and get the same events, through many events and through arms without one.

use crate::support::libmlx5::{Link, Shape};
use crate::support::pair::{Driver, Pair};
use crate::support::store_tracer::{self, Store, StoreTracer, coalesced};
use crate::support::system::System;
use crate::support::work::SendWork;
use dat_engine::{SendFlags, SendOp};

/// Offset of the CQ doorbell in its page (`MLX5_CQ_DOORBELL`).
const DOORBELL: usize = 0x20;

/// The memory through which a CQ is armed.
#[derive(Clone, Copy)]
struct ArmPlace {
    record: usize,
    page: usize,
    cqn: u32,
}

impl ArmPlace {
    /// Returns the stores: the record word, and the doorbell without its CQN.
    fn seen(&self, stores: Vec<Store>) -> Vec<(&'static str, Vec<u8>)> {
        let named = |store: Store| {
            let mut bytes = store.bytes;
            if store.addr == self.record {
                ("record", bytes)
            } else if store.addr == self.page + DOORBELL {
                assert_eq!(
                    bytes[4..],
                    self.cqn.to_be_bytes(),
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

/// The receive CQs of both ends, the engine's first.
fn places(pair: &Pair) -> [ArmPlace; 2] {
    let place = |end: usize, page: usize| {
        let qp = pair.system.qp_spec(pair[end].peer().qpn);
        let [_, recv] = pair.system.cq_specs(&qp);
        ArmPlace {
            record: recv.dbrec as usize + 4,
            page,
            cqn: qp.recv_cq.0,
        }
    };
    let theirs = pair.system.context().arm_page();
    let options = dat_engine::CqOptions {
        depth: 1,
        ..Default::default()
    };
    let probe = pair
        .system
        .device
        .create_cq(&options)
        .expect("a completion queue");
    let ours = probe.layout().expect("direct path").uar.as_ptr() as usize;
    [place(0, ours), place(1, theirs)]
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
    let places = places(&pair);
    let mut tracer = StoreTracer::default();
    for place in places {
        // SAFETY: pages of the CQ and of its context, which outlive the tracer;
        // the device does not run during a recording.
        unsafe {
            tracer.watch(place.record, 4);
            tracer.watch(place.page + DOORBELL, 8);
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
    for lap in 0..10 {
        for (i, &(messages, solicited_only)) in rounds.iter().enumerate() {
            let mut seen = Vec::new();
            for (end, place) in places.iter().enumerate() {
                let ((), stores) = tracer.record(|| pair.sides[end].arm_recv(solicited_only));
                seen.push(place.seen(stores));
            }
            assert_eq!(
                seen[0], seen[1],
                "stores of the engine, stores of libmlx5: lap {lap}, round {i}"
            );
            assert_eq!(seen[0].len(), 2);
            pair.system.after_doorbell();
            for &solicited in messages {
                exchange(&mut pair, solicited);
            }
            pair.system.run();
            let events = [0, 1].map(|end: usize| pair.sides[end].take_events());
            assert_eq!(events[0], events[1], "events: lap {lap}, round {i}");
            if messages
                .iter()
                .any(|&solicited| solicited || !solicited_only)
            {
                assert_eq!(events[0], 1, "one event per arm: lap {lap}, round {i}");
            }
            for end in [0, 1] {
                assert_eq!(
                    pair.sides[end].recv_answers(messages.len()).len(),
                    messages.len()
                );
            }
        }
    }
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

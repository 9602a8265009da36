//! How many events there are, against a model.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use dat_engine::Completion;
use proptest::prelude::*;

use super::fixture::{Fixture, code, number};
use crate::handle::{self, CompletionHooks, Delivery, Handle, Kind, Object, Reservation, Upcalls};
use crate::object::evd::DtoRole;
use crate::object::wr_data::NO_EVENT;
use crate::status::{ReturnType, Subtype};
use crate::types::{CompletionFlags, EvdFlags, EventData};

/// More than a test posts.
const DEPTH: u32 = 256;
const EXPIRED: (ReturnType, Subtype) = (ReturnType::TimeoutExpired, Subtype::NoSubtype);

/// An endpoint that discards the completions of suppressed requests.
struct Discarding;

// SAFETY: nothing in these tests looks for a real endpoint.
#[allow(unsafe_code)]
unsafe impl Object for Discarding {
    const KIND: Kind = Kind::Ep;
    const UPCALLS: &'static Upcalls = &Upcalls {
        completed: |completion| match completion.imm {
            NO_EVENT => Delivery::Discard,
            _ => Delivery::Notify,
        },
        ..Upcalls::NONE
    };
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A receive of one of two endpoints completes.
    Received(usize),
    /// A suppressed request completes.
    Suppressed(usize),
    Posted,
    Dequeue,
    /// A wait for this number of events, with timeout 0.
    Wait(i32),
    /// All events of an endpoint are removed, as when it is reset.
    Purge(usize),
    /// The next completion in the queue becomes stale.
    Stale,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..2usize).prop_map(Step::Received),
        1 => (0..2usize).prop_map(Step::Suppressed),
        2 => Just(Step::Posted),
        4 => Just(Step::Dequeue),
        4 => (1..4).prop_map(Step::Wait),
        1 => (0..2usize).prop_map(Step::Purge),
        1 => Just(Step::Stale),
    ]
}

/// A completion that was written, and not handed out.
struct Written {
    cookie: u64,
    ep: usize,
    is_event: bool,
}

#[derive(Default)]
struct Model {
    completions: Vec<Written>,
    posted: u32,
}

impl Model {
    fn events(&self) -> u32 {
        let completions = self.completions.iter().filter(|it| it.is_event);
        self.posted + completions.count() as u32
    }

    fn take(&mut self, data: EventData) {
        match data {
            EventData::Software { .. } => self.posted -= 1,
            data => {
                let first = self.completions.iter().position(|it| it.is_event);
                let taken = self.completions.remove(first.expect("an event"));
                assert_eq!(taken.cookie, number(data));
            }
        }
    }
}

struct Eps([Handle; 2]);

impl Eps {
    fn new() -> Self {
        Self([0; 2].map(|_| {
            let place = Reservation::new().expect("a slot");
            place.publish(Arc::new(Discarding))
        }))
    }

    fn completion(&self, ep: usize, cookie: u64) -> Completion {
        Completion {
            wr_id: cookie,
            context: self.0[ep].bits() as u64,
            op: dat_engine::CompletionOp::Recv,
            ..Completion::default()
        }
    }
}

impl Drop for Eps {
    fn drop(&mut self) {
        for ep in self.0 {
            handle::retire::<Discarding>(ep, |_| ());
        }
    }
}

fn run(is_direct: bool, steps: &[Step]) {
    let flags = EvdFlags::DTO | EvdFlags::SOFTWARE;
    let fixture = Fixture::new(DEPTH as i32, flags);
    fixture.ia.choose_path(is_direct);
    let role = DtoRole::Recv { depth: DEPTH };
    let threshold = CompletionFlags::EVD_THRESHOLD;
    let _stream = fixture.evd.attach_dto(role, threshold, &[]).expect("room");
    let ring = fixture.ia.rings().pop().expect("a queue");
    let eps = Eps::new();
    let mut discards = [false; 2];
    let mut model = Model::default();
    for (&step, cookie) in steps.iter().zip(0..) {
        match step {
            Step::Received(ep) | Step::Suppressed(ep) => {
                let is_event = matches!(step, Step::Received(_));
                let mut completion = eps.completion(ep, cookie);
                if !is_event {
                    (completion.op, completion.imm) = (dat_engine::CompletionOp::Send, NO_EVENT);
                    if !core::mem::replace(&mut discards[ep], true) {
                        let counters = eps.0[ep].slot().expect("a slot").counters();
                        let inspects = CompletionHooks::new(true, None).0;
                        counters.cqe_flags.store(inspects, Ordering::Release);
                        fixture.evd.begin_discarding();
                    }
                }
                ring.complete(completion);
                model.completions.push(Written {
                    cookie,
                    ep,
                    is_event,
                });
            }
            Step::Posted => {
                fixture.post(1);
                model.posted += 1;
            }
            Step::Dequeue => match fixture.dequeue() {
                Ok(data) => model.take(data),
                Err(_) => assert_eq!(model.events(), 0),
            },
            Step::Wait(threshold) => {
                let waited = fixture.poll(threshold);
                match waited.result {
                    Ok(event) => {
                        assert!(model.events() >= threshold as u32);
                        model.take(event.data);
                    }
                    Err(error) => {
                        assert_eq!(code(Err::<(), _>(error)), EXPIRED);
                        assert!(model.events() < threshold as u32);
                    }
                }
                assert_eq!(waited.nmore, model.events());
            }
            Step::Purge(ep) => {
                fixture.evd.purge(eps.0[ep]);
                model.completions.retain(|it| it.ep != ep);
                if core::mem::take(&mut discards[ep]) {
                    let counters = eps.0[ep].slot().expect("a slot").counters();
                    counters.cqe_flags.store(0, Ordering::Release);
                    fixture.evd.end_discarding();
                }
            }
            Step::Stale => {
                let in_ring = ring.len();
                let stale = ring.stale.load(Ordering::Relaxed) as usize;
                if stale < in_ring {
                    let first = model.completions.len() - (in_ring - stale);
                    model.completions.remove(first);
                    ring.stale.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn evd_waits_count_the_events_that_are_left(
        is_direct in any::<bool>(),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        run(is_direct, &steps);
    }
}

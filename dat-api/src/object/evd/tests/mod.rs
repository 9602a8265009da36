//! Tests of EVDs without a device: the test fills the completion queues.

mod attaching;
mod convert;
mod counting;
mod device_events;
mod fake;
mod fixture;
mod life;
mod merging;
mod notice;
mod order;
mod posting;
mod seq_count;
mod signals;
mod stamps;
mod taking;
mod threads;
mod waiting;

pub(super) use fake::{FakeClock, FakeCqe, FakeQueue};
pub(super) use fixture::FakeIa;

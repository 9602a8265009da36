//! Tests of EVDs without a device: the test fills the completion queues.

mod attaching;
mod counting;
mod device_events;
mod fake;
mod fixture;
mod life;
mod merging;
mod order;
mod posting;
mod signals;
mod stamps;
mod taking;
mod threads;
mod waiting;

pub(super) use fake::{FakeClock, FakeCqe, FakeQueue};
pub(super) use fixture::FakeIa;

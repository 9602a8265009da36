//! Tests of EVDs without a device: the test fills the completion queues.

mod attaching;
mod blind;
mod fake;
mod life;
mod merging;
mod order;
mod posting;
mod rig;
mod signals;
mod taking;
mod threads;
mod waiting;

pub(super) use fake::{FakeCqe, FakeQueue};
pub(super) use rig::World;

//! EVDs without a device: the tests play it.

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

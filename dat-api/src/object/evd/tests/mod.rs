//! EVDs without a device: the tests play it.

mod fake;
mod rig;

pub(super) use fake::FakeQueue;
pub(super) use rig::World;

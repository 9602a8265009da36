//! Shared by these tests: an adapter on the device, memory, connected endpoints,
//! and calls that check their return codes.

mod address;
mod alone;
mod bed;
mod calls;
#[allow(dead_code, reason = "each test program uses a part of it")]
#[path = "../../support/device.rs"]
pub mod device;
mod door;
mod ends;
mod evd;
mod memory;
mod pair;
mod point;
mod queries;
mod srq;
mod talk;
mod tally;
mod window;

pub use address::{here, here_ip, ip_at};
pub use alone::{is_alone, is_on_small_device};
pub use bed::{Bed, c_name};
pub use calls::*;
pub use device::installed::is_iwarp;
pub use door::Door;
pub use ends::{both_broken, both_broken_by_a_refusal, broken_by_the_peer, over};
pub use evd::{Evd, LONG, SOON, Waited, number};
pub use memory::Memory;
pub use pair::{End, Pair, Shape};
pub use point::{Point, accept, arrival, cr_info, on_free_qualifier};
pub use queries::*;
pub use srq::*;
pub use talk::{MESSAGE, Talk};
pub use tally::allocations;
pub use window::{Bound, Window, nothing, take_bound};

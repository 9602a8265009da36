//! Shared by these tests: an adapter on the device, memory, connected endpoints,
//! and calls that check their return codes.

mod address;
mod calls;
mod child_process;
mod dat_conf;
#[allow(dead_code, reason = "each test program uses a part of it")]
#[path = "../../support/device.rs"]
pub mod device;
mod ends;
mod evd;
mod fixture;
#[path = "../../support/held.rs"]
mod held;
mod memory;
mod message_pair;
mod pair;
mod queries;
mod reserved_point;
mod service_point;
mod srq;
mod stopping;
mod waiter;
mod window;

pub use address::{here, here_ip, ip_at};
pub use calls::*;
pub use child_process::{is_alone, is_on_small_device};
pub use dat_conf::with_entry;
pub use dat_engine::memory::allocations;
pub use device::installed::is_iwarp;
pub use ends::{both_broken, both_broken_by_a_refusal, both_failed, broken_by_the_peer, over};
pub use evd::{Evd, LONG, SOON, Waited, number};
pub use fixture::{Fixture, c_name};
pub use held::Held;
pub use memory::Memory;
pub use message_pair::{MESSAGE, MessagePair};
pub use pair::{End, Pair, Shape};
pub use queries::*;
pub use reserved_point::{ReservedPoint, accept, arrival, cr_info, on_free_qualifier};
pub use service_point::ServicePoint;
pub use srq::*;
pub use stopping::{attach_and_detach, stop_and_continue};
pub use waiter::{Waiter, joined, stays};
pub use window::{Bound, Window, nothing, take_bound};

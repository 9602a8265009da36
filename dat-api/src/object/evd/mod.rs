//! Event dispatchers: where events are collected, waited for and dequeued.
//!
//! # Where events are
//! | place | filled by | emptied by |
//! | --- | --- | --- |
//! | completion queues of the engine | the device | the owner |
//! | posted events (`pending.rs`) | any thread, under a lock | the owner |
//! | staged events (`pending.rs`) | the owner, from the other two | the owner |
//!
//! The owner is the call that owns the EVD by [`crate::handle::own`]: one wait or one dequeue at a
//! time. On the fast path (`convert.rs`) one word says that nothing is staged or posted and that there
//! is one completion queue; the owner peeks at the next CQE of that queue and converts it to an
//! event. A dequeue takes that event. A wait peeks, arms the queue, peeks again, sleeps until an
//! event is there, and then takes it as a dequeue does. Events are staged when more than the first
//! must be known: to count them for a threshold or for `nmore`, and to keep posted events behind
//! the completions that were there before them.
//!
//! # What cannot be lost
//! Completions: the queues have room for all that can be outstanding on the streams attached to
//! them. A posted event can find the EVD full.
//!
//! Decision: `docs/decisions/022-evd-over-queues.md`

mod attach;
mod consumer;
#[allow(unsafe_code)]
mod convert;
mod create;
mod merge;
mod owner;
mod pending;
#[allow(unsafe_code)]
mod state;
mod streams;
mod wait;

#[cfg(test)]
mod tests;

#[cfg(not(test))]
use dat_engine::{CompletionQueue as Queue, CqeRef as Cqe};

// Unit tests have no device, and fill the completion queues.
#[cfg(test)]
use self::tests::{FakeCqe as Cqe, FakeQueue as Queue};

pub(crate) use self::attach::{DtoStream, StreamGuard};
pub use self::convert::{PeekedEvent, peek};
pub use self::create::{EvdInfo, Notification};
pub(crate) use self::owner::{Claim, PollMode, PollResult, poll_completions, poll_for_cno};
pub use self::owner::{dequeue, dequeue_slow, dequeue_slow_with, drain, own, own_when_free};
pub use self::state::Evd;
pub use self::streams::StreamKind;
pub(crate) use self::streams::{DtoConfig, DtoRole};
pub use self::wait::{
    Stamped, Timeout, Waited, Waiting, begin, dequeue_stamped, take_counted, take_posted, wait,
    wait_stamped,
};

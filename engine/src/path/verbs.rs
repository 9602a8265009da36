//! The verbs path: requests and completions through libibverbs, for devices
//! whose rings are not known here.
//!
//! To the application it is the direct path: the same calls, the same answers.
//! Beneath, a request goes to `ibv_post_send`, `ibv_post_recv` or
//! `ibv_post_srq_recv`, and comes back by `ibv_poll_cq`.
//!
//! **What a request carries.** Its `wr_id` is a tag (`tag.rs`) of ours: a name of
//! the queue pair (as it is between two resets) or of the shared queue, and the
//! request's place. The cookie, the note and what it was wait in a *shadow* of
//! the queue (`sends.rs`, `receives.rs`, `shared.rs`), since a failed completion
//! tells nothing but the tag. The shadow also counts: a post that the queue has
//! no room for is refused before libibverbs is asked.
//!
//! **Threads.** As on the direct path: posting needs `&mut` of the poster,
//! polling `&mut` of the poller, and the two share atomics. But a completion
//! queue also has a lock, because a queue pair that goes must take its
//! completions out of it (`cq.rs`); the poller takes it once a poll. Nobody else
//! does but who creates, resets or drops an endpoint.
//!
//! **A queue pair that goes** leaves nothing behind when it is dropped.
//! Names are not soon used again, so that even a completion that a device
//! brings out of turn is not taken for another's.
//!
//! **Binds of windows** go by `ibv_bind_mw`, which posts to the same queue
//! (`bind.rs`).
//!
//! **What there is no verb for.** [`crate::SendOp::Nop`] is carried by a write
//! of no bytes: it needs the peer, whose queue pair must allow writes
//! ([`crate::Access::REMOTE_WRITE`] in its [`crate::ConnectOptions`]; no memory
//! need). `CompletionFlags::SOLICITED` is never set: completions do not tell.

mod bind;
mod chain;
mod cq;
mod device;
mod flush;
mod order;
mod places;
mod post;
mod queue_pair;
mod quirks;
mod receives;
mod record;
mod sends;
mod shared;
mod slots;
mod table;
mod tag;
mod watch;

#[cfg(test)]
mod tests;

use device::Libibverbs;

/// A queue pair, for the one who posts to it.
pub type QueuePair = queue_pair::QueuePair<Libibverbs>;
/// What a [`QueuePair`] is made of.
pub type QueuePairParts = queue_pair::QueuePairParts<Libibverbs>;
/// The polling side of a completion queue.
pub type Poller = cq::Poller<Libibverbs>;
/// What creating queue pairs that report to a completion queue takes.
pub type Completions = cq::Completions<Libibverbs>;
/// The posting side of a shared receive queue.
pub type SharedReceives = shared::SharedReceives<Libibverbs>;
/// What a queue pair needs to take its receives from a shared queue.
pub type SharedReceivesHandle = shared::SharedReceivesHandle<Libibverbs>;
/// What any thread may ask of a queue pair.
pub type Watch = watch::Watch<Libibverbs>;

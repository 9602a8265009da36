//! The verbs path: requests and completions through libibverbs, for devices whose
//! rings the engine does not implement.
//!
//! It has the same calls and results as the direct path. A request is posted with
//! `ibv_post_send`, `ibv_post_recv` or `ibv_post_srq_recv`, and its completion is
//! read with `ibv_poll_cq`.
//!
//! **Tags.** The `wr_id` that libibverbs gets is a tag (`table.rs`): the name of the
//! queue pair (between two resets) or of the shared receive queue, and the index of
//! the request. The request's own `wr_id`, its `wr_data` and its operation are kept
//! in a *shadow* of the queue (`shadow.rs`, `shared.rs`), since a failed completion
//! has no valid field except the tag. The shadow also counts: a post to a full queue
//! is refused before libibverbs is called.
//!
//! **Threads.** As on the direct path, posting needs `&mut` of the poster, polling
//! `&mut` of the poller, and the two share atomics. A completion queue also has a
//! lock, because a queue pair that is dropped must take its completions out of the
//! queue (`cq.rs`). The poller takes the lock once per poll. Other threads take it
//! only when an endpoint is created, reset or dropped. A shared receive queue has a
//! lock for its entries.
//!
//! **Dropped queue pairs** leave no completions behind. Names are not reused soon,
//! so that even a completion that a device delivers too late is not attributed to
//! another queue pair.
//!
//! **Binds** of memory windows are posted by `ibv_bind_mw`, to the same queue
//! (`bind.rs`).
//!
//! **Operations without a verb.** [`crate::SendOp::Nop`] is posted as an RDMA write
//! of 0 bytes. It needs a connected peer, whose queue pair must allow writes
//! ([`crate::Access::REMOTE_WRITE`] in its [`crate::ConnectOptions`]; no memory
//! region is needed). `CompletionFlags::SOLICITED` is never set, since
//! `ibv_poll_cq` does not report it.
//!
//! Decision: `docs/decisions/012-verbs-path-same-behaviour.md`

mod bind;
mod chain;
mod cq;
mod device;
mod post;
mod queue_pair;
mod quirks;
mod record;
mod shadow;
mod shared;
mod table;

#[cfg(test)]
mod tests;

use device::Libibverbs;

/// The posting side of a queue pair.
pub type QueuePair = queue_pair::QueuePair<Libibverbs>;
/// The parts of a [`QueuePair`].
pub type QueuePairParts = queue_pair::QueuePairParts<Libibverbs>;
/// The polling side of a completion queue.
pub type Poller = cq::Poller<Libibverbs>;
/// A completion queue, as creating queue pairs needs it.
pub type Completions = cq::Completions<Libibverbs>;
/// The posting side of a shared receive queue.
pub type SharedReceives = shared::SharedReceives<Libibverbs>;
/// A shared receive queue, as creating queue pairs needs it.
pub type SharedReceivesHandle = shared::SharedReceivesHandle<Libibverbs>;
/// Reads the state of a queue pair from any thread.
pub type Watch = record::Watch<Libibverbs>;

/// Formats each type by its name.
macro_rules! opaque {
    ($($path:ident::$name:ident),*) => {$(
        impl<D: device::Device> core::fmt::Debug for $path::$name<D> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )*};
}

opaque!(
    queue_pair::QueuePair,
    cq::Poller,
    cq::Completions,
    shared::SharedReceives,
    shared::SharedReceivesHandle,
    record::Watch
);

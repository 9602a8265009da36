//! When the next completion of a queue arrived, for callers that merge several
//! completion queues.

/// The arrival of the next completion of one completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// There is no completion.
    Empty,
    /// The time is not known: the device writes none into an error CQE, and the
    /// verbs path cannot look at a completion without taking it, so there may be
    /// none.
    Unknown,
    /// The device's time stamp, in ticks of its clock (6 to 13 ns). Stamps of
    /// one device compare across its completion queues; two completions may have
    /// the same one.
    At(u64),
}

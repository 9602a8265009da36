//! One uninterrupted measurement, and what it records.

use crate::exchange::Transfer;
use crate::noise::Noise;

/// One size in one round, through one interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    /// Bytes.
    pub(super) size: u32,
    /// Below the number of rounds.
    pub(super) round: u32,
    /// Requests that share a completion.
    pub(super) moderation: u32,
}

/// What one pass records.
#[derive(Clone, Debug, Default)]
pub(super) struct Recording {
    /// The messages of each side that has sent.
    pub(super) sides: Vec<Transfer>,
    pub(super) noise: Noise,
    /// Messages that the other process has sent, warm-up included; on a server that only takes
    /// them, those of the client.
    pub(super) messages: u64,
}

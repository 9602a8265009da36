//! The trait of the measured interfaces, and the sizes that all of them use.

use dat_engine::AtomicOp;

use crate::failure::Failure;

/// Bytes of a message, if the caller can choose whether it is inline.
pub(super) const MESSAGE: u32 = 64;
/// Bytes of a message that is too long for DAT to send inline.
pub(super) const LONGER: u32 = 96;
/// Bytes of a receive.
pub(super) const ROOM: u32 = 256;
/// Bytes of an atomic operation.
pub(super) const ATOMIC: u32 = 8;
/// Offset of outgoing messages in the buffer.
pub(super) const OUT: usize = 0;
/// Offset of received messages.
pub(super) const IN: usize = 1024;
/// Offset of the target of RDMA writes, reads and atomic operations.
pub(super) const TARGET: usize = 2048;
/// Size of the buffer.
pub(super) const BUFFER: usize = 4096;
/// Depth of each send, receive and shared receive queue.
pub(super) const DEPTH: u32 = 512;
/// Depth of each completion queue.
pub(super) const COMPLETIONS: u32 = 1024;

/// Returned by calls that poll, instead of the number of completions: a
/// completion has an error status.
pub(super) const POLL_FAILED: usize = usize::MAX;

/// An operation that uDAPL 2.0 has as an extension.
#[derive(Clone, Copy)]
pub(super) enum Extension {
    Atomic(AtomicOp),
    WriteImmediate,
}

/// One end of a connection. It takes receives from its own queue or from a
/// shared one, and has one completion queue for receives and one for all other
/// requests. Every request has one segment and is signalled. Calls that post
/// return whether they succeeded.
pub(super) trait End {
    /// Whether one call can post several requests.
    const LISTS: bool;
    /// Whether one call can poll several completions.
    const BATCHES: bool;
    /// Whether it has a call that waits ([`Self::waited`]).
    const WAITS: bool = false;
    /// Whether its events of receives with immediate data are measured ([`Self::immediate`]).
    const IMMEDIATES: bool = false;
    /// Whether it can sleep ([`Self::slept`]).
    const SLEEPS: bool = Self::WAITS;

    /// Posts a receive.
    fn receive(&mut self, cookie: u64) -> bool;
    /// Posts [`super::operation::LIST`] receives.
    fn receive_list(&mut self) -> bool;
    /// Posts a send.
    fn send(&mut self, cookie: u64, inline: bool) -> bool;
    /// Posts [`super::operation::LIST`] sends.
    fn send_list(&mut self, inline: bool) -> bool;
    /// Posts a send of `length` bytes, at most [`MESSAGE`]. It is not measured.
    fn send_short(&mut self, cookie: u64, length: u32) -> bool;
    /// Posts an RDMA write that is not inline.
    fn write(&mut self, cookie: u64) -> bool;
    /// Posts an RDMA read.
    fn read(&mut self, cookie: u64) -> bool;
    /// Returns whether the interface has atomic operations on this device.
    fn has_atomics(&self) -> bool;
    /// Posts an atomic operation.
    fn atomic(&mut self, cookie: u64, op: AtomicOp) -> bool;
    /// Posts an RDMA write with immediate data. It is not measured.
    fn write_immediate(&mut self, _cookie: u64) -> bool {
        false
    }

    /// Polls one completion of a receive with immediate data.
    fn immediate(&mut self, _sum: &mut u64) -> usize {
        POLL_FAILED
    }
    /// Polls one completion of a receive, and adds its cookie and length to
    /// `sum`, so that the compiler cannot omit reading them.
    fn received(&mut self, sum: &mut u64) -> usize;
    /// Takes one completion of a receive by a wait for this many events, with timeout 0.
    fn waited<const THRESHOLD: u8>(&mut self, _sum: &mut u64) -> usize {
        POLL_FAILED
    }
    /// Takes one completion of a receive, and sleeps until it comes.
    fn slept(&mut self, _sum: &mut u64) -> usize {
        POLL_FAILED
    }
    /// Polls up to [`super::operation::BATCH`] completions of receives.
    fn received_batch(&mut self, sum: &mut u64) -> usize;
    /// Polls one completion of another request, as [`Self::received`] does.
    fn sent(&mut self, sum: &mut u64) -> usize;
    /// Polls up to [`super::operation::BATCH`] completions of other requests.
    fn sent_batch(&mut self, sum: &mut u64) -> usize;
    /// Polls one completion of a request of any kind.
    fn finished(&mut self) -> usize {
        self.sent(&mut 0)
    }
}

/// A measured interface, which creates connected pairs.
pub(super) trait Interface {
    /// An end with its own receive queue.
    type Own: End;
    /// An end on a shared receive queue.
    type Shared: End;

    /// Creates two connected ends with their own receive queues.
    fn own(&self) -> Result<(Self::Own, Self::Own), Failure>;
    /// Creates two connected ends, each on a shared receive queue.
    fn shared(&self) -> Result<(Self::Shared, Self::Shared), Failure>;
}

//! The seam: one end of a connection, as each interface has it.

use crate::failure::Failure;

/// Bytes of a message, where the interface can choose whether it goes inline.
pub(super) const MESSAGE: u32 = 64;
/// Bytes of a message that DAT does not send inline, which it decides by length.
pub(super) const LONGER: u32 = 96;
/// Bytes of a receive.
pub(super) const ROOM: u32 = 256;
/// Where in the buffer messages begin that go out.
pub(super) const OUT: usize = 0;
/// Where they arrive.
pub(super) const IN: usize = 1024;
/// Where writes go.
pub(super) const TARGET: usize = 2048;
/// Size of the buffer.
pub(super) const BUFFER: usize = 4096;
/// Requests that may be outstanding, of either kind.
pub(super) const DEPTH: u32 = 512;
/// Completions that a queue holds.
pub(super) const COMPLETIONS: u32 = 1024;

/// What a call that takes completions has found: how many; or this, a bad one.
pub(super) const BAD: usize = usize::MAX;

/// One end. Its receives come from a queue of its own or from a shared one;
/// its two kinds of completions go to two queues. Everything is posted with
/// one segment, and every request is signaled.
pub(super) trait End {
    /// Whether lists can be posted.
    const LISTS: bool;
    /// Whether several completions can be taken by one call.
    const BATCHES: bool;

    /// Posts a receive; whether that went well, as all of these tell.
    fn receive(&mut self, cookie: u64) -> bool;
    /// Posts [`super::operation::LIST`] receives.
    fn receive_list(&mut self) -> bool;
    /// Posts a send.
    fn send(&mut self, cookie: u64, inline: bool) -> bool;
    /// Posts [`super::operation::LIST`] sends.
    fn send_list(&mut self, inline: bool) -> bool;
    /// Posts a write that does not go inline.
    fn write(&mut self, cookie: u64) -> bool;

    /// Takes the completion of a receive, and adds what it says to a sum.
    fn received(&mut self, sum: &mut u64) -> usize;
    /// Takes up to [`super::operation::BATCH`] of them.
    fn received_batch(&mut self, sum: &mut u64) -> usize;
    /// The same of sends and writes.
    fn sent(&mut self, sum: &mut u64) -> usize;
    /// The same of sends and writes.
    fn sent_batch(&mut self, sum: &mut u64) -> usize;
}

/// An interface: makes connected pairs.
pub(super) trait Interface {
    /// An end with a receive queue of its own.
    type Own: End;
    /// An end whose receives come from a shared queue.
    type Shared: End;

    /// Two ends that are connected.
    fn own(&self) -> Result<(Self::Own, Self::Own), Failure>;
    /// Two ends that are connected.
    fn shared(&self) -> Result<(Self::Shared, Self::Shared), Failure>;
}

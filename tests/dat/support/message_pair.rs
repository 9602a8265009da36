//! Messages from one endpoint to another.

use std::ops::Range;

use dat::abi::*;
use dat::exports::*;

use super::{Evd, Fixture, Memory, Pair, Shape, cookie, ok};

/// Length of a message in bytes.
pub const MESSAGE: usize = 8;

/// A connected pair whose active end sends, with memory for both ends.
pub struct MessagePair<'b> {
    pub fixture: &'b Fixture,
    pub pair: Pair,
    pub memory: Memory,
}

// SAFETY: handles are numbers, and the tests do not touch the memory while it is
// shared.
unsafe impl Sync for MessagePair<'_> {}

impl<'b> MessagePair<'b> {
    pub fn new(fixture: &'b Fixture, shape: &Shape) -> Self {
        Self::of(fixture, Pair::new(fixture, shape))
    }

    pub fn of(fixture: &'b Fixture, pair: Pair) -> Self {
        let memory = fixture.memory(4096);
        Self {
            fixture,
            pair,
            memory,
        }
    }

    /// Returns the EVD of the receives.
    pub fn recv(&self) -> Evd {
        Evd(self.pair.passive.recv)
    }

    /// Returns the EVD of the sends.
    pub fn request(&self) -> Evd {
        Evd(self.pair.active.request)
    }

    /// Posts receives.
    #[track_caller]
    pub fn post_recvs(&self, tags: Range<u64>) {
        for tag in tags {
            self.post_recv_with(tag, DAT_COMPLETION_DEFAULT_FLAG);
        }
    }

    #[track_caller]
    pub fn post_recv_with(&self, tag: u64, flags: DAT_COMPLETION_FLAGS) {
        let mut iov = [self.memory.segment(1024, 64)];
        // SAFETY: one segment, whose memory the tests keep.
        ok(unsafe {
            dat_ep_post_recv(
                self.pair.passive.ep,
                1,
                iov.as_mut_ptr(),
                cookie(tag),
                flags,
            )
        });
    }

    /// Sends a message, and lets the device work.
    #[track_caller]
    pub fn send(&self, tag: u64, flags: DAT_COMPLETION_FLAGS) {
        ok(self
            .pair
            .active
            .post_send(&[self.memory.segment(0, MESSAGE)], tag, flags));
        self.fixture.run();
    }

    /// Delivers a message and takes the completion of its send.
    #[track_caller]
    pub fn deliver(&self) {
        self.deliver_with(DAT_COMPLETION_DEFAULT_FLAG);
    }

    #[track_caller]
    pub fn deliver_with(&self, flags: DAT_COMPLETION_FLAGS) {
        self.send(u64::MAX, flags);
        assert_eq!(self.pair.active.requested().status, DAT_DTO_SUCCESS);
    }

    /// Delivers a message whose send has no event unless it fails.
    #[track_caller]
    pub fn deliver_suppressed(&self, flags: DAT_COMPLETION_FLAGS) {
        self.send(u64::MAX, flags | DAT_COMPLETION_SUPPRESS_FLAG);
    }

    /// Takes the receive that must have completed, and returns its tag.
    #[track_caller]
    pub fn received_tag(&self) -> u64 {
        self.pair.passive.received().cookie
    }
}

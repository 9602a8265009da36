//! Two connected ends; messages are sent from the far one to the near one.

use std::time::Duration;

use dat_api::safe::{EventDispatcher, WaitPolicy};
use dat_api::types::{DtoStatus, Event, EventData};
use dat_engine::cm::ListenOn;

use crate::ends::end::{End, Flags, Op, Queue};
use crate::ends::interface::{Interface, Shape};
use crate::ends::rust::{Rust, RustEnd};
use crate::failure::Failure;

/// Number of posted receives: most messages that the waiter has not taken.
pub(super) const DEPTH: u64 = 64;
/// Bytes of a message, which is inline.
const MESSAGE: usize = 8;

/// The sender's objects. The waiter has only the event dispatcher.
pub(super) struct Pair {
    near: RustEnd<false>,
    far: RustEnd<false>,
    send: <RustEnd<false> as End>::Request,
    /// The number of the next receive.
    next: u64,
}

impl Pair {
    /// Creates and connects two ends. Also returns the event dispatcher of
    /// the near one's receives, which has this wait policy.
    pub(super) fn new(rust: &Rust, policy: WaitPolicy) -> Result<(Self, EventDispatcher), Failure> {
        let shape = Shape {
            bytes: 4096,
            sends: 128,
            receives: 128,
            sent_completions: 256,
            received_completions: 256,
            inline: 0,
            reads: 1,
            segments: 1,
            into: Vec::new(),
            policy: Some(policy),
            timeout: Duration::from_secs(10),
            listen: ListenOn::All,
        };
        let [near, far] = rust.connect_pair::<false>(&shape)?;
        let received = near.end.received().clone();
        let mut pair = Self {
            send: far.end.request(Op::Send, 0..MESSAGE, far.theirs),
            near: near.end,
            far: far.end,
            next: 0,
        };
        for _ in 0..DEPTH {
            pair.receive()?;
        }
        Ok((pair, received))
    }

    /// Posts the next receive, with its number as cookie.
    pub(super) fn receive(&mut self) -> Result<(), Failure> {
        self.near.post_receive(0..MESSAGE, &mut (), self.next)?;
        self.next += 1;
        Ok(())
    }

    /// Polls completions of earlier sends, then posts a message.
    pub(super) fn send(&mut self) -> Result<(), Failure> {
        while self.far.poll(Queue::Sent).transpose()?.is_some() {}
        let (end, request) = (&mut self.far, &mut self.send);
        Ok(end.post(Op::Send, 0..MESSAGE, request, 0, Flags::SIGNALED)?)
    }
}

/// Returns the cookie of a successful request.
#[inline]
pub(super) fn number(event: &Event) -> Result<u64, Failure> {
    match event.data {
        EventData::Dto {
            status: DtoStatus::Success,
            cookie,
            ..
        } => Ok(cookie),
        ref other => Err(Failure::run(format!(
            "event {other:?} instead of a successful completion"
        ))),
    }
}

//! Many endpoints on the queues of one end, each connected to itself.

use std::time::Duration;

use dat_engine::cm::ListenOn;

use crate::ends::end::{End, Op, Queue};
use crate::ends::interface::{Shape, SharedQueues};
use crate::failure::Failure;

/// Depth of the shared receive queue.
pub(super) const RECEIVES: u32 = 2048;
/// Send queue depth of an endpoint.
const SENDS: u32 = 16;
/// Bytes of a message.
const MESSAGE: usize = 32;
/// Where messages are received.
const INTO: usize = 1024;

/// Connected endpoints on a shared receive queue, whose receives are posted.
pub(super) struct Endpoints<I: SharedQueues> {
    // Dropped in this order: the memory of `end` after all objects that write to it.
    endpoints: Vec<I::Endpoint>,
    end: I::End<true>,
    request: <I::End<true> as End>::Request,
    receive: I::Receive,
    sum: u64,
}

impl<I: SharedQueues> Endpoints<I> {
    /// Creates this many.
    pub(super) fn create(interface: &I, count: u32) -> Result<Self, Failure> {
        let shape = Shape {
            bytes: 4096,
            sends: SENDS,
            receives: RECEIVES,
            sent_completions: 2 * RECEIVES,
            received_completions: 2 * RECEIVES,
            inline: 0,
            reads: 1,
            segments: 1,
            into: vec![vec![INTO..INTO + MESSAGE]; RECEIVES as usize],
            policy: None,
            timeout: Duration::from_secs(10),
            listen: ListenOn::All,
        };
        let [near, _] = interface.connect_pair::<true>(&shape)?;
        let (end, theirs) = (near.end, near.theirs);
        let add = |number| interface.another(&end, SENDS, MESSAGE as u32, u64::from(number));
        Ok(Self {
            endpoints: (0..count).map(add).collect::<Result<_, _>>()?,
            request: end.request(Op::Send, 0..MESSAGE, theirs),
            receive: I::receive(&end, INTO..INTO + MESSAGE),
            end,
            sum: 0,
        })
    }

    /// Returns their number.
    pub(super) fn count(&self) -> usize {
        self.endpoints.len()
    }

    /// Sends a message on one of them. Returns whether its queue had room.
    pub(super) fn send(&mut self, endpoint: usize) -> bool {
        let endpoint = &mut self.endpoints[endpoint];
        I::send_by(&self.end, endpoint, &mut self.request).is_ok()
    }

    /// Polls completions of sends. Returns their number.
    pub(super) fn sent(&mut self) -> Result<u32, Failure> {
        let mut done = 0;
        while self.end.poll(Queue::Sent).transpose()?.is_some() {
            done += 1;
        }
        Ok(done)
    }

    /// Polls `count` messages and posts their receives again: what is measured. Returns how
    /// many it got before a poll was empty or a call failed.
    #[inline(always)]
    pub(super) fn take(&mut self, count: u32) -> u32 {
        for taken in 0..count {
            let Some(Ok(done)) = self.end.poll(Queue::Received) else {
                return taken;
            };
            let (into, receive) = (INTO..INTO + MESSAGE, &mut self.receive);
            if I::post_receive(&mut self.end, into, receive, done.cookie).is_err() {
                return taken;
            }
            self.sum = self.sum.wrapping_add(done.endpoint + done.length);
        }
        core::hint::black_box(self.sum);
        count
    }
}

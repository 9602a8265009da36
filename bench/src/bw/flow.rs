//! One endpoint of a side: posts messages, takes messages, and keeps the other
//! side from sending more than there are receives.
//!
//! ```text
//! sender                                   receiver
//!   posted − granted < receives              takes a message, posts its receive again
//!   ── message ────────────────────────────►   taken + 1
//!   ◄── grant: taken (RDMA write) ──────────  after half of the receives
//! ```
//!
//! So no message arrives without a posted receive, whatever the depths are: an
//! RNR NAK would stop the queue pair for a while.

use super::meter::Meter;
use super::queue::SendQueue;
use crate::ends::end::Done;
use crate::ends::{CompletionResult, End, LONGEST_LIST, Link, Stop};

/// Most messages that are taken in one turn, so that several endpoints and both
/// directions take turns.
const MOST_IN_A_TURN: usize = 16;

/// One endpoint with its counters. All counters begin at 0 with each pass.
pub(super) struct Flow<E: End> {
    pub(super) link: Link<E>,
    queue: SendQueue,
    /// Bytes of a message.
    size: u32,
    /// Requests of a post list.
    list: u32,
    /// Receives that each side has posted; 0 without grants, which perftest has not, and which
    /// only sends need.
    receives: u32,
    /// Whether completions have the length of a message: RDMA reads and atomic operations.
    fetches: bool,
    /// Messages to post, including those posted.
    goal: u64,
    posted: u64,
    completed: u64,
    taken: u64,
    /// The last grant that was sent.
    told: u64,
    /// Whether a grant is not complete.
    telling: bool,
}

impl<E: End> Flow<E> {
    pub(super) fn new(link: Link<E>, depth: u32, receives: u32, fetches: bool) -> Self {
        Self {
            link,
            queue: SendQueue::new(depth),
            size: 0,
            list: 1,
            receives,
            fetches,
            goal: 0,
            posted: 0,
            completed: 0,
            taken: 0,
            told: 0,
            telling: false,
        }
    }

    /// Begins a pass. No request may be outstanding.
    pub(super) fn reset(&mut self, size: u32, list: u32, moderation: u32) {
        (self.size, self.list) = (size, list);
        self.queue.set_moderation(moderation);
        (self.goal, self.posted, self.completed) = (0, 0, 0);
        (self.taken, self.told) = (0, 0);
    }

    /// Sets the number of messages to post from now on.
    pub(super) fn post_more(&mut self, messages: u64) {
        self.goal = self.posted.saturating_add(messages);
    }

    /// Posts no more messages, except one if the last one was not signalled.
    #[cold]
    pub(super) fn stop(&mut self) {
        self.goal = self.posted + u64::from(self.queue.has_tail());
    }

    pub(super) fn posted(&self) -> u64 {
        self.posted
    }

    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns whether all messages are posted and complete.
    #[inline(always)]
    pub(super) fn has_sent_all(&self) -> bool {
        self.completed == self.goal
    }

    /// Returns whether no request is outstanding.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Posts as many messages as there is room and receives for. Returns whether
    /// there were any.
    #[inline(always)]
    pub(super) fn transmit<const NUMBERED: bool>(
        &mut self,
        meter: &mut Meter,
    ) -> Result<bool, Stop> {
        let checks = NUMBERED && self.link.checks();
        let mut has_posted = false;
        let mut signals = [false; LONGEST_LIST];
        while self.posted < self.goal {
            let count = u64::from(self.list).min(self.goal - self.posted) as u32;
            if self.queue.room() < count || !self.may_send(count) {
                break;
            }
            let signals = &mut signals[..count as usize];
            for (at, signaled) in signals.iter_mut().enumerate() {
                let is_last = self.posted + at as u64 + 1 == self.goal;
                *signaled = self.queue.post_message(is_last);
            }
            meter.post(count);
            if checks {
                self.link.fill(self.posted + 1);
            }
            match *signals {
                [signaled] => self.link.post::<NUMBERED>(self.posted + 1, signaled)?,
                _ => self.link.post_list(signals)?,
            }
            self.posted += u64::from(count);
            has_posted = true;
        }
        Ok(has_posted)
    }

    /// Returns whether the other side has receives for `count` more messages.
    #[inline(always)]
    fn may_send(&self, count: u32) -> bool {
        if self.receives == 0 {
            return true;
        }
        let Some(granted) = self.link.granted() else {
            return false;
        };
        // Both are the low bits of counters that differ by less than the receives.
        let in_use = (self.posted as u32).wrapping_sub(granted);
        self.receives.saturating_sub(in_use) >= count
    }

    /// Takes all completions of the send queue. Returns whether there were any.
    #[inline(always)]
    pub(super) fn collect<const NUMBERED: bool>(
        &mut self,
        meter: &mut Meter,
    ) -> Result<bool, Stop> {
        let checks = NUMBERED && self.fetches && self.link.checks();
        let mut has_completed = false;
        while let Some(done) = self.link.poll_sent() {
            let done = done?;
            if self.fetches {
                self.expect_size(Ok(done))?;
            }
            // Without a signalled request there is no successful completion.
            let batch = self.queue.completed().unwrap_or_default();
            self.telling &= !batch.has_grant;
            if checks {
                for number in 1..=u64::from(batch.messages) {
                    self.link.check(self.completed + number)?;
                }
            }
            if batch.messages > 0 {
                self.completed += u64::from(batch.messages);
                meter.complete(batch.messages);
            }
            has_completed = true;
        }
        Ok(has_completed)
    }

    /// Takes messages, posts their receives again and tells the other side. Returns
    /// whether there were any.
    #[inline(always)]
    pub(super) fn receive<const NUMBERED: bool>(&mut self) -> Result<bool, Stop> {
        let before = self.taken;
        for _ in 0..MOST_IN_A_TURN {
            let Some(done) = self.link.poll_received() else {
                break;
            };
            let done = self.expect_size(done)?;
            self.taken += 1;
            if NUMBERED {
                self.link.check_received(self.taken, &done)?;
                if self.link.checks() {
                    self.link.check(self.taken)?;
                }
            }
            self.link.post_receive::<NUMBERED>()?;
        }
        self.tell()?;
        Ok(self.taken > before)
    }

    /// Sends a grant after half of the receives, or earlier if a list could need it.
    #[inline(always)]
    fn tell(&mut self) -> Result<(), Stop> {
        let least = (self.receives / 2)
            .min(self.receives.saturating_sub(self.list) + 1)
            .max(1);
        let is_due = self.receives > 0 && self.taken - self.told >= u64::from(least);
        if is_due && !self.telling && self.queue.room() > 0 {
            self.queue.post_grant();
            self.link.post_grant(self.taken as u32)?;
            (self.told, self.telling) = (self.taken, true);
        }
        Ok(())
    }

    #[inline(always)]
    fn expect_size(&self, done: CompletionResult) -> Result<Done, Stop> {
        let done = done?;
        match done.length as u32 {
            received if received == self.size => Ok(done),
            received => Err(Stop::Length {
                expected: self.size,
                received,
            }),
        }
    }
}

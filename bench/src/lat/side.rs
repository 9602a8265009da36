//! One side of the ping-pong: a link, the credits of its send queue, and the
//! steps that the loops have in common.

use super::credits::SendCredits;
use crate::ends::end::Done;
use crate::ends::{CompletionResult, End, Link, Stop, Watchdog};

/// Which endpoint has a message, and its number there, from 1. Endpoints take turns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) endpoint: usize,
    pub(super) number: u64,
}

impl Turn {
    pub(super) const FIRST: Self = Self {
        endpoint: 0,
        number: 1,
    };
}

/// Waits for the completions of all signalled requests of all endpoints.
pub(super) fn drain<E: End>(
    sides: &mut [Side<E>],
    watchdog: &mut Watchdog<'_>,
) -> Result<(), Stop> {
    sides.iter_mut().try_for_each(|side| side.drain(watchdog))
}

/// A link with the credits of its send queue: one endpoint of a side.
pub(super) struct Side<E: End> {
    pub(super) link: Link<E>,
    credits: SendCredits,
    /// Message size of this run, bytes.
    size: u32,
}

impl<E: End> Side<E> {
    pub(super) fn new(link: Link<E>, tx_depth: u32) -> Self {
        Self {
            link,
            credits: SendCredits::new(tx_depth),
            size: 0,
        }
    }

    /// Returns the depth of the send queue.
    pub(super) fn depth(&self) -> u32 {
        self.credits.depth()
    }

    /// Returns whether the send queue has no credit left.
    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.credits.is_full()
    }

    /// Prepares memory and requests for messages of this size.
    pub(super) fn prepare(&mut self, size: u32) {
        self.size = size;
        self.link.prepare(size);
    }

    /// Posts the operation of this run. The send queue must have a credit.
    #[inline(always)]
    pub(super) fn post<const NUMBERED: bool>(&mut self, number: u64) -> Result<(), Stop> {
        let signaled = self.credits.post();
        Ok(self.link.post::<NUMBERED>(number, signaled)?)
    }

    /// Posts the operation of this run, and an empty send behind it. The send queue must
    /// have a credit, which is for both.
    #[inline(always)]
    pub(super) fn post_with_send<const NUMBERED: bool>(&mut self, number: u64) -> Result<(), Stop> {
        let signaled = self.credits.post();
        self.link.post::<NUMBERED>(number, false)?;
        Ok(self.link.post_empty(signaled)?)
    }

    /// Waits until the send queue has a credit.
    #[inline(always)]
    pub(super) fn wait_for_credit(&mut self, watchdog: &mut Watchdog<'_>) -> Result<(), Stop> {
        while self.credits.is_full() {
            self.collect_one(watchdog)?;
        }
        Ok(())
    }

    /// Waits for the completions of all signalled requests.
    fn drain(&mut self, watchdog: &mut Watchdog<'_>) -> Result<(), Stop> {
        while self.credits.has_outstanding() {
            self.collect_one(watchdog)?;
        }
        Ok(())
    }

    /// Called after an empty poll: polls a send completion if the queue has no
    /// credit, and checks the timeout once in many calls.
    #[inline(always)]
    pub(super) fn after_empty_poll(&mut self, watchdog: &mut Watchdog<'_>) -> Result<(), Stop> {
        if self.credits.is_full() {
            self.collect()?;
        }
        if watchdog.tick() {
            self.check_errors(watchdog)?;
        }
        Ok(())
    }

    /// Takes a message, if one has arrived, and posts its receive again.
    #[inline(always)]
    pub(super) fn receive<const NUMBERED: bool>(&mut self, number: u64) -> Result<bool, Stop> {
        self.receive_sized::<NUMBERED>(number, self.size)
    }

    /// Takes an empty message, if one has arrived, and posts its receive again.
    #[inline(always)]
    pub(super) fn receive_empty(&mut self) -> Result<bool, Stop> {
        self.receive_sized::<false>(0, 0)
    }

    #[inline(always)]
    fn receive_sized<const NUMBERED: bool>(
        &mut self,
        number: u64,
        size: u32,
    ) -> Result<bool, Stop> {
        let Some(done) = self.link.await_received() else {
            return Ok(false);
        };
        let done = expect(done, size)?;
        if NUMBERED {
            self.link.check_received(number, &done)?;
        }
        self.link.post_receive::<NUMBERED>()?;
        Ok(true)
    }

    /// Checks that a completion succeeded and has the length of this run's
    /// messages.
    #[inline(always)]
    pub(super) fn expect_size(&self, done: CompletionResult) -> Result<(), Stop> {
        expect(done, self.size).map(drop)
    }

    #[inline(always)]
    fn collect(&mut self) -> Result<bool, Stop> {
        let done = self.link.poll_sent();
        self.count(done)
    }

    #[inline(always)]
    fn count(&mut self, done: Option<CompletionResult>) -> Result<bool, Stop> {
        let Some(done) = done else {
            return Ok(false);
        };
        done?;
        self.credits.completed();
        Ok(true)
    }

    #[inline(always)]
    fn collect_one(&mut self, watchdog: &mut Watchdog<'_>) -> Result<(), Stop> {
        loop {
            let done = self.link.await_sent();
            if self.count(done)? {
                return Ok(());
            }
            if watchdog.tick() {
                watchdog.check()?;
            }
        }
    }

    /// Polls for completions with errors, which unsignalled requests have too,
    /// then checks the timeout.
    #[cold]
    fn check_errors(&mut self, watchdog: &mut Watchdog<'_>) -> Result<(), Stop> {
        while self.collect()? {}
        watchdog.check()
    }
}

#[inline(always)]
fn expect(done: CompletionResult, expected: u32) -> Result<Done, Stop> {
    let done = done?;
    match done.length as u32 {
        received if received == expected => Ok(done),
        received => Err(Stop::Length { expected, received }),
    }
}

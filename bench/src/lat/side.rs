//! One side of the ping-pong: a link, the credits of its send queue, and the
//! steps that the loops have in common.

use super::link::{Done, Link};
use super::patience::{Patience, Stop};
use super::window::Window;

/// A link with the credits of its send queue.
pub(super) struct Side<L> {
    pub(super) link: L,
    window: Window,
    /// Message size of this run, bytes.
    size: u32,
}

/// The responder, as the measuring loop sees it.
///
/// With `--loopback` the measuring loop calls it at every empty poll. A
/// responder in another process runs by itself: [`Remote`].
pub(super) trait Partner {
    /// Answers the next message, if it has arrived. Returns whether it had.
    fn step(&mut self) -> Result<bool, Stop>;
}

/// A responder in another process.
pub(super) struct Remote;

impl Partner for Remote {
    #[inline(always)]
    fn step(&mut self) -> Result<bool, Stop> {
        Ok(false)
    }
}

impl<L: Link> Side<L> {
    pub(super) fn new(link: L, tx_depth: u32) -> Self {
        Self {
            link,
            window: Window::new(tx_depth),
            size: 0,
        }
    }

    pub(super) fn set_size(&mut self, size: u32) {
        self.size = size;
    }

    /// Posts the operation of this run. The send queue must have a credit.
    #[inline(always)]
    pub(super) fn post(&mut self) -> Result<(), Stop> {
        let signaled = self.window.post();
        Ok(self.link.post(signaled)?)
    }

    /// Waits until the send queue has a credit.
    #[inline(always)]
    pub(super) fn make_room(&mut self, patience: &mut Patience<'_>) -> Result<(), Stop> {
        while self.window.is_full() {
            self.collect_one(patience)?;
        }
        Ok(())
    }

    /// Waits for the completions of all signalled requests.
    pub(super) fn settle(&mut self, patience: &mut Patience<'_>) -> Result<(), Stop> {
        while self.window.awaits_completion() {
            self.collect_one(patience)?;
        }
        Ok(())
    }

    /// Called after an empty poll: polls a send completion if the queue has no
    /// credit, and checks the timeout once in many calls.
    #[inline(always)]
    pub(super) fn idle(&mut self, patience: &mut Patience<'_>) -> Result<(), Stop> {
        if self.window.is_full() {
            self.collect()?;
        }
        if patience.tick() {
            self.look_up(patience)?;
        }
        Ok(())
    }

    /// Takes a message, if one has arrived, and posts its receive again.
    #[inline(always)]
    pub(super) fn receive(&mut self) -> Result<bool, Stop> {
        let Some(done) = self.link.await_received() else {
            return Ok(false);
        };
        self.expect_size(done)?;
        self.link.post_receive()?;
        Ok(true)
    }

    /// Checks that a completion succeeded and has the length of this run's
    /// messages.
    #[inline(always)]
    pub(super) fn expect_size(&self, done: Done) -> Result<(), Stop> {
        let came = done?;
        if came == self.size {
            Ok(())
        } else {
            Err(Stop::Length {
                expected: self.size,
                came,
            })
        }
    }

    #[inline(always)]
    fn collect(&mut self) -> Result<bool, Stop> {
        let done = self.link.poll_sent();
        self.count(done)
    }

    #[inline(always)]
    fn count(&mut self, done: Option<Done>) -> Result<bool, Stop> {
        let Some(done) = done else {
            return Ok(false);
        };
        done?;
        self.window.completed();
        Ok(true)
    }

    #[inline(always)]
    fn collect_one(&mut self, patience: &mut Patience<'_>) -> Result<(), Stop> {
        loop {
            let done = self.link.await_sent();
            if self.count(done)? {
                return Ok(());
            }
            if patience.tick() {
                patience.look_up()?;
            }
        }
    }

    /// Polls for completions with errors, which unsignalled requests have too,
    /// then checks the timeout.
    #[cold]
    fn look_up(&mut self, patience: &mut Patience<'_>) -> Result<(), Stop> {
        while self.collect()? {}
        patience.look_up()
    }
}

/// Answers messages until the control connection has a message.
pub(super) fn serve(partner: &mut impl Partner) -> Result<(), Stop> {
    loop {
        match partner.step() {
            Ok(_) => {}
            Err(Stop::News) => return Ok(()),
            Err(stop) => return Err(stop),
        }
    }
}

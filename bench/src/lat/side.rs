//! One side of the ping-pong: a link, the places of its send queue, and the
//! steps that all loops share.

use super::link::{Done, Link};
use super::patience::{Patience, Stop};
use super::window::Window;

/// A link with the accounts of its queue.
pub(super) struct Side<L> {
    pub(super) link: L,
    window: Window,
    /// Message size of this run, bytes.
    size: u32,
}

/// The side that answers.
///
/// The measuring loop steps it at every empty poll. In a process of its own
/// the other side needs no stepping: that is [`Remote`].
pub(super) trait Partner {
    /// Answers the next message if it is there; whether it was.
    fn step(&mut self) -> Result<bool, Stop>;
}

/// A partner in another process.
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

    /// Posts the operation of this run, and counts it. There must be room.
    #[inline(always)]
    pub(super) fn post(&mut self) -> Result<(), Stop> {
        let signaled = self.window.post();
        Ok(self.link.post(signaled)?)
    }

    /// Waits until another request may be posted.
    #[inline(always)]
    pub(super) fn make_room(&mut self, patience: &mut Patience<'_>) -> Result<(), Stop> {
        while self.window.is_full() {
            self.collect_one(patience)?;
        }
        Ok(())
    }

    /// Waits for every completion that was asked for.
    pub(super) fn settle(&mut self, patience: &mut Patience<'_>) -> Result<(), Stop> {
        while self.window.awaits_completion() {
            self.collect_one(patience)?;
        }
        Ok(())
    }

    /// Makes use of a moment in which nothing has come: takes a send completion
    /// that makes room, and now and then looks up.
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

    /// Takes a message if one is there, and posts a receive in its place.
    #[inline(always)]
    pub(super) fn receive(&mut self) -> Result<bool, Stop> {
        let Some(done) = self.link.await_received() else {
            return Ok(false);
        };
        self.expect_size(done)?;
        self.link.post_receive()?;
        Ok(true)
    }

    /// A good completion that carried as many bytes as this run's messages have.
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

    /// Errors of unsignalled requests come as completions that nobody awaits:
    /// they are looked for here.
    #[cold]
    fn look_up(&mut self, patience: &mut Patience<'_>) -> Result<(), Stop> {
        while self.collect()? {}
        patience.look_up()
    }
}

/// Answers until the control connection has news: that the other side is done, or why not.
pub(super) fn serve(partner: &mut impl Partner) -> Result<(), Stop> {
    loop {
        match partner.step() {
            Ok(_) => {}
            Err(Stop::News) => return Ok(()),
            Err(stop) => return Err(stop),
        }
    }
}

//! Time stamps of events, for EVDs that were asked for them.
//!
//! The first call that asks sets a bit of the word that forbids the fast path (`posted.rs`). From
//! then on each completion is polled together with its stamp and staged; the stamp is converted
//! when the event is taken. Other EVDs neither read nor keep stamps.
//!
//! Decision: `docs/decisions/072-time-stamps.md`

use std::collections::VecDeque;

use dat_engine::Arrival;
#[cfg(not(test))]
pub(super) use dat_engine::DeviceClock as Clock;

use super::consumer::Consumer;
use super::exclusive::open;
use super::posted::with_room;
use super::staging::{Arrivals, put};
use super::take::EVD_FAILED;
#[cfg(test)]
pub(super) use super::tests::FakeClock as Clock;
use super::wait::{Timeout, Waited, wait};
use super::{Evd, Queue};
use crate::error::{DatError, Result};
use crate::handle::Owned;
use crate::object::exhausted;
use crate::types::Event;

/// An event and when it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamped<T = Event> {
    /// The event, or what a wait has returned.
    pub event: T,
    /// When the device wrote the completion, in nanoseconds since 1970 by the device's clock.
    /// `None` if it is not known: the event is no completion, or its request or receive failed, or
    /// the EVD had staged it before it was asked for stamps.
    pub nanoseconds: Option<u64>,
}

/// Asks the EVD for stamps, and takes its first event. Never blocks.
///
/// # Errors
/// As [`super::dequeue`]; `MODEL_NOT_SUPPORTED` if the device's completions have no stamps.
pub fn dequeue_stamped(mut owned: Owned<Evd>) -> Result<Stamped> {
    let handle = owned.handle();
    let (evd, consumer) = open(&mut owned);
    consumer.ask_for_stamps(evd)?;
    match consumer.next(evd) {
        Some(data) => Ok(Stamped {
            event: Event { evd: handle, data },
            nanoseconds: consumer.last_stamp(),
        }),
        None if evd.state.has_failed() => Err(EVD_FAILED.into()),
        None => Err(evd.empty.into()),
    }
}

/// Asks the EVD for stamps, and waits as [`wait`] does.
///
/// # Errors
/// `MODEL_NOT_SUPPORTED` if the device's completions have no stamps, or there is no memory for
/// them. Errors of the wait are in the result.
pub fn wait_stamped(
    owned: &mut Owned<Evd>,
    timeout: Timeout,
    threshold: i32,
) -> Result<Stamped<Waited>> {
    let (evd, consumer) = open(owned);
    consumer.ask_for_stamps(evd)?;
    let waited = wait(owned, timeout, threshold);
    let (_, consumer) = open(owned);
    Ok(Stamped {
        event: waited,
        nanoseconds: waited.result.ok().and_then(|_| consumer.last_stamp()),
    })
}

/// The stamps of an EVD.
pub(super) struct Stamps {
    clock: Clock,
    /// Those of the staged events, in their order, behind those of events that were taken since
    /// [`Self::follow`].
    staged: VecDeque<Option<u64>>,
    /// That of the event that was taken last.
    last: Option<u64>,
}

impl Stamps {
    /// Removes the stamps of events that were taken: `staged` are left.
    pub(super) fn follow(&mut self, staged: usize) {
        while self.staged.len() > staged {
            self.last = self.staged.pop_front().flatten();
        }
    }

    /// Gives this stamp to the events that were staged last: there are `staged` now.
    pub(super) fn stage(&mut self, staged: usize, stamp: Option<u64>) {
        while self.staged.len() < staged {
            self.staged.push_back(stamp);
        }
    }

    /// Passes the first stamp of a queue that is being filtered: moves it to the end if its event
    /// `stays`, otherwise removes it.
    pub(super) fn filter(&mut self, stays: bool) {
        let stamp = self.staged.pop_front().flatten();
        if stays {
            self.staged.push_back(stamp);
        }
    }

    /// Reserves room for the stamps of `room` events. Allocates: at most once for each endpoint
    /// that is attached or resize of the EVD.
    pub(super) fn reserve(&mut self, room: usize) {
        self.staged.reserve(room.saturating_sub(self.staged.len()));
    }
}

impl Consumer {
    /// Makes the EVD keep the stamps of its events from now on.
    fn ask_for_stamps(&mut self, evd: &Evd) -> Result<()> {
        match self.stamps {
            Some(_) => Ok(()),
            None => self.begin_stamps(evd),
        }
    }

    #[cold]
    fn begin_stamps(&mut self, evd: &Evd) -> Result<(), DatError> {
        let clock = evd.context.clock()?;
        let mut stamps = Stamps {
            clock,
            staged: with_room(self.staged.capacity()).ok_or_else(exhausted)?,
            last: None,
        };
        stamps.stage(self.staged.len(), None);
        self.stamps = Some(Box::new(stamps));
        evd.posted.note_stamped();
        Ok(())
    }

    /// Returns when the event that was taken last arrived, in nanoseconds.
    fn last_stamp(&mut self) -> Option<u64> {
        let stamps = self.stamps.as_mut()?;
        stamps.follow(self.staged.len());
        stamps.clock.nanoseconds(stamps.last?)
    }

    /// As [`Self::stage`], with stamps.
    #[cold]
    #[inline(never)]
    pub(super) fn stage_stamped(
        &mut self,
        evd: &Evd,
        room: usize,
        most: impl Fn(&Queue) -> u32,
    ) -> Arrivals {
        let attribute = evd.state.attribute();
        let mut found = Arrivals::default();
        let moving = evd.moves.begin();
        let Some(stamps) = &mut self.stamps else {
            return found;
        };
        stamps.follow(self.staged.len());
        self.merge.allow(&self.queues, most);
        for _ in 0..room {
            let next = self.merge.next_by(&mut self.queues, Queue::poll_stamped);
            let Some((completion, arrival)) = next else {
                break;
            };
            let (staged, notice) = (&mut self.staged, &mut self.notice);
            put(&completion, staged, attribute, notice, &mut found);
            let stamp = match arrival {
                Arrival::At(stamp) => Some(stamp),
                Arrival::Unknown | Arrival::Empty => None,
            };
            stamps.stage(self.staged.len(), stamp);
        }
        if found.completion {
            moving.has_moved();
        }
        drop(moving);
        self.note_staged(evd);
        found
    }
}

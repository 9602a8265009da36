//! Taking events without waiting.

use super::Evd;
use super::exclusive::open;
use super::fast::peek;
use crate::handle::{self, Handle, NotOwned, Owned};
use crate::status::{DatReturn, ReturnType, Subtype};
use crate::types::{Event, EventData};

pub(super) const STALE: DatReturn =
    DatReturn::error(ReturnType::InvalidHandle, Subtype::InvalidHandle1);
pub(super) const WAITED: DatReturn =
    DatReturn::error(ReturnType::InvalidState, Subtype::InvalidStateEvdWaiter);
pub(super) const DEAD: DatReturn = DatReturn::error(ReturnType::InvalidState, Subtype::NoSubtype);
/// There is no event.
pub const EMPTY: DatReturn = DatReturn::error(ReturnType::QueueEmpty, Subtype::NoSubtype);

/// Takes the first event of an EVD.
///
/// # Errors
/// `QUEUE_EMPTY`; `INVALID_STATE` if the device gave a queue of it up.
#[inline(always)]
pub fn dequeue(owned: Owned<Evd>) -> Result<Event, DatReturn> {
    let owned = match peek(owned) {
        Ok(None) => return Err(EMPTY),
        Ok(Some(found)) => match found.take(|event| event) {
            Ok(event) => return Ok(event),
            Err(owned) => owned,
        },
        Err(owned) => owned,
    };
    dequeue_slow(owned)
}

/// [`dequeue`] on the slow path: takes the event wherever it is.
///
/// # Errors
/// As [`dequeue`].
#[inline(never)]
pub fn dequeue_slow(owned: Owned<Evd>) -> Result<Event, DatReturn> {
    dequeue_slow_with(owned, |event| event)
}

/// As [`dequeue_slow`], and hands the event to `with`, for callers that put it
/// somewhere else, and would rather not have it pass through memory first.
///
/// # Errors
/// As [`dequeue`].
#[inline(always)]
pub fn dequeue_slow_with<R>(
    mut owned: Owned<Evd>,
    with: impl FnOnce(Event) -> R,
) -> Result<R, DatReturn> {
    let handle = owned.handle();
    let (evd, consumer) = open(&mut owned);
    match consumer.next_slow(evd, |data| with(Event { evd: handle, data })) {
        Some(result) => Ok(result),
        None if evd.switches.is_dead() => Err(DEAD),
        None => Err(EMPTY),
    }
}

/// Has the EVD for this call alone: waits for other calls that are just taking
/// an event, but not for one that blocks.
///
/// # Errors
/// `INVALID_HANDLE`; `INVALID_STATE` if a thread waits on the EVD.
#[inline(always)]
pub fn own(handle: Handle) -> Result<Owned<Evd>, DatReturn> {
    match handle::own::<Evd>(handle) {
        Ok(owned) => Ok(owned),
        Err(NotOwned::Stale) => Err(STALE),
        Err(NotOwned::Busy) => own_when_free(handle),
    }
}

/// [`own`] after another call was found to have the EVD.
///
/// # Errors
/// As [`own`].
#[cold]
#[inline(never)]
pub fn own_when_free(handle: Handle) -> Result<Owned<Evd>, DatReturn> {
    for round in 0u32.. {
        if handle::pin::<Evd>(handle)
            .ok_or(STALE)?
            .switches
            .is_waited()
        {
            return Err(WAITED);
        }
        match handle::own::<Evd>(handle) {
            Ok(owned) => return Ok(owned),
            Err(NotOwned::Stale) => return Err(STALE),
            Err(NotOwned::Busy) => {}
        }
        pause(round);
    }
    Err(WAITED)
}

/// Takes what the completion queues of an EVD hold, as far as there is room to
/// keep it for the consumer. If another call has the EVD, that one is asked to.
/// Neither allocates nor waits.
pub(crate) fn relieve(evd: Handle) {
    match handle::own::<Evd>(evd) {
        Ok(mut owned) => {
            let (evd, consumer) = open(&mut owned);
            // Of queues that came while another call had the EVD, if there are
            // any: otherwise whoever sent letters has seen to them himself.
            consumer.read_letters(evd);
            consumer.relieve(evd);
        }
        Err(NotOwned::Busy) => {
            if let Some(evd) = handle::pin::<Evd>(evd) {
                evd.posted.ask_relief();
                evd.blocker.wake();
            }
        }
        Err(NotOwned::Stale) => {}
    }
}

/// Lets another thread finish what it is doing with the EVD.
pub(super) fn pause(round: u32) {
    match round {
        0..100 => core::hint::spin_loop(),
        100..200 => std::thread::yield_now(),
        // It may have a lower priority on the same core.
        _ => std::thread::sleep(core::time::Duration::from_micros(20)),
    }
}

/// What became of [`Evd::attend`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attended {
    /// The letters have been acted on.
    Done,
    /// Somebody owns the EVD, and knows that there is something.
    Busy,
    /// The EVD is being freed.
    Gone,
}

impl Evd {
    /// Posts a software event that carries `pointer`.
    ///
    /// # Errors
    /// `INVALID_PARAMETER` if the EVD was not made for software events;
    /// `QUEUE_FULL`.
    pub fn post_software(&self, pointer: usize) -> Result<(), DatReturn> {
        if !self.flags.contains(crate::types::EvdFlags::SOFTWARE) {
            return Err(DatReturn::error(
                ReturnType::InvalidParameter,
                Subtype::InvalidArg1,
            ));
        }
        if !self.posted.offer(EventData::Software { pointer }) {
            return Err(DatReturn::error(ReturnType::QueueFull, Subtype::NoSubtype));
        }
        self.arrived();
        Ok(())
    }

    /// Has the consumer learn of endpoints that have come, so that no later call
    /// has to, which should not allocate. If another call has the EVD, that one
    /// learns of them.
    pub(crate) fn settle(&self) {
        match handle::own::<Self>(self.handle) {
            Ok(mut owned) => {
                let (evd, consumer) = open(&mut owned);
                consumer.settle(evd);
            }
            Err(NotOwned::Busy) if self.posted.has_letters() => self.blocker.wake(),
            Err(_) => {}
        }
    }

    /// Sees to the letters, oneself or through the owner.
    pub(super) fn attend(&self) -> Attended {
        match handle::own::<Self>(self.handle) {
            Ok(mut owned) => {
                let (evd, consumer) = open(&mut owned);
                consumer.read_letters(evd);
                Attended::Done
            }
            Err(NotOwned::Busy) => {
                self.blocker.wake();
                Attended::Busy
            }
            Err(NotOwned::Stale) => Attended::Gone,
        }
    }
}

//! Dequeuing without waiting.

use dat_engine::sync::Backoff;

use super::Evd;
use super::exclusive::open;
use super::fast::peek;
use crate::handle::{self, Handle, NotOwned, Owned};
use crate::status::{DatReturn, ReturnType, Subtype};
use crate::types::{EvdFlags, Event, EventData};

pub(super) const STALE: DatReturn =
    DatReturn::error(ReturnType::InvalidHandle, Subtype::InvalidHandle1);
pub(super) const WAITED: DatReturn =
    DatReturn::error(ReturnType::InvalidState, Subtype::InvalidStateEvdWaiter);
pub(super) const EVD_FAILED: DatReturn =
    DatReturn::error(ReturnType::InvalidState, Subtype::NoSubtype);
const EMPTY: DatReturn = DatReturn::error(ReturnType::QueueEmpty, Subtype::NoSubtype);

/// Returns the code for an empty EVD with these flags.
///
/// For an EVD with a completion queue, the reference implementation returns the bare type, and
/// programs compare the whole code with `DAT_QUEUE_EMPTY`.
///
/// Decision: `docs/decisions/061-allow-what-the-reference-allows.md`
pub(super) fn empty(flags: EvdFlags, is_strict: bool) -> DatReturn {
    match flags.intersects(EvdFlags::DTO | EvdFlags::RMR_BIND) && !is_strict {
        true => EMPTY.without_class(),
        false => EMPTY,
    }
}

/// Takes the first event of an EVD.
///
/// # Errors
/// `QUEUE_EMPTY`; `INVALID_STATE` if one of its completion queues has failed.
#[inline(always)]
pub fn dequeue(owned: Owned<Evd>) -> Result<Event, DatReturn> {
    let owned = match peek(owned) {
        Ok(Err(empty)) => return Err(empty),
        Ok(Ok(found)) => match found.take(|event| event) {
            Ok(event) => return Ok(event),
            Err(owned) => owned,
        },
        Err(owned) => owned,
    };
    dequeue_slow(owned)
}

/// Takes the first event on the slow path, wherever it is.
///
/// # Errors
/// As [`dequeue`].
#[inline(never)]
pub fn dequeue_slow(owned: Owned<Evd>) -> Result<Event, DatReturn> {
    dequeue_slow_with(owned, |event| event)
}

/// As [`dequeue_slow`], and passes the event to `with`, which can store it without a copy in
/// memory.
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
        None if evd.state.has_failed() => Err(EVD_FAILED),
        None => Err(evd.empty),
    }
}

/// Takes the first events of an EVD, as many as there is room for. Returns how many there were.
///
/// # Errors
/// `INVALID_STATE` if there was none and one of its completion queues has failed.
pub fn drain(mut owned: Owned<Evd>, events: &mut [Event]) -> Result<usize, DatReturn> {
    let (evd, consumer) = open(&mut owned);
    match consumer.drain(evd, events) {
        0 if evd.state.has_failed() => Err(EVD_FAILED),
        taken => Ok(taken),
    }
}

/// Takes the EVD for this call alone. Waits for other calls that are dequeuing, but not for one
/// that blocks.
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

/// As [`own`], after another call was found to own the EVD.
///
/// # Errors
/// As [`own`].
#[cold]
#[inline(never)]
pub fn own_when_free(handle: Handle) -> Result<Owned<Evd>, DatReturn> {
    let mut backoff = Backoff::new();
    loop {
        if handle::pin::<Evd>(handle).ok_or(STALE)?.state.is_waited() {
            return Err(WAITED);
        }
        match handle::own::<Evd>(handle) {
            Ok(owned) => return Ok(owned),
            Err(NotOwned::Stale) => return Err(STALE),
            Err(NotOwned::Busy) => {}
        }
        backoff.wait();
    }
}

/// Takes what the completion queues of an EVD hold, as far as there is room to stage it. If another
/// call owns the EVD, that call is requested to do it. Neither allocates nor waits.
pub(crate) fn poll_completions(evd: Handle) {
    match handle::own::<Evd>(evd) {
        Ok(mut owned) => {
            let (evd, consumer) = open(&mut owned);
            // Processes commands that attached queues while another call owned the EVD; other
            // commands have been processed by the calls that sent them.
            consumer.process_commands(evd);
            consumer.poll_completions(evd);
        }
        Err(NotOwned::Busy) => {
            if let Some(evd) = handle::pin::<Evd>(evd) {
                evd.posted.request_poll();
                evd.blocker.wake();
            }
        }
        Err(NotOwned::Stale) => {}
    }
}

/// The result of [`Evd::process_commands`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandResult {
    /// The commands have been processed.
    Processed,
    /// Another call owns the EVD, and was woken to process them.
    OwnerWoken,
    /// The EVD is being freed.
    Freed,
}

impl Evd {
    /// Posts a software event that carries `pointer`.
    ///
    /// # Errors
    /// `INVALID_PARAMETER` if the EVD was not created for software events; `QUEUE_FULL`.
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

    /// Attaches new endpoints to the consuming half now, so that no later call, which must not
    /// allocate, has to. If another call owns the EVD, that call does it.
    pub(crate) fn attach_new(&self) {
        match handle::own::<Self>(self.handle) {
            Ok(mut owned) => {
                let (evd, consumer) = open(&mut owned);
                consumer.attach_new(evd);
            }
            Err(NotOwned::Busy) if self.posted.has_commands() => self.blocker.wake(),
            Err(_) => {}
        }
    }

    /// Processes the commands, or wakes the owner to do it.
    pub(super) fn process_commands(&self) -> CommandResult {
        match handle::own::<Self>(self.handle) {
            Ok(mut owned) => {
                let (evd, consumer) = open(&mut owned);
                consumer.process_commands(evd);
                CommandResult::Processed
            }
            Err(NotOwned::Busy) => {
                self.blocker.wake();
                CommandResult::OwnerWoken
            }
            Err(NotOwned::Stale) => CommandResult::Freed,
        }
    }
}

//! What control calls need done to the completions of an EVD.
//!
//! A control call sends a command to the owner of the EVD (`posted.rs`). If no call owns the EVD,
//! the control call owns it itself and processes the command at once. It does not take the EVD away
//! from a waiting thread, for three reasons:
//!
//! - Attaching and detaching an endpoint wait for no other thread. A waiter would first have to run
//!   and release the EVD; it may be stopped, or have a lower priority on the same processor.
//! - The owner passes completions to endpoints, which takes their locks. A call that waited for the
//!   owner while it holds such a lock would deadlock.
//! - Posting needs room in full rings, and must neither wait nor allocate, so it can only set a
//!   flag for the owner (`Posted::request_poll`).
//!
//! Decisions:
//! - `docs/decisions/014-payload-in-cqe.md`
//! - `docs/decisions/021-full-queue-makes-room.md`

use dat_engine::sync::Backoff;
use dat_engine::wait::ChannelFds;
use dat_engine::{Arm, CompletionChannel, CompletionQueueHandle};

use super::convert::{PeekedEvent, peek};
use super::pending::{Overflow, OwnerCommand};
use super::state::{Evd, halves};
use super::streams::StreamKind;
use crate::error::Result;
use crate::handle::{self, EvdChange, Handle, NotOwned, Owned};
use crate::refusal::EvdRefusal;
use crate::types::{AsyncKind, AsyncReason, Event, EventData};

/// Takes the first event of an EVD.
///
/// # Errors
/// `QUEUE_EMPTY`; `INVALID_STATE` if one of its completion queues has failed.
#[inline(always)]
pub fn dequeue(owned: Owned<Evd>) -> Result<Event, EvdRefusal> {
    match peek(owned) {
        Ok(Err(code)) => Err(EvdRefusal::Empty { code }),
        Ok(Ok(found)) => match found.take::<false, _>(|event| event) {
            Ok(event) => Ok(event),
            Err(found) => dequeue_extended(found),
        },
        Err(owned) => dequeue_slow(owned),
    }
}

#[inline(never)]
fn dequeue_extended(found: PeekedEvent) -> Result<Event, EvdRefusal> {
    match found.take::<true, _>(|event| event) {
        Ok(event) => Ok(event),
        Err(found) => dequeue_slow(found.into_owned()),
    }
}

/// Takes the first event on the slow path, wherever it is.
///
/// # Errors
/// As [`dequeue`].
#[inline(never)]
pub fn dequeue_slow(owned: Owned<Evd>) -> Result<Event, EvdRefusal> {
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
) -> Result<R, EvdRefusal> {
    let handle = owned.handle();
    let (evd, consumer) = halves(&mut owned);
    match consumer.next_slow(evd, |data| with(Event { evd: handle, data })) {
        Some(result) => Ok(result),
        None if evd.state.has_failed() => Err(EvdRefusal::QueueFailed),
        None => Err(EvdRefusal::Empty { code: evd.empty }),
    }
}

/// Takes the first events of an EVD, as many as there is room for. Returns how many there were.
///
/// # Errors
/// `INVALID_STATE` if there was none and one of its completion queues has failed.
pub fn drain(mut owned: Owned<Evd>, events: &mut [Event]) -> Result<usize, EvdRefusal> {
    let (evd, consumer) = halves(&mut owned);
    match consumer.drain(evd, events) {
        0 if evd.state.has_failed() => Err(EvdRefusal::QueueFailed),
        taken => Ok(taken),
    }
}

/// Takes the EVD for this call alone. Waits for other calls that are dequeuing, but not for one
/// that blocks.
///
/// # Errors
/// `Busy` if a thread waits on the EVD.
#[inline(always)]
pub fn own(handle: Handle) -> Result<Owned<Evd>, NotOwned> {
    match handle::own::<Evd>(handle) {
        Err(NotOwned::Busy) => own_when_free(handle),
        owned => owned,
    }
}

/// As [`own`], after another call was found to own the EVD.
///
/// # Errors
/// As [`own`].
#[cold]
#[inline(never)]
pub fn own_when_free(handle: Handle) -> Result<Owned<Evd>, NotOwned> {
    let mut backoff = Backoff::new();
    loop {
        let evd = handle::pin::<Evd>(handle).ok_or(NotOwned::Stale)?;
        if evd.state.is_waited() {
            return Err(NotOwned::Busy);
        }
        drop(evd);
        match handle::own::<Evd>(handle) {
            Err(NotOwned::Busy) => backoff.wait(),
            owned => return owned,
        }
    }
}

/// Takes what the completion queues of an EVD hold, as far as there is room to stage it. If another
/// call owns the EVD, that call is requested to do it. Neither allocates nor waits.
pub(crate) fn poll_completions(evd: Handle) {
    match handle::own::<Evd>(evd) {
        Ok(mut owned) => {
            let (evd, consumer) = halves(&mut owned);
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

/// How many rounds of [`Backoff`] a call waits for the owner of the EVD: about 10 milliseconds, most
/// of them asleep.
const OWNERS_ROUNDS: u32 = 300;

impl Evd {
    /// Takes the completions that the completion queues hold, as far as there is room, and releases
    /// endpoints that are gone. If another call owns the EVD, that call is woken to do it.
    pub(crate) fn drain(&self) {
        self.send_and_wait(OwnerCommand::Sweep, |_| true);
    }

    /// As [`Self::drain`], but waits until the owner has also processed what it took, or
    /// `is_enough` returns `true`, or about 10 ms have passed. Returns whether the owner has done
    /// so.
    pub(crate) fn drain_behind_owner(&self, is_enough: impl Fn() -> bool) -> bool {
        let until = |round| is_enough() || round >= OWNERS_ROUNDS;
        self.send_and_wait(OwnerCommand::Sweep, until) == CommandResult::Processed
    }

    /// Removes the completions of an endpoint whose queue pair is reset or gone, both staged ones
    /// and stale CQEs. When this returns they are gone, and their room is free.
    pub(crate) fn purge(&self, ep: Handle) {
        self.send_and_wait(OwnerCommand::Purge(ep), |_| false);
    }

    /// Copies received and read payload that the device has left in CQEs to its memory; a device
    /// may put short payloads there. Called before a registration ends, because its memory may be
    /// freed afterwards.
    pub(crate) fn copy_payloads(&self) {
        let may_hold = |queue: &CompletionQueueHandle| queue.may_hold_payload();
        let holds = self.attachments().queues().any(may_hold);
        if holds {
            self.send_and_wait(OwnerCommand::Sweep, |_| false);
        }
    }

    /// Sends a command and processes it, unless another call owns the EVD: then waits until the
    /// owner has processed it, or `is_enough` returns `true` for a round.
    pub(super) fn send_and_wait(
        &self,
        command: OwnerCommand,
        is_enough: impl Fn(u32) -> bool,
    ) -> CommandResult {
        let number = self.posted.send([command]);
        let mut backoff = Backoff::new();
        for round in 0.. {
            match self.process_commands() {
                CommandResult::OwnerWoken if self.posted.is_done(number) => break,
                CommandResult::OwnerWoken if is_enough(round) => return CommandResult::OwnerWoken,
                CommandResult::OwnerWoken => backoff.wait(),
                end => return end,
            }
        }
        CommandResult::Processed
    }
}

impl Evd {
    /// Adds an event, from any thread.
    ///
    /// # Errors
    /// [`Overflow`]: there is no room, and the event is lost.
    pub(crate) fn post(&self, data: EventData) -> Result<(), Overflow> {
        self.posted.post(data)?;
        self.arrived();
        Ok(())
    }

    /// Reserves room for one event, for a caller that must know before it creates the event that
    /// there is room. Returns `None` if there is none, which does not count as an overflow.
    pub(crate) fn claim(&self) -> Option<Claim<'_>> {
        self.posted.claim().then(|| Claim(self))
    }

    /// Adds an event, and reports the beginning of an overflow to the asynchronous EVD. Returns
    /// whether the event was taken.
    pub(crate) fn post_or_report(&self, data: EventData) -> bool {
        match self.post(data) {
            Ok(()) => true,
            Err(Overflow { first }) => {
                if first {
                    self.context
                        .report(AsyncKind::EvdOverflow, self.handle, AsyncReason::Failed);
                }
                false
            }
        }
    }

    /// Wakes the waiter, or notifies the CNO: an event that notifies has arrived.
    fn arrived(&self) {
        self.blocker.wake();
        if !self.state.is_waited() {
            self.notify();
        }
    }

    /// Posts a software event that carries `pointer`.
    ///
    /// # Errors
    /// The EVD was not created for software events, or is full.
    pub fn post_software(&self, pointer: usize) -> Result<(), EvdRefusal> {
        if !self.carries(StreamKind::Software) {
            return Err(EvdRefusal::NoSoftware {
                flags: self.flags.bits(),
            });
        }
        let length = self.queue_length();
        let room = self.claim().ok_or(EvdRefusal::EvdFull { length })?;
        room.fill(EventData::Software { pointer });
        Ok(())
    }

    /// Attaches new endpoints to the consuming half now, so that no later call, which must not
    /// allocate, has to. If another call owns the EVD, that call does it.
    pub(crate) fn attach_new(&self) {
        match handle::own::<Self>(self.handle) {
            Ok(mut owned) => {
                let (evd, consumer) = halves(&mut owned);
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
                let (evd, consumer) = halves(&mut owned);
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

/// Room for one event in an EVD, released unless it is filled.
pub(crate) struct Claim<'a>(&'a Evd);

impl Claim<'_> {
    /// Adds the event.
    pub(crate) fn fill(self, data: EventData) {
        let evd = self.0;
        core::mem::forget(self);
        evd.posted.fill(data);
        evd.arrived();
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.posted.handed_out(1);
    }
}

/// What a poll does besides looking for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollMode {
    /// Nothing. An EVD that another call owns is skipped.
    IfFree,
    /// Nothing. The poll waits for another call that owns the EVD.
    Wait,
    /// Arms the completion queues first.
    Arm,
    /// Takes the events of the device first.
    TakeEvents,
}

/// What a poll of an EVD has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PollResult {
    /// An event that triggers has arrived and is still there.
    pub(crate) fresh: bool,
    /// There are events.
    pub(crate) holds: bool,
    /// How many events there are up to the last one that triggers, whether or not it was reported as
    /// `fresh`.
    pub(crate) notifying: usize,
    /// Only events of the device say which completions notify, so spinning is useless.
    pub(crate) needs_device_events: bool,
    /// The device cannot be armed.
    pub(crate) failed: bool,
}

/// Polls an EVD for a CNO. Returns `None` if the EVD cannot trigger the CNO now: it is disabled, a
/// thread waits on it, it is bound to another CNO, or it is gone. The call that changes any of
/// these wakes the CNO.
///
/// An event is reported as `fresh` once.
pub(crate) fn poll_for_cno(cno: Handle, evd: Handle, mode: PollMode) -> Option<PollResult> {
    let mut backoff = Backoff::new();
    let mut owned = loop {
        match handle::own::<Evd>(evd) {
            Ok(owned) => break owned,
            Err(NotOwned::Stale) => return None,
            Err(NotOwned::Busy) if mode == PollMode::IfFree => return None,
            Err(NotOwned::Busy) => {}
        }
        if handle::pin::<Evd>(evd)?.state.is_waited() {
            return None;
        }
        backoff.wait();
    };
    let (evd, consumer) = halves(&mut owned);
    if !evd.state.is_enabled() || evd.state.has_ended() {
        return None;
    }
    let rearmed = evd.binding.begin_poll(cno)?;
    let arm = evd.state.arm();
    let mut seen = PollResult {
        needs_device_events: arm == Arm::Solicited && !consumer.reports_solicited(),
        ..PollResult::default()
    };
    // As in a wait on the EVD: completions that come with an event of the device, or before the
    // device could have raised one, count as solicited.
    let mut evented = false;
    // An event that came while the EVD could not trigger this CNO is still there. Until it is
    // taken, the device ignores each arm as one from before the event.
    if rearmed || mode == PollMode::TakeEvents {
        match consumer.take_events() {
            Ok(count) => evented = count > 0,
            Err(error) => {
                tracing::error!("the completion events of a CNO's EVD cannot be read: {error}");
            }
        }
    }
    let mut commanded = None;
    if mode == PollMode::Arm {
        // A queue that another thread has attached is armed too.
        commanded = Some(consumer.process_commands(evd));
        seen.failed = !consumer.arm_all(arm);
    }
    seen.failed |= consumer.is_cut_off;
    let gathered = consumer.gather(evd);
    let found = commanded.map_or(gathered, |before| before.and(gathered));
    let uncovered = found.completion && !consumer.is_covered;
    match mode {
        PollMode::Arm => consumer.is_covered = !seen.failed,
        _ => consumer.is_covered &= !evented,
    }
    let is_fresh = consumer.notice.take_fresh();
    let by_device = seen.needs_device_events && (evented || uncovered);
    if by_device {
        consumer.notice.count_all();
    }
    seen.holds = consumer.known(evd) > 0;
    seen.notifying = consumer.notifying(evd);
    seen.fresh = seen.holds && (is_fresh || rearmed || by_device);
    Some(seen)
}

impl Evd {
    /// Binds the EVD to another CNO, or to none, for example because it `is_freed`. `attach` prepares
    /// that CNO; it gets the completion channel of the EVD, if there is one yet.
    ///
    /// # Errors
    /// That of `attach`; the EVD then stays bound to its previous CNO.
    pub(crate) fn bind_cno(
        &self,
        cno: Option<Handle>,
        is_freed: bool,
        attach: impl FnOnce(Option<ChannelFds<'_>>) -> Result<()>,
    ) -> Result<()> {
        // Neither another call of this function nor a new channel comes between.
        let attachments = self.attachments();
        let old = self.binding.cno();
        if old != cno {
            let channel = attachments.channel.as_ref().map(CompletionChannel::fds);
            attach(channel)?;
            self.binding.set(cno);
            if let Some(old) = old {
                self.report_change(old, EvdChange::Unbound(channel, is_freed));
            }
        }
        drop(attachments);
        self.wake_cno_poller();
        Ok(())
    }

    /// Notifies the CNO of a posted event, when no thread waits on the EVD itself.
    #[inline]
    pub(super) fn notify(&self) {
        if self.binding.is_on() && self.state.is_enabled() {
            self.notify_cno(EvdChange::Triggered);
        }
    }

    /// Makes a thread that waits on the CNO poll the EVD and arm it: its state has changed without
    /// an event.
    pub(crate) fn wake_cno_poller(&self) {
        if self.binding.is_on() {
            self.notify_cno(EvdChange::Look);
        }
    }

    /// Rearms the EVD: it triggers again, also for the events that are there.
    #[inline]
    pub(super) fn rearm_for_cno(&self) {
        if self.binding.is_on() {
            self.binding.rearm();
            self.notify_cno(EvdChange::Look);
        }
    }

    /// Reports a change that cannot fail to the CNO.
    #[cold]
    #[inline(never)]
    fn notify_cno(&self, change: EvdChange<'_>) {
        if let Some(cno) = self.binding.cno() {
            self.report_change(cno, change);
        }
    }

    fn report_change(&self, cno: Handle, change: EvdChange<'_>) {
        let result = (cno.upcalls().evd_changed)(cno, self.handle, change);
        debug_assert!(result.is_ok(), "only EvdChange::Channel can fail");
    }

    /// Makes the CNO wait on this completion channel from now on. The caller has locked the
    /// attachments.
    ///
    /// # Errors
    /// Resources.
    pub(super) fn announce_channel(&self, channel: ChannelFds<'_>) -> Result<()> {
        match self.binding.cno() {
            Some(cno) => (cno.upcalls().evd_changed)(cno, self.handle, EvdChange::Channel(channel)),
            None => Ok(()),
        }
    }
}

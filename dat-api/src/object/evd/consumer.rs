//! The owner of an EVD takes events: it stages what the completion queues hold, processes the
//! commands of other threads, and hands out the first event.

use core::sync::atomic::{AtomicU8, Ordering};
use std::collections::VecDeque;

use dat_engine::wait::ChannelFds;
use dat_engine::{Arm, Arrival, Completion, ControlError};

use super::Queue;
use super::convert::{convert, hand_out_fast, is_watched};
use super::pending::{Arrivals, Item, Notice, OwnerCommand, Stamps, does_notify, with_room};
use super::state::{Consumer, Evd};
use super::streams::{Attribute, held};
use crate::error::{DatError, Result};
use crate::handle::Handle;
use crate::object::exhausted;
use crate::types::{Event, EventData};

impl Consumer {
    /// Updates the fast-path word; must be called after anything may have been staged.
    pub(super) fn note_staged(&self, evd: &Evd) {
        evd.posted.note_staged(!self.staged.is_empty());
    }

    /// The slow path: passes the next event, wherever it is, to `with`. This function is inlined
    /// into two callers, so that the event stays in registers when the only queue is one of the
    /// verbs path and the completion needs no endpoint. That is the fast path of the verbs path.
    #[inline(always)]
    pub(super) fn next_slow<R>(
        &mut self,
        evd: &Evd,
        with: impl FnOnce(EventData) -> R,
    ) -> Option<R> {
        let only = match self.queues.as_mut_slice() {
            [queue] if self.staged.is_empty() && evd.posted.is_idle() => queue,
            _ => return self.next(evd).map(with),
        };
        let completion = only.poll()?;
        match hand_out_fast(&completion) {
            Some(data) => Some(with(data)),
            None => self.next_from(evd, &completion).map(with),
        }
    }

    /// Returns the next event, beginning with a completion that was consumed.
    #[cold]
    #[inline(never)]
    fn next_from(&mut self, evd: &Evd, completion: &Completion) -> Option<EventData> {
        if is_watched(completion) {
            let moving = evd.moves.begin();
            moving.has_moved();
            // The endpoint has to see all receives that it holds, this one included.
            self.keep(evd, completion);
            self.sweep(evd);
            return self.next(evd);
        }
        hand_out(completion).or_else(|| self.next(evd))
    }

    /// Takes the next event, wherever it is.
    #[inline(never)]
    pub(super) fn next(&mut self, evd: &Evd) -> Option<EventData> {
        if self.staged.is_empty() && !evd.posted.is_idle() {
            if let Some(data) = self.next_posted(evd) {
                return Some(data);
            }
            self.fetch(evd);
            // With stamps, the EVD is never idle, and each event is staged before it is taken.
            if self.stamps.is_some() {
                self.sweep_if_empty(evd)?;
            }
        }
        if let Some(item) = self.staged.pop_front() {
            self.note_staged(evd);
            item.unstage();
            if is_posted(&item.data) {
                evd.posted.handed_out(1);
            }
            return Some(item.data);
        }
        self.next_of_queues(evd)
    }

    /// Takes a posted event without staging it, if no completion was there before it.
    fn next_posted(&mut self, evd: &Evd) -> Option<EventData> {
        match self.posted_alone(evd)? {
            0 => None,
            _ => self.take_posted(evd),
        }
    }

    /// Returns how many events are posted, if there are no others and there is nothing else to do.
    #[inline]
    pub(super) fn posted_alone(&self, evd: &Evd) -> Option<u32> {
        // The queues are looked at after the number was read: what is posted later may be behind a
        // completion.
        let posted = evd.posted.alone()?;
        let is_empty = |queue: &Queue| queue.can_peek() && !queue.has_cqe();
        self.queues.iter().all(is_empty).then_some(posted)
    }

    /// Takes the oldest posted event.
    #[inline]
    pub(super) fn take_posted(&mut self, evd: &Evd) -> Option<EventData> {
        self.notice.posted();
        evd.posted.take_first()
    }

    /// Stages what the queues hold if nothing is staged. Returns `None` if there still is nothing.
    #[cold]
    fn sweep_if_empty(&mut self, evd: &Evd) -> Option<()> {
        if self.staged.is_empty() {
            self.sweep(evd);
        }
        (!self.staged.is_empty()).then_some(())
    }

    /// Takes the next event in the queues.
    fn next_of_queues(&mut self, evd: &Evd) -> Option<EventData> {
        while let Some(completion) = self.poll_queues() {
            let event = match hand_out_fast(&completion) {
                None if is_watched(&completion) => {
                    return self.next_from(evd, &completion);
                }
                None => hand_out(&completion),
                fast => fast,
            };
            if event.is_some() {
                return event;
            }
        }
        None
    }

    /// Takes the next completion of the queues.
    fn poll_queues(&mut self) -> Option<Completion> {
        match self.queues.as_mut_slice() {
            [queue] => queue.poll(),
            queues => {
                self.merge.allow(queues, |_| 1);
                self.merge.next(queues)
            }
        }
    }

    /// Returns how many events are staged or posted.
    pub(super) fn known(&self, evd: &Evd) -> usize {
        self.staged.len() + evd.posted.len() as usize
    }

    /// Returns how many events there are, here and in the queues.
    #[inline(never)]
    pub(super) fn count(&mut self, evd: &Evd) -> u32 {
        self.count_in_place(evd)
            .unwrap_or_else(|| self.count_staged(evd))
    }

    /// As [`Self::count`], without decoding or staging anything; `None` if a completion has to be
    /// decoded to be counted, or a command to be processed before.
    #[inline(always)]
    pub(super) fn count_in_place(&mut self, evd: &Evd) -> Option<u32> {
        let mut count = self.staged.len() as u32;
        for queue in &mut self.queues {
            count += queue.written()?;
        }
        // Read after the queues: an endpoint is counted there before it posts what is discarded.
        if evd.discarding.load(Ordering::Acquire) != 0 {
            return None;
        }
        Some(count + evd.posted.count()?)
    }

    #[cold]
    #[inline(never)]
    fn count_staged(&mut self, evd: &Evd) -> u32 {
        self.gather(evd);
        self.known(evd) as u32
    }

    /// Stages a completion that was taken from a queue.
    #[cold]
    #[inline(never)]
    fn keep(&mut self, evd: &Evd, completion: &Completion) -> Arrivals {
        let attribute = evd.state.attribute();
        let mut found = Arrivals::default();
        let notice = &mut self.notice;
        put(completion, &mut self.staged, attribute, notice, &mut found);
        self.note_staged(evd);
        found
    }

    /// Stages the events that are there, up to the queue length.
    ///
    /// A wait polls often and rarely finds anything, so the empty case is the fastest: one queue,
    /// nothing staged, nothing posted.
    #[inline]
    pub(super) fn gather(&mut self, evd: &Evd) -> Arrivals {
        if let [queue] = self.queues.as_mut_slice()
            && self.staged.is_empty()
            && evd.posted.is_idle()
        {
            let moving = evd.moves.begin();
            return match queue.poll() {
                Some(completion) => {
                    moving.has_moved();
                    self.keep(evd, &completion).and(self.gather_all(evd))
                }
                None => Arrivals::default(),
            };
        }
        self.gather_all(evd)
    }

    #[inline(never)]
    fn gather_all(&mut self, evd: &Evd) -> Arrivals {
        let found = self.fetch(evd);
        let most = evd.queue_length() as usize;
        let room = most.saturating_sub(self.staged.len());
        found.and(self.stage(evd, room, |_| u32::MAX))
    }

    /// Stages up to `room` completions that are there now, at most `most` of each queue.
    fn stage(&mut self, evd: &Evd, room: usize, most: impl Fn(&Queue) -> u32) -> Arrivals {
        if self.stamps.is_some() {
            return self.stage_stamped(evd, room, most);
        }
        let attribute = evd.state.attribute();
        let mut found = Arrivals::default();
        let moving = evd.moves.begin();
        let notice = &mut self.notice;
        match self.queues.as_mut_slice() {
            [queue] => {
                for _ in 0..room.min(most(queue) as usize) {
                    let Some(completion) = queue.poll() else {
                        break;
                    };
                    put(&completion, &mut self.staged, attribute, notice, &mut found);
                }
            }
            queues => {
                self.merge.allow(queues, most);
                for _ in 0..room {
                    let Some(completion) = self.merge.next(queues) else {
                        break;
                    };
                    put(&completion, &mut self.staged, attribute, notice, &mut found);
                }
            }
        }
        if found.completion {
            moving.has_moved();
        }
        drop(moving);
        self.note_staged(evd);
        found
    }

    /// Processes commands, and stages posted events behind the completions that were there before
    /// them.
    fn fetch(&mut self, evd: &Evd) -> Arrivals {
        if evd.posted.is_idle() {
            return Arrivals::default();
        }
        let found = self.process_commands(evd);
        // Events posted after this point are staged the next time: completions that this sweep
        // misses may precede them.
        let posted = evd.posted.len();
        if posted == 0 {
            return found;
        }
        self.notice.posted();
        if self.staged.len() > evd.queue_length() as usize {
            return found.and(Arrivals::POSTED);
        }
        let swept = self.sweep(evd);
        evd.posted.take(posted, |data| {
            self.staged.push_back(Item {
                data,
                receiver: None,
            });
        });
        if let Some(stamps) = &mut self.stamps {
            stamps.stage(self.staged.len(), None);
        }
        self.notice.count_all();
        self.note_staged(evd);
        found.and(swept).and(Arrivals::POSTED)
    }

    /// Stages every completion that is there now.
    fn sweep(&mut self, evd: &Evd) -> Arrivals {
        let length = evd.queue_length();
        // As many as a queue can hold may have been there at the start; completions that arrive
        // during the sweep may stay.
        let found = self.stage(evd, usize::MAX, |queue| held(queue.capacity(), length));
        self.process_queue_commands();
        found
    }

    /// Stages the completions that are there now as far as there is room, without allocating. It
    /// frees the ring entries of the posted requests.
    pub(super) fn poll_completions(&mut self, evd: &Evd) -> Arrivals {
        let room = self.staged.capacity() - self.staged.len();
        let found = self.stage(evd, room, |queue| queue.capacity());
        self.process_queue_commands();
        found
    }

    fn process_queue_commands(&mut self) {
        for queue in &mut self.queues {
            queue.process_commands();
        }
    }

    /// Attaches new endpoints and reserves the room they need.
    pub(super) fn attach_new(&mut self, evd: &Evd) {
        self.process_commands(evd);
        self.process_queue_commands();
    }

    #[cold]
    fn act_on(&mut self, evd: &Evd, command: OwnerCommand) -> Arrivals {
        match command {
            OwnerCommand::Attach(queue) => {
                self.queues.push(queue);
                self.merge.add();
                self.is_covered = false;
                evd.posted.note_queue(self.has_only_queue());
            }
            OwnerCommand::Room(mut room) => {
                room.append(&mut self.staged);
                self.staged = room;
                if let Some(stamps) = &mut self.stamps {
                    stamps.reserve(self.staged.capacity());
                }
            }
            // The sweep may have staged events, which the waiter must count.
            OwnerCommand::Sweep => return self.sweep(evd),
            OwnerCommand::Count(counted) => {
                let found = self.sweep(evd);
                counted.events.store(self.known(evd), Ordering::Relaxed);
                let staged = self.staged.iter();
                let completions = staged.filter(|item| !is_posted(&item.data)).count();
                counted.completions.store(completions, Ordering::Relaxed);
                counted.awaited.store(self.awaited, Ordering::Relaxed);
                return found;
            }
            OwnerCommand::Purge(ep) => {
                // The sweep also discards the stale CQEs of the queue pair. They are gone before
                // the queue pair, which may be used again, produces new ones.
                let found = self.sweep(evd);
                self.purge(ep);
                self.note_staged(evd);
                return found;
            }
        }
        Arrivals::default()
    }

    /// Processes the commands of other threads.
    pub(super) fn process_commands(&mut self, evd: &Evd) -> Arrivals {
        let mut found = Arrivals::default();
        for command in evd.posted.commands() {
            found = found.and(self.act_on(evd, command));
            evd.posted.command_done();
        }
        if evd.posted.take_poll_request() {
            found = found.and(self.poll_completions(evd));
        }
        found
    }

    fn purge(&mut self, purged: Handle) {
        let end = self.notice.end(self.staged.len());
        let (mut at, mut behind) = (0, 0);
        let mut stamps = self.stamps.as_mut();
        if let Some(stamps) = &mut stamps {
            stamps.follow(self.staged.len());
        }
        self.staged.retain(|item| {
            at += 1;
            let stays = match item.data {
                EventData::Dto { ep, .. }
                | EventData::ExtendedDto { ep, .. }
                | EventData::RmrBind { ep, .. } => ep != purged,
                _ => true,
            };
            if !stays {
                item.unstage();
                behind += usize::from(at > end);
            }
            if let Some(stamps) = &mut stamps {
                stamps.filter(stays);
            }
            stays
        });
        self.notice.removed(behind);
    }

    /// Returns the completion channel of the queues.
    pub(super) fn channel(&self) -> Option<ChannelFds<'_>> {
        self.queues.first()?.channel_fds()
    }

    /// Returns whether the device's completions say which of them were solicited.
    pub(super) fn reports_solicited(&self) -> bool {
        self.queues.iter().all(|queue| queue.reports_solicited())
    }

    /// Returns how many events there are up to the last one that notifies.
    pub(super) fn notifying(&self, evd: &Evd) -> usize {
        match evd.posted.len() {
            0 => self.notice.end(self.staged.len()),
            posted => self.staged.len() + posted as usize,
        }
    }

    /// Arms all queues for a CNO. Returns `false` if one cannot be armed.
    pub(super) fn arm_all(&mut self, arm: Arm) -> bool {
        let mut all = true;
        for queue in &mut self.queues {
            if let Err(error) = queue.arm(arm) {
                tracing::error!("a completion queue of a CNO's EVD cannot be armed: {error}");
                all = false;
            }
        }
        all
    }

    /// Takes the events of the channel. Returns how many there were.
    pub(super) fn take_events(&mut self) -> Result<u32, ControlError> {
        let mut events = 0;
        for (index, queue) in self.queues.iter_mut().enumerate() {
            // The first queue takes the events of all queues, which share the channel.
            events += match index {
                0 => queue
                    .take_events()
                    .inspect_err(|_| self.is_cut_off = true)?,
                _ => queue.taken_events(),
            };
        }
        Ok(events)
    }

    pub(super) fn queues(&mut self) -> &mut [Queue] {
        &mut self.queues
    }
}

/// Turns any completion into an event; `None` if it produces none.
fn hand_out(completion: &Completion) -> Option<EventData> {
    convert(completion, |taken| taken.event.data)
}

/// Returns whether an event came through [`super::posted`].
fn is_posted(data: &EventData) -> bool {
    !matches!(
        data,
        EventData::Dto { .. } | EventData::ExtendedDto { .. } | EventData::RmrBind { .. }
    )
}

impl Consumer {
    /// Returns the byte that the device writes with the next event, if it can come only from one
    /// completion queue.
    pub(super) fn watched(&self, evd: &Evd) -> Option<&AtomicU8> {
        match evd.posted.attention.load(Ordering::Relaxed) == 0 {
            true => self.queues.first()?.watched(),
            false => None,
        }
    }

    /// Takes events in their order until `events` is full or there is no more. Returns how many.
    #[inline]
    pub(super) fn drain(&mut self, evd: &Evd, events: &mut [Event]) -> usize {
        for (taken, place) in events.iter_mut().enumerate() {
            // Two assignments, so that the fast path has no copy in memory.
            match self.next_fast(evd) {
                Some(Some(data)) => place.data = data,
                Some(None) => return taken,
                None => match self.next_slow(evd, |data| data) {
                    Some(data) => place.data = data,
                    None => return taken,
                },
            }
            place.evd = evd.handle;
        }
        events.len()
    }

    /// Takes the next event: first on the fast path, then on the slow path.
    #[inline]
    pub(super) fn next_event(&mut self, evd: &Evd) -> Option<EventData> {
        match self.next_fast(evd) {
            Some(event) => event,
            None => self.next_slow(evd, |data| data),
        }
    }
}

/// Stages a completion if it produces an event.
#[inline(always)]
pub(super) fn put(
    completion: &Completion,
    staged: &mut VecDeque<Item>,
    attribute: Option<Attribute>,
    notice: &mut Notice,
    found: &mut Arrivals,
) {
    convert(completion, |taken| {
        taken.event.stage();
        staged.push_back(taken.event);
        found.completion = true;
        let notifies = does_notify(&taken, attribute);
        found.notifies |= notifies;
        notice.staged(notifies);
    });
}

impl Consumer {
    /// Makes the EVD keep the stamps of its events from now on.
    pub(super) fn ask_for_stamps(&mut self, evd: &Evd) -> Result<()> {
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
    pub(super) fn last_stamp(&mut self) -> Option<u64> {
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

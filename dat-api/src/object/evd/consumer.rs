//! The consuming half of an EVD: its completion queues and the staged events.

use core::sync::atomic::Ordering;
use std::collections::VecDeque;

use dat_engine::wait::{ChannelFds, SpinBudget, WaitCounters};
use dat_engine::{Completion, ControlError};

use super::convert::{Item, convert, hand_out_fast, is_watched};
use super::merge::Merge;
use super::notice::Notice;
use super::posted::{Command, with_room};
use super::staging::{Arrivals, held, put, room};
use super::stamps::Stamps;
use super::{Evd, Queue};
use crate::handle::Handle;
use crate::types::EventData;

/// The consuming half of an EVD, used only by the EVD's owner.
pub(super) struct Consumer {
    pub(super) staged: VecDeque<Item>,
    pub(super) queues: Vec<Queue>,
    /// The order of polling when there is more than one queue.
    pub(super) merge: Merge,
    /// The stamps of the staged events, if the EVD was asked for them.
    pub(super) stamps: Option<Box<Stamps>>,
    /// Which of the staged events notify.
    pub(super) notice: Notice,
    /// For the CNO: every queue is armed, and none has raised an event since.
    pub(super) is_covered: bool,
    /// The device has failed and raises no more events.
    pub(super) is_cut_off: bool,
    /// The threshold of the wait in progress, otherwise 0.
    pub(super) awaited: usize,
    pub(super) budget: SpinBudget,
    pub(super) counters: WaitCounters,
}

impl Consumer {
    /// Returns `None` if there is no memory.
    pub(super) fn new(queue_length: u32) -> Option<Self> {
        Some(Self {
            staged: with_room(room(queue_length, 0))?,
            queues: Vec::new(),
            merge: Merge::default(),
            stamps: None,
            notice: Notice::new(),
            is_covered: false,
            is_cut_off: false,
            awaited: 0,
            budget: SpinBudget::new(),
            counters: WaitCounters::default(),
        })
    }

    /// Returns whether the next event, if there is one, is in the only completion queue, by the
    /// owner's state alone; [`super::posted::Posted::allows_fast_path`] combines this and the
    /// posted events in one word.
    pub(super) fn allows_fast_path(&self) -> bool {
        self.staged.is_empty() && self.has_fast_queue()
    }

    fn has_fast_queue(&self) -> bool {
        matches!(self.queues.as_slice(), [queue] if queue.can_peek())
    }

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

    /// Returns how many completions are staged.
    pub(super) fn completions_staged(&self) -> usize {
        let staged = self.staged.iter();
        staged.filter(|item| !is_posted(&item.data)).count()
    }

    /// Stages a completion that was taken from a queue.
    #[cold]
    #[inline(never)]
    fn keep(&mut self, evd: &Evd, completion: &Completion) {
        let attribute = evd.state.attribute();
        let mut found = Arrivals::default();
        let notice = &mut self.notice;
        put(completion, &mut self.staged, attribute, notice, &mut found);
        self.note_staged(evd);
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
                    self.gather_from(evd, &completion)
                }
                None => Arrivals::default(),
            };
        }
        self.gather_all(evd)
    }

    /// As [`Self::gather`], beginning with a completion of the only queue.
    #[inline(never)]
    fn gather_from(&mut self, evd: &Evd, completion: &Completion) -> Arrivals {
        let attribute = evd.state.attribute();
        let mut found = Arrivals::default();
        let notice = &mut self.notice;
        put(completion, &mut self.staged, attribute, notice, &mut found);
        found.and(self.gather_all(evd))
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
    fn act_on(&mut self, evd: &Evd, command: Command) -> Arrivals {
        match command {
            Command::Attach(queue) => {
                self.queues.push(queue);
                self.merge.add();
                self.is_covered = false;
                evd.posted.note_queue(self.has_fast_queue());
            }
            Command::Room(mut room) => {
                room.append(&mut self.staged);
                self.staged = room;
                if let Some(stamps) = &mut self.stamps {
                    stamps.reserve(self.staged.capacity());
                }
            }
            // The sweep may have staged events, which the waiter must count.
            Command::Sweep => return self.sweep(evd),
            Command::Count(event_count) => {
                let found = self.sweep(evd);
                event_count.store(evd, self);
                return found;
            }
            Command::Purge(ep) => {
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
    pub(super) fn arm_all(&mut self, solicited_only: bool) -> bool {
        let mut all = true;
        for queue in &mut self.queues {
            if let Err(error) = queue.arm(solicited_only) {
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

    /// Returns the queues.
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

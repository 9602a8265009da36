//! The consuming half of an EVD: its completion queues, and the events that
//! were taken from them and not handed out.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use dat_engine::wait::{SpinBudget, WaitCounters};
use dat_engine::{Completion, ControlError};

use super::Evd;
use super::convert::{Item, Taken, convert, hand_out_fast, is_watched};
use super::merge::Merge;
use super::posted::{Letter, with_room};
use super::queue::Queue;
use super::streams::Attribute;
use crate::handle::Handle;
use crate::types::EventData;

/// Room to keep for staged events: as many as may be counted for a threshold,
/// what the completion queues hold, and what may be posted.
pub(super) fn room(queue_length: u32, queues: usize) -> usize {
    2 * queue_length as usize + queues
}

/// Completions that one queue holds at most: the streams on it have no more
/// outstanding than the EVD holds events, however long the queue is.
pub(super) fn held(capacity: u32, queue_length: u32) -> u32 {
    capacity.min(queue_length)
}

/// What a look for events has brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Something that notifies a waiter.
    pub(super) notifies: bool,
    /// A completion, whether it notifies or not.
    pub(super) completion: bool,
}

impl Found {
    /// Something that was posted: that always notifies.
    const POSTED: Self = Self {
        notifies: true,
        completion: false,
    };

    fn and(self, other: Self) -> Self {
        Self {
            notifies: self.notifies | other.notifies,
            completion: self.completion | other.completion,
        }
    }
}

/// See the head of the file. Its owner is who has the EVD.
pub(super) struct Consumer {
    staged: VecDeque<Item>,
    pub(super) queues: Vec<Queue>,
    /// For more than one queue.
    merge: Merge,
    /// Something that notifies was staged since [`Self::take_news`].
    has_news: bool,
    /// For the CNO: every queue was asked for events of the device, and has sent
    /// none since.
    pub(super) is_covered: bool,
    /// The device has failed, and sends no events any more: it says so once.
    pub(super) is_cut_off: bool,
    /// The threshold of a wait under way, else 0.
    pub(super) awaited: usize,
    pub(super) budget: SpinBudget,
    pub(super) counters: WaitCounters,
}

impl Consumer {
    /// Nothing if there is no memory.
    pub(super) fn new(queue_length: u32) -> Option<Self> {
        Some(Self {
            staged: with_room(room(queue_length, 0))?,
            queues: Vec::new(),
            merge: Merge::default(),
            has_news: false,
            is_covered: false,
            is_cut_off: false,
            awaited: 0,
            budget: SpinBudget::new(),
            counters: WaitCounters::default(),
        })
    }

    /// Whether the next event, if there is one, is in the only queue: what
    /// [`super::posted::Posted::allows_fast_path`] tells in one word, as far as it is
    /// about the owner.
    pub(super) fn allows_fast_path(&self) -> bool {
        self.staged.is_empty() && self.has_fast_queue()
    }

    fn has_fast_queue(&self) -> bool {
        matches!(self.queues.as_slice(), [queue] if queue.can_peek())
    }

    /// To be called whenever something may have been staged.
    fn note_staged(&self, evd: &Evd) {
        evd.posted.note_staged(!self.staged.is_empty());
    }

    /// The slow path: the next event, if there is one, wherever it is, handed to
    /// `with`. That is inlined twice, so that the event need not pass through
    /// memory where a queue of the verbs path is the only one, and has a
    /// completion that is the consumer's alone: this is their fast path.
    #[inline(always)]
    pub(super) fn next_slow<R>(
        &mut self,
        evd: &Evd,
        with: impl FnOnce(EventData) -> R,
    ) -> Option<R> {
        let only = match self.queues.as_mut_slice() {
            [queue] if self.staged.is_empty() && evd.posted.is_quiet() => queue,
            _ => return self.next(evd).map(with),
        };
        let completion = only.poll()?;
        match hand_out_fast(&completion) {
            Some(data) => Some(with(data)),
            None => self.next_from(evd, &completion).map(with),
        }
    }

    /// The next event, beginning with a completion that was consumed.
    #[cold]
    #[inline(never)]
    fn next_from(&mut self, evd: &Evd, completion: &Completion) -> Option<EventData> {
        if is_watched(completion) {
            // All that its endpoint holds is to be seen, this one included.
            self.keep(evd, completion);
            self.sweep(evd);
            return self.next(evd);
        }
        hand_out(completion).or_else(|| self.next(evd))
    }

    /// The next event, if there is one, wherever it is. It is the consumer's.
    #[inline(never)]
    fn next(&mut self, evd: &Evd) -> Option<EventData> {
        if self.staged.is_empty() {
            self.fetch(evd);
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

    /// The next event in the queues.
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

    /// How many events are known to be there.
    pub(super) fn known(&self, evd: &Evd) -> usize {
        self.staged.len() + evd.posted.len() as usize
    }

    /// How many completions are staged.
    pub(super) fn completions_staged(&self) -> usize {
        let staged = self.staged.iter();
        staged.filter(|item| !is_posted(&item.data)).count()
    }

    /// Stages a completion that was taken from a queue.
    #[cold]
    #[inline(never)]
    fn keep(&mut self, evd: &Evd, completion: &Completion) {
        let attribute = evd.switches.attribute();
        let mut found = Found::default();
        put(completion, &mut self.staged, attribute, &mut found);
        self.has_news |= found.notifies;
        self.note_staged(evd);
    }

    /// Stages what there is, up to the queue length.
    ///
    /// A wait looks often and finds rarely, so nothing is what is found soonest:
    /// in the only queue, with nothing posted.
    #[inline]
    pub(super) fn gather(&mut self, evd: &Evd) -> Found {
        if let [queue] = self.queues.as_mut_slice()
            && self.staged.is_empty()
            && evd.posted.is_quiet()
        {
            return match queue.poll() {
                Some(completion) => self.gather_from(evd, &completion),
                None => Found::default(),
            };
        }
        self.gather_all(evd)
    }

    /// [`Self::gather`], beginning with a completion of the only queue.
    #[inline(never)]
    fn gather_from(&mut self, evd: &Evd, completion: &Completion) -> Found {
        let attribute = evd.switches.attribute();
        let mut found = Found::default();
        put(completion, &mut self.staged, attribute, &mut found);
        self.has_news |= found.notifies;
        found.and(self.gather_all(evd))
    }

    #[inline(never)]
    fn gather_all(&mut self, evd: &Evd) -> Found {
        let found = self.fetch(evd);
        let most = evd.queue_length() as usize;
        let room = most.saturating_sub(self.staged.len());
        found.and(self.stage(evd, room, |_| u32::MAX))
    }

    /// Stages up to `room` completions that are there now, and of each queue as
    /// many as `most` says.
    fn stage(&mut self, evd: &Evd, room: usize, most: impl Fn(&Queue) -> u32) -> Found {
        let attribute = evd.switches.attribute();
        let mut found = Found::default();
        match self.queues.as_mut_slice() {
            [queue] => {
                for _ in 0..room.min(most(queue) as usize) {
                    let Some(completion) = queue.poll() else {
                        break;
                    };
                    put(&completion, &mut self.staged, attribute, &mut found);
                }
            }
            queues => {
                self.merge.allow(queues, most);
                for _ in 0..room {
                    let Some(completion) = self.merge.next(queues) else {
                        break;
                    };
                    put(&completion, &mut self.staged, attribute, &mut found);
                }
            }
        }
        self.has_news |= found.notifies;
        self.note_staged(evd);
        found
    }

    /// Acts on letters, and stages what was posted, behind the completions that
    /// were there before it.
    fn fetch(&mut self, evd: &Evd) -> Found {
        if evd.posted.is_quiet() {
            return Found::default();
        }
        let found = self.read_letters(evd);
        // What is posted after this has to wait for the next time: completions
        // may come before it that the sweep has missed.
        let posted = evd.posted.len();
        if posted == 0 {
            return found;
        }
        self.has_news = true;
        if self.staged.len() > evd.queue_length() as usize {
            return found.and(Found::POSTED);
        }
        let swept = self.sweep(evd);
        evd.posted.take(posted, |data| {
            self.staged.push_back(Item {
                data,
                receiver: None,
            });
        });
        self.note_staged(evd);
        found.and(swept).and(Found::POSTED)
    }

    /// Stages every completion that is there now.
    fn sweep(&mut self, evd: &Evd) -> Found {
        let length = evd.queue_length();
        // As many as a queue holds were there; more have come since.
        let found = self.stage(evd, usize::MAX, |queue| held(queue.capacity(), length));
        self.settle_queues();
        found
    }

    /// Stages the completions that are there now, as far as there is room: it
    /// allocates nothing. For who needs the places that they hold in the rings.
    pub(super) fn relieve(&mut self, evd: &Evd) -> Found {
        let room = self.staged.capacity() - self.staged.len();
        let found = self.stage(evd, room, Queue::capacity);
        self.settle_queues();
        found
    }

    fn settle_queues(&mut self) {
        for queue in &mut self.queues {
            queue.settle();
        }
    }

    /// Learns of endpoints that have come, and makes what room they need.
    pub(super) fn settle(&mut self, evd: &Evd) {
        self.read_letters(evd);
        self.settle_queues();
    }

    #[cold]
    fn act_on(&mut self, evd: &Evd, letter: Letter) -> Found {
        match letter {
            Letter::Attach(queue) => {
                self.queues.push(queue);
                self.merge.add();
                self.is_covered = false;
                evd.posted.note_queue(self.has_fast_queue());
            }
            Letter::Room(mut room) => {
                room.append(&mut self.staged);
                self.staged = room;
            }
            // Whoever waits is to know of what this has staged.
            Letter::Sweep => return self.sweep(evd),
            Letter::Count(census) => {
                let found = self.sweep(evd);
                census.answer(evd, self);
                return found;
            }
            Letter::Purge(ep) => {
                // What its queue pair has left in the rings is gone from them,
                // too, before it fills the room that is its: it may live again.
                let found = self.sweep(evd);
                self.purge(ep);
                self.note_staged(evd);
                return found;
            }
        }
        Found::default()
    }

    /// Acts on what other threads ask for.
    pub(super) fn read_letters(&mut self, evd: &Evd) -> Found {
        let mut found = Found::default();
        for letter in evd.posted.letters() {
            found = found.and(self.act_on(evd, letter));
            evd.posted.letter_done();
        }
        if evd.posted.take_relief() {
            found = found.and(self.relieve(evd));
        }
        found
    }

    fn purge(&mut self, unwanted: Handle) {
        self.staged.retain(|item| match item.data {
            EventData::Dto { ep, .. } | EventData::RmrBind { ep, .. } if ep == unwanted => {
                item.unstage();
                false
            }
            _ => true,
        });
    }

    /// Where the events of the queues come.
    pub(super) fn channel(&self) -> Option<BorrowedFd<'_>> {
        self.queues.first()?.channel()
    }

    /// Whether completions tell which of them were solicited.
    pub(super) fn tells_solicited(&self) -> bool {
        self.queues.iter().all(Queue::tells_solicited)
    }

    /// Whether something that notifies was staged since this was last asked.
    pub(super) fn take_news(&mut self) -> bool {
        core::mem::take(&mut self.has_news)
    }

    /// Asks for an event of each queue, for a CNO; `false` if one cannot be asked.
    pub(super) fn arm_all(&mut self, solicited_only: bool) -> bool {
        let mut all = true;
        for queue in &mut self.queues {
            if let Err(error) = queue.arm(solicited_only) {
                tracing::error!("a CNO cannot wait for an EVD of it: {error}");
                all = false;
            }
        }
        all
    }

    /// Takes the events of the channel. Answers how many there were.
    pub(super) fn take_events(&mut self) -> Result<u32, ControlError> {
        let mut events = 0;
        for (index, queue) in self.queues.iter_mut().enumerate() {
            // The first takes those of all queues: they share the channel.
            events += match index {
                0 => queue
                    .take_events()
                    .inspect_err(|_| self.is_cut_off = true)?,
                _ => queue.taken_events(),
            };
        }
        Ok(events)
    }

    /// The queues, to be armed.
    pub(super) fn queues(&mut self) -> &mut [Queue] {
        &mut self.queues
    }
}

/// Hands any completion to the consumer; nothing if it is not for him.
fn hand_out(completion: &Completion) -> Option<EventData> {
    convert(completion, |taken| taken.event.data)
}

/// Whether an event came by [`super::posted`].
fn is_posted(data: &EventData) -> bool {
    !matches!(data, EventData::Dto { .. } | EventData::RmrBind { .. })
}

/// Stages a completion, if it is for the consumer.
#[inline(always)]
fn put(
    completion: &Completion,
    staged: &mut VecDeque<Item>,
    attribute: Option<Attribute>,
    found: &mut Found,
) {
    convert(completion, |taken| {
        taken.event.stage();
        staged.push_back(taken.event);
        found.completion = true;
        found.notifies |= does_notify(&taken, attribute);
    });
}

/// Whether a completion wakes who waits on an EVD so configured.
fn does_notify(taken: &Taken, attribute: Option<Attribute>) -> bool {
    match attribute {
        Some(Attribute::Solicited) => taken.solicited,
        Some(Attribute::Unsignalled) => taken.signalled,
        Some(Attribute::Default | Attribute::Threshold) | None => true,
    }
}

//! The books: what was posted, and what became of it.

use std::collections::{BTreeMap, VecDeque};

use dat_engine::{Completion, CompletionOp, Status};

/// Where a receive was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// The send queue of an end.
    Send(usize),
    /// The receive queue of an end.
    Receive(usize),
    /// The shared one.
    Shared,
}

/// A request that was posted.
#[derive(Clone, Debug)]
pub struct Posted {
    pub queue: Queue,
    pub signalled: bool,
    /// The number of the message it sends, if it takes a receive there.
    pub message: Option<u64>,
    /// Where its bytes are, or go.
    pub slot: usize,
}

/// What a schedule has seen happen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    posted: u64,
    refused: u64,
    good: u64,
    flushed: u64,
    failed: u64,
    abandoned: u64,
}

impl Totals {
    pub fn add(&mut self, other: &Totals) {
        self.posted += other.posted;
        self.refused += other.refused;
        self.good += other.good;
        self.flushed += other.flushed;
        self.failed += other.failed;
        self.abandoned += other.abandoned;
    }

    /// Whether everything that can become of a request became of some.
    pub fn is_varied(&self) -> bool {
        let each = [self.refused, self.flushed, self.failed, self.abandoned];
        each.iter().all(|&count| count > 0) && self.good > self.posted / 4
    }
}

/// The books of one schedule. A cookie is the number of its request.
#[derive(Default)]
pub struct Account {
    next: u64,
    open: BTreeMap<u64, Posted>,
    /// Cookies of each send and receive queue, in the order of their posting.
    order: BTreeMap<(bool, usize), VecDeque<u64>>,
    /// Messages on their way to each end, in order.
    under_way: BTreeMap<usize, VecDeque<u64>>,
    pub totals: Totals,
}

impl Account {
    /// The cookie of the next request.
    pub fn cookie(&self) -> u64 {
        self.next
    }

    pub fn refused(&mut self) {
        self.totals.refused += 1;
    }

    /// The request of the cookie was posted; `to` is the end that a message goes to.
    pub fn posted(&mut self, request: Posted, to: usize) {
        let cookie = self.next;
        self.next += 1;
        self.totals.posted += 1;
        match request.queue {
            Queue::Send(end) => self.order.entry((true, end)).or_default().push_back(cookie),
            Queue::Receive(end) => self
                .order
                .entry((false, end))
                .or_default()
                .push_back(cookie),
            Queue::Shared => {}
        }
        if let Some(message) = request.message {
            self.under_way.entry(to).or_default().push_back(message);
        }
        self.open.insert(cookie, request);
    }

    /// A completion at `end`; `message` reads what a receive has got. Answers
    /// the slots that are free again.
    pub fn completed(
        &mut self,
        completion: &Completion,
        end: usize,
        read: impl FnOnce(usize) -> u64,
    ) -> Vec<usize> {
        let cookie = completion.cookie;
        let request = self.open.remove(&cookie).unwrap_or_else(|| {
            panic!("{completion:?}: never posted, completed before, or of an earlier life")
        });
        let is_receive = matches!(
            completion.op,
            CompletionOp::Recv | CompletionOp::RecvWriteImm
        );
        let mut free = vec![request.slot];
        match request.queue {
            Queue::Send(owner) => {
                assert!(!is_receive && owner == end, "{completion:?}: {request:?}");
                assert!(
                    request.signalled || completion.status != Status::Success,
                    "not asked for: {completion:?}"
                );
                free.extend(self.pass_unsignalled(end, cookie, completion));
            }
            Queue::Receive(owner) => {
                assert!(is_receive && owner == end, "{completion:?}: {request:?}");
                let first = self
                    .order
                    .get_mut(&(false, end))
                    .and_then(VecDeque::pop_front);
                assert_eq!(first, Some(cookie), "out of order: {completion:?}");
            }
            Queue::Shared => assert!(is_receive, "{completion:?}: {request:?}"),
        }
        match completion.status {
            Status::Success => self.totals.good += 1,
            Status::WrFlush => self.totals.flushed += 1,
            _ => self.totals.failed += 1,
        }
        if is_receive && completion.status == Status::Success {
            let sent = self.under_way.get_mut(&end).and_then(VecDeque::pop_front);
            assert_eq!(
                sent,
                Some(read(request.slot)),
                "what arrives at {end} is not what was sent next"
            );
        }
        free
    }

    /// What was posted before a send that is reported is done as well: it must
    /// not have asked to be told.
    fn pass_unsignalled(&mut self, end: usize, cookie: u64, completion: &Completion) -> Vec<usize> {
        let mut free = Vec::new();
        let order = self.order.get_mut(&(true, end)).expect("posted there");
        while let Some(first) = order.pop_front() {
            if first == cookie {
                return free;
            }
            let silent = self.open.remove(&first);
            let silent = silent.unwrap_or_else(|| panic!("{first} completed out of order"));
            assert!(
                !silent.signalled,
                "{first} was passed over in silence by {completion:?}"
            );
            self.totals.good += 1;
            free.push(silent.slot);
        }
        panic!("{completion:?}: completed out of order");
    }

    /// The ends were reset: nothing of theirs is told any more. Answers the
    /// slots that are free again.
    pub fn reset(&mut self, ends: [usize; 2]) -> Vec<usize> {
        let mut free = Vec::new();
        for end in ends {
            self.under_way.remove(&end);
            for is_send in [true, false] {
                for cookie in self.order.remove(&(is_send, end)).unwrap_or_default() {
                    let request = self.open.remove(&cookie).expect("open while in order");
                    free.push(request.slot);
                    self.totals.abandoned += 1;
                }
            }
        }
        free
    }

    /// All ends are in error and everything was polled: nothing may be left
    /// but what nobody took from the shared queue.
    pub fn close(&self) {
        for (cookie, request) in &self.open {
            match request.queue {
                Queue::Shared => {}
                // Done before the queue failed, and not asked to be told.
                Queue::Send(_) if !request.signalled => {}
                _ => panic!("{cookie} was never completed: {request:?}"),
            }
        }
    }

    /// How many messages are on their way to an end.
    pub fn messages_to(&self, end: usize) -> usize {
        self.under_way.get(&end).map_or(0, VecDeque::len)
    }

    /// How many receives are there for an end.
    pub fn receives_open(&self, end: usize, shared: bool) -> usize {
        match shared {
            true => self.shared_open(),
            false => self.order.get(&(false, end)).map_or(0, VecDeque::len),
        }
    }

    /// Every send of an end that asked to be told has been told of.
    pub fn assert_no_sends_open(&self, end: usize) {
        let of_end = |(_, it): &(&u64, &Posted)| it.queue == Queue::Send(end) && it.signalled;
        let open: Vec<_> = self.open.iter().filter(of_end).collect();
        assert!(open.is_empty(), "never done: {open:?}");
    }

    /// How many shared receives are not completed.
    pub fn shared_open(&self) -> usize {
        self.open
            .values()
            .filter(|it| it.queue == Queue::Shared)
            .count()
    }
}

//! The account: every posted request, and its outcome.

use std::collections::{BTreeMap, VecDeque};

use dat_engine::{Completion, CompletionOp, Status};

/// The queue that a request was posted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// The send queue of an end.
    Send(usize),
    /// The receive queue of an end.
    Receive(usize),
    /// The shared receive queue.
    Shared,
}

/// A request that was posted.
#[derive(Clone, Debug)]
pub struct Posted {
    pub queue: Queue,
    pub signalled: bool,
    /// The number of the message that it sends, if the message uses a receive.
    pub message: Option<u64>,
    /// The place of its bytes.
    pub slot: usize,
}

/// The outcomes of a schedule.
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

    /// Returns whether every possible outcome has occurred.
    pub fn is_varied(&self) -> bool {
        let each = [self.refused, self.flushed, self.failed, self.abandoned];
        each.iter().all(|&count| count > 0) && self.good > self.posted / 4
    }
}

/// The account of one schedule. A `wr_id` is the number of its request.
#[derive(Default)]
pub struct Account {
    next: u64,
    open: BTreeMap<u64, Posted>,
    /// The `wr_id`s of each send and receive queue, in posting order.
    order: BTreeMap<(bool, usize), VecDeque<u64>>,
    /// Messages in flight to each end, in order.
    under_way: BTreeMap<usize, VecDeque<u64>>,
    pub totals: Totals,
}

impl Account {
    /// Returns the `wr_id` of the next request.
    pub fn wr_id(&self) -> u64 {
        self.next
    }

    pub fn refused(&mut self) {
        self.totals.refused += 1;
    }

    /// Records a posted request; `to` is the end that gets its message.
    pub fn posted(&mut self, request: Posted, to: usize) {
        let wr_id = self.next;
        self.next += 1;
        self.totals.posted += 1;
        match request.queue {
            Queue::Send(end) => self.order.entry((true, end)).or_default().push_back(wr_id),
            Queue::Receive(end) => self.order.entry((false, end)).or_default().push_back(wr_id),
            Queue::Shared => {}
        }
        if let Some(message) = request.message {
            self.under_way.entry(to).or_default().push_back(message);
        }
        self.open.insert(wr_id, request);
    }

    /// Records a completion at `end`; `message` reads the content of a receive.
    /// Returns the places that are free again.
    pub fn completed(
        &mut self,
        completion: &Completion,
        end: usize,
        read: impl FnOnce(usize) -> u64,
    ) -> Vec<usize> {
        let wr_id = completion.wr_id;
        let request = self.open.remove(&wr_id).unwrap_or_else(|| {
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
                free.extend(self.pass_unsignalled(end, wr_id, completion));
            }
            Queue::Receive(owner) => {
                assert!(is_receive && owner == end, "{completion:?}: {request:?}");
                let first = self
                    .order
                    .get_mut(&(false, end))
                    .and_then(VecDeque::pop_front);
                assert_eq!(first, Some(wr_id), "out of order: {completion:?}");
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

    /// Completes every earlier send than a reported one: these must be
    /// unsignalled.
    fn pass_unsignalled(&mut self, end: usize, wr_id: u64, completion: &Completion) -> Vec<usize> {
        let mut free = Vec::new();
        let order = self.order.get_mut(&(true, end)).expect("posted there");
        while let Some(first) = order.pop_front() {
            if first == wr_id {
                return free;
            }
            let silent = self.open.remove(&first);
            let silent = silent.unwrap_or_else(|| panic!("{first} completed out of order"));
            assert!(
                !silent.signalled,
                "signalled request {first} has no completion before {completion:?}"
            );
            self.totals.good += 1;
            free.push(silent.slot);
        }
        panic!("{completion:?}: completed out of order");
    }

    /// Records a reset of both ends: their requests get no completions any more.
    /// Returns the places that are free again.
    pub fn reset(&mut self, ends: [usize; 2]) -> Vec<usize> {
        let mut free = Vec::new();
        for end in ends {
            self.under_way.remove(&end);
            for is_send in [true, false] {
                for wr_id in self.order.remove(&(is_send, end)).unwrap_or_default() {
                    let request = self.open.remove(&wr_id).expect("open while in order");
                    free.push(request.slot);
                    self.totals.abandoned += 1;
                }
            }
        }
        free
    }

    /// Checks that nothing is outstanding after all ends are in error and
    /// everything was polled, except receives that stayed on the shared queue.
    pub fn close(&self) {
        for (wr_id, request) in &self.open {
            match request.queue {
                Queue::Shared => {}
                // Completed before the queue failed, and unsignalled.
                Queue::Send(_) if !request.signalled => {}
                _ => panic!("{wr_id} was never completed: {request:?}"),
            }
        }
    }

    /// Returns the number of messages in flight to an end.
    pub fn messages_to(&self, end: usize) -> usize {
        self.under_way.get(&end).map_or(0, VecDeque::len)
    }

    /// Returns the number of receives posted for an end.
    pub fn receives_open(&self, end: usize, shared: bool) -> usize {
        match shared {
            true => self.shared_open(),
            false => self.order.get(&(false, end)).map_or(0, VecDeque::len),
        }
    }

    /// Checks that every signalled send of an end has completed.
    pub fn assert_no_sends_open(&self, end: usize) {
        let of_end = |(_, it): &(&u64, &Posted)| it.queue == Queue::Send(end) && it.signalled;
        let open: Vec<_> = self.open.iter().filter(of_end).collect();
        assert!(open.is_empty(), "never done: {open:?}");
    }

    /// Returns the number of shared receives that are not completed.
    pub fn shared_open(&self) -> usize {
        self.open
            .values()
            .filter(|it| it.queue == Queue::Shared)
            .count()
    }
}

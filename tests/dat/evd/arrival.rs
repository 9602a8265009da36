//! The order in which the events of several endpoints come out of one EVD.
//!
//! Each message arrives before the next is sent. A stepped device lets a test
//! control that; on others, messages go in one direction, and the acknowledgement
//! of each is waited for.

use std::ptr;
use std::time::Duration;

use dat::abi::*;
use dat::exports::*;

use crate::support::{Dto, End, Fixture, Memory, Pair, dequeue, device, dto, nothing_on, ok, wait};

/// Timeout for events that must come at once.
const SOON: DAT_TIMEOUT = 60_000_000;

/// How a test takes events.
#[derive(Clone, Copy, Debug)]
enum Taking {
    Dequeue,
    Wait,
    /// One wait for all, then one dequeue for each event.
    Batch,
}

/// Pairs of endpoints with default attributes. One end of each reports all its
/// completions to one EVD.
pub(crate) struct EndpointGroup<'b> {
    fixture: &'b Fixture,
    evd: DAT_EVD_HANDLE,
    pairs: Vec<Pair>,
    memory: Memory,
    /// Number of the EVD's completion queues, if the device is stepped.
    queues: Option<usize>,
    /// The number of the next message.
    next: u64,
}

fn completion_queues() -> Option<usize> {
    Some(device::emulator()?.nic().object_counts().cqs)
}

/// Creates endpoints with default attributes that report to this EVD.
fn ends(fixture: &Fixture, evd: DAT_EVD_HANDLE, count: usize) -> Vec<End> {
    let make = || {
        let mut end = End {
            ep: ptr::null_mut(),
            recv: evd,
            request: evd,
            connect: fixture.evd(8, DAT_EVD_CONNECTION_FLAG),
        };
        // SAFETY: live handles; the result is writable.
        ok(unsafe {
            dat_ep_create(
                fixture.ia,
                fixture.pz,
                evd,
                evd,
                end.connect,
                ptr::null(),
                &raw mut end.ep,
            )
        });
        end
    };
    (0..count).map(|_| make()).collect()
}

impl<'b> EndpointGroup<'b> {
    /// Creates this many pairs. One end of each reports to an EVD that was
    /// requested with `length` events.
    pub(crate) fn new(fixture: &'b Fixture, count: usize, length: DAT_COUNT) -> Self {
        let evd = fixture.evd(length, DAT_EVD_DTO_FLAG);
        let before = completion_queues();
        let near = ends(fixture, evd, count);
        let queues = completion_queues()
            .zip(before)
            .map(|(after, before)| after - before);
        let far = ends(fixture, fixture.evd(length, DAT_EVD_DTO_FLAG), count);
        let pairs = near.into_iter().zip(far);
        Self {
            fixture,
            evd,
            pairs: pairs
                .map(|(near, far)| Pair::connect(fixture, near, far))
                .collect(),
            memory: fixture.memory(4096),
            queues,
            next: 0,
        }
    }

    /// Checks the number of the EVD's completion queues, if the device is stepped.
    #[track_caller]
    pub(crate) fn has_queues(&self, expected: usize) {
        if let Some(queues) = self.queues {
            assert_eq!(queues, expected, "completion queues of the EVD");
        }
    }

    /// Sends one message over one of the pairs. Its number is the cookie of the
    /// completion on the EVD, which is of a receive or of a request.
    fn message(&mut self) {
        let number = self.next;
        self.next += 1;
        // Pairs and directions in pseudo-random order.
        let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let pair = &self.pairs[random as usize % self.pairs.len()];
        let (near, far) = (&pair.active, &pair.passive);
        let (into, from) = (self.memory.segment(0, 8), self.memory.segment(64, 8));
        if self.queues.is_none() {
            ok(near.post_recv(&[into], number));
            ok(far.post_send(&[from], 0, DAT_COMPLETION_DEFAULT_FLAG));
            ok(wait(far.request, SOON, 1).0);
            return;
        }
        if random & (1 << 20) != 0 {
            ok(near.post_recv(&[into], number));
            ok(far.post_send(&[from], 0, DAT_COMPLETION_SUPPRESS_FLAG));
        } else {
            ok(far.post_recv(&[into], 0));
            ok(near.post_send(&[from], number, DAT_COMPLETION_DEFAULT_FLAG));
        }
        self.fixture.run();
        // More than one tick of the device's clock.
        self.fixture.advance(Duration::from_nanos(20));
        while dequeue(far.recv).is_ok() {}
    }

    /// Takes this many events.
    fn take(&self, taking: Taking, count: usize) -> Vec<Dto> {
        let waited = |threshold: usize| {
            let (answer, event, nmore) = wait(self.evd, SOON, threshold as DAT_COUNT);
            ok(answer);
            (dto(&event), nmore as usize)
        };
        let dequeued = || dto(&dequeue(self.evd).expect("an event"));
        match taking {
            Taking::Dequeue => (0..count).map(|_| dequeued()).collect(),
            Taking::Wait => (0..count).map(|_| waited(1).0).collect(),
            Taking::Batch => {
                let (first, nmore) = waited(count);
                assert_eq!(nmore, count - 1);
                let rest = (0..nmore).map(|_| dequeued());
                [first].into_iter().chain(rest).collect()
            }
        }
    }

    /// Checks that the events of many messages come out in order of arrival,
    /// however they are taken.
    pub(crate) fn exchange(&mut self) {
        for taking in [Taking::Dequeue, Taking::Wait, Taking::Batch] {
            let from = self.next;
            for _ in 0..100 {
                self.message();
            }
            self.fixture.run();
            let taken = self.take(taking, 100);
            assert!(taken.iter().all(|dto| dto.status == DAT_DTO_SUCCESS));
            let cookies: Vec<u64> = taken.iter().map(|dto| dto.cookie).collect();
            let arrived: Vec<u64> = (from..self.next).collect();
            assert_eq!(cookies, arrived, "{taking:?}");
            nothing_on(self.evd);
        }
    }
}

/// Sixteen endpoints with default attributes fit into one completion queue,
/// however few events the EVD was requested with.
#[test]
fn evd_o09_events_of_sixteen_endpoints_come_as_they_arrived() {
    let fixture = Fixture::new();
    for length in [1, 16] {
        let mut group = EndpointGroup::new(&fixture, 16, length);
        group.has_queues(1);
        group.exchange();
    }
}

/// Also with more endpoints than one queue has room for, if completions are
/// further apart than a tick of the device's clock. On the verbs path there is
/// one queue, which has grown.
#[test]
fn evd_o10_events_from_two_completion_queues_come_as_they_arrived() {
    let fixture = Fixture::new();
    let mut group = EndpointGroup::new(&fixture, 40, 16);
    let is_verbs = std::env::var("DAT_PATH").is_ok_and(|path| path == "verbs");
    group.has_queues(if is_verbs { 1 } else { 2 });
    group.exchange();
}

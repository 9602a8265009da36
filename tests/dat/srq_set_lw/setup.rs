//! A shared receive queue that runs low.

use std::thread;
use std::time::Duration;

use dat::abi::*;
use dat::exports::*;

use crate::support::{
    End, Fixture, Memory, Pair, Shape, dequeue, dto, is_iwarp, nothing_on, ok, post_srq, srq,
    take_dto, wait,
};

pub fn set_lw(srq: DAT_SRQ_HANDLE, watermark: DAT_COUNT) -> DAT_RETURN {
    // SAFETY: the call validates its handles.
    unsafe { dat_srq_set_lw(srq, watermark) }
}

/// Which side polls the completions of taken receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poller {
    /// The application, as soon as they are queued.
    Consumer,
    /// No call: only the device has recorded them.
    NotPolled,
}

pub const POLLERS: [Poller; 2] = [Poller::Consumer, Poller::NotPolled];

/// A shared receive queue, an endpoint on it, and its peer, which sends.
pub struct LowWatermark<'b> {
    pub fixture: &'b Fixture,
    pub srq: DAT_SRQ_HANDLE,
    pub pair: Pair,
    pub memory: Memory,
    pub poller: Poller,
}

// SAFETY: handles are numbers, and the memory is not touched by the tests.
unsafe impl Sync for LowWatermark<'_> {}

impl<'b> LowWatermark<'b> {
    pub fn new(fixture: &'b Fixture, poller: Poller) -> Self {
        let shape = Shape::default();
        let srq = srq(fixture, 16);
        let pair = Pair::connect(
            fixture,
            End::new(fixture, &shape),
            End::on_srq(fixture, &shape, srq),
        );
        Self {
            fixture,
            srq,
            pair,
            memory: fixture.memory(4096),
            poller,
        }
    }

    #[track_caller]
    pub fn post(&self, buffers: usize) {
        for tag in 0..buffers {
            ok(post_srq(
                self.srq,
                &[self.memory.segment(1024, 64)],
                tag as u64,
            ));
        }
    }

    /// Lets the endpoint take this many buffers.
    #[track_caller]
    pub fn take(&self, buffers: usize) {
        for _ in 0..buffers {
            ok(self.pair.active.post_send(
                &[self.memory.segment(0, 8)],
                1,
                DAT_COMPLETION_DEFAULT_FLAG,
            ));
            self.fixture.run();
            assert_eq!(take_dto(self.pair.active.request).status, DAT_DTO_SUCCESS);
            if self.poller == Poller::Consumer {
                assert_eq!(take_dto(self.pair.passive.recv).status, DAT_DTO_SUCCESS);
            }
        }
        if is_iwarp() {
            // Over iWARP a send completes when TCP has it. A read completes after
            // the peer has received the sends before it.
            ok(self.pair.active.post_read(
                &[self.memory.segment(2048, 8)],
                &self.memory.remote(3072, 8),
                2,
                DAT_COMPLETION_DEFAULT_FLAG,
            ));
            assert_eq!(take_dto(self.pair.active.request).status, DAT_DTO_SUCCESS);
        }
    }

    #[track_caller]
    pub fn set(&self, watermark: DAT_COUNT) {
        ok(set_lw(self.srq, watermark));
    }

    /// Checks that no event is queued and none comes.
    #[track_caller]
    pub fn silent(&self) {
        self.fixture.run();
        thread::sleep(Duration::from_millis(8));
        nothing_on(self.fixture.async_evd);
    }

    /// Waits for the event, for seconds at most.
    #[track_caller]
    pub fn awaits(&self) {
        let (answer, event, nmore) = wait(self.fixture.async_evd, 60_000_000, 1);
        ok(answer);
        names(&event, self.srq, self.fixture);
        assert_eq!(nmore, 0);
    }

    /// Like [`Self::awaits`], and checks that no other event comes.
    #[track_caller]
    pub fn expect_event(&self) {
        self.awaits();
        self.silent();
    }

    /// Waits for a receive, for seconds at most.
    #[track_caller]
    pub fn receives(&self) {
        let (answer, event, _) = wait(self.pair.passive.recv, 60_000_000, 1);
        ok(answer);
        assert_eq!(dto(&event).status, DAT_DTO_SUCCESS);
    }

    /// Checks that the event was queued when the call returned.
    #[track_caller]
    pub fn expect_queued_event(&self) {
        match dequeue(self.fixture.async_evd) {
            Ok(event) => names(&event, self.srq, self.fixture),
            Err(_) => panic!("no event was queued when the call returned"),
        }
        self.silent();
    }
}

/// Checks that the event reports a low watermark of this queue.
#[track_caller]
pub fn names(event: &DAT_EVENT, srq: DAT_SRQ_HANDLE, fixture: &Fixture) {
    // DAT 1.2 has no event number for it; the handle and the reason identify it.
    assert_eq!(
        (event.event_number, event.evd_handle),
        (DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR, fixture.async_evd)
    );
    // SAFETY: the event number selects this member.
    let data = unsafe { event.event_data.asynch_error_event_data };
    assert_eq!(
        (data.dat_handle, data.reason),
        (srq, DAT_SRQ_LOW_WATERMARK_EVENT as DAT_COUNT)
    );
}

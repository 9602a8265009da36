//! A shared receive queue that runs low.

use std::thread;
use std::time::Duration;

use dat::abi::*;
use dat::exports::*;

use crate::support::{
    Bed, End, Memory, Pair, Shape, dequeue, dto, is_iwarp, nothing_on, ok, post_srq, srq, take_dto,
    wait,
};

pub fn set_lw(srq: DAT_SRQ_HANDLE, watermark: DAT_COUNT) -> DAT_RETURN {
    // SAFETY: any values may be given.
    unsafe { dat_srq_set_lw(srq, watermark) }
}

/// Who takes the completions of the receives that an endpoint has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taker {
    /// The consumer, as soon as they are there.
    Consumer,
    /// Nobody: only the device knows what was taken.
    Nobody,
}

pub const TAKERS: [Taker; 2] = [Taker::Consumer, Taker::Nobody];

/// A shared receive queue, an endpoint on it, and one that sends to that.
pub struct Bench<'b> {
    pub bed: &'b Bed,
    pub srq: DAT_SRQ_HANDLE,
    pub pair: Pair,
    pub memory: Memory,
    pub taker: Taker,
}

// SAFETY: handles are numbers, and the memory is not touched by the tests.
unsafe impl Sync for Bench<'_> {}

impl<'b> Bench<'b> {
    pub fn new(bed: &'b Bed, taker: Taker) -> Self {
        let shape = Shape::default();
        let srq = srq(bed, 16);
        let pair = Pair::connect(bed, End::new(bed, &shape), End::on_srq(bed, &shape, srq));
        Self {
            bed,
            srq,
            pair,
            memory: bed.memory(4096),
            taker,
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

    /// The endpoint takes so many buffers.
    #[track_caller]
    pub fn take(&self, buffers: usize) {
        for _ in 0..buffers {
            ok(self.pair.active.post_send(
                &[self.memory.segment(0, 8)],
                1,
                DAT_COMPLETION_DEFAULT_FLAG,
            ));
            self.bed.run();
            assert_eq!(take_dto(self.pair.active.request).status, DAT_DTO_SUCCESS);
            if self.taker == Taker::Consumer {
                assert_eq!(take_dto(self.pair.passive.recv).status, DAT_DTO_SUCCESS);
            }
        }
        if is_iwarp() {
            // There a send is done when TCP has it. A read comes back after the
            // peer has received what was sent before it.
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

    /// There is no event, and none comes.
    #[track_caller]
    pub fn silent(&self) {
        self.bed.run();
        thread::sleep(Duration::from_millis(8));
        nothing_on(self.bed.async_evd);
    }

    /// The event is there, or comes within seconds.
    #[track_caller]
    pub fn awaits(&self) {
        let (answer, event, nmore) = wait(self.bed.async_evd, 10_000_000, 1);
        ok(answer);
        names(&event, self.srq, self.bed);
        assert_eq!(nmore, 0);
    }

    /// The same, and no other comes.
    #[track_caller]
    pub fn told(&self) {
        self.awaits();
        self.silent();
    }

    /// A receive comes within seconds.
    #[track_caller]
    pub fn receives(&self) {
        let (answer, event, _) = wait(self.pair.passive.recv, 10_000_000, 1);
        ok(answer);
        assert_eq!(dto(&event).status, DAT_DTO_SUCCESS);
    }

    /// The event was there when the call returned.
    #[track_caller]
    pub fn told_at_once(&self) {
        match dequeue(self.bed.async_evd) {
            Ok(event) => names(&event, self.srq, self.bed),
            Err(_) => panic!("the call has told nothing"),
        }
        self.silent();
    }
}

/// The event is that of a low watermark of this queue.
#[track_caller]
pub fn names(event: &DAT_EVENT, srq: DAT_SRQ_HANDLE, bed: &Bed) {
    // 1.2 has no number for it; the handle and the reason tell.
    assert_eq!(
        (event.event_number, event.evd_handle),
        (DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR, bed.async_evd)
    );
    // SAFETY: the number tells which member holds.
    let data = unsafe { event.event_data.asynch_error_event_data };
    assert_eq!(
        (data.dat_handle, data.reason),
        (srq, DAT_SRQ_LOW_WATERMARK_EVENT as DAT_COUNT)
    );
}

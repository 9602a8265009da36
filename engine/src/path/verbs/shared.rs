//! Shared receive queues: the shadow of a queue of receives for many queue pairs.
//!
//! Receives complete in any order. An entry is free, or holds the `wr_id` of a receive that the
//! device has. The poster and the pollers take a lock for each entry, or list of entries.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use dv_sys::verbs::ibv_recv_wr;

use super::chain::{CHUNK, check_recv, link_recvs, recv_work};
use super::device::{Device, Refused, SharedCalls};
use super::post::{fill, in_chunks};
use super::shadow::Request;
use super::table::{NAMES, Name, Side, Tag};
use crate::control::forks;
use crate::request::{ListError, PostError, RecvRequest};
use crate::sync::SpinLock;

/// State that the poster shares with pollers and queue pairs.
pub(super) struct SharedState<D: Device> {
    pub(super) name: Name,
    queue: D::Shared,
    entries: SpinLock<Entries>,
    /// The number of receives that the device has.
    outstanding: AtomicU32,
}

struct Entries {
    wr_ids: Vec<Option<u64>>,
    /// The free entries. Has room for all.
    free: Vec<u32>,
}

impl Entries {
    /// Frees an entry and returns its `wr_id`; `None` if it is free.
    fn take(&mut self, slot: u32) -> Option<u64> {
        let wr_id = self.wr_ids.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(wr_id)
    }
}

impl<D: Device> SharedState<D> {
    /// Retires a receive that has completed. `None` if the device does not have it.
    pub(super) fn take(&self, slot: u32) -> Option<Request> {
        let wr_id = self.entries.lock().take(slot)?;
        self.outstanding.fetch_sub(1, Ordering::Relaxed);
        Some(Request::receive(wr_id))
    }
}

/// The posting side of a shared receive queue.
pub struct SharedReceives<D: Device> {
    state: Arc<SharedState<D>>,
    capacity: u32,
    segments: u32,
    forks: u32,
}

/// A shared receive queue, as creating queue pairs needs it.
#[derive(Clone)]
pub struct SharedReceivesHandle<D: Device>(pub(super) Arc<SharedState<D>>);

impl<D: Device> SharedReceivesHandle<D> {
    /// Returns the number of receives that were posted and not released by a
    /// completion. Exact while no thread posts or polls.
    pub fn outstanding(&self) -> u32 {
        self.0.outstanding.load(Ordering::Relaxed)
    }
}

impl<D: Device> SharedReceives<D> {
    /// Creates the poster of a queue that holds `capacity` receives of `segments`
    /// segments.
    pub fn new(queue: D::Shared, capacity: u32, segments: u32) -> Self {
        /// Names repeat after 2^30 queues.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let state = Arc::new(SharedState {
            name: NEXT.fetch_add(1, Ordering::Relaxed) & NAMES,
            queue,
            entries: SpinLock::new(Entries {
                wr_ids: vec![None; capacity as usize],
                free: (0..capacity).rev().collect(),
            }),
            outstanding: AtomicU32::new(0),
        });
        Self {
            state,
            capacity,
            segments,
            forks: forks(),
        }
    }

    /// Returns a handle for creating queue pairs on the queue.
    pub fn handle(&self) -> SharedReceivesHandle<D> {
        SharedReceivesHandle(Arc::clone(&self.state))
    }

    /// Returns the most receives that may be outstanding.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Adds entries, after the device's queue was grown to `capacity` receives.
    /// Outstanding receives are not touched.
    pub fn grow(&mut self, capacity: u32) {
        let mut wr_ids = vec![None; capacity as usize];
        let mut free = Vec::with_capacity(capacity as usize);
        // Taken last from the end.
        free.extend((self.capacity..capacity).rev());
        let entries = &mut *self.state.entries.lock();
        wr_ids[..entries.wr_ids.len()].copy_from_slice(&entries.wr_ids);
        free.append(&mut entries.free);
        core::mem::swap(&mut entries.wr_ids, &mut wr_ids);
        core::mem::swap(&mut entries.free, &mut free);
        self.capacity = capacity;
    }

    /// Returns the most segments of one receive.
    pub fn max_segments(&self) -> usize {
        self.segments as usize
    }

    /// Posts one receive.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// The memory of the segments is writable, and not used otherwise until the
    /// receive completes.
    pub unsafe fn post(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        let requests = core::slice::from_ref(request);
        // SAFETY: the segments' memory stays until the requests complete.
        unsafe { self.post_chunk::<1, _>(requests, |it| *it) }.map_err(|refused| refused.error)
    }

    /// Posts several receives.
    ///
    /// # Errors
    /// [`ListError`]; the receives before the invalid one are posted.
    ///
    /// # Safety
    /// As for [`Self::post`], for every request.
    pub unsafe fn post_list(&mut self, requests: &[RecvRequest<'_>]) -> Result<(), ListError> {
        in_chunks(requests, |chunk| {
            // SAFETY: the segments' memory stays until the requests complete.
            unsafe { self.post_chunk::<CHUNK, _>(chunk, |it| *it) }
        })
    }

    /// Posts up to `N` receives, of which `view` returns one.
    pub(super) unsafe fn post_chunk<'a, const N: usize, R>(
        &mut self,
        requests: &'a [R],
        view: impl Fn(&'a R) -> RecvRequest<'a>,
    ) -> Result<(), Refused> {
        if self.forks != forks() {
            let error = PostError::NotReady;
            return Err(Refused { taken: 0, error });
        }
        let state = &*self.state;
        let mut chain: [ibv_recv_wr; N] = core::array::from_fn(|_| recv_work(&[], 0));
        let mut slots = [0; N];
        let mut entries = state.entries.lock();
        let places = chain.iter_mut().zip(&mut slots);
        let (filled, end) = fill(requests, places, |request, (work, slot)| {
            let request = view(request);
            check_recv(request.segments, self.segments)?;
            *slot = entries.free.pop().ok_or(PostError::QueueFull)?;
            entries.wr_ids[*slot as usize] = Some(request.wr_id);
            let tag = Tag {
                side: Side::Shared,
                name: state.name,
                slot: *slot,
            };
            *work = recv_work(
                state.queue.quirks().receive(request.segments),
                tag.to_bits(),
            );
            Ok(())
        });
        drop(entries);
        if filled == 0 {
            return end;
        }
        state
            .outstanding
            .fetch_add(filled as u32, Ordering::Relaxed);
        let chain = link_recvs(&mut chain[..filled]);
        // SAFETY: the caller promises the memory of the segments.
        let answer = unsafe { state.queue.post(chain) };
        let taken = answer.map_or_else(|refused| refused.taken.min(filled), |()| filled);
        for &slot in &slots[taken..filled] {
            state.take(slot);
        }
        answer.and(end)
    }
}

//! Shared receive queues: the shadow of a queue of receives for many queue pairs.
//!
//! An entry is free, or holds the `wr_id` of a receive that the device has. The
//! poster keeps a list of free entries. Pollers return entries to a second list,
//! which the poster takes as a whole, under a lock that is rarely contended.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use dv_sys::verbs::ibv_recv_wr;

use super::chain::{Bounds, CHUNK, check_lengths, link, recv_work};
use super::device::{Device, Refused, SharedCalls};
use super::tag::{Name, Side, Tag};
use crate::control::forks;
use crate::request::{ListError, PostError, RecvRequest};
use crate::sync::{Mutex, MutexGuard};

/// State that the poster shares with pollers and queue pairs.
pub(super) struct SharedState<D: Device> {
    pub(super) name: Name,
    queue: D::Shared,
    places: Box<[Place]>,
    /// The entries added by growing; each chunk is at least as large as all before
    /// it.
    more: [OnceLock<Box<[Place]>>; 32],
    /// Entries that were released and that the poster has not taken yet. Never
    /// grows beyond the capacity that it was created with.
    returned: Mutex<Vec<u32>>,
    /// The number of receives posted since creation.
    posted: AtomicU32,
    /// The number of receives released since creation.
    back: AtomicU32,
}

#[derive(Debug, Default)]
struct Place {
    wr_id: AtomicU64,
    /// The device has the receive.
    taken: AtomicBool,
}

impl<D: Device> SharedState<D> {
    /// Releases the entry of a completed receive and returns its `wr_id`. Returns
    /// `None`, with nothing done, if the device does not have that receive.
    #[inline]
    pub(super) fn take(&self, slot: u32) -> Option<u64> {
        let place = self.place(slot)?;
        // Acquire: reads the `wr_id` that the poster wrote.
        if !place.taken.swap(false, Ordering::Acquire) {
            return None;
        }
        let wr_id = place.wr_id.load(Ordering::Relaxed);
        // The lock also orders the counters and entries between pollers.
        self.returned().push(slot);
        self.back.fetch_add(1, Ordering::Relaxed);
        Some(wr_id)
    }

    #[inline]
    fn place(&self, slot: u32) -> Option<&Place> {
        match self.places.get(slot as usize) {
            Some(place) => Some(place),
            None => self.place_beyond(slot as usize),
        }
    }

    #[cold]
    #[inline(never)]
    fn place_beyond(&self, slot: usize) -> Option<&Place> {
        let mut at = slot.checked_sub(self.places.len())?;
        for chunk in &self.more {
            let chunk = chunk.get()?;
            match chunk.get(at) {
                Some(place) => return Some(place),
                None => at -= chunk.len(),
            }
        }
        None
    }

    /// Returns the number of entries.
    fn room(&self) -> usize {
        let more = self.more.iter().map_while(OnceLock::get);
        self.places.len() + more.map(|chunk| chunk.len()).sum::<usize>()
    }

    fn returned(&self) -> MutexGuard<'_, Vec<u32>> {
        self.returned.lock()
    }
}

/// The posting side of a shared receive queue.
pub struct SharedReceives<D: Device> {
    state: Arc<SharedState<D>>,
    /// Entries for the next posts.
    free: Vec<u32>,
    capacity: u32,
    bounds: Bounds,
    forks: u32,
}

/// A shared receive queue, as creating queue pairs needs it.
pub struct SharedReceivesHandle<D: Device>(pub(super) Arc<SharedState<D>>);

impl<D: Device> Clone for SharedReceivesHandle<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D: Device> fmt::Debug for SharedReceivesHandle<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceivesHandle")
            .field("outstanding", &self.outstanding())
            .finish_non_exhaustive()
    }
}

impl<D: Device> SharedReceivesHandle<D> {
    /// Returns the number of receives that were posted and not released by a
    /// completion. Exact while no thread posts or polls.
    pub fn outstanding(&self) -> u32 {
        let back = self.0.back.load(Ordering::Relaxed);
        self.0.posted.load(Ordering::Relaxed).wrapping_sub(back)
    }
}

impl<D: Device> SharedReceives<D> {
    /// Creates the poster of a queue that holds `capacity` receives of `segments`
    /// segments.
    pub fn new(queue: D::Shared, capacity: u32, segments: u32) -> Self {
        /// Names repeat after 2^30 queues.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let state = Arc::new(SharedState {
            name: Name::new(NEXT.fetch_add(1, Ordering::Relaxed)),
            queue,
            places: (0..capacity).map(|_| Place::default()).collect(),
            more: [const { OnceLock::new() }; 32],
            returned: Mutex::new(Vec::with_capacity(capacity as usize)),
            posted: AtomicU32::new(0),
            back: AtomicU32::new(0),
        });
        Self {
            state,
            free: (0..capacity).rev().collect(),
            capacity,
            bounds: Bounds {
                segments,
                read_segments: 0,
                inline_bytes: 0,
                atomics: false,
            },
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
        let before = self.capacity;
        let room = self.state.room();
        let wanted = capacity as usize;
        if wanted > room {
            let chunk = self.state.more.iter().find(|chunk| chunk.get().is_none());
            let Some(chunk) = chunk else {
                // Each chunk was at least as large as all before it: there are 2^32
                // entries.
                return;
            };
            let count = (wanted - room).max(room);
            // The poster and the pollers get an entry's number after this store.
            chunk.get_or_init(|| (0..count).map(|_| Place::default()).collect());
        }
        let mut returned = self.state.returned();
        let known = returned.len();
        returned.reserve_exact(wanted - known.min(wanted));
        drop(returned);
        self.free
            .reserve_exact(wanted - self.free.len().min(wanted));
        // At the front of the list, so that they are used last.
        self.free.splice(0..0, (before..capacity).rev());
        self.capacity = capacity;
    }

    /// Returns the most segments of one receive.
    pub fn max_segments(&self) -> usize {
        self.bounds.segments as usize
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
        // SAFETY: required of the caller.
        unsafe { self.post_chunk::<1>(core::slice::from_ref(request)) }
            .map_err(|refused| refused.error)
    }

    /// Posts several receives.
    ///
    /// # Errors
    /// [`ListError`]; the receives before the invalid one are posted.
    ///
    /// # Safety
    /// As for [`Self::post`], for every request.
    pub unsafe fn post_list(&mut self, requests: &[RecvRequest<'_>]) -> Result<(), ListError> {
        let mut posted = 0;
        for chunk in requests.chunks(CHUNK) {
            // SAFETY: required of the caller.
            if let Err(Refused { taken, error }) = unsafe { self.post_chunk::<CHUNK>(chunk) } {
                let posted = posted + taken;
                return Err(ListError { posted, error });
            }
            posted += chunk.len();
        }
        Ok(())
    }

    /// Posts up to `N` receives.
    pub(super) unsafe fn post_chunk<const N: usize>(
        &mut self,
        requests: &[RecvRequest<'_>],
    ) -> Result<(), Refused> {
        let mut chain: [ibv_recv_wr; N] = core::array::from_fn(|_| recv_work(&[], 0));
        let mut slots = [0; N];
        let mut filled = 0;
        let mut end = Ok(());
        for ((request, work), slot) in requests.iter().zip(&mut chain).zip(&mut slots) {
            match self.place(request) {
                Ok(free) => *slot = free,
                Err(error) => {
                    end = Err(Refused {
                        taken: filled,
                        error,
                    });
                    break;
                }
            }
            let tag = Tag {
                side: Side::Shared,
                name: self.state.name,
                slot: *slot,
            };
            let segments = self.state.queue.quirks().receive(request.segments);
            *work = recv_work(segments, tag.to_bits());
            filled += 1;
        }
        if filled == 0 {
            return end;
        }
        let chain = link(&mut chain[..filled]);
        // SAFETY: the caller promises the memory of the segments.
        let answer = unsafe { self.state.queue.post(chain) };
        let taken = answer.map_or_else(|refused| refused.taken.min(filled), |()| filled);
        self.withdraw(&slots[taken..filled]);
        answer.and(end)
    }

    /// Takes a free entry and fills it as if the receive were posted.
    #[inline]
    fn place(&mut self, request: &RecvRequest<'_>) -> Result<u32, PostError> {
        if self.forks != forks() {
            return Err(PostError::NotReady);
        }
        self.bounds.check_count(request.segments)?;
        if self.free.is_empty() {
            core::mem::swap(&mut self.free, &mut *self.state.returned());
        }
        let slot = *self.free.last().ok_or(PostError::QueueFull)?;
        check_lengths(request.segments)?;
        self.free.pop();
        let place = self.state.place(slot).ok_or(PostError::QueueFull)?;
        place.wr_id.store(request.wr_id, Ordering::Relaxed);
        // Release: publishes the `wr_id`.
        place.taken.store(true, Ordering::Release);
        self.state.posted.fetch_add(1, Ordering::Relaxed);
        Ok(slot)
    }

    /// Frees the entries of receives that were not posted.
    fn withdraw(&mut self, slots: &[u32]) {
        for &slot in slots {
            if let Some(place) = self.state.place(slot) {
                place.taken.store(false, Ordering::Relaxed);
            }
            self.free.push(slot);
        }
        let count = slots.len() as u32;
        self.state.posted.fetch_sub(count, Ordering::Relaxed);
    }
}

impl<D: Device> fmt::Debug for SharedReceives<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceives")
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

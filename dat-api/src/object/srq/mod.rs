//! Shared receive queues.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;

use dat_engine::{SharedReceiveQueueHandle, SrqOptions};

use super::counters::{Counters, Refused};
use super::ia::{Ia, MAX_SEGMENTS};
use super::post::Posting;
use super::pz::Pz;
use super::usage::{Counted, Usage, Use};
use super::{exhausted, of_another_ia};
use crate::error::{DatError, Result};
use crate::handle::{self, Handle, Reservation, Upcalls};
use crate::object::stale;
use crate::status::{ReturnType, Subtype};
use crate::types::SrqAttributes;

#[allow(unsafe_code)]
mod poster;
#[allow(unsafe_code)]
mod resize;
mod sources;
mod watermark;

use poster::Poster;
use sources::Sources;
use watermark::Watermark;

pub(crate) use sources::Reporting;

/// A shared receive queue.
pub struct Srq {
    handle: Handle,
    ia: Arc<Ia>,
    queue: SharedReceiveQueueHandle,
    posting: Posting<Poster>,
    refused: Refused,
    capacity: AtomicU32,
    max_iov: u32,
    watermark: Watermark,
    /// The device reported an error of the queue.
    failed: AtomicBool,
    sources: Sources,
    usage: Usage,
    // Last, because the queue belongs to it.
    pz: Use<Pz>,
}

/// The result of `dat_srq_query`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqInfo {
    /// The IA it belongs to.
    pub ia: Handle,
    /// The protection zone of its receives.
    pub pz: Handle,
    /// Whether it works.
    pub state: SrqState,
    /// The actual attributes, and the low watermark as it was set last.
    pub attributes: SrqAttributes,
    /// The number of receives that endpoints may take. A receive that the device has filled counts
    /// until its completion is polled.
    pub available: u32,
    /// The number of receives that occupy entries; here the same as `available`, because an entry
    /// becomes free when its completion is polled.
    pub outstanding: u32,
}

/// `DAT_SRQ_STATE`, with the numbers of 1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SrqState {
    /// It works.
    Operational = 0,
    /// The device reported an error of the queue.
    Error = 1,
}

fn bad_attribute(cause: String) -> DatError {
    DatError::new(ReturnType::InvalidParameter, Subtype::InvalidArg3, cause)
}

impl Srq {
    /// The functions that objects in lower modules call.
    pub(super) const UPCALLS: Upcalls = Upcalls {
        abort: Self::abort,
        counters: |srq| {
            Some(Counters::of_posts(
                handle::pin::<Self>(srq)?.refused_posts(),
            ))
        },
        device_event: watermark::device_event,
        taken: watermark::taken,
        ..Upcalls::NONE
    };

    /// Creates a queue that holds at least as many receives, of at least as many segments, as asked
    /// for.
    ///
    /// # Errors
    /// Section 3DAT, `dat_srq_create`: attributes are argument 3; `DAT_MODEL_NOT_SUPPORTED` if the
    /// device has no shared receive queues.
    pub fn create(ia: &Arc<Ia>, pz: &Arc<Pz>, attributes: &SrqAttributes) -> Result<Arc<Self>> {
        Self::create_with(ia, pz, attributes, ia.rules().threadsafe)
    }

    /// As [`Self::create`], for a queue to which several threads post at a time, also on an IA that
    /// is not threadsafe: posts take a lock.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_locked(
        ia: &Arc<Ia>,
        pz: &Arc<Pz>,
        attributes: &SrqAttributes,
    ) -> Result<Arc<Self>> {
        Self::create_with(ia, pz, attributes, true)
    }

    fn create_with(
        ia: &Arc<Ia>,
        pz: &Arc<Pz>,
        attributes: &SrqAttributes,
        takes_lock: bool,
    ) -> Result<Arc<Self>> {
        ia.require_srqs()?;
        let bad_zone = |cause: String| {
            DatError::new(ReturnType::InvalidHandle, Subtype::InvalidHandlePz, cause)
        };
        if !Arc::ptr_eq(pz.ia(), ia) {
            return Err(bad_zone(of_another_ia("protection zone", pz.ia(), ia)));
        }
        for (name, value, most, limit) in [
            (
                "max_recv_dtos",
                attributes.max_recv_dtos,
                ia.rules().limits.max_recv_per_srq,
                "the adapter's max_recv_per_srq",
            ),
            (
                "max_recv_iov",
                attributes.max_recv_iov,
                ia.rules().max_srq_segments,
                "the device's max_srq_sge",
            ),
        ] {
            if value < 1 || value > most {
                return Err(bad_attribute(format!(
                    "{name} is {value}: expected 1 to {most}, {limit}"
                )));
            }
        }
        if attributes.low_watermark != 0 {
            return Err(bad_attribute(format!(
                "low_watermark is {}: expected DAT_SRQ_LW_DEFAULT (0); set it with \
                     dat_srq_set_lw once the queue is created",
                attributes.low_watermark
            )));
        }
        let pz = Use::of(pz)
            .ok_or_else(|| bad_zone("the protection zone is being freed: use another".into()))?;
        let place = Reservation::new().ok_or_else(exhausted)?;
        let queue = pz.domain().create_srq(&SrqOptions {
            depth: attributes.max_recv_dtos.unsigned_abs(),
            max_segments: attributes.max_recv_iov.unsigned_abs(),
        })?;
        let srq = Arc::new(Self {
            handle: place.handle(),
            ia: Arc::clone(ia),
            queue: queue.handle().clone(),
            refused: Refused::default(),
            capacity: AtomicU32::new(queue.capacity()),
            max_iov: u32::try_from(queue.max_segments().min(MAX_SEGMENTS)).unwrap_or(1),
            posting: Posting::new(takes_lock, Poster::new(queue, pz.handle().bits())),
            watermark: Watermark::default(),
            failed: AtomicBool::new(false),
            sources: Sources::default(),
            usage: Usage::default(),
            pz,
        });
        ia.publish(place, &srq)?;
        ia.watch(srq.queue.verbs().id(), srq.handle);
        Ok(srq)
    }

    /// Returns the protection zone of its receives.
    pub(crate) fn pz(&self) -> Handle {
        self.pz.handle()
    }

    /// Returns its handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns the IA that it was created on.
    #[must_use]
    pub fn ia(&self) -> &Arc<Ia> {
        &self.ia
    }

    /// Returns the number of its posts that were refused because it was full.
    #[must_use]
    pub fn refused_posts(&self) -> u64 {
        self.refused.read()
    }

    /// Returns the queue that endpoints are created with.
    pub(crate) fn queue(&self) -> &SharedReceiveQueueHandle {
        &self.queue
    }

    /// Returns how many receives it holds.
    pub(crate) fn capacity(&self) -> u32 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Frees a queue. Receives in it are dropped.
    ///
    /// # Errors
    /// `INVALID_HANDLE`; `INVALID_STATE` if an endpoint uses it.
    pub fn free(handle: Handle) -> Result<()> {
        let srq = handle::pin::<Self>(handle).ok_or_else(stale::<Self>)?;
        if !srq.usage.close() {
            return Err(DatError::new(
                ReturnType::InvalidState,
                Subtype::InvalidStateSrqInUse,
                format!(
                    "{} endpoints take their receives from the queue; free them first",
                    srq.usage.count()
                ),
            ));
        }
        srq.leave();
        drop(srq);
        handle::retire::<Self>(handle, |_| ()).ok_or_else(stale::<Self>)?;
        Ok(())
    }

    /// Frees the queue even if it is in use, because the IA is closed abruptly.
    pub(crate) fn abort(handle: Handle) {
        if let Some(srq) = handle::pin::<Self>(handle) {
            srq.usage.close_anyway();
            srq.leave();
        }
        drop(handle::retire::<Self>(handle, |_| ()));
    }

    fn leave(&self) {
        self.ia.unwatch(self.queue.verbs().id());
        self.ia.unregister(self.handle);
    }

    /// Returns its parameters and state.
    #[must_use]
    pub fn query(&self) -> SrqInfo {
        self.take_completions();
        let count = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
        let outstanding = self.queue.outstanding();
        SrqInfo {
            ia: self.ia.handle(),
            pz: self.pz.handle(),
            state: if self.failed.load(Ordering::Acquire) {
                SrqState::Error
            } else {
                SrqState::Operational
            },
            attributes: SrqAttributes {
                max_recv_dtos: count(self.capacity()),
                max_recv_iov: count(self.max_iov),
                low_watermark: count(self.watermark.value()),
            },
            available: outstanding,
            outstanding,
        }
    }

    /// Polls the completions of its endpoints, so that counts are current.
    fn take_completions(&self) {
        self.poll_while(|| true);
    }

    /// Polls where the endpoints report, until an entry is free. The consumer gets the events that
    /// this stages as from its own polls. Neither allocates nor waits.
    fn poll_for_room(&self) {
        self.poll_while(|| self.queue.outstanding() >= self.capacity());
    }

    fn poll_while(&self, continues: impl Fn() -> bool) {
        self.sources.visit(|source| {
            (source.upcalls().poll_completions)(source);
            continues()
        });
    }
}

impl Counted for Srq {
    fn usage(&self) -> &Usage {
        &self.usage
    }
}

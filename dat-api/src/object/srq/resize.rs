//! Changing how many receives a shared queue holds.
//!
//! A queue never becomes smaller: a request for a smaller size succeeds without an effect. A larger
//! size needs a device that can resize a queue that is in use. Soft-RoCE can; mlx5 cannot, so there
//! a size beyond what creation rounded up to is refused, and programs create an SRQ as long as it
//! will ever be. It also needs room in the completion queues that the endpoints report to, which
//! cannot change for this: an EVD that was created long enough has it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dat_engine::{ControlErrorKind, memory};

use super::Srq;
use crate::error::{DatError, Result};
use crate::handle::{self, Kind};
use crate::object::evd::Evd;
use crate::status::{ReturnType, Subtype};

fn too_small(cause: String) -> DatError {
    DatError::new(ReturnType::InvalidState, Subtype::NoSubtype, cause)
}

fn no_room(cause: impl Into<String>) -> DatError {
    DatError::new(
        ReturnType::InsufficientResources,
        Subtype::ResourceSrq,
        cause.into(),
    )
}

impl Srq {
    /// Makes the queue hold at least this many receives. No receive is lost.
    ///
    /// # Errors
    /// - `DAT_INVALID_PARAMETER`, argument 2: below 1, or more than the adapter allows
    ///   (`max_recv_per_srq`).
    /// - `DAT_INVALID_STATE`: fewer than are outstanding, or than the low watermark.
    /// - `DAT_INSUFFICIENT_RESOURCES`: more than it holds, and the device cannot resize it, or the
    ///   EVD of an endpoint on it has no room for as many completions.
    ///
    /// # Safety
    /// No other call of this runs at the same time, and no post to this queue, unless its IA is
    /// threadsafe or [`Srq::create_locked`] has created it.
    pub unsafe fn resize(&self, receives: i32) -> Result<()> {
        let most = self.ia.rules().limits.max_recv_per_srq;
        if receives < 1 || receives > most {
            return Err(DatError::new(
                ReturnType::InvalidParameter,
                Subtype::InvalidArg2,
                format!(
                    "max_recv_dtos is {receives}: expected 1 to {most}, the adapter's max_recv_per_srq"
                ),
            ));
        }
        let wanted = receives.unsigned_abs();
        self.take_completions();
        let (outstanding, mark) = (self.queue.outstanding(), self.watermark.value());
        if wanted < outstanding {
            return Err(too_small(format!(
                "{outstanding} receives are outstanding, more than the new size {wanted}: take \
                 completions first, or keep room for them"
            )));
        }
        if wanted < mark {
            return Err(too_small(format!(
                "the low watermark {mark} is above the new size {wanted}: lower it first"
            )));
        }
        let more = wanted.saturating_sub(self.capacity());
        if more == 0 {
            return Ok(());
        }
        let evds = self.evds()?;
        for (at, evd) in evds.iter().enumerate() {
            if !evd.widen_shared(self.handle, more) {
                self.give_back(&evds[..at], more);
                return Err(no_room(format!(
                    "an EVD has no room for {more} more completions of receives: create it \
                     longer, or resize the queue before endpoints use it"
                )));
            }
        }
        if let Err(error) = memory::commit() {
            self.give_back(&evds, more);
            return Err(error.into());
        }
        // SAFETY: no post runs at the same time, unless posts take the lock.
        let resized = unsafe { self.resize_queue(wanted) };
        match resized {
            Ok(()) => {
                self.capacity.store(wanted, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                self.give_back(&evds, more);
                Err(match error.kind() {
                    ControlErrorKind::Unsupported => no_room(format!(
                        "it holds {} receives, and {error}",
                        self.capacity()
                    )),
                    _ => error.into(),
                })
            }
        }
    }

    fn give_back(&self, evds: &[Arc<Evd>], more: u32) {
        for evd in evds {
            evd.narrow_shared(self.handle, more);
        }
    }

    /// Returns the EVDs that its endpoints report receives to, each once.
    ///
    /// # Errors
    /// An endpoint has no receive EVD: its completion queue for receives cannot grow.
    fn evds(&self) -> Result<Vec<Arc<Evd>>> {
        let mut evds = Vec::new();
        for source in self.sources.list() {
            if source.kind() == Some(Kind::Ep) {
                return Err(no_room(
                    "an endpoint without a receive EVD uses the queue: resize the queue before \
                     such endpoints are created",
                ));
            }
            evds.extend(handle::pin::<Evd>(source).map(|evd| evd.to_arc()));
        }
        Ok(evds)
    }
}

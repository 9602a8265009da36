//! The high watermarks of received messages.
//!
//! An endpoint holds the receives that messages have filled and whose events the consumer has not
//! dequeued, from its own queue or from a shared one. Exceeding the soft mark is reported once per
//! setting; exceeding the hard mark breaks the connection. Completed receives are counted when the
//! EVD is polled (a dequeue, a wait, `dat_ep_recv_query`, `dat_ep_get_status`, setting the marks):
//! no device reports them earlier. Before a receive of an endpoint with marks is handed out, all
//! other completed ones are counted (`has_high_watermark` of [`crate::handle::Upcalls`]).
//!
//! To dequeue a receive of an endpoint with marks, the fast path first tests whether the queue can
//! hold that number at all: it looks at the CQE that would be the first beyond the lowest mark
//! ([`crate::handle::CompletionHooks`]). If that CQE is there, completions are passed to the endpoint
//! one by one ([`super::completed`]). An endpoint without marks pays nothing for them.
//!
//! DAT 1.2 has no event number for watermarks. As for those of an SRQ, the event is
//! `DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR`, with the handle of the endpoint and the reason
//! `DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT`.
//!
//! Decision: `docs/decisions/028-watermarks-as-async-errors.md`

use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use dat_engine::memory;

use crate::error::{DatError, Result};
use crate::handle::Slot;
use crate::object::ep::Ep;
use crate::status::{ReturnType, Subtype};
use crate::types::{AsyncKind, AsyncReason, EpAttributes};

/// `DAT_WATERMARK_INFINITE`.
const OFF: i32 = -1;

/// The high watermarks.
#[derive(Debug)]
pub(in super::super) struct HighMarks {
    pub(super) soft: AtomicI32,
    /// The soft mark has not been reported since it was set.
    armed: AtomicBool,
    pub(super) hard: AtomicI32,
}

impl HighMarks {
    /// Returns the marks of a new endpoint: its attributes are marks if it takes its receives from
    /// an SRQ, where 0 leaves a mark open.
    pub(in super::super) fn of(attributes: &EpAttributes, shared: bool) -> Self {
        let mark = |value: i32| if shared && value > 0 { value } else { OFF };
        Self {
            soft: AtomicI32::new(mark(attributes.srq_soft_hw)),
            armed: AtomicBool::new(true),
            hard: AtomicI32::new(mark(attributes.max_recv_dtos)),
        }
    }

    /// Returns the soft and the hard mark; `None` for one that is off.
    fn get(&self) -> [Option<u32>; 2] {
        [&self.soft, &self.hard].map(|mark| u32::try_from(mark.load(Ordering::Acquire)).ok())
    }

    pub(in super::super) fn lowest(&self) -> Option<u32> {
        self.get().into_iter().flatten().min()
    }

    pub(in super::super) fn are_set(&self) -> bool {
        self.get() != [None, None]
    }

    /// Writes the marks into the attributes of the endpoint.
    pub(in super::super) fn show(&self, attributes: &mut EpAttributes, shared: bool) {
        let [soft, hard] = [&self.soft, &self.hard].map(|mark| mark.load(Ordering::Acquire));
        let replace = |shown: &mut i32, mark| {
            // A mark that was left open is shown as it was requested.
            if *shown > 0 || mark != OFF {
                *shown = mark;
            }
        };
        if shared {
            replace(&mut attributes.max_recv_dtos, hard);
        }
        if shared || soft != OFF {
            replace(&mut attributes.srq_soft_hw, soft);
        }
    }
}

fn check(mark: i32, argument: Subtype) -> Result<()> {
    if mark >= OFF {
        return Ok(());
    }
    Err(DatError::new(
        ReturnType::InvalidParameter,
        argument,
        format!("invalid watermark {mark}: expected 0 or more, or DAT_WATERMARK_INFINITE (-1)"),
    ))
}

impl Ep {
    /// Sets the soft and the hard high watermark, and arms both; -1 turns a mark off. A mark that
    /// is already exceeded takes effect now.
    ///
    /// # Errors
    /// `INVALID_PARAMETER` (arguments 2 and 3) below -1.
    pub fn set_watermarks(&self, soft: i32, hard: i32) -> Result<()> {
        check(soft, Subtype::InvalidArg2)?;
        check(hard, Subtype::InvalidArg3)?;
        memory::commit()?;
        // Disarms the previous setting.
        self.marks.armed.store(false, Ordering::SeqCst);
        self.marks.soft.store(soft, Ordering::SeqCst);
        self.marks.hard.store(hard, Ordering::SeqCst);
        self.marks.armed.store(true, Ordering::SeqCst);
        self.update_watermark_hook();
        if self.marks.are_set() {
            self.poll_everything();
            self.compare(self.recvs_staged());
        }
        Ok(())
    }

    /// Returns the number of completed receives whose events the EVD has staged.
    pub(in super::super) fn recvs_staged(&self) -> u32 {
        let counters = self.handle.slot().map(Slot::counters);
        counters.map_or(0, |counters| counters.recv_staged.load(Ordering::Relaxed))
    }

    /// Counts one more filled receive, besides the staged ones.
    pub(in super::super) fn takes_one(&self) {
        if self.marks.are_set() {
            self.compare(self.recvs_staged().wrapping_add(1));
        }
    }

    fn compare(&self, held: u32) {
        let [soft, hard] = self.marks.get();
        if soft.is_some_and(|soft| held > soft) && self.marks.armed.swap(false, Ordering::SeqCst) {
            self.ia.report(
                AsyncKind::ProviderInternalError,
                self.handle,
                AsyncReason::Watermark,
            );
        }
        if hard.is_some_and(|hard| held > hard) {
            self.broken();
        }
    }
}

//! The high watermarks of an endpoint: how many receives it may hold.
//!
//! An endpoint holds the receives that messages have filled and whose events the consumer has not
//! dequeued, from its own queue or from a shared one. Exceeding the soft mark is reported once per
//! setting; exceeding the hard mark breaks the connection. Completed receives are counted when the
//! EVD is polled (a dequeue, a wait, `dat_ep_recv_query`, `dat_ep_get_status`, setting the marks):
//! no device reports them earlier. Before a receive of an endpoint with marks is handed out, all
//! other completed ones are counted (`has_high_watermark` of [`crate::handle::Upcalls`]).
//!
//! To dequeue a receive of an endpoint with marks, the fast path first tests whether the queue can
//! hold so many at all: it looks at the CQE that would be the first beyond the lowest mark
//! ([`crate::handle::CompletionHooks`]). If that CQE is there, completions are passed to the
//! endpoint one by one ([`super::hooks::completed`]). An endpoint without marks pays nothing for
//! them.
//!
//! DAT 1.2 has no event number for watermarks. As for those of an SRQ, the event is
//! `DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR`, with the handle of the endpoint and the reason
//! `DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT`.
//!
//! Decision: `docs/decisions/028-watermarks-as-async-errors.md`

use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use super::Ep;
use crate::error::{DatError, Result};
use crate::status::{ReturnType, Subtype};
use crate::types::{AsyncKind, AsyncReason, EpAttributes};

/// `DAT_WATERMARK_INFINITE`.
const OFF: i32 = -1;

/// The high watermarks.
#[derive(Debug)]
pub(super) struct HighMarks {
    soft: AtomicI32,
    /// The soft mark has not been reported since it was set.
    armed: AtomicBool,
    hard: AtomicI32,
}

impl HighMarks {
    /// Returns the marks of a new endpoint: its attributes are marks if it takes its receives from
    /// an SRQ, where 0 leaves a mark open.
    pub(super) fn of(attributes: &EpAttributes, shared: bool) -> Self {
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

    /// Returns the lowest mark.
    pub(super) fn lowest(&self) -> Option<u32> {
        self.get().into_iter().flatten().min()
    }

    pub(super) fn are_set(&self) -> bool {
        self.get() != [None, None]
    }

    /// Writes the marks into the attributes of the endpoint.
    pub(super) fn show(&self, attributes: &mut EpAttributes, shared: bool) {
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

    /// Counts one more filled receive, besides the staged ones.
    pub(super) fn takes_one(&self) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::CompletionFlags;

    fn attributes(max_recv_dtos: i32, srq_soft_hw: i32) -> EpAttributes {
        EpAttributes {
            service_type: 0,
            max_message_size: 1,
            max_rdma_size: 1,
            qos: 0,
            recv_completion_flags: CompletionFlags::empty(),
            request_completion_flags: CompletionFlags::empty(),
            max_recv_dtos,
            max_request_dtos: 1,
            max_recv_iov: 1,
            max_request_iov: 1,
            max_rdma_read_in: 0,
            max_rdma_read_out: 0,
            srq_soft_hw,
            max_rdma_read_iov: 1,
            max_rdma_write_iov: 1,
        }
    }

    /// Row, requested, shared, set afterwards, shown.
    #[test]
    fn attributes_show_the_watermarks_that_are_set() {
        let off = None;
        for (row, [hard, soft], shared, set, shown) in [
            ("as asked for", [4, 2], true, off, [4, 2]),
            ("left open", [0, 0], true, off, [0, 0]),
            ("off", [-1, -1], true, off, [-1, -1]),
            ("a queue of its own", [16, -1], false, off, [16, -1]),
            ("set later", [0, -1], true, Some([5, 7]), [5, 7]),
            ("turned off", [4, 2], true, Some([-1, -1]), [-1, -1]),
            ("of none", [-1, -1], true, Some([0, 0]), [0, 0]),
            ("own, set", [16, -1], false, Some([5, 7]), [16, 7]),
        ] {
            let mut attributes = attributes(hard, soft);
            let marks = HighMarks::of(&attributes, shared);
            if let Some([hard, soft]) = set {
                marks.hard.store(hard, Ordering::Relaxed);
                marks.soft.store(soft, Ordering::Relaxed);
            }
            marks.show(&mut attributes, shared);
            assert_eq!(
                [attributes.max_recv_dtos, attributes.srq_soft_hw],
                shown,
                "{row}"
            );
        }
    }
}

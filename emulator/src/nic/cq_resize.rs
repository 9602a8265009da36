//! Moving a CQ to another ring while completions arrive.
//!
//! The device ends the old ring with a resize CQE, which takes a producer index like
//! any other CQE, and continues in the new ring. The driver library moves the CQEs
//! before it to the new ring, at indices higher by one, and continues there. No
//! completion is lost or seen twice, wherever the rings wrap. The resize CQE
//! occupies an entry until software publishes a consumer index behind it.
//!
//! Decision: `docs/decisions/052-cq-resize-by-a-cqe.md`

use super::adapter::Nic;
use super::memory;
use super::spec::{CqBuffer, Cqn, Errno, Result};
use crate::decode::cqe::Cqe;

impl Nic {
    /// Moves a CQ to another ring. The driver copies the contents of the old ring.
    ///
    /// # Errors
    /// The device's: `EINVAL` for invalid sizes or another CQE size, if more
    /// completions are pending than fit in the new ring or before the end of the
    /// old one, or if the CQ does not exist or is in error.
    pub(crate) fn resize_cq(&mut self, cqn: Cqn, to: &CqBuffer) -> Result<()> {
        let invalid = Errno(libc::EINVAL);
        let cq = self.core.cqs.get_mut(cqn.0).ok_or(invalid)?;
        let is_size = to.cqe_count.is_power_of_two()
            && to.cqe_count <= crate::limits::MAX_CQE.next_power_of_two()
            && to.cqe_size == cq.spec.cqe_size;
        if !is_size || cq.failed {
            return Err(invalid);
        }
        let consumer = memory::load_be32(cq.spec.dbrec).map_err(|_| Errno(libc::EFAULT))?;
        let waiting = cq.pending(consumer);
        if waiting >= to.cqe_count || waiting >= cq.spec.cqe_count {
            return Err(invalid);
        }
        self.core.check_memory()?;
        let cq = self.core.cqs.get_mut(cqn.0).ok_or(invalid)?;
        let index = cq.producer;
        let mut end = Cqe::resized();
        cq.write(&mut end).map_err(|_| Errno(libc::EFAULT))?;
        cq.spec.buf = to.buf;
        cq.spec.cqe_count = to.cqe_count;
        self.core.trace_cqe(cqn, index, &end);
        Ok(())
    }
}

//! Moving a completion queue to another ring while completions come.
//!
//! The device ends the old ring with a completion of its own kind, which
//! takes a producer index like any other, and goes on in the new one. The
//! driver library moves what lies before it in the old ring to the indices
//! one higher of the new one, and counts on from there: so no completion is
//! lost or seen twice wherever the rings wrap. The end of the old ring takes
//! the room of a completion until software tells a consumer index behind it.

use super::adapter::Nic;
use super::memory;
use super::spec::{CqBuffer, Cqn, Errno, Result};
use crate::decode::cqe::Cqe;

impl Nic {
    /// Gives a completion queue another ring. The driver takes over what is
    /// in the old one.
    ///
    /// # Errors
    /// As the device's command: `EINVAL` for sizes that are none or another
    /// size of CQEs, when more completions wait than the new ring or the end
    /// of the old one has room for, or when the queue is unknown or in error.
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
        self.core.room()?;
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

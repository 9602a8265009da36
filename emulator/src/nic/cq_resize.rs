//! Moving a CQ to another ring while completions arrive.
//!
//! The device ends the old ring with a resize CQE, which takes a producer index like
//! any other CQE, and continues in the new ring. The driver library moves the CQEs
//! before it to the new ring, at indices higher by one, and continues there. No
//! completion is lost or seen twice, wherever the rings wrap. The resize CQE
//! occupies an entry until software publishes a consumer index behind it.

use super::adapter::Nic;
use super::memory;
use crate::decode::cqe::Cqe;
use crate::refusal::{OrRefuse, refuse_if};
use crate::spec::{CqBuffer, Cqn, Result};

impl Nic {
    /// Moves a CQ to another ring. The driver copies the contents of the old ring.
    ///
    /// # Errors
    /// The device's: `EINVAL` for invalid sizes or another CQE size, if more
    /// completions are pending than fit in the new ring or before the end of the
    /// old one, or if the CQ does not exist or is in error.
    pub fn resize_cq(&mut self, cqn: Cqn, to: &CqBuffer) -> Result<()> {
        const UNKNOWN: &str = "the completion queue does not exist";
        const UNMAPPED: &str = "the ring or the doorbell record is not in mapped memory";
        let cq = self.core.cqs.get_mut(cqn.0);
        let cq = cq.or_refuse(libc::EINVAL, UNKNOWN)?;
        let is_size = to.cqe_count.is_power_of_two()
            && to.cqe_count <= crate::limits::MAX_CQE.next_power_of_two()
            && to.cqe_size == cq.spec.cqe_size;
        refuse_if(
            !is_size,
            libc::EINVAL,
            "the new number of completions is not a power of two up to max_cqe, or the size of \
             a completion would change",
        )?;
        refuse_if(cq.failed, libc::EINVAL, "the completion queue has failed")?;
        let consumer = memory::load_be32(cq.spec.dbrec).or_refuse(libc::EFAULT, UNMAPPED)?;
        let waiting = cq.pending(consumer);
        refuse_if(
            waiting >= to.cqe_count || waiting >= cq.spec.cqe_count,
            libc::EINVAL,
            "more completions wait to be polled than the new ring can hold",
        )?;
        self.core.check_memory()?;
        let cq = self.core.cqs.get_mut(cqn.0);
        let cq = cq.or_refuse(libc::EINVAL, UNKNOWN)?;
        let index = cq.producer;
        let mut end = Cqe::resized();
        cq.write(&mut end).or_refuse(libc::EFAULT, UNMAPPED)?;
        cq.spec.buf = to.buf;
        cq.spec.cqe_count = to.cqe_count;
        self.core.trace_cqe(cqn, index, &end);
        Ok(())
    }
}

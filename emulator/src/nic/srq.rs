//! Shared receive queues.
//!
//! The ring is a linked list: each WQE names the next one, in the order in which the
//! driver posted them. The doorbell record counts posts; it is not an index.

use super::adapter::Nic;
use super::core::Core;
use super::memory;
use crate::decode::wqe::{SEGMENT, srq_next};
use crate::refusal::{OrRefuse, refuse_if};
use crate::spec::{AsyncEvent, AsyncObject, Result, SrqSpec, Srqn};

/// A shared receive queue.
#[derive(Debug)]
pub(super) struct Srq {
    pub(super) spec: SrqSpec,
    /// Index of the next WQE.
    head: u16,
    /// Number of WQEs taken since creation, 16 bits as in the doorbell record.
    taken: u16,
    /// WQEs that are taken from the list and not in use yet, if the device takes them
    /// out of order.
    ahead: Vec<u16>,
    /// Number of messages that have taken one of these.
    messages: u64,
    /// The QP that has taken the last of these.
    last_user: Option<u32>,
    /// Number of WQEs that were posted and not used, when a WQE was used last.
    left: u32,
    /// Threshold of the limit event; 0 means not armed.
    limit: u32,
    /// Number of QPs that use it.
    pub(super) users: u32,
    /// The list was invalid or not readable: no WQE is taken any more.
    failed: bool,
}

/// The result of taking a WQE.
pub(super) enum Taken {
    /// The index of the WQE; its bytes are in the caller's buffer.
    Wqe(u16),
    /// Nothing is posted.
    Empty,
}

impl Core {
    /// Fails an SRQ: no WQE is taken from it any more. Returns `false` if it does not
    /// exist or has failed already.
    pub(super) fn fail_srq(&mut self, srqn: Srqn, cause: &str) -> bool {
        let Some(srq) = self.srqs.get_mut(srqn.0).filter(|srq| !srq.failed) else {
            return false;
        };
        srq.failed = true;
        let (context, handle) = (srq.spec.context, srq.spec.user_handle);
        let cause = format!("shared receive queue {:#x}: {cause}", srqn.0);
        let object = AsyncObject::Srq(handle);
        self.raise_failure(context, AsyncEvent::SrqErr, object, &cause);
        true
    }

    /// Takes the next WQE and copies it to `bytes`. May raise the limit event.
    pub(super) fn take_srq_wqe(&mut self, srqn: Srqn, qpn: u32, bytes: &mut Vec<u8>) -> Taken {
        let taken = match self.nasty.receives_to_choose_from() {
            Some(count) => self.choose_srq_wqe(srqn, qpn, bytes, count),
            None => self.next_srq_wqe(srqn, bytes),
        };
        if let Taken::Wqe(_) = taken {
            self.check_srq_limit(srqn);
        }
        taken
    }

    /// Raises the limit event if the SRQ is armed and too few WQEs are left.
    fn check_srq_limit(&mut self, srqn: Srqn) {
        let Some(srq) = self.srqs.get_mut(srqn.0) else {
            return;
        };
        if srq.limit > 0 && srq.left < srq.limit {
            // Raised once per arming.
            srq.limit = 0;
            let (context, handle) = (srq.spec.context, srq.spec.user_handle);
            self.raise(
                context,
                AsyncEvent::SrqLimitReached,
                AsyncObject::Srq(handle),
            );
        }
    }

    /// Takes up to `count` WQEs from the list, and uses any of them. A QP that took the
    /// last WQE takes the oldest.
    fn choose_srq_wqe(&mut self, srqn: Srqn, qpn: u32, bytes: &mut Vec<u8>, count: usize) -> Taken {
        loop {
            let srq = self.srqs.get(srqn.0);
            if srq.is_none_or(|srq| srq.failed || srq.ahead.len() >= count) {
                break;
            }
            let Taken::Wqe(index) = self.next_srq_wqe(srqn, bytes) else {
                break;
            };
            if let Some(srq) = self.srqs.get_mut(srqn.0) {
                srq.ahead.push(index);
            }
        }
        let Some(srq) = self.srqs.get_mut(srqn.0).filter(|srq| !srq.failed) else {
            return Taken::Empty;
        };
        if srq.ahead.is_empty() {
            return Taken::Empty;
        }
        let goes_on = srq.last_user.replace(qpn).is_none_or(|last| last == qpn);
        let chosen = match goes_on {
            true => 0,
            false => self.nasty.choose_receive(srq.messages, srq.ahead.len()),
        };
        srq.messages += 1;
        let index = srq.ahead.remove(chosen);
        let posted = memory::load_be32(srq.spec.dbrec).unwrap_or(srq.taken.into());
        srq.left = u32::from((posted as u16).wrapping_sub(srq.taken)) + srq.ahead.len() as u32;
        let at = srq.spec.buf + (u64::from(index) << srq.spec.stride_log2);
        bytes.resize(1 << srq.spec.stride_log2, 0);
        if let Err(fault) = memory::read(at, bytes) {
            self.fail_srq(srqn, &format!("its ring cannot be read: {fault}"));
            return Taken::Empty;
        }
        Taken::Wqe(index)
    }

    /// Takes the next WQE of the list.
    fn next_srq_wqe(&mut self, srqn: Srqn, bytes: &mut Vec<u8>) -> Taken {
        let Some(srq) = self.srqs.get_mut(srqn.0).filter(|srq| !srq.failed) else {
            return Taken::Empty;
        };
        let posted = match memory::load_be32(srq.spec.dbrec) {
            Ok(posted) => posted,
            Err(fault) => {
                let cause = format!("its doorbell record cannot be read: {fault}");
                self.fail_srq(srqn, &cause);
                return Taken::Empty;
            }
        };
        let available = (posted as u16).wrapping_sub(srq.taken);
        if available == 0 {
            return Taken::Empty;
        }
        let index = srq.head;
        bytes.resize(1 << srq.spec.stride_log2, 0);
        let at = srq.spec.buf + (u64::from(index) << srq.spec.stride_log2);
        let broken = match (memory::read(at, bytes), bytes.first_chunk::<SEGMENT>()) {
            (Ok(()), Some(link)) => {
                srq.head = srq_next(link);
                u32::from(srq.head) >= srq.spec.wqe_count
                    || u32::from(available) > srq.spec.wqe_count
            }
            _ => true,
        };
        if broken {
            let head = srq.head;
            let cause = format!("WQE {index} links to WQE {head} while {available} are posted");
            self.fail_srq(srqn, &cause);
            self.violation(format!("SRQ {:#x}: {cause}", srqn.0));
            return Taken::Empty;
        }
        srq.taken = srq.taken.wrapping_add(1);
        srq.left = u32::from(available) - 1;
        Taken::Wqe(index)
    }
}

const UNKNOWN: &str = "the shared receive queue does not exist";
const LIMIT: &str = "the limit is not below the number of receives that the queue holds";

impl Nic {
    /// Creates a shared receive queue.
    ///
    /// # Errors
    /// `EINVAL` for invalid sizes or an unknown protection domain, `EFAULT` for
    /// invalid addresses, `ENOMEM` if there are too many.
    pub fn create_srq(&mut self, spec: &SrqSpec) -> Result<Srqn> {
        let core = &mut self.core;
        let known = core
            .pds
            .get(spec.pd.0)
            .is_some_and(|pd| pd.context == spec.context);
        let sizes = spec.wqe_count.is_power_of_two()
            && spec.wqe_count <= crate::limits::MAX_SRQ_WR.next_power_of_two()
            && (5..=15).contains(&spec.stride_log2);
        refuse_if(
            !known,
            libc::EINVAL,
            "the protection domain belongs to another context",
        )?;
        refuse_if(
            !sizes,
            libc::EINVAL,
            "the size of the ring is not a power of two within the limits of the device",
        )?;
        refuse_if(spec.limit >= spec.wqe_count, libc::EINVAL, LIMIT)?;
        memory::load_be32(spec.dbrec)
            .or_refuse(libc::EFAULT, "the doorbell record is not in mapped memory")?;
        core.check_memory()?;
        core.poison_srq(spec);
        let (limit, spec) = (spec.limit, *spec);
        let srq = Srq {
            spec,
            head: 0,
            taken: 0,
            ahead: Vec::new(),
            messages: 0,
            last_user: None,
            left: 0,
            limit,
            users: 0,
            failed: false,
        };
        let srqn = core.srqs.insert_with(|_| srq).or_refuse(
            libc::ENOMEM,
            "the process has as many shared receive queues as max_srq allows",
        )?;
        if let Some(pd) = core.pds.get_mut(spec.pd.0) {
            pd.users += 1;
        }
        Ok(Srqn(srqn))
    }

    /// Arms the limit event, or disarms it with 0. It is raised once, when a receive
    /// lowers the number of posted WQEs below `limit`.
    ///
    /// # Errors
    /// `EINVAL` for a limit above the queue's size or an unknown SRQ.
    pub fn modify_srq_limit(&mut self, srqn: Srqn, limit: u32) -> Result<()> {
        let srq = self.core.srqs.get_mut(srqn.0);
        let srq = srq.or_refuse(libc::EINVAL, UNKNOWN)?;
        refuse_if(limit >= srq.spec.wqe_count, libc::EINVAL, LIMIT)?;
        srq.limit = limit;
        Ok(())
    }

    /// Returns the maximum number of WQEs, the maximum number of segments of one,
    /// and the limit.
    ///
    /// # Errors
    /// `EINVAL` if the SRQ does not exist.
    pub fn query_srq(&self, srqn: Srqn) -> Result<(u32, u32, u32)> {
        let srq = self.core.srqs.get(srqn.0);
        let srq = srq.or_refuse(libc::EINVAL, UNKNOWN)?;
        let segments = (1 << srq.spec.stride_log2) / SEGMENT as u32 - 1;
        Ok((srq.spec.wqe_count - 1, segments, srq.limit))
    }

    /// Destroys a shared receive queue.
    ///
    /// # Errors
    /// `EBUSY` while a QP uses it, `EINVAL` if it does not exist.
    pub fn destroy_srq(&mut self, srqn: Srqn) -> Result<()> {
        let core = &mut self.core;
        let srq = core.srqs.get(srqn.0).or_refuse(libc::EINVAL, UNKNOWN)?;
        refuse_if(
            srq.users > 0,
            libc::EBUSY,
            "queue pairs still use the shared receive queue",
        )?;
        if let Some(srq) = core.srqs.remove(srqn.0)
            && let Some(pd) = core.pds.get_mut(srq.spec.pd.0)
        {
            pd.users -= 1;
        }
        Ok(())
    }
}

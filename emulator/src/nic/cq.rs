//! Completion queues: the ring, overrun, events.

use super::adapter::Nic;
use super::core::Core;
use super::memory::{self, Fault};
use super::options::CompletionFate;
use super::spec::{AsyncEvent, AsyncObject, CqSpec, Cqn, DoorbellView, Errno, Result};
use crate::decode::cqe::{CQE, Cqe, OP_OWN};

/// Consumer indices have 24 bits.
pub(super) const INDEX_MASK: u32 = 0x00ff_ffff;
/// What the arm word holds before software has ever armed. The first word
/// software writes may be 0, the value a fresh record has; libmlx5 never
/// reads the word.
const NEVER_ARMED: u32 = u32::MAX;

/// A completion queue.
#[derive(Debug)]
pub(super) struct Cq {
    pub(super) spec: CqSpec,
    /// CQEs written since creation.
    pub(super) producer: u32,
    /// The producer counter after the latest CQE that notifies a CQ armed for
    /// solicited completions.
    pub(super) notifying: u32,
    /// The producer counter when the latest event was delivered.
    pub(super) notified: u32,
    pub(super) armed: Option<Armed>,
    /// Events delivered; its low two bits are the sequence number of the next arm.
    pub(super) fired: u32,
    /// Queues that complete here.
    pub(super) users: u32,
    /// Overrun: nothing is written any more.
    pub(super) failed: bool,
}

/// What a CQ is armed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Armed {
    Any,
    Solicited,
}

impl Cq {
    /// CQEs that software has not consumed, if it reads `consumer`.
    pub(super) fn pending(&self, consumer: u32) -> u32 {
        self.producer.wrapping_sub(consumer) & INDEX_MASK
    }

    fn is_full(&self) -> core::result::Result<bool, Fault> {
        if self.spec.ignore_overrun {
            return Ok(false);
        }
        let consumer = memory::load_be32(self.spec.dbrec)?;
        Ok(self.pending(consumer) >= self.spec.cqe_count)
    }

    /// Writes a CQE at the producer: its owner bit last.
    pub(super) fn write(&mut self, cqe: &mut Cqe) -> core::result::Result<(), Fault> {
        let spec = &self.spec;
        let index = self.producer & (spec.cqe_count - 1);
        let mut at = spec.buf + u64::from(index) * u64::from(spec.cqe_size);
        if spec.cqe_size == 128 {
            memory::write(at, &cqe.head)?;
            at += CQE as u64;
        }
        // The owner bit changes with every lap.
        let owner = u8::from(self.producer & spec.cqe_count != 0);
        cqe.body[OP_OWN] |= owner;
        memory::write(at, &cqe.body[..OP_OWN])?;
        memory::publish_byte(at + OP_OWN as u64, cqe.body[OP_OWN])?;
        self.producer = self.producer.wrapping_add(1);
        if cqe.notifies {
            self.notifying = self.producer;
        }
        Ok(())
    }
}

impl Core {
    /// Writes a completion and notifies. A full ring is an overrun: the CQ
    /// fails, and its QPs with it at the end of the round.
    pub(super) fn complete(&mut self, cqn: Cqn, mut cqe: Cqe) {
        let fate = self
            .mishaps
            .as_mut()
            .map(|mishaps| mishaps.completion(cqe.is_of_request()));
        let Some(cq) = self.cqs.get_mut(cqn.0).filter(|cq| !cq.failed) else {
            return;
        };
        if self.failing.contains(&cqe.qpn()) {
            // Its QP has failed with a completion before, though it is not in
            // error before the end of the round.
            cqe.flush();
        }
        match fate {
            Some(CompletionFate::Corrupt) => {
                self.failing.push(cqe.qpn());
                cqe.corrupt();
            }
            Some(CompletionFate::Failed(syndrome)) => {
                self.failing.push(cqe.qpn());
                cqe.fail(syndrome);
            }
            _ => {}
        }
        let index = cq.producer;
        let overruns = fate == Some(CompletionFate::Overrun) || cq.is_full() != Ok(false);
        if overruns || cq.write(&mut cqe).is_err() {
            self.fail_cq(cqn);
            self.note(|| format!("CQ {:#x} overran at completion {index}", cqn.0));
            return;
        }
        let fires = match cq.armed {
            Some(Armed::Any) => true,
            Some(Armed::Solicited) => cqe.notifies,
            None => false,
        };
        if fires {
            self.fire(cqn);
        }
        self.trace_cqe(cqn, index, &cqe);
    }

    /// A CQ takes nothing any more, and its QPs fail at the end of the round.
    /// `false` if there is none that could fail.
    pub(super) fn fail_cq(&mut self, cqn: Cqn) -> bool {
        let Some(cq) = self.cqs.get_mut(cqn.0).filter(|cq| !cq.failed) else {
            return false;
        };
        cq.failed = true;
        let (context, handle) = (cq.spec.context, cq.spec.user_handle);
        self.overrun.push(cqn.0);
        self.raise(context, AsyncEvent::CqErr, AsyncObject::Cq(handle));
        true
    }

    /// Tells the trace of a CQE that was written.
    pub(super) fn trace_cqe(&mut self, cqn: Cqn, index: u32, cqe: &Cqe) {
        let Some(trace) = &mut self.trace else {
            return;
        };
        let size = self.cqs.get(cqn.0).map_or(64, |cq| cq.spec.cqe_size);
        if size == 128 {
            trace.cqe(cqn.0, index, &[cqe.head, cqe.body].concat());
        } else {
            trace.cqe(cqn.0, index, &cqe.body);
        }
    }

    /// Delivers the event of an armed CQ.
    pub(super) fn fire(&mut self, cqn: Cqn) {
        let Some(cq) = self.cqs.get_mut(cqn.0) else {
            return;
        };
        cq.armed = None;
        cq.notified = cq.producer;
        if let Some(channel) = cq.spec.channel {
            cq.fired = cq.fired.wrapping_add(1);
            self.events.completion(channel, cqn, cq.spec.user_handle);
        }
    }
}

impl Nic {
    /// Creates a completion queue.
    ///
    /// # Errors
    /// `EINVAL` for sizes that are none, `EFAULT` for impossible addresses,
    /// `ENOMEM` when there are too many.
    pub(crate) fn create_cq(&mut self, spec: &CqSpec) -> Result<Cqn> {
        let invalid = Errno(libc::EINVAL);
        self.core.contexts.get(spec.context.0).ok_or(invalid)?;
        let sizes = spec.cqe_count.is_power_of_two() && matches!(spec.cqe_size, 64 | 128);
        if !sizes || spec.cqe_count > crate::limits::MAX_CQE.next_power_of_two() {
            return Err(invalid);
        }
        let fault = |_| Errno(libc::EFAULT);
        memory::load_be32(spec.dbrec).map_err(fault)?;
        if self.core.options.view != DoorbellView::Exact {
            memory::store_be32(spec.dbrec + 4, NEVER_ARMED).map_err(fault)?;
        }
        self.core.room()?;
        let cq = Cq {
            spec: *spec,
            producer: 0,
            notifying: 0,
            notified: 0,
            armed: None,
            fired: 0,
            users: 0,
            failed: false,
        };
        self.core
            .cqs
            .insert_with(|_| cq)
            .map(Cqn)
            .ok_or(Errno(libc::ENOMEM))
    }

    /// Destroys a completion queue.
    ///
    /// # Errors
    /// `EBUSY` while a QP uses it, `EINVAL` when it is unknown.
    pub(crate) fn destroy_cq(&mut self, cqn: Cqn) -> Result<()> {
        if self.core.cqs.get(cqn.0).ok_or(Errno(libc::EINVAL))?.users > 0 {
            return Err(Errno(libc::EBUSY));
        }
        self.core.cqs.remove(cqn.0);
        self.core.overrun.retain(|failed| *failed != cqn.0);
        Ok(())
    }
}

/// Whether the arm word was ever written by software.
pub(super) fn was_armed(word: u32) -> bool {
    word != NEVER_ARMED
}

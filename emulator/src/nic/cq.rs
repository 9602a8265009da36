//! Completion queues: writing CQEs, overruns, completion events.

use super::adapter::Nic;
use super::core::Core;
use super::failures::FailingQp;
use super::memory::{self, Fault};
use super::options::CompletionOutcome;
use crate::decode::cqe::{CQE, Cqe, OP_OWN};
use crate::refusal::{OrRefuse, refuse_if};
use crate::spec::{AsyncEvent, AsyncObject, CqSpec, Cqn, DoorbellView, PortAddress, Result};

/// Consumer indices have 24 bits.
pub(super) const INDEX_MASK: u32 = 0x00ff_ffff;
/// The contents of the arm word until software arms the CQ. A new record must not be
/// 0, since that may be the first word that software writes; libmlx5 never reads
/// the word.
const NEVER_ARMED: u32 = u32::MAX;

/// A completion queue.
#[derive(Debug)]
pub(super) struct Cq {
    pub(super) spec: CqSpec,
    /// Number of CQEs written since creation.
    pub(super) producer: u32,
    /// The producer counter after the last solicited CQE.
    pub(super) last_solicited: u32,
    /// The producer counter when the last event was delivered.
    pub(super) notified: u32,
    pub(super) armed: Option<Armed>,
    /// Number of events delivered; the low two bits are the expected sequence
    /// number of the next arm.
    pub(super) events_delivered: u32,
    /// Number of queues that complete here.
    pub(super) users: u32,
    /// Whether the CQ has overrun: no CQE is written any more.
    pub(super) failed: bool,
}

/// The kind of completion for which a CQ is armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Armed {
    Any,
    Solicited,
}

impl Cq {
    /// Returns the number of CQEs that software has not consumed, for its consumer
    /// index `consumer`.
    pub(super) fn pending(&self, consumer: u32) -> u32 {
        self.producer.wrapping_sub(consumer) & INDEX_MASK
    }

    /// Checks that there is room for one more CQE. Returns the reason if there is none.
    #[inline]
    fn check_room(&self) -> core::result::Result<(), String> {
        if self.spec.ignore_overrun {
            return Ok(());
        }
        match memory::load_be32(self.spec.dbrec) {
            Ok(consumer) if self.pending(consumer) < self.spec.cqe_count => Ok(()),
            Ok(consumer) => Err(self.overrun(consumer & INDEX_MASK)),
            Err(fault) => Err(format!("its doorbell record cannot be read: {fault}")),
        }
    }

    #[cold]
    fn overrun(&self, consumer: u32) -> String {
        format!(
            "it overran: all {} entries are in use. The device has written {} completions, and \
             the consumer index in the doorbell record is {consumer}, {} behind: poll sooner, \
             return the consumer index sooner, or create a larger queue",
            self.spec.cqe_count,
            self.producer,
            self.pending(consumer),
        )
    }

    /// Writes a CQE at the producer index. The owner bit is written last.
    pub(super) fn write(&mut self, cqe: &mut Cqe) -> core::result::Result<(), Fault> {
        let spec = &self.spec;
        let index = self.producer & (spec.cqe_count - 1);
        let mut at = spec.buf + u64::from(index) * u64::from(spec.cqe_size);
        if spec.cqe_size == 128 {
            memory::write(at, &cqe.head)?;
            at += CQE as u64;
        }
        // The owner bit changes with every wrap of the ring.
        let owner = u8::from(self.producer & spec.cqe_count != 0);
        cqe.body[OP_OWN] |= owner;
        memory::write(at, &cqe.body[..OP_OWN])?;
        memory::publish_byte(at + OP_OWN as u64, cqe.body[OP_OWN])?;
        self.producer = self.producer.wrapping_add(1);
        if cqe.solicited {
            self.last_solicited = self.producer;
        }
        Ok(())
    }
}

impl Core {
    /// Writes a completion of a QP of `port` and delivers the event. If the ring is full, the CQ
    /// overruns: it fails, and its QPs fail at the end of the round.
    pub(super) fn complete(&mut self, cqn: Cqn, port: PortAddress, mut cqe: Cqe) {
        self.place_rest();
        self.report_stale_uses();
        let outcome = self
            .fault_injector
            .as_mut()
            .map(|fault_injector| fault_injector.completion(cqe.is_request()));
        if self.cqs.get(cqn.0).is_none_or(|cq| cq.failed) {
            return;
        }
        if self.failing.iter().any(|it| it.qpn == cqe.qpn()) {
            // The QP has failed with an earlier completion, but moves to error only
            // at the end of the round.
            cqe.flush();
        }
        match outcome {
            Some(CompletionOutcome::Corrupt) => {
                self.fail_by_completion(&cqe, "corrupt-cqe");
                cqe.corrupt();
            }
            Some(CompletionOutcome::Failed(syndrome)) => {
                self.fail_by_completion(&cqe, "bad-response or rnr-exceeded");
                cqe.fail(syndrome);
            }
            _ => {}
        }
        self.count_completion(port, &cqe);
        let Some(cq) = self.cqs.get_mut(cqn.0) else {
            return;
        };
        let index = cq.producer;
        let room = match outcome {
            Some(CompletionOutcome::Overrun) => Err(format!(
                "the fault overrun-cq of --faults hit completion {index}"
            )),
            _ => cq.check_room(),
        };
        let written = room.and_then(|()| {
            let written = cq.write(&mut cqe);
            written.map_err(|fault| format!("its ring cannot be written: {fault}"))
        });
        if let Err(cause) = written {
            self.fail_cq(cqn, &cause);
            return;
        }
        let Some(cq) = self.cqs.get(cqn.0) else {
            return;
        };
        let delivers = match cq.armed {
            Some(Armed::Any) => true,
            Some(Armed::Solicited) => cqe.solicited,
            None => false,
        };
        if delivers {
            self.deliver_event(cqn);
        }
        self.trace_cqe(cqn, index, &cqe);
    }

    /// Fails a CQ: no CQE is written any more, and its QPs fail at the end of the
    /// round. Returns `false` if it does not exist or has failed already.
    pub(super) fn fail_cq(&mut self, cqn: Cqn, cause: &str) -> bool {
        let Some(cq) = self.cqs.get_mut(cqn.0).filter(|cq| !cq.failed) else {
            return false;
        };
        cq.failed = true;
        let (context, handle) = (cq.spec.context, cq.spec.user_handle);
        self.overrun.push(cqn.0);
        let cause = format!("completion queue {:#x}: {cause}", cqn.0);
        let object = AsyncObject::Cq(handle);
        self.raise_failure(context, AsyncEvent::CqErr, object, &cause);
        true
    }

    /// Fails the QP of a completion that a fault has changed, at the end of the round.
    #[cold]
    fn fail_by_completion(&mut self, cqe: &Cqe, fault: &str) {
        self.failing.push(FailingQp {
            qpn: cqe.qpn(),
            cause: format!("the fault {fault} of --faults hit one of its completions"),
        });
    }

    /// Writes a CQE to the trace.
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
    pub(super) fn deliver_event(&mut self, cqn: Cqn) {
        let Some(cq) = self.cqs.get_mut(cqn.0) else {
            return;
        };
        cq.armed = None;
        cq.notified = cq.producer;
        if let Some(channel) = cq.spec.channel {
            cq.events_delivered = cq.events_delivered.wrapping_add(1);
            let user_handle = cq.spec.user_handle;
            self.notify(channel, cqn, user_handle);
        }
    }
}

impl Nic {
    /// Creates a CQ.
    ///
    /// # Errors
    /// `EINVAL` for invalid sizes, `EFAULT` for invalid addresses, `ENOMEM` if there
    /// are too many.
    pub fn create_cq(&mut self, spec: &CqSpec) -> Result<Cqn> {
        let context = self.core.contexts.get(spec.context.0);
        context.or_refuse(libc::EINVAL, "the device context is closed")?;
        let sizes = spec.cqe_count.is_power_of_two() && matches!(spec.cqe_size, 64 | 128);
        refuse_if(
            !sizes || spec.cqe_count > crate::limits::MAX_CQE.next_power_of_two(),
            libc::EINVAL,
            "the number of completions is not a power of two up to max_cqe, or a completion \
             has neither 64 nor 128 bytes",
        )?;
        let unmapped = "the doorbell record of the completion queue is not in mapped memory";
        memory::load_be32(spec.dbrec).or_refuse(libc::EFAULT, unmapped)?;
        if self.core.options.view != DoorbellView::Exact {
            memory::store_be32(spec.dbrec + 4, NEVER_ARMED).or_refuse(libc::EFAULT, unmapped)?;
        }
        self.core.check_memory()?;
        self.core.poison_cq(spec);
        let cq = Cq {
            spec: *spec,
            producer: 0,
            last_solicited: 0,
            notified: 0,
            armed: None,
            events_delivered: 0,
            users: 0,
            failed: false,
        };
        self.core.cqs.insert_with(|_| cq).map(Cqn).or_refuse(
            libc::ENOMEM,
            "the process has as many completion queues as max_cq allows",
        )
    }

    /// Destroys a CQ.
    ///
    /// # Errors
    /// `EBUSY` while a QP uses it, `EINVAL` if it does not exist.
    pub fn destroy_cq(&mut self, cqn: Cqn) -> Result<()> {
        let cq = self.core.cqs.get(cqn.0);
        let cq = cq.or_refuse(libc::EINVAL, "the completion queue does not exist")?;
        refuse_if(
            cq.users > 0,
            libc::EBUSY,
            "queue pairs still use the completion queue",
        )?;
        self.core.cqs.remove(cqn.0);
        self.core.late_events.drop_events_of(cqn);
        self.core.overrun.retain(|failed| *failed != cqn.0);
        Ok(())
    }
}

/// Returns whether software has ever written the arm word.
pub(super) fn was_armed(word: u32) -> bool {
    word != NEVER_ARMED
}

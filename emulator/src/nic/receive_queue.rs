//! Taking receive WQEs from the QP's own receive queue or its SRQ.

use super::core::Core;
use super::failures::unreadable;
use super::memory;
use super::qp::Qp;
use super::scatter_gather::Sge;
use super::srq::Taken;
use crate::decode::cqe::{Cqe, CqeOpcode, Failed, Success, Syndrome};
use crate::decode::wqe::{Data, ReceiveSegments};
use crate::fabric::packet::{Header, PacketFlags};
use crate::spec::{PdId, Service};

/// The position in the receive queue, and the receive WQE in use.
#[derive(Debug, Default)]
pub(super) struct ReceiveQueue {
    /// Number of WQEs taken from the QP's own ring since RESET.
    taken: u16,
    /// The `wqe_counter` for the CQE of the WQE in use: counter or SRQ index.
    current: Option<u16>,
    /// The scatter list of the WQE in use.
    pub(super) sges: Vec<Sge>,
    bytes: Vec<u8>,
}

impl Qp {
    /// Takes the next receive WQE, unless one is in use already: an unreliable
    /// message that was cut off leaves its WQE to the next message. Returns `false`
    /// if none is posted.
    pub(super) fn take_receive(&mut self, core: &mut Core) -> bool {
        if self.has_receive() {
            return true;
        }
        if let Some(fault_injector) = &mut core.fault_injector
            && fault_injector.no_receive()
        {
            return false;
        }
        let segments = if let Some(srqn) = self.spec.srq {
            match core.take_srq_wqe(srqn, self.qpn.0, &mut self.rq.bytes) {
                Taken::Empty => return false,
                Taken::Wqe(index) => self.rq.current = Some(index),
            }
            ReceiveSegments::of_srq(&self.rq.bytes)
        } else {
            if self.receives_posted(core) == 0 {
                return false;
            }
            if let Err(fault) = self.read_receive() {
                self.fail_later(core, unreadable("receive ring", fault));
                return false;
            }
            self.rq.current = Some(self.rq.taken);
            self.rq.taken = self.rq.taken.wrapping_add(1);
            ReceiveSegments::of_rq(&self.rq.bytes, self.spec.wq_signature)
        };
        self.rq.sges.clear();
        self.rq
            .sges
            .extend(segments.filter_map(|segment| match segment {
                Data::Pointer {
                    length,
                    key,
                    address,
                } => Some(Sge {
                    address,
                    length,
                    key: Some(key),
                }),
                Data::Inline { .. } => None,
            }));
        if let (Some(trace), Some(index)) = (&mut core.trace, self.rq.current) {
            trace.receive_wqe(self.qpn.0, index, self.spec.srq.is_some(), &self.rq.bytes);
        }
        true
    }

    /// Returns whether a receive WQE is in use.
    pub(super) fn has_receive(&self) -> bool {
        self.rq.current.is_some()
    }

    /// Returns the protection domain of the receive buffers.
    pub(super) fn receive_pd(&self, core: &Core) -> PdId {
        let srq = self.spec.srq.and_then(|srqn| core.srqs.get(srqn.0));
        srq.map_or(self.spec.pd, |srq| srq.spec.pd)
    }

    /// Completes the WQE in use: `bytes` have arrived, and `inline` goes into the CQE.
    pub(super) fn complete_receive(
        &mut self,
        core: &mut Core,
        header: &Header,
        bytes: u32,
        inline: Option<&[u8]>,
    ) {
        let Some(wqe_counter) = self.rq.current.take() else {
            return;
        };
        let immediate = header.flags.contains(PacketFlags::IMMEDIATE);
        let invalidates = header.flags.contains(PacketFlags::INVALIDATE);
        let opcode = match (header.operation, immediate, invalidates) {
            (crate::fabric::packet::Operation::Write, ..) => CqeOpcode::WriteImmediate,
            (_, true, _) => CqeOpcode::SendImmediate,
            (_, _, true) => CqeOpcode::SendInvalidate,
            (_, false, false) => CqeOpcode::Send,
        };
        let mut cqe = Cqe::success(&Success {
            opcode,
            wqe_opcode: 0,
            qpn: self.qpn.0,
            resource: self.cqe_resource(true),
            wqe_counter,
            byte_count: bytes,
            immediate: if immediate || invalidates {
                header.immediate
            } else {
                [0; 4]
            },
            remote_qpn: header.source_qpn.0,
            has_grh: header.flags.contains(PacketFlags::GRH),
            service_level: header.service_level,
            source_lid: header.source_lid,
            solicited: header.flags.contains(PacketFlags::SOLICITED),
            timestamp: core.timestamp(),
        });
        match inline {
            Some(data) if self.receive_cqe_size(core) == 128 => cqe.inline_64(data),
            Some(data) => cqe.inline_32(data),
            None => {}
        }
        core.complete(self.spec.recv_cq, self.port(), cqe);
    }

    /// Completes the WQE in use, if any, with an error.
    pub(super) fn fail_receive(&mut self, core: &mut Core, syndrome: Syndrome) {
        if let Some(wqe_counter) = self.rq.current.take() {
            self.complete_failed_receive(core, wqe_counter, syndrome);
        }
    }

    /// Flushes the receives posted to the QP's own ring; an SRQ keeps its WQEs.
    pub(super) fn flush_receives(&mut self, core: &mut Core) -> bool {
        self.fail_receive(core, Syndrome::Flushed);
        if self.spec.srq.is_some() {
            return false;
        }
        let mut worked = false;
        for _ in 0..self.receives_posted(core) {
            let counter = self.rq.taken;
            self.rq.taken = counter.wrapping_add(1);
            self.complete_failed_receive(core, counter, Syndrome::Flushed);
            worked = true;
        }
        worked
    }

    /// Returns how many bytes can be scattered to a CQE; 0 for none.
    pub(super) fn inline_receive_limit(&self, core: &Core) -> usize {
        if !core.options.scatter_to_cqe
            || !self.spec.scatter_to_cqe
            || self.spec.service == Service::Ud
        {
            return 0;
        }
        if self.receive_cqe_size(core) == 128 {
            64
        } else {
            32
        }
    }

    fn receive_cqe_size(&self, core: &Core) -> u32 {
        core.cqs
            .get(self.spec.recv_cq.0)
            .map_or(64, |cq| cq.spec.cqe_size)
    }

    fn complete_failed_receive(&self, core: &mut Core, wqe_counter: u16, syndrome: Syndrome) {
        let cqe = Cqe::failed(&Failed {
            opcode: CqeOpcode::ResponseError,
            wqe_opcode: 0,
            qpn: self.qpn.0,
            resource: self.cqe_resource(true),
            wqe_counter,
            syndrome,
        });
        core.complete(self.spec.recv_cq, self.port(), cqe);
    }

    /// Returns the number of posted WQEs in the QP's own ring.
    fn receives_posted(&self, core: &mut Core) -> u16 {
        if self.spec.rq_wqe_count == 0 {
            return 0;
        }
        let posted = match memory::load_be32(self.spec.dbrec) {
            Ok(posted) => posted,
            Err(fault) => {
                self.fail_later(core, unreadable("doorbell record", fault));
                return 0;
            }
        };
        let available = (posted as u16).wrapping_sub(self.rq.taken);
        if u32::from(available) > self.spec.rq_wqe_count {
            let ring = self.spec.rq_wqe_count;
            let cause = format!("{available} receives posted in a ring of {ring}");
            core.violation(format!("QP {:#x}: {cause}", self.qpn.0));
            self.fail_later(core, cause);
            return 0;
        }
        available
    }

    fn read_receive(&mut self) -> Result<(), memory::Fault> {
        let slot = u32::from(self.rq.taken) & (self.spec.rq_wqe_count - 1);
        let at = self.spec.rq_buf + (u64::from(slot) << self.spec.rq_stride_log2);
        self.rq.bytes.resize(1 << self.spec.rq_stride_log2, 0);
        memory::read(at, &mut self.rq.bytes)
    }
}

//! Queue pairs: their state, creation and destruction.

use super::adapter::Nic;
use super::core::Core;
use super::memory;
use super::receive_queue::ReceiveQueue;
use super::requester::SendQueue;
use super::responder::Responder;
use super::timers::Timer;
use super::window::User;
use crate::fabric::iba::network::Route;
use crate::fabric::packet::Destination;
use crate::limits::MAX_WR;
use crate::refusal::{OrRefuse, refuse_if};
use crate::spec::{
    AsyncEvent, AsyncObject, PortAddress, PortIdentity, QpAttr, QpSpec, QpState, Qpn, Result,
    Service,
};

/// A queue pair.
#[derive(Debug)]
pub(super) struct Qp {
    pub(super) spec: QpSpec,
    pub(super) qpn: Qpn,
    pub(super) state: QpState,
    /// The attributes set so far; the current state is in `state`.
    pub(super) attr: QpAttr,
    /// The emulated device.
    pub(super) device: u8,
    /// The addresses of the QP's port, or of port 1 before the port is set.
    pub(super) port_identity: PortIdentity,
    /// The destination of the primary path. Packets to an unknown one are dropped.
    pub(super) peer: Option<PortAddress>,
    /// How packets to it are addressed.
    pub(super) route: Route,
    pub(super) sq: SendQueue,
    pub(super) rq: ReceiveQueue,
    pub(super) responder: Responder,
    pub(super) timer: Timer,
    /// Whether the QP is in the list of QPs with something to send.
    pub(super) is_ready: bool,
    /// Whether `SqDrained` must be raised when the send queue has drained.
    pub(super) notify_drained: bool,
    /// Whether its UMRs change keys of all domains.
    pub(super) changes_any_key: bool,
}

impl Qp {
    /// Returns the port that the QP uses.
    pub(super) fn port(&self) -> PortAddress {
        PortAddress {
            device: self.device,
            port: self.attr.port,
        }
    }

    /// Returns where the packets of a connection go.
    pub(super) fn destination(&self) -> Destination {
        Destination {
            port: self.peer,
            qpn: Qpn(self.attr.dest_qpn),
        }
    }

    /// Returns the payload size of a full packet in bytes.
    pub(super) fn mtu(&self) -> u32 {
        match self.spec.service {
            // Datagrams are limited by the port's MTU only.
            Service::Ud => 128 << self.port_identity.mtu,
            Service::Rc | Service::Uc => 128 << self.attr.path_mtu.clamp(1, 5),
        }
    }

    /// Returns the identity with which the QP uses remote keys.
    pub(super) fn key_user(&self) -> User {
        User {
            pd: self.spec.pd,
            qpn: self.qpn.0,
            changes_any_key: self.changes_any_key,
        }
    }

    /// Returns whether lost packets are retransmitted.
    pub(super) fn is_reliable(&self) -> bool {
        self.spec.service == Service::Rc
    }

    /// Returns whether packets are accepted.
    pub(super) fn receives(&self) -> bool {
        matches!(
            self.state,
            QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe
        )
    }

    /// Returns the resource number in CQEs besides the QP number, which depends on
    /// the CQE version: the user index, or the SRQ number for receives from an SRQ.
    pub(super) fn cqe_resource(&self, receive: bool) -> u32 {
        match (self.spec.cqe_version, self.spec.srq) {
            (0, Some(srqn)) if receive => srqn.0,
            (0, _) => 0,
            _ => self.spec.user_index,
        }
    }

    pub(super) fn raise(&self, core: &Core, event: AsyncEvent) {
        core.raise(
            self.spec.context,
            event,
            AsyncObject::Qp(self.spec.user_handle),
        );
    }

    /// Clears everything except the attributes, for RESET.
    pub(super) fn reset_queues(&mut self) {
        self.sq = SendQueue::default();
        self.rq = ReceiveQueue::default();
        self.responder = Responder::default();
        self.timer.stop();
        self.notify_drained = false;
    }
}

impl Nic {
    /// Creates a QP in RESET.
    ///
    /// # Errors
    /// `EINVAL` for unknown objects or invalid sizes, `EFAULT` for invalid
    /// addresses, `ENOMEM` if there are too many.
    pub fn create_qp(&mut self, spec: &QpSpec) -> Result<Qpn> {
        let core = &mut self.core;
        let context = core.contexts.get(spec.context.0);
        let context = *context.or_refuse(libc::EINVAL, "the device context is closed")?;
        refuse_if(
            core.pds
                .get(spec.pd.0)
                .is_none_or(|pd| pd.context != spec.context),
            libc::EINVAL,
            "the protection domain belongs to another context",
        )?;
        for cqn in [spec.send_cq, spec.recv_cq] {
            let cq = core.cqs.get(cqn.0);
            cq.or_refuse(libc::EINVAL, "the completion queue does not exist")?;
        }
        if let Some(srqn) = spec.srq {
            let srq = core.srqs.get(srqn.0);
            srq.or_refuse(libc::EINVAL, "the shared receive queue does not exist")?;
        }
        refuse_if(
            !valid_sizes(spec),
            libc::EINVAL,
            "the sizes of the rings are not powers of two within the limits of the device",
        )?;
        memory::load_be32(spec.dbrec)
            .or_refuse(libc::EFAULT, "the doorbell record is not in mapped memory")?;
        core.check_memory()?;
        core.poison_qp(spec);
        let qpn = self.qps.insert_with(|qpn| {
            Box::new(Qp {
                spec: *spec,
                qpn: Qpn(qpn),
                state: QpState::Reset,
                attr: QpAttr::default(),
                device: context.device,
                port_identity: (core.options.identify)(PortAddress {
                    device: context.device,
                    port: 1,
                }),
                peer: None,
                route: Route::default(),
                sq: SendQueue::default(),
                rq: ReceiveQueue::default(),
                responder: Responder::default(),
                timer: Timer::default(),
                is_ready: false,
                notify_drained: false,
                changes_any_key: false,
            })
        });
        let qpn = qpn.or_refuse(
            libc::ENOMEM,
            "the process has as many queue pairs as max_qp allows",
        )?;
        for cqn in [spec.send_cq, spec.recv_cq] {
            if let Some(cq) = core.cqs.get_mut(cqn.0) {
                cq.users += 1;
            }
        }
        if let Some(srq) = spec.srq.and_then(|srqn| core.srqs.get_mut(srqn.0)) {
            srq.users += 1;
        }
        if let Some(pd) = core.pds.get_mut(spec.pd.0) {
            pd.users += 1;
        }
        self.pages.entry(spec.register.page).or_default().add(qpn);
        Ok(Qpn(qpn))
    }

    /// Destroys a QP.
    ///
    /// # Errors
    /// `EINVAL` if the QP does not exist.
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<()> {
        self.remove_qp(qpn.0)
            .or_refuse(libc::EINVAL, "the queue pair does not exist")
    }

    /// Returns the attributes and the state of a QP.
    ///
    /// # Errors
    /// `EINVAL` if the QP does not exist.
    pub fn query_qp(&self, qpn: Qpn) -> Result<QpAttr> {
        let qp = self.qps.get(qpn.0);
        let qp = qp.or_refuse(libc::EINVAL, "the queue pair does not exist")?;
        let state = qp.state as u8;
        Ok(QpAttr {
            state,
            cur_state: state,
            ..qp.attr
        })
    }

    pub(super) fn remove_qp(&mut self, qpn: u32) -> Option<()> {
        let qp = self.qps.remove(qpn)?;
        let core = &mut self.core;
        for cqn in [qp.spec.send_cq, qp.spec.recv_cq] {
            if let Some(cq) = core.cqs.get_mut(cqn.0) {
                cq.users -= 1;
            }
        }
        if let Some(srq) = qp.spec.srq.and_then(|srqn| core.srqs.get_mut(srqn.0)) {
            srq.users -= 1;
        }
        if let Some(pd) = core.pds.get_mut(qp.spec.pd.0) {
            pd.users -= 1;
        }
        // The number may be reused before the next round of work.
        core.ready.retain(|ready| *ready != qpn);
        core.flushing.retain(|flushing| *flushing != qpn);
        core.late_keys.retain(|late| late.qpn != qpn);
        if let Some(users) = self.pages.get_mut(&qp.spec.register.page)
            && users.remove(qpn)
        {
            self.pages.remove(&qp.spec.register.page);
        }
        Some(())
    }
}

fn valid_sizes(spec: &QpSpec) -> bool {
    let ring = |count: u32| count == 0 || (count.is_power_of_two() && count <= MAX_WR);
    ring(spec.rq_wqe_count)
        && ring(spec.sq_wqebb_count)
        && (spec.rq_wqe_count == 0 || (4..=15).contains(&spec.rq_stride_log2))
}

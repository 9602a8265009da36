//! Queue pairs: what they are made of, and their making and unmaking.

use super::adapter::Nic;
use super::core::Core;
use super::memory;
use super::receive_queue::ReceiveQueue;
use super::requester::SendQueue;
use super::responder::Responder;
use super::spec::{
    AsyncEvent, AsyncObject, Errno, PortAddress, PortIdentity, QpAttr, QpSpec, QpState, Qpn,
    Result, Service,
};
use super::timers::Timer;
use super::window::User;
use crate::limits::MAX_WR;

/// Bytes of the longest datagram: the ports' MTU.
const DATAGRAM: u32 = 4096;

/// A queue pair.
#[derive(Debug)]
pub(super) struct Qp {
    pub(super) spec: QpSpec,
    pub(super) qpn: Qpn,
    pub(super) state: QpState,
    /// As the latest modifies left it; the state is `state`.
    pub(super) attr: QpAttr,
    /// The emulated device.
    pub(super) device: u8,
    /// What its port is; before it has one, what port 1 is.
    pub(super) here: PortIdentity,
    /// Where the primary path leads; packets to nowhere vanish.
    pub(super) peer: Option<PortAddress>,
    pub(super) sq: SendQueue,
    pub(super) rq: ReceiveQueue,
    pub(super) responder: Responder,
    pub(super) timer: Timer,
    /// It is in the list of QPs with something to send.
    pub(super) is_ready: bool,
    /// `SqDrained` is owed when the send queue has drained.
    pub(super) notify_drained: bool,
}

impl Qp {
    /// Puts the QP in line for sending.
    pub(super) fn make_ready(&mut self, core: &mut Core) {
        if !self.is_ready {
            self.is_ready = true;
            core.ready.push_back(self.qpn.0);
        }
    }

    /// Bytes of a full packet.
    pub(super) fn mtu(&self) -> u32 {
        match self.spec.service {
            // Datagrams are bound by the port only.
            Service::Ud => DATAGRAM,
            Service::Rc | Service::Uc => 128 << self.attr.path_mtu.clamp(1, 5),
        }
    }

    /// Whose remote keys it may use.
    pub(super) fn key_user(&self) -> User {
        User {
            pd: self.spec.pd,
            qpn: self.qpn.0,
        }
    }

    /// Whether lost packets are repeated.
    pub(super) fn is_reliable(&self) -> bool {
        self.spec.service == Service::Rc
    }

    /// Whether packets are taken.
    pub(super) fn receives(&self) -> bool {
        matches!(
            self.state,
            QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe
        )
    }

    /// What CQEs carry besides the QP number, by the agreed version: the
    /// user index, or the SRQ's number for receives from one.
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

    /// Forgets everything but the attributes: RESET.
    pub(super) fn forget(&mut self) {
        self.sq = SendQueue::default();
        self.rq = ReceiveQueue::default();
        self.responder = Responder::default();
        self.timer.stop();
        self.notify_drained = false;
    }
}

impl Nic {
    /// Creates a queue pair in RESET.
    ///
    /// # Errors
    /// `EINVAL` for unknown objects or sizes that are none, `EFAULT` for
    /// impossible addresses, `ENOMEM` when there are too many.
    pub(crate) fn create_qp(&mut self, spec: &QpSpec) -> Result<Qpn> {
        let core = &mut self.core;
        let invalid = Errno(libc::EINVAL);
        let context = *core.contexts.get(spec.context.0).ok_or(invalid)?;
        if core
            .pds
            .get(spec.pd.0)
            .is_none_or(|pd| pd.context != spec.context)
        {
            return Err(invalid);
        }
        for cqn in [spec.send_cq, spec.recv_cq] {
            core.cqs.get(cqn.0).ok_or(invalid)?;
        }
        if let Some(srqn) = spec.srq {
            core.srqs.get(srqn.0).ok_or(invalid)?;
        }
        if !sizes_make_sense(spec) {
            return Err(invalid);
        }
        memory::load_be32(spec.dbrec).map_err(|_| Errno(libc::EFAULT))?;
        core.room()?;
        let qpn = self.qps.insert_with(|qpn| {
            Box::new(Qp {
                spec: *spec,
                qpn: Qpn(qpn),
                state: QpState::Reset,
                attr: QpAttr::default(),
                device: context.device,
                here: (core.options.identify)(PortAddress {
                    device: context.device,
                    port: 1,
                }),
                peer: None,
                sq: SendQueue::default(),
                rq: ReceiveQueue::default(),
                responder: Responder::default(),
                timer: Timer::default(),
                is_ready: false,
                notify_drained: false,
            })
        });
        let qpn = qpn.ok_or(Errno(libc::ENOMEM))?;
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

    /// Destroys a queue pair. Its number is the next one given.
    ///
    /// # Errors
    /// `EINVAL` when it is unknown.
    pub(crate) fn destroy_qp(&mut self, qpn: Qpn) -> Result<()> {
        self.remove_qp(qpn.0).ok_or(Errno(libc::EINVAL))
    }

    /// The attributes and the state of a queue pair.
    ///
    /// # Errors
    /// `EINVAL` when it is unknown.
    pub fn query_qp(&self, qpn: Qpn) -> Result<QpAttr> {
        let qp = self.qps.get(qpn.0).ok_or(Errno(libc::EINVAL))?;
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
        // The number may come back before the next round of work.
        core.ready.retain(|ready| *ready != qpn);
        core.flushing.retain(|flushing| *flushing != qpn);
        if let Some(users) = self.pages.get_mut(&qp.spec.register.page)
            && users.remove(qpn)
        {
            self.pages.remove(&qp.spec.register.page);
        }
        Some(())
    }
}

fn sizes_make_sense(spec: &QpSpec) -> bool {
    let ring = |count: u32| count == 0 || (count.is_power_of_two() && count <= MAX_WR);
    ring(spec.rq_wqe_count)
        && ring(spec.sq_wqebb_count)
        && (spec.rq_wqe_count == 0 || (4..=15).contains(&spec.rq_stride_log2))
}

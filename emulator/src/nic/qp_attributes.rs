//! `modify_qp`: checks the attributes and changes the state.

use super::adapter::Nic;
use super::memory;
use super::qp::Qp;
use super::qp_modify::{is_allowed, mask};
use crate::fabric::iba::network::Route;
use crate::limits::MAX_RD_ATOMIC;
use crate::refusal::{OrRefuse, refuse_if};
use crate::spec::{AsyncEvent, PortAddress, QpAttr, QpState, Qpn, Result};

/// Number of partition keys of a port.
const PKEYS: u16 = 1;

impl Nic {
    /// Modifies a QP.
    ///
    /// # Errors
    /// `EINVAL` where the kernel returns it: for a state transition that does not
    /// exist, for missing or forbidden attributes, and for values out of range.
    pub fn modify_qp(&mut self, qpn: Qpn, attr: &QpAttr) -> Result<()> {
        let qp = self.qps.get_mut(qpn.0);
        let qp = qp.or_refuse(libc::EINVAL, "the queue pair does not exist")?;
        let has = |bit| attr.mask & bit != 0;
        let known = |state| {
            state_of(state).or_refuse(libc::EINVAL, "there is no queue pair state of this number")
        };
        let from = if has(mask::CUR_STATE) {
            known(attr.cur_state)?
        } else {
            qp.state
        };
        let to = if has(mask::STATE) {
            known(attr.state)?
        } else {
            from
        };
        refuse_if(
            !is_allowed(from, to, qp.spec.service, attr.mask),
            libc::EINVAL,
            "this change of state does not exist, or the mask has an attribute that it does not \
             take, or lacks one that it needs (the table is in the manual page of ibv_modify_qp)",
        )?;
        refuse_if(
            !in_range(attr, self.core.options.ports, qp.port_identity.mtu),
            libc::EINVAL,
            "an attribute is out of range: path MTU, port, P_Key index, timeout, retry count or \
             RNR timer",
        )?;
        refuse_if(
            from != qp.state,
            libc::EINVAL,
            "the queue pair is not in the state that cur_qp_state says",
        )?;
        // Moving a QP to RESET or error needs no device memory.
        if matches!(to, QpState::Init | QpState::Rtr | QpState::Rts) {
            self.core.check_memory()?;
        }
        qp.store(attr);
        if has(mask::PORT) {
            let (device, port) = (qp.device, attr.port);
            qp.port_identity = (self.core.options.identify)(PortAddress { device, port });
        }
        if has(mask::AV) {
            let resolve = &self.core.options.resolve;
            qp.peer = resolve(qp.device, &qp.attr.path);
            qp.route = Route::of(&qp.attr.path, qp.qpn, Qpn(qp.attr.dest_qpn));
        }
        if has(mask::STATE) {
            self.enter(qpn, to, has(mask::EN_SQD_ASYNC_NOTIFY))?;
        }
        self.process_failures();
        Ok(())
    }

    fn enter(&mut self, qpn: Qpn, to: QpState, notify_drained: bool) -> Result<()> {
        let core = &mut self.core;
        let qp = self.qps.get_mut(qpn.0);
        let qp = qp.or_refuse(libc::EINVAL, "the queue pair does not exist")?;
        match to {
            QpState::Reset => {
                qp.state = QpState::Reset;
                qp.attr = QpAttr::default();
                qp.peer = None;
                qp.reset_queues();
                core.flushing.retain(|flushing| *flushing != qpn.0);
            }
            QpState::Err => {
                // Pending responses to the peer are discarded.
                qp.responder.responses.clear();
                qp.enter_error(core);
            }
            QpState::Rtr => {
                qp.responder.expect(qp.attr.rq_psn);
                qp.state = QpState::Rtr;
            }
            QpState::Rts => {
                if qp.state == QpState::Rtr {
                    qp.sq.begin(qp.attr.sq_psn, &qp.attr);
                }
                qp.state = QpState::Rts;
                qp.make_ready(core);
            }
            QpState::Sqd => {
                qp.state = QpState::Sqd;
                qp.notify_drained = notify_drained;
                qp.raise_drained(core);
            }
            QpState::Init | QpState::Sqe => qp.state = to,
        }
        Ok(())
    }
}

impl Qp {
    fn store(&mut self, new: &QpAttr) {
        let has = |bit| new.mask & bit != 0;
        let attr = &mut self.attr;
        attr.mask |= new.mask;
        macro_rules! copy {
            ($($bit:ident: $($field:ident),+;)*) => {
                $(if has(mask::$bit) { $(attr.$field = new.$field;)+ })*
            };
        }
        copy! {
            ACCESS_FLAGS: access;
            PKEY_INDEX: pkey_index;
            PORT: port;
            QKEY: qkey;
            AV: path;
            PATH_MTU: path_mtu;
            TIMEOUT: timeout;
            RETRY_CNT: retry_count;
            RNR_RETRY: rnr_retry;
            RQ_PSN: rq_psn;
            MAX_QP_RD_ATOMIC: max_rd_atomic;
            ALT_PATH: alt_path, alt_port, alt_pkey_index, alt_timeout;
            MIN_RNR_TIMER: min_rnr_timer;
            SQ_PSN: sq_psn;
            MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
            PATH_MIG_STATE: path_mig_state;
            DEST_QPN: dest_qpn;
        }
        // PSNs have 24 bits.
        attr.rq_psn &= super::psn::MASK;
        attr.sq_psn &= super::psn::MASK;
    }

    /// Raises `SqDrained` once in SQD when no request is outstanding.
    pub(super) fn raise_drained(&mut self, core: &super::core::Core) {
        if self.state == QpState::Sqd && self.notify_drained && self.sq.is_drained() {
            self.notify_drained = false;
            self.raise(core, AsyncEvent::SqDrained);
        }
    }

    /// Returns the producer counter in the send doorbell record, 16 bits.
    pub(super) fn posted_sends(&self) -> core::result::Result<u16, memory::Fault> {
        memory::load_be32(self.spec.dbrec + 4).map(|word| word as u16)
    }
}

fn state_of(code: u8) -> Option<QpState> {
    Some(match code {
        0 => QpState::Reset,
        1 => QpState::Init,
        2 => QpState::Rtr,
        3 => QpState::Rts,
        4 => QpState::Sqd,
        5 => QpState::Sqe,
        6 => QpState::Err,
        _ => return None,
    })
}

/// `mtu` is the active MTU of the port.
fn in_range(attr: &QpAttr, ports: u8, mtu: u8) -> bool {
    let has = |bit| attr.mask & bit != 0;
    let checks = [
        (mask::PORT, (1..=ports).contains(&attr.port)),
        (mask::PKEY_INDEX, attr.pkey_index < PKEYS),
        (mask::PATH_MTU, (1..=mtu).contains(&attr.path_mtu)),
        (mask::TIMEOUT, attr.timeout < 32),
        (mask::RETRY_CNT, attr.retry_count < 8),
        (mask::RNR_RETRY, attr.rnr_retry < 8),
        (mask::MAX_QP_RD_ATOMIC, attr.max_rd_atomic <= MAX_RD_ATOMIC),
        (
            mask::MAX_DEST_RD_ATOMIC,
            attr.max_dest_rd_atomic <= MAX_RD_ATOMIC,
        ),
        (mask::MIN_RNR_TIMER, attr.min_rnr_timer < 32),
        (mask::DEST_QPN, attr.dest_qpn <= super::psn::MASK),
        (mask::PATH_MIG_STATE, attr.path_mig_state < 3),
        (
            mask::AV,
            attr.path.sl < 16 && (attr.path.port == 0 || attr.path.port <= ports),
        ),
        (mask::ALT_PATH, attr.alt_port == 0 || attr.alt_port <= ports),
    ];
    checks.iter().all(|(bit, good)| !has(*bit) || *good)
}

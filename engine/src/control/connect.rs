//! The states of a QP: RESET, INIT, RTR, RTS, ERR, and the moves between them.

use super::address::{ConnectOptions, EndpointAddress};
use super::gid::Gid;
use super::pkey;
use super::port::PortInfo;
use super::qp::VerbsQp;
use super::route::{local_gid, path_mtu, route};
use crate::error::{ControlError, ControlErrorKind};
use core::sync::atomic::Ordering;
use dv_sys::verbs::{
    self, ibv_ah_attr, ibv_qp_attr, ibv_qp_attr_mask as Mask, ibv_qp_init_attr, ibv_qp_state,
};
use std::fmt;
use std::sync::Arc;

pub(super) const TO_RTR: &str = "bring a queue pair to RTR";
const TO_RTS: &str = "bring a queue pair to RTS";

/// The peer of a connection, from an address or from rdma_cm.
pub(super) struct PeerQp {
    pub(super) qpn: u32,
    /// The peer's first packet sequence number.
    pub(super) psn: u32,
    /// The path MTU, as a code of `enum ibv_mtu`.
    pub(super) mtu: u32,
    pub(super) ah_attr: ibv_ah_attr,
    /// A P_Key index other than that of INIT.
    pub(super) pkey_index: Option<u16>,
}

/// The state of a QP (`enum ibv_qp_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpState {
    /// RESET: after creation.
    Reset,
    /// INIT: receives may be posted.
    Init,
    /// RTR: connected, receives only.
    ReadyToReceive,
    /// RTS: connected.
    ReadyToSend,
    /// SQD: the send queue is stopped on request.
    SendDrained,
    /// SQE: the send queue is stopped after an error.
    SendError,
    /// ERR: everything posted is flushed.
    Error,
    /// A state that the engine does not know.
    Other(u32),
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::ReadyToReceive => "RTR",
            Self::ReadyToSend => "RTS",
            Self::SendDrained => "SQD",
            Self::SendError => "SQE",
            Self::Error => "ERR",
            Self::Other(number) => return write!(f, "state {number}"),
        })
    }
}

impl VerbsQp {
    /// Returns the address that the peer needs to connect to this QP through a
    /// port. On iWARP only the QP number is valid, and only for rdma_cm: there are
    /// no GIDs and no LIDs.
    ///
    /// # Errors
    /// The port is missing or not active, or on RoCE has no usable GID.
    pub fn local_address(&self, port: u8) -> Result<EndpointAddress, ControlError> {
        self.local_address_for(&ConnectOptions {
            port,
            ..ConnectOptions::default()
        })
    }

    /// Returns the address as [`VerbsQp::local_address`] does, for a connection with
    /// these options: their port, GID and MTU.
    ///
    /// # Errors
    /// As for [`VerbsQp::local_address`], or the GID table has no such entry.
    pub fn local_address_for(
        &self,
        options: &ConnectOptions,
    ) -> Result<EndpointAddress, ControlError> {
        const OPERATION: &str = "get the address of a queue pair";
        let port = self.port(options.port, options.gid_index, OPERATION)?;
        let (gid, gid_index) = match self.context().is_iwarp() {
            true => no_gid(options.gid_index)?,
            false => local_gid(&port, options.gid_index)?,
        };
        Ok(EndpointAddress {
            qpn: self.qpn(),
            psn: self.psn.load(Ordering::Relaxed),
            lid: port.lid,
            gid: gid.0,
            gid_index,
            mtu: options.transport.at_most(port.active_mtu).code(),
            link: port.link,
        })
    }

    /// Moves the QP from RESET to INIT: receives may be posted. Of the options, the
    /// port, the partition and the access are used.
    ///
    /// # Errors
    /// The QP is in another state, the port does not exist, or it is not a member of
    /// the partition.
    pub fn to_init(&self, options: &ConnectOptions) -> Result<(), ControlError> {
        let mut attr = empty();
        attr.qp_state = ibv_qp_state::IBV_QPS_INIT;
        attr.port_num = options.port;
        attr.qp_access_flags = options.access.bits();
        if let Some(wanted) = options.transport.pkey
            && !self.context().is_iwarp()
        {
            attr.pkey_index = pkey::find(self.context(), options.port, Some(wanted))?.index;
        }
        let mask = Mask::IBV_QP_STATE
            | Mask::IBV_QP_PKEY_INDEX
            | Mask::IBV_QP_PORT
            | Mask::IBV_QP_ACCESS_FLAGS;
        self.modify(
            "bring a queue pair to INIT",
            &mut attr,
            mask,
            Some(QpState::Reset),
        )
    }

    /// Moves the QP from INIT to RTR: it accepts messages of `peer`.
    ///
    /// # Errors
    /// The QP is in another state, the port is not active, or the peer is
    /// unreachable; or the device is iWARP, where only rdma_cm connects.
    pub fn to_rtr(
        &self,
        peer: &EndpointAddress,
        options: &ConnectOptions,
    ) -> Result<(), ControlError> {
        options.transport.check(TO_RTR)?;
        self.require_addresses(TO_RTR)?;
        // The port as it was when the own address was queried, just before. If it
        // has changed since, the device refuses the move.
        let known = self.context().known_port(options.port);
        let port = match known {
            Some(port) if port.require_active(TO_RTR).is_ok() => port,
            _ => Arc::new(self.port(options.port, options.gid_index, TO_RTR)?),
        };
        let peer_qp = PeerQp {
            qpn: peer.qpn,
            psn: peer.psn,
            mtu: u32::from(path_mtu(&port, peer, options)?.code()),
            ah_attr: route(&port, peer, options)?,
            pkey_index: None,
        };
        self.enter_rtr(&peer_qp, options)
            .map_err(|error| self.explain_unreachable(error, options.port, Gid(peer.gid)))
    }

    /// Moves the QP from RTR to RTS: messages may be sent.
    ///
    /// # Errors
    /// The QP is in another state, or an option is out of range; or the device is
    /// iWARP, where only rdma_cm connects.
    pub fn to_rts(&self, options: &ConnectOptions) -> Result<(), ControlError> {
        self.require_addresses(TO_RTS)?;
        let timeout = options.transport.timeout();
        self.enter_rts(self.psn.load(Ordering::Relaxed), timeout, options)
    }

    /// Moves the QP from INIT to RTR with a known peer. The options have been
    /// checked.
    pub(super) fn enter_rtr(
        &self,
        peer_qp: &PeerQp,
        options: &ConnectOptions,
    ) -> Result<(), ControlError> {
        let mut attr = empty();
        attr.qp_state = ibv_qp_state::IBV_QPS_RTR;
        attr.path_mtu = peer_qp.mtu;
        attr.dest_qp_num = peer_qp.qpn;
        attr.rq_psn = peer_qp.psn;
        attr.max_dest_rd_atomic = options
            .reads_served
            .min(self.domain.device().limits().reads_served);
        attr.min_rnr_timer = options.transport.rnr_timer();
        attr.ah_attr = peer_qp.ah_attr;
        let mut mask = Mask::IBV_QP_STATE
            | Mask::IBV_QP_AV
            | Mask::IBV_QP_PATH_MTU
            | Mask::IBV_QP_DEST_QPN
            | Mask::IBV_QP_RQ_PSN
            | Mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | Mask::IBV_QP_MIN_RNR_TIMER;
        if let Some(index) = peer_qp.pkey_index {
            attr.pkey_index = index;
            mask |= Mask::IBV_QP_PKEY_INDEX;
        }
        self.modify(TO_RTR, &mut attr, mask, Some(QpState::Init))
    }

    /// Moves the QP from RTR to RTS with its first packet sequence number and the
    /// ACK timeout (units of `IBV_QP_TIMEOUT`).
    pub(super) fn enter_rts(
        &self,
        psn: u32,
        timeout: u8,
        options: &ConnectOptions,
    ) -> Result<(), ControlError> {
        options.transport.check(TO_RTS)?;
        let mut attr = empty();
        attr.qp_state = ibv_qp_state::IBV_QPS_RTS;
        attr.sq_psn = psn;
        attr.timeout = timeout;
        attr.retry_cnt = self.retries(options);
        attr.rnr_retry = options.transport.rnr_retry();
        attr.max_rd_atomic = options
            .reads_issued
            .min(self.domain.device().limits().reads_issued);
        let mask = Mask::IBV_QP_STATE
            | Mask::IBV_QP_SQ_PSN
            | Mask::IBV_QP_TIMEOUT
            | Mask::IBV_QP_RETRY_CNT
            | Mask::IBV_QP_RNR_RETRY
            | Mask::IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify(TO_RTS, &mut attr, mask, Some(QpState::ReadyToReceive))
    }

    /// Returns the retry count of a connection.
    fn retries(&self, options: &ConnectOptions) -> u8 {
        let most = self.domain.device().max_retry();
        options.transport.retry().min(most)
    }

    /// Moves the QP from any state to ERR: everything posted completes as flushed.
    ///
    /// # Errors
    /// The device failed.
    pub fn to_error(&self) -> Result<(), ControlError> {
        let mut attr = empty();
        attr.qp_state = ibv_qp_state::IBV_QPS_ERR;
        self.modify(
            "bring a queue pair to ERR",
            &mut attr,
            Mask::IBV_QP_STATE,
            None,
        )
    }

    /// Moves the QP from any state to RESET: everything posted is discarded without
    /// a completion, and libmlx5 clears both doorbell records. The next connection
    /// starts with another packet sequence number.
    ///
    /// # Errors
    /// The device failed; or the device is iWARP, where a queue pair has one
    /// connection in its lifetime ([`Self::may_be_reset`]).
    ///
    /// # Safety
    /// No endpoint uses the queue pair, or that endpoint rebuilds its rings: the
    /// device counts from 0 again, and would take old requests for new ones.
    pub unsafe fn to_reset(&self) -> Result<(), ControlError> {
        if !self.may_be_reset() {
            return Err(ControlError::new(
                ControlErrorKind::Unsupported,
                "bring a queue pair to RESET",
                "an iWARP queue pair has only one connection in its lifetime",
            )
            .with_remedy("create another endpoint instead"));
        }
        let mut attr = empty();
        attr.qp_state = ibv_qp_state::IBV_QPS_RESET;
        self.modify(
            "bring a queue pair to RESET",
            &mut attr,
            Mask::IBV_QP_STATE,
            None,
        )?;
        // Any number except the present one.
        let step = 1 + random_psn() % 0xff_ffff;
        let next = (self.psn.load(Ordering::Relaxed) + step) & 0xff_ffff;
        self.psn.store(next, Ordering::Relaxed);
        Ok(())
    }

    /// Returns whether the QP can leave ERR. iWARP drivers do not allow that: siw
    /// stays in ERR and reports success (Linux, `siw_qp_modify` in
    /// drivers/infiniband/sw/siw/siw_qp.c).
    #[must_use]
    pub fn may_be_reset(&self) -> bool {
        !self.context().is_iwarp()
    }

    /// Stops the QP before it is destroyed: nothing that is posted completes after
    /// this.
    ///
    /// # Errors
    /// The device failed.
    ///
    /// # Safety
    /// As for [`Self::to_reset`].
    pub(crate) unsafe fn end(&self) -> Result<(), ControlError> {
        match self.may_be_reset() {
            // SAFETY: no endpoint uses the queue pair, or it rebuilds its rings.
            true => unsafe { self.to_reset() },
            false => self.to_error(),
        }
    }

    /// Returns the state that the device reports. siw always reports RESET.
    ///
    /// # Errors
    /// The device failed.
    pub fn state(&self) -> Result<QpState, ControlError> {
        const OPERATION: &str = "query a queue pair";
        self.context().require_here(OPERATION)?;
        let mut attr = empty();
        // SAFETY: integers and pointers, for which zero is valid.
        let mut init: ibv_qp_init_attr = unsafe { core::mem::zeroed() };
        // SAFETY: the QP is alive, and both results are writable.
        let errno = unsafe {
            verbs::ibv_query_qp(
                self.as_ptr(),
                &raw mut attr,
                Mask::IBV_QP_STATE.0.cast_signed(),
                &raw mut init,
            )
        };
        match errno {
            0 => Ok(state_of(attr.qp_state)),
            _ => Err(ControlError::verbs(OPERATION, errno)),
        }
    }

    /// Fails for iWARP, where a QP cannot be connected by address.
    fn require_addresses(&self, operation: &'static str) -> Result<(), ControlError> {
        if !self.context().is_iwarp() {
            return Ok(());
        }
        Err(ControlError::new(
            ControlErrorKind::Unsupported,
            operation,
            "an iWARP queue pair can be connected only by the kernel's connection manager, over TCP",
        )
        .with_remedy("connect with rdma_cm (ManagerKind::Rdma)"))
    }

    fn port(
        &self,
        number: u8,
        gid_index: Option<u8>,
        operation: &'static str,
    ) -> Result<PortInfo, ControlError> {
        self.context().require_here(operation)?;
        let port = PortInfo::query_for(self.context(), number, gid_index)?;
        port.require_active(operation)?;
        Ok(port)
    }

    /// Modifies the QP. `from` is the state that the operation requires, if it
    /// requires one.
    pub(super) fn modify(
        &self,
        operation: &'static str,
        attr: &mut ibv_qp_attr,
        mask: Mask,
        from: Option<QpState>,
    ) -> Result<(), ControlError> {
        self.context().require_here(operation)?;
        // SAFETY: the QP is alive, and the attributes for the call.
        let errno = unsafe { verbs::ibv_modify_qp(self.as_ptr(), attr, mask.0.cast_signed()) };
        if errno == 0 {
            tracing::debug!(qpn = self.qpn(), "done: {operation}");
            return Ok(());
        }
        let error = ControlError::verbs(operation, errno);
        Err(match (errno, self.state()) {
            (libc::EINVAL, Ok(state)) if from == Some(state) => error
                .with_cause("the device refuses an attribute")
                .with_remedy(match self.context().is_iwarp() {
                    true => "check the port's number",
                    false => "check the port, the GID index, and the peer's address",
                }),
            (libc::EINVAL, Ok(state)) => error
                .with_cause(format!("QP {:#x} is in the state {state}", self.qpn()))
                .with_remedy(
                    "the order is RESET, INIT, RTR, RTS; reset the queue pair to start again",
                ),
            _ => error,
        })
    }
}

/// Returns the GID of an iWARP port and its index: both 0. Fails if the caller
/// requests a GID.
fn no_gid(index: Option<u8>) -> Result<(Gid, u8), ControlError> {
    match index {
        None => Ok((Gid::default(), 0)),
        Some(index) => Err(ControlError::new(
            ControlErrorKind::NoGid,
            "choose a GID",
            format!("GID {index} was requested, but an iWARP device has no GIDs"),
        )
        .with_remedy("leave the GID out: rdma_cm finds the route by IP address")),
    }
}

pub(super) fn empty() -> ibv_qp_attr {
    // SAFETY: integers and a union of byte arrays, for which zero is valid.
    unsafe { core::mem::zeroed() }
}

fn state_of(state: ibv_qp_state::Type) -> QpState {
    match state {
        ibv_qp_state::IBV_QPS_RESET => QpState::Reset,
        ibv_qp_state::IBV_QPS_INIT => QpState::Init,
        ibv_qp_state::IBV_QPS_RTR => QpState::ReadyToReceive,
        ibv_qp_state::IBV_QPS_RTS => QpState::ReadyToSend,
        ibv_qp_state::IBV_QPS_SQD => QpState::SendDrained,
        ibv_qp_state::IBV_QPS_SQE => QpState::SendError,
        ibv_qp_state::IBV_QPS_ERR => QpState::Error,
        other => QpState::Other(other),
    }
}

/// Returns a random packet sequence number. It most likely differs from that of an
/// earlier connection with the same QP number, so that late packets of that
/// connection are refused.
pub(super) fn random_psn() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    // The hasher's keys are random per process and differ per call.
    let hash = RandomState::new().hash_one(std::time::Instant::now());
    u32::try_from(hash & 0xff_ffff).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_iwarp_device_has_no_gid_and_refuses_a_requested_one() {
        assert_eq!(no_gid(None).expect("none"), (Gid::default(), 0));
        let error = no_gid(Some(3)).expect_err("there is no table");
        assert_eq!(error.kind(), ControlErrorKind::NoGid);
        assert!(error.to_string().contains("GID 3"), "{error}");
    }

    #[test]
    fn sequence_numbers_have_24_bits_and_differ() {
        let numbers: Vec<u32> = (0..8).map(|_| random_psn()).collect();
        assert!(numbers.iter().all(|&number| number < 1 << 24));
        assert!(numbers.iter().any(|&number| number != numbers[0]));
    }
}

//! The kernel's table of state transitions (`ib_modify_qp_is_ok`).
//!
//! For every transition and transport service, the kernel requires some
//! attributes and allows others; anything else is `EINVAL`.

use crate::spec::{QpState, Service};

/// `IBV_QP_*` attribute bits.
pub(super) mod mask {
    pub(in crate::nic) const STATE: u32 = 1;
    pub(in crate::nic) const CUR_STATE: u32 = 1 << 1;
    pub(in crate::nic) const EN_SQD_ASYNC_NOTIFY: u32 = 1 << 2;
    pub(in crate::nic) const ACCESS_FLAGS: u32 = 1 << 3;
    pub(in crate::nic) const PKEY_INDEX: u32 = 1 << 4;
    pub(in crate::nic) const PORT: u32 = 1 << 5;
    pub(in crate::nic) const QKEY: u32 = 1 << 6;
    pub(in crate::nic) const AV: u32 = 1 << 7;
    pub(in crate::nic) const PATH_MTU: u32 = 1 << 8;
    pub(in crate::nic) const TIMEOUT: u32 = 1 << 9;
    pub(in crate::nic) const RETRY_CNT: u32 = 1 << 10;
    pub(in crate::nic) const RNR_RETRY: u32 = 1 << 11;
    pub(in crate::nic) const RQ_PSN: u32 = 1 << 12;
    pub(in crate::nic) const MAX_QP_RD_ATOMIC: u32 = 1 << 13;
    pub(in crate::nic) const ALT_PATH: u32 = 1 << 14;
    pub(in crate::nic) const MIN_RNR_TIMER: u32 = 1 << 15;
    pub(in crate::nic) const SQ_PSN: u32 = 1 << 16;
    pub(in crate::nic) const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub(in crate::nic) const PATH_MIG_STATE: u32 = 1 << 18;
    pub(in crate::nic) const DEST_QPN: u32 = 1 << 20;
}

/// Returns whether a QP of this service may change from `from` to `to` with these
/// attributes.
pub(super) fn is_allowed(from: QpState, to: QpState, service: Service, bits: u32) -> bool {
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
    // The states that software may not know exactly.
    if bits & mask::CUR_STATE != 0 && !matches!(from, Rtr | Rts | Sqd | Sqe) {
        return false;
    }
    let (required, optional) = match (from, to) {
        (_, Reset) => (0, 0),
        (Init | Rtr | Rts | Sqd | Sqe | Err, Err) => (0, 0),
        (Reset, Init) => (identity(service), 0),
        (Init, Init) => (0, identity(service)),
        (Init, Rtr) => receive_side(service),
        (Rtr, Rts) => send_side(service),
        (Rts, Rts) | (Sqe, Rts) => (0, mask::CUR_STATE | while_running(from, service)),
        (Rts, Sqd) => (0, mask::EN_SQD_ASYNC_NOTIFY),
        (Sqd, Rts) => (0, mask::CUR_STATE | while_running(from, service)),
        (Sqd, Sqd) => (0, while_drained(service)),
        _ => return false,
    };
    bits & required == required && bits & !(required | optional | mask::STATE) == 0
}

fn identity(service: Service) -> u32 {
    let rights = match service {
        Service::Ud => mask::QKEY,
        Service::Rc | Service::Uc => mask::ACCESS_FLAGS,
    };
    mask::PKEY_INDEX | mask::PORT | rights
}

fn receive_side(service: Service) -> (u32, u32) {
    let path = mask::AV | mask::PATH_MTU | mask::DEST_QPN | mask::RQ_PSN;
    let optional = mask::ALT_PATH | mask::ACCESS_FLAGS | mask::PKEY_INDEX;
    match service {
        Service::Ud => (0, mask::PKEY_INDEX | mask::QKEY),
        Service::Uc => (path, optional),
        Service::Rc => (
            path | mask::MAX_DEST_RD_ATOMIC | mask::MIN_RNR_TIMER,
            optional,
        ),
    }
}

fn send_side(service: Service) -> (u32, u32) {
    let retries = mask::TIMEOUT | mask::RETRY_CNT | mask::RNR_RETRY | mask::MAX_QP_RD_ATOMIC;
    let required = match service {
        Service::Ud | Service::Uc => mask::SQ_PSN,
        Service::Rc => mask::SQ_PSN | retries,
    };
    (
        required,
        mask::CUR_STATE | while_running(QpState::Rtr, service),
    )
}

/// Returns the attributes that may change with a transition to RTS, or in RTS.
fn while_running(from: QpState, service: Service) -> u32 {
    let connected = mask::ACCESS_FLAGS | mask::ALT_PATH | mask::PATH_MIG_STATE;
    match (service, from) {
        (Service::Ud, _) => mask::QKEY,
        // Only UC and UD QPs enter SQE by themselves.
        (_, QpState::Sqe) => mask::ACCESS_FLAGS,
        (Service::Uc, _) => connected,
        (Service::Rc, _) => connected | mask::MIN_RNR_TIMER,
    }
}

fn while_drained(service: Service) -> u32 {
    let connected =
        mask::AV | mask::ALT_PATH | mask::ACCESS_FLAGS | mask::PKEY_INDEX | mask::PATH_MIG_STATE;
    match service {
        Service::Ud => mask::PKEY_INDEX | mask::QKEY,
        Service::Uc => connected,
        Service::Rc => {
            connected
                | mask::PORT
                | mask::TIMEOUT
                | mask::RETRY_CNT
                | mask::RNR_RETRY
                | mask::MAX_QP_RD_ATOMIC
                | mask::MAX_DEST_RD_ATOMIC
                | mask::MIN_RNR_TIMER
        }
    }
}

#[cfg(test)]
mod tests {
    use super::mask::*;
    use super::*;

    const TO_INIT: u32 = STATE | PKEY_INDEX | PORT | ACCESS_FLAGS;
    const TO_RTR: u32 =
        STATE | AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER;
    const TO_RTS: u32 = STATE | SQ_PSN | TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC;

    #[test]
    fn every_required_attribute_of_an_rc_qp_is_required() {
        use QpState::{Init, Reset, Rtr, Rts};
        for (from, to, bits) in [
            (Reset, Init, TO_INIT),
            (Init, Rtr, TO_RTR),
            (Rtr, Rts, TO_RTS),
        ] {
            assert!(is_allowed(from, to, Service::Rc, bits));
            for bit in (1..32).map(|bit| 1 << bit).filter(|bit| bits & bit != 0) {
                assert!(
                    !is_allowed(from, to, Service::Rc, bits & !bit),
                    "{to:?} {bit:#x}"
                );
            }
        }
    }

    #[test]
    fn services_differ_in_what_they_require() {
        use QpState::{Init, Reset, Rtr, Rts};
        let uc = STATE | AV | PATH_MTU | DEST_QPN | RQ_PSN;
        assert!(is_allowed(Init, Rtr, Service::Uc, uc));
        assert!(!is_allowed(Init, Rtr, Service::Uc, uc | MIN_RNR_TIMER));
        assert!(is_allowed(Rtr, Rts, Service::Uc, STATE | SQ_PSN));
        assert!(!is_allowed(Rtr, Rts, Service::Uc, TO_RTS));
        assert!(is_allowed(
            Reset,
            Init,
            Service::Ud,
            STATE | PKEY_INDEX | PORT | QKEY
        ));
        assert!(!is_allowed(Reset, Init, Service::Ud, TO_INIT));
        assert!(is_allowed(Init, Rtr, Service::Ud, STATE));
        assert!(!is_allowed(Init, Rtr, Service::Ud, STATE | AV));
    }

    #[test]
    fn states_cannot_be_skipped_and_every_state_can_be_left() {
        use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
        let all = [Reset, Init, Rtr, Rts, Sqd, Sqe, Err];
        for from in all {
            assert!(is_allowed(from, Reset, Service::Rc, STATE));
            assert_eq!(is_allowed(from, Err, Service::Rc, STATE), from != Reset);
            assert_eq!(is_allowed(from, Rtr, Service::Rc, TO_RTR), from == Init);
        }
        assert!(!is_allowed(Reset, Rts, Service::Rc, TO_RTS));
        assert!(!is_allowed(Err, Rts, Service::Rc, STATE));
        assert!(is_allowed(
            Rts,
            Sqd,
            Service::Rc,
            STATE | EN_SQD_ASYNC_NOTIFY
        ));
        assert!(is_allowed(Sqd, Rts, Service::Rc, STATE | CUR_STATE));
        assert!(!is_allowed(
            Init,
            Init,
            Service::Rc,
            STATE | CUR_STATE | PORT
        ));
        assert!(is_allowed(Rts, Rts, Service::Rc, MIN_RNR_TIMER));
        assert!(!is_allowed(Rts, Rts, Service::Rc, TIMEOUT));
        assert!(is_allowed(Sqd, Sqd, Service::Rc, TIMEOUT | RETRY_CNT | AV));
    }
}

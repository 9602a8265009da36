//! Errors for unreachable peers, when the kernel finds no route to a GID.

use super::gid::Gid;
use super::port::PortInfo;
use super::qp::VerbsQp;
use crate::error::{ControlError, ControlErrorKind};

impl VerbsQp {
    /// Adds cause and remedy to an error of the move to RTR that reports an
    /// unreachable peer. Other errors stay unchanged.
    pub(super) fn explain_unreachable(
        &self,
        error: ControlError,
        port: u8,
        peer: Gid,
    ) -> ControlError {
        explain(error, peer, |operation| {
            PortInfo::query_for(self.context(), port, None)?.require_active(operation)
        })
    }
}

/// Does [`VerbsQp::explain_unreachable`]; `port_error` returns the error of a port that cannot be
/// used.
fn explain(
    error: ControlError,
    peer: Gid,
    port_error: impl FnOnce(&'static str) -> Result<(), ControlError>,
) -> ControlError {
    let Some(libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH) = error.errno() else {
        return error;
    };
    // A link that is down is the likelier cause, and the more helpful message.
    match port_error(super::connect::TO_RTR) {
        Err(down) if down.kind() == ControlErrorKind::PortDown => down,
        _ => error
            .with_kind(ControlErrorKind::Unreachable)
            .with_cause(format!("no route to the peer's GID {peer}"))
            .with_remedy("check with ping that the peer's address can be reached from this port"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::connect::TO_RTR;

    const PEER: Gid = Gid([0xfe; 16]);

    fn refused(errno: i32) -> ControlError {
        ControlError::verbs(TO_RTR, errno)
    }

    #[test]
    fn a_peer_without_a_route_is_reported_as_unreachable() {
        for errno in [libc::ETIMEDOUT, libc::EHOSTUNREACH, libc::ENETUNREACH] {
            let error = explain(refused(errno), PEER, |_| Ok(()));
            assert_eq!(error.kind(), ControlErrorKind::Unreachable, "{errno}");
            assert_eq!(error.errno(), Some(errno));
            assert!(error.to_string().contains(&PEER.to_string()), "{error}");
            assert!(error.remedy().contains("ping"), "{error}");
        }
    }

    #[test]
    fn a_port_that_is_down_is_named_instead() {
        let port = |kind| move |operation| Err(ControlError::new(kind, operation, "the port"));
        let down = port(ControlErrorKind::PortDown);
        let error = explain(refused(libc::ETIMEDOUT), PEER, down);
        assert_eq!(error.kind(), ControlErrorKind::PortDown);
        assert_eq!(error.operation(), TO_RTR);
        // A port that cannot be queried explains nothing.
        let lost = port(ControlErrorKind::DeviceLost);
        let error = explain(refused(libc::ETIMEDOUT), PEER, lost);
        assert_eq!(error.kind(), ControlErrorKind::Unreachable);
    }

    #[test]
    fn other_refusals_stay_as_they_are() {
        let error = explain(refused(libc::EINVAL), PEER, |_| {
            panic!("no need to query the port")
        });
        assert_eq!(error.kind(), ControlErrorKind::Invalid);
        assert_eq!(error.remedy(), "");
    }
}

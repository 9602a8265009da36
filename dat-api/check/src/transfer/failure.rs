//! What went wrong in a test, and the next step.

use dat_api::types::{ConnectionKind, DtoStatus};
use dat_api::{DatError, DatReturn};

use crate::problem::Problem;

/// The end of a test.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) problem: Problem,
    /// Whether the other side has ended the test and knows the cause.
    pub(super) consequence: bool,
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self {
            problem,
            consequence: false,
        }
    }
}

impl From<DatError> for Failure {
    fn from(error: DatError) -> Self {
        Problem::of_error(&error).into()
    }
}

impl Failure {
    /// Returns the failure of a post or a wait.
    pub(super) fn of_code(doing: &str, code: DatReturn) -> Self {
        Problem::of_code(doing, code).into()
    }

    /// Returns the failure of a side whose peer has ended.
    pub(super) fn ended() -> Self {
        Self {
            problem: Problem::new(
                "the other side ended the connection before the test was complete",
                "see the output of dat-check on the other side",
            ),
            consequence: true,
        }
    }

    /// Returns the failure of a side that has waited up to the time limit.
    pub(super) fn late(waiting_for: &str) -> Self {
        Problem::new(
            format!("the time limit has passed while waiting for {waiting_for}"),
            "see the output on the other side; a longer limit is set with --timeout",
        )
        .into()
    }

    /// Returns the failure for a connection event.
    pub(super) fn of_event(kind: ConnectionKind, about: &Attempt<'_>) -> Self {
        let Attempt { to, manager } = about;
        let (problem, next) = match kind {
            ConnectionKind::NonPeerRejected => (
                format!("{to} answers, but nothing listens there on this qualifier"),
                "start `dat-check --listen` there first, with the same --port and connection manager \
                 (DAT_CM)"
                    .to_owned(),
            ),
            ConnectionKind::PeerRejected => (
                format!("{to} has rejected the connection"),
                "start `dat-check --listen` there, of the same version, and no other program".to_owned(),
            ),
            ConnectionKind::Unreachable => (
                format!("{to} cannot be reached"),
                "check the address (`ping`), the route (`ip route get`), firewalls, and with DAT_CM=rdma_cm \
                 that both RDMA ports have an IP address"
                    .to_owned(),
            ),
            ConnectionKind::TimedOut => (
                format!("{to} does not answer"),
                format!(
                    "start `dat-check --listen` there first; check firewalls; both sides need the same connection \
                     manager (here: {manager}; DAT_CM chooses)"
                ),
            ),
            ConnectionKind::Disconnected | ConnectionKind::Broken => return Self::ended(),
            ConnectionKind::AcceptCompletionError | ConnectionKind::Established => (
                "the connection was not completed".to_owned(),
                "see the output on the other side, and run it again with DAT_DBG_TYPE=1".to_owned(),
            ),
        };
        Problem::new(problem, next).into()
    }

    /// Returns the failure for a completion.
    pub(super) fn of_completion(status: DtoStatus) -> Self {
        let next = match status {
            DtoStatus::Flushed => return Self::ended(),
            DtoStatus::Transport => {
                "the connection was made, but RDMA packets are lost: check that both ports have the same MTU \
                 and, on RoCE, the same version, VLAN and subnet (show_gids), that no firewall drops UDP port \
                 4791, and the counters of the port"
            }
            DtoStatus::ReceiverNotReady => {
                "the other side posts no receives: see its output; it may be overloaded"
            }
            _ => {
                "run both sides with DAT_PATH=verbs: if that works, report a defect of the direct path with \
                 the output of both; if not, see the kernel log (dmesg)"
            }
        };
        Problem::new(format!("a transfer failed with status {status:?}"), next).into()
    }
}

/// A connection attempt.
pub(super) struct Attempt<'a> {
    /// The host and the qualifier.
    pub(super) to: &'a str,
    /// The connection manager of this side.
    pub(super) manager: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_of_an_attempt_names_the_next_step() {
        let about = Attempt {
            to: "192.0.2.1, qualifier 7",
            manager: "socket",
        };
        for (kind, said) in [
            (ConnectionKind::NonPeerRejected, "--listen"),
            (ConnectionKind::PeerRejected, "same version"),
            (ConnectionKind::Unreachable, "ping"),
            (ConnectionKind::TimedOut, "here: socket"),
            (ConnectionKind::AcceptCompletionError, "DAT_DBG_TYPE"),
        ] {
            let failure = Failure::of_event(kind, &about);
            assert!(failure.problem.next.contains(said), "{failure:?}");
            assert!(!failure.consequence, "{failure:?}");
        }
        assert!(Failure::of_event(ConnectionKind::Broken, &about).consequence);
    }

    #[test]
    fn lost_packets_and_an_ended_peer_differ() {
        let lost = Failure::of_completion(DtoStatus::Transport);
        assert!(lost.problem.next.contains("MTU"), "{lost:?}");
        assert!(!lost.consequence && Failure::of_completion(DtoStatus::Flushed).consequence);
    }
}

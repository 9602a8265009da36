//! What went wrong in a test, and the next step.

use dat_api::DatError;
use dat_api::types::{ConnectionKind, DtoStatus};

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
    pub(super) fn of_call(doing: &str, error: impl Into<DatError>) -> Self {
        Problem::of_call(doing, &error.into()).into()
    }

    /// Returns the failure of a side whose peer has ended.
    pub(super) fn ended(sides: Sides) -> Self {
        let problem = match sides {
            Sides::OneProcess => {
                Problem::new("the connection ended before the test was complete", AGAIN)
            }
            Sides::TwoProcesses => Problem::new(
                "the other side ended the connection before the test was complete",
                "see the output of dat-check on the other side",
            ),
        };
        Self {
            problem,
            consequence: true,
        }
    }

    /// Returns the failure of a side that has waited up to the time limit.
    pub(super) fn late(sides: Sides, waiting_for: &str) -> Self {
        let next = match sides {
            Sides::OneProcess => {
                "the host may be too busy: set a longer limit with --timeout; if that does not help, try \
                 DAT_PATH=verbs, and see the kernel log (dmesg)"
            }
            Sides::TwoProcesses => {
                "see the output on the other side; a longer limit is set with --timeout"
            }
        };
        let text = format!("the time limit has passed while waiting for {waiting_for}");
        Problem::new(text, next).into()
    }

    /// Returns the failure of a listener that no `dat-check --connect` has reached; it has rejected
    /// this many requests of other programs.
    pub(super) fn no_request(about: &Attempt<'_>, rejected: usize) -> Self {
        if about.sides == Sides::OneProcess {
            return Self::late(about.sides, "the adapter's own connection request");
        }
        let others = match rejected {
            0 => String::new(),
            1 => "; 1 request of another program, or of another version, was rejected".to_owned(),
            count => {
                format!(
                    "; {count} requests of other programs, or of another version, were rejected"
                )
            }
        };
        Problem::new(
            format!("no connection request of a dat-check came within the time limit{others}"),
            format!(
                "run `dat-check --connect` on the other host with the address and --port that were printed, \
                 within the limit (--timeout); if that fails, its output says why: a firewall or no route, for \
                 example; both sides need {}",
                about.in_common()
            ),
        )
        .into()
    }

    pub(super) fn of_event(kind: ConnectionKind, about: &Attempt<'_>) -> Self {
        let Attempt {
            to, manager, sides, ..
        } = about;
        if matches!(kind, ConnectionKind::Disconnected | ConnectionKind::Broken) {
            return Self::ended(*sides);
        }
        if *sides == Sides::OneProcess {
            return Self::of_own_event(kind, about).into();
        }
        let (problem, next) = match kind {
            ConnectionKind::NonPeerRejected => (
                format!(
                    "{to} refuses the connection: nothing listens there on this qualifier with the connection \
                     manager {manager}"
                ),
                format!(
                    "start `dat-check --listen` there first, with the same --port and {}; a firewall \
                     that rejects looks the same",
                    about.in_common()
                ),
            ),
            ConnectionKind::PeerRejected => (
                format!("{to} has rejected the connection: the program there is no dat-check of this version"),
                "start `dat-check --listen` there, of the same version, on a qualifier that no other program \
                 uses (--port on both sides)"
                    .to_owned(),
            ),
            ConnectionKind::Unreachable => (
                format!("{to} cannot be reached"),
                "check the address (`ping`), the route (`ip route get`), firewalls, and with DAT_CM=rdma_cm \
                 that both RDMA ports have an IP address"
                    .to_owned(),
            ),
            ConnectionKind::TimedOut => (
                format!("{to} does not reply"),
                format!(
                    "check the address and firewalls, and start `dat-check --listen` there first; both sides \
                     need {}",
                    about.in_common()
                ),
            ),
            _ => (
                "the connection was not completed".to_owned(),
                "see the output on the other side, and run it again with DAT_DBG_TYPE=1".to_owned(),
            ),
        };
        Problem::new(problem, next).into()
    }

    /// Returns the problem of an adapter that cannot connect to itself.
    fn of_own_event(kind: ConnectionKind, about: &Attempt<'_>) -> Problem {
        let Attempt { to, manager, .. } = about;
        let (what, next) = match kind {
            ConnectionKind::NonPeerRejected | ConnectionKind::PeerRejected => (
                "was refused",
                "check that no firewall rejects connections of this host to itself",
            ),
            ConnectionKind::Unreachable => (
                "found no route",
                "check that the address belongs to a network interface that is up (`ip address`)",
            ),
            ConnectionKind::TimedOut => (
                "had no reply",
                "check that no firewall drops packets of this host to itself",
            ),
            _ => ("was not completed", AGAIN),
        };
        Problem::new(
            format!(
                "the adapter cannot connect to itself: the request to {to} by {manager}, {what}"
            ),
            format!("{next}; DAT_CM chooses another connection manager"),
        )
    }

    pub(super) fn of_completion(sides: Sides, status: DtoStatus) -> Self {
        let next = match (status, sides) {
            (DtoStatus::Flushed, _) => return Self::ended(sides),
            (DtoStatus::Transport, Sides::OneProcess) => {
                "the connection was made, but RDMA packets of the adapter to itself are lost: check the \
                 counters of the port, and on RoCE its GID (show_gids), and that no firewall drops UDP port \
                 4791"
            }
            (DtoStatus::Transport, Sides::TwoProcesses) => {
                "the connection was made, but RDMA packets are lost: check that both ports have the same MTU \
                 and, on RoCE, the same version, VLAN and subnet (show_gids), that no firewall drops UDP port \
                 4791, and the counters of the port"
            }
            (DtoStatus::ReceiverNotReady, Sides::OneProcess) => {
                "no receive was posted in time: the host may be too busy; run it again"
            }
            (DtoStatus::ReceiverNotReady, Sides::TwoProcesses) => {
                "the other side posts no receives: see its output; it may be overloaded"
            }
            (_, Sides::OneProcess) => {
                "run it with DAT_PATH=verbs: if that works, report a defect of the direct path with the output \
                 of both; if not, see the kernel log (dmesg)"
            }
            (_, Sides::TwoProcesses) => {
                "run both sides with DAT_PATH=verbs: if that works, report a defect of the direct path with \
                 the output of both; if not, see the kernel log (dmesg)"
            }
        };
        let text = format!("a transfer failed with status {}", name_of(status));
        Problem::new(text, next).into()
    }
}

/// Returns the name of a status in the DAT pages.
fn name_of(status: DtoStatus) -> String {
    let mut name = "DAT_DTO_ERR".to_owned();
    for letter in format!("{status:?}").chars() {
        if letter.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

/// Whether a test has its two sides in one process, or there is a peer elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sides {
    /// The adapter is connected to itself.
    OneProcess,
    TwoProcesses,
}

/// What to do if nothing is known about the cause.
const AGAIN: &str = "run it again with DAT_DBG_TYPE=1, and see the kernel log (dmesg)";

/// A connection attempt.
pub(super) struct Attempt<'a> {
    /// The host and the qualifier.
    pub(super) to: &'a str,
    /// The connection manager of this side.
    pub(super) manager: &'a str,
    /// The fabric of this side, if its devices are emulated.
    pub(super) fabric: Option<&'a str>,
    pub(super) sides: Sides,
}

impl Attempt<'_> {
    /// Returns what both sides must have in common.
    fn in_common(&self) -> String {
        let manager = format!(
            "the same connection manager (here: {}; DAT_CM chooses)",
            self.manager
        );
        match self.fabric {
            None => manager,
            Some(fabric) => format!(
                "{manager} and the same fabric (here: {fabric}; `mlx5-emu run --fabric` chooses)"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(manager: &'static str, sides: Sides) -> Attempt<'static> {
        Attempt {
            to: "192.0.2.1, qualifier 7",
            manager,
            fabric: None,
            sides,
        }
    }

    #[test]
    fn on_emulated_devices_a_refused_attempt_names_the_fabric() {
        let about = Attempt {
            fabric: Some("lab-1"),
            ..attempt("rdma_cm", Sides::TwoProcesses)
        };
        for failure in [
            Failure::of_event(ConnectionKind::NonPeerRejected, &about),
            Failure::of_event(ConnectionKind::TimedOut, &about),
            Failure::no_request(&about, 0),
        ] {
            let next = &failure.problem.next;
            assert!(next.contains("the same fabric (here: lab-1;"), "{next}");
        }
    }

    #[test]
    fn every_end_of_an_attempt_names_the_next_step() {
        let about = attempt("socket", Sides::TwoProcesses);
        for (kind, said) in [
            (ConnectionKind::NonPeerRejected, "here: socket"),
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
        let of = |status| Failure::of_completion(Sides::TwoProcesses, status);
        let lost = of(DtoStatus::Transport);
        assert!(lost.problem.next.contains("MTU"), "{lost:?}");
        assert!(
            lost.problem.problem.ends_with("DAT_DTO_ERR_TRANSPORT"),
            "{lost:?}"
        );
        assert!(!lost.consequence && of(DtoStatus::Flushed).consequence);
        assert_eq!(
            name_of(DtoStatus::ReceiverNotReady),
            "DAT_DTO_ERR_RECEIVER_NOT_READY"
        );
    }

    /// There is no other side to look at, or to start.
    #[test]
    fn a_failed_loopback_speaks_of_no_other_side() {
        let sides = Sides::OneProcess;
        let about = attempt("socket", sides);
        let events = [
            ConnectionKind::NonPeerRejected,
            ConnectionKind::PeerRejected,
            ConnectionKind::Unreachable,
            ConnectionKind::TimedOut,
            ConnectionKind::Broken,
            ConnectionKind::AcceptCompletionError,
        ];
        let statuses = [
            DtoStatus::Flushed,
            DtoStatus::Transport,
            DtoStatus::ReceiverNotReady,
            DtoStatus::RemoteAccess,
        ];
        let failures = (events
            .map(|kind| Failure::of_event(kind, &about))
            .into_iter())
        .chain(statuses.map(|status| Failure::of_completion(sides, status)))
        .chain([
            Failure::late(sides, "a message"),
            Failure::no_request(&about, 0),
        ]);
        for Failure { problem, .. } in failures {
            let text = format!("{} {}", problem.problem, problem.next);
            for absent in ["other side", "both sides", "there", "--listen", "--connect"] {
                let words = format!(" {absent}");
                assert!(!text.contains(&words), "'{absent}' in: {text}");
            }
        }
    }

    #[test]
    fn a_listener_without_a_request_counts_those_that_it_has_rejected() {
        let said = |rejected| {
            let about = attempt("rdma_cm", Sides::TwoProcesses);
            let failure = Failure::no_request(&about, rejected);
            assert!(
                failure.problem.next.contains("here: rdma_cm"),
                "{failure:?}"
            );
            failure.problem.problem
        };
        assert!(!said(0).contains("rejected"));
        assert!(said(1).contains("1 request of another program"));
        assert!(said(2).contains("2 requests of other programs"));
    }
}

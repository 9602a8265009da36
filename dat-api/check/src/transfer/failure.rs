//! What went wrong in a test, and the next step.

use dat_api::types::{ConnectionKind, DtoStatus};

use crate::problem::{AGAIN, Problem};

use super::side::{Awaited, Failure};

/// A connection attempt.
pub(super) struct Attempt {
    /// The host and the qualifier.
    pub(super) to: String,
    /// The connection manager of this side.
    pub(super) manager: String,
    /// The fabric of this side, if its devices are emulated.
    pub(super) fabric: Option<String>,
    /// The adapter is connected to itself, so there is no other side to look at.
    pub(super) alone: bool,
}

impl Attempt {
    pub(super) fn problem(&self, failure: &Failure) -> Problem {
        match failure {
            Failure::Refused(error) => Problem::of_error(error),
            Failure::Call(what, error) => Problem::of_call(what, error),
            Failure::Late(awaited) => self.late(*awaited),
            Failure::Connection(ConnectionKind::Disconnected | ConnectionKind::Broken)
            | Failure::Transfer(DtoStatus::Flushed) => match self.alone {
                true => Problem::new("the connection ended before the test was complete", AGAIN),
                false => Problem::new(
                    "the other side ended the connection before the test was complete",
                    "see the output of dat-check on the other side",
                ),
            },
            Failure::Connection(kind) if self.alone => self.own_connection(*kind),
            Failure::Connection(kind) => self.connection(*kind),
            Failure::Transfer(status) => self.transfer(*status),
            Failure::Wrong(wrong) => {
                let whose = match self.alone || wrong.here {
                    true => "received",
                    false => "the other side received",
                };
                let next = format!(
                    "run {} with DAT_PATH=verbs: if the data are right then, report a defect of the \
                     direct path; if not, suspect the hardware or its firmware",
                    self.test()
                );
                Problem::new(wrong.text(whose), next)
            }
            Failure::Unexpected if self.alone => Problem::new(
                "a message arrived that was not sent",
                "run it with DAT_PATH=verbs: if that works, report a defect of the direct path",
            ),
            Failure::Unexpected => Problem::new(
                "the other side has sent an unexpected message",
                "use the same version of dat-check on both sides",
            ),
        }
    }

    /// Returns what is run again, in words.
    fn test(&self) -> &'static str {
        if self.alone { "it" } else { "both sides" }
    }

    /// Returns the problem of a side that has waited up to the time limit.
    fn late(&self, awaited: Awaited) -> Problem {
        let waiting_for = match awaited {
            Awaited::Request { .. } if self.alone => "the adapter's own connection request",
            Awaited::Request { rejected } => return self.no_request(rejected),
            Awaited::Established => &format!("the connection to {} to be established", self.to),
            Awaited::Completion => "the completion of a request",
            Awaited::Message if self.alone => "a message",
            Awaited::Message => "a message of the other side",
        };
        let next = match self.alone {
            true => {
                "the host may be too busy: set a longer limit with --timeout; if that does not help, \
                 try DAT_PATH=verbs, and see the kernel log (dmesg)"
            }
            false => "see the output on the other side; a longer limit is set with --timeout",
        };
        let text = format!("the time limit has passed while waiting for {waiting_for}");
        Problem::new(text, next)
    }

    /// Returns the problem of a listener that no `dat-check --connect` has reached; it has rejected
    /// this many requests of other programs.
    fn no_request(&self, rejected: usize) -> Problem {
        let others = match rejected {
            0 => String::new(),
            1 => "; 1 request of another program, or of another version, was rejected".to_owned(),
            _ => format!(
                "; {rejected} requests of other programs, or of another version, were rejected"
            ),
        };
        Problem::new(
            format!("no connection request of a dat-check came within the time limit{others}"),
            format!(
                "run `dat-check --connect` on the other host with the address and --port that were printed, \
                 within the limit (--timeout); if that fails, its output says why: a firewall or no route, for \
                 example; both sides need {}",
                self.in_common()
            ),
        )
    }

    fn connection(&self, kind: ConnectionKind) -> Problem {
        let Self { to, manager, .. } = self;
        let (problem, next) = match kind {
            ConnectionKind::NonPeerRejected => (
                format!(
                    "{to} refuses the connection: nothing listens there on this qualifier with the connection \
                     manager {manager}"
                ),
                format!(
                    "start `dat-check --listen` there first, with the same --port and {}; a firewall \
                     that rejects looks the same",
                    self.in_common()
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
                    self.in_common()
                ),
            ),
            _ => (
                "the connection was not completed".to_owned(),
                "see the output on the other side, and run it again with DAT_DBG_TYPE=1".to_owned(),
            ),
        };
        Problem::new(problem, next)
    }

    /// Returns the problem of an adapter that cannot connect to itself.
    fn own_connection(&self, kind: ConnectionKind) -> Problem {
        let Self { to, manager, .. } = self;
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

    fn transfer(&self, status: DtoStatus) -> Problem {
        let next = match status {
            DtoStatus::Transport if self.alone => {
                "the connection was made, but RDMA packets of the adapter to itself are lost: check the \
                 counters of the port, and on RoCE its GID (show_gids), and that no firewall drops UDP port \
                 4791"
            }
            DtoStatus::Transport => {
                "the connection was made, but RDMA packets are lost: check that both ports have the same MTU \
                 and, on RoCE, the same version, VLAN and subnet (show_gids), that no firewall drops UDP port \
                 4791, and the counters of the port"
            }
            DtoStatus::ReceiverNotReady if self.alone => {
                "no receive was posted in time: the host may be too busy; run it again"
            }
            DtoStatus::ReceiverNotReady => {
                "the other side posts no receives: see its output; it may be overloaded"
            }
            _ => &format!(
                "run {} with DAT_PATH=verbs: if that works, report a defect of the direct path with the \
                 output of both; if not, see the kernel log (dmesg)",
                self.test()
            ),
        };
        let text = format!("a transfer failed with status {status}");
        Problem::new(text, next)
    }

    /// Returns what both sides must have in common.
    fn in_common(&self) -> String {
        let manager = format!(
            "the same connection manager (here: {}; DAT_CM chooses)",
            self.manager
        );
        match &self.fabric {
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

    fn attempt(manager: &str, alone: bool) -> Attempt {
        Attempt {
            to: "192.0.2.1, qualifier 7".to_owned(),
            manager: manager.to_owned(),
            fabric: None,
            alone,
        }
    }

    #[test]
    fn on_emulated_devices_a_refused_attempt_names_the_fabric() {
        let about = Attempt {
            fabric: Some("lab-1".to_owned()),
            ..attempt("rdma_cm", false)
        };
        for failure in [
            Failure::Connection(ConnectionKind::NonPeerRejected),
            Failure::Connection(ConnectionKind::TimedOut),
            Failure::Late(Awaited::Request { rejected: 0 }),
        ] {
            let next = about.problem(&failure).next;
            assert!(next.contains("the same fabric (here: lab-1;"), "{next}");
        }
    }

    #[test]
    fn every_end_of_an_attempt_names_the_next_step() {
        let about = attempt("socket", false);
        for (kind, said) in [
            (ConnectionKind::NonPeerRejected, "here: socket"),
            (ConnectionKind::PeerRejected, "same version"),
            (ConnectionKind::Unreachable, "ping"),
            (ConnectionKind::TimedOut, "here: socket"),
            (ConnectionKind::AcceptCompletionError, "DAT_DBG_TYPE"),
        ] {
            let problem = about.problem(&Failure::Connection(kind));
            assert!(problem.next.contains(said), "{problem:?}");
            assert!(!problem.problem.contains("ended"), "{problem:?}");
        }
        let broken = about.problem(&Failure::Connection(ConnectionKind::Broken));
        assert!(
            broken.problem.contains("the other side ended"),
            "{broken:?}"
        );
    }

    #[test]
    fn lost_packets_and_an_ended_peer_differ() {
        let about = attempt("socket", false);
        let of = |status| about.problem(&Failure::Transfer(status));
        let lost = of(DtoStatus::Transport);
        assert!(lost.next.contains("MTU"), "{lost:?}");
        assert!(lost.problem.ends_with("DAT_DTO_ERR_TRANSPORT"), "{lost:?}");
        let ended = of(DtoStatus::Flushed);
        assert!(ended.problem.contains("the other side ended"), "{ended:?}");
    }

    /// There is no other side to look at, or to start.
    #[test]
    fn a_failed_loopback_speaks_of_no_other_side() {
        let about = attempt("socket", true);
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
        let failures = (events.map(Failure::Connection).into_iter())
            .chain(statuses.map(Failure::Transfer))
            .chain([Awaited::Message, Awaited::Request { rejected: 0 }].map(Failure::Late))
            .chain([Failure::Unexpected]);
        for problem in failures.map(|failure| about.problem(&failure)) {
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
            let about = attempt("rdma_cm", false);
            let problem = about.problem(&Failure::Late(Awaited::Request { rejected }));
            assert!(problem.next.contains("here: rdma_cm"), "{problem:?}");
            problem.problem
        };
        assert!(!said(0).contains("rejected"));
        assert!(said(1).contains("1 request of another program"));
        assert!(said(2).contains("2 requests of other programs"));
    }
}

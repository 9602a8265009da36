//! What the NIC counts, and the names under which a host shows the counters of a port.

use super::core::Core;
use crate::decode::cqe::{Cqe, Syndrome};
use crate::fabric::counters::{Counter, Row};
use crate::spec::{Link, PortAddress};

impl Core {
    pub(super) fn count(&self, at: PortAddress, counter: Counter) {
        self.options.counters.add(at, &[(counter, 1)]);
    }

    /// Counts a completion if it reports an error.
    pub(super) fn count_completion(&self, at: PortAddress, cqe: &Cqe) {
        let Some(syndrome) = cqe.syndrome() else {
            return;
        };
        let (errors, kinds): (_, &[_]) = match cqe.is_request() {
            true => (
                Counter::RequestErrors,
                &[
                    (Syndrome::Flushed, Counter::RequestsFlushed),
                    (Syndrome::RemoteInvalidRequest, Counter::RemoteInvalid),
                    (Syndrome::RemoteAccess, Counter::RemoteAccess),
                ],
            ),
            false => (
                Counter::ReceiveErrors,
                &[
                    (Syndrome::Flushed, Counter::ReceivesFlushed),
                    (Syndrome::LocalLength, Counter::ReceiveTooShort),
                ],
            ),
        };
        self.count(at, errors);
        for &(kind, counter) in kinds {
            if syndrome == kind as u8 {
                self.count(at, counter);
            }
        }
    }
}

/// A name, and what it shows; `None` if it is always 0 here.
pub(crate) type Name = (&'static str, Option<Counter>);

/// The files of a port's `counters` (`pma_attrs_ext` in `drivers/infiniband/core/sysfs.c`).
pub(crate) const PORT: &[Name] = &[
    ("symbol_error", None),
    ("link_error_recovery", None),
    ("link_downed", Some(Counter::LinkDowned)),
    ("port_rcv_errors", Some(Counter::ReceiveFaults)),
    ("port_rcv_remote_physical_errors", None),
    ("port_rcv_switch_relay_errors", None),
    ("port_xmit_discards", Some(Counter::Discarded)),
    ("port_xmit_constraint_errors", None),
    ("port_rcv_constraint_errors", None),
    ("local_link_integrity_errors", None),
    ("excessive_buffer_overrun_errors", None),
    ("VL15_dropped", None),
    ("port_xmit_data", Some(Counter::SentWords)),
    ("port_rcv_data", Some(Counter::ReceivedWords)),
    ("port_xmit_packets", Some(Counter::SentPackets)),
    ("port_rcv_packets", Some(Counter::ReceivedPackets)),
    ("port_xmit_wait", None),
    ("unicast_rcv_packets", Some(Counter::ReceivedPackets)),
    ("unicast_xmit_packets", Some(Counter::SentPackets)),
    ("multicast_rcv_packets", None),
    ("multicast_xmit_packets", None),
];

/// The counters of the transport, in the order of `mlx5_ib_fill_counters`
/// (`drivers/infiniband/hw/mlx5/counters.c`, Linux 6.1). Those of congestion control
/// and of adaptive retransmission, [`ROCE_FROM`] and the following, are those of RoCE.
const HARDWARE: &[Name] = &[
    ("rx_write_requests", Some(Counter::Writes)),
    ("rx_read_requests", Some(Counter::Reads)),
    ("rx_atomic_requests", Some(Counter::Atomics)),
    ("out_of_buffer", Some(Counter::OutOfBuffer)),
    ("out_of_sequence", Some(Counter::OutOfSequence)),
    ("duplicate_request", Some(Counter::Duplicates)),
    ("rnr_nak_retry_err", Some(Counter::RnrNaks)),
    ("packet_seq_err", Some(Counter::SequenceNaks)),
    ("implied_nak_seq_err", Some(Counter::ImpliedNaks)),
    ("local_ack_timeout_err", Some(Counter::AckTimeouts)),
    ("resp_local_length_error", Some(Counter::ReceiveTooShort)),
    ("resp_cqe_error", Some(Counter::ReceiveErrors)),
    ("req_cqe_error", Some(Counter::RequestErrors)),
    ("req_remote_invalid_request", Some(Counter::RemoteInvalid)),
    ("req_remote_access_errors", Some(Counter::RemoteAccess)),
    ("resp_remote_access_errors", Some(Counter::AccessRefused)),
    ("resp_cqe_flush_error", Some(Counter::ReceivesFlushed)),
    ("req_cqe_flush_error", Some(Counter::RequestsFlushed)),
    ("roce_adp_retrans", None),
    ("roce_adp_retrans_to", None),
    ("roce_slow_restart", None),
    ("roce_slow_restart_cnps", None),
    ("roce_slow_restart_trans", None),
    ("rp_cnp_ignored", Some(Counter::NotificationsIgnored)),
    ("rp_cnp_handled", None),
    ("np_ecn_marked_roce_packets", Some(Counter::CongestionMarks)),
    ("np_cnp_sent", Some(Counter::NotificationsSent)),
    ("rx_icrc_encapsulated", Some(Counter::IcrcErrors)),
];
const ROCE_FROM: usize = 18;

/// Returns the names of a port's `hw_counters`.
pub(crate) fn hardware(link: Link) -> &'static [Name] {
    match link {
        Link::Ib => &HARDWARE[..ROCE_FROM],
        Link::Roce => HARDWARE,
    }
}

/// Returns the value of a name in the counters of a port.
pub(crate) fn value(row: &Row, (_, counter): Name) -> u64 {
    counter.map_or(0, |counter| row[counter as usize])
}

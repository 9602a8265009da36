//! The counters of the ports, and the names under which a host shows them.
//!
//! A NIC counts in memory that other processes of the fabric can read, so that the
//! counters of a device are the sums over its processes. Only the NIC writes there,
//! under its lock.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::core::Core;
use super::spec::PortAddress;
use crate::config::{Link, MAX_DEVICES, MAX_PORTS};
use crate::decode::cqe::{Cqe, Syndrome};

/// What a port counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Counter {
    /// Sent and received octets, in units of 4.
    SentWords,
    SentPackets,
    ReceivedWords,
    ReceivedPackets,
    /// Packets that were not sent since the port was down.
    Discarded,
    LinkDowned,
    /// Executed requests of peers.
    Writes,
    Reads,
    Atomics,
    /// Packets that found no receive.
    OutOfBuffer,
    OutOfSequence,
    Duplicates,
    /// Retries, by their causes.
    RnrNaks,
    SequenceNaks,
    ImpliedNaks,
    AckTimeouts,
    /// Completions with an error of requests and of receives, by kind.
    RequestErrors,
    RequestsFlushed,
    RemoteInvalid,
    RemoteAccess,
    ReceiveErrors,
    ReceivesFlushed,
    ReceiveTooShort,
    /// Accesses of peers that were refused.
    AccessRefused,
}

/// The number of counters of a port, with room for more.
const ROW: usize = 32;

/// The counters of one port, by [`Counter`].
pub(crate) type Row = [u64; ROW];

/// The number of counters of one NIC.
pub(crate) const CELLS: usize = MAX_DEVICES as usize * MAX_PORTS as usize * ROW;

/// Returns where the counters of a port begin in those of a NIC.
pub(crate) fn first_cell(at: PortAddress) -> usize {
    let port = usize::from(at.port.saturating_sub(1));
    (usize::from(at.device) * usize::from(MAX_PORTS) + port) * ROW
}

/// The counters of a NIC: [`CELLS`] words.
pub struct Counters(pub(crate) Box<dyn AsRef<[AtomicU64]> + Send>);

impl Default for Counters {
    /// Returns counters that no other process can read.
    fn default() -> Self {
        let mut cells = Vec::new();
        cells.resize_with(CELLS, AtomicU64::default);
        Self(Box::new(cells))
    }
}

impl Counters {
    fn add(&self, at: PortAddress, counts: &[(Counter, u64)]) {
        let first = first_cell(at);
        let cells = self.0.as_ref().as_ref();
        for &(counter, count) in counts {
            if let Some(cell) = cells.get(first + counter as usize) {
                // There is no other writer.
                cell.store(cell.load(Relaxed).wrapping_add(count), Relaxed);
            }
        }
    }

    pub(crate) fn row(&self, at: PortAddress) -> Row {
        let cells = self.0.as_ref().as_ref();
        std::array::from_fn(|counter| cells[first_cell(at) + counter].load(Relaxed))
    }

    /// Counts a packet of `octets` octets that a port has sent.
    pub(crate) fn sent(&self, at: PortAddress, octets: usize) {
        let words = octets as u64 / 4;
        self.add(
            at,
            &[(Counter::SentWords, words), (Counter::SentPackets, 1)],
        );
    }

    /// Counts a packet of `octets` octets that a port has received.
    pub(crate) fn received(&self, at: PortAddress, octets: usize) {
        let words = octets as u64 / 4;
        let counts = [
            (Counter::ReceivedWords, words),
            (Counter::ReceivedPackets, 1),
        ];
        self.add(at, &counts);
    }
}

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
    ("port_rcv_errors", None),
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
    ("rp_cnp_ignored", None),
    ("rp_cnp_handled", None),
    ("np_ecn_marked_roce_packets", None),
    ("np_cnp_sent", None),
    ("rx_icrc_encapsulated", None),
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

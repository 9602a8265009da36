//! The counters of the ports: those of one NIC, and the sums over the NICs of all
//! processes that are or were on the fabric.
//!
//! A NIC counts in memory that other processes of the fabric can read. Only the NIC
//! writes there, under its lock.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::directory::FabricDirectory;
use super::name::FabricName;
use super::segment::{self, Slot, counters_offset};
use crate::limits::{MAX_DEVICES, MAX_PORTS, MAX_PROCESSES};
use crate::spec::PortAddress;

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
    /// Packets of other hosts with a wrong invariant CRC, and others that are not valid.
    IcrcErrors,
    ReceiveFaults,
    /// Packets that say that there is congestion, notifications of it that were sent, and
    /// received ones, after which the NIC sends no slower.
    CongestionMarks,
    NotificationsSent,
    NotificationsIgnored,
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
    pub(crate) fn add(&self, at: PortAddress, counts: &[(Counter, u64)]) {
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

/// Returns the counters of a port, all 0 if there is no such fabric. Joins nothing.
pub(crate) fn of_port(name: &FabricName, at: PortAddress) -> Row {
    of_port_under(&FabricDirectory::bases(), name, at)
}

fn of_port_under(bases: &[PathBuf], name: &FabricName, at: PortAddress) -> Row {
    let mut sums = Row::default();
    let directory = FabricDirectory::find(bases, name);
    let file = directory.and_then(|it| File::open(it.segment_path()).ok());
    let Some(file) = file.filter(segment::has_layout) else {
        return sums;
    };
    for slot in 1..=MAX_PROCESSES as Slot {
        let mut row = [[0; 8]; size_of::<Row>() / 8];
        let offset = counters_offset(slot) + first_cell(at) * 8;
        if file
            .read_exact_at(row.as_flattened_mut(), offset as u64)
            .is_ok()
        {
            for (sum, cell) in sums.iter_mut().zip(row) {
                *sum = sum.wrapping_add(u64::from_ne_bytes(cell));
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::tests::Scratch;

    #[test]
    fn a_port_has_the_sums_of_its_processes_also_of_those_that_left() {
        let scratch = Scratch::new("counters");
        let at = PortAddress {
            device: 15,
            port: 2,
        };
        let packets = |row: Row| row[Counter::SentPackets as usize];
        let bases = [scratch.0.clone()];
        let row = || of_port_under(&bases, &FabricName::default(), at);
        assert_eq!(row(), Row::default(), "no fabric yet");
        let (one, two) = (scratch.join(), scratch.join());
        one.port_counters().unwrap().sent(at, 100);
        two.port_counters().unwrap().sent(at, 100);
        two.port_counters()
            .unwrap()
            .sent(PortAddress { port: 1, ..at }, 100);
        assert_eq!(packets(row()), 2);
        assert_eq!(row()[Counter::SentWords as usize], 50);
        drop(two);
        assert_eq!(packets(row()), 2);
        let again = scratch.join();
        again.port_counters().unwrap().sent(at, 100);
        assert_eq!(packets(row()), 3);
    }
}

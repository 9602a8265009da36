//! The counters of a port: the sums over the NICs of all processes that are or were on
//! the fabric.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::directory::FabricDirectory;
use super::name::FabricName;
use super::segment::{self, Slot, counters_offset};
use crate::limits::MAX_PROCESSES;
use crate::nic::counters::{Row, first_cell};
use crate::nic::spec::PortAddress;

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
    use crate::nic::counters::Counter;

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

//! Ports of the devices that are switched off on a fabric, for all its processes.
//!
//! A word in the fabric's segment has a bit for each port. `mlx5-emu port` changes
//! the word under the lock of the fabric and wakes every process. The runner of a
//! process compares the word with its own copy whenever it looks for packets, and
//! takes the ports down or up ([`PeerWaker::take_switched_ports`]).
//!
//! Every process of the user can write to the word. A bit for a port that a process
//! does not have changes nothing, and every value is a set of ports.
//!
//! [`PeerWaker::take_switched_ports`]: super::waker::PeerWaker::take_switched_ports

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::directory::{FabricDirectory, JoinError};
use super::name::FabricName;
use super::segment::{self, PORTS_OFF, Slot};
use crate::limits::{MAX_DEVICES, MAX_PORTS, MAX_PROCESSES};
use crate::spec::{PortAddress, PortSet};

/// An error that prevents switching a port.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// No process lives on the fabric.
    #[error(
        "no running program has opened a device of fabric {name} ({}); \
         name the fabric with --fabric, as for `mlx5-emu run`", list(.others)
    )]
    NoProcess {
        /// The fabric.
        name: FabricName,
        /// The fabrics with a living process.
        others: Vec<FabricName>,
    },
    /// No process has such a device.
    #[error("the programs on fabric {name} have no device mlx5_{device}: expected mlx5_0{}", up_to(.devices))]
    NoDevice {
        /// The fabric.
        name: FabricName,
        /// The number of the device.
        device: u8,
        /// The number of devices.
        devices: u8,
    },
    /// The devices have no such port.
    #[error("mlx5_{device} on fabric {name} has no port {port}: expected 1{}", if *.ports > 1 { " or 2" } else { "" })]
    NoPort {
        /// The fabric.
        name: FabricName,
        /// The number of the device.
        device: u8,
        /// The number of the port.
        port: u8,
        /// The number of ports.
        ports: u8,
    },
    /// The files of the fabric cannot be used.
    #[error(transparent)]
    Files(#[from] JoinError),
}

fn list(others: &[FabricName]) -> String {
    if others.is_empty() {
        return "nor of another one".to_owned();
    }
    let names: Vec<_> = others.iter().map(FabricName::as_str).collect();
    format!("but of: {}", names.join(", "))
}

fn up_to(devices: &u8) -> String {
    match devices {
        0 | 1 => String::new(),
        more => format!(" to mlx5_{}", more - 1),
    }
}

/// Switches a port on or off for all processes of a fabric. Returns how many
/// processes there are.
///
/// # Errors
/// Returns [`SwitchError`].
pub fn switch(name: &FabricName, port: PortAddress, on: bool) -> Result<usize, SwitchError> {
    switch_under(&FabricDirectory::bases(), name, port, on)
}

/// Returns the ports that are switched off on a fabric. Joins nothing.
#[must_use]
pub fn switched_off(name: &FabricName) -> PortSet {
    switched_off_under(&FabricDirectory::bases(), name)
}

fn switch_under(
    bases: &[PathBuf],
    name: &FabricName,
    port: PortAddress,
    on: bool,
) -> Result<usize, SwitchError> {
    let no_process = || SwitchError::NoProcess {
        name: name.clone(),
        others: FabricDirectory::living(bases),
    };
    let directory = FabricDirectory::find(bases, name).ok_or_else(no_process)?;
    let _lock = directory.lock()?.ok_or_else(no_process)?;
    let living = living(&directory);
    if living.is_empty() {
        return Err(no_process());
    }
    let file = directory.segment()?;
    if !segment::has_layout(&file) {
        return Err(JoinError::Version { name: name.clone() }.into());
    }
    let shapes = living.iter().filter_map(|&slot| shape_of(&file, slot));
    let all = (MAX_DEVICES, MAX_PORTS);
    let (devices, ports) = shapes
        .reduce(|one, other| (one.0.max(other.0), one.1.max(other.1)))
        .unwrap_or(all);
    let name = || name.clone();
    let (device, number) = (port.device, port.port);
    if device >= devices {
        return Err(SwitchError::NoDevice {
            name: name(),
            device,
            devices,
        });
    }
    if !(1..=ports).contains(&number) {
        return Err(SwitchError::NoPort {
            name: name(),
            device,
            port: number,
            ports,
        });
    }
    let switched = |word| {
        let off = set_of_word(word).with(port, !on);
        u64::from(request_of_word(word)) << 32 | u64::from(off.bits())
    };
    let changed = change_word(&directory, &file, &living, switched);
    changed.map_err(|source| JoinError::file(directory.segment_path(), source))?;
    Ok(living.len())
}

/// Returns the slots with a living process.
pub(super) fn living(directory: &FabricDirectory) -> Vec<Slot> {
    let slots = 1..=MAX_PROCESSES as Slot;
    slots.filter(|&slot| directory.is_alive(slot)).collect()
}

/// Changes the word of the segment, and wakes the living processes. Returns the new word.
/// The caller holds the lock of the fabric.
pub(super) fn change_word(
    directory: &FabricDirectory,
    file: &File,
    living: &[Slot],
    change: impl Fn(u64) -> u64,
) -> io::Result<u64> {
    if !segment::has_layout(file) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let word = change(read_word(file)?);
    // In one store: the others read it at any time.
    file.write_all_at(&word.to_ne_bytes(), PORTS_OFF as u64)?;
    for &slot in living {
        if let Ok(mut fifo) = directory.fifo(slot, false) {
            // A full FIFO wakes the process too.
            let _ = fifo.write(&[1]);
        }
    }
    Ok(word)
}

fn switched_off_under(bases: &[PathBuf], name: &FabricName) -> PortSet {
    let directory = FabricDirectory::find(bases, name);
    let file = directory.and_then(|it| File::open(it.segment_path()).ok());
    let file = file.filter(segment::has_layout);
    let word = file.and_then(|file| read_word(&file).ok());
    word.map_or_else(PortSet::default, set_of_word)
}

/// Returns the number of the last request for a report, in the upper half of the word:
/// see [`super::reports`].
pub(super) fn request_of_word(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Returns the set in the word of the segment.
pub(super) fn set_of_word(word: u64) -> PortSet {
    PortSet::from_bits(word as u32)
}

fn read_word(file: &File) -> io::Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, PORTS_OFF as u64)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Returns the word that shows how many devices, and ports of each, a process has.
pub(super) fn shape(devices: u8, ports: u8) -> u32 {
    u32::from(devices) << 8 | u32::from(ports)
}

/// Returns the numbers of devices and ports of a process, if it shows valid ones.
fn shape_of(file: &File, slot: Slot) -> Option<(u8, u8)> {
    let mut bytes = [0; 4];
    let offset = segment::shape_offset(slot) as u64;
    file.read_exact_at(&mut bytes, offset).ok()?;
    let [ports, devices] = u16::try_from(u32::from_ne_bytes(bytes)).ok()?.to_le_bytes();
    let is_valid = (1..=MAX_DEVICES).contains(&devices) && (1..=MAX_PORTS).contains(&ports);
    is_valid.then_some((devices, ports))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fabric::attachment::Attachment;
    use crate::fabric::segment::tests::slot_offset;
    use crate::fabric::tests::{Scratch, readable};

    const PORT: PortAddress = PortAddress { device: 1, port: 2 };

    fn taken(attachment: &Attachment) -> Option<PortSet> {
        attachment.waker().take_switched_ports()
    }

    fn joined(scratch: &Scratch) -> Attachment {
        let attachment = scratch.join();
        attachment.waker().announce(2, 2);
        attachment
    }

    fn switch_in(scratch: &Scratch, port: PortAddress, on: bool) -> Result<usize, String> {
        let bases = [scratch.0.clone()];
        switch_under(&bases, &FabricName::default(), port, on).map_err(|error| error.to_string())
    }

    #[test]
    fn every_process_finds_a_switched_port_and_is_woken() {
        let scratch = Scratch::new("ports-switch");
        let bases = [scratch.0.clone()];
        let (one, two) = (joined(&scratch), joined(&scratch));
        assert_eq!((taken(&one), taken(&two)), (None, None));
        assert_eq!(switch_in(&scratch, PORT, false), Ok(2));
        let off = PortSet::default().with(PORT, true);
        for process in [&one, &two] {
            assert!(readable(process, Duration::ZERO) && process.waker().has_pending());
            assert_eq!(taken(process), Some(off));
            assert_eq!(taken(process), None);
            assert!(!process.waker().has_pending());
        }
        // One that joins later finds the port switched off.
        let three = joined(&scratch);
        assert_eq!(taken(&three), Some(off));
        assert_eq!(switched_off_under(&bases, &FabricName::default()), off);
        assert_eq!(switch_in(&scratch, PORT, true), Ok(3));
        assert_eq!(taken(&one), Some(PortSet::default()));
        // The state ends with the last process.
        switch_in(&scratch, PORT, false).unwrap();
        drop((one, two, three));
        let next = joined(&scratch);
        assert_eq!(taken(&next), None);
        let off = switched_off_under(&bases, &FabricName::default());
        assert!(off.is_empty());
    }

    #[test]
    fn what_is_not_there_is_refused_with_what_is() {
        let scratch = Scratch::new("ports-names");
        let error = switch_in(&scratch, PORT, false).unwrap_err();
        let expected =
            "no running program has opened a device of fabric default (nor of another one)";
        assert!(error.starts_with(expected), "{error}");
        let one = scratch.join();
        one.waker().announce(1, 1);
        let error = switch_in(&scratch, PORT, false).unwrap_err();
        let expected = "the programs on fabric default have no device mlx5_1: expected mlx5_0";
        assert_eq!(error, expected);
        let port = PortAddress { device: 0, port: 2 };
        let error = switch_in(&scratch, port, false).unwrap_err();
        assert_eq!(error, "mlx5_0 on fabric default has no port 2: expected 1");
        let two = joined(&scratch);
        assert_eq!(switch_in(&scratch, PORT, false), Ok(2));
        assert!(switch_in(&scratch, PortAddress { device: 2, port: 1 }, true).is_err());
        let other = FabricName::new("other").unwrap();
        let error =
            switch_under(std::slice::from_ref(&scratch.0), &other, PORT, false).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("fabric other (but of: default)"), "{error}");
        drop(two);
        // As if killed: the files stay, the slots are free.
        let directory = one.directory().to_owned();
        let saved = std::fs::read(directory.join("slot-01.lock")).unwrap();
        drop(one);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("slot-01.lock"), saved).unwrap();
        let error = switch_in(&scratch, PORT, false).unwrap_err();
        assert!(error.starts_with("no running program"), "{error}");
    }

    #[test]
    fn garbage_in_the_words_switches_ports_at_most() {
        let scratch = Scratch::new("ports-garbage");
        let one = joined(&scratch);
        let file = File::options()
            .read(true)
            .write(true)
            .open(one.directory().join("segment"))
            .unwrap();
        let put = |offset: usize, bytes: &[u8]| file.write_all_at(bytes, offset as u64).unwrap();
        put(PORTS_OFF, &u64::MAX.to_ne_bytes());
        assert_eq!(taken(&one), Some(PortSet::from_bits(u32::MAX)));
        assert_eq!(taken(&one), None);
        put(PORTS_OFF, &(1_u64 << 40).to_ne_bytes());
        assert_eq!(taken(&one), Some(PortSet::default()));
        // A shape that is not valid does not count.
        put(slot_offset(1) + 12, &0xffff_ffff_u32.to_ne_bytes());
        assert_eq!(switch_in(&scratch, PORT, false), Ok(1));
        assert_eq!(taken(&one), Some(PortSet::default().with(PORT, true)));
        // The process has the file mapped, so its length is restored.
        let length = file.metadata().unwrap().len();
        file.set_len(100).unwrap();
        let error = switch_in(&scratch, PORT, true).unwrap_err();
        file.set_len(length).unwrap();
        assert!(error.contains("another version"), "{error}");
    }
}

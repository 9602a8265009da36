//! What the processes of a fabric use of the one host that they share: ports,
//! and services that they listen to.
//!
//! Ports are ranges of bytes of the file `ports`, locked with open-file-
//! description locks (`fcntl(2)`): the kernel finds conflicts between processes
//! and releases the locks of a process that dies. Nothing is written to the
//! file.
//!
//! The services of a process are in the file `slot-NN.services`, which the
//! process replaces as a whole. Files of processes that have died are ignored.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::directory::FabricDirectory;
use crate::hidden::HiddenFile;
use crate::limits::MAX_PROCESSES;

/// Largest file of services that is read: 2 MiB, a listener on each port.
const MAX_FILE: u64 = 2 << 20;
/// Largest report that is read: 256 MiB, more than a million objects.
const MAX_REPORT: u64 = 256 << 20;
/// Size of the record of a service in bytes.
const RECORD: usize = 32;

/// A service that a process listens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) id: u64,
    /// The family of the address: 4, 6, or 0 for InfiniBand.
    pub(crate) family: u8,
    /// Whether the service is at any address, and then whether of this family
    /// only.
    pub(crate) scope: Scope,
    /// The address, an IPv4 address in the first 4 bytes.
    pub(crate) address: [u8; 16],
}

/// The addresses of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// One address.
    One,
    /// All addresses of the family.
    Family,
    /// All addresses.
    All,
}

/// Another process holds a conflicting lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// Number of bytes that the other process has locked, 0 up to the end of
    /// the file.
    pub(crate) len: i64,
}

/// Where the files of a fabric are, and which process this is.
#[derive(Clone, Debug)]
pub(crate) struct ProcessSlot {
    directory: FabricDirectory,
    slot: u8,
}

/// The ports and services of the processes of a fabric.
#[derive(Debug)]
pub(crate) struct Registry {
    place: ProcessSlot,
    ports: HiddenFile,
}

impl ProcessSlot {
    pub(super) fn new(directory: FabricDirectory, slot: u8) -> Self {
        Self { directory, slot }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Replaces the report of this process, for a request.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub(super) fn publish_report(&self, request: u32, report: &[u8]) -> io::Result<()> {
        let path = self.report_path();
        let new = path.with_extension("report-new");
        let bytes = [&request.to_ne_bytes(), report].concat();
        options().truncate(true).open(&new)?.write_all(&bytes)?;
        std::fs::rename(new, path)
    }

    /// Returns the last report of this process and its request.
    pub(super) fn report(&self) -> Option<(u32, Vec<u8>)> {
        let mut bytes = read(&self.report_path(), MAX_REPORT)?;
        let request = u32::from_ne_bytes(*bytes.first_chunk()?);
        bytes.drain(..size_of::<u32>());
        Some((request, bytes))
    }

    fn report_path(&self) -> PathBuf {
        self.path().join(format!("slot-{:02}.report", self.slot))
    }

    fn services(&self, slot: u8) -> PathBuf {
        self.path().join(format!("slot-{slot:02}.services"))
    }
}

impl Registry {
    /// Opens the files.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub(crate) fn open(place: ProcessSlot) -> io::Result<Self> {
        let ports = options().read(true).open(place.path().join("ports"))?;
        let ports = HiddenFile::new(ports);
        // A former process may have left its services in this slot.
        let _ = std::fs::remove_file(place.services(place.slot));
        Ok(Self { place, ports })
    }

    /// Locks a range of the file of ports, shared with others that lock it
    /// shared, or for this process alone. The ranges of one process do not
    /// conflict with each other.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub(crate) fn lock(
        &self,
        range: &Range<i64>,
        shared: bool,
    ) -> io::Result<Result<(), Conflict>> {
        let kind = if shared { libc::F_RDLCK } else { libc::F_WRLCK };
        let lock = lock_of(range, kind);
        if self.control(libc::F_OFD_SETLK, lock)?.is_some() {
            return Ok(Ok(()));
        }
        let holder = self.control(libc::F_OFD_GETLK, lock)?;
        let len = holder.map_or(1, |holder| holder.l_len);
        Ok(Err(Conflict { len }))
    }

    /// Releases a range.
    pub(crate) fn unlock(&self, range: &Range<i64>) {
        // Fails only for lack of memory; then the range stays locked.
        let _ = self.control(libc::F_OFD_SETLK, lock_of(range, libc::F_UNLCK));
    }

    /// Applies a lock command. Returns the lock as the command leaves it, or
    /// `None` if another process holds a conflicting one.
    fn control(&self, command: i32, mut lock: libc::flock) -> io::Result<Option<libc::flock>> {
        // SAFETY: the descriptor is open and `lock` lives through the call.
        if unsafe { libc::fcntl(self.ports.as_raw_fd(), command, &raw mut lock) } == 0 {
            return Ok(Some(lock));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => Ok(None),
            _ => Err(error),
        }
    }

    /// Replaces the services of this process.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub(crate) fn publish(&self, services: &[Service]) -> io::Result<()> {
        let path = self.place.services(self.place.slot);
        if services.is_empty() {
            return match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let new = path.with_extension("services-new");
        let bytes: Vec<u8> = services.iter().flat_map(encode).collect();
        options().truncate(true).open(&new)?.write_all(&bytes)?;
        std::fs::rename(new, path)
    }

    /// Returns the other processes that live and their services.
    pub(crate) fn services_of_others(&self) -> Vec<(u8, Vec<Service>)> {
        let own = self.place.slot;
        (1..=MAX_PROCESSES as u8)
            .filter(|&slot| slot != own)
            .filter_map(|slot| {
                let services = read(&self.place.services(slot), MAX_FILE)?;
                let services = services.chunks_exact(RECORD).filter_map(decode).collect();
                let lives = self.place.directory.is_alive(slot);
                lives.then_some((slot, services))
            })
            .collect()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.publish(&[]);
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW);
    options
}

fn lock_of(range: &Range<i64>, kind: i32) -> libc::flock {
    // SAFETY: flock is a C struct of integers, for which zero is valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = range.start;
    lock.l_len = range.end - range.start;
    lock
}

fn read(path: &Path, limit: u64) -> Option<Vec<u8>> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .ok()?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn encode(service: &Service) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[..8].copy_from_slice(&service.id.to_be_bytes());
    record[8] = service.family;
    record[9] = match service.scope {
        Scope::One => 0,
        Scope::Family => 1,
        Scope::All => 2,
    };
    record[16..].copy_from_slice(&service.address);
    record
}

fn decode(record: &[u8]) -> Option<Service> {
    Some(Service {
        id: u64::from_be_bytes(record[..8].try_into().ok()?),
        family: Some(record[8]).filter(|family| [0, 4, 6].contains(family))?,
        scope: match record[9] {
            0 => Scope::One,
            1 => Scope::Family,
            2 => Scope::All,
            _ => return None,
        },
        address: record[16..].try_into().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::tests::Scratch;

    fn service(id: u64) -> Service {
        Service {
            id,
            family: 4,
            scope: Scope::All,
            address: [1; 16],
        }
    }

    #[test]
    fn processes_see_the_services_of_others_until_they_leave() {
        let scratch = Scratch::new("services");
        let (one, two) = (scratch.join(), scratch.join());
        let first = Registry::open(one.place()).unwrap();
        let second = Registry::open(two.place()).unwrap();
        assert_eq!(second.services_of_others(), []);
        first.publish(&[service(7), service(8)]).unwrap();
        let expected = vec![service(7), service(8)];
        assert_eq!(second.services_of_others(), [(one.slot(), expected)]);
        assert_eq!(first.services_of_others(), []);
        // As if killed: the file stays, the slot is free.
        std::mem::forget(first);
        drop(one);
        assert_eq!(second.services_of_others(), []);
    }

    #[test]
    fn exclusive_ranges_conflict_between_processes_and_shared_ones_do_not() {
        let scratch = Scratch::new("ports");
        let (one, two) = (scratch.join(), scratch.join());
        let first = Registry::open(one.place()).unwrap();
        let second = Registry::open(two.place()).unwrap();
        let (all, byte) = (0..100, 40..41);
        first.lock(&all, false).unwrap().unwrap();
        first.lock(&byte, false).unwrap().unwrap();
        assert_eq!(
            second.lock(&byte, true).unwrap(),
            Err(Conflict { len: 100 })
        );
        first.unlock(&all);
        first.lock(&byte, true).unwrap().unwrap();
        second.lock(&byte, true).unwrap().unwrap();
        assert_eq!(second.lock(&byte, false).unwrap(), Err(Conflict { len: 1 }));
        drop(first);
        second.lock(&all, false).unwrap().unwrap();
    }

    #[test]
    fn garbage_in_a_file_of_services_is_ignored() {
        let scratch = Scratch::new("garbage-services");
        let (one, two) = (scratch.join(), scratch.join());
        let registry = Registry::open(one.place()).unwrap();
        let path = one.place().services(two.slot());
        let mut bytes = vec![0xff; 3 * RECORD + 5];
        bytes[RECORD..2 * RECORD].copy_from_slice(&encode(&service(9)));
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(
            registry.services_of_others(),
            [(two.slot(), vec![service(9)])]
        );
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert_eq!(registry.services_of_others(), []);
    }
}

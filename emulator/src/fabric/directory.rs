//! The directory in which the processes of a fabric meet. Only this user can
//! access it.
//!
//! ```text
//! /dev/shm/mlx5emu-UID/NAME/
//!   lock           held while joining and leaving
//!   segment        shared memory: slot table and packet rings
//!   slot-NN.lock   held by the process in slot NN
//!   slot-NN.wake   FIFO that wakes its NIC thread
//!   ports, slot-NN.services   see `registry`
//! ```
//!
//! Any user can create names in `/dev/shm`. If `mlx5emu-UID` is not a private
//! directory of this user, the processes use `mlx5emu-UID-1` to
//! `mlx5emu-UID-7`, and then the same names in `/run/user/UID`, `$TMPDIR` and
//! `/tmp`. A fabric that exists in one of these locations is joined there, so
//! that processes meet even if a preferred location becomes free or occupied.
//!
//! Locks are open-file-description locks (`fcntl(2)`, `F_OFD_SETLK`): the kernel
//! releases them however a process dies, a reused process id is not mistaken for
//! a living process, and two attachments of one process exclude each other.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::name::FabricName;
use crate::hidden::HiddenFile;
use crate::limits::MAX_PROCESSES;

/// An error that prevents joining a fabric.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// A file of the fabric cannot be used.
    #[error("fabric file {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// No location of the directory is private to this user.
    #[error(
        "no private directory for the fabric's files: {0}, and no other location is usable; \
         remove it, or set TMPDIR to a private directory of this user"
    )]
    Untrusted(UntrustedEntry),
    /// The file system is full.
    #[error(
        "no space left for fabric file {}: free some space, or enlarge the file system \
         (in docker: --shm-size=1g)",
        path.display()
    )]
    NoSpace {
        /// The file.
        path: PathBuf,
    },
    /// Another process holds the lock for too long.
    #[error("another process has held {} for 5 seconds; check whether it is stopped, for example in a debugger", .0.display())]
    Locked(PathBuf),
    /// Living processes use another layout of the shared memory.
    #[error(
        "fabric {name} is in use by another version of this emulator; \
         end its processes, or choose another name with --fabric"
    )]
    Version {
        /// The fabric.
        name: FabricName,
    },
    /// All slots are in use.
    #[error("fabric {name} is full: {limit} processes are on it; choose another with --fabric")]
    Full {
        /// The fabric.
        name: FabricName,
        /// The number of slots.
        limit: u32,
    },
}

impl JoinError {
    /// Returns the error of a system call on a file of the fabric.
    pub(super) fn file(path: PathBuf, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => Self::NoSpace { path },
            _ => Self::File { path, source },
        }
    }
}

/// A path that is not a private directory of this user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} {kind}", path.display())]
pub struct UntrustedEntry {
    /// The path.
    pub path: PathBuf,
    /// The reason.
    pub kind: UntrustedKind,
}

/// Reasons why a directory cannot be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UntrustedKind {
    /// It is a file, a symbolic link or the like.
    #[error("is not a directory")]
    NoDirectory,
    /// It belongs to another user.
    #[error("belongs to user {0}")]
    OtherUser(u32),
    /// Other users have permissions on it.
    #[error("is open to other users (mode {0:03o})")]
    Open(u32),
}

#[derive(Clone, Debug)]
pub(super) struct FabricDirectory {
    path: PathBuf,
    /// The untrusted entries in preferred locations.
    untrusted_entries: Vec<UntrustedEntry>,
}

const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of names tried in each base directory.
const NAMES: u32 = 8;
/// Maximum number of attempts to create the directory while others remove it.
const ATTEMPTS: u32 = 1000;

impl FabricDirectory {
    /// Returns the first location in which the directory exists, or creates it in
    /// the first location that can be trusted.
    pub(super) fn create(bases: &[PathBuf], name: &FabricName) -> Result<Self, JoinError> {
        let parents = parents(bases);
        for _ in 0..ATTEMPTS {
            match Self::create_in(&parents, name) {
                // The last process of a fabric has just removed the parent.
                Err(JoinError::File { source, .. }) if is_missing(&source) => {}
                done => return done,
            }
        }
        Self::create_in(&parents, name)
    }

    fn create_in(parents: &[PathBuf], name: &FabricName) -> Result<Self, JoinError> {
        let mut untrusted_entries = Vec::new();
        for parent in parents {
            let path = parent.join(name.as_str());
            match inspect(parent) {
                Ok(None) if matches!(inspect(&path), Ok(None)) => {
                    return Ok(Self {
                        path,
                        untrusted_entries,
                    });
                }
                Ok(None) => {}
                Ok(Some(kind)) => untrusted_entries.push(UntrustedEntry {
                    path: parent.clone(),
                    kind,
                }),
                Err(_) => {}
            }
        }
        untrusted_entries.clear();
        let mut first_error = None;
        for parent in parents {
            let path = parent.join(name.as_str());
            match private_directory(parent).and_then(|()| private_directory(&path)) {
                Ok(()) => {
                    return Ok(Self {
                        path,
                        untrusted_entries,
                    });
                }
                Err(JoinError::Untrusted(foreign)) => untrusted_entries.push(foreign),
                // Another process has just removed the parent: try again.
                Err(JoinError::File { path, source }) if is_missing(&source) => {
                    return Err(JoinError::File { path, source });
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        Err(match (first_error, untrusted_entries.into_iter().next()) {
            (Some(error), _) => error,
            (None, Some(foreign)) => JoinError::Untrusted(foreign),
            (None, None) => JoinError::file("/dev/shm".into(), io::ErrorKind::NotFound.into()),
        })
    }

    /// Returns the directory of a fabric that exists.
    pub(super) fn find(bases: &[PathBuf], name: &FabricName) -> Option<Self> {
        let is_private = |path: &PathBuf| matches!(inspect(path), Ok(None));
        let parents = parents(bases).into_iter().filter(is_private);
        let path = parents.map(|it| it.join(name.as_str())).find(is_private)?;
        Some(Self {
            path,
            untrusted_entries: Vec::new(),
        })
    }

    /// Returns the names of the fabrics with a living process.
    pub(super) fn living(bases: &[PathBuf]) -> Vec<FabricName> {
        let entries = parents(bases).into_iter().flat_map(fs::read_dir);
        let names = entries.flatten().flatten().map(|entry| entry.file_name());
        let names = names.filter_map(|name| FabricName::new(name.to_str()?).ok());
        let lives = |name: &FabricName| Self::find(bases, name).is_some_and(|it| !it.is_dead());
        names.filter(lives).collect()
    }

    /// Returns the base directories in order of preference. All processes of a
    /// user compute the same list.
    pub(super) fn bases() -> Vec<PathBuf> {
        let user = user();
        let candidates = [
            PathBuf::from("/dev/shm"),
            // Only this user can create entries there.
            PathBuf::from(format!("/run/user/{user}")),
            std::env::temp_dir(),
            PathBuf::from("/tmp"),
        ];
        let mut bases: Vec<PathBuf> = Vec::new();
        for base in candidates {
            if base.is_dir() && !bases.contains(&base) {
                bases.push(base);
            }
        }
        bases
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the untrusted entries in preferred locations.
    pub(super) fn untrusted_entries(&self) -> &[UntrustedEntry] {
        &self.untrusted_entries
    }

    /// Removes the fabrics of this user whose processes are all dead, which
    /// happens if the last ones were killed.
    pub(super) fn sweep(bases: &[PathBuf]) {
        let trusted = |parent: &PathBuf| matches!(inspect(parent), Ok(None));
        for parent in parents(bases).into_iter().filter(trusted) {
            let Ok(entries) = fs::read_dir(&parent) else {
                continue;
            };
            for entry in entries.flatten() {
                let path = entry.path();
                let is_fabric = entry
                    .file_name()
                    .to_str()
                    .is_some_and(|name| FabricName::new(name).is_ok());
                if is_fabric && matches!(inspect(&path), Ok(None)) {
                    let untrusted_entries = Vec::new();
                    Self {
                        path,
                        untrusted_entries,
                    }
                    .remove_if_dead();
                }
            }
        }
    }

    fn remove_if_dead(&self) {
        let Ok(lock) = open_existing(&self.path.join("lock")) else {
            // A joining process has created the directory and not yet the lock
            // in it. The directory is removed only if it stays empty.
            let _ = fs::remove_dir(&self.path);
            if let Some(parent) = self.path.parent() {
                let _ = fs::remove_dir(parent);
            }
            return;
        };
        if !matches!(try_lock(&lock), Ok(true)) || !self.is_named(&lock) {
            return;
        }
        if self.is_dead() {
            self.remove();
        }
    }

    /// Returns whether no process lives on the fabric. The caller holds the
    /// lock, so that none can join.
    pub(super) fn is_dead(&self) -> bool {
        (1..=MAX_PROCESSES as u8).all(|slot| !self.is_alive(slot))
    }

    /// Locks the fabric for joining or leaving. Returns `None` if the directory
    /// was removed in the meantime; the caller then creates it again.
    pub(super) fn lock(&self) -> Result<Option<HiddenFile>, JoinError> {
        let path = self.path.join("lock");
        let file = match open(&path) {
            Err(JoinError::File { source, .. }) if is_missing(&source) => return Ok(None),
            other => HiddenFile::new(other?),
        };
        let deadline = Instant::now() + LOCK_TIMEOUT;
        while !try_lock(&file).map_err(|source| JoinError::file(path.clone(), source))? {
            if Instant::now() > deadline {
                return Err(JoinError::Locked(path));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(self.is_named(&file).then_some(file))
    }

    /// Returns whether the locked file is still the one of that name.
    fn is_named(&self, lock: &File) -> bool {
        match (fs::metadata(self.path.join("lock")), lock.metadata()) {
            (Ok(named), Ok(held)) => (named.dev(), named.ino()) == (held.dev(), held.ino()),
            _ => false,
        }
    }

    pub(super) fn segment(&self) -> Result<File, JoinError> {
        open(&self.segment_path())
    }

    pub(super) fn segment_path(&self) -> PathBuf {
        self.path.join("segment")
    }

    /// Locks a slot for this process. Returns `None` if the slot is in use.
    pub(super) fn take_slot(&self, slot: u8) -> Result<Option<HiddenFile>, JoinError> {
        let path = self.slot_path(slot);
        let file = HiddenFile::new(open(&path)?);
        match try_lock(&file) {
            Ok(taken) => Ok(taken.then_some(file)),
            Err(source) => Err(JoinError::file(path, source)),
        }
    }

    /// Returns whether a process lives in a slot; `true` if that cannot be determined.
    pub(super) fn is_alive(&self, slot: u8) -> bool {
        match open_existing(&self.slot_path(slot)) {
            Ok(file) => is_locked(&file).unwrap_or(true),
            Err(error) => !is_missing(&error),
        }
    }

    /// Opens the FIFO of a slot for reading and writing. The FIFO then always
    /// has a reader and a writer, so neither end-of-file nor `SIGPIPE` occurs.
    pub(super) fn fifo(&self, slot: u8, create: bool) -> Result<File, JoinError> {
        let path = self.path.join(format!("slot-{slot:02}.wake"));
        let error = |source| JoinError::file(path.clone(), source);
        if create {
            let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes())
                .map_err(|nul| error(nul.into()))?;
            // SAFETY: `name` is a C string that outlives the call.
            let made = unsafe { libc::mkfifo(name.as_ptr(), 0o600) };
            let failure = io::Error::last_os_error();
            if made != 0 && failure.kind() != io::ErrorKind::AlreadyExists {
                return Err(error(failure));
            }
        }
        let file = options()
            .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW)
            .open(&path);
        let file = file.map_err(error)?;
        if file.metadata().is_ok_and(|data| data.file_type().is_fifo()) {
            return Ok(file);
        }
        Err(error(io::Error::new(
            io::ErrorKind::InvalidData,
            "not a FIFO",
        )))
    }

    /// Removes the directory and its files. The caller holds the lock, and no
    /// other process is on the fabric.
    pub(super) fn remove(&self) {
        if let Ok(entries) = fs::read_dir(&self.path) {
            for entry in entries
                .flatten()
                .filter(|entry| entry.file_name() != *"lock")
            {
                let _ = fs::remove_file(entry.path());
            }
        }
        // The lock file goes last: a process that waits for it then finds that
        // the file has no name any more.
        let _ = fs::remove_file(self.path.join("lock"));
        let _ = fs::remove_dir(&self.path);
        if let Some(parent) = self.path.parent() {
            // Fails, as it should, while the parent holds another fabric.
            let _ = fs::remove_dir(parent);
        }
    }

    fn slot_path(&self, slot: u8) -> PathBuf {
        self.path.join(format!("slot-{slot:02}.lock"))
    }
}

/// Returns the directories that may hold this user's fabrics, in order of
/// preference.
fn parents(bases: &[PathBuf]) -> Vec<PathBuf> {
    let user = user();
    let names = |base: &PathBuf| {
        let base = base.clone();
        (0..NAMES).map(move |n| match n {
            0 => base.join(format!("mlx5emu-{user}")),
            n => base.join(format!("mlx5emu-{user}-{n}")),
        })
    };
    bases.iter().flat_map(names).collect()
}

fn user() -> u32 {
    // SAFETY: geteuid(2) cannot fail and touches no memory.
    unsafe { libc::geteuid() }
}

/// Returns why a path is not a private directory of this user, or `None` if it
/// is one.
fn inspect(path: &Path) -> io::Result<Option<UntrustedKind>> {
    // A symbolic link is not followed: it is not a directory.
    let data = fs::symlink_metadata(path)?;
    Ok(if !data.is_dir() {
        Some(UntrustedKind::NoDirectory)
    } else if data.uid() != user() {
        Some(UntrustedKind::OtherUser(data.uid()))
    } else if data.mode() & 0o077 != 0 {
        Some(UntrustedKind::Open(data.mode() & 0o777))
    } else {
        None
    })
}

/// Creates a directory that only this user can access, unless it exists.
fn private_directory(path: &Path) -> Result<(), JoinError> {
    let error = |source| JoinError::file(path.to_owned(), source);
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {}
        Err(source) => return Err(error(source)),
    }
    match inspect(path).map_err(error)? {
        None => Ok(()),
        Some(kind) => Err(JoinError::Untrusted(UntrustedEntry {
            path: path.to_owned(),
            kind,
        })),
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options
}

fn open(path: &Path) -> Result<File, JoinError> {
    options()
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
        .map_err(|source| JoinError::file(path.to_owned(), source))
}

fn open_existing(path: &Path) -> io::Result<File> {
    options().custom_flags(libc::O_NOFOLLOW).open(path)
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn whole_file() -> libc::flock {
    // SAFETY: flock is a C struct of integers, for which zero is valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}

fn try_lock(file: &File) -> io::Result<bool> {
    let lock = whole_file();
    // SAFETY: the descriptor is open and `lock` lives through the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}

fn is_locked(file: &File) -> io::Result<bool> {
    let mut lock = whole_file();
    // SAFETY: as for `try_lock`; F_OFD_GETLK writes into `lock`.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(lock.l_type != libc::F_UNLCK as libc::c_short)
}

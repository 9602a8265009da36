//! Where the processes of a fabric meet: a directory of files that only this
//! user can reach.
//!
//! ```text
//! /dev/shm/mlx5emu-UID/NAME/
//!   lock           held while joining and leaving
//!   segment        shared memory: slots and packet rings
//!   slot-NN.lock   held by the process that lives in slot NN
//!   slot-NN.wake   FIFO that wakes its NIC thread
//! ```
//!
//! Any user can create names in `/dev/shm`. If `mlx5emu-UID` is not a private
//! directory of this user, the processes use `mlx5emu-UID-1` to
//! `mlx5emu-UID-7`, and then the same names in `/run/user/UID`, `$TMPDIR` and
//! `/tmp`. A fabric that exists in one of these places is joined there, so
//! that processes meet although the foreign entry comes or goes.
//!
//! Locks are open-file-description locks (`fcntl(2)`, `F_OFD_SETLK`): the
//! kernel drops them when a process dies in whatever way, they do not mistake
//! a recycled process id for a living process, and two attachments of one
//! process exclude each other as well.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::name::FabricName;
use crate::limits::MAX_PROCESSES;

/// Why a fabric cannot be joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// A file of the fabric cannot be used.
    #[error("fabric file {}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Other users own, or can enter, every place where the directory could be.
    #[error(
        "no place for the fabric's files: {0}, and so are all other places; \
         remove them, or set TMPDIR to a directory of this user"
    )]
    Untrusted(Foreign),
    /// The file system is full.
    #[error(
        "no space left for fabric file {}: free some, or enlarge the file system \
         (in docker: --shm-size=1g)",
        path.display()
    )]
    NoSpace {
        /// The file.
        path: PathBuf,
    },
    /// Another process does not let go of the lock.
    #[error("another process holds {} for seconds; is one stopped in a debugger?", .0.display())]
    Locked(PathBuf),
    /// Living processes use another layout.
    #[error(
        "fabric {name} is in use by another version of this emulator; \
         end those processes, or choose another name with --fabric"
    )]
    Version {
        /// The fabric.
        name: FabricName,
    },
    /// All slots are taken.
    #[error("fabric {name} is full: {limit} processes are on it; choose another with --fabric")]
    Full {
        /// The fabric.
        name: FabricName,
        /// How many it takes.
        limit: u32,
    },
}

impl JoinError {
    /// What the system said about a file of the fabric.
    pub(super) fn file(path: PathBuf, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => Self::NoSpace { path },
            _ => Self::File { path, source },
        }
    }
}

/// An entry that is not a private directory of this user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} {how}", path.display())]
pub struct Foreign {
    /// The entry.
    pub path: PathBuf,
    /// What it is instead.
    pub how: ForeignKind,
}

/// Why a directory cannot be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForeignKind {
    /// A file, a symbolic link or the like.
    #[error("is not a directory")]
    NoDirectory,
    /// The directory of another user.
    #[error("belongs to user {0}")]
    OtherUser(u32),
    /// Other users have rights to it.
    #[error("is open to other users (mode {0:03o})")]
    Open(u32),
}

/// The directory of one fabric.
#[derive(Clone, Debug)]
pub(super) struct FabricDirectory {
    path: PathBuf,
    /// The entries that stand in a better place.
    passed_over: Vec<Foreign>,
}

const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// Names tried in each base directory.
const NAMES: u32 = 8;
/// Attempts to create the directory while others remove it.
const ATTEMPTS: u32 = 1000;

impl FabricDirectory {
    /// Finds the directory in the first of the places where it exists, or
    /// creates it in the first that can be trusted.
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
        let mut passed_over = Vec::new();
        for parent in parents {
            let path = parent.join(name.as_str());
            match inspect(parent) {
                Ok(None) if matches!(inspect(&path), Ok(None)) => {
                    return Ok(Self { path, passed_over });
                }
                Ok(None) => {}
                Ok(Some(how)) => passed_over.push(Foreign {
                    path: parent.clone(),
                    how,
                }),
                Err(_) => {}
            }
        }
        passed_over.clear();
        let mut first_error = None;
        for parent in parents {
            let path = parent.join(name.as_str());
            match private_directory(parent).and_then(|()| private_directory(&path)) {
                Ok(()) => return Ok(Self { path, passed_over }),
                Err(JoinError::Untrusted(foreign)) => passed_over.push(foreign),
                // Another process has just removed the parent: again.
                Err(JoinError::File { path, source }) if is_missing(&source) => {
                    return Err(JoinError::File { path, source });
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        Err(match (first_error, passed_over.into_iter().next()) {
            (Some(error), _) => error,
            (None, Some(foreign)) => JoinError::Untrusted(foreign),
            (None, None) => JoinError::file("/dev/shm".into(), io::ErrorKind::NotFound.into()),
        })
    }

    /// Returns the base directories that all processes of a user agree on
    /// without talking, the best first.
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

    /// The directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Entries of others that stand where the directory would have been.
    pub(super) fn passed_over(&self) -> &[Foreign] {
        &self.passed_over
    }

    /// Removes the fabrics of this user whose processes are all dead: they
    /// were killed and could not do it.
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
                    let passed_over = Vec::new();
                    Self { path, passed_over }.remove_if_dead();
                }
            }
        }
    }

    fn remove_if_dead(&self) {
        let Ok(lock) = open_existing(&self.path.join("lock")) else {
            // A process that joins creates the lock next. An empty directory
            // is removed only if it stays empty.
            let _ = fs::remove_dir(&self.path);
            if let Some(parent) = self.path.parent() {
                let _ = fs::remove_dir(parent);
            }
            return;
        };
        if !matches!(try_lock(&lock), Ok(true)) || !self.is_still(&lock) {
            return;
        }
        if self.is_dead() {
            self.remove();
        }
    }

    /// Whether no process lives on the fabric. The caller holds the lock, so
    /// that none can join.
    pub(super) fn is_dead(&self) -> bool {
        (1..=MAX_PROCESSES as u8).all(|slot| !self.is_alive(slot))
    }

    /// Enters the critical section of joining and leaving. `None`: the
    /// directory was removed meanwhile; make it again.
    pub(super) fn lock(&self) -> Result<Option<File>, JoinError> {
        let path = self.path.join("lock");
        let file = match open(&path) {
            Err(JoinError::File { source, .. }) if is_missing(&source) => return Ok(None),
            other => other?,
        };
        let patience = Instant::now() + LOCK_PATIENCE;
        while !try_lock(&file).map_err(|source| JoinError::file(path.clone(), source))? {
            if Instant::now() > patience {
                return Err(JoinError::Locked(path));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(self.is_still(&file).then_some(file))
    }

    /// Whether a lock counts: this file is still the one of that name.
    fn is_still(&self, lock: &File) -> bool {
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

    /// Tries to become the process that lives in a slot.
    pub(super) fn take_slot(&self, slot: u8) -> Result<Option<File>, JoinError> {
        let path = self.slot_path(slot);
        let file = open(&path)?;
        match try_lock(&file) {
            Ok(taken) => Ok(taken.then_some(file)),
            Err(source) => Err(JoinError::file(path, source)),
        }
    }

    /// Whether a process lives in a slot. When in doubt, yes.
    pub(super) fn is_alive(&self, slot: u8) -> bool {
        match open_existing(&self.slot_path(slot)) {
            Ok(file) => is_locked(&file).unwrap_or(true),
            Err(error) => !is_missing(&error),
        }
    }

    /// Opens the FIFO of a slot for both directions: it then always has a
    /// reader and a writer, so that neither end-of-file nor `SIGPIPE` exist.
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

    /// Removes everything. The caller holds the lock and is alone.
    pub(super) fn remove(&self) {
        if let Ok(entries) = fs::read_dir(&self.path) {
            for entry in entries
                .flatten()
                .filter(|entry| entry.file_name() != *"lock")
            {
                let _ = fs::remove_file(entry.path());
            }
        }
        // The lock goes last: who waits for it finds that it lost its name.
        let _ = fs::remove_file(self.path.join("lock"));
        let _ = fs::remove_dir(&self.path);
        if let Some(parent) = self.path.parent() {
            // Fails, rightly, while another fabric lives there.
            let _ = fs::remove_dir(parent);
        }
    }

    fn slot_path(&self, slot: u8) -> PathBuf {
        self.path.join(format!("slot-{slot:02}.lock"))
    }
}

/// The directories that may hold this user's fabrics, the best first.
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

/// Returns what keeps an entry from being a private directory of this user,
/// if anything does.
fn inspect(path: &Path) -> io::Result<Option<ForeignKind>> {
    // Not followed if it is a link: then it is no directory.
    let data = fs::symlink_metadata(path)?;
    Ok(if !data.is_dir() {
        Some(ForeignKind::NoDirectory)
    } else if data.uid() != user() {
        Some(ForeignKind::OtherUser(data.uid()))
    } else if data.mode() & 0o077 != 0 {
        Some(ForeignKind::Open(data.mode() & 0o777))
    } else {
        None
    })
}

/// Creates a directory that only this user can enter, unless it exists.
fn private_directory(path: &Path) -> Result<(), JoinError> {
    let error = |source| JoinError::file(path.to_owned(), source);
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {}
        Err(source) => return Err(error(source)),
    }
    match inspect(path).map_err(error)? {
        None => Ok(()),
        Some(how) => Err(JoinError::Untrusted(Foreign {
            path: path.to_owned(),
            how,
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
    // SAFETY: flock is a C struct of integers, for which zero is a value.
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
    // SAFETY: as in `try_lock`; F_OFD_GETLK writes into `lock`.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(lock.l_type != libc::F_UNLCK as libc::c_short)
}

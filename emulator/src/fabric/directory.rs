//! Where the processes of a fabric meet: a directory of files that only this
//! user can reach.
//!
//! ```text
//! /dev/shm/mlx5emu-UID/NAME/     (without /dev/shm: $TMPDIR, else /tmp)
//!   lock           held while joining and leaving
//!   segment        shared memory: slots and packet rings
//!   slot-NN.lock   held by the process that lives in slot NN
//!   slot-NN.wake   FIFO that wakes its NIC thread
//! ```
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
    /// Somebody else could reach into the directory.
    #[error(
        "fabric directory {} is not a directory of this user alone; \
         remove it, or point TMPDIR elsewhere", .0.display()
    )]
    Untrusted(PathBuf),
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

/// The directory of one fabric.
#[derive(Clone, Debug)]
pub(super) struct FabricDirectory {
    path: PathBuf,
}

const LOCK_PATIENCE: Duration = Duration::from_secs(5);

impl FabricDirectory {
    /// Makes the directory, unless it is there, and checks that nobody but
    /// this user can enter.
    pub(super) fn create(base: &Path, name: &FabricName) -> Result<Self, JoinError> {
        // SAFETY: geteuid(2) cannot fail and touches no memory.
        let user = unsafe { libc::geteuid() };
        let parent = base.join(format!("mlx5emu-{user}"));
        let path = parent.join(name.as_str());
        loop {
            private_directory(&parent, user)?;
            match private_directory(&path, user) {
                // The last process of another fabric has just removed the parent.
                Err(JoinError::File { source, .. }) if is_missing(&source) => {}
                Err(error) => return Err(error),
                Ok(()) => return Ok(Self { path }),
            }
        }
    }

    /// The place that all processes of a user agree on without talking.
    pub(super) fn base() -> PathBuf {
        let shm = Path::new("/dev/shm");
        // SAFETY: the argument is a C string; access(2) only reads it.
        let writable = unsafe { libc::access(c"/dev/shm".as_ptr(), libc::W_OK | libc::X_OK) } == 0;
        if writable && shm.is_dir() {
            shm.to_owned()
        } else {
            std::env::temp_dir()
        }
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
        while !try_lock(&file).map_err(|source| JoinError::File {
            path: path.clone(),
            source,
        })? {
            if Instant::now() > patience {
                return Err(JoinError::Locked(path));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // The lock counts only if this file is still the one of that name.
        let same = match (fs::metadata(&path), file.metadata()) {
            (Ok(named), Ok(held)) => (named.dev(), named.ino()) == (held.dev(), held.ino()),
            _ => false,
        };
        Ok(same.then_some(file))
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
            Err(source) => Err(JoinError::File { path, source }),
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
        let error = |source| JoinError::File {
            path: path.clone(),
            source,
        };
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

fn private_directory(path: &Path, user: u32) -> Result<(), JoinError> {
    let error = |source| JoinError::File {
        path: path.to_owned(),
        source,
    };
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {}
        Err(source) => return Err(error(source)),
    }
    // Not followed if it is a link: then it is no directory.
    let data = fs::symlink_metadata(path).map_err(error)?;
    if data.is_dir() && data.uid() == user && data.mode() & 0o077 == 0 {
        Ok(())
    } else {
        Err(JoinError::Untrusted(path.to_owned()))
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
        .map_err(|source| JoinError::File {
            path: path.to_owned(),
            source,
        })
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

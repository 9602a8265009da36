//! The sysfs tree in which libibverbs finds the devices (`SYSFS_PATH`).
//!
//! It contains the files that libibverbs, its tools and other programs read, with
//! the values that a kernel shows for the devices of [`Config`]. Programs that name
//! `/sys` themselves are redirected to the tree ([`crate::preload`]).
//!
//! The process that creates a tree holds a lock (`flock(2)`) on its directory
//! while it lives. A process that is killed leaves its tree behind without a
//! lock; [`Sysfs::create`] first removes such trees.
//!
//! Decision: `docs/decisions/067-sys-leads-to-the-tree.md`

pub(crate) mod counters;
mod tree;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use self::tree::{FABRIC_FILE, Tree};
pub use self::tree::{PCI_DOMAIN, pci_address};
use crate::config::{Config, Mode};
use crate::fabric::name::FabricName;
use crate::fabric::ports;
use crate::spec::{PortAddress, PortSet};

/// Major and first minor number of `/dev/infiniband/uverbs*`.
pub const DEVICE_MAJOR: u32 = 231;
/// Minor number of `uverbs0`.
pub const FIRST_MINOR: u32 = 192;

/// Major and minor number of `/dev/infiniband/rdma_cm`, a miscellaneous device.
pub const RDMA_CM: (u32, u32) = (10, 122);

/// Returns the index of the loopback interface; 0 in a network namespace without one.
#[must_use]
pub fn interface_index() -> u32 {
    // SAFETY: the call reads a C string.
    unsafe { libc::if_nametoindex(c"lo".as_ptr()) }
}

/// The firmware version of the devices.
pub const FIRMWARE: &str = "22.0.0";

/// The maximum length of the root: libibverbs' `IBV_SYSFS_PATH_MAX` minus the
/// path that libibverbs appends.
const LONGEST_ROOT: usize = 255 - "/class/infiniband/mlx5_15".len();

/// Returns the name of a device.
#[must_use]
pub fn device_name(device: u8) -> String {
    format!("mlx5_{device}")
}

/// `RDMA_USER_CM_ABI_VERSION`.
pub(crate) const RDMA_CM_ABI: u32 = 4;

/// The name of rdma_cm, as a miscellaneous device and in `/dev/infiniband`.
pub const RDMA_CM_NAME: &str = "rdma_cm";

/// Returns the name of a device file in `/dev/infiniband`.
#[must_use]
pub fn device_file(device: u8) -> String {
    format!("uverbs{device}")
}

/// A sysfs tree. The process that created it removes it when this value is
/// dropped.
#[derive(Debug)]
pub struct Sysfs {
    root: PathBuf,
    owner: u32,
    /// The open and locked directory.
    _lock: File,
}

/// The prefix of the directory names. `mkdtemp` generates the rest.
const PREFIX: &str = "mlx5-emu-sysfs-";
/// The part of the template that `mkdtemp` replaces.
const UNIQUE: &str = "XXXXXX";

impl Sysfs {
    /// Writes the tree into a new private directory.
    ///
    /// # Errors
    /// Returns an error if no directory can be created or written.
    pub fn create(config: &Config) -> io::Result<Self> {
        let parents = parents();
        sweep(&parents);
        let (root, lock) = private_directory(&parents)?;
        let sysfs = Self {
            root,
            owner: std::process::id(),
            _lock: lock,
        };
        // The ports of a stepped device are those of its process alone.
        let down = match config.mode {
            Mode::Stepped => PortSet::default(),
            Mode::Threaded => ports::switched_off(&config.fabric),
        };
        Tree {
            root: &sysfs.root,
            config,
            down,
        }
        .write()?;
        Ok(sysfs)
    }

    /// Returns the value for `SYSFS_PATH`.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }
}

impl Drop for Sysfs {
    fn drop(&mut self) {
        if std::process::id() == self.owner {
            // The tree may be removed already.
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

/// Shows in the trees of this fabric's running programs that a port is up or down.
/// A tree that cannot be written keeps the state before.
pub fn show_port(fabric: &FabricName, at: PortAddress, up: bool) {
    show_port_under(&parents(), fabric, at, up);
}

fn show_port_under(parents: &[PathBuf], fabric: &FabricName, at: PortAddress, up: bool) {
    for root in trees(parents) {
        let is_own = fs::symlink_metadata(&root).is_ok_and(|it| it.is_dir() && it.uid() == user());
        let name = fs::read_to_string(root.join(FABRIC_FILE)).unwrap_or_default();
        if is_own && name.trim_end() == fabric.as_str() {
            let _ = tree::show_port(&root, at, up);
        }
    }
}

/// Returns the directories in which a tree can be created, in order of preference.
fn parents() -> Vec<PathBuf> {
    let candidates = [
        std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from),
        Some(std::env::temp_dir()),
        Some(PathBuf::from("/dev/shm")),
    ];
    candidates.into_iter().flatten().collect()
}

/// Creates and locks a directory that only this user can write to. Its path is
/// short enough for libibverbs.
fn private_directory(parents: &[PathBuf]) -> io::Result<(PathBuf, File)> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for parent in parents {
        let template = parent.join(format!("{PREFIX}{UNIQUE}"));
        if template.as_os_str().len() > LONGEST_ROOT {
            continue;
        }
        match make_locked(&template) {
            Ok(made) => return Ok(made),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn make_locked(template: &Path) -> io::Result<(PathBuf, File)> {
    loop {
        let path = make_unique(template)?;
        // Until the lock is held, another process may remove the directory as
        // one without an owner.
        match lock(&path, LockMode::Wait) {
            Ok(Some(lock)) => {
                // Programs that drop their privileges must still be able to read it.
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
                lock.set_permissions(mode)?;
                return Ok((path, lock));
            }
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether to wait for another process that holds a lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LockMode {
    Wait,
    Try,
}

/// Locks a directory of this user. Returns `None` if another process holds the
/// lock, or has removed the directory in the meantime.
fn lock(path: &Path, mode: LockMode) -> io::Result<Option<File>> {
    let directory = File::options()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
        .open(path)?;
    let held = directory.metadata()?;
    if held.uid() != user() {
        return Ok(None);
    }
    let operation = match mode {
        LockMode::Wait => libc::LOCK_EX,
        LockMode::Try => libc::LOCK_EX | libc::LOCK_NB,
    };
    loop {
        // SAFETY: an open descriptor and a number.
        if unsafe { libc::flock(directory.as_raw_fd(), operation) } == 0 {
            break;
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock => return Ok(None),
            _ => return Err(error),
        }
    }
    let named = fs::symlink_metadata(path);
    let is_same = named.is_ok_and(|named| (named.dev(), named.ino()) == (held.dev(), held.ino()));
    Ok(is_same.then_some(directory))
}

/// Removes the trees of this user whose owning process is dead.
fn sweep(parents: &[PathBuf]) {
    for path in trees(parents) {
        // A directory that is locked is in use; one that cannot be removed stays.
        if let Ok(Some(_held)) = lock(&path, LockMode::Try) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Returns the paths that have the name of a tree.
fn trees(parents: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
    let entries = parents.iter().flat_map(fs::read_dir).flatten().flatten();
    let trees = entries.filter(|entry| is_tree_name(&entry.file_name()));
    trees.map(|entry| entry.path())
}

fn user() -> u32 {
    // SAFETY: geteuid(2) cannot fail and touches no memory.
    unsafe { libc::geteuid() }
}

/// Returns whether `name` is the name of a tree's directory.
fn is_tree_name(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.len() == PREFIX.len() + UNIQUE.len() && name.starts_with(PREFIX.as_bytes())
}

fn make_unique(template: &Path) -> io::Result<PathBuf> {
    use std::ffi::{CString, OsString};
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let mut bytes = CString::new(template.as_os_str().as_bytes())?.into_bytes_with_nul();
    // SAFETY: the template is a NUL-terminated buffer of our own, which mkdtemp
    // overwrites in place.
    if unsafe { libc::mkdtemp(bytes.as_mut_ptr().cast()) }.is_null() {
        return Err(io::Error::last_os_error());
    }
    bytes.pop();
    Ok(PathBuf::from(OsString::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    use super::tree::groups;
    use super::*;
    use crate::fabric::name::DeviceIdentity;
    use crate::spec::Link;

    #[test]
    fn the_tree_lists_every_device_and_is_removed_with_its_owner() {
        let sysfs = Sysfs::create(&Config {
            devices: 2,
            ports: 2,
            ..Config::default()
        })
        .unwrap();
        let root = sysfs.root().to_owned();
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
        assert_eq!(read("class/infiniband_verbs/uverbs1/dev"), "231:193\n");
        assert_eq!(read("class/infiniband_verbs/uverbs1/ibdev"), "mlx5_1\n");
        assert_eq!(read("class/infiniband/mlx5_1/ports/1/lid"), "0x2\n");
        assert_eq!(read("class/infiniband/mlx5_1/ports/2/lid"), "0x42\n");
        let empty = read("class/infiniband/mlx5_1/ports/2/gids/7");
        assert_eq!(empty.trim(), groups(&[0; 16]));
        let gid = read("class/infiniband/mlx5_0/ports/1/gids/0");
        assert!(
            gid.starts_with("fe80:0000:0000:0000:") && gid.len() == 40,
            "{gid}"
        );
        assert!(!root.join("class/infiniband/mlx5_2").exists());
        let attributes = "class/infiniband/mlx5_0/ports/1/gid_attrs";
        assert_eq!(read(&format!("{attributes}/types/0")), "IB/RoCE v1\n");
        for file in ["types/1", "ndevs/0"] {
            let error = fs::read(root.join(attributes).join(file)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{file}");
        }
        drop(sysfs);
        assert!(!root.exists());
    }

    #[test]
    fn a_switched_port_is_shown_in_the_trees_of_its_fabric() {
        let parent = std::env::temp_dir().join(format!("mlx5emu-states-{}", std::process::id()));
        fs::create_dir(&parent).unwrap();
        let parents = [parent.clone()];
        let write = |fabric: &str| {
            let config = Config {
                fabric: FabricName::new(fabric).unwrap(),
                ..Config::default()
            };
            let (root, lock) = private_directory(&parents).unwrap();
            let (config, down) = (&config, PortSet::default());
            let tree = Tree {
                root: &root,
                config,
                down,
            };
            tree.write().unwrap();
            (root, lock)
        };
        let (one, _lock) = write("one");
        let (other, _lock) = write("other");
        let fabric = FabricName::new("one").unwrap();
        let at = PortAddress { device: 0, port: 1 };
        let state = |root: &Path| {
            let port = root.join("class/infiniband/mlx5_0/ports/1");
            ["state", "phys_state"].map(|file| fs::read_to_string(port.join(file)).unwrap())
        };
        let up = ["4: ACTIVE\n", "5: LinkUp\n"];
        show_port_under(&parents, &fabric, at, false);
        assert_eq!(state(&one), ["1: DOWN\n", "3: Disabled\n"]);
        assert_eq!(state(&other), up);
        show_port_under(&parents, &fabric, at, true);
        assert_eq!(state(&one), up);
        // A port that the tree does not have changes nothing.
        let at = PortAddress { device: 3, port: 2 };
        show_port_under(&parents, &fabric, at, false);
        assert!(!one.join("class/infiniband/mlx5_3").exists());
        fs::remove_dir_all(&parent).unwrap();
    }

    #[test]
    fn only_trees_without_an_owner_are_removed() {
        let parent = std::env::temp_dir().join(format!("mlx5emu-trees-{}", std::process::id()));
        fs::create_dir(&parent).unwrap();
        let parents = [parent.clone()];
        let (alive, lock) = private_directory(&parents).unwrap();
        let (dead, left) = private_directory(&parents).unwrap();
        fs::create_dir_all(dead.join("class/infiniband")).unwrap();
        drop(left);
        // Names that are almost those of trees, and a symbolic link.
        let foreign = parent.join("mlx5-emu-sysfs-of-mine");
        fs::create_dir(&foreign).unwrap();
        let link = parent.join("mlx5-emu-sysfs-link12");
        std::os::unix::fs::symlink(&foreign, &link).unwrap();
        sweep(&parents);
        assert!(alive.exists() && foreign.exists());
        assert!(fs::symlink_metadata(&link).is_ok());
        assert!(!dead.exists());
        drop(lock);
        sweep(&parents);
        assert!(!alive.exists());
        fs::remove_dir_all(&parent).unwrap();
    }

    #[test]
    fn a_directory_that_is_removed_before_it_is_locked_is_not_used() {
        let path = make_unique(&std::env::temp_dir().join("mlx5-emu-test-XXXXXX")).unwrap();
        let held = lock(&path, LockMode::Try).unwrap().unwrap();
        assert!(lock(&path, LockMode::Try).unwrap().is_none(), "held");
        let waiter = std::thread::spawn({
            let path = path.clone();
            move || lock(&path, LockMode::Wait)
        });
        fs::remove_dir(&path).unwrap();
        drop(held);
        // The thread opened the directory before or after its removal.
        assert!(!matches!(waiter.join().unwrap(), Ok(Some(_))));
    }

    #[test]
    fn a_roce_port_shows_type_and_interface_of_its_gids() {
        let config = Config {
            link: Link::Roce,
            ..Config::default()
        };
        let sysfs = Sysfs::create(&config).unwrap();
        let port = sysfs.root().join("class/infiniband/mlx5_0/ports/1");
        let read = |path: &str| fs::read_to_string(port.join(path)).unwrap();
        assert_eq!(read("link_layer"), "Ethernet\n");
        let names = DeviceIdentity::derive(&config.fabric, 0).port(1);
        for (index, gid, kind) in [
            (0, names.ethernet_gid, "IB/RoCE v1\n"),
            (1, names.ethernet_gid, "RoCE v2\n"),
            (2, names.ip_gid(), "IB/RoCE v1\n"),
            (3, names.ip_gid(), "RoCE v2\n"),
        ] {
            assert_eq!(read(&format!("gids/{index}")).trim(), groups(&gid));
            assert_eq!(read(&format!("gid_attrs/types/{index}")), kind);
            assert_eq!(read(&format!("gid_attrs/ndevs/{index}")), "lo\n");
        }
        assert_eq!(read("gids/4").trim(), groups(&[0; 16]));
        for file in ["types/4", "ndevs/7"] {
            let error = fs::read(port.join("gid_attrs").join(file)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{file}");
        }
    }
}

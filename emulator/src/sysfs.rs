//! The sysfs tree in which libibverbs finds the devices (`SYSFS_PATH`).
//!
//! Only what libibverbs and its tools read is there; the values are those a
//! kernel would show for the devices of [`Config`].
//!
//! The process that makes a tree holds a lock (`flock(2)`) on its directory as
//! long as it lives. A process that is killed leaves its tree behind, without
//! a lock: [`Sysfs::create`] removes such trees before it makes one.

use std::ffi::{CStr, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::config::{Config, Link};
use crate::fabric::name::DeviceIdentity;
use crate::limits::GID_TABLE;

/// Major and first minor number of `/dev/infiniband/uverbs*`.
pub const DEVICE_MAJOR: u32 = 231;
/// Minor number of `uverbs0`.
pub const FIRST_MINOR: u32 = 192;

/// The network interface behind every RoCE port. It must exist, and no other
/// does everywhere.
pub const INTERFACE: &CStr = c"lo";

/// libibverbs' `IBV_SYSFS_PATH_MAX` for `$SYSFS_PATH/class/infiniband/NAME`,
/// less what comes after `$SYSFS_PATH`.
const LONGEST_ROOT: usize = 255 - "/class/infiniband/mlx5_15".len();

/// Name of a device.
#[must_use]
pub fn device_name(device: u8) -> String {
    format!("mlx5_{device}")
}

/// A sysfs tree that is removed when this is dropped, by the process that
/// made it.
#[derive(Debug)]
pub struct Sysfs {
    root: PathBuf,
    owner: u32,
    /// The directory, open and locked.
    _lock: File,
}

/// How the names of the directories begin. `mkdtemp` appends the rest.
const PREFIX: &str = "mlx5-emu-sysfs-";
/// What `mkdtemp` replaces.
const UNIQUE: &str = "XXXXXX";

impl Sysfs {
    /// Writes the tree into a new private directory.
    ///
    /// # Errors
    /// When no directory can be made or written.
    pub fn create(config: &Config) -> io::Result<Self> {
        let parents = parents();
        sweep(&parents);
        let (root, lock) = private_directory(&parents)?;
        let sysfs = Self {
            root,
            owner: std::process::id(),
            _lock: lock,
        };
        sysfs.write(config)?;
        Ok(sysfs)
    }

    /// What `SYSFS_PATH` is to be.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn write(&self, config: &Config) -> io::Result<()> {
        let put = |path: String, text: &str| {
            let path = self.root.join(path);
            fs::create_dir_all(path.parent().unwrap_or(&self.root))?;
            fs::write(path, format!("{text}\n"))
        };
        put("class/infiniband_verbs/abi_version".into(), "6")?;
        for device in 0..config.devices {
            let name = device_name(device);
            let identity = DeviceIdentity::derive(&config.fabric, device);
            let verbs = format!("class/infiniband_verbs/uverbs{device}");
            put(format!("{verbs}/ibdev"), &name)?;
            let minor = FIRST_MINOR + u32::from(device);
            put(format!("{verbs}/dev"), &format!("{DEVICE_MAJOR}:{minor}"))?;
            put(format!("{verbs}/abi_version"), "1")?;

            let ib = format!("class/infiniband/{name}");
            put(format!("{ib}/node_type"), "1: CA")?;
            put(format!("{ib}/node_guid"), &groups(&identity.guid))?;
            put(format!("{ib}/sys_image_guid"), &groups(&identity.guid))?;
            put(format!("{ib}/fw_ver"), "22.0.0")?;
            put(format!("{ib}/hca_type"), "MT4125")?;
            put(format!("{ib}/board_id"), "MLX5_EMULATED")?;
            // ConnectX-6 Dx: it makes libibverbs choose libmlx5.
            let pci = "pci:v000015B3d0000101Dsv000015B3sd00000000bc02sc00i00";
            put(format!("{ib}/device/modalias"), pci)?;
            put(format!("{ib}/device/vendor"), "0x15b3")?;
            put(format!("{ib}/device/device"), "0x101d")?;

            for number in 1..=config.ports {
                let names = identity.port(number);
                let port = format!("{ib}/ports/{number}");
                put(format!("{port}/pkeys/0"), "0xffff")?;
                put(format!("{port}/state"), "4: ACTIVE")?;
                put(format!("{port}/phys_state"), "5: LinkUp")?;
                put(format!("{port}/rate"), "100 Gb/sec (4X EDR)")?;
                let (lid, layer, gids) = match config.link {
                    Link::Ib => (names.lid, "InfiniBand", vec![names.gid]),
                    Link::Roce => (0, "Ethernet", vec![names.ethernet_gid, names.ip_gid]),
                };
                put(format!("{port}/lid"), &format!("{lid:#x}"))?;
                put(format!("{port}/link_layer"), layer)?;
                for index in 0..GID_TABLE {
                    let gid = gids.get(index as usize);
                    put(
                        format!("{port}/gids/{index}"),
                        &groups(gid.unwrap_or(&[0; 16])),
                    )?;
                    // On InfiniBand there must not even be the directory.
                    if config.link == Link::Ib {
                        continue;
                    }
                    // A kernel refuses to tell the type of an empty entry,
                    // which is then taken for the first of these.
                    let kind = gid.map_or("IB/RoCE v1", |_| "RoCE v2");
                    put(format!("{port}/gid_attrs/types/{index}"), kind)?;
                    if gid.is_some() {
                        let interface = INTERFACE.to_string_lossy();
                        put(format!("{port}/gid_attrs/ndevs/{index}"), &interface)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Drop for Sysfs {
    fn drop(&mut self) {
        if std::process::id() == self.owner {
            // A tree that is gone already is what was wanted.
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

/// The directories in which trees are made, the best first.
fn parents() -> Vec<PathBuf> {
    let candidates = [
        std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from),
        Some(std::env::temp_dir()),
        Some(PathBuf::from("/dev/shm")),
    ];
    candidates.into_iter().flatten().collect()
}

/// Creates a directory that only this user can write to, under a path short
/// enough for libibverbs, and locks it.
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
        // Before the lock is held, another process may take the directory for
        // one whose owner is dead.
        match lock(&path, Wish::Wait) {
            Ok(Some(lock)) => {
                // Programs that give up their privileges still have to read it.
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
enum Wish {
    Wait,
    Try,
}

/// Locks a directory of this user. `None` if another process holds the lock,
/// or has removed the directory meanwhile.
fn lock(path: &Path, wish: Wish) -> io::Result<Option<File>> {
    let directory = File::options()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
        .open(path)?;
    let held = directory.metadata()?;
    // SAFETY: geteuid(2) cannot fail and touches no memory.
    if held.uid() != unsafe { libc::geteuid() } {
        return Ok(None);
    }
    let how = match wish {
        Wish::Wait => libc::LOCK_EX,
        Wish::Try => libc::LOCK_EX | libc::LOCK_NB,
    };
    loop {
        // SAFETY: an open descriptor and a number.
        if unsafe { libc::flock(directory.as_raw_fd(), how) } == 0 {
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

/// Removes the trees of this user whose owners are dead.
fn sweep(parents: &[PathBuf]) {
    let entries = parents.iter().flat_map(fs::read_dir).flatten().flatten();
    for entry in entries.filter(|entry| is_ours(&entry.file_name())) {
        let path = entry.path();
        // What cannot be locked lives, and what cannot be removed stays.
        if let Ok(Some(_held)) = lock(&path, Wish::Try) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Whether a name is one of a tree's directory.
fn is_ours(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.len() == PREFIX.len() + UNIQUE.len() && name.starts_with(PREFIX.as_bytes())
}

fn make_unique(template: &Path) -> io::Result<PathBuf> {
    use std::ffi::{CString, OsString};
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let mut bytes = CString::new(template.as_os_str().as_bytes())?.into_bytes_with_nul();
    // SAFETY: the template is a C string of our own that mkdtemp overwrites in
    // place.
    if unsafe { libc::mkdtemp(bytes.as_mut_ptr().cast()) }.is_null() {
        return Err(io::Error::last_os_error());
    }
    bytes.pop();
    Ok(PathBuf::from(OsString::from_vec(bytes)))
}

/// Bytes as sysfs shows GUIDs and GIDs: groups of four hexadecimal digits.
fn groups(bytes: &[u8]) -> String {
    let group = |pair: &[u8]| {
        pair.iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    bytes.chunks(2).map(group).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_names_every_device_and_goes_with_its_owner() {
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
        assert!(!root.join(attributes).exists());
        drop(sysfs);
        assert!(!root.exists());
    }

    #[test]
    fn trees_without_an_owner_are_swept_and_others_stay() {
        let parent = std::env::temp_dir().join(format!("mlx5emu-trees-{}", std::process::id()));
        fs::create_dir(&parent).unwrap();
        let parents = [parent.clone()];
        let (alive, lock) = private_directory(&parents).unwrap();
        let (dead, left) = private_directory(&parents).unwrap();
        fs::create_dir_all(dead.join("class/infiniband")).unwrap();
        drop(left);
        // Names that are almost ours, and one that leads elsewhere.
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
    fn a_directory_that_is_swept_before_it_is_locked_does_not_count() {
        let path = make_unique(&std::env::temp_dir().join("mlx5-emu-test-XXXXXX")).unwrap();
        let held = lock(&path, Wish::Try).unwrap().unwrap();
        assert!(lock(&path, Wish::Try).unwrap().is_none(), "held");
        let waiter = std::thread::spawn({
            let path = path.clone();
            move || lock(&path, Wish::Wait)
        });
        fs::remove_dir(&path).unwrap();
        drop(held);
        // It has opened the directory before or after it was removed.
        assert!(!matches!(waiter.join().unwrap(), Ok(Some(_))));
    }

    #[test]
    fn a_roce_port_tells_type_and_interface_of_its_gid() {
        let config = Config {
            link: Link::Roce,
            ..Config::default()
        };
        let sysfs = Sysfs::create(&config).unwrap();
        let port = sysfs.root().join("class/infiniband/mlx5_0/ports/1");
        let read = |path: &str| fs::read_to_string(port.join(path)).unwrap();
        assert_eq!(read("gid_attrs/types/0"), "RoCE v2\n");
        assert_eq!(read("gid_attrs/ndevs/0"), "lo\n");
        assert_eq!(read("link_layer"), "Ethernet\n");
        let names = DeviceIdentity::derive(&config.fabric, 0).port(1);
        assert_eq!(read("gids/0").trim(), groups(&names.ethernet_gid));
        assert_eq!(read("gids/1").trim(), groups(&names.ip_gid));
        assert_eq!(read("gid_attrs/types/1"), "RoCE v2\n");
        assert_eq!(read("gids/2").trim(), groups(&[0; 16]));
    }
}

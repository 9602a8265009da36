//! The paths of `/sys` and `/dev` that show the emulated devices instead of the
//! host's. They lead to the sysfs tree ([`crate::sysfs`]).
//!
//! Redirected are the classes of RDMA devices (`/sys/class/infiniband*`), the PCI
//! devices of the emulated ones, and `/dev/infiniband`. Whatever is not in the tree
//! does not exist: the host's own RDMA devices are hidden.
//!
//! Decision: `docs/decisions/067-sys-leads-to-the-tree.md`

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::calls::{errno, set_errno};
use super::session;
use crate::emulator::Emulator;
use crate::real;
use crate::sysfs::{PCI_DOMAIN, counters};

/// Calls a function of libc with a path, or with the path in the tree that it leads
/// to.
///
/// # Safety
/// `path` is null or a C string.
pub(super) unsafe fn with_path<T>(path: *const c_char, call: impl FnOnce(*const c_char) -> T) -> T {
    // SAFETY: `path` is null or a C string.
    unsafe { with_path_at(libc::AT_FDCWD, path, |_, path| call(path)) }
}

/// As [`with_path`], for a path relative to a directory.
///
/// # Safety
/// `path` is null or a C string.
pub(super) unsafe fn with_path_at<T>(
    dir: c_int,
    path: *const c_char,
    call: impl FnOnce(c_int, *const c_char) -> T,
) -> T {
    let before = errno();
    if !path.is_null() {
        // SAFETY: not null, so it is a C string.
        refresh_counter(dir, unsafe { CStr::from_ptr(path) });
        set_errno(before);
    }
    // SAFETY: `path` is null or a C string.
    let Some(redirected) = (unsafe { redirected(dir, path) }) else {
        return call(dir, path);
    };
    set_errno(before);
    let result = call(dir, redirected.as_ptr());
    let after = errno();
    drop(redirected);
    set_errno(after);
    result
}

/// Brings the file of a counter up to date if a path leads to one.
fn refresh_counter(dir: c_int, path: &CStr) -> Option<()> {
    let name = path.to_bytes().rsplit(|&byte| byte == b'/').next()?;
    if !counters::is_name(name) {
        return None;
    }
    let root = Path::new(OsStr::from_bytes(session::tree()?));
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    let from = match dir {
        libc::AT_FDCWD => PathBuf::from("."),
        dir => format!("/proc/self/fd/{dir}").into(),
    };
    let directory = from.join(path.parent()?).canonicalize().ok()?;
    if directory.starts_with("/sys") || directory.starts_with(root) {
        let path = directory.join(path.file_name()?);
        let config = session::config()?;
        counters::refresh(config, root, &path, |at| Emulator::counters(config, at));
    }
    Some(())
}

/// Returns the path in the tree to which a path leads.
///
/// # Safety
/// `path` is null or a C string.
pub(super) unsafe fn redirected(dir: c_int, path: *const c_char) -> Option<CString> {
    // SAFETY: `path` is null or a C string, here and below.
    let starts_with = |prefix| unsafe { starts_with(path, prefix) };
    let is_absolute = starts_with(b"/sys/") || starts_with(b"/dev/infiniband");
    // hwloc opens "/" and names all files relative to it.
    let is_relative = || dir != libc::AT_FDCWD && starts_with(b"sys/") && is_root(dir);
    if !is_absolute && !is_relative() {
        return None;
    }
    // SAFETY: not null, since a prefix was found.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let absolute = match path {
        [b'/', ..] => path.to_vec(),
        _ => [b"/", path].concat(),
    };
    let below = below_root(&absolute)?;
    CString::new([session::tree()?, below].concat()).ok()
}

/// Returns whether a C string, or null, begins with a prefix.
///
/// # Safety
/// `path` is null or a C string.
pub(super) unsafe fn starts_with(path: *const c_char, prefix: &[u8]) -> bool {
    !path.is_null()
        && prefix.iter().enumerate().all(|(index, expected)| {
            // SAFETY: all earlier bytes equal the prefix, which has no NUL, so
            // the string does not end before this byte.
            unsafe { path.add(index).cast::<u8>().read() == *expected }
        })
}

/// Returns the place in the tree of an absolute path that is redirected.
fn below_root(path: &[u8]) -> Option<&[u8]> {
    let is_below = |path: &[u8], directory: &[u8]| {
        path.strip_prefix(directory)
            .is_some_and(|rest| rest.first().is_none_or(|&next| next == b'/'))
    };
    let is_pci_device = |path: &[u8], prefix: &[u8]| {
        path.strip_prefix(prefix)
            .and_then(|rest| rest.strip_prefix(PCI_DOMAIN.as_bytes()))
            .is_some_and(|rest| rest.starts_with(b":"))
    };
    if let Some(below) = path.strip_prefix(b"/sys") {
        // The classes of verbs, MADs and connection management begin alike.
        let is_redirected = below.starts_with(b"/class/infiniband")
            || is_pci_device(below, b"/bus/pci/devices/")
            || is_pci_device(below, b"/bus/pci/drivers/mlx5_core/")
            || is_pci_device(below, b"/devices/pci")
            || is_below(below, b"/class/misc/rdma_cm")
            || is_below(below, b"/devices/virtual/misc/rdma_cm");
        return is_redirected.then_some(below);
    }
    is_below(path, b"/dev/infiniband").then_some(path)
}

/// Returns the path under which the application knows a path in the tree, or `None`
/// for a path elsewhere.
pub(super) fn shown(real: &[u8]) -> Option<Vec<u8>> {
    let below = real.strip_prefix(session::tree()?)?;
    match below {
        [] => Some(b"/sys".to_vec()),
        below if below.starts_with(b"/dev/infiniband") => Some(below.to_vec()),
        [b'/', ..] => Some([b"/sys", below].concat()),
        _ => None,
    }
}

/// Returns whether a descriptor is the root directory.
fn is_root(dir: c_int) -> bool {
    let identity = |call: &dyn Fn(*mut libc::stat) -> c_int| {
        let mut stat = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: a successful call has initialised it.
        (call(stat.as_mut_ptr()) == 0).then(|| unsafe { stat.assume_init() })
    };
    // SAFETY: room for a `stat`, in both calls.
    let given = identity(&|into| unsafe { real::fstat(dir, into) });
    // SAFETY: as above, and a C string.
    let root = identity(&|into| unsafe { real::stat(c"/".as_ptr(), into) });
    let same = |given: libc::stat, root: libc::stat| {
        (given.st_dev, given.st_ino) == (root.st_dev, root.st_ino)
    };
    given
        .zip(root)
        .is_some_and(|(given, root)| same(given, root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_rdma_devices_lead_to_the_tree() {
        for (path, expected) in [
            ("/sys/class/infiniband", Some("/class/infiniband")),
            (
                "/sys/class/infiniband/mlx5_0/../..",
                Some("/class/infiniband/mlx5_0/../.."),
            ),
            ("/sys/class/infiniband_mad/", Some("/class/infiniband_mad/")),
            (
                "/sys/bus/pci/devices/00e5:03:00.0",
                Some("/bus/pci/devices/00e5:03:00.0"),
            ),
            ("/sys/devices/pci00e5:00/x", Some("/devices/pci00e5:00/x")),
            ("/dev/infiniband", Some("/dev/infiniband")),
            ("/dev/infiniband/umad0", Some("/dev/infiniband/umad0")),
            (
                "/sys/class/misc/rdma_cm/dev",
                Some("/class/misc/rdma_cm/dev"),
            ),
            (
                "/sys/devices/virtual/misc/rdma_cm",
                Some("/devices/virtual/misc/rdma_cm"),
            ),
            ("/dev/infiniband2", None),
            ("/sys/class/misc/rdma_cm2", None),
            ("/sys/class/misc", None),
            ("/sys/class/net", None),
            ("/sys/bus/pci/devices", None),
            ("/sys/bus/pci/devices/0000:03:00.0", None),
            ("/sys/devices/pci00e50:00", None),
            ("/system", None),
        ] {
            let found = below_root(path.as_bytes());
            assert_eq!(found, expected.map(str::as_bytes), "{path}");
        }
    }

    #[test]
    fn only_the_root_directory_is_the_root() {
        let descriptor = |path| std::fs::File::open(path).unwrap();
        use std::os::fd::AsRawFd;
        assert!(is_root(descriptor("/").as_raw_fd()));
        assert!(!is_root(descriptor("/proc").as_raw_fd()));
        assert!(!is_root(-1));
    }

    #[test]
    fn prefixes_end_before_the_string_does() {
        // SAFETY: C strings, and null.
        unsafe {
            assert!(starts_with(c"/sys/class".as_ptr(), b"/sys/"));
            assert!(!starts_with(c"/sy".as_ptr(), b"/sys/"));
            assert!(!starts_with(std::ptr::null(), b"/sys/"));
        }
    }
}

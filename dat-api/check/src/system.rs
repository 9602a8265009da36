//! What all adapters depend on: limits, device files, the installed library.

use std::env;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use dat_api::registry;
use dat_engine::control::LockedMemory;

use crate::linker::{self, Found};
use crate::report::{DeviceFile, Libdat, System};

/// A limit of locked memory below this, in bytes, is too low for most programs: the rings of a
/// hundred endpoints, and their buffers.
const COMFORTABLE: u64 = 64 << 20;
/// The remedy for a low limit of locked memory.
const RAISE: &str = "raise it: '* - memlock unlimited' in /etc/security/limits.d/rdma.conf and log in \
                     again; systemd service: LimitMEMLOCK=infinity; docker: --ulimit memlock=-1";
const DEVICES: &str = "/dev/infiniband";
/// Says whether RDMA devices are shared by all network namespaces.
const NAMESPACES: &str = "/sys/module/ib_core/parameters/netns_mode";

/// Examines the host.
pub(crate) fn examine(udapl: (u32, u32)) -> System {
    let (libdat, libdat_note) = libdat(udapl);
    let mut system = System {
        emulated_fabric: emulated_fabric(),
        libdat,
        locked_memory_bytes: LockedMemory::current().limit,
        // The emulated device has no file.
        device_files: device_files(Path::new(DEVICES)),
        network_namespaces: network_namespaces(),
        notes: Vec::new(),
    };
    let limit = system.locked_memory_bytes;
    let low = limit.filter(|&limit| limit < COMFORTABLE);
    system.notes.extend(low.map(|limit| {
        format!(
            "this process may lock only {} KiB of memory, which RDMA needs for queues and buffers; \
             {RAISE}",
            limit >> 10
        )
    }));
    if system.emulated_fabric.is_none() {
        // Not problems by themselves: an adapter that cannot be opened for this is one, and sockets
        // take the place of rdma_cm.
        let files = &system.device_files;
        let denied = files.iter().filter_map(|file| {
            let error = file.error.as_ref()?;
            let (path, remedy) = (&file.path, access_remedy(&file.path));
            Some(format!("{path} cannot be opened: {error}; {remedy}"))
        });
        system.notes.extend(denied);
    }
    system.notes.extend(libdat_note);
    system
}

/// Returns the fabric of the emulated devices, if `mlx5-emu` started this program.
pub(crate) fn emulated_fabric() -> Option<String> {
    let name = env::var_os("MLX5EMU_FABRIC")?;
    Some(match name.is_empty() {
        true => "default".to_owned(),
        false => name.to_string_lossy().into_owned(),
    })
}

/// Returns what C programs load, in words, and what to do if that is not this library.
fn libdat_text(
    name: &str,
    path: Option<&str>,
    ours: bool,
    error: Option<&str>,
) -> (String, Option<String>) {
    match (path, error) {
        (Some(path), None) if ours => (format!("load {path} (this library)"), None),
        (Some(path), Some(error)) if ours => (
            format!("CANNOT load {path} (this library): {error}"),
            Some(format!(
                "C programs cannot load {path}: {error}: install the packages that contain that"
            )),
        ),
        (Some(path), _) => {
            let provider = match name {
                "libdat2.so.2" => "libudapl2.so.2",
                _ => "libudapl.so.1",
            };
            let note = format!(
                "C programs load {path}, which is another library than the one that dat-check \
                 examines: set LD_LIBRARY_PATH to the folder of this one, or name {provider} in the \
                 dat.conf of that one"
            );
            let text = format!("load {path}, ANOTHER library than dat-check has built in");
            (text, Some(note))
        }
        (None, None) => (
            format!("find no {name}; dat-check needs none: it has the library built in"),
            Some(format!(
                "C programs that are started here find no {name}: install it (dat-api/install.sh), \
                 and set LD_LIBRARY_PATH or run ldconfig"
            )),
        ),
        (None, Some(error)) => (format!("not known what they load as {name}: {error}"), None),
    }
}

/// Returns what to do if a device file cannot be opened.
fn access_remedy(path: &str) -> String {
    let owner = fs::metadata(path).ok().map(|file| {
        format!(
            " (now owner {}, group {}, mode {:03o})",
            file.uid(),
            file.gid(),
            file.mode() & 0o777
        )
    });
    format!(
        "give this user read and write access{}: a udev rule with GROUP=\"rdma\" and MODE=\"0660\", \
         and the user in that group; in a container: --device=/dev/infiniband",
        owner.unwrap_or_default()
    )
}

/// Returns the files that programs open: those of the devices, and that of rdma_cm.
fn device_files(folder: &Path) -> Vec<DeviceFile> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with("uverbs") || name == "rdma_cm")
        .collect();
    names.sort();
    let files = names.into_iter().map(|name| {
        let path = folder.join(name);
        DeviceFile {
            error: access_error(&path).map(|error| error.to_string()),
            path: path.display().to_string(),
        }
    });
    files.collect()
}

/// Returns why this process cannot read and write a file, without opening it.
fn access_error(path: &Path) -> Option<io::Error> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: a C string that lives until the call returns.
    let denied = unsafe {
        libc::faccessat(
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::R_OK | libc::W_OK,
            libc::AT_EACCESS,
        )
    };
    (denied != 0).then(io::Error::last_os_error)
}

fn network_namespaces() -> Option<&'static str> {
    match fs::read_to_string(NAMESPACES).ok()?.trim() {
        "Y" | "1" => Some("shared"),
        "N" | "0" => Some("exclusive"),
        _ => None,
    }
}

/// Returns the library that C programs of a version of uDAPL load, and what to do if that is not this
/// one.
fn libdat(udapl: (u32, u32)) -> (Libdat, Option<String>) {
    // Only the libraries of this project have the calls, so a name is in the table of symbols.
    let own_call = b"dat_evd_dequeue_timestamped\0";
    let name = registry::library(udapl);
    let (path, error) = match linker::find(name) {
        Found::At { path, missing } if missing.is_empty() => (Some(path), None),
        Found::At { path, missing } => {
            let missing = format!("{} not found", missing.join(", "));
            (Some(path), Some(missing))
        }
        Found::Nowhere(_) => (None, None),
        Found::Unknown(reason) => (None, Some(reason)),
    };
    let bytes = path.as_ref().and_then(|path| fs::read(path).ok());
    let bytes = bytes.unwrap_or_default();
    let ours = bytes.windows(own_call.len()).any(|it| it == own_call);
    let (text, note) = libdat_text(name, path.as_deref(), ours, error.as_deref());
    let libdat = Libdat {
        name,
        path,
        ours,
        error,
        text,
    };
    (libdat, note)
}

/// If the program ignores the environment, replaces this process by a dat-check without the
/// variables that the program ignores.
///
/// # Errors
/// The program cannot be examined, as text.
pub(crate) fn restart_as(program: &Path) -> Result<(), String> {
    let file = fs::metadata(program)
        .map_err(|error| format!("cannot examine {}: {error}", program.display()))?;
    let ignored: Vec<_> = env::vars_os()
        .map(|(name, _)| name)
        .filter(|name| name.as_bytes().starts_with(b"DAT_") || name == "LD_LIBRARY_PATH")
        .collect();
    if ignored.is_empty() || !gains_rights(&file, has_capabilities(program)) {
        return Ok(());
    }
    let this = env::current_exe()
        .map_err(|error| format!("cannot find dat-check's own executable: {error}"))?;
    let mut command = Command::new(this);
    command.args(env::args_os().skip(1));
    for name in &ignored {
        command.env_remove(name);
    }
    let error = command.exec();
    Err(format!("cannot start dat-check again: {error}"))
}

/// Returns whether a program runs with more rights than its caller.
fn gains_rights(file: &fs::Metadata, capabilities: bool) -> bool {
    capabilities || file.mode() & (libc::S_ISUID | libc::S_ISGID) != 0
}

fn has_capabilities(program: &Path) -> bool {
    let Ok(path) = CString::new(program.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: two C strings; a length of 0 asks for the size only.
    let size = unsafe {
        libc::getxattr(
            path.as_ptr(),
            c"security.capability".as_ptr(),
            core::ptr::null_mut(),
            0,
        )
    };
    size > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A folder that is deleted when dropped.
    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = env::temp_dir().join(format!("dat-check-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("a temporary folder");
            Self(path)
        }

        fn file(&self, name: &str, mode: u32) -> std::path::PathBuf {
            let path = self.0.join(name);
            fs::write(&path, "").expect("writable");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_files_of_devices_and_of_rdma_cm_are_listed() {
        let folder = Folder::new("files");
        for name in ["uverbs1", "uverbs0", "rdma_cm", "umad0", "issm0"] {
            folder.file(name, 0o600);
        }
        let files = device_files(&folder.0);
        let names: Vec<_> = files
            .iter()
            .map(|file| {
                (
                    file.path.rsplit('/').next().unwrap_or_default(),
                    &file.error,
                )
            })
            .collect();
        assert_eq!(
            names,
            [("rdma_cm", &None), ("uverbs0", &None), ("uverbs1", &None)]
        );
        assert!(device_files(&folder.0.join("none")).is_empty());
    }

    #[test]
    fn a_file_that_cannot_be_opened_has_an_error_and_a_remedy_with_its_mode() {
        let folder = Folder::new("denied");
        let path = folder.file("uverbs0", 0o440);
        let remedy = access_remedy(path.to_str().expect("text"));
        assert!(
            remedy.contains("mode 440") && remedy.contains("rdma"),
            "{remedy}"
        );
        let missing = access_error(&folder.0.join("uverbs9")).expect("no such file");
        assert_eq!(missing.raw_os_error(), Some(libc::ENOENT));
        // Root may open every file.
        // SAFETY: geteuid cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            let denied = access_error(&path).expect("it cannot be written");
            assert_eq!(denied.raw_os_error(), Some(libc::EACCES));
        }
    }

    #[test]
    fn setuid_setgid_and_capable_programs_gain_rights() {
        let folder = Folder::new("rights");
        for (mode, capable, gains) in [
            (0o755, false, false),
            (0o755, true, true),
            (0o4755, false, true),
            (0o2755, false, true),
        ] {
            let path = folder.file("program", mode);
            let file = fs::metadata(&path).expect("it exists");
            assert_eq!(gains_rights(&file, capable), gains, "{mode:o} {capable}");
            assert!(!has_capabilities(&path));
        }
    }

    #[test]
    fn only_a_library_that_programs_cannot_use_has_a_note() {
        let note = |path, ours, error| libdat_text("libdat.so.1", path, ours, error).1;
        assert_eq!(note(Some("/opt/libdat.so.1"), true, None), None);
        assert_eq!(note(None, false, Some("no such linker")), None);
        let other = note(Some("/opt/libdat.so.1"), false, None).expect("a note");
        assert!(other.contains("another library"), "{other}");
        let none = note(None, false, None).expect("a note");
        assert!(none.contains("install.sh"), "{none}");
        let broken = note(Some("/opt/libdat.so.1"), true, Some("libx.so not found"));
        assert!(broken.expect("a note").contains("libx.so"));
    }
}

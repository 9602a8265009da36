//! Locating and reading dat.conf.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use dat_engine::environment;

use super::conf::{Conf, Entry, LineError, MAX_LINE_ERRORS};
use super::{VERSIONS, is_replaceable};
use crate::warnings::warn_once;

/// The path if `DAT_OVERRIDE` is not set.
const DEFAULT: &str = "/etc/dat.conf";
/// The most bytes of the file that are read.
const MAX_BYTES: u64 = 4 << 20;

/// dat.conf, as far as it could be read.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) conf: Conf,
    /// Why it is empty.
    pub(super) read_error: Option<String>,
    /// The process had no descriptor left to read it, so its contents are unknown.
    pub(super) unread: bool,
}

/// The dat.conf of this process, for programs that show it.
#[derive(Clone, Debug)]
pub struct ConfFile {
    /// The path.
    pub path: PathBuf,
    /// Whether `DAT_OVERRIDE` names the path; otherwise it is `/etc/dat.conf`.
    pub overridden: bool,
    /// Whether there is such a file. Without one, devices are opened by their own names.
    pub exists: bool,
    /// Why the file could not be read, if it exists.
    pub read_error: Option<String>,
    /// The contents; empty if it could not be read.
    pub conf: Conf,
}

impl ConfFile {
    pub(super) fn read() -> Self {
        let chosen = environment::variable("DAT_OVERRIDE").filter(|path| !path.is_empty());
        let overridden = chosen.is_some();
        let file = File::read_at(chosen);
        let exists = file.read_error.is_none() || file.path.symlink_metadata().is_ok();
        Self {
            overridden,
            exists,
            read_error: file.read_error.filter(|_| exists),
            path: file.path,
            conf: file.conf,
        }
    }
}

impl File {
    /// Reads the file that the environment names, or the default one.
    pub(super) fn read() -> Self {
        Self::read_at(environment::variable("DAT_OVERRIDE"))
    }

    /// Reads a file. One that cannot be read counts as empty, and no other is tried: opening
    /// devices by their own names needs none.
    fn read_at(chosen: Option<OsString>) -> Self {
        let path = chosen
            .filter(|path| !path.is_empty())
            .map_or_else(|| PathBuf::from(DEFAULT), PathBuf::from);
        match bytes_of(&path) {
            Ok((bytes, whole)) => {
                let mut conf = Conf::parse(&bytes);
                if !whole {
                    let line = bytes.iter().filter(|&&byte| byte == b'\n').count() + 1;
                    conf.add_line_error(
                        line,
                        format!(
                            "the file is longer than {MAX_BYTES} bytes: the rest is ignored, so \
                             shorten it"
                        ),
                    );
                }
                warn_of_lines(&path, &bytes, &conf);
                Self {
                    path,
                    conf,
                    read_error: None,
                    unread: false,
                }
            }
            Err(error) => Self {
                read_error: Some(format!("{} cannot be read: {error}", path.display())),
                unread: matches!(
                    error.raw_os_error(),
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)
                ),
                path,
                conf: Conf::default(),
            },
        }
    }
}

/// Warns of the invalid lines of a file, and of those that open nothing, once for each line and
/// contents of the file.
fn warn_of_lines(path: &Path, bytes: &[u8], conf: &Conf) {
    let idle = |entry: &Entry| Some((entry.line, opens_nothing(entry)?));
    let mut idle = conf.entries.iter().filter_map(idle).peekable();
    if idle.peek().is_none() && conf.line_errors.is_empty() {
        return;
    }
    let contents = hash_of(&bytes);
    let more = conf.more_line_errors;
    let path = path.display();
    for LineError { line, cause } in &conf.line_errors {
        warn_once(
            contents,
            &format!("{path}:{line}: this line is ignored: {cause}"),
        );
    }
    for (line, cause) in idle.take(MAX_LINE_ERRORS) {
        let text = format!("{path}:{line}: this line opens nothing: {cause}");
        warn_once(contents, &text);
    }
    if more > 0 {
        warn_once(
            contents,
            &format!("{path}: {more} more lines are invalid and ignored"),
        );
    }
}

/// Returns why no program can open an entry, as files of other systems have them.
fn opens_nothing(entry: &Entry) -> Option<String> {
    let (version, library) = ((entry.major, entry.minor), &entry.library);
    if !VERSIONS.contains(&version) {
        let (major, minor) = version;
        return Some(format!(
            "it is for DAT {major}.{minor}, which no library here has: write u1.2, or u2.0 for \
             programs of uDAPL 2.0"
        ));
    }
    // The file of OFED 2.0, as distributions have it, has lines for each of its providers, installed
    // or not.
    let name = super::file_name(library);
    let is_stock = name.starts_with("libdapl") && name.ends_with(".so.2");
    if entry.is_ours() || is_stock || is_replaceable(library) || is_installed(library) {
        return None;
    }
    Some(format!(
        "there is no library {library}: install it, or write {} and the device, as in \
         \"mlx5_0 1\", in field 7",
        super::library(version)
    ))
}

/// Returns whether the dynamic linker can find a library.
fn is_installed(library: &str) -> bool {
    if library.contains(['/', '\\']) {
        return Path::new(library).exists();
    }
    let folders = environment::variable("LD_LIBRARY_PATH").unwrap_or_default();
    let system = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(PathBuf::from);
    let mut folders = std::env::split_paths(&folders).chain(system);
    // The cache of ldconfig has the name of each library, and its path.
    let cached = || {
        let cache = std::fs::read("/etc/ld.so.cache").unwrap_or_default();
        let names = cache.split(|&byte| byte == 0);
        let mut names = names.map(|name| name.rsplit(|&byte| byte == b'/').next());
        names.any(|name| name == Some(library.as_bytes()))
    };
    folders.any(|folder| folder.join(library).exists()) || cached()
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Returns the bytes up to the last whole line within the limit, and whether that is the whole
/// file.
fn bytes_of(path: &PathBuf) -> io::Result<(Vec<u8>, bool)> {
    let mut bytes = Vec::new();
    OpenOptions::new()
        .read(true)
        // Opening a pipe without a writer would block for ever.
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)?
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 <= MAX_BYTES {
        return Ok((bytes, true));
    }
    let end = bytes.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
    bytes.truncate(end);
    Ok((bytes, false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::warnings;
    use std::cell::RefCell;
    use std::fs;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("dat-conf-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("a temporary folder");
            Self(path)
        }

        fn file(&self, text: &[u8]) -> PathBuf {
            let path = self.0.join("dat.conf");
            fs::write(&path, text).expect("writable");
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn read(path: &Path) -> File {
        File::read_at(Some(path.as_os_str().to_owned()))
    }

    #[test]
    fn the_default_path_is_used_unless_another_is_named() {
        assert_eq!(File::read_at(None).path, Path::new(DEFAULT));
        assert_eq!(
            File::read_at(Some(OsString::new())).path,
            Path::new(DEFAULT)
        );
        let folder = Folder::new("named");
        let path = folder.file(b"a u1.2 threadsafe default libdat.so.1 d.1.2 \"mlx5_0 1\" \"\"\n");
        let file = read(&path);
        assert_eq!(file.path, path);
        assert_eq!((file.conf.entries.len(), file.read_error), (1, None));
    }

    #[test]
    fn a_missing_file_or_a_folder_counts_as_empty_with_a_reason() {
        let folder = Folder::new("missing");
        for path in [folder.0.join("nothing"), folder.0.clone()] {
            let file = read(&path);
            assert_eq!(file.conf, Conf::default());
            let read_error = file.read_error.expect("a reason");
            assert!(
                read_error.contains(path.to_str().expect("ASCII")),
                "{read_error}"
            );
        }
    }

    #[test]
    fn endless_files_and_pipes_without_a_writer_do_not_hang() {
        let zeroes = read(Path::new("/dev/zero"));
        assert!(zeroes.conf.entries.is_empty());
        assert!(
            zeroes.conf.line_errors[0].cause.contains("longer"),
            "{:?}",
            zeroes.conf
        );
        assert_eq!(read(Path::new("/dev/null")).read_error, None);
        let folder = Folder::new("pipe");
        let path = folder.0.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        if made.is_ok_and(|status| status.success()) {
            assert_eq!(read(&path).conf, Conf::default());
        }
    }

    #[test]
    fn the_first_whole_lines_of_a_huge_file_are_used() {
        let line = b"a u1.2 threadsafe default libdat.so.1 d.1.2 \"mlx5_0 1\" \"\"\n";
        let many = usize::try_from(MAX_BYTES).expect("small") / line.len() + 100;
        let folder = Folder::new("huge");
        let file = read(&folder.file(&line.repeat(many)));
        let whole = usize::try_from(MAX_BYTES).expect("small") / line.len();
        assert_eq!(file.conf.entries.len(), whole);
        assert_eq!(file.conf.line_errors.len(), 1);
        assert_eq!(file.conf.line_errors[0].line, whole);
    }

    /// Returns the warnings of reading a file once.
    fn warnings_of(path: &Path) -> Vec<String> {
        thread_local! {
            static PRINTED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
        }
        warnings::collect(
            |line| PRINTED.with_borrow_mut(|printed| printed.push(line.to_owned())),
            || drop(read(path)),
        );
        PRINTED.take()
    }

    /// Lines as they stand in files of other systems.
    #[test]
    fn a_line_that_opens_nothing_is_reported_with_a_remedy() {
        let idle = [
            // SilverStorm
            "InfiniHost0 u1.1 nonthreadsafe default /usr/lib64/libdapl.so ri.1.1 \" \" \" \"",
            // Solaris
            "ibd0 u1.2 nonthreadsafe default udapl_tavor.so.1 SUNW.1.0 \" \" \"driver_name=tavor\"",
            // AIX
            "hca0 u1.2 nonthreadsafe default /usr/lib/libdapl/libdapl2.a(shr_64.o) IBM.1.1 \"/dev/iba0 1 ib0\" \" \"",
            // Windows
            "ibnic0v2 u2.0 nonthreadsafe default C:\\Windows\\system32\\dapl2.dll ri.2.0 \"IbalHca0 1\" \"\"",
        ];
        let open = [
            // OFED 1.x, as RHEL and SUSE have it, and 2.0
            "OpenIB-cma u1.2 nonthreadsafe default libdaplcma.so.1 dapl.1.2 \"ib0 0\" \"\"",
            "ofa-v2-ib0 u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"ib0 0\" \"\"",
            "ofa-v2-mlx4_0-1m u2.0 nonthreadsafe default libdaplomcm.so.2 dapl.2.0 \"mlx4_0 1\" \"\"",
            "own u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 \"mlx5_0 1\" \"\"",
            "libc u1.2 nonthreadsafe default libc.so.6 libc.1.2 \"\" \"\"",
            "dev u1.2 nonthreadsafe default /dev/null null.1.2 \"\" \"\"",
            // For other programs.
            "kernel k1.2 nonthreadsafe default libkdapl.so ri.1.2 \"\" \"\"",
        ];
        let folder = Folder::new("idle");
        let lines = [&idle[..], &open[..]].concat().join("\n") + "\n";
        let path = folder.file(lines.as_bytes());
        let printed = warnings_of(&path);
        assert_eq!(printed.len(), idle.len(), "{printed:?}");
        let remedies = [
            "DAT 1.1",
            "no library udapl_tavor.so.1",
            "libdapl2.a(shr_64.o): install it, or write libdat.so.1",
            "dapl2.dll: install it, or write libdat2.so.2",
        ];
        for ((printed, remedy), line) in printed.iter().zip(remedies).zip(1..) {
            let place = format!("{}:{line}: this line opens nothing: ", path.display());
            assert!(
                printed.starts_with(&place) && printed.contains(remedy),
                "{printed}"
            );
        }
        assert_eq!(warnings_of(&path), [""; 0], "once");
    }

    #[test]
    fn an_invalid_line_is_reported_once_with_file_and_line_until_the_file_changes() {
        let folder = Folder::new("once");
        let path = folder.file(b"# names\none two three\n\"open\n");
        let printed = warnings_of(&path);
        assert_eq!(printed.len(), 2, "{printed:?}");
        let place = format!(
            "{}:2: this line is ignored: 3 fields found, 8 expected",
            path.display()
        );
        assert!(printed[0].starts_with(&place), "{printed:?}");
        assert!(
            printed[1].contains(":3: ") && printed[1].contains("double quote"),
            "{printed:?}"
        );
        assert_eq!(warnings_of(&path), [""; 0]);
        folder.file(b"one two three\n");
        let printed = warnings_of(&path);
        assert_eq!(printed.len(), 1, "{printed:?}");
        assert!(printed[0].contains(":1: "), "{printed:?}");
    }
}

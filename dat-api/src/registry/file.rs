//! Locating and reading dat.conf.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use dat_engine::environment;

use super::conf::{Conf, LineError};
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
                if !conf.line_errors.is_empty() {
                    warn_of_lines(&path, &bytes, &conf);
                }
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

/// Warns of the invalid lines of a file, once for each line and contents of the file.
fn warn_of_lines(path: &Path, bytes: &[u8], conf: &Conf) {
    let contents = hash_of(&bytes);
    let more = conf.more_line_errors;
    let path = path.display();
    for LineError { line, cause } in &conf.line_errors {
        warn_once(
            contents,
            &format!("{path}:{line}: this line is ignored: {cause}"),
        );
    }
    if more > 0 {
        warn_once(
            contents,
            &format!("{path}: {more} more lines are invalid and ignored"),
        );
    }
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

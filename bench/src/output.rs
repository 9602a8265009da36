//! Every write to standard output, standard error and result files, so that a
//! full disk is an error with a cause and never a panic.
//!
//! The file name `-` is standard output; then the text goes to standard error.
//!
//! A closed pipe (`dat-bench … | head -1`) ends the program by `SIGPIPE`; see
//! `main`.

use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use console::Term;

use crate::failure::Failure;

/// Whether a result file is written to standard output.
static STDOUT_IS_A_FILE: AtomicBool = AtomicBool::new(false);

/// Prints a text to standard output and flushes it.
pub(crate) fn print(text: impl Display) -> Result<(), Failure> {
    if STDOUT_IS_A_FILE.load(Ordering::Relaxed) {
        return write!(io::stderr(), "{text}").map_err(|error| {
            Failure::environment(format!("cannot write to standard error: {error}"))
        });
    }
    print_raw(text)
}

fn print_raw(text: impl Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    write!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(|error| standard_output(&error))
}

/// Returns the width of the terminal that text is printed to, in characters; without a
/// terminal (a pipe, a file), lines have any length.
pub(crate) fn width() -> usize {
    /// On a terminal that is narrower, long words would be alone in their lines.
    const LEAST: u16 = 40;
    if cfg!(test) {
        return 80;
    }
    let term = match STDOUT_IS_A_FILE.load(Ordering::Relaxed) {
        true => Term::stderr(),
        false => Term::stdout(),
    };
    term.size_checked()
        .map_or(usize::MAX, |(_, columns)| columns.max(LEAST).into())
}

/// Returns whether a file name stands for standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Prints a line to standard output and flushes it.
pub(crate) fn line(text: impl Display) -> Result<(), Failure> {
    print(format_args!("{text}\n"))
}

/// Returns a count with its noun in the right number.
pub(crate) fn counted(count: impl Into<u64>, thing: &str) -> String {
    match count.into() {
        1 => format!("1 {thing}"),
        count if thing.ends_with("ch") => format!("{count} {thing}es"),
        count => format!("{count} {thing}s"),
    }
}

/// Prints an error to standard error. If that fails, only the exit status
/// reports the error.
pub(crate) fn print_error(text: impl Display) {
    let _ = writeln!(io::stderr(), "dat-bench: {text}");
}

/// Returns the failure for a write to standard output that failed.
pub(crate) fn standard_output(error: &io::Error) -> Failure {
    Failure::environment(format!(
        "cannot write to standard output: {error}; redirect it to a file system with free space"
    ))
}

/// Checks that a result file can be written, without changing its content.
/// Called before the measurement, so that no results are lost. If the file is
/// standard output, text goes to standard error from now on.
pub(crate) fn probe(path: &Path) -> Result<(), Failure> {
    if is_stdout(path) {
        return match STDOUT_IS_A_FILE.swap(true, Ordering::Relaxed) {
            false => Ok(()),
            true => Err(Failure::usage(
                "two result files are '-': only one can be written to standard output",
            )),
        };
    }
    let existed = path.exists();
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .map_err(|error| {
            Failure::usage(format!(
                "cannot write {}: {error}; name another file",
                path.display()
            ))
        })?;
    if !existed {
        // Created empty above. If removing it fails, an empty file remains.
        let _ = fs::remove_file(path);
    }
    Ok(())
}

/// Checks all of a command's result files; see [`probe`].
pub(crate) fn probe_all<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), Failure> {
    paths.into_iter().try_for_each(|path| probe(path))
}

/// Ends a command: prints its text, writes its result files and names them. The
/// files are written even if standard output is full.
pub(crate) fn finish(
    text: impl Display,
    files: impl IntoIterator<Item = (PathBuf, String)>,
) -> Result<(), Failure> {
    let shown = print(text);
    let mut written = Vec::new();
    for (path, content) in files {
        save(&path, &content)?;
        if !is_stdout(&path) {
            written.push(path);
        }
    }
    shown?;
    written
        .iter()
        .try_for_each(|path| line(format_args!(" wrote {}", path.display())))
}

/// Writes a result file.
pub(crate) fn save(path: &Path, text: &str) -> Result<(), Failure> {
    if is_stdout(path) {
        return print_raw(text);
    }
    fs::write(path, text).map_err(|error| {
        Failure::environment(format!(
            "cannot write {}: {error}; the file is incomplete: free some space, or name another file",
            path.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_an_environment_failure_with_file_and_cause() {
        let full = Path::new("/dev/full");
        probe(full).unwrap();
        let failure = save(full, "text").unwrap_err();
        assert_eq!(failure.status(), 2);
        let text = failure.to_string();
        assert!(
            text.contains("/dev/full") && text.contains("No space left"),
            "{text}"
        );
    }

    #[test]
    fn probing_leaves_no_file_behind_and_changes_none() {
        let folder = std::env::temp_dir().join(format!("dat-bench-probe-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("r.json");
        probe(&file).unwrap();
        assert!(!file.exists());
        fs::write(&file, "kept").unwrap();
        probe(&file).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
        fs::remove_dir_all(&folder).unwrap();
    }
}

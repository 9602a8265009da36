//! Why commands are refused: each refusal has an error number of the kernel and a
//! sentence, which `mlx5-emu run --explain` prints.
//!
//! The sentence is kept for the thread until the command returns. A function that
//! recovers from a refusal needs no further steps: the sentence is used only if the
//! command fails with the same number.

use std::cell::Cell;

use crate::spec::{Errno, Result};

/// The reason why libibverbs' probe is refused (`has_ioctl_write` of rdma-core, which
/// expects it). It is traced, and not explained.
pub(crate) const PROBE: &str =
    "the request is empty: libibverbs asks whether commands may come by ioctl, and they may";

thread_local! {
    static LAST: Cell<Option<(i32, &'static str)>> = const { Cell::new(None) };
}

/// Returns an error number, and keeps the reason.
#[must_use]
pub(crate) fn refuse(code: i32, reason: &'static str) -> Errno {
    LAST.set(Some((code, reason)));
    Errno(code)
}

/// Refuses a command if a condition holds.
///
/// # Errors
/// `code` if the condition holds.
pub(crate) fn refuse_if(refused: bool, code: i32, reason: &'static str) -> Result<()> {
    if refused {
        Err(refuse(code, reason))
    } else {
        Ok(())
    }
}

/// Values whose absence refuses a command.
pub(crate) trait OrRefuse {
    /// The value.
    type Value;

    /// Returns the value.
    ///
    /// # Errors
    /// `code` if there is none. It takes the place of another error.
    fn or_refuse(self, code: i32, reason: &'static str) -> Result<Self::Value>;
}

impl<T> OrRefuse for Option<T> {
    type Value = T;

    fn or_refuse(self, code: i32, reason: &'static str) -> Result<T> {
        self.ok_or_else(|| refuse(code, reason))
    }
}

impl<T, E> OrRefuse for std::result::Result<T, E> {
    type Value = T;

    fn or_refuse(self, code: i32, reason: &'static str) -> Result<T> {
        self.map_err(|_| refuse(code, reason))
    }
}

/// Runs work whose refusals are not those of the command.
pub(crate) fn aside<T>(work: impl FnOnce() -> T) -> T {
    let before = LAST.get();
    let done = work();
    LAST.set(before);
    done
}

/// Forgets the last reason.
pub(crate) fn forget() {
    LAST.set(None);
}

/// Returns the reason of a failed command.
pub(crate) fn reason(errno: Errno) -> &'static str {
    LAST.get().filter(|(code, _)| *code == errno.0).map_or(
        "the host refused a system call of the emulated device",
        |(_, reason)| reason,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    #[test]
    fn the_last_refusal_has_the_reason() {
        forget();
        assert_eq!(Some(3).or_refuse(1, "first"), Ok(3));
        assert!(reason(Errno(1)).starts_with("the host"));
        assert_eq!(None::<()>.or_refuse(1, "first"), Err(Errno(1)));
        assert_eq!(Err::<(), _>(7).or_refuse(2, "second"), Err(Errno(2)));
        assert_eq!(reason(Errno(2)), "second");
        assert!(reason(Errno(1)).starts_with("the host"), "another number");
        assert_eq!(refuse_if(false, 3, "third"), Ok(()));
        assert_eq!(refuse_if(true, 3, "third"), Err(Errno(3)));
        assert_eq!(reason(Errno(3)), "third");
        assert_eq!(aside(|| refuse(3, "not shown")), Errno(3));
        assert_eq!(reason(Errno(3)), "third");
        forget();
        assert!(reason(Errno(3)).starts_with("the host"));
    }

    /// Calls `check` with the lines of code, without those of tests, of a file or of all
    /// files in a directory.
    fn lines(path: &Path, check: &mut dyn FnMut(&Path, &str)) {
        if path.ends_with("tests") || path.to_string_lossy().ends_with("tests.rs") {
            return;
        }
        if path.is_dir() {
            for entry in fs::read_dir(path).unwrap().flatten() {
                lines(&entry.path(), check);
            }
            return;
        }
        let text = fs::read_to_string(path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for line in code.lines().filter(|line| !line.trim().starts_with("//")) {
            check(path, line);
        }
    }

    #[test]
    fn every_refusal_of_a_command_has_a_sentence() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut sentences = 0;
        for part in ["nic", "nldev", "ucma", "user.rs", "uverbs"] {
            lines(&source.join(part), &mut |path, line| {
                sentences += usize::from(line.contains("refuse"));
                // Numbers of the host's system calls are passed on.
                let number = line.contains("Errno(libc::E") || line.contains("Errno(E");
                let exempt = line.contains("raw_os_error");
                assert!(!number || exempt, "{}: {line}", path.display());
            });
        }
        assert!(sentences > 200, "only {sentences} refusals were found");
    }
}

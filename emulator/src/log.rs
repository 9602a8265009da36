//! What a person sees: a line for each command (`--trace commands`), why one was refused
//! (`--explain`), which also explains failures of queues and devices, and warnings.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::fork::PerProcess;
use crate::hidden::HiddenFile;
use crate::real;
use crate::refusal;
use crate::spec::{Errno, Result};
use crate::sync::Mutex;

/// Maximum number of characters of a request or a reply that are shown.
const SHOWN: usize = 2000;

static SETTINGS: PerProcess<OnceLock<Settings>> = PerProcess::new();
static IS_ACTIVE: AtomicBool = AtomicBool::new(false);

struct Settings {
    trace: Option<HiddenFile>,
    explains: bool,
}

/// The current command of a thread.
#[derive(Default)]
struct CurrentCommand {
    name: String,
    request: String,
    replies: String,
}

thread_local! {
    static ENTRY: RefCell<CurrentCommand> = RefCell::default();
}

/// Begins to show commands: appended to a file, and explained on standard error if they
/// fail. Later calls do nothing.
///
/// # Errors
/// Returns an error if the file cannot be opened.
pub(crate) fn start(trace: Option<&Path>, explains: bool) -> std::io::Result<()> {
    let settings = SETTINGS.get();
    if settings.get().is_some() {
        return Ok(());
    }
    let open = |path| File::options().create(true).append(true).open(path);
    let trace = trace.map(open).transpose()?.map(HiddenFile::new);
    let is_active = trace.is_some() || explains;
    if settings.set(Settings { trace, explains }).is_ok() {
        IS_ACTIVE.store(is_active, Relaxed);
    }
    Ok(())
}

/// Records the name of the current command.
pub(crate) fn name(name: impl FnOnce() -> String) {
    record(|entry| entry.name = name());
}

/// Records the request of the current command.
pub(crate) fn request(text: impl FnOnce() -> String) {
    record(|entry| entry.request = shortened(text()));
}

/// Records a part of the reply to the current command.
pub(crate) fn reply(text: impl FnOnce() -> String) {
    record(|entry| {
        let separator = if entry.replies.is_empty() { "" } else { ", " };
        let _ = write!(entry.replies, "{separator}{}", shortened(text()));
    });
}

fn record(change: impl FnOnce(&mut CurrentCommand)) {
    if IS_ACTIVE.load(Relaxed) {
        ENTRY.with_borrow_mut(change);
    }
}

fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(SHOWN) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Runs a command that arrived by `interface`, and shows it.
///
/// # Errors
/// The command's.
pub(crate) fn observed<T>(interface: &str, run: impl FnOnce() -> Result<T>) -> Result<T> {
    refusal::forget();
    record(|entry| *entry = CurrentCommand::default());
    let outcome = run();
    if IS_ACTIVE.load(Relaxed)
        && let Some(settings) = SETTINGS.get().get()
    {
        ENTRY.with_borrow(|entry| settings.show(entry, interface, outcome.as_ref().err()));
    }
    outcome
}

/// Prints an explanation that belongs to no command, if the user wants explanations.
pub(crate) fn explain(text: &str) {
    if IS_ACTIVE.load(Relaxed) && SETTINGS.get().get().is_some_and(|it| it.explains) {
        report(text);
    }
}

/// Prints a report.
pub(crate) fn report(text: &str) {
    show(&format!("mlx5-emu: {text}.\n"));
}

/// Prints a message on standard error, once per process and subject.
pub(crate) fn warn(subject: &'static str, message: &str) {
    static SHOWN: PerProcess<Mutex<BTreeSet<&'static str>>> = PerProcess::new();
    let first = SHOWN.get().lock().insert(subject);
    if first {
        show(&format!("mlx5-emu: {message}\n"));
    }
}

/// Writes a text to standard error, at once, so that lines of processes do not mix. Takes
/// no lock, which another thread may have held when this process was forked.
fn show(text: &str) {
    // SAFETY: the bytes of the text. Standard error may be closed, or the disk full.
    unsafe { real::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

impl Settings {
    /// Shows a command. Errors of writing are ignored, so that the program continues.
    /// A wait that ends without an event is no refusal, and neither is the answer to
    /// libibverbs' probe.
    fn show(&self, entry: &CurrentCommand, interface: &str, failure: Option<&Errno>) {
        if let Some(mut trace) = self.trace.as_deref() {
            // One write per command, so that processes can share a file.
            let _ = trace.write_all(line(entry, interface, failure).as_bytes());
        }
        let refused = failure.filter(|errno| {
            ![libc::EAGAIN, libc::EINTR].contains(&errno.0)
                && refusal::reason(**errno) != refusal::PROBE
        });
        if let (true, Some(errno)) = (self.explains, refused) {
            let text = explanation(entry, interface, *errno);
            show(&text);
        }
    }
}

fn line(entry: &CurrentCommand, interface: &str, failure: Option<&Errno>) -> String {
    let CurrentCommand {
        name,
        request,
        replies,
    } = entry;
    let what = match name.as_str() {
        "" => interface.into(),
        name => format!("{name} by {interface}"),
    };
    let result = match failure {
        Some(errno) => format!("{}: {}", errno_name(errno.0), refusal::reason(*errno)),
        None if replies.is_empty() => "ok".into(),
        None => replies.clone(),
    };
    format!("{what}: {request} = {result}\n")
}

fn explanation(entry: &CurrentCommand, interface: &str, errno: Errno) -> String {
    let what = match entry.name.as_str() {
        "" => interface.into(),
        name => format!("{name} ({interface})"),
    };
    format!(
        "mlx5-emu: {what} failed with {}: {}.\n",
        errno_name(errno.0),
        refusal::reason(errno)
    )
}

/// Returns the name of an error number that commands return.
fn errno_name(code: i32) -> String {
    let name = match code {
        libc::EPERM => "EPERM",
        libc::ENOENT => "ENOENT",
        libc::EIO => "EIO",
        libc::EBADF => "EBADF",
        libc::ENOMEM => "ENOMEM",
        libc::EFAULT => "EFAULT",
        libc::EBUSY => "EBUSY",
        libc::ENODEV => "ENODEV",
        libc::EINVAL => "EINVAL",
        libc::EMFILE => "EMFILE",
        libc::ENOTTY => "ENOTTY",
        libc::ENOSPC => "ENOSPC",
        libc::ENODATA => "ENODATA",
        libc::EPROTONOSUPPORT => "EPROTONOSUPPORT",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::EHOSTUNREACH => "EHOSTUNREACH",
        libc::ENETUNREACH => "ENETUNREACH",
        libc::ETIMEDOUT => "ETIMEDOUT",
        libc::EADDRINUSE => "EADDRINUSE",
        libc::EADDRNOTAVAIL => "EADDRNOTAVAIL",
        libc::EACCES => "EACCES",
        libc::EISCONN => "EISCONN",
        libc::ENXIO => "ENXIO",
        libc::ENOSYS => "ENOSYS",
        libc::EAGAIN => "EAGAIN",
        libc::EINTR => "EINTR",
        _ => return format!("error {code}"),
    };
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::refuse;

    #[test]
    fn a_line_has_request_and_reply_or_the_reason() {
        let mut entry = CurrentCommand {
            name: "ALLOC_PD".into(),
            ..CurrentCommand::default()
        };
        assert_eq!(line(&entry, "write", None), "ALLOC_PD by write:  = ok\n");
        (entry.request, entry.replies) = ("r".into(), "3".into());
        assert_eq!(line(&entry, "write", None), "ALLOC_PD by write: r = 3\n");
        let errno = refuse(libc::EINVAL, "it is wrong");
        assert_eq!(
            line(&entry, "ioctl", Some(&errno)),
            "ALLOC_PD by ioctl: r = EINVAL: it is wrong\n"
        );
        assert_eq!(
            explanation(&entry, "ioctl", errno),
            "mlx5-emu: ALLOC_PD (ioctl) failed with EINVAL: it is wrong.\n"
        );
        let mapping = CurrentCommand {
            request: "offset 0x1000".into(),
            ..CurrentCommand::default()
        };
        assert_eq!(line(&mapping, "mmap", None), "mmap: offset 0x1000 = ok\n");
        assert_eq!(
            explanation(&mapping, "mmap", errno),
            "mlx5-emu: mmap failed with EINVAL: it is wrong.\n"
        );
        assert_eq!(errno_name(9999), "error 9999");
    }

    #[test]
    fn long_texts_are_shortened() {
        assert_eq!(shortened("ä".repeat(SHOWN)).chars().count(), SHOWN);
        let cut = shortened("ä".repeat(SHOWN + 9));
        assert!(cut.ends_with("ä…") && cut.chars().count() == SHOWN + 1);
    }
}
